//! What every data-plane loop sees of the rest of the process.
//!
//! Metadata, buckets and cluster maps reach the loops as one immutable [`Snapshot`]. The daemon replaces it as a
//! whole, and a loop picks it up at the beginning of a turn. Nothing here is locked on the data path.

use std::{
    collections::HashMap,
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, LazyLock, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use base::{BucketUuid, Now, Status, VbId};
use cluster::{
    Lease, LegacyAccess, Metadata, VbPlan,
    auth::{LoginAttempts, PasswordCache},
};
use engine::{Bucket, Waiter};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    figures::{meter::BucketMeter, slow::SlowLog},
    net::node_tls::NodeTls,
    state::{account::NodeAccount, forwarder::Forwarder, link::LinkList, producers::DcpConnections},
};

/// Version of a cluster map: epoch first, then revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigVersion {
    /// Grows when revisions start over.
    pub epoch: i64,
    /// Grows with every change.
    pub rev: i64,
}

/// A cluster map as it goes out to clients, plain and compressed once for everybody.
#[derive(Debug)]
pub struct ConfigDocument {
    /// Its version.
    pub version: ConfigVersion,
    /// The JSON text, `$HOST` in the place of this node's address.
    pub json: Box<str>,
    /// The text as one raw Snappy block, for connections that take compressed JSON anywhere.
    pub snappy: Box<[u8]>,
}

impl ConfigDocument {
    /// Compresses `json`.
    #[must_use]
    pub fn new(version: ConfigVersion, json: String) -> Self {
        // Compressing fails for inputs beyond 4 GiB only; an empty block then means "send it plain".
        let snappy = snap::raw::Encoder::new().compress_vec(json.as_bytes()).unwrap_or_default();
        Self { version, json: json.into(), snappy: snappy.into() }
    }
}

/// A map that is made for the first who is given it.
type LazyConfig = LazyLock<Arc<ConfigDocument>, Box<dyn FnOnce() -> Arc<ConfigDocument> + Send>>;

/// The maps of a bucket. What clients are told of unasked may be held back for a moment while vBuckets move
/// (`daemon::buckets::maps`); a client that asks is given the newest.
#[derive(Debug)]
pub struct BucketMaps {
    told: Arc<ConfigDocument>,
    /// What the map shows that is told of.
    shown: Arc<Vec<VbPlan>>,
    newest: LazyConfig,
}

impl BucketMaps {
    /// With nothing held back: the map is told of that shows these plans.
    #[must_use]
    pub fn new(map: Arc<ConfigDocument>, shown: Arc<Vec<VbPlan>>) -> Self {
        let newest = Arc::clone(&map);
        Self { told: map, shown, newest: LazyLock::new(Box::new(|| newest)) }
    }

    /// With the newest held back, and these told of still. `make` is called when a client is first given the newest, if one
    /// ever is. Dozens of maps a second are no small work, and most of them nobody asks for.
    #[must_use]
    pub fn holding_back(
        former: &Self,
        make: impl FnOnce() -> Option<Arc<ConfigDocument>> + Send + 'static,
    ) -> Self {
        let (told, shown) = (Arc::clone(&former.told), Arc::clone(&former.shown));
        let otherwise = Arc::clone(&told);
        Self { told, shown, newest: LazyLock::new(Box::new(|| make().unwrap_or(otherwise))) }
    }

    /// What clients are told of.
    #[must_use]
    pub fn told(&self) -> &ConfigDocument {
        &self.told
    }

    /// What clients are given that ask.
    #[must_use]
    pub fn newest(&self) -> &ConfigDocument {
        &self.newest
    }

    /// What a client is given that asked this node for a vBucket which is not served here. It is the newest if somebody else is to be
    /// asked by it than by the map that was told of. The `plans` are the newest. While one is being handed over there is no news of it, and
    /// maps that differ in others only are not worth reading. Under load somebody asks for one that has just moved all the time.
    #[must_use]
    pub fn for_misled(&self, vb: VbId, plans: &[VbPlan]) -> &ConfigDocument {
        let active = |plans: &[VbPlan]| plans.get(usize::from(vb.get())).and_then(VbPlan::active);
        if active(plans) == active(&self.shown) { &self.told } else { &self.newest }
    }
}

/// A bucket that this node serves.
pub struct BucketEntry {
    /// Its name.
    pub name: Box<str>,
    /// Tells it from an earlier bucket of that name.
    pub uuid: BucketUuid,
    /// The documents.
    pub engine: Arc<Bucket>,
    /// Its cluster maps.
    pub maps: BucketMaps,
    /// Access for clients older than users and roles.
    pub legacy: LegacyAccess,
    /// Whether the legacy FLUSH may empty it.
    pub flush_enabled: bool,
    /// Operation counters and latencies; survives changes of configuration.
    pub meter: Arc<BucketMeter>,
}

