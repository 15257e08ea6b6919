//! The control plane's hand on the node. It takes commands from REST, has the cluster agree on them, carries out what
//! was agreed on and publishes it.
//!
//! What was agreed on is carried out in order on a thread that may block; readers never wait for it. Where several
//! changes wait, the buckets go straight to the last: they compare what is with what shall be. Order matters. A change
//! is on the disks of a majority before anything is done about it, so that the next start repairs a crash in between.
//! It is published after the buckets have followed, so that "created" means "serving".

mod alerts;
pub(crate) mod broadcast;
mod carrying_out;
mod certificates;
pub(crate) mod compacting;
mod documents;
pub(crate) mod everywhere;
pub(crate) mod flushing;
mod joining;
mod moment;
mod node_control;
mod obstacles;
mod proposing;
mod reforming;
mod strangers;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use admin::{Certificates as _, ClusterStatus};
use arc_swap::ArcSwap;
use base::{BucketUuid, NodeId};
use cluster::{ClusterError, LatencyReport, Metadata, consensus::StateMarks};
use dataplane::{
    Shared, Wakes, lease,
    shared::{self, BucketFigures},
};
use http::BoxFuture;
use node::{MetadataState, stands_still};
use parking_lot::Mutex;
use service::Figures;
use tokio::sync::watch;

use crate::{
    audit::{self, AuditLog},
    buckets::{compaction, open::OpenBuckets},
    past::{forecasts::Forecasting, gauges::Gauges, history::keeper::Keeper},
    setup::{certificates::NodeCertificates, identity::ThisNode},
    talk::{
        agreement::{Agreement, Confirmed},
        internal::InternalRoutes,
        mail::Mails,
        peers::Peers,
        proposals::Proposals,
        questions::Questions,
        reads::Reads,
    },
    watching::{
        alerts::Alerting, clocks::Clocks, loads::Loads, objectives::Objectives, probes::Probing, sdks::Sdks,
    },
};

/// How long a command may take to be agreed on.
const PATIENCE: Duration = Duration::from_millis(node::PROPOSAL_MILLIS);
/// Between two looks whether something has come about.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Where proposals of other nodes go, and the answer when they were taken.
const PROPOSE: &str = "propose";
const TAKEN: &[u8] = b"taken";

/// What the control plane is made of.
pub(crate) struct Parts {
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) agreement: Arc<Agreement>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) caught_up: bool,
    /// Random; names this start in proposals.
    pub(crate) origin: u64,
    pub(crate) buckets: Arc<OpenBuckets>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wakes: Wakes,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) objectives: Objectives,
    pub(crate) certificates: Arc<NodeCertificates>,
    pub(crate) this_node: Arc<ThisNode>,
    pub(crate) listen: IpAddr,
}

