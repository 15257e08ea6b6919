//! Alarms, and the thread that drives a bucket as a server's threads do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use base::Now;
use engine::{Bucket, Notifier, Waiter, Work};
use parking_lot::{Condvar, Mutex};
use settee_indexer::{Alarm, Alarms};

#[derive(Default)]
pub(crate) struct TestAlarms {
    woken: Mutex<(u64, BTreeMap<u64, BTreeSet<u64>>)>,
    changed: Condvar,
    work: Mutex<bool>,
    has_work: Condvar,
}

struct TestAlarm {
    all: Arc<TestAlarms>,
    number: u64,
}

/// What the indexer is given.
pub(crate) struct Given(pub(crate) Arc<TestAlarms>);

impl Alarms for Given {
    fn alarm(&self) -> Box<dyn Alarm> {
        Box::new(TestAlarms::alarm(&self.0))
    }

    fn wake(&self, waiter: Waiter) {
        Notifier::wake(&*self.0, waiter);
    }
}

impl TestAlarms {
    fn alarm(all: &Arc<Self>) -> TestAlarm {
        let mut woken = all.woken.lock();
        woken.0 += 1;
        let number = woken.0;
        woken.1.insert(number, BTreeSet::new());
        TestAlarm { all: Arc::clone(all), number }
    }

    /// An alarm for a test itself.
    pub(crate) fn own(self: &Arc<Self>) -> Box<dyn Alarm> {
        Box::new(Self::alarm(self))
    }
}

impl Notifier for TestAlarms {
    fn wake(&self, waiter: Waiter) {
        if let Some(tickets) = self.woken.lock().1.get_mut(&waiter.connection) {
            tickets.insert(waiter.ticket);
        }
        self.changed.notify_all();
    }

    fn work(&self, _: Work) {
        *self.work.lock() = true;
        self.has_work.notify_all();
    }
}

impl Alarm for TestAlarm {
    fn waiter(&self, ticket: u64) -> Waiter {
        Waiter { worker: u32::MAX, connection: self.number, ticket }
    }

    fn wait(&self, patience: Duration) -> BTreeSet<u64> {
        let until = Instant::now() + patience;
        let mut woken = self.all.woken.lock();
        loop {
            let mine = woken.1.get_mut(&self.number).map(std::mem::take).unwrap_or_default();
            if !mine.is_empty() || self.all.changed.wait_until(&mut woken, until).timed_out() {
                return mine;
            }
        }
    }
}

impl Drop for TestAlarm {
    fn drop(&mut self) {
        self.all.woken.lock().1.remove(&self.number);
    }
}

/// The clock that everything here goes by.
pub(crate) fn now(begin: Instant) -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Now { wall_nanos: wall.as_nanos() as u64, mono_millis: begin.elapsed().as_millis() as u64 }
}

/// Flushes a bucket and reads for its feeds, until it is dropped.
pub(crate) struct Driver {
    stops: Arc<AtomicBool>,
    /// It flushes nothing.
    holds: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(crate) fn new(bucket: Arc<Bucket>, alarms: Arc<TestAlarms>, begin: Instant) -> Self {
        let (stops, holds) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let (seen, held) = (stops.clone(), holds.clone());
        let thread = std::thread::spawn(move || {
            while !seen.load(SeqCst) {
                if !held.load(SeqCst) {
                    bucket.flush(0, now(begin));
                }
                while bucket.run_backfills(0, now(begin)).more {}
                let mut has_work = alarms.work.lock();
                if !std::mem::take(&mut *has_work) {
                    alarms.has_work.wait_for(&mut has_work, Duration::from_millis(5));
                }
            }
        });
        Self { stops, holds, thread: Some(thread) }
    }

    /// Has the disk take nothing from now on, or take what waits.
    pub(crate) fn hold(&self, holds: bool) {
        self.holds.store(holds, SeqCst);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stops.store(true, SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}
