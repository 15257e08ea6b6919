//! A node without sockets, a connection without a socket, and a client with one.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use base::{BucketUuid, Datatype, NodeId, Seqno, Status, VbId, VbUuid, bucket::BucketKind};
use cluster::{
    Admin, Authority, BucketParams, Command, Initialize, LegacyParams, Metadata, NodeInfo, Ports,
    QuotaChange, Rebalance, RebalanceKind, UserChange, UserDomain, VbPlan, auth::Credentials, config,
    roles::RoleGrant,
};
use engine::{Bucket, BucketOptions, Notifier, Pressure, Topology, Waiter, Work};
use protocol::{
    binary::{Decoded, Opcode, Request, decode_frame},
    hello::{Feature, FeatureSet},
};

use super::tls::certificate;
use crate::{
    AuditEvent, BucketEntry, BucketMaps, BucketMeter, ConfigDocument, ConfigVersion, ListenerKind, Shared,
    Snapshot, Wakes, WorkerOptions, Workers,
    connection::{After, Connection},
    figures::{
        meter::{LatencyStep, OpKind},
        phases::Phase,
        reading::Reading,
    },
    net::output::Output,
    request::{context::Context, session::Session, value},
    state::helper::Helper,
};

pub(super) const NODE: &str = "00000000000000000000000000000001";
/// Workers that meters are made for.
const WORKERS_MAX: usize = 2;

/// Delivers wake-ups once there are loops to deliver them to.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    wakes: OnceLock<Wakes>,
    /// Kept for connections without a loop.
    woken: Mutex<Vec<Waiter>>,
}

impl Notifier for Wakeups {
    fn wake(&self, waiter: Waiter) {
        match self.wakes.get() {
            Some(wakes) => wakes.wake(waiter),
            None => self.woken.lock().unwrap().push(waiter),
        }
    }

    fn work(&self, _: Work) {}
}

/// A node's state, changed by commands as REST would.
pub(super) struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) audit: Arc<Mutex<Vec<AuditEvent>>>,
    wakeups: Arc<Wakeups>,
    metadata: Metadata,
    buckets: HashMap<String, (Arc<Bucket>, Arc<BucketMeter>)>,
    /// Where the persistent bucket is.
    directory: Option<tempfile::TempDir>,
    /// Clients are not told of new maps for now.
    pub(super) holds_back: bool,
}

impl Node {
    /// Buckets:
    /// - `default` (no password needed).
    /// - `travel` (collection `inventory.airline`).
    /// - `secret` (a password of its own).
    /// - `cache` (on the plain memcached port).
    ///
    /// Users:
    /// - `Administrator`/`password`.
    /// - `reader`/`readerpw` (reads `travel`).
    /// - `airline`/`airlinepw` (uses that collection).
    pub(super) fn new() -> Self {
        let audit = Arc::new(Mutex::new(Vec::new()));
        let metadata = Metadata::new("0123456789abcdef0123456789abcdef".into(), 4096);
        let snapshot = Snapshot::new(Arc::new(metadata.clone()), HashMap::new(), None);
        let log = Arc::clone(&audit);
        let shared = Shared::new(snapshot, move |event| log.lock().unwrap().push(event)).unwrap();
        let (wakeups, buckets) = Default::default();
        let mut node = Self { shared, audit, wakeups, metadata, buckets, directory: None, holds_back: false };
        let admin = Admin { name: "Administrator".into(), credentials: credentials("password") };
        node.apply(&Command::Initialize(Initialize {
            admin,
            cluster_name: None,
            quotas: QuotaChange::default(),
        }));
        let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
        node.apply(&Command::SetNode(NodeInfo::first(NODE.into(), "127.0.0.1".into(), ports)));
        node.create_bucket("default", LegacyParams { passwordless: Some(true), ..LegacyParams::default() });
        node.create_bucket("travel", LegacyParams::default());
        let password = Some("secretpw".to_owned());
        let hashed = Some(credentials("secretpw"));
        node.create_bucket(
            "secret",
            LegacyParams { sasl_password: password, credentials: hashed, ..LegacyParams::default() },
        );
        node.create_bucket("cache", LegacyParams { memcached_port: Some(true), ..LegacyParams::default() });
        node.apply(&Command::CreateScope { bucket: "travel".into(), scope: "inventory".into() });
        node.apply(&Command::CreateCollection {
            bucket: "travel".into(),
            scope: "inventory".into(),
            collection: "airline".into(),
            max_ttl: 0,
        });
        node.put_user("reader", "readerpw", "data_reader[travel]");
        node.put_user(
            "airline",
            "airlinepw",
            "data_reader[travel:inventory:airline],data_writer[travel:inventory:airline]",
        );
        node
    }

