//! A bucket under pressure, simulated from one seed. It has writers that offer more than the quota and the disk can take,
//! deletions, evictions, durable writes, slow followers and compaction. Its disk fills up or dies, and its power fails. One
//! thread; time moves only when somebody waits for the disk or has nothing to do.
//!
//! After every step four things must hold. Memory is bounded and its pools add up. Only a dead disk refuses a deletion.
//! What was acknowledged is read back. A mutation was refused only for a reason. Every now and then more must hold. An
//! idle bucket drains in the time that its disk needs. Deletions heal a full disk. A bucket with a dead disk goes on
//! serving what is in memory. A crash takes back nothing that was reported to be on disk, durable writes above all. In
//! the end followers hold what the bucket does.
//!
//! A failure prints its seed. `PRESSURE_SEEDS=1000 cargo test --release -p settee-engine --test pressure` runs many;
//! `PRESSURE_SEED=17` begins with another one, `PRESSURE_STEPS` changes how long each is.

#![allow(clippy::unwrap_used, reason = "tests")]

mod durable;
mod followers;
mod promises;
mod slow_disk;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use base::{
    Status, VbId,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
};
use durable::DurableWrites;
use fastrand::Rng;
use followers::Follower;
use promises::Promises;
use settee_engine::{
    Admission, BucketChange, BucketOptions, Budget, Delete, DocView, Durable, PACED_MILLIS_MAX, Store, Waiter,
};
use slow_disk::{SimClock, budget, slow_disk};
use storage::DiskClock;
use support::{Clock, Disk, FaultDisk, Rig, options};

const QUOTA: u64 = 16 << 20;
/// Memory may pass the quota by one document per shard and what a fetch brings in.
const MEMORY_MAX: u64 = QUOTA / 100 * 105;
const DISK_BYTES_PER_SEC: u64 = 8 << 20;
const DOCUMENTS: u32 = 16_000;
const VALUE_MAX: usize = 4_000;
/// Documents beyond those that only durable writes write.
const DURABLE_DOCUMENTS: u32 = 64;
/// vBuckets that somebody follows.
const FOLLOWED: u16 = 3;
/// Steps on a disk that has died before somebody restarts the node.
const DEAD_STEPS: u32 = 12;
/// Connections that the writers share.
const CONNECTIONS: u32 = 8;
/// What writers offer is this many times what the disk can take.
const OFFERED: u64 = 5;
/// A quiet bucket may take 1.5 times what its disk needs, and this.
const GRACE_MILLIS: u64 = 5_000;
/// Rounds of background work after which an idle bucket that is not quiet has wedged.
const ROUNDS_MAX: u32 = 2_000;
/// On a full disk with less than this, deletions have too little to free.
const ENOUGH_TO_HEAL: u64 = 8 << 20;
/// What is run unless told otherwise. These are two at random and those in which a full disk was not healed once. The others are
/// those in which the log's buffers, and what was read ahead for followers, passed the quota.
const SEEDS: [u64; 7] = [6, 7, 11, 12, 24, 1003, 2206];
/// So few dirty bytes are no reason to refuse a write.
const FEW_DIRTY_BYTES: u64 = 1 << 20;

/// A write that waits to be admitted.
struct Parked {
    waiter: Waiter,
    index: u32,
    since: u64,
    /// Its connection is not read meanwhile.
    alone: bool,
}

struct World {
    rig: Rig,
    clock: Arc<SimClock>,
    disks: Vec<Arc<FaultDisk>>,
    promises: Promises,
    rng: Rng,
    is_full: bool,
    /// A disk has died, and its shard is not going to write any more.
    is_dead: bool,
    durable: DurableWrites,
    followers: Vec<Follower>,
    /// Whether writers ask to be admitted, as the server has them do. The bucket must hold either way.
    asks: bool,
    parked: Vec<Parked>,
    tickets: u64,
    /// What writers may still send.
    owed_bytes: u64,
    paid_until: u64,
    tally: Tally,
}

/// What happened, to see that a run was one under pressure.
#[derive(Debug, Default)]
struct Tally {
    stored: u64,
    refused: u64,
    waited: u64,
    deleted: u64,
    reads: u64,
    crashes: u64,
    full: u64,
    healed: u64,
    drained: u64,
    durable: u64,
    served_dead: u64,
    anew: u64,
}

