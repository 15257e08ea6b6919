//! What a bucket does as its quota fills: the steps in their order, who passes at each, and what the reserve is for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use crate::support::{
    Clock, Disk, FaultDisk, MemStore, Rig,
    numbered::{key, rig, set},
    options,
};
use base::{Cas, DocKey, HashedKey, Status, VbId, bucket::BucketKind, hash};
use settee_engine::{
    Admission, Bucket, BucketChange, BucketOptions, Budget, Delete, Feed, FeedOptions, FeedStep, Notifier,
    Pool, Pressure, SHARD_QUOTA_MAX, Store, Waiter, WithMeta, Work,
};
use storage::KvStore;

const MIB: u64 = 1 << 20;

fn step(rig: &Rig) -> Pressure {
    rig.bucket.pace(rig.now()).step
}

/// What clients are told that are refused.
fn words(rig: &Rig) -> &'static str {
    rig.bucket.shortage(rig.now()).unwrap()
}

const fn waiter(ticket: u64) -> Waiter {
    Waiter { worker: 0, connection: 1, ticket }
}

#[test]
fn steps_follow_one_another_and_what_frees_memory_passes_at_each() {
    let mut rig = rig(4 * MIB);
    let (mut seen, mut number) = (vec![step(&rig)], 0);
    // Nothing but keys: there is nothing to eject.
    let refused = loop {
        if let Err(status) = set(&rig, number, b"") {
            break status;
        }
        number += 1;
        if number % 200 > 0 {
            continue;
        }
        let step = step(&rig);
        if seen.last() != Some(&step) {
            seen.push(step);
        }
        let urgency = rig.bucket.room_urgency();
        match step {
            Pressure::None => assert!(urgency == 0.0),
            Pressure::Paging => assert!(urgency < 1.0),
            Pressure::Cursors | Pressure::Pacing | Pressure::Refusing => assert!(urgency == 1.0),
        }
        if step == Pressure::Pacing {
            assert!(rig.bucket.is_paced() && words(&rig).contains("memory"));
        }
        // Reads and deletions, whatever the step.
        let now = rig.now();
        rig.run(&key(0), |bucket, vb, key| bucket.get(vb, key, now, |view| view.value.len())).unwrap();
        rig.run(&key(number / 2), |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now)).unwrap();
        if number % 5_000 == 0 {
            rig.flush();
        }
    };
    assert_eq!((refused, rig.bucket.stats().tmp_oom_errors), (Status::TemporaryFailure, 1));
    let work = std::mem::take(&mut *rig.recorder.work.lock());
    assert!(work.contains(&Work::Room) && work.contains(&Work::Pace));
    seen.push(step(&rig));
    let steps: Vec<_> = Pressure::ALL.iter().map(|step| step.0).collect();
    assert_eq!(seen, steps);
    let now = rig.now();
    for number in 1..number / 4 {
        let gone = rig.run(&key(number), |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now));
        assert!(matches!(gone, Ok(_) | Err(Status::KeyNotFound)), "{gone:?}");
    }
    rig.flush();
    rig.clock.advance_secs(3);
    assert!(step(&rig) < Pressure::Pacing, "deletions make room");
    set(&rig, number, b"").unwrap();
}

#[test]
fn what_is_dirty_paces_writers_until_it_is_synced() {
    let mut rig = rig(100 * MIB);
    let value = vec![7; 100_000];
    let mut number = 0;
    while step(&rig) < Pressure::Pacing {
        set(&rig, number, &value).unwrap();
        number += 1;
    }
    // Half of the 40 % that may be dirty.
    let dirty = rig.bucket.stats().diskqueue_bytes;
    assert!((18 * MIB..24 * MIB).contains(&dirty), "{dirty}");
    let asked: Vec<_> = (0..40).map(|ticket| rig.bucket.ask(waiter(ticket), 100_000, rig.now())).collect();
    assert!(asked.iter().all(|answer| *answer != Admission::Refuse) && asked.contains(&Admission::Wait));
    let waiting = rig.bucket.stats();
    assert!(
        waiting.pacing.waiting > 0 && waiting.pools.of(Pool::Connections) == waiting.pacing.waiting_bytes
    );
    // Within the second that they may wait.
    rig.clock.0 += 150;
    for shard in 0..rig.bucket.shards() {
        while rig.bucket.flush(shard, rig.now()).more {}
    }
    assert_eq!(step(&rig), Pressure::None);
    let woken = std::mem::take(&mut *rig.recorder.woken.lock());
    assert_eq!(woken.len() as u64, waiting.pacing.waiting);
    assert!(woken.iter().all(|waiter| rig.bucket.redeem(*waiter) && !rig.bucket.redeem(*waiter)));
    assert_eq!(rig.bucket.stats().pools.of(Pool::Connections), 0);
}

