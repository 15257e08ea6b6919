//! Threads at the seams between two parts of a bucket, as a server has them. What one of them does in the middle of the other's
//! work changes nothing that a client can see.
//!
//! Feeds and backfills are in `feed_stress.rs`, fetches and eviction in `stress.rs`.

use std::collections::BTreeMap;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    mpsc,
};
use std::time::Duration;

use crate::support::{Clock, Disk, FaultDisk, Recorder, Rig, options};
use base::{
    DocKey, HashedKey, Now, Status, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
    hash::{key_hash, vbucket_of},
};
use fastrand::Rng;
use settee_engine::{Bucket, BucketChange, BucketOptions, Budget, Delete, Durable, Refusal, Store, Waiter};

const WAITER: Waiter = Waiter { worker: 0, connection: 0, ticket: 0 };

/// A bucket on disks, and the time that its threads have.
struct Site {
    bucket: Arc<Bucket>,
    clock: AtomicU64,
    /// Whether its threads are to end.
    is_over: AtomicBool,
    disks: Vec<FaultDisk>,
    options: BucketOptions,
}

impl Site {
    fn open(options: BucketOptions, disks: Vec<FaultDisk>, millis: u64) -> Self {
        let stores = disks.iter().map(Disk::open).collect();
        let recorder = Arc::new(Recorder::default());
        let now = Clock(millis).now();
        let bucket = Bucket::open(options.clone(), stores, Arc::default(), recorder, now).unwrap();
        Self { bucket, clock: AtomicU64::new(millis), is_over: AtomicBool::new(false), disks, options }
    }

    /// Power is lost, and the bucket is opened again. It is not warmed up.
    fn crash(self) -> Self {
        let Self { bucket, clock, disks, options, .. } = self;
        drop(bucket);
        disks.iter().for_each(Disk::crash);
        Self::open(options, disks, clock.into_inner())
    }

    fn now(&self) -> Now {
        Clock(self.clock.load(Ordering::Relaxed)).now()
    }

    /// What a shard's flush thread does, once. Time passes.
    fn flush(&self, shard: usize) {
        self.clock.fetch_add(300, Ordering::Relaxed);
        assert_eq!(self.bucket.flush(shard, self.now()).failed, None);
    }

    fn flush_all_out(&self) {
        for shard in 0..self.bucket.shards() {
            // The second tells the store that memory knows what the first has synced.
            for _ in 0..2 {
                self.clock.fetch_add(1_000, Ordering::Relaxed);
                while self.bucket.flush(shard, self.now()).unsynced {
                    self.clock.fetch_add(1_000, Ordering::Relaxed);
                }
            }
        }
    }

    /// Executes as a server does: what needs the disk or more patience is tried again.
    fn run<T>(
        &self,
        key: &[u8],
        operation: impl Fn(&Bucket, VbId, HashedKey<'_>, Now) -> Result<T, Refusal>,
    ) -> Result<T, Status> {
        let hashed = HashedKey { key: DocKey::trusted(key), hash: key_hash(key) };
        let vb = vbucket_of(hashed.key.logical(), self.bucket.vbuckets());
        loop {
            match operation(&self.bucket, vb, hashed, self.now()) {
                Ok(done) => return Ok(done),
                Err(Refusal::Fetch) => {
                    self.bucket.fetch(vb, hashed, WAITER).unwrap();
                    self.bucket.run_fetches(usize::from(vb.get()) % self.bucket.shards(), 16, self.now());
                }
                Err(Refusal::Status(Status::TemporaryFailure | Status::SyncWriteInProgress))
                    if !self.is_over.load(Ordering::SeqCst) =>
                {
                    std::thread::yield_now();
                }
                Err(Refusal::Status(status)) => return Err(status),
            }
        }
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        let done = self.run(key, |bucket, vb, key, now| bucket.store(vb, key, &Store::set(value), now));
        assert!(done.is_ok() || self.is_over.load(Ordering::SeqCst), "{done:?}");
    }

    /// As [`Site::set`], on disk when it returns. A flush of the bucket may end it.
    fn set_durably(&self, key: &[u8], value: &[u8]) {
        let store = Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(value) };
        let begun = self.run(key, |bucket, vb, key, now| bucket.store(vb, key, &store, now));
        let Ok(begun) = begun else { return assert!(self.is_over.load(Ordering::SeqCst), "{begun:?}") };
        let complete = |bucket: &Bucket, vb, key: HashedKey<'_>, now| {
            bucket.complete_durable(vb, key, &begun, WAITER, u64::MAX, now).map_err(Refusal::from)
        };
        while !self.is_over.load(Ordering::SeqCst) && matches!(self.run(key, complete), Ok(Durable::Parked)) {
            std::thread::yield_now();
        }
    }

    fn delete(&self, key: &[u8]) {
        let delete = Delete::default();
        let deleted = self.run(key, |bucket, vb, key, now| bucket.delete(vb, key, &delete, now));
        let is_known = matches!(deleted, Ok(_) | Err(Status::KeyNotFound));
        assert!(is_known || self.is_over.load(Ordering::SeqCst), "{deleted:?}");
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.run(key, |bucket, vb, key, now| bucket.get(vb, key, now, |view| view.value.to_vec())) {
            Ok(value) => Some(value),
            Err(Status::KeyNotFound) => None,
            Err(status) => panic!("{status:?}"),
        }
    }

    /// Does something again and again until another thread is through, or has failed; then the others end, too.
    fn until_over(&self, mut step: impl FnMut()) {
        let _over = Over(&self.is_over);
        while !self.is_over.load(Ordering::SeqCst) {
            step();
        }
    }

    fn warm_up(&self) {
        for shard in 0..self.bucket.shards() {
            while self.bucket.warm_up(shard, self.now()).unwrap() {}
        }
        assert!(self.bucket.is_warm());
    }

    fn eject_everything(&self) {
        let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
        self.bucket.reconfigure(quota(0));
        while self.bucket.page(self.now(), Budget::default()).more {}
        self.bucket.reconfigure(quota(self.options.quota_bytes));
    }
}