    /// As [`Node::new`], with a persistent bucket `disk`.
    pub(super) fn with_disk() -> Self {
        let mut node = Self::new();
        node.directory = Some(tempfile::tempdir().unwrap());
        node.create_bucket_of(BucketKind::Couchbase, "disk", LegacyParams::default());
        node
    }

    /// The documents of a bucket.
    pub(super) fn bucket(&self, name: &str) -> Arc<Bucket> {
        Arc::clone(&self.buckets[name].0)
    }

    /// How many requests of a bucket were in a phase.
    pub(super) fn in_phase(&self, name: &str, phase: Phase) -> u64 {
        self.buckets[name].1.phase(phase).steps.iter().map(|step| step.count).sum()
    }

    /// The histogram of a kind of operation in a bucket.
    pub(super) fn latencies(&self, name: &str, kind: OpKind) -> Vec<LatencyStep> {
        self.buckets[name].1.latencies(kind)
    }

    fn disk(&self) -> &Arc<Bucket> {
        &self.buckets["disk"].0
    }

    pub(super) fn stats(&self, bucket: &str) -> engine::BucketStats {
        self.buckets[bucket].0.stats()
    }

    /// Reads what streams of a bucket need from where it is.
    pub(super) fn backfill(&self, bucket: &str) {
        self.buckets[bucket].0.run_backfills(0, self.shared.now());
    }

    pub(super) fn high_seqno(&self, bucket: &str, vb: VbId) -> Seqno {
        self.buckets[bucket].0.vb_history(vb).unwrap().high_seqno
    }

    pub(super) fn vb_uuid(&self, bucket: &str, vb: VbId) -> VbUuid {
        self.buckets[bucket].0.vb_history(vb).unwrap().uuid
    }

    pub(super) fn bucket_uuid(&self, bucket: &str) -> String {
        self.metadata.buckets[bucket].uuid.0.clone()
    }

    /// Writes and syncs what the persistent bucket has to write.
    pub(super) fn flush(&self) {
        while self.disk().flush(0, self.shared.now()).more {}
        self.disk().flush(0, self.shared.now());
    }

    /// Reads what the persistent bucket's requests wait for.
    pub(super) fn fetch(&self) {
        self.disk().run_fetches(0, 100, self.shared.now());
    }

    /// Looks at how the persistent bucket does; the step it is at.
    pub(super) fn pace(&self) -> Pressure {
        self.disk().pace(self.shared.now()).step
    }

    /// Opens the persistent bucket anew, its memory empty.
    pub(super) fn reopen_disk(&mut self) {
        assert_eq!(self.disk().close(self.shared.now()), Ok(()));
        self.shared.publish(Snapshot::new(Arc::new(self.metadata.clone()), HashMap::new(), None));
        self.buckets.remove("disk");
        self.apply(&Command::SetClusterName("again".into()));
    }

    pub(super) fn create_bucket(&mut self, name: &str, legacy: LegacyParams) {
        self.create_bucket_of(BucketKind::Ephemeral, name, legacy);
    }

    pub(super) fn create_cache(&mut self, name: &str, legacy: LegacyParams) {
        self.create_bucket_of(BucketKind::Memcached, name, legacy);
    }

