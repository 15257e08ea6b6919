//! One node follows another over loopback sockets: logs in, keeps up, acknowledges durable writes, and lets go when told to.
//! What is said on streams is tested in `replication`.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use base::{BucketUuid, Datatype, DocKey, HashedKey, NodeId, Status, VbId, bucket::CompressionMode};
use cluster::{Authority, Command};
use engine::{BucketChange, Topology};
use parking_lot::Mutex;
use protocol::{
    binary::{
        Opcode, Request,
        dcp::{OpenFlags, request::OpenExtras},
    },
    hello::Feature,
};
use replication::consumer::StreamWish;

use super::{
    harness::{Node, Reply, options},
    sockets::eventually,
    waiting::{durable_set, wire},
};
use crate::{
    ListenerKind, Workers,
    links::Links,
    net::{node_tls::new_authority, peer::PeerAddress},
    state::link::LinkWish,
};

const BUCKET: &str = "disk";
const ACTIVE: NodeId = NodeId(0);
const REPLICA: NodeId = NodeId(1);
const TERM: u64 = 3;

/// Two nodes of a cluster, the second of which has replicas of the first one's vBuckets.
struct Pair {
    active: Node,
    replica: Node,
    workers: Vec<Workers>,
    address: SocketAddr,
    tls: bool,
    links: Arc<Links>,
    changes: Arc<AtomicU64>,
    _runtime: tokio::runtime::Runtime,
}

impl Pair {
    fn new(secrets: [&str; 2]) -> Self {
        Self::with(secrets, None)
    }

    /// With an authority for each of the two they speak TLS.
    fn with(secrets: [&str; 2], authorities: Option<[&Authority; 2]>) -> Self {
        let [mut active, mut replica] = secrets.map(|secret| {
            let mut node = Node::with_disk();
            node.apply(&Command::SetSecret(secret.into()));
            node
        });
        let (kind, options) = match authorities {
            Some([of_active, of_replica]) => {
                active.encrypt(ACTIVE, of_active);
                replica.encrypt(REPLICA, of_replica);
                (ListenerKind::KvTls, [active.tls_options(), replica.tls_options()])
            }
            None => (ListenerKind::Kv, [options(), options()]),
        };
        let (workers, address) = active.serve(kind, &options[0]);
        let (followers, _) = replica.serve(kind, &options[1]);
        let now = active.shared.now();
        let topology = Topology { chains: vec![vec![ACTIVE, REPLICA]], copies: 2, to_disk: false };
        for vb in vbs() {
            active.bucket(BUCKET).set_topology(vb, TERM, topology.clone(), now).unwrap();
            replica.bucket(BUCKET).make_replica(vb, TERM).unwrap();
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let changes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&changes);
        let links =
            Links::start(Arc::clone(&replica.shared), &followers, runtime.handle().clone(), move || {
                _ = counted.fetch_add(1, Relaxed)
            });
        let workers = vec![workers, followers];
        let tls = authorities.is_some();
        Self { active, replica, workers, address, tls, links, changes, _runtime: runtime }
    }

    /// The replica's node is to follow these, all at one term.
    fn want(&self, vbs: impl Iterator<Item = VbId>, term: u64) {
        let wish = LinkWish {
            bucket: self.uuid(),
            name: BUCKET.into(),
            engine: self.replica.bucket(BUCKET),
            peer: PeerAddress {
                node: ACTIVE,
                host: self.address.ip().to_string(),
                kv_port: self.address.port(),
                tls: self.tls,
            },
            streams: vbs.map(|vb| StreamWish { vb, term }).collect(),
        };
        self.links.want(REPLICA, vec![wish]);
    }

    fn uuid(&self) -> BucketUuid {
        BucketUuid(self.active.bucket_uuid(BUCKET))
    }

    fn following(&self) -> usize {
        vbs().filter(|vb| self.links.list().following(&self.uuid(), *vb).is_some()).count()
    }

    /// What the replica's node tells of the link.
    fn told(&self, name: &str) -> Option<String> {
        Self::told_by(&self.replica, name)
    }

    /// What a node tells of the link.
    fn told_by(node: &Node, name: &str) -> Option<String> {
        let mut client = wire(node, &[Feature::Collections]);
        let stats = client.ask_all(&Request { key: b"dcp", ..Request::new(Opcode::Stat) });
        let key = name.replace("LINK", "eq_dcpq:replication:0->1:disk");
        stats.iter().find(|stat| stat.key == key.as_bytes()).map(Reply::text)
    }

