//! A node that begins anew: when, and from when on it is somebody else.

use base::BucketUuid;
use cluster::{
    Admin, BucketParams, Initialize, Membership, NodeInfo, Ports, QuotaChange,
    auth::Credentials,
    consensus::{MemoryLog, Stored, found, join},
};
use dataplane::account::NodePool;

use super::*;
use crate::{talk::peers::OnVerdict, watching::rules};

/// Longer than anything takes.
const SOON: Duration = Duration::from_secs(60);

/// A disk that says when a life is to begin on it, and waits for a word before it does.
struct Disk {
    log: Arc<Mutex<MemoryLog>>,
    says: Sender<()>,
    hears: Receiver<()>,
}

impl LogStore for Disk {
    fn load(&mut self) -> Result<Stored, LogError> {
        self.log.lock().load()
    }

    fn write(&mut self, batches: &[Batch]) -> Result<(), LogError> {
        if batches.iter().any(|batch| batch.clear) {
            // An error means that the test is over.
            let _ = self.says.send(());
            let _ = self.hears.recv();
        }
        self.log.lock().write(batches)
    }
}

/// The second one of two nodes; of the other one nothing is heard.
struct Node {
    runtime: tokio::runtime::Runtime,
    agreement: Arc<Agreement>,
    judge: Box<OnVerdict>,
    this_node: Arc<ThisNode>,
    applied: Receiver<Applied>,
    log: Arc<Mutex<MemoryLog>>,
    begins: Receiver<()>,
    go_on: Sender<()>,
}

const ME: NodeId = NodeId(1);

fn member(uuid: &str, node: NodeId, cluster_uuid: &str, peers: Vec<NodeInfo>) -> Member {
    let (uuid, cluster_uuid) = (uuid.to_owned(), cluster_uuid.to_owned());
    Member { uuid, node, cluster_uuid, epoch: Epoch::default(), secret: "s".into(), peers, authority: None }
}

fn fresh() -> Result<(Member, Metadata), LogError> {
    let first = NodeInfo::first("another".into(), "127.0.0.1".into(), Ports::default());
    let metadata = Metadata::new("new".into(), 256).apply(&Command::SetNode(first)).unwrap().0;
    Ok((member("another", NodeId(0), "new", Vec::new()), metadata))
}

/// The other node of the cluster, and this one.
fn both(membership: Membership) -> [NodeInfo; 2] {
    let other = NodeInfo::first("other".into(), "127.0.0.1".into(), Ports::default());
    let me = NodeInfo { id: ME, uuid: "me".into(), host: "127.0.0.2".into(), membership, ..other.clone() };
    [other, me]
}

/// Of both nodes and a bucket.
fn with_a_bucket() -> Metadata {
    let admin = Admin { name: "Administrator".into(), credentials: Credentials::new("password", [0; 32]) };
    let [other, me] = both(Membership::Active);
    let params = BucketParams { ram_quota_mb: Some(100), vbuckets: Some(16), ..BucketParams::default() };
    let commands = [
        Command::Initialize(Initialize { admin, cluster_name: None, quotas: QuotaChange::default() }),
        Command::SetNode(other),
        Command::AddNode(me),
        Command::CreateBucket { name: "b".into(), uuid: BucketUuid("b".into()), params },
    ];
    let old = Metadata::new("old".into(), 4096);
    commands.iter().fold(old, |metadata, command| metadata.apply(command).unwrap().0)
}

impl Node {
    fn start(membership: Membership) -> Self {
        Self::begin(join(&member("me", ME, "old", both(membership).to_vec())).unwrap())
    }

    /// With that at the beginning of its log.
    fn begin(first: Batch) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inbox = Inbox::new();
        let judge = Box::new(inbox.on_verdict());
        let mut log = MemoryLog::default();
        log.write(&[first]).unwrap();
        let group = Consensus::open(&log.load().unwrap(), 7).unwrap();
        let (says, begins) = mpsc::channel();
        let (go_on, hears) = mpsc::channel();
        let (sender, applied) = mpsc::channel();
        let (log, account) = (Arc::new(Mutex::new(log)), Arc::default());
        let this_node = Arc::new(ThisNode::new("me".into(), ME));
        let peers =
            Peers::new(runtime.handle().clone(), Arc::clone(&account), Arc::default(), inbox.on_verdict());
        let parts = Parts {
            group,
            store: Box::new(Disk { log: Arc::clone(&log), says, hears }),
            peers: Arc::new(peers),
            this_node: Arc::clone(&this_node),
            seed: 7,
            fresh: Box::new(fresh),
            applied: sender,
            memory: Accounted::new(&account, NodePool::Consensus, 0),
        };
        let agreement = Agreement::start(inbox, parts).unwrap();
        Self { runtime, agreement, judge, this_node, applied, log, begins, go_on }
    }

    /// Waits until everything has happened that was to happen by now.
    fn settle(&self) {
        assert!(self.runtime.block_on(self.agreement.survivor()).is_some());
    }

    /// As what other nodes of its cluster know it.
    fn as_it_is(&self) -> Judged<'static> {
        Judged { node: ME, cluster: "old", epoch: self.agreement.epoch() }
    }

    fn judged(&self, judged: Judged<'_>, verdict: Verdict) {
        (self.judge)(&judged, verdict);
    }

    /// Whom a crash would bring back.
    fn on_disk(&self) -> Member {
        Consensus::open(&self.log.lock().load().unwrap(), 7).unwrap().member().clone()
    }
}

