//! What ejection leaves behind: memory that nobody uses and nobody else can have. A bucket is filled with small documents as
//! fast as its disk takes them, until nothing but keys is in memory. One thread plays the writers, the disk and housekeeping, in
//! the proportions of a server whose housekeeping never rests.

use std::sync::{Arc, OnceLock, Weak};

use crate::support::{Clock, MemStore, options};
use base::{DocKey, HashedKey, Now, Status, VbId, bucket::BucketKind, hash};
use parking_lot::Mutex;
use settee_engine::{Bucket, BucketOptions, Budget, Notifier, Refusal, Store, Waiter, Work};
use storage::KvStore;

const QUOTA: u64 = 24 << 20;
/// Of the quota, in percent: what is dirty while the disk is behind, and what of the arena may be holes.
const DIRTY: u64 = 30;
const HOLES_MAX: u64 = 12;
/// Documents that writers insert while housekeeping does one round.
const INSERTS: u32 = 400;
/// What housekeeping does of each chore in a round, and how much at a time.
const STEPS: usize = 16;
const PAGE: Budget = Budget { items: 64, bytes: 1 << 20 };
const DEFRAGMENT: Budget = Budget { items: 64, bytes: 96 << 10 };
/// There is a round whenever the flusher has let go of a lock so many times: the disk takes about what writers write.
const HOLDS_PER_ROUND: u32 = 3;
/// One document in so many is read in the end.
const READ: usize = 50;

fn key(number: u32) -> Vec<u8> {
    format!("\0{{{number:036}}}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(16)
}

fn with_key<T>(bucket: &Bucket, number: u32, operation: impl FnOnce(VbId, HashedKey<'_>) -> T) -> T {
    let key = key(number);
    let key = HashedKey { key: DocKey::trusted(&key), hash: hash::key_hash(&key) };
    operation(hash::vbucket_of(key.key.logical(), bucket.vbuckets()), key)
}

/// What has been done.
#[derive(Default)]
struct Progress {
    inserted: u32,
    holes_max: u64,
    /// How often the flusher has let go of a lock.
    holds: u32,
}

impl Progress {
    /// Writers, the pager, the defragmenter.
    fn round(&mut self, bucket: &Bucket, now: Now) {
        for _ in 0..INSERTS {
            let value = value(self.inserted);
            let stored =
                with_key(bucket, self.inserted, |vb, key| bucket.store(vb, key, &Store::set(&value), now));
            if let Err(refusal) = stored {
                assert_eq!(refusal, Refusal::Status(Status::TemporaryFailure));
                break;
            }
            self.inserted += 1;
        }
        for _ in 0..STEPS {
            if !bucket.wants_room() || !bucket.page(now, PAGE).more {
                break;
            }
        }
        for _ in 0..STEPS {
            if !bucket.defragment(DEFRAGMENT).more {
                break;
            }
        }
        self.holes_max = self.holes_max.max(bucket.held_memory().holes);
    }
}

/// Where everything but the disk goes on while the flusher has documents in its hands.
#[derive(Default)]
struct World {
    bucket: OnceLock<Weak<Bucket>>,
    progress: Mutex<Progress>,
}

impl Notifier for World {
    fn wake(&self, _: Waiter) {}

    fn work(&self, _: Work) {}

    fn held(&self, _: u64) {
        let bucket = self.bucket.get().and_then(Weak::upgrade).unwrap();
        let mut progress = self.progress.lock();
        progress.holds += 1;
        if progress.holds.is_multiple_of(HOLDS_PER_ROUND) {
            progress.round(&bucket, Clock(0).now());
        }
    }
}

#[test]
fn ejecting_fast_leaves_few_holes_though_most_of_what_is_resident_waits_for_the_disk() {
    let world = Arc::new(World::default());
    let options = BucketOptions { quota_bytes: QUOTA, vbuckets: 128, ..options(BucketKind::Couchbase) };
    let stores = (0..options.shards).map(|_| Arc::new(MemStore::default()) as Arc<dyn KvStore>).collect();
    let mut clock = Clock(0);
    let bucket = Bucket::open(options, stores, Arc::default(), world.clone(), clock.now()).unwrap();
    world.bucket.set(Arc::downgrade(&bucket)).unwrap();
    let inserted = loop {
        let before = world.progress.lock().inserted;
        world.progress.lock().round(&bucket, clock.now());
        let after = world.progress.lock().inserted;
        let dirty = bucket.stats().diskqueue_bytes;
        if after == before && dirty == 0 {
            break after;
        }
        if after == before || dirty > QUOTA / 100 * DIRTY {
            clock.0 += 200;
            (0..bucket.shards()).for_each(|shard| assert_eq!(bucket.flush(shard, clock.now()).failed, None));
        }
    };
    let stats = bucket.stats();
    assert!(stats.non_resident > u64::from(inserted) / 100 * 95, "{} of {inserted}", stats.non_resident);
    let holes = world.progress.lock().holes_max * 100 / QUOTA;
    println!("{inserted} inserted, at most {holes} % of holes");
    assert!(holes <= HOLES_MAX, "{holes} % of the quota were holes");

    // Nothing was moved away from under its writer.
    for number in (0..inserted).step_by(READ) {
        let read = || {
            with_key(&bucket, number, |vb, key| bucket.get(vb, key, clock.now(), |view| view.value.to_vec()))
        };
        let found = read().or_else(|refusal| {
            assert_eq!(refusal, Refusal::Fetch);
            let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
            let shard = with_key(&bucket, number, |vb, key| {
                bucket.fetch(vb, key, waiter).unwrap();
                usize::from(vb.get()) % bucket.shards()
            });
            while bucket.run_fetches(shard, 1, clock.now()) > 0 {}
            read()
        });
        assert_eq!(found, Ok(value(number)), "document {number}");
    }
}