    /// Does what threads do, and says whether the replica has what the active has.
    fn is_level(&self) -> bool {
        self.active.backfill(BUCKET);
        vbs().all(|vb| self.active.high_seqno(BUCKET, vb) == self.replica.high_seqno(BUCKET, vb))
    }

    fn stop(self) {
        self.links.stop();
        self.workers.into_iter().for_each(|workers| workers.stop(Duration::from_secs(1)));
    }
}

fn vbs() -> impl Iterator<Item = VbId> {
    (0..64).map(VbId)
}

/// Writes a document to each of the first vBuckets.
fn write(node: &Node, value: &[u8]) {
    let mut writer = wire(node, &[Feature::Collections]);
    for vb in vbs().take(8) {
        let set = Request { vbucket: vb, key: b"\0k", value, extras: &[0; 8], ..Request::new(Opcode::Set) };
        assert_eq!(writer.ask(&set).status, Status::Success);
    }
}

#[test]
fn a_replica_follows_its_active_and_catches_up_when_it_follows_again() {
    let pair = Pair::new(["one secret", "one secret"]);
    write(&pair.active, b"before");
    pair.active.flush();
    pair.want(vbs(), TERM);
    eventually("everything is followed", || pair.following() == 64);
    eventually("the replica is level", || pair.is_level());
    assert!(pair.changes.load(Relaxed) > 0);
    write(&pair.active, &vec![b'v'; 40_000]);
    eventually("the replica is level", || pair.is_level());
    let taken = pair.links.list().views(&pair.uuid())[0].stats.messages.load(Relaxed);
    assert!(taken >= 2 * 2 * 8, "{taken}: a marker and a document each time");
    // Some are not wanted any more: the others go on.
    pair.want(vbs().skip(4), TERM);
    eventually("some are followed no longer", || pair.following() == 60);
    write(&pair.active, b"meanwhile");
    eventually("the others are level", || {
        pair.active.backfill(BUCKET);
        vbs().skip(4).all(|vb| pair.active.high_seqno(BUCKET, vb) == pair.replica.high_seqno(BUCKET, vb))
    });
    assert!(!pair.is_level());
    // Nobody is followed, and everybody again: from where each is.
    pair.links.want(REPLICA, Vec::new());
    eventually("nothing is followed", || pair.following() == 0);
    pair.want(vbs(), TERM);
    eventually("the replica is level again", || pair.following() == 64 && pair.is_level());
    pair.stop();
}

#[test]
fn what_connections_of_a_dropped_bucket_had_counted_is_forgotten_while_others_are_followed() {
    let pair = Pair::new(["one secret", "one secret"]);
    pair.want(vbs(), TERM);
    let dcp = &pair.replica.shared.dcp;
    let open = pair.uuid().0;
    for uuid in [&*open, "dropped"] {
        dcp.note_end(uuid, |totals| totals.all.items_sent += 7);
    }
    pair.want(vbs(), TERM);
    let counted = [&*open, "dropped"].map(|uuid| dcp.of_bucket_and_ended(uuid).1.all.items_sent);
    assert_eq!(counted, [7, 0]);
    pair.stop();
}

#[test]
fn values_are_compressed_for_the_way_where_the_buckets_mode_says_so() {
    let pair = Pair::new(["one secret", "one secret"]);
    pair.want(vbs(), TERM);
    eventually("everything is followed", || pair.following() == 64);
    let received = || pair.links.list().views(&pair.uuid())[0].stats.bytes.load(Relaxed);
    let value = vec![b'v'; 40_000];
    write(&pair.active, &value);
    eventually("the replica is level", || pair.is_level());
    let as_they_are = received();
    assert!(as_they_are > 8 * 40_000);
    let change = BucketChange { compression: Some(CompressionMode::Active), ..BucketChange::default() };
    pair.active.bucket(BUCKET).reconfigure(change);
    write(&pair.active, &value);
    eventually("the replica is level", || pair.is_level());
    assert!(received() - as_they_are < 8 * 4_000);
    let told = |name: &str| {
        Pair::told_by(&pair.active, &format!("LINK:{name}")).and_then(|text| text.parse::<u64>().ok())
    };
    assert!(told("total_bytes_sent").unwrap() < 9 * 40_000);
    assert!(told("total_uncompressed_data_size").unwrap() > 16 * 40_000);
    let (key, now) = (HashedKey::new(DocKey::trusted(b"\0k")), pair.replica.shared.now());
    let found = pair
        .replica
        .bucket(BUCKET)
        .get_replica(VbId(0), key, now, |view| (view.value.to_vec(), view.datatype))
        .unwrap();
    assert_eq!(found, (value, Datatype::RAW), "it is kept as it came");
    pair.stop();
}