#[test]
fn too_much_that_waits_is_bounded() {
    // A small quota has not more room for it than a large one.
    for quota in [32 * MIB, 100 * MIB] {
        let mut rig = rig(quota);
        let bytes = quota / 1_000;
        let value = vec![7; bytes as usize];
        (0..300).for_each(|number| set(&rig, number, &value).unwrap());
        assert_eq!(step(&rig), Pressure::Pacing);
        let mut answers = Vec::new();
        for ticket in 0..200 {
            answers.push(rig.bucket.ask(waiter(ticket), bytes, rig.now()));
        }
        // First any number per connection, then one each, then none.
        let first = |wanted| answers.iter().position(|answer| *answer == wanted).unwrap();
        assert!(first(Admission::Wait) < first(Admission::WaitAlone));
        assert!(first(Admission::WaitAlone) < first(Admission::Refuse));
        let stats = rig.bucket.stats().pacing;
        assert!(stats.waiting_bytes < quota / 100 * 8 && stats.refused > 0, "{stats:?}");
        rig.clock.advance_secs(1);
        (0..200).for_each(|ticket| rig.bucket.give_up(waiter(ticket), rig.now()));
        assert_eq!(rig.bucket.stats().pacing.waiting, 0);
    }
}

/// Feeds of vBucket 0 from disk, each with as much read ahead for it as may be; and the memory that this takes.
fn read_ahead(rig: &Rig) -> (Vec<Feed>, u64) {
    let options = FeedOptions { disk_only: true, ..FeedOptions::default() };
    let feeds: Vec<_> = (0..4)
        .map(|ticket| {
            let mut feed = rig.bucket.feed(VbId(0), options.clone(), waiter(ticket)).unwrap();
            assert!(matches!(feed.next(1, rig.now()), Ok(FeedStep::Wait)), "nothing is read yet");
            feed
        })
        .collect();
    while rig.bucket.run_backfills(0, rig.now()).more {}
    (feeds, rig.bucket.stats().pools.of(Pool::Replication))
}

#[test]
fn little_is_read_ahead_for_streams_where_memory_is_short() {
    const DOCUMENTS: u32 = 500;
    const LITTLE: u64 = MIB / 4 * 3;
    let options = BucketOptions { vbuckets: 1, shards: 1, ..options(BucketKind::Couchbase) };
    let quota = options.quota_bytes;
    let disk = Arc::new(FaultDisk::new(7, 0)) as Arc<dyn Disk>;
    let mut rig = Rig::over(options, Arc::default(), vec![disk], Clock(0));
    (0..DOCUMENTS).for_each(|number| set(&rig, number, &[7; 4_000]).unwrap());
    rig.flush();
    let (feeds, at_ease) = read_ahead(&rig);
    assert!(at_ease > 2 * MIB, "{at_ease}");
    drop(feeds);
    rig.bucket.run_backfills(0, rig.now());
    assert_eq!(rig.bucket.stats().pools.of(Pool::Replication), 0);

    rig.bucket.hold_bytes(Pool::Connections, quota / 100 * 92);
    let (feeds, short) = read_ahead(&rig);
    assert!(short > 0 && short < LITTLE, "{short}");
    // None stands still for that: a follower that has taken everything calls for more.
    for mut feed in feeds {
        let mut told = 0;
        while told < DOCUMENTS as usize {
            rig.recorder.work.lock().clear();
            while let FeedStep::Batch(batch) = feed.next(16 << 10, rig.now()).unwrap() {
                told += batch.items.len();
            }
            assert!(rig.recorder.work.lock().contains(&Work::Backfill(0)), "after {told}");
            while rig.bucket.run_backfills(0, rig.now()).more {}
            let stats = rig.bucket.stats();
            assert!(stats.pools.of(Pool::Replication) < LITTLE, "{stats:?}");
        }
        assert_eq!(told, DOCUMENTS as usize);
    }
}

#[test]
fn deletions_of_what_is_not_there_end_with_the_reserve() {
    let rig = rig(4 * MIB);
    let now = rig.now();
    let mut refused = None;
    for number in 0..100_000 {
        // Looking whether a tombstone is on disk wakes the client that asked.
        rig.recorder.woken.lock().clear();
        let mut deletion = WithMeta::new(Cas(now.wall_nanos), 1, b"");
        deletion.skip_conflict_resolution = true;
        let gone = rig.run(&key(number), |bucket, vb, key| bucket.delete_with_meta(vb, key, &deletion, now));
        if let Err(status) = gone {
            refused = Some((number, status));
            break;
        }
    }
    let (count, status) = refused.unwrap();
    assert!(count > 5_000 && status == Status::TemporaryFailure, "{count} {status:?}");
    let used = rig.bucket.stats().mem_used;
    assert!(used <= 4 * MIB + MIB / 8, "{used}");
}