#[test]
fn nothing_is_done_about_who_a_node_becomes_before_that_is_on_its_disk() {
    let node = Node::start(Membership::Active);
    node.runtime.block_on(node.agreement.reset()).unwrap();
    node.begins.recv_timeout(SOON).unwrap();
    node.settle();
    assert_eq!(node.on_disk().cluster_uuid, "old");
    assert_eq!((node.this_node.uuid(), node.this_node.id()), ("me".to_owned(), ME));
    let told: Vec<Applied> = node.applied.try_iter().collect();
    assert!(told.iter().all(|applied| applied.commits.is_empty() && !applied.caught_up));
    assert!(!told.is_empty(), "it is to act on nothing that it knew");

    node.go_on.send(()).unwrap();
    let begun = node.applied.recv_timeout(SOON).unwrap();
    assert_eq!(begun.commits[0].metadata.cluster_uuid, "new");
    assert_eq!(node.on_disk().cluster_uuid, "new");
    assert_eq!((node.this_node.uuid(), node.this_node.id()), ("another".to_owned(), NodeId(0)));
    node.agreement.stop();
}

/// A disk that fails as it is told to, and counts the writes that it was asked for.
struct Failing {
    errors: Vec<LogError>,
    asked: Arc<AtomicUsize>,
}

impl LogStore for Failing {
    fn load(&mut self) -> Result<Stored, LogError> {
        Ok(Stored::default())
    }

    fn write(&mut self, _batches: &[Batch]) -> Result<(), LogError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.errors.pop().map_or(Ok(()), Err)
    }
}

/// Writes once to a disk with these errors, the last one first; what the consensus thread hears, and the writes asked for.
fn write_to(errors: Vec<LogError>) -> (Vec<Event>, usize) {
    let asked = Arc::<AtomicUsize>::default();
    let store = Box::new(Failing { errors, asked: Arc::clone(&asked) });
    let (jobs, waiting) = mpsc::channel();
    let (says, hears) = mpsc::channel();
    for number in 1..=2 {
        jobs.send(Write::new(0, number, vec![Batch::default()])).unwrap();
    }
    drop(jobs);
    write_all(store, &waiting, &says, &Status::default());
    drop(says);
    (hears.iter().collect(), asked.load(Ordering::SeqCst))
}

#[test]
fn only_a_write_that_found_no_space_is_tried_again() {
    let path = || std::path::PathBuf::from("log");
    let full = || LogError::NoSpace { path: path(), reason: "full".into() };
    let failed = || LogError::Store { path: path(), reason: "no sync".into() };
    let (heard, asked) = write_to(vec![full()]);
    assert!(matches!(&heard[..], [Event::Written(write)] if write.place() == (0, 2)));
    assert_eq!(asked, 2);
    let (heard, asked) = write_to(vec![failed(), full()]);
    assert!(matches!(&heard[..], [Event::LogLost(reason)] if reason.contains("no sync")));
    assert_eq!(asked, 2, "not again after a failed sync");
}

#[test]
fn a_node_whose_log_failed_takes_no_part_until_it_starts_again() {
    let node = Node::start(Membership::Active);
    node.settle();
    assert!(node.agreement.takes_part());
    assert_eq!(rules::agreement(node.agreement.trouble(), "n"), None);
    node.agreement.put(Event::LogLost("no sync".into()));
    node.settle();
    assert!(!node.agreement.takes_part() && !node.agreement.leads());
    assert_eq!(node.agreement.leader(), None);
    let alert = rules::agreement(node.agreement.trouble(), "n").unwrap();
    assert!(alert.about.name == "metadata_stuck" && alert.text.contains("no sync"), "{alert:?}");
    let reset = node.runtime.block_on(node.agreement.reset());
    assert!(reset.unwrap_err().to_string().contains("starts again"), "nothing could begin on that disk");
    assert!(node.begins.try_recv().is_err());
    node.agreement.stop();
}

