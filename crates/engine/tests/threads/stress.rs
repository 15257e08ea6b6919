//! Threads: workers that increment, compare-and-swap, delete and write durably, beside everything a server does in the
//! background. At the end, whatever the interleaving: no increment is lost, and every durable write was visible when
//! acknowledged. Counts are exact, and all of it is there after a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Disk, FaultDisk, MemStore, START_SECS, options};
use base::{
    DocKey, HashedKey, Now, Status, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
    hash::{key_hash, vbucket_of},
};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};
use settee_engine::{
    Bucket, BucketChange, BucketOptions, Budget, Counter, Delete, Durable, Expiry, Mutated, Notifier,
    Refusal, Store, Waiter, Work,
};
use storage::KvStore;

const WORKERS: u32 = 3;
const ROUNDS: u64 = 3_000;
const QUOTA: u64 = 640 << 10;
/// For so long workers wait for memory to run short, where the disk has kept up with all that they wrote.
const PATIENCE: Duration = Duration::from_secs(60);

/// One mailbox per worker: the last ticket that was woken.
#[derive(Default)]
struct Mailboxes {
    woken: Mutex<HashMap<u32, u64>>,
    changed: Condvar,
}

impl Notifier for Mailboxes {
    fn wake(&self, waiter: Waiter) {
        self.woken.lock().insert(waiter.worker, waiter.ticket);
        self.changed.notify_all();
    }

    fn work(&self, _: Work) {}
}

impl Mailboxes {
    fn wait_for(&self, waiter: Waiter) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut woken = self.woken.lock();
        while woken.get(&waiter.worker) != Some(&waiter.ticket) {
            assert!(!self.changed.wait_until(&mut woken, deadline).timed_out(), "a wake-up was lost");
        }
    }
}

struct Worker {
    number: u32,
    ticket: u64,
    bucket: Arc<Bucket>,
    mailboxes: Arc<Mailboxes>,
    clock: Arc<AtomicU64>,
    rng: Rng,
}

fn now_of(clock: &AtomicU64) -> Now {
    let millis = clock.load(Ordering::Relaxed);
    Now { wall_nanos: START_SECS * 1_000_000_000 + millis * 1_000_000, mono_millis: millis }
}

fn place(key: &[u8], bucket: &Bucket) -> (VbId, u64) {
    (vbucket_of(DocKey::trusted(key).logical(), bucket.vbuckets()), key_hash(key))
}

impl Worker {
    fn waiter(&mut self) -> Waiter {
        self.ticket += 1;
        Waiter { worker: self.number, connection: 0, ticket: self.ticket }
    }