    fn create_bucket_of(&mut self, kind: BucketKind, name: &str, legacy: LegacyParams) {
        let params = BucketParams {
            kind: Some(kind),
            ram_quota_mb: Some(100),
            replicas: (kind != BucketKind::Memcached).then_some(0),
            flush_enabled: Some(true),
            vbuckets: Some(64),
            legacy,
            ..BucketParams::default()
        };
        let uuid = BucketUuid(format!("{:032x}", self.buckets.len() + 1));
        self.apply(&Command::CreateBucket { name: name.into(), uuid, params });
    }

    /// Drops the bucket of the plain memcached port, and makes one of its name with so many vBuckets.
    pub(super) fn replace_cache(&mut self, vbuckets: u16) {
        self.apply(&Command::DeleteBucket { name: "cache".into() });
        let params = BucketParams {
            kind: Some(BucketKind::Ephemeral),
            ram_quota_mb: Some(100),
            replicas: Some(0),
            vbuckets: Some(vbuckets),
            legacy: LegacyParams { memcached_port: Some(true), ..LegacyParams::default() },
            ..BucketParams::default()
        };
        let uuid = BucketUuid(format!("{vbuckets:032x}"));
        self.apply(&Command::CreateBucket { name: "cache".into(), uuid, params });
    }

    pub(super) fn put_user(&mut self, name: &str, password: &str, roles: &str) {
        self.apply(&Command::PutUser(UserChange {
            domain: UserDomain::Local,
            name: name.into(),
            uuid: name.into(),
            full_name: None,
            // As everywhere: no two passwords have the same salt.
            credentials: Some(Credentials::new(password, [self.metadata.version.to_le_bytes()[0]; 32])),
            roles: Some(RoleGrant::parse_list(roles).unwrap()),
            groups: None,
            locked: None,
            now_ms: 0,
        }));
    }

    /// Gives a user other roles, and nothing else: logins go on.
    pub(super) fn give_roles(&mut self, name: &str, roles: &str) {
        self.apply(&Command::PutUser(UserChange {
            domain: UserDomain::Local,
            name: name.into(),
            uuid: String::new(),
            full_name: None,
            credentials: None,
            roles: Some(RoleGrant::parse_list(roles).unwrap()),
            groups: None,
            locked: None,
            now_ms: 0,
        }));
    }

    /// Becomes a node that belongs to no cluster yet.
    pub(super) fn forget_its_cluster(&mut self) {
        self.metadata.initialized = false;
        self.shared.publish(Snapshot::new(Arc::new(self.metadata.clone()), HashMap::new(), None));
    }

    /// Applies a command, opens and closes buckets accordingly, publishes.
    pub(super) fn apply(&mut self, command: &Command) {
        let next = self.metadata.apply(command).unwrap().0;
        let before = std::mem::replace(&mut self.metadata, next);
        let uuid = |state: &Metadata, name: &str| state.buckets.get(name).map(|info| info.uuid.clone());
        self.buckets.retain(|name, _| uuid(&self.metadata, name) == uuid(&before, name));
        let mut entries = HashMap::new();
        let (version, former) = (self.version(), self.shared.snapshot());
        for (name, info) in &self.metadata.buckets {
            let (engine, meter) = self.buckets.entry(name.clone()).or_insert_with(|| {
                let mut options = BucketOptions::new(name, info.ram_quota_mb << 20);
                options.kind = info.kind;
                options.vbuckets = info.vbuckets;
                options.codec = value::codec();
                let wakeups: Arc<dyn Notifier> = Arc::clone(&self.wakeups) as _;
                let manifest = Arc::new(info.manifest.clone());
                let stores = match &self.directory {
                    Some(directory) if info.kind == BucketKind::Couchbase => {
                        vec![open_store(directory.path())]
                    }
                    _ => Vec::new(),
                };
                let bucket = Bucket::open(options, stores, manifest, wakeups, self.shared.now());
                (bucket.unwrap(), Arc::new(BucketMeter::new(WORKERS_MAX)))
            });
            engine.set_manifest(Arc::new(info.manifest.clone()), self.shared.now());
            let json = config::bucket_config(&self.metadata, name, NODE).unwrap();
            let map = Arc::new(ConfigDocument::new(version, json));
            let maps = match former.buckets.get(name).filter(|_| self.holds_back) {
                Some(former) => BucketMaps::holding_back(&former.maps, || Some(map)),
                None => BucketMaps::new(map, Arc::clone(&info.vbs)),
            };
            let entry = BucketEntry {
                name: name.as_str().into(),
                uuid: info.uuid.clone(),
                engine: Arc::clone(engine),
                maps,
                legacy: info.legacy.clone(),
                flush_enabled: info.flush_enabled,
                meter: Arc::clone(meter),
            };
            entries.insert(name.clone(), Arc::new(entry));
        }
        let cluster = ConfigDocument::new(self.version(), config::cluster_config(&self.metadata, NODE));
        self.shared.publish(Snapshot::new(Arc::new(self.metadata.clone()), entries, Some(Arc::new(cluster))));
    }