#[test]
fn a_node_whose_metadata_differ_takes_no_part_after_a_restart_either() {
    let node = Node::start(Membership::Active);
    assert_eq!(node.agreement.diverged(), None);
    node.agreement.has_diverged(77);
    node.settle();
    assert!(!node.agreement.takes_part());
    assert_eq!(node.agreement.diverged(), Some(77));
    assert!(node.agreement.trouble().is_some_and(|trouble| trouble.contains("remove the node")));
    node.agreement.stop();
    let again = Consensus::open(&node.log.lock().load().unwrap(), 8).unwrap();
    assert_eq!((again.diverged(), again.has_caught_up()), (Some(77), false));
    assert!(again.broken().is_some());
}

#[test]
fn a_node_says_that_another_one_goes_on_in_a_group_of_its_own_until_it_joins_that() {
    let [other, me] = both(Membership::Active);
    let failed_over = NodeInfo { membership: Membership::InactiveFailed, ..other.clone() };
    let node = Node::begin(join(&member("me", ME, "old", vec![failed_over, me.clone()])).unwrap());
    let epoch = Epoch { number: 1, lot: 5 };
    let elsewhere = Member { epoch, ..member("other", other.id, "old", vec![other.clone(), me]) };
    let mut stored = Stored::default();
    stored.apply(&join(&elsewhere).unwrap());
    let mut group = Consensus::open(&stored, 3).unwrap();
    let greeting = (0..1_000).find_map(|_| {
        group.tick();
        group.turn().messages.pop()
    });
    let (to, greeting) = greeting.unwrap();
    assert_eq!(to, ME);

    node.settle();
    assert_eq!(node.agreement.has_another_group(), None);
    node.agreement.step(Some(other.id), greeting);
    node.settle();
    assert_eq!(node.agreement.has_another_group(), Some(other.id));

    node.runtime.block_on(node.agreement.reset()).unwrap();
    node.begins.recv_timeout(SOON).unwrap();
    node.go_on.send(()).unwrap();
    assert_eq!(node.agreement.has_another_group(), None, "it belongs to neither group now");
    node.agreement.stop();
}

#[test]
fn a_node_that_nobody_has_heard_of_begins_anew_if_it_holds_nothing() {
    let node = Node::start(Membership::InactiveAdded);
    node.judged(Judged { node: NodeId(2), ..node.as_it_is() }, Verdict::Unknown);
    node.settle();
    assert!(node.begins.try_recv().is_err(), "that was said of another node");
    node.judged(Judged { cluster: "elsewhere", ..node.as_it_is() }, Verdict::Removed);
    node.settle();
    assert!(node.begins.try_recv().is_err(), "that was said in another cluster");
    node.judged(node.as_it_is(), Verdict::Unknown);
    node.begins.recv_timeout(SOON).unwrap();
    node.go_on.send(()).unwrap();
    node.agreement.stop();
    assert_eq!(node.on_disk().cluster_uuid, "new");
}

#[test]
fn a_node_that_nobody_has_heard_of_keeps_data_until_somebody_decides() {
    let node = Node::start(Membership::Active);
    node.judged(node.as_it_is(), Verdict::Unknown);
    node.settle();
    assert!(node.begins.try_recv().is_err());
    assert!(node.agreement.trouble().is_some_and(|trouble| trouble.contains("hardResetNode")));
    // That was said of another life of the group, in which a node may have had the same number.
    node.judged(Judged { epoch: Epoch { number: 77, lot: 1 }, ..node.as_it_is() }, Verdict::Removed);
    node.settle();
    assert!(node.begins.try_recv().is_err());
    // One that was removed has nothing that is missed.
    node.judged(node.as_it_is(), Verdict::Removed);
    node.begins.recv_timeout(SOON).unwrap();
    node.go_on.send(()).unwrap();
    node.agreement.stop();
    assert_eq!(node.on_disk().cluster_uuid, "new");
}

#[test]
fn a_node_that_goes_on_for_its_clients_begins_anew_though_nothing_more_is_heard() {
    let metadata = Arc::new(with_a_bucket());
    let first = found(&member("me", ME, "old", metadata.nodes.clone()), &metadata).unwrap();
    let node = Node::begin(first);
    node.judged(node.as_it_is(), Verdict::Removed);
    node.settle();
    assert!(node.begins.try_recv().is_err(), "clients that have not heard of it are told where to go");
    node.begins.recv_timeout(SOON).unwrap();
    node.go_on.send(()).unwrap();
    node.agreement.stop();
    assert_eq!(node.on_disk().cluster_uuid, "new");
}
