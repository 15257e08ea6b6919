//! Space on disk under writers who overwrite more than compaction reclaims beside them, for as long as they like. The space
//! settles below its limit, and the writers are slowed down for that, never refused.
//!
//! One processor, simulated: a set, a flush and a slice of compaction each take their time. Compaction gives way: it has an
//! eighth of the processor, in one test a sixteenth, and whatever nobody else wants. The sets and flushes run in
//! compaction's rests, so that everything goes on while a step does.

use std::sync::Arc;

use crate::support::{Clock, Disk, FaultDisk, Rig, numbered::key, options};
use base::bucket::BucketKind;
use parking_lot::Mutex;
use settee_engine::{Admission, BucketOptions, PACED_MILLIS_MAX, Pressure, Store, Waiter};
use storage::{FaultFs, Options};

const MIB: u64 = 1 << 20;
const DOCUMENTS: u32 = 2_000;
const VALUE_BYTES: usize = 16_000;
const SEGMENT_BYTES: u64 = 2 * MIB;
/// What things cost on the processor. It does at most 32 MB of sets per second, flushes included. In an eighth of it compaction
/// does a hundred and twenty slices of 128 KiB per second.
const SET_MICROS: u64 = 400;
const FLUSH_MICROS: u64 = 100;
const SLICE_MICROS: u64 = 1_000;
/// Beside a slice others may work for so long: compaction gives way to them, or they leave it what it has in any case.
const OTHERS_MICROS: u64 = 7 * SLICE_MICROS;
const OTHERS_MICROS_MOST: u64 = 15 * SLICE_MICROS;
const FLUSH_EVERY_MICROS: u64 = 25_000;
/// Mutations that a connection keeps under way, and connections.
const CONNECTIONS: u64 = 8;
const PIPELINE: usize = 8;
/// What a step of compaction is about to give back lies on the disk until its end. Files are longer than what is in them.
const BESIDE_BYTES: u64 = 48 * MIB;

/// A set that waits to be admitted.
struct Parked {
    waiter: Waiter,
    number: u32,
    since: u64,
}

struct World {
    rig: Rig,
    disk: Arc<FaultDisk>,
    micros: u64,
    others_micros: u64,
    next_flush: u64,
    parked: Vec<Parked>,
    tickets: u64,
    /// Sets that are offered per second, and those that have been by now.
    offered_per_sec: u64,
    owed: f64,
    paid_until: u64,
    stored: u64,
    /// The highest that space has come to, of its limit.
    most: f64,
}

impl World {
    fn new(others_micros: u64) -> Self {
        let fs = FaultFs::new(1);
        let log = Options {
            segment_bytes: SEGMENT_BYTES,
            segment_bytes_min: SEGMENT_BYTES,
            reserve_bytes: MIB,
            ..Options::default()
        };
        let disk = Arc::new(FaultDisk::seen_through(Arc::new(fs.clone()), fs, log));
        let settings = BucketOptions { shards: 1, quota_bytes: 100 * MIB, ..options(BucketKind::Couchbase) };
        let as_disks = vec![Arc::clone(&disk) as Arc<dyn Disk>];
        Self {
            rig: Rig::over(settings, Arc::default(), as_disks, Clock(0)),
            disk,
            micros: 0,
            others_micros,
            next_flush: 0,
            parked: Vec::new(),
            tickets: 0,
            offered_per_sec: 0,
            owed: 0.0,
            paid_until: 0,
            stored: 0,
            most: 0.0,
        }
    }

    fn pass(&mut self, micros: u64) {
        self.micros += micros;
        self.rig.clock = Clock(self.micros / 1_000);
    }

    fn store(&mut self, number: u32) {
        let now = self.rig.now();
        let value = [self.stored as u8; VALUE_BYTES];
        let stored =
            self.rig.run(&key(number), |bucket, vb, key| bucket.store(vb, key, &Store::set(&value), now));
        assert!(
            stored.is_ok(),
            "after {} ms: {stored:?}, {:?}",
            self.rig.clock.0,
            self.rig.bucket.shortage(now)
        );
        self.stored += 1;
        self.pass(SET_MICROS);
    }

    /// Compaction rests: everybody else works, for as long as they may.
    fn others(&mut self) {
        let until = self.micros + self.others_micros;
        self.flush();
        self.pace();
        self.owed += (self.micros - self.paid_until) as f64 * self.offered_per_sec as f64 / 1e6;
        // Clients have so many connections.
        self.owed = self.owed.min((CONNECTIONS as usize * PIPELINE) as f64);
        self.paid_until = self.micros;
        while self.micros < until && self.owed >= 1.0 && self.parked.len() < CONNECTIONS as usize * PIPELINE {
            self.owed -= 1.0;
            self.offer();
        }
        self.check();
    }

