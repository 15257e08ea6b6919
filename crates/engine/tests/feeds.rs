//! What consumers of feeds hold, against a journal of everything that happened: random mutations, flushes, crashes,
//! compaction, slow and vanishing consumers. At the end of every snapshot a consumer holds exactly what the vBucket was
//! at that seqno, with every tombstone that is not purged. A failure prints its seed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{
    Seqno, VbId,
    bucket::{BucketKind, DurabilityLevel},
};
use fastrand::Rng;
use settee_engine::{
    BucketOptions, Budget, Delete, Durable, Expiry, Feed, FeedEnd, FeedFilter, FeedItem, FeedKind,
    FeedOptions, FeedSnapshot, FeedStep, Mutated, Pool, Store, Waiter,
};
use support::{Clock, Disk, FaultDisk, Rig, options};

type Key = Vec<u8>;

/// Everything that ever happened to documents: what is gone has no value.
#[derive(Default)]
struct Journal {
    entries: BTreeMap<(VbId, Seqno), Version>,
}

type Version = (Key, Option<Vec<u8>>);

/// The newest version of every key, tombstones included.
type State = BTreeMap<Key, (Seqno, Option<Vec<u8>>)>;

/// Whether somebody holds what a key was, where tombstones up to `purged` may be gone: then none or an older one will do.
fn agrees(
    held: Option<&(Seqno, Option<Vec<u8>>)>,
    expected: &(Seqno, Option<Vec<u8>>),
    purged: Seqno,
) -> bool {
    let is_purged = expected.1.is_none() && expected.0 <= purged;
    held == Some(expected) || is_purged && held.is_none_or(|held| held.1.is_none() && held.0 < expected.0)
}

impl Journal {
    fn note(&mut self, vb: VbId, seqno: Seqno, key: &[u8], value: Option<Vec<u8>>) {
        self.entries.insert((vb, seqno), (key.to_vec(), value));
    }

    fn state(&self, vb: VbId, at: Seqno) -> State {
        let mut state = State::new();
        for ((_, seqno), (key, value)) in self.entries.range((vb, Seqno(0))..=(vb, at)) {
            state.insert(key.clone(), (*seqno, value.clone()));
        }
        state
    }

    fn forget_above(&mut self, vb: VbId, seqno: Seqno) {
        self.entries.retain(|at, _| at.0 != vb || at.1 <= seqno);
    }
}

/// Somebody who follows a vBucket.
struct Consumer {
    vb: VbId,
    options: FeedOptions,
    feed: Option<Feed>,
    /// The last item, or the end of the last complete snapshot.
    seqno: Seqno,
    /// The one that is not complete.
    snapshot: Option<FeedSnapshot>,
    seen: BTreeSet<Key>,
    state: State,
    /// How many snapshots were complete, from where.
    complete_from_disk: usize,
    complete_from_memory: usize,
}

impl Consumer {
    fn new(vb: VbId, options: FeedOptions) -> Self {
        Self {
            vb,
            options,
            feed: None,
            seqno: Seqno(0),
            snapshot: None,
            seen: BTreeSet::new(),
            state: State::new(),
            complete_from_disk: 0,
            complete_from_memory: 0,
        }
    }

    /// Begins anew with nothing.
    fn roll_back(&mut self) {
        (self.feed, self.seqno, self.snapshot) = (None, Seqno(0), None);
        self.seen.clear();
        self.state.clear();
    }

    fn wants(&self, key: &[u8]) -> bool {
        match &self.options.filter {
            FeedFilter::All => true,
            FeedFilter::Collections(ids) => ids.contains(&u32::from(key[0])),
        }
    }