/// See the module.
pub(crate) struct Control {
    /// For handing itself to the blocking thread that carries a command out.
    me: Weak<Control>,
    metadata: ArcSwap<Metadata>,
    rev: watch::Sender<i64>,
    /// The version of the metadata that buckets have followed.
    carried_out: watch::Sender<u64>,
    agreement: Arc<Agreement>,
    peers: Arc<Peers>,
    /// What services of other nodes ask those of this one.
    questions: Arc<Questions>,
    routes: InternalRoutes,
    /// What tells of the buckets that services work for.
    services: OnceLock<Vec<Arc<dyn Figures>>>,
    proposals: Proposals,
    reads: Reads,
    /// See [`Applied::caught_up`]; true once that much was carried out as well.
    caught_up: AtomicBool,
    /// See [`Applied::life`].
    life: AtomicU64,
    /// Held while something is carried out.
    carrying_out: Mutex<()>,
    buckets: Arc<OpenBuckets>,
    shared: Arc<Shared>,
    wakes: Wakes,
    audit: Arc<AuditLog>,
    gauges: Arc<Gauges>,
    keeper: Mutex<Keeper>,
    objectives: Arc<Objectives>,
    alerting: Alerting,
    forecasting: Forecasting,
    probing: Probing,
    sdks: Sdks,
    mails: Mails,
    loads: Loads,
    clocks: Clocks,
    certificates: Arc<NodeCertificates>,
    this_node: Arc<ThisNode>,
    listen: IpAddr,
    /// How the cluster is, as its leader told last, and when.
    cluster: ArcSwap<(Arc<ClusterStatus>, u64)>,
    /// Members that others know and this node does not, and when they were asked last.
    roll: ArcSwap<strangers::Roll>,
    roll_asked: AtomicU64,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        parts.audit.obey(&parts.metadata.audit_policy());
        parts.certificates.obey(&parts.metadata);
        parts.shared.behind.store(!parts.caught_up, Ordering::Release);
        parts.gauges.origins().lock().step(&parts.metadata, true);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            rev: watch::Sender::new(parts.metadata.rev),
            carried_out: watch::Sender::new(parts.metadata.version),
            metadata: ArcSwap::new(parts.metadata),
            agreement: parts.agreement,
            peers: parts.peers,
            questions: parts.questions,
            routes: InternalRoutes::default(),
            services: OnceLock::new(),
            proposals: Proposals::new(parts.origin),
            reads: Reads::default(),
            caught_up: AtomicBool::new(parts.caught_up),
            life: AtomicU64::new(0),
            carrying_out: Mutex::default(),
            buckets: parts.buckets,
            shared: parts.shared,
            wakes: parts.wakes,
            audit: parts.audit,
            keeper: Mutex::new(Keeper::new(parts.gauges.history_folder())),
            gauges: parts.gauges,
            objectives: Arc::new(parts.objectives),
            alerting: Alerting::default(),
            forecasting: Forecasting::default(),
            probing: Probing::default(),
            sdks: Sdks::default(),
            mails: Mails::default(),
            loads: Loads::default(),
            clocks: Clocks::default(),
            certificates: parts.certificates,
            this_node: parts.this_node,
            listen: parts.listen,
            cluster: ArcSwap::default(),
            roll: ArcSwap::default(),
            roll_asked: AtomicU64::new(0),
        })
    }

    /// Tells which version of the metadata was carried out. What is known is more, while buckets are opened or dropped.
    pub(crate) fn carried_out(&self) -> watch::Receiver<u64> {
        self.carried_out.subscribe()
    }

    /// What the data-plane loops go by, and how they are reached.
    pub(crate) fn loops(&self) -> (&Arc<Shared>, &Wakes) {
        (&self.shared, &self.wakes)
    }

    /// What other nodes may ask.
    pub(crate) fn routes(&self) -> &InternalRoutes {
        &self.routes
    }

    /// From now on this node answers other nodes' questions of that name, until it stops.
    pub(crate) fn answer<F>(
        &self,
        name: &'static str,
        answer: impl Fn(Arc<Self>, Vec<u8>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = Result<Vec<u8>, ClusterError>> + Send + 'static,
    {
        let me = Weak::clone(&self.me);
        self.routes.add(name, move |body| {
            let answered = me.upgrade().map(|me| answer(me, body));
            async move { answered.ok_or_else(stopping)?.await }
        });
    }

    /// What services ask one another.
    pub(crate) fn questions(&self) -> &Arc<Questions> {
        &self.questions
    }

    /// From now on statistics and tasks show what services tell of buckets.
    pub(crate) fn show_services(&self, figures: Vec<Arc<dyn Figures>>) {
        let told = figures.clone();
        self.shared.ask_services_by(move |bucket| {
            let told = told.iter().map(|service| service.of(bucket));
            told.fold(BucketFigures::default(), |sum, one| BucketFigures {
                queries: sum.queries + one.queries,
                disk_bytes: sum.disk_bytes + one.disk_bytes,
                live_bytes: sum.live_bytes + one.live_bytes,
            })
        });
        // A node starts its services once.
        let _ = self.services.set(figures);
    }

    /// The other nodes.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Writes what was counted for objectives and sampled of statistics since the last time. To be called once, at a stop: tasks of the
    /// control plane are over when its runtime is, so none of them can do it.
    pub(crate) fn write_pasts(&self, patience: Duration) {
        if self.caught_up() {
            self.look_at_objectives();
            self.objectives.write_or_say();
        }
        // A thread that waits for the disk may have it still.
        if let Some(mut keeper) = self.keeper.try_lock_for(patience) {
            keeper.load(self.gauges.history());
            keeper.write(self.gauges.history());
        }
    }

    /// Forgets what was counted and sampled of buckets that are gone, whose names others may have by now.
    fn forget_pasts(&self, names: &[String]) {
        self.gauges.forget(names);
        self.objectives.forget(names);
        self.forecasting.forget(names);
    }

    /// What carries the past of statistics to the disk.
    pub(crate) fn keeper(&self) -> &Mutex<Keeper> {
        &self.keeper
    }

    /// Seconds since 1970, by the clock that clients see.
    pub(crate) fn unix_secs(&self) -> u64 {
        u64::from(self.shared.now().unix_secs())
    }

    /// What this node foretells of itself.
    pub(crate) fn forecasting(&self) -> &Forecasting {
        &self.forecasting
    }

    /// The alerts of this node.
    pub(crate) fn alerting(&self) -> &Alerting {
        &self.alerting
    }

    /// What is known of clocks.
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// What this node's probes have found.
    pub(crate) fn probing(&self) -> &Probing {
        &self.probing
    }

    /// What alerts look at.
    pub(crate) fn gauges(&self) -> &Arc<Gauges> {
        &self.gauges
    }

    /// The buckets that are open here.
    pub(crate) fn open_buckets(&self) -> &OpenBuckets {
        &self.buckets
    }

    /// The host by which its cluster knows this node, as texts of alerts name it in Couchbase.
    pub(crate) fn host(&self) -> String {
        let metadata = self.metadata.load();
        let known = metadata.node_by_id(self.this_id());
        known.map_or_else(|| self.listen.to_string(), |node| node.host.clone())
    }

    /// The host and the port by which its cluster knows this node, as REST names it.
    pub(crate) fn name(&self) -> String {
        let metadata = self.metadata.load();
        let known = metadata.node_by_id(self.this_id());
        known.map_or_else(|| self.listen.to_string(), |node| format!("{}:{}", node.host, node.ports.mgmt))
    }

    /// Where this node's console explains an alert. None where the node does not know by which address others reach it.
    pub(crate) fn guide_url(&self, about: &::watch::alerts::About) -> Option<String> {
        let metadata = self.metadata.load();
        let node = metadata.node_by_id(self.this_id())?;
        let host = cluster::config::named_host(&metadata, node)?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Some(format!("http://{host}:{}{}", node.ports.mgmt, about.console_path()))
    }

    /// The certificates of this node.
    pub(crate) fn certificates(&self) -> &Arc<NodeCertificates> {
        &self.certificates
    }

    /// The certificate that the TLS ports show, in PEM.
    pub(crate) fn certificate_pem(&self) -> Option<String> {
        self.certificates.chain_pem()
    }

    /// The mails of this node.
    pub(crate) fn mails(&self) -> &Mails {
        &self.mails
    }

    /// What this node counts for objectives.
    pub(crate) fn objectives_here(&self) -> &Arc<Objectives> {
        &self.objectives
    }

    /// Counts what has happened since the last look.
    pub(crate) fn look_at_objectives(&self) {
        let now = u64::from(self.shared.now().unix_secs());
        let metadata = self.metadata.load();
        self.objectives.look(&metadata, |name| self.buckets.meter(name), now);
        self.sdks.look(&metadata);
    }

    /// The buckets that miss an objective just now, with how slow they are.
    pub(crate) fn missed_objectives(&self) -> HashMap<BucketUuid, LatencyReport> {
        self.objectives.missed(&self.metadata.load(), |name| self.buckets.meter(name))
    }

    /// The leader, as far as is known here.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.agreement.leader()
    }

    /// The life of the group that a leader is of that was asked for before, or a later one. This node may not act in it yet.
    pub(crate) fn life_of_the_leader(&self) -> u64 {
        self.agreement.life()
    }

    /// Takes note of how the cluster is, as its leader says.
    pub(crate) fn heard_of_cluster(&self, status: ClusterStatus) {
        self.cluster.store(Arc::new((Arc::new(status), lease::clock_millis())));
    }

    /// Whether this node leads.
    pub(crate) fn leads(&self) -> bool {
        self.agreement.leads()
    }

    /// The term that this node leads in, as far as it knows.
    pub(crate) fn leads_in(&self) -> Option<u64> {
        self.agreement.leads_in()
    }

    /// What this node says of its metadata: since which change they differ, and their hashes.
    pub(crate) fn state(&self) -> MetadataState {
        let marks = self.agreement.marks();
        let told = (!marks.marks.is_empty()).then(|| StateMarks::clone(&marks));
        MetadataState { diverged: self.agreement.diverged(), state: told }
    }

    /// The leader says that this node's metadata differ from those of most nodes since that change.
    pub(crate) fn has_diverged(&self, index: u64) {
        self.agreement.has_diverged(index);
    }

    /// Whether the disk with the metadata stands still.
    pub(crate) fn stands_still(&self) -> bool {
        stands_still(self.agreement.writing_since(), lease::clock_millis())
    }

    /// See [`Agreement::confirm`].
    pub(crate) async fn confirm_leadership(&self, patience: Duration) -> Option<Confirmed> {
        self.agreement.confirm(patience).await
    }

    /// This node's number in its cluster.
    pub(crate) fn this_id(&self) -> NodeId {
        self.this_node.id()
    }

    /// Whether everything was carried out here that was agreed on when this node started or joined, so that acting on it
    /// undoes nothing.
    pub(crate) fn caught_up(&self) -> bool {
        self.caught_up.load(Ordering::Acquire)
    }

    /// What `read` makes of the metadata, with two values of the same moment. These are the life that the metadata are of, and whether this
    /// node has caught up with what was agreed on in it. Read one by one they may be of different moments. What a node knew when it started
    /// is nothing to act on, even if the node has caught up right after.
    pub(crate) fn at_one_moment<T>(&self, read: impl FnMut() -> T) -> (T, u64, bool) {
        let (read, (life, caught_up)) = moment::unchanged_beside(|| (self.life(), self.caught_up()), read);
        (read, life, caught_up)
    }

    /// The life of its group that this node acts in; see [`Applied::life`].
    pub(crate) fn life(&self) -> u64 {
        self.life.load(Ordering::Acquire)
    }

    /// Starts compacting a bucket on this node, unless that is going on; whether it is open here.
    pub(crate) fn compact_here(&self, bucket: &BucketUuid) -> bool {
        let Some((engine, compacting)) = self.buckets.to_compact(bucket) else { return false };
        let Some(turn) = compacting.begin() else { return true };
        let shared = Arc::clone(&self.shared);
        // Not waited for: rewriting a large bucket takes longer than anybody waits for an answer.
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            compaction::compact_whole(&engine, &shared);
        });
        true
    }

    /// Runs `work` where blocking is allowed.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Control) -> Result<T, ClusterError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ClusterError>> {
        let me = self.me.upgrade();
        Box::pin(async move {
            let Some(me) = me else { return Err(ClusterError::Failed("the node is stopping".into())) };
            let outcome = tokio::task::spawn_blocking(move || work(&me)).await;
            outcome.unwrap_or_else(|error| Err(ClusterError::Failed(error.to_string())))
        })
    }
}

/// The audit hook for logins over the data ports.
pub(crate) fn data_plane_audit(audit: &Arc<AuditLog>) -> impl Fn(shared::AuditEvent) + Send + Sync + 'static {
    let audit = Arc::clone(audit);
    move |event| audit::record_data_plane(&audit, &event)
}

fn stopping() -> ClusterError {
    ClusterError::Failed("the node is stopping".into())
}
