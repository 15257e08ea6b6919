//! What is gathered, while every kind of thing happens between the steps, against a journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::{
    DocKey, HashedKey, Now, Seqno, Status, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
};
use storage::{FaultFs, KvStore, Options};

use super::*;
use crate::{
    Bucket, BucketChange, BucketOptions, Budget, Delete, Durable, Expiry, Mutated, Notifier, Refusal, Store,
    Waiter, Work, history::told::FeedEnd, memory::item::FREQUENCY_MAX,
};

struct Deaf;

impl Notifier for Deaf {
    fn wake(&self, _: Waiter) {}
    fn work(&self, _: Work) {}
}

const VB: VbId = VbId(0);
const KEYS: u64 = 1_500;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Stored,
    /// With an expiry: whether it came is not known here.
    StoredForAWhile,
    Deleted,
}

type Journal = BTreeMap<Seqno, (Vec<u8>, Event)>;

fn begin(bucket: &Arc<Bucket>, options: GatherOptions) -> Result<Gather, Status> {
    let home: Arc<dyn Home> = bucket.clone();
    Gather::begin(&home, VB, options)
}

struct World {
    bucket: Arc<Bucket>,
    now: Now,
    dice: u64,
    journal: Journal,
    in_progress: Vec<(Mutated, Vec<u8>, Event)>,
}