impl fmt::Debug for BucketEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketEntry")
            .field("name", &self.name)
            .field("uuid", &self.uuid)
            .finish_non_exhaustive()
    }
}

/// One state of the node as the data plane sees it.
#[derive(Debug)]
pub struct Snapshot {
    /// Users, roles, buckets.
    pub metadata: Arc<Metadata>,
    /// Buckets that are open, by name.
    pub buckets: HashMap<String, Arc<BucketEntry>>,
    /// The cluster-level map; `None` before the node is initialised.
    pub cluster_config: Option<Arc<ConfigDocument>>,
    /// Distinguishes snapshots; set by [`Shared::publish`].
    generation: u64,
}

impl Snapshot {
    /// A state to be published.
    #[must_use]
    pub fn new(
        metadata: Arc<Metadata>,
        buckets: HashMap<String, Arc<BucketEntry>>,
        cluster_config: Option<Arc<ConfigDocument>>,
    ) -> Self {
        Self { metadata, buckets, cluster_config, generation: 0 }
    }

    /// Grows with every snapshot published.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The bucket that the plain memcached port serves.
    #[must_use]
    pub fn memcached_bucket(&self) -> Option<&Arc<BucketEntry>> {
        self.buckets.values().find(|bucket| bucket.legacy.memcached_port)
    }
}

/// The name that tried to log in, from where, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginEvent {
    /// As given by the client.
    pub user: String,
    /// `local`, `external` or `bucket`; `None` when it failed.
    pub domain: Option<&'static str>,
    /// The SASL mechanism.
    pub mechanism: &'static str,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// The address it connected to.
    pub local: Option<SocketAddr>,
}

/// What the data plane reports to the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// Somebody logged in.
    LoginSucceeded(LoginEvent),
    /// Somebody failed to.
    LoginFailed(LoginEvent),
    /// A client emptied a bucket.
    BucketFlushed {
        /// Which.
        bucket: String,
        /// Who.
        user: String,
    },
}

type AuditHook = Box<dyn Fn(AuditEvent) + Send + Sync>;
/// Has the bucket of that name and uuid emptied on every node, and tells the waiter.
type FlushHook = Box<dyn Fn(String, BucketUuid, Waiter) + Send + Sync>;

/// What services have of a bucket: indexes of views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketFigures {
    /// Answers to queries that this node has begun, for clients and for other nodes.
    pub queries: u64,
    /// Bytes of indexes on the disk, superseded ones included.
    pub disk_bytes: u64,
    /// Of those the ones in use.
    pub live_bytes: u64,
}

/// Tells what services have of a bucket.
type ServicesHook = Box<dyn Fn(&BucketUuid) -> BucketFigures + Send + Sync>;

/// State shared between the daemon and the data-plane loops.
pub struct Shared {
    snapshot: ArcSwap<Snapshot>,
    generation: AtomicU64,
    audit: AuditHook,
    clock: Clock,
    passwords: PasswordCache,
    attempts: Mutex<LoginAttempts>,
    /// Which connection streams what.
    pub(crate) dcp: Arc<DcpConnections>,
    /// Whom this node follows.
    links: OnceLock<Weak<LinkList>>,
    /// Empties buckets of several nodes.
    flush: OnceLock<FlushHook>,
    /// Requests for other nodes.
    pub(crate) forward: Forwarder,
    /// How this node and others of its cluster know one another.
    pub node_tls: Arc<NodeTls>,
    /// Operations that took long.
    pub slow: SlowLog,
    /// Totals of the data plane, for statistics.
    pub totals: Totals,
    /// Memory that belongs to no bucket.
    pub account: Arc<NodeAccount>,
    /// The disk at the last look.
    pub disk: Mutex<DiskLevel>,
    /// Until when active copies may serve.
    pub lease: Lease,
    /// What services tell of buckets.
    services: OnceLock<ServicesHook>,
    /// The node has yet to hear what its cluster has agreed on: what it does not know may be there.
    pub behind: AtomicBool,
}

/// How full the disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLevel {
    /// Bytes it holds.
    pub total: u64,
    /// Bytes that may still be written.
    pub free: u64,
    /// Bytes that must stay free.
    pub free_min: u64,
    /// There are fewer: mutations that grow are refused.
    pub low: bool,
}

