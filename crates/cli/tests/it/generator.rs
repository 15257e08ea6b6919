//! The load generator and a node that is stopped: it neither refuses requests nor closes connections.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use load::{
    Control, Driver, Interval, LoadError, OnBreak, Part, Phase, Protocol, Target,
    keys::KeyForm,
    op::Op,
    values::{Dataset, Sizes, ValueKind},
};

use crate::{
    cluster::{Cluster, eventually},
    login,
};

const STOPPED: usize = 2;
const RECORDS: u64 = 300;

/// A run that is under way.
struct Running {
    control: Arc<Control>,
    /// Operations that have succeeded so far.
    done: Arc<AtomicU64>,
    thread: thread::JoinHandle<Result<(), LoadError>>,
}

impl Running {
    /// Writes of random records in a closed loop, from all nodes that serve some.
    fn begin(cluster: &Cluster, on_break: OnBreak) -> Self {
        let target = Target::discover(Protocol::Couchbase, &cluster.nodes[0].kv(), login("app")).unwrap();
        let values = ValueKind::Random(Sizes::uniform(100, 100).unwrap());
        let records = Arc::new(Dataset::new("", KeyForm::Hex(20), values));
        let mut driver = Driver::connect(Arc::new(target), records, 3, Part::WHOLE).unwrap();
        let control = Arc::new(Control::new(0.0));
        let done = Arc::new(AtomicU64::new(0));
        let phase = Phase { on_break, interval: Duration::from_millis(100), ..Phase::of(Op::Set, RECORDS) };
        let (orders, count) = (Arc::clone(&control), Arc::clone(&done));
        let mut sink = move |interval: Interval| _ = count.fetch_add(interval.tally.ok(), Ordering::Relaxed);
        let thread = thread::spawn(move || driver.run(&phase, Instant::now(), &orders, &mut sink));
        Self { control, done, thread }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// The lists of operations that wait for the stopped node fill, and the run comes to a stop. Once the node has been failed over
/// its documents are elsewhere. A run that makes connections again goes on there. Any other run ends, and says why.
#[test]
fn a_node_that_is_stopped_and_failed_over_stops_no_run() {
    let cluster = Cluster::form(3);
    cluster.rest().post("/settings/autoFailover", &[("enabled", "false")]).unwrap();
    eventually("the bucket is served", || cluster.try_client().ok());
    let [going_on, ending] = [OnBreak::Reconnect, OnBreak::Fail].map(|on| Running::begin(&cluster, on));
    eventually("both have begun", || (going_on.done() > 0 && ending.done() > 0).then_some(()));

    cluster.nodes[STOPPED].pause();
    cluster.command(&["failover", "--hard", &cluster.nodes[STOPPED].rest()]);
    let said = ending.thread.join().unwrap().expect_err("a node was lost").to_string();
    assert!(said.contains("others serve its documents"), "{said}");
    // More than wait for a node at most, so documents of the stopped one are among them.
    let before = going_on.done();
    eventually("the other one goes on", || (going_on.done() > before + 5_000).then_some(()));
    going_on.control.stop();
    going_on.thread.join().unwrap().unwrap();
}