/// The threads of a site end once this is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

const FLUSHES: u32 = 150;
const WRITERS: u32 = 2;
const KEYS: u32 = 40;

fn own_key(writer: u32, number: u32) -> Vec<u8> {
    format!("\0writer{writer}-{number}").into_bytes()
}

/// Writes numbers that only grow; `acknowledged` is the last one that is.
fn write_numbers(site: &Site, writer: u32, acknowledged: &AtomicU64) {
    let mut rng = Rng::with_seed(writer.into());
    let mut number = 0_u64;
    site.until_over(|| {
        number += 1;
        let key = own_key(writer, rng.u32(0..KEYS));
        let value = [&number.to_be_bytes()[..], &vec![7; rng.usize(0..400)]].concat();
        match rng.u8(0..10) {
            0 => site.delete(&key),
            1 => site.set_durably(&key, &value),
            _ => site.set(&key, &value),
        }
        acknowledged.store(number, Ordering::SeqCst);
    });
}

/// A bucket is emptied again and again beside writers and the threads that bring to disk what they write, and take it from there.
/// What was acknowledged before that began is gone when it is over, in memory and on disk.
fn is_emptied_again_and_again(eviction: EvictionPolicy) {
    let disks = (0..2).map(|shard| FaultDisk::new(11, shard)).collect();
    let site = Site::open(BucketOptions { eviction, ..options(BucketKind::Couchbase) }, disks, 0);
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let _over = Over(&site.is_over);
        let (site, acknowledged) = (&site, &acknowledged);
        for shard in 0..site.bucket.shards() {
            scope.spawn(move || {
                site.until_over(|| {
                    site.flush(shard);
                    site.bucket.run_fetches(shard, 16, site.now());
                });
            });
        }
        scope.spawn(move || site.until_over(|| site.eject_everything()));
        for (writer, acknowledged) in (0..WRITERS).zip(acknowledged) {
            scope.spawn(move || write_numbers(site, writer, acknowledged));
        }
        for _ in 0..FLUSHES {
            let before: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
            site.bucket.flush_all(site.now()).unwrap();
            for (writer, before) in (0..WRITERS).zip(&before) {
                for key in (0..KEYS).map(|number| own_key(writer, number)) {
                    let found = site.get(&key).map(|value| u64::from_be_bytes(*value.first_chunk().unwrap()));
                    assert!(found.is_none_or(|number| number > *before), "{found:?} after {before}");
                }
            }
        }
    });
    site.is_over.store(false, Ordering::SeqCst);
    site.flush_all_out();
    let contents = |site: &Site| {
        let keys = (0..WRITERS).flat_map(|writer| (0..KEYS).map(move |number| own_key(writer, number)));
        keys.filter_map(|key| Some((site.get(&key)?, key))).collect::<Vec<_>>()
    };
    let before = contents(&site);
    let site = site.crash();
    site.warm_up();
    assert!(contents(&site) == before, "the disk has what memory had");
    assert_eq!(site.bucket.stats().curr_items, before.len() as u64);
}

#[test]
fn a_bucket_that_is_emptied_beside_its_flusher_keeps_nothing_of_before() {
    is_emptied_again_and_again(EvictionPolicy::ValueOnly);
}

#[test]
fn nor_does_one_that_evicts_keys() {
    is_emptied_again_and_again(EvictionPolicy::FullEviction);
}