fn value(index: u32, version: u32) -> Vec<u8> {
    let mut rng = Rng::with_seed(u64::from(index) << 32 | u64::from(version));
    // The whole of it tells, but making it must not cost more than storing it.
    rng.u64(..).to_le_bytes().repeat(rng.usize(1..VALUE_MAX / 8))
}

fn key(index: u32) -> Vec<u8> {
    let mut key = vec![0];
    key.extend_from_slice(format!("{{{index:036}}}").as_bytes());
    key
}

impl World {
    fn new(seed: u64) -> World {
        let clock = Arc::new(SimClock::default());
        let budget = budget(DISK_BYTES_PER_SEC, &clock);
        let shards = if seed.is_multiple_of(3) { 1 } else { 2 };
        let disks: Vec<_> = (0..shards)
            .map(|shard| Arc::new(slow_disk(seed * 2 + u64::from(shard), shard, &budget)))
            .collect();
        let eviction =
            if seed.is_multiple_of(2) { EvictionPolicy::ValueOnly } else { EvictionPolicy::FullEviction };
        let options = BucketOptions {
            quota_bytes: QUOTA,
            shards: disks.len(),
            eviction,
            purge_interval_secs: 60,
            seed,
            ..options(BucketKind::Couchbase)
        };
        let as_disks = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
        let rig = Rig::over(options, Arc::default(), as_disks, Clock(0));
        World {
            rig,
            clock,
            disks,
            promises: Promises::default(),
            rng: Rng::with_seed(seed),
            is_full: false,
            is_dead: false,
            durable: DurableWrites::default(),
            followers: (0..FOLLOWED).map(|vb| Follower::new(VbId(vb))).collect(),
            asks: !seed.is_multiple_of(4),
            parked: Vec::new(),
            tickets: 0,
            owed_bytes: 1 << 20,
            paid_until: 0,
            tally: Tally::default(),
        }
    }

    /// The bucket's clock is the disk's.
    fn catch_up(&mut self) {
        let nanos = self.clock.nanos();
        self.rig.clock.0 = nanos / 1_000_000;
        let offered = DISK_BYTES_PER_SEC * OFFERED;
        self.owed_bytes += (nanos - self.paid_until) / 1_000_000 * offered / 1_000;
        self.owed_bytes = self.owed_bytes.min(12 << 20);
        self.paid_until = nanos;
    }

    fn vb(&self, index: u32) -> VbId {
        self.rig.key(&key(index)).0
    }

    fn step(&mut self) {
        match self.rng.u32(0..1_000) {
            0..360 => self.write(),
            360..390 => self.write_durably(),
            390..420 => self.follow(),
            420..500 => self.delete(),
            500..600 => self.read(),
            600..800 => {
                let shard = self.rng.usize(0..self.rig.bucket.shards());
                self.flush(shard);
            }
            800..900 => self.page(),
            900..940 => self.compact(),
            940..960 => self.clock.sleep(self.rng.u64(0..200_000_000)),
            960..966 => self.warm_up(),
            966..974 => self.fill_disk(),
            974..986 => self.heal_disk(),
            986..992 => self.idle(),
            992..996 => self.switch_eviction(),
            _ => self.crash(),
        }
        // Everything takes some time.
        self.clock.sleep(self.rng.u64(0..5_000_000));
        self.catch_up();
        self.pace();
        self.housekeeping();
    }

    fn housekeeping(&mut self) {
        self.rig.bucket.drop_slow_cursors();
        self.rig.bucket.time_out_durable(self.rig.now());
        self.complete_durable();
    }

    /// What waits is admitted, or has waited long enough.
    fn pace(&mut self) {
        self.rig.bucket.pace(self.rig.now());
        for parked in std::mem::take(&mut self.parked) {
            if self.rig.bucket.redeem(parked.waiter) {
                self.tally.waited += 1;
                self.store(parked.index);
            } else if self.rig.clock.0 - parked.since >= PACED_MILLIS_MAX {
                self.rig.bucket.give_up(parked.waiter, self.rig.now());
                self.tally.refused += 1;
            } else {
                self.parked.push(parked);
            }
        }
    }

    /// The writers send what they owe by now.
    fn write(&mut self) {
        while self.owed_bytes > 0 {
            let index = self.rng.u32(0..DOCUMENTS);
            let refused = self.tally.refused;
            let sent = self.offer(index);
            self.owed_bytes = self.owed_bytes.saturating_sub(sent);
            // Writers that are refused try on for a while.
            if self.tally.refused > refused && self.rng.u8(0..32) == 0 {
                break;
            }
        }
        self.owed_bytes = 0;
    }