    /// Has every second vBucket of a bucket, the odd ones, served by another node.
    pub(super) fn give_half_to(&mut self, bucket: &str, to: std::net::SocketAddr) {
        let ports = Ports { kv: to.port(), kv_tls: to.port(), ..Ports::default() };
        let other = NodeInfo::first("2".repeat(32), to.ip().to_string(), ports);
        self.metadata.nodes.push(NodeInfo { id: NodeId(1), ..other });
        let plans = Arc::make_mut(&mut self.metadata.buckets.get_mut(bucket).unwrap().vbs);
        for (vb, plan) in (0_u16..).zip(plans).filter(|(vb, _)| vb % 2 == 1) {
            *plan = VbPlan::settled(vec![NodeId(1)], plan.term + 1);
            self.buckets[bucket].0.make_dead(VbId(vb), plan.term).unwrap();
        }
        self.apply(&Command::SetClusterName("of two".into()));
    }

    /// A rebalance goes on, or has ended.
    pub(super) fn rebalance(&mut self, goes_on: bool) {
        self.metadata.rebalance = goes_on.then(|| Rebalance {
            id: "r".into(),
            kind: RebalanceKind::Rebalance,
            keep: Vec::new(),
            eject: Vec::new(),
            started_ms: 0,
            copies: 0,
        });
        self.apply(&Command::SetClusterName(format!("rebalance: {goes_on}")));
    }

    /// Makes this node the one of that number, and has all nodes that it knows of speak TLS to one another.
    pub(super) fn encrypt(&mut self, me: NodeId, authority: &Authority) {
        self.apply(&Command::SetAuthority(authority.clone()));
        for node in self.metadata.nodes.clone() {
            self.apply(&Command::SetNodeEncryption { node: node.id, on: true });
        }
        let level = serde_json::json!({ "clusterEncryptionLevel": "all" });
        self.apply(&Command::PutSetting { path: "security".into(), value: level });
        self.shared.node_tls.know(me, &self.metadata);
    }

    /// Those of a node that speaks TLS.
    pub(super) fn tls_options(&self) -> WorkerOptions {
        let config = certificate().server_config(Arc::clone(&self.shared.node_tls)).unwrap();
        WorkerOptions { tls: Some(config), ..options() }
    }

    /// Has a vBucket served by nobody, or by this node.
    pub(super) fn switch(&self, bucket: &str, vb: VbId, serve: bool) {
        let engine = &self.buckets[bucket].0;
        let (_, term) = engine.vb_role(vb).unwrap();
        if serve {
            let topology = Topology { chains: vec![vec![NodeId(1)]], copies: 1, to_disk: false };
            engine.activate(vb, term + 1, topology, self.shared.now()).unwrap();
        } else {
            engine.make_dead(vb, term + 1).unwrap();
        }
    }

