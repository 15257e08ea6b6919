//! Threads: writers, consumers that come and go, consumers that vanish in mid-stream, beside everything a server does in
//! the background. Cursors have so little room that they are dropped all the time. Afterwards every snapshot end that a
//! consumer saw is compared with the journal of what the writers did. No wake-up was lost, and nothing is left.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Disk, FaultDisk, START_SECS, options};
use base::{
    DocKey, HashedKey, Now, Seqno, Status, VbId,
    bucket::{BucketKind, DurabilityLevel},
    hash::{key_hash, vbucket_of},
};
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};
use settee_engine::{
    Bucket, BucketOptions, Budget, Delete, Durable, Feed, FeedEnd, FeedOptions, FeedStep, Mutated, Notifier,
    Pool, Refusal, Store, Waiter, Work,
};

const VBUCKETS: u16 = 4;
const KEYS: u32 = 400;
const WRITES: u64 = 12_000;
const VANISHING: u64 = 10_000;
/// So many times as much is done until a cursor has been too slow: how threads are scheduled decides when.
const TIMES_MAX: u64 = 50;
const LAST: &[u8] = b"last";

#[derive(Default)]
struct Mailboxes {
    woken: Mutex<HashSet<u64>>,
    changed: Condvar,
}

impl Notifier for Mailboxes {
    fn wake(&self, waiter: Waiter) {
        self.woken.lock().insert(waiter.ticket);
        self.changed.notify_all();
    }

    fn work(&self, _: Work) {}
}

impl Mailboxes {
    fn wait_for(&self, ticket: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut woken = self.woken.lock();
        while !woken.remove(&ticket) {
            assert!(!self.changed.wait_until(&mut woken, deadline).timed_out(), "a wake-up was lost");
        }
    }
}

/// What happened, by vBucket and seqno: the key, and whether it has a value from there on.
type Journal = BTreeMap<(VbId, Seqno), (Vec<u8>, bool)>;
/// What a consumer held at the end of a snapshot: a sum over keys and seqnos.
type Seen = Vec<(VbId, Seqno, u64)>;

struct Hall {
    bucket: Arc<Bucket>,
    mailboxes: Arc<Mailboxes>,
    clock: AtomicU64,
    is_over: AtomicBool,
    journal: Mutex<Journal>,
}

