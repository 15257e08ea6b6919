//! A client that waits for the disk is told in the end, and one that has gone is forgotten.

use std::sync::Arc;

use crate::support::{Clock, FaultDisk, Rig, options};
use base::{
    Seqno, Status,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{Durable, FlushFailure, Store, Wait, Waiter};
use storage::FaultFs;

const KEY: &[u8] = b"\0key";
const OTHER: &[u8] = b"\0other";
const WAITER: Waiter = Waiter { worker: 1, connection: 2, ticket: 3 };

fn rig(fs: &FaultFs) -> Rig {
    let options = settee_engine::BucketOptions { shards: 1, ..options(BucketKind::Couchbase) };
    Rig::over(options, Arc::default(), vec![Arc::new(FaultDisk::over(fs.clone(), 0))], Clock(0))
}

fn set(rig: &mut Rig, key: &[u8], value: &[u8]) {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &Store::set(value), now)).unwrap();
    rig.flush();
}

fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    let now = rig.now();
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, now, |view| view.value.to_vec()))
}

/// Emptying the bucket is what meets the failing disk, not a flush: a client that waits for a flush must learn of it.
#[test]
fn a_shard_that_fails_outside_of_a_flush_still_wakes_who_waits_for_one() {
    let fs = FaultFs::new(2);
    let mut rig = rig(&fs);
    set(&mut rig, OTHER, b"v");
    let (vb, key) = rig.key(KEY);
    let durable =
        Store { durability: DurabilityLevel::PersistToMajority, ..Store::set(b"never acknowledged") };
    let mutated = rig.bucket.store(vb, key, &durable, rig.now()).unwrap();
    assert_eq!(rig.complete(KEY, &mutated, WAITER), Ok(Durable::Parked));
    fs.fail_writes(true);
    assert_eq!(rig.bucket.flush_all(rig.now()), Err(Status::TemporaryFailure));
    assert_eq!(rig.bucket.flush(0, rig.now()).failed, Some(FlushFailure::Poisoned));
    assert_eq!(*rig.recorder.woken.lock(), [WAITER]);
    assert_eq!(rig.complete(KEY, &mutated, WAITER), Err(Status::SyncWriteAmbiguous));
}

/// Clients give up and connections end without the engine hearing of it.
#[test]
fn waiters_for_seqnos_that_never_come_or_are_never_written_do_not_pile_up() {
    let mut rig = rig(&FaultFs::new(3));
    let (vb, key) = rig.key(KEY);
    // A full disk takes it one day.
    let written = rig.bucket.store(vb, key, &Store::set(b"v"), rig.now()).unwrap().seqno;
    for seqno in [Seqno(1 << 40), written] {
        for connection in 0..10_000 {
            rig.clock.0 += 2;
            let waiter = Waiter { connection, ..WAITER };
            assert_eq!(rig.bucket.wait_persisted(vb, seqno, waiter, rig.now()), Ok(Wait::Parked));
        }
        let woken = std::mem::take(&mut *rig.recorder.woken.lock()).len();
        assert!(woken >= 8_000, "{woken}: few are left");
    }
}

/// A connection asks again when it is woken. Were each woken by those that ask again, they would never rest.
#[test]
fn waiters_that_are_still_there_do_not_wake_one_another_for_ever() {
    let mut rig = rig(&FaultFs::new(5));
    rig.clock.advance_secs(60);
    let (vb, _) = rig.key(KEY);
    let mut asking: Vec<_> = (0..3_000).map(|connection| Waiter { connection, ..WAITER }).collect();
    let mut asked = 0;
    while !asking.is_empty() {
        asked += asking.len();
        assert!(asked < 30_000, "3,000 requests");
        for waiter in asking {
            assert_eq!(rig.bucket.wait_persisted(vb, Seqno(1 << 40), waiter, rig.now()), Ok(Wait::Parked));
        }
        asking = std::mem::take(&mut *rig.recorder.woken.lock());
    }
}

#[test]
fn a_warm_up_ends_when_the_bucket_is_about_to_be_closed() {
    let mut rig = rig(&FaultFs::new(4));
    set(&mut rig, KEY, b"v");
    let rig = rig.restart();
    rig.bucket.begin_close();
    assert!(!rig.bucket.warm_up(0, rig.now()).unwrap());
    assert!(!rig.bucket.is_warm());
    let rig = rig.restart();
    rig.warm_up();
    assert_eq!(get(&rig, KEY).unwrap(), b"v");
}