#[test]
fn under_tls_a_replica_follows_its_active_and_nobody_else() {
    let authority = new_authority().unwrap();
    let pair = Pair::with(["one secret", "one secret"], Some([&authority, &authority]));
    write(&pair.active, b"before");
    pair.active.flush();
    pair.want(vbs(), TERM);
    eventually("everything is followed", || pair.following() == 64);
    eventually("the replica is level", || pair.is_level());
    // More than the sockets take at once, with pauses for acknowledgements.
    for size in [40_000, 500_000] {
        write(&pair.active, &vec![b'v'; size]);
        eventually("the replica is level", || pair.is_level());
    }
    pair.stop();

    let other = new_authority().unwrap();
    let pair = Pair::with(["one secret", "one secret"], Some([&other, &authority]));
    pair.want(vbs(), TERM);
    eventually("it is said why there is no connection", || {
        pair.told("LINK:settee_failure").is_some_and(|reason| reason.contains("certificate"))
    });
    assert_eq!(pair.following(), 0);
    pair.stop();
}

#[test]
fn a_link_is_told_of_whether_it_works_or_not() {
    let pair = Pair::new(["one secret", "another"]);
    pair.want(vbs(), TERM);
    eventually("it is said why there is no connection", || {
        pair.told("LINK:settee_failure").is_some_and(|reason| reason.contains("SaslAuth"))
    });
    assert_eq!(pair.told("LINK:type").as_deref(), Some("consumer"));
    assert_eq!(pair.told("LINK:connected").as_deref(), Some("false"));
    assert_eq!(pair.told("LINK:stream_5_state").as_deref(), Some("dead"));
    assert_eq!(pair.told("ep_dcp_replica_consumer_count").as_deref(), Some("1"));
    assert_eq!(pair.links.list().cut_off(&pair.uuid()), [(ACTIVE, 64)].into());
    pair.stop();

    let pair = Pair::new(["one secret", "one secret"]);
    pair.want(vbs(), TERM);
    eventually("everything is followed", || pair.following() == 64);
    assert!(pair.links.list().cut_off(&pair.uuid()).is_empty());
    assert_eq!(pair.told("LINK:settee_failure"), None);
    assert_eq!(pair.told("LINK:connected").as_deref(), Some("true"));
    assert_eq!(pair.told("LINK:stream_5_state").as_deref(), Some("reading"));
    assert_eq!(pair.told("LINK:num_streams").as_deref(), Some("64"));
    // Terms that nobody serves are asked for again and again, and are no streams meanwhile.
    pair.want(vbs(), TERM + 1);
    eventually("nothing is followed", || pair.links.list().cut_off(&pair.uuid()) == [(ACTIVE, 64)].into());
    pair.stop();
}

#[test]
fn a_durable_write_is_answered_when_the_other_node_has_it() {
    let pair = Pair::new(["one secret", "one secret"]);
    let mut writer = wire(&pair.active, &[Feature::AltRequest, Feature::SyncReplication]);
    assert!(writer.feed(&durable_set(1, None)).is_empty());
    pair.want(vbs(), TERM);
    eventually("the write is committed", || {
        pair.active.backfill(BUCKET);
        pair.active.flush();
        pair.replica.flush();
        pair.is_level() && pair.active.bucket(BUCKET).vb_status(VbId(0)).unwrap().prepares == 0
    });
    pair.stop();
}

/// A way to an address, which loses what is sent over it from a moment on; a later connection has a way that works.
struct Way {
    address: SocketAddr,
    /// Of the connections that there are.
    is_cut: Arc<Mutex<Arc<AtomicBool>>>,
}

impl Way {
    fn to(there: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_cut = Arc::<Mutex<Arc<AtomicBool>>>::default();
        let current = Arc::clone(&is_cut);
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(there)) else { continue };
                let is_cut = current.lock().clone();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_cut = Arc::clone(&is_cut);
                    thread::spawn(move || carry(from, to, &is_cut));
                }
            }
        });
        Self { address, is_cut }
    }

    fn cut(&self) {
        std::mem::take(&mut *self.is_cut.lock()).store(true, Relaxed);
    }
}