    /// A SET that asks first, where that is called for.
    fn offer(&mut self, index: u32) -> u64 {
        if !self.asks || !self.rig.bucket.is_paced() {
            return self.store(index);
        }
        let bytes = VALUE_MAX as u64 / 2;
        let connection = u64::from(index % CONNECTIONS);
        if self.parked.iter().any(|parked| parked.alone && parked.waiter.connection == connection) {
            return bytes;
        }
        self.tickets += 1;
        let waiter = Waiter { worker: 1, connection, ticket: self.tickets };
        let (now, since) = (self.rig.now(), self.rig.clock.0);
        match self.rig.bucket.ask(waiter, bytes, now) {
            Admission::Go => return self.store(index),
            Admission::Wait => self.parked.push(Parked { waiter, index, since, alone: false }),
            Admission::WaitAlone => self.parked.push(Parked { waiter, index, since, alone: true }),
            Admission::Refuse => self.tally.refused += 1,
        }
        bytes
    }

    /// One SET; returns what it took of the writers' rate.
    fn store(&mut self, index: u32) -> u64 {
        let (key, vb, now) = (key(index), self.vb(index), self.rig.now());
        let version = self.promises.next_version(index);
        let value = value(index, version);
        let store = Store::set(&value);
        match self.rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, now)) {
            Ok(mutated) => {
                self.promises.acknowledged(vb, index, mutated.seqno, Some(version));
                self.tally.stored += 1;
            }
            Err(status) => {
                assert_eq!(status, Status::TemporaryFailure);
                self.tally.refused += 1;
                self.check_reason();
            }
        }
        (value.len() + key.len()) as u64
    }

    /// A write may be refused when memory is short, when much waits for the disk, or when that is full.
    fn check_reason(&self) {
        let stats = self.rig.bucket.stats();
        let short = stats.mem_used > stats.mem_high_wat || stats.diskqueue_bytes > FEW_DIRTY_BYTES;
        let reason = self.rig.bucket.shortage(self.rig.now());
        let (used, dirty) = (stats.mem_used, stats.diskqueue_bytes);
        assert!(
            short || self.is_full || self.is_dead,
            "refused with {used} of {QUOTA} bytes used, {dirty} dirty: {reason:?}"
        );
    }

    fn delete(&mut self) {
        for _ in 0..self.rng.u32(1..200) {
            let index = self.rng.u32(0..DOCUMENTS);
            self.delete_one(index);
        }
    }

    /// A few durable writes, of documents of their own.
    fn write_durably(&mut self) {
        for _ in 0..self.rng.u32(1..20) {
            let index = DOCUMENTS + self.rng.u32(0..DURABLE_DOCUMENTS);
            let (key, now) = (key(index), self.rig.now());
            let version = self.promises.next_version(index);
            let value = value(index, version);
            let store = Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(&value) };
            match self.rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &store, now)) {
                Ok(mutated) => self.durable.began(index, version, mutated),
                Err(Status::SyncWriteInProgress) => {}
                Err(status) => {
                    assert_eq!(status, Status::TemporaryFailure);
                    self.check_reason();
                }
            }
        }
    }

    fn complete_durable(&mut self) {
        let waiter = Waiter { worker: 3, connection: 0, ticket: 0 };
        for (index, version, mutated) in std::mem::take(&mut self.durable.in_progress) {
            match self.rig.complete(&key(index), &mutated, waiter) {
                Ok(Durable::Parked) => self.durable.in_progress.push((index, version, mutated)),
                Ok(Durable::Committed(_)) => {
                    self.durable.committed(index, version);
                    self.tally.durable += 1;
                }
                Err(status) => assert_eq!(status, Status::SyncWriteAmbiguous),
            }
        }
    }

    /// A follower takes a little of what has come, or nothing for a while.
    fn follow(&mut self) {
        for shard in 0..self.rig.bucket.shards() {
            self.rig.bucket.run_backfills(shard, self.rig.now());
        }
        for follower in &mut self.followers {
            follower.read(&self.rig, self.rng.usize(0..8));
        }
    }

    /// A deletion is never refused, whatever state the bucket is in, unless its disk is dead.
    fn delete_one(&mut self, index: u32) {
        let (key, vb, now) = (key(index), self.vb(index), self.rig.now());
        let done = self.rig.run(&key, |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now));
        match (done, self.promises.current(vb, index)) {
            (Ok(mutated), Some(_)) => {
                self.promises.acknowledged(vb, index, mutated.seqno, None);
                self.tally.deleted += 1;
            }
            (Err(Status::KeyNotFound), None) => {}
            (Err(Status::TemporaryFailure), _) if self.is_dead => {}
            (done, expected) => panic!("delete of document {index}: {done:?}, it is {expected:?}"),
        }
    }

    fn read(&mut self) {
        for _ in 0..self.rng.u32(1..100) {
            let index = self.rng.u32(0..DOCUMENTS);
            self.read_one(index);
        }
    }

    fn read_one(&mut self, index: u32) {
        let (key, vb, now) = (key(index), self.vb(index), self.rig.now());
        let copy = |view: &DocView<'_>| view.value.to_vec();
        let found = self.rig.run(&key, |bucket, vb, key| bucket.get(vb, key, now, copy));
        match (found, self.promises.current(vb, index)) {
            (Ok(found), Some(version)) => {
                assert!(found == value(index, version), "document {index}, version {version}")
            }
            (Err(Status::KeyNotFound), None) => {}
            // What only a dead disk has.
            (Err(Status::TemporaryFailure), _) if self.is_dead => {}
            (found, expected) => {
                panic!("read of document {index}: {:?}, it is {expected:?}", found.map(|value| value.len()))
            }
        }
        self.tally.reads += 1;
    }

    fn flush(&mut self, shard: usize) {
        let report = self.rig.bucket.flush(shard, self.rig.now());
        assert!(report.failed.is_none() || self.is_full || self.is_dead, "{report:?}");
        self.learn_persisted();
    }

    fn learn_persisted(&mut self) {
        for vb in (0..self.rig.bucket.vbuckets()).map(VbId) {
            self.promises.persisted(vb, self.rig.bucket.vb_state(vb).unwrap().persisted_seqno);
        }
    }

    fn page(&mut self) {
        if self.rig.bucket.wants_room() {
            self.rig
                .bucket
                .page(self.rig.now(), Budget { items: self.rng.usize(100..5_000), bytes: 4 << 20 });
        }
    }

    fn compact(&mut self) {
        for shard in 0..self.rig.bucket.shards() {
            let compacted = self.rig.bucket.compact(shard, self.rig.now());
            assert!(compacted.is_ok() || self.is_full, "{compacted:?}");
        }
    }

    fn warm_up(&mut self) {
        for shard in 0..self.rig.bucket.shards() {
            self.rig.bucket.warm_up(shard, self.rig.now()).unwrap();
        }
    }

    fn switch_eviction(&mut self) {
        let eviction = if self.rng.bool() { EvictionPolicy::ValueOnly } else { EvictionPolicy::FullEviction };
        self.rig.options.eviction = eviction;
        self.rig.bucket.reconfigure(BucketChange { eviction: Some(eviction), ..BucketChange::default() });
    }

    fn fill_disk(&mut self) {
        if !self.is_full {
            self.disks.iter().for_each(|disk| disk.set_full(true));
            self.is_full = true;
            self.tally.full += 1;
        }
    }

    /// Space returns, or has to be made: deletions alone must do, on a disk that got no larger.
    fn heal_disk(&mut self) {
        if !self.is_full {
            return;
        }
        // There must be enough on the disk that deletions can make room for what waits.
        let stats = self.rig.bucket.stats();
        let enough = stats.disk_live_bytes > ENOUGH_TO_HEAL + stats.diskqueue_bytes;
        if enough && self.rng.u8(0..4) > 0 {
            self.heal_by_deletions();
        }
        self.give_space();
    }

    /// The disk has space again, which the bucket notices by itself.
    fn give_space(&mut self) {
        self.disks.iter().for_each(|disk| disk.fs.set_capacity(None));
        let mut rounds = 0;
        // Until compaction has taken back what it keeps for itself, nothing else is written. A store of which nothing was
        // written since compaction gave that up has not noticed.
        while self.is_full {
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "the disk has space again: {:?}", self.rig.bucket.stats());
            self.background();
            self.is_full = self.rig.bucket.disk_shortage().is_some();
        }
    }

    fn heal_by_deletions(&mut self) {
        for (_, index) in self.promises.live() {
            if self.rng.u8(0..4) > 0 {
                self.delete_one(index);
            }
        }
        let mut rounds = 0;
        while self.rig.bucket.stats().diskqueue_items > 0 {
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "deletions did not heal the disk: {:?}", self.rig.bucket.stats());
            self.background();
        }
        self.tally.healed += 1;
    }

    /// One round of what the server's threads do.
    fn background(&mut self) {
        self.clock.sleep(1_000_000);
        self.catch_up();
        self.pace();
        for shard in 0..self.rig.bucket.shards() {
            self.flush(shard);
            self.rig.bucket.run_backfills(shard, self.rig.now());
        }
        // In one thread compaction would hold up what it runs beside in a server; a full disk needs it.
        if self.is_full || self.rig.bucket.stats().diskqueue_items == 0 {
            self.compact();
        }
        self.make_room();
    }

    /// The pager gets to its end.
    fn make_room(&self) {
        while self.rig.bucket.wants_room() && self.rig.bucket.page(self.rig.now(), Budget::default()).more {}
    }

    /// The writers stop: the bucket must become quiet in the time that its disk needs.
    fn idle(&mut self) {
        if self.is_full {
            return;
        }
        self.catch_up();
        // What waits to be admitted has been sent, and goes to disk as well.
        let parked = (self.parked.len() * VALUE_MAX) as u64;
        let dirty = self.rig.bucket.stats().diskqueue_bytes + parked;
        let due = self.rig.clock.0 + dirty * 1_500 / DISK_BYTES_PER_SEC + GRACE_MILLIS;
        for round in 0.. {
            let stats = self.rig.bucket.stats();
            let is_written = stats.diskqueue_items == 0 && stats.queue_size == 0;
            if is_written && stats.mem_used <= stats.mem_high_wat && self.parked.is_empty() {
                break;
            }
            assert!(round < ROUNDS_MAX, "an idle bucket does not drain: {stats:?}");
            self.background();
        }
        assert!(self.rig.clock.0 <= due, "quiet at {} ms, due at {due} ms, {dirty} dirty", self.rig.clock.0);
        self.tally.drained += 1;
        // Nothing stands in the way of writing any more.
        let before = self.tally.stored;
        self.store(0);
        assert_eq!(self.tally.stored, before + 1, "writers are served again");
    }

    /// Power fails in the middle of a step; or only the disk does, and the node is left alone with it for a while.
    fn crash(&mut self) {
        self.disks.iter().for_each(|disk| disk.fs.set_capacity(None));
        self.is_full = false;
        for disk in &self.disks {
            disk.die_after(self.rng.u64(1..60));
        }
        for shard in 0..self.rig.bucket.shards() {
            self.rig.bucket.flush(shard, self.rig.now());
            let _ = self.rig.bucket.compact_eagerly(shard, self.rig.now());
        }
        if self.rng.bool() {
            self.serve_dead();
        }
        self.learn_persisted();
        self.complete_durable();
        self.parked.clear();
        self.durable.crashed();
        self.followers.iter_mut().for_each(Follower::leave);
        let persisted: Vec<_> = self.vb_states().map(|(_, seqno)| seqno).collect();
        let placeholder = Rig::new(options(BucketKind::Memcached));
        self.rig = std::mem::replace(&mut self.rig, placeholder).crash();
        let recovered: Vec<_> = self.vb_states().collect();
        for ((vb, recovered), persisted) in recovered.into_iter().zip(persisted) {
            assert!(recovered >= persisted, "{vb}: {persisted} was on disk, {recovered} is");
            self.promises.crashed(vb, recovered);
        }
        self.followers.iter_mut().for_each(|follower| follower.connect(&self.rig));
        self.check_durable();
        self.tally.crashes += 1;
    }

    /// Nothing more reaches the disk: memory stays within its bounds, and what is in it is served.
    fn serve_dead(&mut self) {
        self.is_dead = true;
        for _ in 0..DEAD_STEPS {
            match self.rng.u32(0..6) {
                0 => self.write(),
                1 => self.delete(),
                2 => self.write_durably(),
                3 => self.follow(),
                4 => self.page(),
                _ => self.read(),
            }
            for shard in 0..self.rig.bucket.shards() {
                self.flush(shard);
            }
            self.clock.sleep(50_000_000);
            self.catch_up();
            self.pace();
            self.housekeeping();
            self.check();
        }
        self.is_dead = false;
        self.tally.served_dead += 1;
    }

    /// Documents that were written durably are what they may be.
    fn check_durable(&self) -> u64 {
        let mut live = 0;
        for index in self.durable.documents() {
            let copy = |view: &DocView<'_>| view.value.to_vec();
            let found =
                self.rig.run(&key(index), |bucket, vb, key| bucket.get(vb, key, self.rig.now(), copy));
            let found = match found {
                Ok(found) => Some(found),
                Err(status) => {
                    assert_eq!(status, Status::KeyNotFound, "durable document {index}");
                    None
                }
            };
            self.durable.check(index, found.as_deref(), |version| value(index, version));
            live += u64::from(found.is_some());
        }
        live
    }

    fn vb_states(&self) -> impl Iterator<Item = (VbId, base::Seqno)> + '_ {
        let vbs = (0..self.rig.bucket.vbuckets()).map(VbId);
        vbs.map(|vb| (vb, self.rig.bucket.vb_state(vb).unwrap().persisted_seqno))
    }

    fn check(&self) {
        let stats = self.rig.bucket.stats();
        assert!(stats.mem_used <= MEMORY_MAX, "{} bytes of {QUOTA}: {:?}", stats.mem_used, stats.pools);
        assert_eq!(stats.pools.sum(), stats.mem_used, "{:?}", stats.pools);
    }

    /// Every document is what was promised, before and after one more crash.
    fn check_everything(&mut self) {
        self.give_space();
        self.idle();
        self.check_documents();
        self.crash();
        self.rig.warm_up();
        self.check_documents();
        let durable = self.check_durable();
        assert_eq!(self.rig.bucket.stats().curr_items, self.promises.live().len() as u64 + durable);
        self.check_followers();
    }

    /// A follower comes to hold everything.
    fn check_followers(&mut self) {
        self.idle();
        let copy = |view: &DocView<'_>| view.value.to_vec();
        let value_of =
            |key: &[u8]| self.rig.run(key, |bucket, vb, key| bucket.get(vb, key, self.rig.now(), copy)).ok();
        for (vb, follower) in (0..FOLLOWED).map(VbId).zip(&mut self.followers) {
            let durable = (DOCUMENTS..DOCUMENTS + DURABLE_DOCUMENTS).map(key);
            let durable = durable.filter(|key| self.rig.key(key).0 == vb && value_of(key).is_some()).count();
            let others = self.promises.live().iter().filter(|live| live.0 == vb).count();
            follower.check(&self.rig, value_of, durable + others);
            self.tally.anew += follower.anew;
        }
    }

    fn check_documents(&mut self) {
        for index in 0..DOCUMENTS {
            self.read_one(index);
            if index.is_multiple_of(100) {
                self.make_room();
                self.check();
            }
        }
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

struct Announce(u64, u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with PRESSURE_SEED={} at step {}", self.0, self.1);
        }
    }
}