fn mark(key: &[u8], seqno: Seqno) -> u64 {
    key_hash(key).wrapping_add(seqno.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Hall {
    /// A bucket of one shard, with a disk where its kind has one.
    fn open(options: BucketOptions) -> Self {
        let disk = FaultDisk::new(1, 0);
        let stores = if options.kind == BucketKind::Couchbase { vec![disk.open()] } else { Vec::new() };
        let mailboxes = Arc::new(Mailboxes::default());
        let now = Now { wall_nanos: START_SECS * 1_000_000_000, mono_millis: 0 };
        let bucket = Bucket::open(options, stores, Arc::default(), mailboxes.clone(), now).unwrap();
        Self {
            bucket,
            mailboxes,
            clock: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            journal: Mutex::default(),
        }
    }

    fn now(&self) -> Now {
        let millis = self.clock.load(Ordering::Relaxed);
        Now { wall_nanos: START_SECS * 1_000_000_000 + millis * 1_000_000, mono_millis: millis }
    }

    fn write(&self, key: &[u8], value: Option<&[u8]>, durability: DurabilityLevel) {
        let hashed = HashedKey { key: DocKey::trusted(key), hash: key_hash(key) };
        let vb = vbucket_of(hashed.key.logical(), VBUCKETS);
        loop {
            let done = match value {
                Some(value) => {
                    self.bucket.store(vb, hashed, &Store { durability, ..Store::set(value) }, self.now())
                }
                None => {
                    self.bucket.delete(vb, hashed, &Delete { durability, ..Delete::default() }, self.now())
                }
            };
            match done {
                Ok(mutated) => {
                    let mut seqno = mutated.seqno;
                    if mutated.wait {
                        // The prepare's seqno is nobody's.
                        self.journal.lock().insert((vb, seqno), (Vec::new(), false));
                        seqno = self.committed(vb, hashed, &mutated);
                    }
                    let entry = (key.to_vec(), value.is_some());
                    self.journal.lock().insert((vb, seqno), entry);
                    return;
                }
                Err(Refusal::Status(Status::KeyNotFound)) => return,
                Err(Refusal::Status(Status::TemporaryFailure | Status::SyncWriteInProgress)) => {
                    std::thread::yield_now();
                }
                Err(Refusal::Fetch) => {
                    self.bucket.fetch(vb, hashed, Waiter { worker: 9, connection: 9, ticket: 0 }).unwrap();
                    std::thread::yield_now();
                }
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
    }

    fn committed(&self, vb: VbId, key: HashedKey<'_>, mutated: &Mutated) -> Seqno {
        let waiter = Waiter { worker: 9, connection: 9, ticket: 0 };
        loop {
            match self.bucket.complete_durable(vb, key, mutated, waiter, u64::MAX, self.now()).unwrap() {
                Durable::Committed(committed) => return committed.seqno,
                Durable::Parked => std::thread::yield_now(),
            }
        }
    }

    /// Whether who has done something so often does it once more, of so many times at least.
    fn goes_on(&self, done: u64, times: u64) -> bool {
        // Asked now and then: statistics take every lock there is.
        let may_end = done >= times && (done - times).is_multiple_of(256);
        !may_end || (done < times * TIMES_MAX && self.bucket.stats().cursors_dropped == 0)
    }

    fn write_much(&self, number: u64) {
        let mut rng = Rng::with_seed(number);
        for _ in (0..).take_while(|done| self.goes_on(*done, WRITES)) {
            let key = format!("\0key{}", rng.u32(0..KEYS)).into_bytes();
            let level = match (self.bucket.kind(), rng.u8(0..40)) {
                (BucketKind::Couchbase, 0) => DurabilityLevel::PersistToMajority,
                _ => DurabilityLevel::None,
            };
            let value = vec![rng.u8(..); rng.usize(0..600)];
            self.write(&key, (rng.u8(0..5) > 0).then_some(&value), level);
        }
    }

    /// Follows a vBucket until the last key comes, giving the feed up now and then.
    fn consume(&self, number: u64, seen: &mut Seen) {
        let mut rng = Rng::with_seed(100 + number);
        let vb = VbId(number as u16 % VBUCKETS);
        let ticket = 1_000 + number;
        // As of the last complete snapshot, and as of now.
        let (mut kept, mut kept_seqno) = (BTreeMap::new(), Seqno(0));
        loop {
            let (mut state, mut seqno): (BTreeMap<Vec<u8>, Seqno>, Seqno) = (kept.clone(), kept_seqno);
            let options = FeedOptions { from: seqno, unordered: number == 5, ..FeedOptions::default() };
            let mut feed =
                self.bucket.feed(vb, options, Waiter { worker: 1, connection: 1, ticket }).unwrap();
            let mut end = Seqno(0);
            let mut keys = HashSet::new();
            let mut is_last = false;
            for _ in 0..rng.usize(1..60) {
                self.mailboxes.woken.lock().remove(&ticket);
                let bytes_max = *rng.choice(&[1, 2_000, 1 << 20]).unwrap();
                let batch = match feed.next(bytes_max, self.now()) {
                    Ok(FeedStep::Batch(batch)) => batch,
                    Ok(FeedStep::Wait) => {
                        self.mailboxes.wait_for(ticket);
                        continue;
                    }
                    Err(FeedEnd::TooSlow) => break,
                    Err(end) => panic!("{end}"),
                };
                if let Some(snapshot) = batch.snapshot {
                    assert_eq!(snapshot.start, seqno);
                    end = snapshot.end;
                    keys.clear();
                }
                for item in batch.items {
                    assert!(item.seqno <= end && (number == 5 || item.seqno > seqno));
                    let key = item.key().encoded().to_vec();
                    assert!(keys.insert(key.clone()));
                    is_last |= key.ends_with(LAST);
                    if number != 5 {
                        seqno = item.seqno;
                    }
                    if item.deleted {
                        state.remove(&key)
                    } else {
                        state.insert(key, item.seqno)
                    };
                }
                if batch.ends_snapshot {
                    seqno = end;
                    let sum = state.iter().fold(0, |sum: u64, (key, at)| sum.wrapping_add(mark(key, *at)));
                    seen.push((vb, end, sum));
                    (kept, kept_seqno) = (state.clone(), end);
                    if is_last {
                        return;
                    }
                }
            }
        }
    }

    /// Opens feeds and drops them wherever they are.
    fn vanish(&self) {
        let mut rng = Rng::with_seed(7);
        let mut feeds: Vec<Feed> = Vec::new();
        for ticket in (0..).take_while(|done| self.goes_on(*done, VANISHING)) {
            let vb = VbId(rng.u16(0..VBUCKETS));
            let high = self.bucket.vb_history(vb).unwrap().high_seqno;
            let from = if rng.bool() { Seqno(0) } else { Seqno(high.get() - rng.u64(0..50).min(high.get())) };
            let waiter = Waiter { worker: 2, connection: 2, ticket: 1 << 32 | ticket };
            feeds.push(self.bucket.feed(vb, FeedOptions { from, ..FeedOptions::default() }, waiter).unwrap());
            for _ in 0..rng.usize(0..4) {
                let _ = rng.choice(&mut feeds).unwrap().next(rng.usize(1..5_000), self.now());
            }
            if feeds.len() > 40 {
                let index = rng.usize(0..feeds.len());
                drop(feeds.swap_remove(index));
            }
        }
    }

    /// One of the things a server's threads do, until everything is over.
    fn background(&self, kind: u32) {
        while !self.is_over.load(Ordering::Relaxed) {
            let now = self.now();
            match kind {
                0 => drop(self.bucket.flush(0, now)),
                1 => drop(self.bucket.run_backfills(0, now)),
                2 => {
                    self.bucket.drop_slow_cursors();
                    self.bucket.page(now, Budget::default());
                    self.bucket.defragment(Budget::default());
                    self.bucket.expire(now, Budget::default());
                }
                3 => drop(self.bucket.compact_eagerly(0, now).unwrap()),
                _ => {
                    self.clock.fetch_add(5, Ordering::Relaxed);
                    self.bucket.run_fetches(0, 100, now);
                }
            }
            std::thread::sleep(Duration::from_micros(if kind == 3 { 5_000 } else { 300 }));
        }
    }
}

fn run(kind: BucketKind) {
    let options = BucketOptions {
        vbuckets: VBUCKETS,
        shards: 1,
        cursor_bytes_max: Some(64 << 10),
        part_bytes_max: 40_000,
        ..options(kind)
    };
    let hall = Hall::open(options);
    let seen: Mutex<HashMap<u64, Seen>> = Mutex::default();
    std::thread::scope(|scope| {
        let (hall, seen) = (&hall, &seen);
        for kind in 0..5 {
            scope.spawn(move || hall.background(kind));
        }
        let mut busy: Vec<_> = (0..2).map(|number| scope.spawn(move || hall.write_much(number))).collect();
        busy.push(scope.spawn(|| hall.vanish()));
        let consumers: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    let mut own = Seen::new();
                    hall.consume(number, &mut own);
                    seen.lock().insert(number, own);
                })
            })
            .collect();
        let ended = busy.into_iter().map(|thread| thread.join().is_ok()).collect::<Vec<_>>();
        for vb in (0..VBUCKETS).map(VbId) {
            let keys = (0..).map(|number| [format!("\0{number}").as_bytes(), LAST].concat());
            let key = keys
                .into_iter()
                .find(|key| vbucket_of(DocKey::trusted(key).logical(), VBUCKETS) == vb)
                .unwrap();
            hall.write(&key, Some(b"x"), DurabilityLevel::None);
        }
        let ended: Vec<_> =
            ended.into_iter().chain(consumers.into_iter().map(|c| c.join().is_ok())).collect();
        hall.is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|fine| *fine), "{ended:?}");
    });
    check(&hall.journal.lock(), &seen.lock());
    leaves_nothing(&hall);
}