    pub(super) fn vbucket_of(&self, bucket: &str, key: &[u8]) -> VbId {
        base::hash::vbucket_of(key, self.buckets[bucket].0.vbuckets())
    }

    pub(super) fn version(&self) -> ConfigVersion {
        ConfigVersion { epoch: self.metadata.rev_epoch, rev: self.metadata.rev }
    }

    /// A connection without a socket.
    pub(super) fn connect(&self, kind: ListenerKind) -> Wire {
        let (helper, _) = Helper::start(&Wakes::new(Arc::new([])), 1).unwrap();
        let context = Context::new(0, Arc::clone(&self.shared), helper);
        let connection = Connection::with_session(Session::new(kind, None, &context.snapshot));
        Wire {
            connection,
            context,
            out: Output::default(),
            rest: Vec::new(),
            after: After::Ready,
            longest: 0,
            lent: 0,
            turns: 0,
        }
    }

    /// Loops with a listener; the address is where it listens.
    pub(super) fn serve(
        &self,
        kind: ListenerKind,
        options: &WorkerOptions,
    ) -> (Workers, std::net::SocketAddr) {
        let workers = Workers::start(options, Arc::clone(&self.shared)).unwrap();
        let _ = self.wakeups.wakes.set(workers.notifier());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        workers.add_listener(listener, kind).unwrap();
        (workers, address)
    }
}

fn open_store(directory: &std::path::Path) -> Arc<dyn storage::KvStore> {
    let options =
        storage::Options { segment_bytes_min: 1 << 20, reserve_bytes: 1 << 20, ..Default::default() };
    Arc::new(storage::open(directory, Arc::new(storage::RealFs), options).unwrap())
}

/// Options for tests: one loop, no waiting for the slow.
pub(super) fn options() -> WorkerOptions {
    WorkerOptions { workers: 1, connections_max: 1000, ..WorkerOptions::default() }
}

fn credentials(password: &str) -> Credentials {
    Credentials::new(password, [7; 32])
}

/// A connection without a socket, and its surroundings.
pub(super) struct Wire {
    pub(super) connection: Connection,
    pub(super) context: Context,
    out: Output,
    rest: Vec<u8>,
    pub(super) after: After,
    /// The most output that a parked request left at once.
    pub(super) longest: usize,
    /// Bytes of documents by reference in the output of the input that was consumed last.
    pub(super) lent: usize,
    /// How often input was consumed.
    pub(super) turns: usize,
}

