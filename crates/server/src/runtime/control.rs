//! The control plane's hand on the node: takes commands from REST, has the cluster agree on them, carries out what was
//! agreed on and publishes it.
//!
//! What was agreed on is carried out in order on a thread that may block; readers never wait for it. Where several changes
//! wait, the buckets go straight to the last: they compare what is with what shall be. Order matters: a change is on the
//! disks of a majority before anything is done about it, so that a crash in between is repaired by the next start; it is
//! published after the buckets have followed, so that "created" means "serving".

mod reforming;

use std::{
    net::{IpAddr, TcpListener},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use admin::{
    Api, BucketStatsView, Callee, ClusterStatus, JoinOffer, NodeCall, NodeControl, PhaseView, SystemStats,
    Views,
};
use arc_swap::ArcSwap;
use base::{BucketUuid, NodeId, bucket::BucketKind};
use cluster::{
    Admin, Applied as CommandApplied, ClusterError, Command, Initialize, Metadata, QuotaChange,
    auth::{Credentials, SALT_BYTES},
    consensus::{Member, Place, Proposal, StateMarks, epoch_of, join},
};
use engine::Pressure;
use http::{AuditEvent, BoxFuture, Gate, Limits};
use node::stands_still;
use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use super::{
    ServeError,
    agreement::{Agreement, Applied, Confirmed},
    audit::{self, AuditLog},
    buckets::OpenBuckets,
    compacting, compaction, flushing,
    gauges::Gauges,
    http::{Address, Ask, Connection, Security, basic},
    identity::{ThisNode, change_of_address, founding_of_authority},
    internal::InternalRoutes,
    machine::host_name,
    options::{InitBucket, InitOptions, PortsInUse},
    peers::{MESSAGES, Peers, Verdict, decode_messages},
    proposals::{self, Proposals},
    random_uuid,
};
use crate::{
    Shared, Wakes,
    handlers::{dcp_stats, stats},
    lease,
    meter::OpKind,
    phases::Phase,
    shared::{self, BucketEntry},
    tls::PortTls,
};

/// How often a bucket that could not be opened is tried again.
const REOPEN_EVERY: Duration = Duration::from_secs(5);
/// How long a command may take to be agreed on.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a request waits for this node to have everything that was agreed on before: longer than it takes to elect
/// somebody, and to hear of him.
const READ_PATIENCE: Duration = Duration::from_secs(3);
/// How long a request to another node may take: one that has it join takes as long as that.
const CALL_PATIENCE: Duration = Duration::from_secs(20);
/// How soon a proposal is repeated that was taken, and one that was not.
const TAKEN_AGAIN: Duration = Duration::from_secs(2);
const UNTAKEN_AGAIN: Duration = Duration::from_millis(50);
/// How soon a node looks again whether the cluster knows where it listens.
const ADDRESS_AGAIN: Duration = Duration::from_secs(1);
/// Where proposals of other nodes go, and the answer when they were taken.
const PROPOSE: &str = "propose";
const TAKEN: &[u8] = b"taken";

/// What the control plane is made of.
pub(crate) struct Parts {
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) agreement: Arc<Agreement>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) caught_up: bool,
    /// Random; names this start in proposals.
    pub(crate) origin: u64,
    pub(crate) buckets: Arc<OpenBuckets>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wakes: Wakes,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) certificate: String,
    pub(crate) tls: Arc<PortTls>,
    pub(crate) this_node: Arc<ThisNode>,
    pub(crate) listen: IpAddr,
}