    fn offer(&mut self) {
        self.tickets += 1;
        let number = fastrand::Rng::with_seed(self.tickets).u32(0..DOCUMENTS);
        let waiter = Waiter { worker: 0, connection: self.tickets % CONNECTIONS, ticket: self.tickets };
        if !self.rig.bucket.is_paced() {
            return self.store(number);
        }
        match self.rig.bucket.ask(waiter, VALUE_BYTES as u64, self.rig.now()) {
            Admission::Go => self.store(number),
            Admission::Wait | Admission::WaitAlone => {
                self.parked.push(Parked { waiter, number, since: self.rig.clock.0 });
            }
            Admission::Refuse => panic!("refused at once after {} ms", self.rig.clock.0),
        }
    }

    fn pace(&mut self) {
        self.rig.bucket.pace(self.rig.now());
        for parked in std::mem::take(&mut self.parked) {
            if self.rig.bucket.redeem(parked.waiter) {
                self.store(parked.number);
            } else {
                let waited = self.rig.clock.0 - parked.since;
                assert!(waited < PACED_MILLIS_MAX, "one has waited for {waited} ms, which is refused");
                self.parked.push(parked);
            }
        }
    }

    fn flush(&mut self) {
        if self.micros >= self.next_flush {
            let before = self.rig.bucket.stats().pacing.drained_bytes;
            assert_eq!(self.rig.bucket.flush(0, self.rig.now()).failed, None);
            let drained = self.rig.bucket.stats().pacing.drained_bytes - before;
            self.pass(FLUSH_MICROS * (drained / VALUE_BYTES as u64));
            self.next_flush = self.micros + FLUSH_EVERY_MICROS;
        }
    }

    /// The invariant: files stay below their limit, but for what is about to be given back.
    fn check(&mut self) {
        let (used, limit) = (self.rig.open[0].space().used, self.rig.bucket.space_limit(0));
        self.most = self.most.max(used as f64 / limit as f64);
        let millis = self.rig.clock.0;
        assert!(used <= limit, "after {millis} ms {used} bytes of {limit} are used");
        let on_disk = self.disk.fs.used_bytes();
        assert!(
            on_disk <= limit + BESIDE_BYTES,
            "after {millis} ms {on_disk} bytes of {limit} are on the disk"
        );
    }
}

/// So many seconds in which so many sets are offered per second; returns how many of them were executed.
fn run(world: &Arc<Mutex<World>>, seconds: u64, offered_per_sec: u64) -> u64 {
    let (bucket, until, before) = {
        let mut world = world.lock();
        world.offered_per_sec = offered_per_sec;
        (Arc::clone(&world.rig.bucket), world.micros + seconds * 1_000_000, world.stored)
    };
    let is_over = || world.lock().micros >= until;
    while !is_over() {
        let now = world.lock().rig.now();
        let beside = || {
            let mut world = world.lock();
            world.pass(SLICE_MICROS);
            world.others();
            true
        };
        if !bucket.compact_paced(0, now, &beside).unwrap().more {
            beside();
        }
    }
    world.lock().stored - before
}

/// A bucket with all its documents.
fn filled(others_micros: u64) -> Arc<Mutex<World>> {
    let mut world = World::new(others_micros);
    for number in 0..DOCUMENTS {
        world.store(number);
        world.flush();
    }
    world.rig.warm_up();
    Arc::new(Mutex::new(world))
}

#[test]
fn space_settles_beside_those_who_leave_compaction_what_it_has_in_any_case() {
    let world = filled(OTHERS_MICROS_MOST);
    run(&world, 20, 5_000);
    let paced = world.lock().rig.bucket.stats().pacing;
    assert!(paced.paced > 0 && paced.refused == 0, "{paced:?}");
    let settled = run(&world, 10, 5_000);
    println!("{settled} sets in ten seconds, at most {:.2} of the limit", world.lock().most);
}

#[test]
fn space_settles_however_long_more_is_overwritten_than_is_reclaimed() {
    let world = filled(OTHERS_MICROS);
    let paced = || world.lock().rig.bucket.stats().pacing.paced;

    // What compaction keeps up with is not slowed down, nor is it in short bursts.
    assert!(run(&world, 10, 600) >= 5_900 && paced() == 0);
    run(&world, 1, 5_000);
    assert_eq!(paced(), 0, "so much may be behind");

    // Everything that the processor does without compaction, and more.
    run(&world, 10, 5_000);
    assert!(paced() > 0 && world.lock().rig.bucket.pressure_step() == Pressure::Pacing);
    let now = world.lock().rig.now();
    assert!(world.lock().rig.bucket.shortage(now).unwrap().contains("reclaims"));
    let settled = run(&world, 10, 5_000);
    let stats = world.lock().rig.bucket.stats();
    println!(
        "{settled} sets in ten seconds, at most {:.2} of the limit, {:?}",
        world.lock().most,
        stats.pacing
    );
    assert!(settled > 10_000, "half of what there would be without compaction: {settled}");

    // And it is over when they are.
    run(&world, 10, 600);
    let (before, world) = (paced(), world);
    assert!(run(&world, 5, 600) >= 2_900 && world.lock().rig.bucket.stats().pacing.paced == before);
    assert!(!world.lock().rig.bucket.is_paced());
}