fn check(journal: &Journal, seen: &HashMap<u64, Seen>) {
    let mut sums: HashMap<(VbId, Seqno), u64> = HashMap::new();
    for vb in (0..VBUCKETS).map(VbId) {
        let (mut state, mut sum) = (BTreeMap::new(), 0_u64);
        let mut next = Seqno(1);
        for ((_, seqno), (key, exists)) in journal.range((vb, Seqno(0))..(VbId(vb.get() + 1), Seqno(0))) {
            assert_eq!(*seqno, next, "the journal has no gaps");
            next = seqno.next();
            if let Some(old) = state.remove(key) {
                sum = sum.wrapping_sub(mark(key, old));
            }
            if *exists {
                state.insert(key.clone(), *seqno);
                sum = sum.wrapping_add(mark(key, *seqno));
            }
            sums.insert((vb, *seqno), sum);
        }
    }
    for (consumer, own) in seen {
        assert!(!own.is_empty(), "consumer {consumer} saw nothing");
        for (vb, end, sum) in own {
            assert_eq!(sums.get(&(*vb, *end)), Some(sum), "consumer {consumer} at {end} of {vb}");
        }
    }
}

fn leaves_nothing(hall: &Hall) {
    let bucket = &hall.bucket;
    bucket.run_backfills(0, hall.now());
    for _ in 0..10 {
        hall.clock.fetch_add(1_000, Ordering::Relaxed);
        bucket.flush(0, hall.now());
    }
    let stats = bucket.stats();
    assert_eq!((stats.cursors, stats.cursor_bytes, stats.backfill_bytes), (0, 0, 0));
    assert!(stats.cursors_dropped > 0, "slow cursors are what this is about");
    assert!(stats.stores.iter().all(|store| store.bytes_pinned == 0));
    let items = stats.pools.of(Pool::Items);
    assert!(items <= stats.kv_bytes + 64 * stats.curr_temp_items, "{stats:?}");
    bucket.flush_all(hall.now()).unwrap();
    assert_eq!(bucket.stats().pools.of(Pool::Items), 0, "nobody holds a document");
}

