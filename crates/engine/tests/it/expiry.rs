//! Expiry in bulk: what a step may do, what waits for the disk, how often a vBucket is walked.

use std::sync::Arc;

use crate::support::{Clock, FaultDisk, Rig, START_SECS, options};
use base::{Now, Status, bucket::BucketKind};
use settee_engine::{BucketOptions, Budget, Expiry, Store};

/// As many documents as one hold of a lock looks at.
const STEP: Budget = Budget { items: 64, bytes: 1 << 20 };

/// A bucket in which each document expires at its time, in seconds after the start.
fn rig(vbuckets: u16, expiries: impl Iterator<Item = u64>) -> Rig {
    let options = BucketOptions { vbuckets, ..BucketOptions::new("expiry", 1 << 30) };
    let disk = Arc::new(FaultDisk::new(1, 0));
    let mut rig = Rig::over(options, Arc::default(), vec![disk], Clock(0));
    for (number, secs) in expiries.enumerate() {
        let expiry = Expiry::Wire((START_SECS + secs) as u32);
        let key = format!("\0{number:0>200}").into_bytes();
        let now = rig.now();
        rig.run(&key, |bucket, vb, key| bucket.store(vb, key, &Store { expiry, ..Store::set(b"v") }, now))
            .unwrap();
    }
    rig.flush();
    rig
}

#[test]
fn documents_that_expire_together_go_in_small_steps_as_fast_as_the_disk_takes_their_tombstones() {
    const DOCUMENTS: u64 = 120_000;
    let mut rig = rig(16, (0..DOCUMENTS).map(|_| 1_000));
    rig.clock.advance_secs(2_000);
    // The flusher keeps the clock's ceiling ahead.
    rig.flush();
    let mut rounds = 0;
    let mut expired = 0;
    while expired < DOCUMENTS {
        rounds += 1;
        loop {
            let step = rig.bucket.expire(rig.now(), STEP);
            let stats = rig.bucket.stats();
            assert!(stats.ops.expired - expired <= 2 * 80, "one step, at most two holds");
            expired = stats.ops.expired;
            if !step.more {
                break;
            }
        }
        let stats = rig.bucket.stats();
        assert!(stats.diskqueue_bytes <= 20 << 20, "{} bytes wait for the disk", stats.diskqueue_bytes);
        assert!(stats.diskqueue_items > 0, "every round gets on");
        rig.flush();
    }
    assert!(rounds > 1, "they did not fit into one round");
    assert_eq!(rig.bucket.stats().curr_items, 0);
}

#[test]
fn a_large_vbucket_in_which_something_expires_every_second_is_not_walked_every_second() {
    let mut rig = rig(1, (0..3_000).map(|number| 100 + number / 30));
    let all = Budget::default();
    rig.clock.advance_secs(100);
    rig.flush();
    rig.bucket.expire(rig.now(), all);
    assert!(rig.bucket.stats().ops.expired > 0);
    let mut walks = 0;
    let mut before = rig.bucket.stats().ops.expired;
    for _ in 0..40 {
        rig.flush();
        rig.bucket.expire(rig.now(), all);
        let now = rig.bucket.stats().ops.expired;
        walks += u32::from(now > before);
        before = now;
    }
    assert!((2..=6).contains(&walks), "{walks} walks in 40 seconds");
    // Nobody sees what is overdue meanwhile.
    let overdue = format!("\0{:0>200}", (before + 1).min(2_999)).into_bytes();
    rig.clock.advance_secs(200);
    rig.flush();
    let now = rig.now();
    assert!(rig.run(&overdue, |bucket, vb, key| bucket.get(vb, key, now, |_| ())).is_err());
    rig.bucket.expire(rig.now(), all);
    assert_eq!(rig.bucket.stats().curr_items, 0);
}

/// A clock that was ahead for a while says how long a vBucket rests, and is then set back.
#[test]
fn documents_expire_in_time_after_the_date_was_set_back() {
    let mut rig = rig(1, [5_000].into_iter().chain((0..3_000).map(|_| 1_000_000)));
    rig.clock.advance_secs(10_000);
    rig.flush();
    rig.bucket.expire(rig.now(), Budget::default());
    assert_eq!(rig.bucket.stats().ops.expired, 1);
    let mono_millis = rig.now().mono_millis + 60_000;
    let set_back = |secs: u64| Now { wall_nanos: (START_SECS + secs) * 1_000_000_000, mono_millis };
    let store = Store { expiry: Expiry::Wire((START_SECS + 10) as u32), ..Store::set(b"v") };
    rig.run(b"\0brief", |bucket, vb, key| bucket.store(vb, key, &store, set_back(0))).unwrap();
    rig.flush();
    rig.bucket.expire(set_back(20), Budget::default());
    assert_eq!(rig.bucket.stats().ops.expired, 2);
}

/// A TTL of n seconds is over once n whole seconds have passed, whenever within a second it began.
#[test]
fn a_document_lives_at_least_as_long_as_it_was_given() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral, BucketKind::Memcached] {
        for touched in [false, true] {
            let mut rig = Rig::new(options(kind));
            rig.clock.0 = 950;
            let key = b"\0brief";
            let expiry = if touched { Expiry::Wire(0) } else { Expiry::Wire(1) };
            let store = Store { expiry, ..Store::set(b"v") };
            rig.run(key, |bucket, vb, key| bucket.store(vb, key, &store, rig.now())).unwrap();
            if touched {
                rig.run(key, |bucket, vb, key| bucket.touch(vb, key, 1, rig.now(), |_| ())).unwrap();
            }
            let get = |rig: &Rig| rig.run(key, |bucket, vb, key| bucket.get(vb, key, rig.now(), |_| ()));
            for millis in [950, 1_000, 1_950, 1_999] {
                rig.clock.0 = millis;
                rig.bucket.expire(rig.now(), Budget::default());
                assert_eq!(get(&rig), Ok(()), "{kind:?} after {} ms", millis - 950);
                assert_eq!(rig.bucket.stats().curr_items, 1);
            }
            rig.clock.0 = 2_000;
            assert_eq!(get(&rig), Err(Status::KeyNotFound), "{kind:?}");
        }
    }
}
