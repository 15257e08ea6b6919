//! Compaction while a bucket is being loaded. It reclaims space before the end. Whatever it moves, and whatever reads and
//! writes meanwhile, every document is there afterwards, in its newest version. What is dead is known to be.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::support::{Clock, Disk, FaultDisk, Rig, numbered::key, options, seeds_of};
use base::{
    Now, Seqno, Status, VbId,
    bucket::{BucketKind, EvictionPolicy},
};
use fastrand::Rng;
use settee_engine::{BucketChange, BucketOptions, Budget, Delete, Store};

const DOCUMENTS: u32 = 2_000;
/// Tombstones are purged that are older.
const PURGE_SECS: u32 = 3_600;
/// What is in a bucket: values by number, none of what was deleted.
type Expected = BTreeMap<u32, Vec<u8>>;

/// What works beside warm-up.
struct Others {
    rng: Rng,
    expected: Expected,
    millis: u64,
    segments_removed: u32,
}

fn value(rng: &mut Rng) -> Vec<u8> {
    vec![rng.u8(..); rng.usize(100..600)]
}

impl Others {
    fn write(&mut self, rig: &Rig) {
        let (number, now) = (self.rng.u32(0..DOCUMENTS), rig.now());
        if self.rng.u8(0..8) > 0 {
            let value = value(&mut self.rng);
            let store =
                rig.run(&key(number), |bucket, vb, key| bucket.store(vb, key, &Store::set(&value), now));
            store.unwrap();
            self.expected.insert(number, value);
        } else {
            let delete = Delete::default();
            let deleted = rig.run(&key(number), |bucket, vb, key| bucket.delete(vb, key, &delete, now));
            let was_there = self.expected.remove(&number).is_some();
            assert_eq!(deleted.map(drop), if was_there { Ok(()) } else { Err(Status::KeyNotFound) });
        }
    }

    fn flush(&mut self, rig: &Rig) {
        for _ in 0..2 {
            // The second tells the store that memory knows what the first has synced.
            self.millis += 1_000;
            assert_eq!(rig.bucket.flush(0, Clock(self.millis).now()).failed, None);
        }
    }

    fn when_tombstones_are_old(&self) -> Now {
        Clock(self.millis + 2_000 * u64::from(PURGE_SECS)).now()
    }

    fn check(&self, rig: &Rig, number: u32) {
        let now = rig.now();
        let read =
            rig.run(&key(number), |bucket, vb, key| bucket.get(vb, key, now, |view| view.value.to_vec()));
        let expected = self.expected.get(&number).cloned().ok_or(Status::KeyNotFound);
        assert_eq!(read, expected, "document {number}");
    }

    /// A moment in which warm-up pauses.
    fn work(&mut self, rig: &Rig) {
        assert!(!rig.bucket.is_warm());
        for _ in 0..self.rng.u32(0..40) {
            self.write(rig);
        }
        if self.rng.bool() {
            self.flush(rig);
        }
        if self.rng.u8(0..3) > 0 {
            let now = self.when_tombstones_are_old();
            let report =
                if self.rng.bool() { rig.bucket.compact(0, now) } else { rig.bucket.compact_eagerly(0, now) };
            let report = report.unwrap();
            self.segments_removed += report.segments_removed;
            // An older version may be in the table, and warm-up may have to begin anew.
            assert_eq!(report.tombstones_purged, 0);
        }
        for _ in 0..10 {
            let number = self.rng.u32(0..DOCUMENTS);
            self.check(rig, number);
        }
    }
}

/// Bytes of records that are the newest of their keys.
fn alive(rig: &Rig) -> u64 {
    let mut newest = BTreeMap::<(u16, Vec<u8>), (Seqno, u64)>::new();
    for vb in 0..rig.bucket.vbuckets() {
        for (seqno, key, value) in rig.on_disk(VbId(vb)) {
            let bytes = (64 + key.len() + value.len()).next_multiple_of(16) as u64;
            let found = newest.entry((vb, key)).or_insert((seqno, bytes));
            *found = (*found).max((seqno, bytes));
        }
    }
    newest.values().map(|found| found.1).sum()
}

fn eject_everything(rig: &Rig) {
    let resize = |quota_bytes| {
        let quota_bytes = Some(quota_bytes);
        rig.bucket.reconfigure(BucketChange { quota_bytes, ..BucketChange::default() });
    };
    resize(0);
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    resize(rig.options.quota_bytes);
}

fn load(seed: u64, eviction: EvictionPolicy) {
    let disk = Arc::new(FaultDisk::new(seed, 0)) as Arc<dyn Disk>;
    let settings = options(BucketKind::Couchbase);
    let options = BucketOptions { shards: 1, eviction, purge_interval_secs: PURGE_SECS, ..settings };
    let rig = Rig::over(options, Arc::default(), vec![disk], Clock(0));
    rig.warm_up();
    let mut others =
        Others { rng: Rng::with_seed(seed), expected: Expected::default(), millis: 0, segments_removed: 0 };
    for _ in 0..60 {
        (0..100).for_each(|_| others.write(&rig));
        others.flush(&rig);
    }
    let rig = rig.crash();
    let others = RefCell::new(others);
    while rig.bucket.warm_up_pausing(0, rig.now(), &|| others.borrow_mut().work(&rig)).unwrap() {}
    let mut others = others.into_inner();
    assert!(rig.bucket.is_warm());
    assert!(others.segments_removed > 0, "space comes back before the end");
    others.flush(&rig);
    assert_eq!(rig.bucket.stats().curr_items, others.expected.len() as u64);
    eject_everything(&rig);
    (0..DOCUMENTS).for_each(|number| others.check(&rig, number));

    // What is dead is known: so much and no more is reclaimed.
    (0..2_000).for_each(|_| others.write(&rig));
    others.flush(&rig);
    if eviction == EvictionPolicy::ValueOnly {
        let (counted, alive) = (rig.open[0].stats().bytes_live, alive(&rig));
        let error = counted.abs_diff(alive) as f64 / alive as f64;
        assert!(error < 0.02, "{counted} bytes are thought to be alive, {alive} are");
    }
    let mut purged = 0;
    loop {
        let report = rig.bucket.compact_eagerly(0, others.when_tombstones_are_old()).unwrap();
        purged += report.tombstones_purged;
        if !report.more {
            break;
        }
    }
    assert!(purged > 0, "now they go");
    (0..DOCUMENTS).for_each(|number| others.check(&rig, number));
    let rig = rig.crash();
    rig.warm_up();
    (0..DOCUMENTS).for_each(|number| others.check(&rig, number));
}

/// Twelve seeds, unless `LOADING_SEED` and `LOADING_SEEDS` say otherwise.
fn seeds() -> Range<u64> {
    seeds_of(("LOADING_SEED", "LOADING_SEEDS"), 0..12)
}

#[test]
fn compaction_beside_warm_up_loses_nothing() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        load(seed, EvictionPolicy::ValueOnly);
    }
}

#[test]
fn compaction_beside_warm_up_loses_nothing_where_keys_are_evicted() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        load(seed, EvictionPolicy::FullEviction);
    }
}