    /// Executes as a server does: parks for fetches, retries what is temporary.
    fn run<T>(
        &mut self,
        key: &[u8],
        mut operation: impl FnMut(&Bucket, VbId, HashedKey<'_>, Now) -> Result<T, Refusal>,
    ) -> Result<T, Status> {
        let (vb, hash) = place(key, &self.bucket);
        let key = HashedKey { key: DocKey::trusted(key), hash };
        loop {
            match operation(&self.bucket, vb, key, now_of(&self.clock)) {
                Ok(done) => return Ok(done),
                Err(Refusal::Fetch) => {
                    let waiter = self.waiter();
                    self.bucket.fetch(vb, key, waiter).unwrap();
                    self.mailboxes.wait_for(waiter);
                }
                Err(Refusal::Status(
                    Status::TemporaryFailure | Status::SyncWriteInProgress | Status::Locked,
                )) => {
                    std::thread::yield_now();
                }
                Err(Refusal::Status(status)) => return Err(status),
            }
        }
    }

    fn complete(&mut self, key: &[u8], mutated: &Mutated) {
        let (vb, _) = place(key, &self.bucket);
        loop {
            let waiter = self.waiter();
            let (now, key) = (now_of(&self.clock), HashedKey::new(DocKey::trusted(key)));
            match self.bucket.complete_durable(vb, key, mutated, waiter, u64::MAX, now).unwrap() {
                Durable::Committed(_) => return,
                Durable::Parked => self.mailboxes.wait_for(waiter),
            }
        }
    }

    fn increment(&mut self, key: &[u8], delta: u64) {
        let counter = Counter {
            delta,
            decrement: false,
            initial: Some(delta),
            expiry: Expiry::Wire(0),
            cas: base::Cas::NONE,
            durability: DurabilityLevel::None,
        };
        self.run(key, |bucket, vb, key, now| bucket.counter(vb, key, &counter, now)).unwrap();
    }

    fn add_by_cas(&mut self, key: &[u8], delta: u64) {
        loop {
            let read = self
                .run(key, |bucket, vb, key, now| bucket.get(vb, key, now, |view| (view.share(), view.cas)));
            let (number, cas) = match &read {
                Ok((value, cas)) => (std::str::from_utf8(value).unwrap().parse::<u64>().unwrap(), *cas),
                Err(status) => {
                    assert_eq!(*status, Status::KeyNotFound);
                    return self.increment(key, delta);
                }
            };
            let value = (number + delta).to_string();
            let store = Store { cas, ..Store::set(value.as_bytes()) };
            match self.run(key, |bucket, vb, key, now| bucket.store(vb, key, &store, now)) {
                Ok(_) => return,
                Err(status) => assert_eq!(status, Status::KeyExists),
            }
        }
    }

    /// Own keys: nobody else writes them.
    fn write_durably(&mut self, round: u64) {
        let key = format!("\0own{}-{}", self.number, round % 50).into_bytes();
        let value = vec![round as u8; self.rng.usize(1..2_000)];
        let store = Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(&value) };
        let mutated = self.run(&key, |bucket, vb, key, now| bucket.store(vb, key, &store, now)).unwrap();
        self.complete(&key, &mutated);
        let read =
            self.run(&key, |bucket, vb, key, now| bucket.get(vb, key, now, |view| view.value.to_vec()));
        assert_eq!(read, Ok(value), "acknowledged means visible");
    }

    fn churn(&mut self) {
        let key = format!("\0churn{}", self.rng.u32(0..200)).into_bytes();
        if self.rng.bool() {
            let value = vec![1; self.rng.usize(0..3_000)];
            self.run(&key, |bucket, vb, key, now| bucket.store(vb, key, &Store::set(&value), now)).unwrap();
        } else {
            let deleted =
                self.run(&key, |bucket, vb, key, now| bucket.delete(vb, key, &Delete::default(), now));
            assert!(deleted.is_ok() || deleted == Err(Status::KeyNotFound));
        }
    }

