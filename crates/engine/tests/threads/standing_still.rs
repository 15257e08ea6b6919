//! A disk that stands still in the middle of whatever it is doing. A caller waits for as long as that takes, and
//! nobody else does. Documents in memory are read and written, statistics told, memory paged, writers paced.
//!
//! A failure is a test that does not end.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc::{self, Sender},
};

use crate::support::{Clock, Disk, FaultDisk, Rig, numbered::key, options};
use base::{Status, VbId, VbRole, bucket::BucketKind};
use parking_lot::Mutex;
use settee_engine::{Admission, BucketChange, BucketOptions, Budget, Delete, Refusal, Store, Waiter};
use storage::{DiskBudget, DiskClock, DiskLimits, FaultFs, Options, ThrottledFs};

const QUOTA: u64 = 64 << 20;
const DOCUMENTS: u32 = 600;
/// Of the places where the disk can stop, one in so many is tried.
const STEP: usize = 7;

/// What the one who works for the disk tells the others.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    StandsStill,
    Done,
}

/// A caller of the disk asks this clock to wait, and does at one chosen time until the lock is free.
struct StillClock {
    /// How many more requests it takes.
    left: AtomicU64,
    told: Mutex<Sender<Heard>>,
    still: Mutex<()>,
}

impl StillClock {
    /// Lets everything pass for now.
    fn new(told: Sender<Heard>) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(u64::MAX), told: Mutex::new(told), still: Mutex::new(()) })
    }

    fn stop_after(&self, requests: u64) {
        self.left.store(requests, Ordering::SeqCst);
    }
}

/// Says so however the work ends.
struct SaysDone(Sender<Heard>);

impl Drop for SaysDone {
    fn drop(&mut self) {
        let _ = self.0.send(Heard::Done);
    }
}

impl DiskClock for StillClock {
    fn nanos(&self) -> u64 {
        // Time does not pass: every request comes too early.
        0
    }

    fn sleep(&self, _: u64) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.told.lock().send(Heard::StandsStill).unwrap();
            drop(self.still.lock());
        }
    }
}

fn rig(clock: &Arc<StillClock>) -> Rig {
    let limits = DiskLimits { bytes_per_sec: 0, iops: 1 };
    let budget = Arc::new(DiskBudget::new(limits, Arc::clone(clock) as Arc<dyn DiskClock>));
    let disk = |shard| {
        let files = FaultFs::new(u64::from(shard));
        let seen = ThrottledFs::new(Arc::new(files.clone()), Arc::clone(&budget));
        let options = Options {
            shard,
            segment_bytes: 128 << 10,
            segment_bytes_min: 32 << 10,
            reserve_bytes: 64 << 10,
            index_segments_min: 3,
        };
        Arc::new(FaultDisk::seen_through(Arc::new(seen), files, options)) as Arc<dyn Disk>
    };
    let options = BucketOptions { quota_bytes: QUOTA, ..options(BucketKind::Couchbase) };
    let rig = Rig::over(options, Arc::default(), vec![disk(0), disk(1)], Clock(0));
    rig.warm_up();
    rig
}

fn at(secs: u64) -> base::Now {
    Clock(secs * 1_000).now()
}

fn store(rig: &Rig, number: u32, secs: u64) -> Result<(), Status> {
    let value = vec![number as u8; 1_500];
    rig.run(&key(number), |bucket, vb, key| bucket.store(vb, key, &Store::set(&value), at(secs))).map(drop)
}

fn flush(rig: &Rig, secs: u64) {
    for shard in 0..rig.bucket.shards() {
        while rig.bucket.flush(shard, at(secs)).more {}
    }
}