/// Until one end is closed; neither learns of that from the other once it is cut.
fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !is_cut.load(Relaxed) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if !is_cut.load(Relaxed) {
        // It may be closed already.
        let _ = to.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_connection_over_which_nothing_comes_any_more_is_replaced() {
    let mut pair = Pair::new(["one secret", "one secret"]);
    let way = Way::to(pair.address);
    pair.address = way.address;
    pair.want(vbs(), TERM);
    eventually("everything is followed", || pair.following() == 64);
    way.cut();
    write(&pair.active, b"over another way");
    eventually("the replica is level", || pair.is_level());
    assert_eq!(pair.links.list().views(&pair.uuid())[0].connects, 2);
    pair.stop();
}

/// A node whose address changes while it is dialled, as it does when the cluster turns to TLS.
#[test]
fn a_connection_that_was_dialled_for_a_former_address_is_given_up() {
    let mut pair = Pair::new(["one secret", "one secret"]);
    let now_at = pair.address;
    let slow = TcpListener::bind("127.0.0.1:0").unwrap();
    pair.address = slow.local_addr().unwrap();
    pair.want(vbs(), TERM);
    let (near, _) = slow.accept().unwrap();
    pair.address = now_at;
    pair.want(vbs(), TERM);
    let far = TcpStream::connect(now_at).unwrap();
    let ends =
        [(&near, &far), (&far, &near)].map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()));
    let former = ends.map(|(from, to)| thread::spawn(move || carry(from, to, &AtomicBool::new(false))));
    eventually("the former connection is closed", || former.iter().all(thread::JoinHandle::is_finished));
    eventually("everything is followed", || pair.following() == 64);
    pair.stop();
}

#[test]
fn another_term_is_not_followed() {
    let pair = Pair::new(["one secret", "one secret"]);
    pair.want(vbs().take(1), TERM);
    eventually("one is followed", || pair.following() == 1);
    // The active's term is over: what it says from here on is for another one.
    let topology = Topology { chains: vec![vec![ACTIVE, REPLICA]], copies: 2, to_disk: false };
    pair.active.bucket(BUCKET).set_topology(VbId(0), TERM + 1, topology, pair.active.shared.now()).unwrap();
    write(&pair.active, b"of the next term");
    eventually("nothing is followed", || pair.following() == 0);
    assert_ne!(
        pair.active.high_seqno(BUCKET, VbId(0)),
        pair.replica.high_seqno(BUCKET, VbId(0)),
        "told at a term that is over"
    );
    pair.replica.bucket(BUCKET).make_replica(VbId(0), TERM + 1).unwrap();
    pair.want(vbs().take(1), TERM + 1);
    eventually("the next term is followed", || {
        pair.active.backfill(BUCKET);
        pair.links.list().following(&pair.uuid(), VbId(0)) == Some(TERM + 1)
            && pair.active.high_seqno(BUCKET, VbId(0)) == pair.replica.high_seqno(BUCKET, VbId(0))
    });
    pair.stop();
}

#[test]
fn nobody_else_takes_a_node_s_name_or_acknowledges_for_it() {
    let node = Node::with_disk();
    let mut client = wire(&node, &[Feature::Collections]);
    let extras = OpenExtras { seqno: 0, flags: OpenFlags::PRODUCER.0 }.encode();
    let open = |name: &'static [u8]| Request { key: name, extras: &extras, ..Request::new(Opcode::DcpOpen) };
    assert_eq!(client.ask(&open(b"replication:0->1:disk")).status, Status::Invalid);
    assert_eq!(client.ask(&open(b"replication:of something")).status, Status::Success);
    let acknowledged = Request { extras: &[0; 8], ..Request::new(Opcode::DcpSeqnoAcknowledged) };
    assert_eq!(client.ask(&acknowledged).status, Status::NotSupported);
}

#[test]
fn only_the_cluster_s_own_nodes_are_followed_and_follow() {
    let pair = Pair::new(["one secret", "another"]);
    pair.want(vbs(), TERM);
    eventually("the node is turned away", || pair.active.shared.totals.auth_errors.load(Relaxed) > 1);
    assert_eq!(pair.following(), 0);
    pair.stop();
}