    fn accept(&mut self, item: &FeedItem, journal: &Journal, visible: Seqno) {
        let snapshot = self.snapshot.expect("items come in snapshots");
        assert!(item.seqno > snapshot.start && item.seqno <= snapshot.end, "{item:?} in {snapshot:?}");
        // A write that failed half-way may have been synced all the same, which only the disk knows.
        assert!(item.seqno <= visible || snapshot.from_disk, "{item:?} is not visible yet");
        if !snapshot.unordered {
            assert!(item.seqno > self.seqno, "{item:?} after {}", self.seqno);
            self.seqno = item.seqno;
        }
        let key = item.key().encoded().to_vec();
        assert!(self.seen.insert(key.clone()), "{item:?} comes twice in {snapshot:?}");
        if item.kind == FeedKind::System {
            assert!(!item.value().is_empty());
            return;
        }
        assert!(self.wants(&key));
        let Some((known, value)) = journal.entries.get(&(self.vb, item.seqno)) else {
            panic!("{item:?} never happened, in {snapshot:?}")
        };
        assert_eq!((known, value.is_none()), (&key, item.deleted), "{item:?}");
        assert_eq!(item.deleted, item.kind != FeedKind::Mutation);
        if let Some(value) = value.as_ref().filter(|_| !self.options.keys_only) {
            assert_eq!(item.value(), &value[..]);
            assert_eq!(&item.share()[..], &value[..]);
        }
        assert!(!self.options.keys_only || item.value().is_empty());
        self.state.insert(key, (item.seqno, value.clone()));
    }

    /// Takes one batch; whether there was one.
    fn read(&mut self, rig: &Rig, journal: &Journal, bytes_max: usize) -> Result<bool, FeedEnd> {
        let visible = rig.bucket.vb_history(self.vb).unwrap().max_visible;
        let feed = self.feed.as_mut().expect("connected");
        let FeedStep::Batch(batch) = feed.next(bytes_max, rig.now())? else { return Ok(false) };
        assert!(!batch.items.is_empty() || batch.snapshot.is_some() || batch.ends_snapshot);
        if let Some(snapshot) = batch.snapshot {
            assert_eq!(snapshot.start, self.seqno, "snapshots have no gaps: {snapshot:?}");
            assert!(snapshot.end > snapshot.start, "{snapshot:?}");
            assert!(self.snapshot.is_none_or(|cut| cut.end <= snapshot.end && cut.from_disk));
            self.snapshot = Some(snapshot);
            self.seen.clear();
        }
        for item in &batch.items {
            self.accept(item, journal, visible);
        }
        if batch.ends_snapshot {
            let snapshot = self.snapshot.take().expect("it began");
            self.seqno = snapshot.end;
            let mut expected = journal.state(self.vb, snapshot.end);
            expected.retain(|key, _| self.wants(key));
            let purged = rig.bucket.vb_history(self.vb).unwrap().purge_seqno;
            let wrong = expected.iter().find(|(key, version)| !agrees(self.state.get(*key), version, purged));
            let wrong = wrong.map(|(key, version)| (key, version.0, self.state.get(key).map(|held| held.0)));
            assert_eq!(wrong, None, "after {snapshot:?}, purged up to {purged}");
            let stray = self.state.keys().find(|key| !expected.contains_key(*key));
            assert_eq!(stray, None, "after {snapshot:?}");
            match snapshot.from_disk {
                true => self.complete_from_disk += 1,
                false => self.complete_from_memory += 1,
            }
        }
        Ok(true)
    }

    /// Opens the feed again where it stopped, or from zero where the producer would have it rolled back.
    fn connect(&mut self, rig: &Rig, ticket: u64) {
        let history = rig.bucket.vb_history(self.vb).unwrap();
        let is_lost = self.seqno > history.high_seqno
            || (self.seqno > Seqno(0) && history.purge_seqno > self.seqno)
            || self.snapshot.is_some_and(|cut| cut.unordered);
        if is_lost {
            self.roll_back();
        }
        let through = self.snapshot.take().map_or(Seqno(0), |cut| cut.end).min(history.high_seqno);
        self.seen.clear();
        let options = FeedOptions { from: self.seqno, through, ..self.options.clone() };
        let waiter = Waiter { worker: 1, connection: 1, ticket };
        self.feed = Some(rig.bucket.feed(self.vb, options, waiter).unwrap());
    }
}