#[test]
fn a_quota_is_cut_gracefully_and_not_below_what_cannot_be_ejected() {
    let mut rig = rig(16 * MIB);
    let value = vec![7; 100];
    for number in 0..8_000 {
        set(&rig, number, &value).unwrap();
    }
    rig.flush();
    let stats = rig.bucket.stats();
    // Keys, headers, tables and vBuckets.
    assert!(stats.quota_min() > 8_000 * 50 && stats.quota_min() < MIB, "{}", stats.quota_min());
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(MIB + MIB / 4));
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    let stats = rig.bucket.stats();
    assert!(stats.mem_used <= stats.mem_low_wat && stats.curr_items == 8_000, "{stats:?}");
    set(&rig, 1, &value).unwrap();
    rig.flush();
    // What is forced below the floor refuses mutations and nothing else; deletions bring it back.
    rig.bucket.reconfigure(quota(stats.quota_min() / 4 * 3));
    rig.bucket.page(rig.now(), Budget::default());
    assert_eq!(set(&rig, 1, &value), Err(Status::TemporaryFailure));
    let now = rig.now();
    for number in 0..7_000 {
        let gone = rig.run(&key(number), |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now));
        assert!(gone.is_ok(), "{number}: {gone:?}");
        if number % 1_000 == 0 {
            rig.flush();
        }
    }
    rig.flush();
    rig.bucket.page(rig.now(), Budget::default());
    set(&rig, 7_999, &value).unwrap();
}

#[test]
fn the_sum_of_the_pools_is_what_is_used() {
    let mut rig = rig(64 * MIB);
    let empty = rig.bucket.stats();
    assert_eq!(empty.mem_used, empty.pools.of(Pool::Metadata), "vBuckets and nothing else");
    for round in 0..4 {
        for number in 0..2_000 {
            set(&rig, number, &vec![round; 1_000]).unwrap();
        }
        let stats = rig.bucket.stats();
        assert_eq!(stats.mem_used, stats.pools.sum());
        assert!(stats.pools.of(Pool::Items) >= stats.kv_bytes, "{stats:?}");
        let superseded = stats.pools.of(Pool::Checkpoints);
        assert!((superseded > 2_000 * 1_000) == (round % 2 == 1), "round {round}: {superseded}");
        if round % 2 == 1 {
            rig.flush();
        }
    }
    rig.bucket.flush_all(rig.now()).unwrap();
    let stats = rig.bucket.stats();
    assert_eq!((stats.pools.of(Pool::Items), stats.curr_items), (0, 0));
    assert!(stats.mem_used < empty.mem_used + 64 * 1024, "{stats:?}");
}

#[test]
fn of_a_quota_beyond_what_memory_can_hold_so_much_is_used_as_it_can() {
    let stats = rig(1 << 40).bucket.stats();
    let usable = 2 * SHARD_QUOTA_MAX;
    assert_eq!(stats.quota_bytes, 1 << 40);
    // Else nothing would be ejected before memory has run out.
    assert!(stats.mem_limit < usable && stats.mem_low_wat < stats.mem_high_wat, "{stats:?}");
    let change = BucketChange { quota_bytes: Some(100 * MIB), ..BucketChange::default() };
    let rig = rig(1 << 40);
    rig.bucket.reconfigure(change);
    assert_eq!(rig.bucket.stats().mem_high_wat, 100 * MIB / 100 * 85);
}

/// Looks at what writing takes whenever the flusher has let go of a lock.
#[derive(Default)]
struct Onlooker {
    bucket: OnceLock<Weak<Bucket>>,
    most: AtomicU64,
}

impl Notifier for Onlooker {
    fn wake(&self, _: Waiter) {}

    fn work(&self, _: Work) {}

    fn held(&self, _: u64) {
        if let Some(bucket) = self.bucket.get().and_then(Weak::upgrade) {
            self.most.fetch_max(bucket.stats().pools.of(Pool::Write), Ordering::Relaxed);
        }
    }
}

/// The lists of a batch of small documents are larger than the documents: they come on top of a quota that is full.
#[test]
fn writing_small_documents_takes_a_small_part_of_the_quota() {
    const DOCUMENTS: u64 = 60_000;
    let onlooker = Arc::new(Onlooker::default());
    let options = BucketOptions { quota_bytes: 32 * MIB, ..options(BucketKind::Couchbase) };
    let stores = (0..options.shards).map(|_| Arc::new(MemStore::default()) as Arc<dyn KvStore>).collect();
    let mut clock = Clock(0);
    let bucket = Bucket::open(options, stores, Arc::default(), onlooker.clone(), clock.now()).unwrap();
    onlooker.bucket.set(Arc::downgrade(&bucket)).unwrap();
    for number in 0..DOCUMENTS as u32 {
        let key = key(number);
        let hashed = HashedKey { key: DocKey::trusted(&key), hash: hash::key_hash(&key) };
        let vb = hash::vbucket_of(hashed.key.logical(), bucket.vbuckets());
        bucket.store(vb, hashed, &Store::set(b"v"), clock.now()).unwrap();
    }
    while bucket.stats().total_persisted < DOCUMENTS {
        clock.0 += 200;
        (0..bucket.shards()).for_each(|shard| assert_eq!(bucket.flush(shard, clock.now()).failed, None));
    }
    let most = onlooker.most.load(Ordering::Relaxed);
    assert!((1..MIB).contains(&most), "{most}");
    assert_eq!(bucket.stats().pools.of(Pool::Write), 0);
}