#[test]
fn consumers_of_a_busy_persistent_bucket() {
    run(BucketKind::Couchbase);
}

#[test]
fn consumers_of_a_busy_ephemeral_bucket() {
    run(BucketKind::Ephemeral);
}

/// A consumer that is always late, beside the thread that reads for it and gives it up: it misses no seqno.
fn is_given_up_all_the_time(kind: BucketKind) {
    const DOCUMENTS: u64 = 1_000;
    // So many at least, and more until the consumer has got anything: on a busy machine it may sleep through all of them.
    const PASSES: u64 = 1_500;
    const PASSES_MAX: u64 = 100 * PASSES;
    let disk = FaultDisk::new(1, 0);
    let stores = if kind == BucketKind::Couchbase { vec![disk.open()] } else { Vec::new() };
    let options = BucketOptions { vbuckets: 1, shards: 1, ..options(kind) };
    let now = Now { wall_nanos: START_SECS * 1_000_000_000, mono_millis: 0 };
    let bucket = Bucket::open(options, stores, Arc::default(), Arc::new(Mailboxes::default()), now).unwrap();
    let millis = AtomicU64::new(0);
    let later = |by: u64| Now { mono_millis: millis.fetch_add(by, Ordering::Relaxed) + by, ..now };
    // Every key once, so that every seqno has an item.
    let put = |number: u64| {
        let key = format!("\0key{number}").into_bytes();
        let key = HashedKey { key: DocKey::trusted(&key), hash: key_hash(&key) };
        bucket.store(VbId(0), key, &Store::set(&[3; 300]), now).unwrap();
    };
    let sync = || while bucket.flush(0, later(1_000)).unsynced {};
    (0..DOCUMENTS).for_each(put);
    sync();
    let (is_over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let goes_on = |pass| pass < PASSES || seen.load(Ordering::Relaxed) == 0;
            for pass in (0..PASSES_MAX).take_while(|pass| goes_on(*pass)) {
                // There is always something behind what is being read.
                put(DOCUMENTS + pass);
                if pass % 50 == 49 {
                    sync();
                }
                // Whatever is in a buffer by now has been there for too long.
                bucket.run_backfills(0, later(70_000));
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for round in 0.. {
            let waiter = Waiter { worker: 1, connection: 1, ticket: round };
            let mut feed = bucket.feed(VbId(0), FeedOptions::default(), waiter).unwrap();
            let mut last = Seqno(0);
            while last.get() < DOCUMENTS && !is_over.load(Ordering::Relaxed) {
                let Ok(FeedStep::Batch(batch)) = feed.next(2_000, later(0)) else { continue };
                for item in &batch.items {
                    assert_eq!(item.seqno, last.next(), "round {round}: {:?}", batch.snapshot);
                    last = item.seqno;
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    assert!(seen.into_inner() > 0);
}

#[test]
fn a_late_consumer_of_a_persistent_bucket_misses_nothing() {
    is_given_up_all_the_time(BucketKind::Couchbase);
}

#[test]
fn a_late_consumer_of_an_ephemeral_bucket_misses_nothing() {
    is_given_up_all_the_time(BucketKind::Ephemeral);
}

/// A consumer per vBucket of a whole bucket, all at once: every one gets everything, in bounded memory.
#[test]
fn a_thousand_feeds_at_once() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let options = BucketOptions { vbuckets: 1024, shards: 1, ..options(kind) };
        let hall = Hall::open(options);
        let bucket = &hall.bucket;
        let keys: Vec<_> = (0..5_000).map(|number| format!("\0key{number}").into_bytes()).collect();
        for key in &keys {
            let hashed = HashedKey { key: DocKey::trusted(key), hash: key_hash(key) };
            let vb = vbucket_of(hashed.key.logical(), 1024);
            bucket.store(vb, hashed, &Store::set(&[5; 2_000]), hall.now()).unwrap();
        }
        hall.clock.fetch_add(1_000, Ordering::Relaxed);
        bucket.flush(0, hall.now());
        let mut feeds: Vec<Feed> = (0..1024)
            .map(|vb| {
                let waiter = Waiter { worker: 1, connection: 1, ticket: u64::from(vb) };
                bucket.feed(VbId(vb), FeedOptions::default(), waiter).unwrap()
            })
            .collect();
        let mut found = HashSet::new();
        let mut rounds = 0;
        while found.len() < keys.len() {
            for feed in &mut feeds {
                while let FeedStep::Batch(batch) = feed.next(1 << 20, hall.now()).unwrap() {
                    found.extend(batch.items.iter().map(|item| item.key().encoded().to_vec()));
                }
            }
            bucket.run_backfills(0, hall.now());
            assert!(bucket.stats().backfill_bytes < 64 << 20);
            rounds += 1;
            assert!(rounds < 10_000);
        }
        assert_eq!(bucket.stats().cursors, 1024);
        drop(feeds);
        bucket.run_backfills(0, hall.now());
        assert_eq!((bucket.stats().cursors, bucket.stats().backfill_bytes), (0, 0));
    }
}