struct World {
    rig: Rig,
    rng: Rng,
    journal: Journal,
    consumers: Vec<Consumer>,
    is_full: bool,
    /// The disk takes nothing any more.
    is_dead: bool,
    /// Not warmed up yet.
    is_cold: bool,
    /// Durable writes: those in progress, and all by key and CAS.
    in_progress: Vec<(Mutated, Version)>,
    durable: BTreeMap<(Key, base::Cas), Option<Vec<u8>>>,
    /// Batches told.
    batches: u64,
}

const KEYS: u32 = 12;
const VBUCKETS: u16 = 2;

impl World {
    fn new(seed: u64, kind: BucketKind, disks: Option<Disks>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let options = BucketOptions {
            vbuckets: VBUCKETS,
            shards: 1,
            purge_interval_secs: 40,
            part_bytes_max: if seed.is_multiple_of(2) { 64 << 20 } else { 300 },
            cursor_bytes_max: Some(if rng.bool() { 800 } else { 1 << 20 }),
            seed,
            ..options(kind)
        };
        let rig = match disks {
            Some(disks) => Rig::over(options, Arc::default(), disks, Clock(0)),
            None => Rig::new(options),
        };
        let mut world = Self {
            rig,
            rng,
            journal: Journal::default(),
            in_progress: Vec::new(),
            durable: BTreeMap::new(),
            consumers: Vec::new(),
            is_full: false,
            is_dead: false,
            is_cold: false,
            batches: 0,
        };
        for number in 0..6_u16 {
            let options = FeedOptions {
                filter: if number == 3 { FeedFilter::Collections(Box::new([8])) } else { FeedFilter::All },
                keys_only: number == 4,
                unordered: number == 5,
                ..FeedOptions::default()
            };
            world.consumers.push(Consumer::new(VbId(number % VBUCKETS), options));
        }
        world
    }

    fn is_persistent(&self) -> bool {
        self.rig.options.kind == BucketKind::Couchbase
    }

    fn key(&mut self) -> Key {
        format!("\0key{}", self.rng.u32(0..KEYS)).into_bytes()
    }

    fn keys(vb: VbId, rig: &Rig) -> Vec<Key> {
        let keys = (0..KEYS).map(|number| format!("\0key{number}").into_bytes());
        keys.filter(|key| rig.key(key).0 == vb).collect()
    }

    /// Seqnos that nobody told about are expirations: finds whose.
    fn note_expirations(&mut self) {
        for vb in (0..VBUCKETS).map(VbId) {
            for key in Self::keys(vb, &self.rig) {
                let now = self.rig.now();
                let Ok(meta) = self.rig.run(&key, |bucket, vb, key| bucket.meta(vb, key, now)) else {
                    continue;
                };
                if meta.deleted {
                    self.journal.entries.entry((vb, meta.seqno)).or_insert((key, None));
                }
            }
        }
    }

    fn level(&mut self) -> DurabilityLevel {
        match self.rng.u8(0..6) {
            0 if self.is_persistent() => DurabilityLevel::PersistToMajority,
            _ => DurabilityLevel::None,
        }
    }

    /// A mutation happened to a key; if it had just expired, that came first.
    fn happened(&mut self, key: &[u8], mutated: Mutated, before: Seqno, value: Option<Vec<u8>>) {
        let (vb, seqno) = (self.rig.key(key).0, mutated.seqno);
        if seqno.get() == before.get() + 2 {
            self.journal.note(vb, before.next(), key, None);
        } else {
            assert_eq!(seqno, before.next());
        }
        if mutated.wait {
            self.durable.insert((key.to_vec(), mutated.cas), value.clone());
            self.in_progress.push((mutated, (key.to_vec(), value)));
        } else {
            self.journal.note(vb, seqno, key, value);
        }
    }