/// What the threads do that work for the disk.
fn work(rig: &Rig) {
    (0..DOCUMENTS).for_each(|number| store(rig, number, 1).unwrap());
    flush(rig, 2);
    (0..DOCUMENTS).step_by(2).for_each(|number| store(rig, number, 3).unwrap());
    for number in (0..DOCUMENTS).step_by(5) {
        rig.run(&key(number), |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), at(3))).unwrap();
    }
    flush(rig, 4);
    for shard in 0..rig.bucket.shards() {
        while rig.bucket.compact_eagerly(shard, at(5)).unwrap().more {}
    }
    // Their turn for the CAS ceiling.
    flush(rig, 100);
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    while rig.bucket.page(at(100), Budget::default()).more {}
    rig.bucket.reconfigure(quota(QUOTA));
    for number in (0..DOCUMENTS).step_by(7) {
        let read = rig.run(&key(number), |bucket, vb, key| bucket.get(vb, key, at(100), |view| view.flags));
        assert!(matches!(read, Ok(_) | Err(Status::KeyNotFound)), "{read:?}");
    }
}

/// What everybody else does, long afterwards.
fn go_on_without(rig: &Rig) {
    let now = at(30);
    let bucket = &rig.bucket;
    let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
    for number in 0..DOCUMENTS + 100 {
        let key = key(number);
        let (vb, key) = rig.key(&key);
        let read = bucket.get(vb, key, now, |view| view.flags).map(drop);
        assert!(
            matches!(read, Ok(()) | Err(Refusal::Fetch | Refusal::Status(Status::KeyNotFound))),
            "{read:?}"
        );
        let written = bucket.store(vb, key, &Store::set(b"v"), now).map(drop);
        let expected = [Ok(()), Err(Refusal::Fetch), Err(Refusal::Status(Status::TemporaryFailure))];
        assert!(expected.contains(&written), "{written:?}");
    }
    let stats = bucket.stats();
    assert!(stats.mem_used == stats.pools.sum() && bucket.held_memory().used > 0);
    assert_ne!(bucket.ask(waiter, 100, now), Admission::Refuse);
    bucket.pace(now);
    bucket.give_up(waiter, now);
    bucket.page(now, Budget::default());
    bucket.expire(now, Budget::default());
    bucket.defragment(Budget::default());
    bucket.drop_slow_cursors();
    bucket.time_out_durable(now);
    bucket.set_disk_low(false);
    let _ = bucket.shortage(now);
    assert_eq!(bucket.seqnos(None, &[VbRole::Active]).len(), usize::from(bucket.vbuckets()));
    assert!(bucket.failover_log(VbId(0)).is_ok() && (0..2).all(|shard| bucket.space_ratio(shard) >= 1.0));
}

#[test]
fn nobody_waits_for_a_disk_that_stands_still_but_who_asked_it() {
    let mut stops = 0;
    for requests in (0..).step_by(STEP) {
        let (told, heard) = mpsc::channel();
        let clock = StillClock::new(told.clone());
        let rig = rig(&clock);
        clock.stop_after(requests);
        let is_done = std::thread::scope(|scope| {
            // Given back also when something fails here: a thread that works is waited for in any case.
            let still = clock.still.lock();
            let done = SaysDone(told.clone());
            scope.spawn(|| {
                let _done = done;
                work(&rig);
            });
            let first = heard.recv().unwrap();
            if first == Heard::StandsStill {
                go_on_without(&rig);
            }
            drop(still);
            first == Heard::Done
        });
        if is_done {
            break;
        }
        stops += 1;
    }
    assert!(stops > 30, "the disk has been asked for too little: {stops}");
}

#[test]
fn a_flush_that_takes_seconds_is_noticed_and_told() {
    let (told, heard) = mpsc::channel();
    let clock = StillClock::new(told.clone());
    let rig = rig(&clock);
    clock.stop_after(0);
    std::thread::scope(|scope| {
        let still = clock.still.lock();
        let done = SaysDone(told.clone());
        scope.spawn(|| {
            let _done = done;
            store(&rig, 0, 1).unwrap();
            flush(&rig, 2);
        });
        assert_eq!(heard.recv(), Ok(Heard::StandsStill));
        assert!(!rig.bucket.pace(at(3)).still && rig.bucket.pace(at(8)).still);
        let refused = (1..).find(|&number| store(&rig, number, 8).is_err()).unwrap();
        assert!(refused > 500);
        let words = rig.bucket.shortage(at(8)).unwrap();
        assert!(words.contains("has not finished a write"), "{words}");
        drop(still);
    });
    assert_eq!(heard.recv(), Ok(Heard::Done));
    assert!(!rig.bucket.pace(at(9)).still);
}