/// See the module.
pub(crate) struct Control {
    /// For handing itself to the blocking thread that carries a command out.
    me: Weak<Control>,
    metadata: ArcSwap<Metadata>,
    rev: watch::Sender<i64>,
    agreement: Arc<Agreement>,
    peers: Arc<Peers>,
    routes: InternalRoutes,
    proposals: Proposals,
    /// See [`Applied::caught_up`]; true once that much was carried out as well.
    caught_up: AtomicBool,
    /// Held while something is carried out.
    carrying_out: Mutex<()>,
    buckets: Arc<OpenBuckets>,
    shared: Arc<Shared>,
    wakes: Wakes,
    audit: Arc<AuditLog>,
    gauges: Arc<Gauges>,
    certificate: String,
    tls: Arc<PortTls>,
    this_node: Arc<ThisNode>,
    listen: IpAddr,
    /// How the cluster is, as its leader told last, and when.
    cluster: ArcSwap<(Arc<ClusterStatus>, u64)>,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        parts.audit.obey(&parts.metadata.audit_policy());
        parts.tls.obey(&parts.metadata);
        parts.shared.behind.store(!parts.caught_up, Ordering::Release);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            rev: watch::Sender::new(parts.metadata.rev),
            metadata: ArcSwap::new(parts.metadata),
            agreement: parts.agreement,
            peers: parts.peers,
            routes: InternalRoutes::default(),
            proposals: Proposals::new(parts.origin),
            caught_up: AtomicBool::new(parts.caught_up),
            carrying_out: Mutex::default(),
            buckets: parts.buckets,
            shared: parts.shared,
            wakes: parts.wakes,
            audit: parts.audit,
            gauges: parts.gauges,
            certificate: parts.certificate,
            tls: parts.tls,
            this_node: parts.this_node,
            listen: parts.listen,
            cluster: ArcSwap::default(),
        })
    }

    /// What `POST /clusterInit` would do on a node that is new, and a first bucket on one that has none.
    pub(crate) async fn initialize_unattended(&self, init: &InitOptions) -> Result<(), ServeError> {
        if self.metadata.load().nodes.len() > 1 {
            // A member of a cluster is set up, and what it has is not for this node to say.
            return Ok(());
        }
        if !self.metadata.load().initialized {
            let objection =
                admin::administrator_objection(&self.metadata.load(), &init.username, &init.password);
            if let Some(text) = objection {
                return Err(ServeError::Refused(format!("--init-username and --init-password: {text}")));
            }
            let initialize = Command::Initialize(Initialize {
                admin: Admin { name: init.username.clone(), credentials: credentials(&init.password)? },
                cluster_name: Some(init.cluster_name.clone()).filter(|name| !name.is_empty()),
                quotas: QuotaChange::default(),
            });
            self.propose(initialize).await?;
        }
        // Asked again at every start: the one before may have ended between the two commands.
        match &init.bucket {
            Some(bucket) if self.metadata.load().buckets.is_empty() => {
                self.propose(create_bucket(bucket)?).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Serves REST, plain and over TLS, and the view port's honest refusal, until `shutdown` turns true.
    pub(crate) fn serve(
        self: &Arc<Self>,
        runtime: &tokio::runtime::Runtime,
        listeners: ControlListeners,
        shutdown: &watch::Sender<bool>,
    ) -> Result<(), ServeError> {
        let _context = runtime.enter();
        let api = Api::new(Arc::clone(self) as Arc<dyn NodeControl>)?;
        let ended = || shutdown.subscribe();
        let (plain, tls, views) = (
            tokio::net::TcpListener::from_std(listeners.mgmt)?,
            tokio::net::TcpListener::from_std(listeners.mgmt_tls)?,
            tokio::net::TcpListener::from_std(listeners.capi)?,
        );
        let limits = Limits::default();
        let keeper = Arc::clone(&api);
        runtime.spawn(http::serve(plain, None, Arc::clone(&api), limits, ended()));
        let shown = Arc::clone(&self.tls);
        let now = Arc::new(move || shown.now());
        runtime.spawn(http::serve(tls, Some(now), api, limits, ended()));
        runtime.spawn(http::serve(views, None, Arc::new(Views), limits, ended()));
        runtime.spawn(keeper.keep_log(ended()));
        let (buckets, account) = (Arc::clone(&self.buckets), Arc::clone(&self.shared.account));
        runtime.spawn(Arc::clone(&self.gauges).sample(buckets, account, ended()));
        runtime.spawn(Arc::clone(self).reopen(ended()));
        Ok(())
    }

    /// Carries out what was agreed on, on this thread, until the node stops.
    pub(crate) fn follow(me: &Weak<Self>, applied: &Receiver<Applied>) {
        loop {
            let due = match me.upgrade() {
                Some(me) => me.buckets.maps_due(),
                None => return,
            };
            let next = match due {
                Some(due) => applied.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => applied.recv().map_err(RecvTimeoutError::from),
            };
            let mut next = match next {
                Ok(next) => next,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(me) = me.upgrade() {
                        me.tell_maps();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Ok(more) = applied.try_recv() {
                next.extend(more);
            }
            let Some(me) = me.upgrade() else { return };
            me.carry_out(next);
        }
    }

    /// Carries out and publishes; blocks on disk and on threads that have to end.
    fn carry_out(&self, applied: Applied) {
        let _turn = self.carrying_out.lock();
        if let Some(last) = applied.commits.last() {
            let next = Arc::clone(&last.metadata);
            self.metadata.store(Arc::clone(&next));
            self.audit.obey(&next.audit_policy());
            self.tls.obey(&next);
            let outcome = self.buckets.reconcile(&next);
            if let Err(error) = &outcome {
                tracing::error!(%error, "a bucket is not available");
            }
            self.wake_watchers(next.rev);
            let outcome = outcome.map_err(ClusterError::from);
            for (id, ended) in applied.commits.into_iter().flat_map(|commit| commit.outcomes) {
                self.proposals.ended(id, || ended.and_then(|applied| outcome.clone().map(|()| applied)));
            }
        }
        let had = self.caught_up.swap(applied.caught_up, Ordering::AcqRel);
        self.shared.behind.store(!applied.caught_up, Ordering::Release);
        if applied.caught_up
            && !had
            && let Err(error) = self.buckets.remove_unknown(&self.metadata.load())
        {
            tracing::error!(%error, "files of dropped buckets stay until the next start");
        }
        // Whoever asked may have given up.
        for waiting in applied.reads {
            let _ = waiting.send(());
        }
    }

    /// Tells clients of the maps that were held back, unless somebody has done so, or they are to wait for longer.
    fn tell_maps(&self) {
        let _turn = self.carrying_out.lock();
        if self.buckets.maps_due().is_none_or(|due| Instant::now() < due) {
            return;
        }
        let metadata = self.metadata.load_full();
        self.buckets.tell_maps(&metadata);
        self.wake_watchers(metadata.rev);
    }

    /// What the data-plane loops go by, and how they are reached.
    pub(super) fn loops(&self) -> (&Shared, &Wakes) {
        (&self.shared, &self.wakes)
    }

    /// Wakes whoever is to be told of what was published.
    fn wake_watchers(&self, rev: i64) {
        if self.buckets.maps_due().is_none() {
            self.rev.send_replace(rev);
        }
        self.wakes.config_changed();
    }

    /// Has the cluster agree on a command, wherever its leader is; when it resolves with success, it was carried out
    /// here.
    pub(crate) async fn propose(&self, command: Command) -> Result<CommandApplied, ClusterError> {
        // What some would not understand is not even proposed; the leader looks again.
        let known = self.metadata.load_full();
        known.admits(&command)?;
        let seen = known.places_proposals().then_some(known.version);
        let until = Instant::now() + PATIENCE;
        let (id, mut ended) = self.proposals.begin();
        loop {
            if !self.agreement.takes_part() {
                // Nobody would tell this node how it ended.
                let trouble = self.agreement.trouble().unwrap_or_default();
                return Err(ClusterError::Failed(format!("the metadata cannot change here: {trouble}")));
            }
            let place = seen.map(|seen| Place { open: self.proposals.open(id), seen });
            let taken = self.propose_once(Proposal { id, place, command: command.clone() }).await;
            // What was taken is proposed again only if nothing is heard of it: its leader may be gone.
            let pause = if taken { TAKEN_AGAIN } else { UNTAKEN_AGAIN };
            if let Ok(outcome) = timeout(pause, &mut ended).await {
                return outcome.unwrap_or_else(|_| Err(stopping()));
            }
            if Instant::now() >= until {
                let trouble = self.agreement.trouble().unwrap_or_else(|| {
                    "the nodes that vote on changes are not in the majority, or cannot be reached; the change may \
                     still be made"
                        .into()
                });
                return Err(ClusterError::Failed(trouble));
            }
        }
    }

    /// Hands a proposal to the leader; whether he took it.
    async fn propose_once(&self, proposal: Proposal) -> bool {
        if self.leads() {
            return self.agreement.propose(proposal).await.is_ok();
        }
        match self.leader().filter(|leader| *leader != self.this_id()) {
            Some(leader) => {
                let Ok(body) = proposals::encode(&proposal) else { return false };
                match self.peers().post(leader, PROPOSE, body).await {
                    Ok(answer) => answer == TAKEN,
                    Err(error) => {
                        tracing::debug!(%error, "the leader has not taken a proposal");
                        false
                    }
                }
            }
            None => false,
        }
    }

    /// Joins another cluster, of which this node knows nothing yet but its members.
    async fn become_member(&self, offer: JoinOffer) -> Result<(), ClusterError> {
        let metadata = self.metadata.load_full();
        cluster::level::check(offer.level, cluster::level::LEVEL)?;
        if metadata.nodes.len() > 1 || !metadata.buckets.is_empty() {
            let text = "a node that has buckets, or belongs to a cluster, cannot join another one";
            return Err(ClusterError::Failed(text.into()));
        }
        let member = Member {
            uuid: self.this_node.uuid(),
            node: offer.node,
            cluster_uuid: offer.cluster_uuid,
            epoch: offer.epoch,
            secret: offer.secret,
            peers: offer.members,
            authority: offer.authority,
        };
        let first = join(&member).map_err(|error| ClusterError::Failed(error.to_string()))?;
        let (cluster_uuid, node) = (member.cluster_uuid, member.node);
        self.agreement.become_member(first);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            tokio::time::sleep(UNTAKEN_AGAIN).await;
            let metadata = self.metadata.load();
            // Until the cluster's own metadata is here no number has been given.
            if metadata.cluster_uuid == cluster_uuid && metadata.next_node > node.get() {
                return Ok(());
            }
        }
        self.agreement.forget_cluster(node);
        let text = "the nodes of the cluster have not sent its metadata in time; can they reach this node?";
        Err(ClusterError::Failed(text.into()))
    }

    /// Makes this node new; when this resolves nothing that it held is served, and no crash brings that back.
    async fn begin_anew(&self) -> Result<(), ClusterError> {
        self.agreement.reset().await?;
        // What is new is read once it is on disk and carried out.
        if self.agreement.read(PATIENCE).await {
            return Ok(());
        }
        let trouble = self.agreement.trouble();
        Err(ClusterError::Failed(trouble.map_or_else(
            || "the node is still letting go of what it held".into(),
            |trouble| format!("the node is reset once that can be written: {trouble}"),
        )))
    }

    /// Answers what other nodes ask of the consensus.
    pub(crate) fn answer_peers(self: &Arc<Self>) {
        let me = Weak::clone(&self.me);
        self.routes().add(MESSAGES, move |body| {
            let me = me.upgrade();
            async move { me.map_or_else(|| Err(stopping()), |me| me.take_messages(&body)) }
        });
        let me = Weak::clone(&self.me);
        self.routes().add(PROPOSE, move |body| {
            let me = me.upgrade();
            async move {
                let me = me.ok_or_else(stopping)?;
                // What this node would not carry out whole is not for it to propose.
                let proposal = proposals::decode(&body).map_err(|error| {
                    ClusterError::Failed(format!("the leader cannot read a proposal: {error}"))
                })?;
                let taken = me.agreement.propose(proposal).await.is_ok();
                Ok(if taken { TAKEN.to_vec() } else { Vec::new() })
            }
        });
        self.answer_survivors();
    }

    fn take_messages(&self, body: &[u8]) -> Result<Vec<u8>, ClusterError> {
        let (from, messages) =
            decode_messages(body).ok_or_else(|| ClusterError::Failed("malformed messages".into()))?;
        let metadata = self.metadata.load();
        // Where the group was formed anew without this node, it is not for this node to say who belongs to it.
        let is_behind = messages.first().and_then(|message| epoch_of(message)) > Some(self.agreement.epoch());
        if !is_behind && metadata.has_removed(from) && !self.agreement.has_member(from) {
            return Ok(Verdict::Removed.answer().to_vec());
        }
        if !is_behind && metadata.knows_nothing_of(from) {
            return Ok(Verdict::Unknown.answer().to_vec());
        }
        messages.into_iter().for_each(|message| self.agreement.step(message.to_vec()));
        Ok(Vec::new())
    }

    /// Tells the cluster where this node listens, if that has changed since it was a member last, and gives it a
    /// certificate authority, if it is older than that.
    pub(crate) async fn note_address(self: Arc<Self>, ports: PortsInUse, mut ended: watch::Receiver<bool>) {
        loop {
            if self.caught_up() {
                let metadata = self.metadata.load_full();
                let change = change_of_address(&metadata, &self.this_node.uuid(), self.listen, &ports)
                    .or_else(|| founding_of_authority(&metadata));
                let Some(command) = change else { return };
                if let Err(error) = self.propose(command).await {
                    tracing::warn!(%error, "the cluster has not taken note of this node yet");
                }
            }
            tokio::select! {
                _ = ended.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(ADDRESS_AGAIN) => {}
            }
        }
    }

    /// What other nodes may ask.
    pub(crate) fn routes(&self) -> &InternalRoutes {
        &self.routes
    }

    /// The other nodes.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Who leads, as far as is known here.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.agreement.leader()
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
    pub(super) fn state(&self) -> (Option<u64>, Option<StateMarks>) {
        let marks = self.agreement.marks();
        let told = (!marks.marks.is_empty()).then(|| StateMarks::clone(&marks));
        (self.agreement.diverged(), told)
    }

    /// The leader says that this node's metadata differ from those of most nodes since that change.
    pub(super) fn has_diverged(&self, index: u64) {
        self.agreement.has_diverged(index);
    }

    /// Whether the disk with the metadata stands still.
    pub(super) fn stands_still(&self) -> bool {
        stands_still(self.agreement.writing_since(), lease::clock_millis())
    }

    /// See [`Agreement::confirm`].
    pub(super) async fn confirm_leadership(&self, patience: Duration) -> Option<Confirmed> {
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

    /// Tries again and again to open buckets that could not be opened, until the node stops: what was in the way of one at
    /// the start, a disk that was not mounted or full, may be gone. And at once when the same bucket, dropped before, is gone.
    async fn reopen(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(REOPEN_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // An error means that the sender is gone: the node stops as well.
                _ = ended.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
                () = self.buckets.one_has_left() => {}
            }
            if self.buckets.misses(&self.metadata.load())
                && let Err(error) = self.reconcile_again().await
            {
                tracing::error!(%error, "a bucket is still not available");
            }
        }
    }

    /// Brings reality to where the metadata has been for a while.
    async fn reconcile_again(&self) -> Result<(), ClusterError> {
        let reconciling = self.blocking(|me| {
            let _turn = me.carrying_out.lock();
            let metadata = me.metadata.load_full();
            let outcome = me.buckets.reconcile(&metadata);
            me.wake_watchers(metadata.rev);
            Ok(outcome?)
        });
        let outcome = reconciling.await;
        // The thread that carries out what is agreed on sleeps until there is more of that, and may not have seen that maps were
        // held back.
        if let Some(due) = self.buckets.maps_due() {
            tokio::time::sleep_until(due.into()).await;
            let tell = |me: &Self| {
                me.tell_maps();
                Ok(())
            };
            self.blocking(tell).await?;
        }
        outcome?;
        tracing::info!("every bucket is available again");
        Ok(())
    }

    /// Starts compacting a bucket on this node, unless that is going on; whether it is open here.
    pub(super) fn compact_here(&self, bucket: &BucketUuid) -> bool {
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

/// What the leader said of the cluster is good for so long: every report is answered with it.
const STATUS_GOOD_MILLIS: u64 = 2_000;
/// Percent of a quota that keys and metadata may take without a warning (ns_server).
const OVERHEAD_PERCENT: u64 = 50;

impl Control {
    /// Replicas of a bucket that shall follow other nodes' copies now, and do not.
    fn cut_off(&self, bucket: &BucketEntry) -> u64 {
        let links = self.shared.links();
        links.map_or(0, |links| links.cut_off(&bucket.uuid).values().copied().map(u64::from).sum())
    }

    fn lease_alert(&self) -> Option<String> {
        self.shared.lease.has_run_out(lease::clock_millis).then(|| {
            let node = self.listen;
            format!("Node {node} has lost touch with its cluster: it serves nothing until a majority hears it again.")
        })
    }

    fn agreement_alert(&self) -> Option<String> {
        let trouble = self.agreement.trouble()?;
        Some(format!("Cluster metadata cannot change on node {}: {trouble}.", self.listen))
    }

    /// What the memory of buckets makes an administrator's business: before clients see errors, then while they do.
    fn pressure_alerts(&self) -> Vec<String> {
        let node = self.listen;
        let mut alerts = Vec::new();
        for (bucket, _) in self.buckets.patients() {
            let name = bucket.name();
            match bucket.pressure_step() {
                Pressure::None | Pressure::Paging => {}
                Pressure::Cursors => alerts.push(format!(
                    "Memory pressure: Bucket \"{name}\" on node {node} is close to its quota. Slow streams are read \
                     from disk."
                )),
                Pressure::Pacing => alerts.push(format!(
                    "Write pressure: Writers of bucket \"{name}\" on node {node} are slowed down to what the disk takes."
                )),
                Pressure::Refusing => alerts.push(format!(
                    "Heavy memory pressure: Bucket \"{name}\" on node {node} has reached its quota. The server will \
                     attempt to recover from this issue."
                )),
            }
            let stats = bucket.stats();
            let percent = stats.mem_floor * 100 / stats.quota_bytes.max(1);
            if bucket.kind() == BucketKind::Couchbase && percent > OVERHEAD_PERCENT {
                alerts.push(format!(
                    "Metadata overhead warning. Over {percent}% of RAM allocated to bucket \"{name}\" on node \
                     \"{node}\" is taken up by keys and metadata."
                ));
            }
        }
        alerts
    }
}

/// Listeners of the control plane.
pub(crate) struct ControlListeners {
    pub(crate) mgmt: TcpListener,
    pub(crate) mgmt_tls: TcpListener,
    pub(crate) capi: TcpListener,
}

impl Gate for Control {
    fn metadata(&self) -> Arc<Metadata> {
        self.metadata.load_full()
    }

    fn catch_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if !self.agreement.read(READ_PATIENCE).await {
                tracing::debug!("nobody says what was agreed on; a request is judged by what is known here");
            }
        })
    }

    fn allows_setup_from(&self, peer: IpAddr) -> bool {
        // Whoever is on this machine: by loopback, or by the address the node listens on.
        peer.is_loopback() || peer == self.listen
    }

    fn is_own_name(&self, name: &str) -> bool {
        host_name().is_some_and(|own| own == name)
    }

    fn audit(&self, event: AuditEvent) {
        audit::record_rest(&self.audit, &event);
    }
}

impl NodeControl for Control {
    fn watch(&self) -> watch::Receiver<i64> {
        self.rev.subscribe()
    }

    fn this_node(&self) -> String {
        self.this_node.uuid()
    }

    fn knows_cluster(&self) -> bool {
        self.caught_up()
    }

    fn submit(&self, command: Command) -> BoxFuture<'_, Result<CommandApplied, ClusterError>> {
        match command {
            Command::FailOver(fail_over) if fail_over.allow_unsafe => {
                Box::pin(self.fail_over_at_any_price(fail_over))
            }
            command => Box::pin(self.propose(command)),
        }
    }

    fn cluster_status(&self) -> Arc<ClusterStatus> {
        let heard = self.cluster.load();
        let (status, at) = &**heard;
        let is_old = lease::clock_millis().saturating_sub(*at) > STATUS_GOOD_MILLIS;
        if is_old || status.leader != self.leader() {
            Arc::new(ClusterStatus { stale: true, ..ClusterStatus::clone(status) })
        } else {
            Arc::clone(status)
        }
    }

    fn internal<'a>(&'a self, name: &'a str, body: Vec<u8>) -> BoxFuture<'a, Result<Vec<u8>, ClusterError>> {
        self.routes.answer(name, body)
    }

    fn offer(&self, uuid: &str) -> Result<JoinOffer, ClusterError> {
        let metadata = self.metadata.load();
        let node = metadata.node(uuid).ok_or(ClusterError::NodeNotFound)?;
        Ok(JoinOffer {
            cluster_uuid: metadata.cluster_uuid.clone(),
            level: metadata.level,
            node: node.id,
            epoch: self.agreement.epoch(),
            secret: metadata.secret.clone(),
            authority: metadata.authority.clone(),
            members: metadata.nodes.clone(),
        })
    }

    fn join(&self, offer: JoinOffer) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(self.become_member(offer))
    }

    fn reset(&self) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(self.begin_anew())
    }

    fn call_node(&self, call: NodeCall) -> BoxFuture<'_, Result<(u16, Vec<u8>), ClusterError>> {
        Box::pin(async move {
            let address = match call.to {
                // What a node that is behind knows of the others may be old: how they are to be spoken to as well.
                Callee::Member(_) if !self.caught_up() => {
                    let text = "this node has yet to hear what its cluster has agreed on";
                    return Err(ClusterError::Failed(text.into()));
                }
                Callee::Member(node) => {
                    let metadata = self.metadata.load();
                    Address::of(metadata.node_by_id(node).ok_or(ClusterError::NodeNotFound)?)
                }
                Callee::Stranger { host, port, tls } => {
                    let security = if tls { Security::Stranger } else { Security::Plain };
                    Address { host, port, security }
                }
            };
            let failed = |error: std::io::Error| {
                ClusterError::Failed(format!("{}:{}: {error}", address.host, address.port))
            };
            let ask = Ask {
                method: call.method.parse().map_err(|_| ClusterError::Failed("no such method".into()))?,
                path: &call.path,
                authorization: call.credentials.as_ref().map(|(name, password)| basic(name, password)),
                content_type: &call.content_type,
                body: call.body,
            };
            let mut connection = Connection::open(&address, &self.shared.node_tls).await.map_err(failed)?;
            connection.exchange(ask, CALL_PATIENCE).await.map_err(failed)
        })
    }

    fn flush_bucket<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
        if self.metadata.load().nodes.len() > 1 {
            return Box::pin(flushing::flush(self, name));
        }
        let name = name.to_owned();
        self.blocking(move |me| {
            let engine = me.buckets.engine(&name).ok_or(ClusterError::BucketNotFound)?;
            let flushed = engine.flush_all(me.shared.now());
            flushed.map_err(|status| {
                ClusterError::Failed(format!("the bucket could not be flushed: {}", status.text()))
            })
        })
    }

    fn compact_bucket<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
        Box::pin(compacting::start(self, name))
    }

    fn bucket_is_ready(&self, name: &str) -> bool {
        // Documents that are not in memory yet are fetched on demand, so an open bucket is a ready one.
        self.buckets.engine(name).is_some()
    }

    fn bucket_stats(&self, name: &str) -> Option<BucketStatsView> {
        let stats = self.buckets.engine(name)?.stats();
        let meter = self.buckets.meter(name)?;
        let rates = self.gauges.bucket(name);
        let reads = [OpKind::Get, OpKind::SubdocLookup];
        let gets: u64 = reads.map(|kind| meter.operations(kind)).iter().sum();
        let misses = reads.map(|kind| meter.misses(kind)).iter().sum();
        let writes = [OpKind::Set, OpKind::Add, OpKind::Replace, OpKind::SubdocMutation];
        let sets = writes.map(|kind| meter.operations(kind)).iter().sum();
        let snapshot = self.shared.snapshot();
        let entry = snapshot.buckets.get(name);
        let dcp = entry.map(|entry| dcp_stats::totals(&self.shared, entry)).unwrap_or_default();
        Some(BucketStatsView {
            items: stats.curr_items,
            replica_items: stats.replica.items,
            mem_used: stats.mem_used,
            quota_min: stats.quota_min(),
            disk_used: stats.disk_bytes,
            data_used: stats.disk_live_bytes,
            ops_per_sec: rates.ops_per_sec,
            disk_fetches_per_sec: rates.fetches_per_sec,
            resident_percent: stats.resident_percent as f64,
            disk_queue: stats.diskqueue_items,
            connections: self.shared.totals.connections.load(Ordering::Relaxed),
            gets,
            get_hits: gets.saturating_sub(misses),
            sets,
            deletes: meter.operations(OpKind::Delete),
            dcp_producers: dcp.all.producers,
            dcp_items_sent: dcp.all.items_sent,
            dcp_items_remaining: dcp.all.items_remaining,
            dcp_bytes_sent: dcp.all.bytes_sent,
            links: dcp.replication.producers + dcp.replication.consumers,
            links_items_sent: dcp.replication.items_sent,
            links_items_remaining: dcp.replication.items_remaining,
            links_bytes_sent: dcp.replication.bytes_sent,
            links_inflated_bytes_sent: dcp.replication.inflated_bytes_sent,
            replicas_cut_off: entry.map_or(0, |entry| self.cut_off(entry)),
        })
    }

    fn bucket_phases(&self, name: &str) -> Vec<PhaseView> {
        let Some(meter) = self.buckets.meter(name) else { return Vec::new() };
        let view = |(phase, name)| {
            let report = meter.phase(phase);
            let steps = report.steps.iter().map(|step| (step.to_micros, step.count)).collect();
            PhaseView { name, micros: report.micros, steps }
        };
        Phase::ALL.map(view).into()
    }

    fn raw_stats(&self, bucket: &str, group: &str) -> Vec<(String, String)> {
        let snapshot = self.shared.snapshot();
        snapshot.buckets.get(bucket).map_or_else(Vec::new, |entry| stats::of_rest(&self.shared, entry, group))
    }

    fn system(&self) -> SystemStats {
        self.gauges.system(&self.shared)
    }

    fn alerts(&self) -> Vec<String> {
        let disk = *self.shared.disk.lock();
        let used = (disk.total - disk.free.min(disk.total)) * 100 / disk.total.max(1);
        let text = || {
            format!(
                "Approaching full disk warning. Usage of disk \"{}\" on node \"{}\" is around {used}%: only \
                 deletions are accepted.",
                self.gauges.data_dir(),
                self.listen
            )
        };
        disk.low
            .then(text)
            .into_iter()
            .chain(self.lease_alert())
            .chain(self.agreement_alert())
            .chain(self.pressure_alerts())
            .collect()
    }

    fn certificate_pem(&self) -> Option<String> {
        Some(self.certificate.clone())
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

fn create_bucket(bucket: &InitBucket) -> Result<Command, ServeError> {
    let uuid = BucketUuid(random_uuid()?);
    Ok(Command::CreateBucket { name: bucket.name.clone(), uuid, params: bucket.params() })
}

fn credentials(password: &str) -> Result<Credentials, ServeError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(std::io::Error::other)?;
    Ok(Credentials::new(password, salt))
}
