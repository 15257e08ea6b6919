//! The control plane's hand on the node: takes commands from REST, has `cluster` decide, makes the decision durable,
//! carries it out and publishes it.
//!
//! Commands are carried out one at a time on a thread that may block; readers never wait for them. Order matters:
//! the metadata is on disk before anything is done about it, so that a crash in between is repaired by the next
//! start; it is published after the buckets have followed, so that "created" means "serving".

use std::{
    net::{IpAddr, TcpListener},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use admin::{
    Api, AuditEvent, AuditKind, BoxFuture, BucketStatsView, JoinOffer, Limits, NodeCall, NodeControl,
    PhaseView, SystemStats, Views,
};
use arc_swap::ArcSwap;
use base::{BucketUuid, bucket::BucketKind};
use cluster::{
    Admin, Applied, BucketParams, ClusterError, Command, Initialize, LegacyParams, Metadata, MetadataStore,
    QuotaChange,
    auth::{Credentials, SALT_BYTES},
};
use engine::Pressure;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    ServeError,
    audit::{self, AuditLog},
    buckets::OpenBuckets,
    compaction,
    gauges::Gauges,
    options::{InitBucket, InitOptions},
    random_uuid,
};
use crate::{
    Shared, Wakes,
    handlers::{dcp_stats, stats},
    meter::OpKind,
    phases::Phase,
    shared,
};

/// How often a bucket that could not be opened is tried again.
const REOPEN_EVERY: Duration = Duration::from_secs(5);

/// What the control plane is made of.
pub(crate) struct Parts {
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) store: MetadataStore,
    pub(crate) buckets: Arc<OpenBuckets>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) wakes: Wakes,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) certificate: String,
    pub(crate) this_node: String,
    pub(crate) listen: IpAddr,
}