    /// Learns what became of durable writes.
    fn note_commits(&mut self) {
        let waiter = Waiter { worker: 2, connection: 2, ticket: 2 };
        let Self { rig, journal, in_progress, .. } = self;
        in_progress.retain(|(mutated, (key, value))| match rig.complete(key, mutated, waiter) {
            Ok(Durable::Parked) => true,
            Ok(Durable::Committed(committed)) => {
                assert_eq!(committed.cas, mutated.cas);
                journal.note(rig.key(key).0, committed.seqno, key, value.clone());
                false
            }
            Err(_) => false,
        });
    }

    /// Learns which durable writes opening the bucket has committed.
    fn note_recovered(&mut self) {
        self.in_progress.clear();
        for ((key, cas), value) in &self.durable {
            let (vb, now) = (self.rig.key(key).0, self.rig.now());
            let meta = self.rig.run(key, |bucket, vb, key| bucket.meta(vb, key, now));
            if let Some(meta) = meta.ok().filter(|meta| meta.cas == *cas) {
                self.journal.note(vb, meta.seqno, key, value.clone());
            }
        }
        self.note_expirations();
    }

    fn high_seqno(&self, key: &[u8]) -> Seqno {
        self.rig.bucket.vb_history(self.rig.key(key).0).unwrap().high_seqno
    }