    fn work(mut self) {
        for round in 0..ROUNDS {
            let shared = format!("\0shared{}", self.rng.u32(0..20)).into_bytes();
            self.increment(&shared, 1);
            let swapped = format!("\0swapped{}", self.rng.u32(0..20)).into_bytes();
            self.add_by_cas(&swapped, 2);
            self.churn();
            if round % 100 == 0 {
                self.write_durably(round);
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while evicted(&self.bucket) == 0 && Instant::now() < deadline {
            self.churn();
        }
    }
}

/// How often a value left memory, or came back.
fn evicted(bucket: &Bucket) -> u64 {
    let ops = bucket.stats().ops;
    ops.ejects + ops.bg_fetched
}

fn background(bucket: &Bucket, clock: &AtomicU64, stop: &AtomicBool) {
    let mut rng = Rng::with_seed(7);
    while !stop.load(Ordering::Relaxed) {
        clock.fetch_add(1, Ordering::Relaxed);
        let now = now_of(clock);
        for shard in 0..bucket.shards() {
            assert_eq!(bucket.flush(shard, now).failed, None);
            bucket.run_fetches(shard, 64, now);
            if rng.u8(0..50) == 0 {
                bucket.compact(shard, now).unwrap();
            }
        }
        bucket.page(now, Budget::default());
        bucket.expire(now, Budget::default());
        bucket.defragment(Budget::default());
        let _ = bucket.stats();
    }
}

/// Beside [`background`]: what a server does in other threads, and an administrator who cannot decide.
fn housekeeping(bucket: &Bucket, clock: &AtomicU64, stop: &AtomicBool) {
    let policies = [EvictionPolicy::FullEviction, EvictionPolicy::ValueOnly];
    for policy in policies.into_iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..20 {
            let now = now_of(clock);
            for quota_bytes in [0, QUOTA] {
                let (eviction, quota_bytes) = (Some(policy), Some(quota_bytes));
                bucket.reconfigure(BucketChange { eviction, quota_bytes, ..BucketChange::default() });
                bucket.page(now, Budget::default());
            }
            for shard in 0..bucket.shards() {
                bucket.run_fetches(shard, 8, now);
                bucket.compact_eagerly(shard, now).unwrap();
            }
            bucket.time_out_durable(now);
        }
    }
}

#[test]
fn nothing_is_lost_between_threads() {
    let stores: Vec<Arc<MemStore>> = vec![Arc::default(), Arc::default()];
    press(options(BucketKind::Couchbase), &|| {
        stores.iter().map(|store| store.clone() as Arc<dyn KvStore>).collect()
    });
}

#[test]
fn nothing_is_lost_while_keys_leave_memory_and_segments_are_cleaned() {
    let disks: Vec<_> = (0..2).map(|shard| FaultDisk::new(3, shard)).collect();
    let eviction = EvictionPolicy::FullEviction;
    press(BucketOptions { eviction, ..options(BucketKind::Couchbase) }, &|| {
        disks.iter().map(|disk| disk.open()).collect()
    });
}

fn press(options: BucketOptions, open: &dyn Fn() -> Vec<Arc<dyn KvStore>>) {
    let options = BucketOptions { vbuckets: 16, shards: 2, quota_bytes: QUOTA, ..options };
    let evicts_keys = options.eviction == EvictionPolicy::FullEviction;
    let mailboxes = Arc::new(Mailboxes::default());
    let clock = Arc::new(AtomicU64::new(0));
    let bucket =
        Bucket::open(options.clone(), open(), Arc::default(), mailboxes.clone(), now_of(&clock)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| background(&bucket, &clock, &stop));
        let housekeeping = evicts_keys.then(|| scope.spawn(|| housekeeping(&bucket, &clock, &stop)));
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| Worker {
                number,
                ticket: 0,
                bucket: bucket.clone(),
                mailboxes: mailboxes.clone(),
                clock: clock.clone(),
                rng: Rng::with_seed(u64::from(number)),
            })
            .map(|worker| scope.spawn(move || worker.work()))
            .collect();
        let finished: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        background.join().unwrap();
        housekeeping.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(finished.iter().all(Result::is_ok));
    });
    assert!(evicted(&bucket) > 0, "the quota was small enough to matter");
    assert_eq!(bucket.close(now_of(&clock)), Ok(()));
    let items = bucket.stats().curr_items;
    drop(bucket);

    let bucket = Bucket::open(options, open(), Arc::default(), mailboxes, now_of(&clock)).unwrap();
    for shard in 0..bucket.shards() {
        assert!(!bucket.warm_up(shard, now_of(&clock)).unwrap());
    }
    assert_eq!(bucket.stats().curr_items, items);
    let sum = |name: &str| -> u64 {
        (0..20).map(|n| read_number(&bucket, &clock, format!("\0{name}{n}").as_bytes())).sum()
    };
    assert_eq!(sum("shared"), u64::from(WORKERS) * ROUNDS);
    assert_eq!(sum("swapped"), 2 * u64::from(WORKERS) * ROUNDS);
}

fn read_number(bucket: &Bucket, clock: &AtomicU64, key: &[u8]) -> u64 {
    let (vb, hash) = place(key, bucket);
    let key = HashedKey { key: DocKey::trusted(key), hash };
    loop {
        let read = bucket.get(vb, key, now_of(clock), |view| {
            std::str::from_utf8(view.value).unwrap().parse::<u64>().unwrap()
        });
        match read {
            Ok(number) => return number,
            Err(Refusal::Fetch) => {
                bucket.fetch(vb, key, Waiter { worker: 99, connection: 0, ticket: 0 }).unwrap();
                (0..bucket.shards()).for_each(|shard| {
                    bucket.run_fetches(shard, 8, now_of(clock));
                });
            }
            Err(Refusal::Status(status)) => panic!("{status:?}"),
        }
    }
}