/// See the module.
pub(crate) struct Control {
    /// For handing itself to the blocking thread that carries a command out.
    me: Weak<Control>,
    metadata: ArcSwap<Metadata>,
    rev: watch::Sender<i64>,
    /// Held while a command is decided and carried out.
    store: Mutex<MetadataStore>,
    buckets: Arc<OpenBuckets>,
    shared: Arc<Shared>,
    wakes: Wakes,
    audit: Arc<AuditLog>,
    gauges: Arc<Gauges>,
    certificate: String,
    this_node: String,
    listen: IpAddr,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        parts.audit.obey(&parts.metadata.audit_policy());
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            rev: watch::Sender::new(parts.metadata.rev),
            metadata: ArcSwap::new(parts.metadata),
            store: Mutex::new(parts.store),
            buckets: parts.buckets,
            shared: parts.shared,
            wakes: parts.wakes,
            audit: parts.audit,
            gauges: parts.gauges,
            certificate: parts.certificate,
            this_node: parts.this_node,
            listen: parts.listen,
        })
    }

    /// What `POST /clusterInit` would do on a node that is new, and a first bucket on one that has none.
    pub(crate) fn initialize_unattended(&self, init: &InitOptions) -> Result<(), ServeError> {
        if !self.metadata.load().initialized {
            self.carry_out(&Command::Initialize(Initialize {
                admin: Admin { name: init.username.clone(), credentials: credentials(&init.password)? },
                cluster_name: Some(init.cluster_name.clone()).filter(|name| !name.is_empty()),
                quotas: QuotaChange::default(),
            }))?;
        }
        // Asked again at every start: the one before may have ended between the two commands.
        match &init.bucket {
            Some(bucket) if self.metadata.load().buckets.is_empty() => {
                self.carry_out(&create_bucket(bucket)?)?;
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
        runtime.spawn(admin::serve(plain, None, Arc::clone(&api), limits, ended()));
        runtime.spawn(admin::serve(tls, Some(listeners.tls), api, limits, ended()));
        runtime.spawn(admin::serve(views, None, Arc::new(Views), limits, ended()));
        runtime.spawn(keeper.keep_log(ended()));
        runtime.spawn(Arc::clone(&self.gauges).sample(Arc::clone(&self.buckets), ended()));
        runtime.spawn(Arc::clone(self).reopen(ended()));
        Ok(())
    }

    /// Decides, records, carries out and publishes; blocks on disk and on threads that have to end.
    fn carry_out(&self, command: &Command) -> Result<Applied, ClusterError> {
        let store = self.store.lock();
        let (next, applied) = self.metadata.load().apply(command)?;
        let next = Arc::new(next);
        store.save(&next).map_err(|error| ClusterError::Failed(error.to_string()))?;
        self.metadata.store(Arc::clone(&next));
        self.audit.obey(&next.audit_policy());
        let outcome = self.buckets.reconcile(&next);
        self.rev.send_replace(next.rev);
        self.wakes.config_changed();
        outcome?;
        Ok(applied)
    }

    /// Tries again and again to open buckets that could not be opened, until the node stops: what was in the way of one at
    /// the start, a disk that was not mounted or full, may be gone.
    async fn reopen(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(REOPEN_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // An error means that the sender is gone: the node stops as well.
                _ = ended.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
            }
            if self.buckets.misses(&self.metadata.load())
                && let Err(error) = self.blocking(|me| me.reconcile_again()).await
            {
                tracing::error!(%error, "a bucket is still not available");
            }
        }
    }

    /// Brings reality to where the metadata has been for a while.
    fn reconcile_again(&self) -> Result<(), ClusterError> {
        let _store = self.store.lock();
        let metadata = self.metadata.load_full();
        let outcome = self.buckets.reconcile(&metadata);
        self.rev.send_replace(metadata.rev);
        self.wakes.config_changed();
        outcome?;
        tracing::info!("every bucket is available again");
        Ok(())
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

/// Percent of a quota that keys and metadata may take without a warning (ns_server).
const OVERHEAD_PERCENT: u64 = 50;

impl Control {
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
    pub(crate) tls: Arc<rustls::ServerConfig>,
}

impl NodeControl for Control {
    fn metadata(&self) -> Arc<Metadata> {
        self.metadata.load_full()
    }

    fn watch(&self) -> watch::Receiver<i64> {
        self.rev.subscribe()
    }

    fn this_node(&self) -> String {
        self.this_node.clone()
    }

    fn allows_setup_from(&self, peer: IpAddr) -> bool {
        // Whoever is on this machine: by loopback, or by the address the node listens on.
        peer.is_loopback() || peer == self.listen
    }

    fn submit(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>> {
        self.blocking(move |me| me.carry_out(&command))
    }

    fn offer(&self, _: &str) -> Result<JoinOffer, ClusterError> {
        Err(ClusterError::NotSupported("Clusters of several nodes are not supported yet.".into()))
    }

    fn join(&self, _: JoinOffer) -> BoxFuture<'_, Result<(), ClusterError>> {
        let refusal = "Clusters of several nodes are not supported yet.";
        Box::pin(std::future::ready(Err(ClusterError::NotSupported(refusal.into()))))
    }

    fn call_node(&self, _: NodeCall) -> BoxFuture<'_, Result<(u16, Vec<u8>), ClusterError>> {
        let refusal = "Clusters of several nodes are not supported yet.";
        Box::pin(std::future::ready(Err(ClusterError::NotSupported(refusal.into()))))
    }

    fn flush_bucket<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
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
        let Some(engine) = self.buckets.engine(name) else {
            return Box::pin(std::future::ready(Err(ClusterError::BucketNotFound)));
        };
        let shared = Arc::clone(&self.shared);
        // Started, not waited for: rewriting a large bucket takes longer than a client waits for an answer.
        tokio::task::spawn_blocking(move || compaction::compact_whole(&engine, &shared));
        Box::pin(std::future::ready(Ok(())))
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
            // There are none as long as every vBucket is active.
            replica_items: 0,
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
            dcp_producers: dcp.connections,
            dcp_items_sent: dcp.items_sent,
            dcp_items_remaining: dcp.items_remaining,
            dcp_bytes_sent: dcp.bytes_sent,
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
        disk.low.then(text).into_iter().chain(self.pressure_alerts()).collect()
    }

    fn certificate_pem(&self) -> Option<String> {
        Some(self.certificate.clone())
    }

    fn audit(&self, event: AuditEvent) {
        let line = audit::of_rest(&event);
        match (event.kind, event.subject.as_str()) {
            (AuditKind::SettingsChanged, "audit") => self.audit.record_always(line),
            _ => self.audit.record(line),
        }
    }
}

/// The audit hook for logins over the data ports.
pub(crate) fn data_plane_audit(audit: &Arc<AuditLog>) -> impl Fn(shared::AuditEvent) + Send + Sync + 'static {
    let audit = Arc::clone(audit);
    move |event| audit.record(audit::of_data_plane(&event))
}

fn create_bucket(bucket: &InitBucket) -> Result<Command, ServeError> {
    let legacy = LegacyParams {
        passwordless: Some(bucket.legacy_access),
        memcached_port: Some(bucket.legacy_access),
        ..LegacyParams::default()
    };
    let params = BucketParams {
        ram_quota_mb: Some(bucket.quota_mb),
        replicas: Some(0),
        flush_enabled: Some(true),
        legacy,
        ..BucketParams::default()
    };
    Ok(Command::CreateBucket { name: bucket.name.clone(), uuid: BucketUuid(random_uuid()?), params })
}

fn credentials(password: &str) -> Result<Credentials, ServeError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(std::io::Error::other)?;
    Ok(Credentials::new(password, salt))
}