    fn store(&mut self) {
        let (key, level) = (self.key(), self.level());
        // Now and then one that fills a good part of a feed's buffer.
        let length = match self.rng.u8(0..40) {
            0 => 200_000,
            1..5 => 3_000,
            _ => self.rng.usize(0..60),
        };
        let value = vec![self.rng.u8(..); length];
        let expiry =
            if self.rng.u8(0..4) == 0 && level == DurabilityLevel::None { self.rng.u32(1..20) } else { 0 };
        let store = Store { expiry: Expiry::Wire(expiry), durability: level, ..Store::set(&value) };
        let (now, before) = (self.rig.now(), self.high_seqno(&key));
        match self.rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, now)) {
            Ok(mutated) => self.happened(&key, mutated, before, Some(value)),
            Err(_) => self.note_expirations(),
        }
    }

    fn delete(&mut self) {
        let (key, durability) = (self.key(), self.level());
        let (now, before) = (self.rig.now(), self.high_seqno(&key));
        let delete = Delete { durability, ..Delete::default() };
        match self.rig.run(&key, |bucket, vb, key| bucket.delete(vb, key, &delete, now)) {
            Ok(mutated) => self.happened(&key, mutated, before, None),
            Err(_) => self.note_expirations(),
        }
    }

    fn get(&mut self) {
        let (key, now) = (self.key(), self.rig.now());
        let _ = self.rig.run(&key, |bucket, vb, key| bucket.get(vb, key, now, |_| ()));
        self.note_expirations();
    }

    fn consume(&mut self) {
        let index = self.rng.usize(0..self.consumers.len());
        let bytes_max = *self.rng.choice(&[1, 500, 1 << 20]).unwrap();
        let consumer = &mut self.consumers[index];
        if consumer.feed.is_none() {
            consumer.connect(&self.rig, index as u64);
        }
        for _ in 0..self.rng.usize(1..20) {
            match consumer.read(&self.rig, &self.journal, bytes_max) {
                Ok(true) => self.batches += 1,
                Ok(false) => break,
                Err(end) => {
                    let is_failure = end == FeedEnd::BackfillFailed && self.is_dead;
                    assert!(end == FeedEnd::TooSlow || is_failure, "{end:?}");
                    consumer.feed = None;
                    break;
                }
            }
        }
    }

    fn disconnect(&mut self) {
        let index = self.rng.usize(0..self.consumers.len());
        self.consumers[index].feed = None;
    }

    fn empty(&mut self) {
        let is_sound = !self.is_full && !self.is_dead;
        if !is_sound || self.rig.bucket.flush_all(self.rig.now()).is_err() {
            return;
        }
        self.journal = Journal::default();
        self.in_progress.clear();
        self.durable.clear();
        for consumer in &mut self.consumers {
            if let Some(feed) = &mut consumer.feed {
                assert_eq!(feed.next(1, self.rig.now()).unwrap_err(), FeedEnd::Reset);
                assert_eq!(feed.next(1, self.rig.now()).unwrap_err(), FeedEnd::Reset, "it stays over");
            }
            consumer.roll_back();
        }
    }

    /// Everybody is thrown out. What was not synced is gone, or the stop was clean.
    fn start_again(mut self, is_crash: bool) -> Self {
        self.consumers.iter_mut().for_each(|consumer| consumer.feed = None);
        self.rig.disks.iter().for_each(|disk| disk.set_full(false));
        self.rig = if is_crash || self.is_dead { self.rig.crash() } else { self.rig.restart() };
        (self.is_full, self.is_dead) = (false, false);
        // Feeds do not wait for it.
        self.is_cold = true;
        for vb in (0..VBUCKETS).map(VbId) {
            // Opening may have committed something.
            let kept = self.rig.bucket.vb_history(vb).unwrap().persisted;
            self.journal.forget_above(vb, kept);
            for consumer in self.consumers.iter_mut().filter(|consumer| consumer.vb == vb) {
                if consumer.seqno > kept || consumer.snapshot.is_some_and(|cut| cut.end > kept) {
                    consumer.roll_back();
                }
            }
        }
        self.note_recovered();
        self
    }

    fn flush(&mut self) {
        self.rig.clock.0 += 200;
        let now = self.rig.now();
        self.rig.bucket.flush(0, now);
        self.note_commits();
    }

    /// From some write on nothing is written any more.
    fn kill_disk(&mut self) {
        if self.is_full || self.is_dead || !self.is_persistent() {
            return;
        }
        self.is_dead = true;
        if !self.rig.disks[0].die_after(self.rng.u64(0..6)) {
            self.rig.stores[0].fail_sync();
        }
    }

    fn warm_up(&mut self) {
        self.rig.warm_up();
        self.is_cold = false;
        self.note_expirations();
    }

    fn fill_disk(&mut self) {
        self.is_full = self.rng.u8(0..3) == 0;
        self.rig.disks.iter().for_each(|disk| disk.set_full(self.is_full));
    }

    fn step(mut self) -> Self {
        let now = self.rig.now();
        match self.rng.u32(0..1000) {
            0..350 => self.store(),
            350..450 => self.delete(),
            450..480 => self.get(),
            480..700 => self.consume(),
            700..780 => drop(self.rig.bucket.run_backfills(0, now)),
            780..850 => self.flush(),
            850..880 => {
                self.rig.bucket.expire(now, Budget::default());
                self.note_expirations();
                self.rig.bucket.time_out_durable(now);
                self.note_commits();
            }
            880..900 => drop(self.rig.bucket.drop_slow_cursors()),
            900..910 => drop(self.rig.bucket.page(now, Budget::default())),
            910..920 => drop(self.rig.bucket.defragment(Budget::default())),
            920..935 if !self.is_cold => drop(self.rig.bucket.compact_eagerly(0, now)),
            935..965 => self.rig.clock.0 += self.rng.u64(0..4_000),
            965..967 => self.rig.clock.0 += 70_000,
            967..985 => self.disconnect(),
            985..988 => self.empty(),
            988..991 if self.is_persistent() => return self.start_again(true),
            991..993 if self.is_persistent() => return self.start_again(false),
            993..997 if !self.is_dead => self.fill_disk(),
            997..998 => self.kill_disk(),
            998..1000 if self.is_cold && !self.is_dead => self.warm_up(),
            _ => {}
        }
        self
    }

    /// All consumers get everything there is.
    fn catch_up(mut self) -> Self {
        self.rig.disks.iter().for_each(|disk| disk.set_full(false));
        self.is_full = false;
        if self.is_dead {
            self = self.start_again(true);
        }
        self.warm_up();
        self.rig.flush();
        self.note_commits();
        for index in 0..self.consumers.len() {
            let high_seqno = self.rig.bucket.vb_history(self.consumers[index].vb).unwrap().high_seqno;
            for round in 0.. {
                let consumer = &mut self.consumers[index];
                if consumer.feed.is_none() {
                    consumer.connect(&self.rig, index as u64);
                }
                match consumer.read(&self.rig, &self.journal, 1 << 20) {
                    Ok(true) => {}
                    Ok(false) if consumer.seqno == high_seqno && consumer.snapshot.is_none() => break,
                    Ok(false) => drop(self.rig.bucket.run_backfills(0, self.rig.now())),
                    Err(end) => {
                        assert_eq!(end, FeedEnd::TooSlow);
                        consumer.feed = None;
                    }
                }
                assert!(round < 10_000, "it ends");
            }
        }
        self
    }

    fn leaves_nothing(&mut self) {
        self.consumers.iter_mut().for_each(|consumer| consumer.feed = None);
        self.rig.bucket.run_backfills(0, self.rig.now());
        self.rig.flush();
        let stats = self.rig.bucket.stats();
        assert_eq!((stats.cursors, stats.cursor_bytes, stats.backfill_bytes), (0, 0, 0));
        assert!(stats.checkpoint_memory < 4_096, "{}", stats.checkpoint_memory);
        assert!(stats.stores.iter().all(|store| store.bytes_pinned == 0));
        self.rig.bucket.flush_all(self.rig.now()).unwrap();
        self.rig.flush();
        let stats = self.rig.bucket.stats();
        assert!(stats.pools.of(Pool::Items) <= stats.kv_bytes + 4_096, "{stats:?}");
    }
}