/// Counters of the whole data plane.
#[derive(Debug, Default)]
pub struct Totals {
    /// Open connections.
    pub connections: AtomicU64,
    /// Connections ever accepted.
    pub connections_total: AtomicU64,
    /// Failed logins.
    pub auth_errors: AtomicU64,
    /// Bytes read from clients.
    pub bytes_read: AtomicU64,
    /// Bytes written to clients.
    pub bytes_written: AtomicU64,
    /// The connection limit in force.
    pub connections_max: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("snapshot", &self.snapshot).finish_non_exhaustive()
    }
}

impl Shared {
    /// Starts with `snapshot`; `audit` is called on data-plane threads and must not block.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn new(
        snapshot: Snapshot,
        audit: impl Fn(AuditEvent) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let mut cache_secret = [0; 32];
        getrandom::fill(&mut cache_secret).map_err(io::Error::other)?;
        Ok(Arc::new(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            generation: AtomicU64::new(0),
            audit: Box::new(audit),
            clock: Clock::start(),
            passwords: PasswordCache::new(cache_secret),
            attempts: Mutex::default(),
            dcp: Arc::default(),
            links: OnceLock::new(),
            flush: OnceLock::new(),
            forward: Forwarder::default(),
            node_tls: Arc::default(),
            slow: SlowLog::default(),
            totals: Totals::default(),
            account: Arc::default(),
            disk: Mutex::default(),
            lease: Lease::default(),
            services: OnceLock::new(),
            behind: AtomicBool::new(false),
        }))
    }

    /// From now on statistics show what services have of buckets.
    pub fn ask_services_by(&self, hook: impl Fn(&BucketUuid) -> BucketFigures + Send + Sync + 'static) {
        // Services start once in the life of a node.
        let _ = self.services.set(Box::new(hook));
    }

    /// What services have of a bucket, together.
    #[must_use]
    pub fn of_services(&self, bucket: &BucketUuid) -> BucketFigures {
        self.services.get().map_or_else(BucketFigures::default, |hook| hook(bucket))
    }

    /// Replaces the snapshot; one thread publishes at a time. Call [`crate::Wakes::config_changed`] afterwards when
    /// a cluster map changed.
    pub fn publish(&self, mut snapshot: Snapshot) {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        snapshot.generation = generation;
        self.snapshot.store(Arc::new(snapshot));
        // After the snapshot: a thread that sees the number finds that snapshot, or a later one.
        self.generation.store(generation, Ordering::Release);
    }

    /// The snapshot in force.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The generation of the newest snapshot.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Reports to the audit log.
    pub fn audit(&self, event: AuditEvent) {
        (self.audit)(event);
    }

    /// The time, on the one clock that workers and background threads share.
    #[must_use]
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// Passwords that were right a moment ago; REST may use it as well.
    #[must_use]
    pub fn passwords(&self) -> &PasswordCache {
        &self.passwords
    }

    /// How often passwords are guessed. Locked for a moment by logins, never by other requests.
    pub(crate) fn attempts(&self) -> MutexGuard<'_, LoginAttempts> {
        self.attempts.lock()
    }

    /// From now on buckets of several nodes can be emptied.
    pub fn flush_with(&self, hook: impl Fn(String, BucketUuid, Waiter) + Send + Sync + 'static) {
        // Set once, before the first connection.
        let _ = self.flush.set(Box::new(hook));
    }

    /// Has a bucket emptied on every node; `waiter` is told how that ended.
    ///
    /// # Errors
    /// `TemporaryFailure` while nobody can.
    pub(crate) fn flush_everywhere(&self, bucket: &BucketEntry, waiter: Waiter) -> Result<(), Status> {
        let hook = self.flush.get().ok_or(Status::TemporaryFailure)?;
        hook(bucket.name.to_string(), bucket.uuid.clone(), waiter);
        Ok(())
    }

    /// From now on statistics show these links.
    pub(crate) fn show_links(&self, links: &Arc<LinkList>) {
        // A node has one set of links for its life.
        let _ = self.links.set(Arc::downgrade(links));
    }

    /// The links to the nodes that this one follows; none before the node has begun to follow anybody.
    pub fn links(&self) -> Option<Arc<LinkList>> {
        self.links.get().and_then(Weak::upgrade)
    }

    /// Since the process began to serve.
    #[must_use]
    pub fn uptime_secs(&self) -> u64 {
        self.clock.started.elapsed().as_secs()
    }
}

/// Reads the clocks.
#[derive(Debug)]
struct Clock {
    started: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { started: Instant::now() }
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            wall_nanos: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            mono_millis: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}