/// One run; how many durable writes were committed.
fn endure(seed: u64, steps: u64) -> u64 {
    let mut world = World::new(seed);
    let mut announce = Announce(seed, 0);
    for step in 0..steps {
        announce.1 = step;
        world.step();
        world.check();
    }
    announce.1 = steps;
    world.check_everything();
    println!("seed {seed}: {:?}", world.tally);
    let Tally { stored, refused, reads, drained, durable, .. } = world.tally;
    assert!(stored > 0 && refused > 0 && reads > 0 && drained > 0, "no pressure: {:?}", world.tally);
    durable
}

/// Runs that know nothing of each other go on side by side. Each is busy all the time, and waits for nothing but its own clock.
#[test]
fn a_bucket_under_pressure_keeps_its_promises() {
    let (first, count) = (number("PRESSURE_SEED", u64::MAX), number("PRESSURE_SEEDS", 0));
    let (first, count) = if first == u64::MAX { (0, count) } else { (first, count.max(1)) };
    let seeds = if count > 0 { (first..first + count).collect() } else { SEEDS.to_vec() };
    let steps = number("PRESSURE_STEPS", 250);
    let (next, durable) = (AtomicUsize::new(0), AtomicU64::new(0));
    let run = || {
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            durable.fetch_add(endure(seed, steps), Ordering::Relaxed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
    // One seed alone may have none.
    assert!(durable.into_inner() > 0 || count == 1, "no durable write was committed");
}