impl Wire {
    /// Feeds bytes and returns what comes back.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.context.begin_turn(Reading::now());
        self.context.snapshot = self.context.shared.snapshot();
        self.rest.extend_from_slice(bytes);
        self.after = self.connection.catch_up(&mut self.out, &mut self.context);
        let mut answer = Vec::new();
        while self.after == After::Ready || self.after == After::Again {
            let rest = std::mem::take(&mut self.rest);
            self.context.read_at = Reading::now();
            self.context.stopwatch.lap(self.context.read_at);
            self.context.stopwatch.begin_turn(self.context.read_at);
            self.turns += 1;
            let (consumed, after) = self.connection.consume(&rest, &mut self.out, &mut self.context);
            self.rest = rest[consumed..].to_vec();
            self.after = after;
            self.lent = self.out.lent_bytes();
            self.drain(&mut answer);
            while self.connection.has_ready() {
                self.after = self.connection.catch_up(&mut self.out, &mut self.context);
                self.longest = self.longest.max(self.out.len());
                self.drain(&mut answer);
            }
        }
        self.drain(&mut answer);
        answer
    }

    /// Delivers the wake-ups that have come meanwhile.
    pub(super) fn deliver(&mut self, node: &Node) {
        for waiter in node.wakeups.woken.lock().unwrap().drain(..) {
            self.connection.wake(waiter.ticket);
        }
    }

    /// Lets streams say what they have; `None` when the connection ends.
    pub(super) fn pump(&mut self) -> Option<Vec<u8>> {
        let goes_on = self.connection.pump(&mut self.out, &mut self.context);
        let mut said = Vec::new();
        self.drain(&mut said);
        goes_on.then_some(said)
    }

    /// Lets every deadline pass.
    pub(super) fn time_out_all(&mut self) {
        while let Some(std::cmp::Reverse((millis, id))) = self.context.deadlines.pop() {
            if let Some(next) = self.connection.expire(millis) {
                assert!(next > millis);
                self.context.deadlines.push(std::cmp::Reverse((next, id)));
            }
        }
    }

    fn drain(&mut self, answer: &mut Vec<u8>) {
        self.out.with_slices(|slices| slices.iter().for_each(|slice| answer.extend_from_slice(slice)));
        self.out.clear();
    }

    /// One request, one reply.
    pub(super) fn ask(&mut self, request: &Request<'_>) -> Reply {
        let replies = self.ask_all(request);
        assert_eq!(replies.len(), 1, "{request:?}: {replies:?}");
        replies.into_iter().next().unwrap()
    }

    /// One request, however many replies.
    pub(super) fn ask_all(&mut self, request: &Request<'_>) -> Vec<Reply> {
        replies(&self.feed(&encode(request)))
    }

    /// HELLO with these features; all must be granted.
    pub(super) fn hello(&mut self, features: &[Feature]) {
        let set: FeatureSet = features.iter().copied().collect();
        let mut value = Vec::new();
        set.encode(&mut value);
        let reply = self.ask(&Request { key: b"test", value: &value, ..Request::new(Opcode::Hello) });
        assert_eq!((reply.status, reply.value), (Status::Success, value));
    }
}

pub(super) fn encode(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes).unwrap();
    bytes
}

/// A decoded response, or push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) magic: u8,
    pub(super) opcode: u8,
    pub(super) status: Status,
    pub(super) opaque: u32,
    pub(super) cas: u64,
    pub(super) datatype: Datatype,
    pub(super) extras: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl Reply {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// Cuts whole responses out of bytes; nothing may be left over.
pub(super) fn replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let Decoded::Frame(frame) = decode_frame(bytes) else { panic!("no whole response in {bytes:?}") };
        bytes = &bytes[frame.packet_len()..];
        let header = frame.header;
        replies.push(Reply {
            magic: header.magic as u8,
            opcode: header.opcode,
            status: Status::from_wire(header.vbucket_or_status).unwrap(),
            opaque: header.opaque.into(),
            cas: header.cas.get(),
            datatype: header.datatype,
            extras: frame.extras.to_vec(),
            key: frame.key.to_vec(),
            value: frame.value.to_vec(),
        });
    }
    replies
}

/// A blocking client.
pub(super) struct Client {
    pub(super) socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: std::net::SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, received: Vec::new() }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Waits for the beginning of an answer; false where the connection ends before.
    pub(super) fn answers(&mut self) -> bool {
        !self.received.is_empty() || self.receive_more()
    }

    /// Waits for one whole response.
    pub(super) fn receive(&mut self) -> Reply {
        replies(&self.receive_packet()).remove(0)
    }

    /// Waits for one whole packet.
    pub(super) fn receive_packet(&mut self) -> Vec<u8> {
        loop {
            if let Decoded::Frame(frame) = decode_frame(&self.received) {
                let length = frame.packet_len();
                let rest = self.received.split_off(length);
                return std::mem::replace(&mut self.received, rest);
            }
            assert!(self.receive_more(), "the connection was closed");
        }
    }

    pub(super) fn ask(&mut self, request: &Request<'_>) -> Reply {
        self.send(&encode(request));
        self.receive()
    }

    /// Reads what is there; false at the end.
    fn receive_more(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        let count = self.socket.read(&mut buffer).unwrap_or(0);
        self.received.extend_from_slice(&buffer[..count]);
        count > 0
    }

    /// Whether the server has closed the connection (within the read timeout).
    pub(super) fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return true,
                Err(_) => return false,
            }
        }
    }
}
