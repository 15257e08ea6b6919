//! What a bucket does as its quota fills: the steps in their order, who passes at each, and what the reserve is for.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use base::{Cas, Status, bucket::BucketKind};
use settee_engine::{
    Admission, BucketChange, BucketOptions, Budget, Delete, Pool, Pressure, SHARD_QUOTA_MAX, Store, Waiter,
    WithMeta, Work,
};
use support::{Rig, options};

const MIB: u64 = 1 << 20;

fn rig(quota_bytes: u64) -> Rig {
    Rig::new(BucketOptions { quota_bytes, ..options(BucketKind::Couchbase) })
}

fn key(number: u32) -> Vec<u8> {
    format!("\0key{number:08}").into_bytes()
}

fn set(rig: &Rig, number: u32, value: &[u8]) -> Result<(), Status> {
    let now = rig.now();
    rig.run(&key(number), |bucket, vb, key| bucket.store(vb, key, &Store::set(value), now)).map(drop)
}

fn step(rig: &Rig) -> Pressure {
    rig.bucket.pace(rig.now()).step
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
        if step == Pressure::Pacing {
            assert!(rig.bucket.is_paced() && rig.bucket.shortage().unwrap().contains("memory"));
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
    let mut rig = rig(100 * MIB);
    let value = vec![7; 100_000];
    (0..250).for_each(|number| set(&rig, number, &value).unwrap());
    assert_eq!(step(&rig), Pressure::Pacing);
    let mut answers = Vec::new();
    for ticket in 0..200 {
        answers.push(rig.bucket.ask(waiter(ticket), 100_000, rig.now()));
    }
    // First any number per connection, then one each, then none.
    let first = |wanted| answers.iter().position(|answer| *answer == wanted).unwrap();
    assert!(first(Admission::Wait) < first(Admission::WaitAlone));
    assert!(first(Admission::WaitAlone) < first(Admission::Refuse));
    let stats = rig.bucket.stats().pacing;
    assert!(stats.waiting_bytes < 8 * MIB && stats.refused > 0, "{stats:?}");
    rig.clock.advance_secs(1);
    (0..200).for_each(|ticket| rig.bucket.give_up(waiter(ticket), rig.now()));
    assert_eq!(rig.bucket.stats().pacing.waiting, 0);
}

#[test]
fn deletions_of_what_is_not_there_end_with_the_reserve() {
    let rig = rig(4 * MIB);
    let now = rig.now();
    let mut refused = None;
    for number in 0..100_000 {
        // Looking whether a tombstone is on disk wakes whoever asked.
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