fn run(seed: u64, steps: usize, kind: BucketKind, disks: Option<Disks>) -> [usize; 2] {
    let report = SeedOnPanic(seed);
    let mut world = World::new(seed, kind, disks);
    for _ in 0..steps {
        world = world.step();
    }
    world = world.catch_up();
    let told = world.consumers.iter().fold([0, 0], |sum, consumer| {
        [sum[0] + consumer.complete_from_disk, sum[1] + consumer.complete_from_memory]
    });
    world.leaves_nothing();
    std::mem::forget(report);
    told
}

struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        eprintln!("seed {}", self.0);
    }
}

type Disks = Vec<Arc<dyn Disk>>;

/// More with `SEEDS=1000`.
fn seeds(usual: u64) -> u64 {
    std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn all(seeds: u64, steps: usize, kind: BucketKind, disks: fn(u64) -> Option<Disks>) {
    let first: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut told = [0, 0];
    for seed in first..first + seeds {
        let of_one = run(seed, steps, kind, disks(seed));
        told = [told[0] + of_one[0], told[1] + of_one[1]];
    }
    assert!(told[0] > seeds as usize && told[1] > seeds as usize, "both ways are gone: {told:?}");
}

#[test]
fn consumers_of_a_persistent_bucket_hold_what_it_was() {
    all(seeds(60), 1_500, BucketKind::Couchbase, |_| None);
}

#[test]
fn consumers_of_an_ephemeral_bucket_hold_what_it_was() {
    all(seeds(40), 1_500, BucketKind::Ephemeral, |_| None);
}

#[test]
fn consumers_of_the_segment_log_hold_what_it_was() {
    all(seeds(20), 1_500, BucketKind::Couchbase, |seed| {
        Some(vec![Arc::new(FaultDisk::new(seed, 0)) as Arc<dyn Disk>])
    });
}