impl World {
    fn new(seed: u64, kind: BucketKind) -> Self {
        let options = BucketOptions {
            kind,
            vbuckets: 1,
            purge_interval_secs: 5,
            cursor_bytes_max: Some(0),
            ..BucketOptions::new("gathered", 64 << 20)
        };
        let now = Now { wall_nanos: 1_800_000_000 * 1_000_000_000, mono_millis: 0 };
        let stores = match kind {
            BucketKind::Couchbase => {
                let fs = Arc::new(FaultFs::new(seed));
                let log = storage::open(Path::new("/gathered"), fs, Options::default()).unwrap();
                vec![Arc::new(log) as Arc<dyn KvStore>]
            }
            _ => Vec::new(),
        };
        let bucket = Bucket::open(options, stores, Arc::default(), Arc::new(Deaf), now).unwrap();
        Self { bucket, now, dice: seed, journal: Journal::new(), in_progress: Vec::new() }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    fn write(&mut self, number: u64, exists: bool, durability: DurabilityLevel) {
        let key = format!("\0key{number}").into_bytes();
        let hashed = HashedKey::new(DocKey::trusted(&key));
        let event = match (exists, self.roll(10)) {
            (false, _) => Event::Deleted,
            (true, 0) => Event::StoredForAWhile,
            (true, _) => Event::Stored,
        };
        let done = if exists {
            let expiry = Expiry::Wire(if event == Event::StoredForAWhile { 3 } else { 0 });
            let store = Store { expiry, durability, ..Store::set(&[7; 40]) };
            self.bucket.store(VB, hashed, &store, self.now)
        } else {
            self.bucket.delete(VB, hashed, &Delete { durability, ..Delete::default() }, self.now)
        };
        match done {
            Ok(mutated) if mutated.wait => self.in_progress.push((mutated, key, event)),
            Ok(mutated) => drop(self.journal.insert(mutated.seqno, (key, event))),
            Err(Refusal::Status(Status::KeyNotFound | Status::SyncWriteInProgress)) => {}
            Err(refusal) => panic!("{refusal:?}"),
        }
    }

    fn flush(&mut self) {
        self.now.mono_millis += 200;
        self.bucket.flush(0, self.now);
        for (mutated, key, event) in std::mem::take(&mut self.in_progress) {
            let hashed = HashedKey::new(DocKey::trusted(&key));
            let waiter = Waiter { worker: 0, connection: 0, ticket: 0 };
            let done = self.bucket.complete_durable(VB, hashed, &mutated, waiter, u64::MAX, self.now);
            let Ok(Durable::Committed(committed)) = done else { panic!("{done:?}") };
            self.journal.insert(committed.seqno, (key, event));
        }
    }

    fn happen(&mut self) {
        let number = self.roll(KEYS);
        match self.roll(100) {
            0..60 => self.write(number, true, DurabilityLevel::None),
            60..85 => self.write(number, false, DurabilityLevel::None),
            85..87 if self.bucket.kind() == BucketKind::Couchbase => {
                self.write(number, true, DurabilityLevel::PersistToMajority);
            }
            87..90 => self.flush(),
            90..92 => drop(self.bucket.defragment(Budget::default())),
            92..94 => drop(self.bucket.drop_slow_cursors()),
            94..95 => {
                self.now.wall_nanos += 1_000_000_000;
                self.bucket.expire(self.now, Budget::default());
            }
            _ => {}
        }
    }

    /// The documents at a seqno, as if none expired.
    fn state(&self, at: Seqno) -> BTreeMap<Vec<u8>, (Seqno, Event)> {
        let mut state = BTreeMap::new();
        for (seqno, (key, event)) in self.journal.range(..=at) {
            match event {
                Event::Deleted => state.remove(key),
                _ => state.insert(key.clone(), (*seqno, *event)),
            };
        }
        state
    }

    fn gather(&mut self, options: GatherOptions, events: u64) -> Gathered {
        let mut gather = begin(&self.bucket, options).unwrap();
        for _ in 0..10_000 {
            let step = gather.step(&*self.bucket, &|_| true).unwrap();
            match step {
                GatherStep::Done => return gather.finish().unwrap(),
                GatherStep::More => {}
            }
            for _ in 0..self.roll(events + 1) {
                self.happen();
            }
        }
        panic!("it does not end");
    }

    fn check(&self, gathered: &Gathered, options: GatherOptions) {
        let mut documents = BTreeMap::new();
        let mut seen = KeySet::default();
        for item in gathered.items.iter() {
            assert!(seen.insert(item.key()), "each key once");
            assert!(item.seqno() <= gathered.end && item.seqno() > options.above);
            assert!(item.frequency() <= FREQUENCY_MAX);
            if item.is_deleted() {
                assert!(options.tombstones);
            } else {
                documents.insert(item.key().to_vec(), item.seqno());
            }
        }
        let mut expected = self.state(gathered.end);
        expected.retain(|_, entry| entry.0 > options.above);
        for (key, seqno) in &documents {
            assert_eq!(expected.remove(key).map(|entry| entry.0), Some(*seqno), "at {}", gathered.end);
        }
        let mut missing = expected.into_iter().filter(|entry| entry.1.1 == Event::Stored);
        assert_eq!(missing.next(), None, "at {}", gathered.end);
    }
}

#[test]
fn what_is_gathered_is_the_state_at_one_seqno() {
    for seed in 0..30 {
        let kind = if seed % 2 == 0 { BucketKind::Couchbase } else { BucketKind::Ephemeral };
        let mut world = World::new(seed, kind);
        for _ in 0..3 {
            for _ in 0..1_000 {
                world.happen();
            }
            let above = if world.roll(2) == 0 { Seqno(0) } else { Seqno(world.roll(1_500)) };
            let options = GatherOptions { above, tombstones: world.roll(2) == 0, prepares: false };
            let events = world.roll(400);
            let gathered = world.gather(options, events);
            world.check(&gathered, options);
        }
        world.flush();
        let stats = world.bucket.stats();
        assert_eq!((stats.cursors, stats.cursor_bytes), (0, 0));
    }
}

/// A durable write in progress is no document yet, and does not keep anybody waiting.
#[test]
fn what_is_only_prepared_is_not_gathered() {
    let mut world = World::new(1, BucketKind::Couchbase);
    world.write(1, true, DurabilityLevel::None);
    world.write(1, true, DurabilityLevel::PersistToMajority);
    let options = GatherOptions { above: Seqno(0), tombstones: true, prepares: false };
    let mut gather = begin(&world.bucket, options).unwrap();
    world.write(2, true, DurabilityLevel::PersistToMajority);
    world.write(3, true, DurabilityLevel::None);
    while gather.step(&*world.bucket, &|_| true).unwrap() != GatherStep::Done {}
    let gathered = gather.finish().unwrap();
    assert_eq!(gathered.items.len(), 2);
    world.check(&gathered, options);
    world.flush();
    let gathered = world.gather(options, 0);
    assert_eq!(gathered.items.len(), 3);
    world.check(&gathered, options);
}

#[test]
fn a_gathering_ends_with_the_contents() {
    let mut world = World::new(1, BucketKind::Ephemeral);
    world.write(1, true, DurabilityLevel::None);
    let options = GatherOptions { above: Seqno(0), tombstones: false, prepares: false };
    let mut gather = begin(&world.bucket, options).unwrap();
    gather.step(&*world.bucket, &|_| true).unwrap();
    world.bucket.flush_all(world.now).unwrap();
    assert_eq!(gather.step(&*world.bucket, &|_| true), Err(FeedEnd::Reset));
    assert!(gather.finish().is_none());
    assert_eq!(world.bucket.stats().pools.of(crate::Pool::Items), 0);
}

/// A document that is lost may be taken for another one, which the count then lacks.
#[test]
fn a_vbucket_with_a_document_on_disk_only_is_not_gathered_whatever_is_counted() {
    let mut world = World::new(1, BucketKind::Couchbase);
    world.write(1, true, DurabilityLevel::None);
    world.flush();
    let full = Some(EvictionPolicy::FullEviction);
    world.bucket.reconfigure(BucketChange {
        eviction: full,
        quota_bytes: Some(0),
        ..BucketChange::default()
    });
    while world.bucket.page(world.now, Budget::default()).more {}
    {
        let mut v = world.bucket.slot(VB).unwrap().0.vb.lock();
        assert_eq!(v.counts.evicted, 1);
        v.give_up_lost(HashedKey::new(DocKey::trusted(b"\0another key")));
        assert_eq!(v.counts.evicted, 0);
    }
    let options = GatherOptions { above: Seqno(0), tombstones: false, prepares: false };
    assert_eq!(begin(&world.bucket, options).err(), Some(Status::NotSupported));
}