/// The flusher is about to write what a vBucket held, with its state, when the bucket is emptied. Emptying has to wait for the
/// flusher. Otherwise the disk would have what was written before the history that it belongs to, and a start would bring it
/// back.
#[test]
fn a_bucket_is_not_emptied_in_the_middle_of_a_commit() {
    let mut rig = Rig::new(BucketOptions { vbuckets: 1, shards: 1, ..options(BucketKind::Couchbase) });
    let key = b"\0key";
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &Store::set(b"before"), now)).unwrap();
    let (commit_begins, begun) = mpsc::channel();
    let (reset_is_over, emptied) = mpsc::channel();
    rig.stores[0].after_next_reset(move || {
        let _ = reset_is_over.send(());
    });
    rig.stores[0].before_next_commit(move || {
        commit_begins.send(()).unwrap();
        // Nothing comes of it, for what would come waits for this commit.
        let _ = emptied.recv_timeout(Duration::from_millis(200));
    });
    let bucket = Arc::clone(&rig.bucket);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            begun.recv().unwrap();
            bucket.flush_all(now).unwrap();
        });
        rig.flush();
    });
    rig.flush();
    let rig = rig.crash();
    rig.warm_up();
    let read = |bucket: &Bucket, vb, key: HashedKey<'_>| bucket.get(vb, key, now, |view| view.value.to_vec());
    assert_eq!(rig.run(key, read), Err(Status::KeyNotFound));
}

const DOCUMENTS: u32 = 3_000;

fn document(number: u32) -> Vec<u8> {
    format!("\0document{number}").into_bytes()
}

fn value(rng: &mut Rng) -> Vec<u8> {
    vec![rng.u8(..); rng.usize(100..600)]
}

type Expected = BTreeMap<u32, Vec<u8>>;

/// One write to a document with an even number: those with odd ones stay as they are.
fn write_even(site: &Site, rng: &mut Rng, expected: &mut Expected) {
    let number = rng.u32(0..DOCUMENTS) & !1;
    if rng.u8(0..8) > 0 {
        let value = value(rng);
        site.set(&document(number), &value);
        expected.insert(number, value);
    } else {
        site.delete(&document(number));
        expected.remove(&number);
    }
}

/// A bucket that was much written, as a start finds it.
fn written(seed: u64, eviction: EvictionPolicy) -> (Site, Expected) {
    let options = BucketOptions { shards: 1, eviction, ..options(BucketKind::Couchbase) };
    let site = Site::open(options, vec![FaultDisk::new(seed, 0)], 0);
    site.warm_up();
    let (mut rng, mut expected) = (Rng::with_seed(seed), Expected::new());
    for _ in 0..3 {
        for number in 0..DOCUMENTS {
            let value = value(&mut rng);
            site.set(&document(number), &value);
            expected.insert(number, value);
            if number % 100 == 0 {
                site.flush(0);
            }
        }
        site.flush_all_out();
    }
    (site.crash(), expected)
}

/// A bucket is loaded while its segments are cleaned, and while it is written and read.
fn is_loaded_while_its_segments_are_cleaned(seed: u64, eviction: EvictionPolicy) {
    let (site, mut expected) = written(seed, eviction);
    let unchanged = expected.clone();
    let removed = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (site, removed, unchanged, expected) = (&site, &removed, &unchanged, &mut expected);
        scope.spawn(move || {
            site.until_over(|| {
                let report = site.bucket.compact_eagerly(0, site.now()).unwrap();
                removed.fetch_add(report.segments_removed, Ordering::Relaxed);
            });
        });
        scope.spawn(move || {
            let mut rng = Rng::with_seed(seed + 1);
            site.until_over(|| {
                (0..20).for_each(|_| write_even(site, &mut rng, expected));
                site.flush(0);
            });
        });
        scope.spawn(move || {
            let mut rng = Rng::with_seed(seed + 2);
            site.until_over(|| {
                let number = rng.u32(0..DOCUMENTS) | 1;
                assert_eq!(site.get(&document(number)).as_ref(), unchanged.get(&number), "document {number}");
            });
        });
        let _over = Over(&site.is_over);
        // So that the others have begun.
        let has_begun = || removed.load(Ordering::Relaxed) > 0 || site.is_over.load(Ordering::SeqCst);
        let pause = || {
            while !has_begun() {
                std::thread::yield_now();
            }
        };
        while site.bucket.warm_up_pausing(0, site.now(), &pause).unwrap() {}
        assert!(site.bucket.is_warm());
    });
    site.is_over.store(false, Ordering::SeqCst);
    site.flush_all_out();
    let check = |site: &Site| {
        for number in 0..DOCUMENTS {
            assert_eq!(site.get(&document(number)).as_ref(), expected.get(&number), "document {number}");
        }
        assert_eq!(site.bucket.stats().curr_items, expected.len() as u64);
    };
    check(&site);
    site.eject_everything();
    check(&site);
    let site = site.crash();
    site.warm_up();
    check(&site);
}

#[test]
fn a_bucket_loaded_beside_compaction_has_every_document() {
    (0..4).for_each(|seed| is_loaded_while_its_segments_are_cleaned(seed, EvictionPolicy::ValueOnly));
}

#[test]
fn so_has_one_that_evicts_keys() {
    (0..4).for_each(|seed| is_loaded_while_its_segments_are_cleaned(seed, EvictionPolicy::FullEviction));
}
