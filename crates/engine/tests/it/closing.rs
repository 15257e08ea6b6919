//! What a clean stop brings to disk when the disks do not play along, and what it says of the rest.

use std::sync::Arc;

use crate::support::{Clock, Disk, FaultDisk, Rig, options};
use base::{Status, VbId, bucket::BucketKind};
use settee_engine::{BucketOptions, FlushFailure, Store, Unclosed};
use storage::FaultFs;

const DOCUMENTS: u64 = 100;

fn key(n: u64) -> Vec<u8> {
    format!("\0key{n}").into_bytes()
}

fn store(rig: &Rig, n: u64, value: &[u8]) -> Result<(), Status> {
    let now = rig.now();
    let request = Store::set(value);
    rig.run(&key(n), |bucket, vb, key| bucket.store(vb, key, &request, now)).map(drop)
}

fn get(rig: &Rig, n: u64) -> Result<Vec<u8>, Status> {
    let now = rig.now();
    rig.run(&key(n), |bucket, vb, key| bucket.get(vb, key, now, |view| view.value.to_vec()))
}

fn shard_of(rig: &Rig, n: u64) -> usize {
    usize::from(rig.key(&key(n)).0.get()) % rig.bucket.shards()
}

/// With something to write in both shards.
fn dirty_rig() -> Rig {
    let mut rig = Rig::new(BucketOptions { shards: 2, ..options(BucketKind::Couchbase) });
    rig.flush();
    (0..DOCUMENTS).for_each(|n| store(&rig, n, b"acknowledged").unwrap());
    rig
}

/// Loses power after a stop in which shard 0 failed: shard 1 has everything, and begins no new branch of history.
fn assert_that_the_other_shard_is_whole(rig: Rig) {
    let uuid = |rig: &Rig| rig.bucket.vb_state(VbId(1)).unwrap().uuid;
    let before = uuid(&rig);
    let rig = rig.crash();
    for n in (0..DOCUMENTS).filter(|&n| shard_of(&rig, n) == 1) {
        assert_eq!(get(&rig, n).unwrap(), b"acknowledged", "document {n}");
    }
    assert_eq!(uuid(&rig), before, "it was closed cleanly");
}

#[test]
fn a_broken_shard_keeps_no_other_from_being_written_and_closed() {
    let rig = dirty_rig();
    rig.stores[0].fail_sync();
    let unwritten = (0..DOCUMENTS).filter(|&n| shard_of(&rig, n) == 0).count() as u64;
    assert!(unwritten > 0);
    let failed = Unclosed { shard: 0, unwritten, failure: FlushFailure::Poisoned };
    assert_eq!(rig.bucket.close(rig.now()), Err(vec![failed]));
    assert_that_the_other_shard_is_whole(rig);
}

#[test]
fn a_full_shard_keeps_no_other_from_being_written_and_closed() {
    let rig = dirty_rig();
    rig.stores[0].set_full(true);
    let failed = rig.bucket.close(rig.now()).unwrap_err();
    let [Unclosed { shard: 0, unwritten: 1.., failure: FlushFailure::NoSpace }] = failed[..] else {
        panic!("{failed:?}");
    };
    assert_that_the_other_shard_is_whole(rig);
}

#[test]
fn a_bucket_can_be_closed_once_somebody_else_has_made_room() {
    let rig = dirty_rig();
    rig.stores[0].set_full(true);
    assert!(rig.bucket.close(rig.now()).is_err());
    rig.stores[0].set_full(false);
    assert_eq!(rig.bucket.close(rig.now()), Ok(()));
    let rig = rig.crash();
    (0..DOCUMENTS).for_each(|n| assert_eq!(get(&rig, n).unwrap(), b"acknowledged", "document {n}"));
}

/// The compactor has stopped when a bucket is closed; what is dead on the disk would be room enough.
#[test]
fn a_full_disk_on_which_much_is_dead_takes_everything_at_the_stop() {
    let fs = FaultFs::new(12);
    let disk: Arc<dyn Disk> = Arc::new(FaultDisk::over(fs.clone(), 0));
    let options = BucketOptions { shards: 1, vbuckets: 8, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::default(), vec![disk], Clock(0));
    let _ = rig.bucket.compact(0, rig.now()).unwrap();
    fs.set_capacity(Some(fs.used_bytes() + (6 << 20)));
    let value = |round: u64, n: u64| format!("{round:05}-{n:05}").repeat(200).into_bytes();
    let mut newest = vec![0; DOCUMENTS as usize];
    let mut failed = None;
    for round in 1.. {
        for (n, newest) in (0..DOCUMENTS).zip(&mut newest) {
            match store(&rig, n, &value(round, n)) {
                Ok(()) => *newest = round,
                Err(refused) => assert_eq!(refused, Status::TemporaryFailure),
            }
        }
        if failed.is_some() {
            break;
        }
        rig.clock.0 += 200;
        failed = rig.bucket.flush(0, rig.now()).failed;
    }
    assert_eq!(failed, Some(FlushFailure::NoSpace));
    assert!(rig.bucket.stats().queue_size > 0, "something waits for space");
    assert_eq!(rig.bucket.close(rig.now()), Ok(()));
    let rig = rig.crash();
    for (n, &round) in (0..DOCUMENTS).zip(&newest) {
        assert_eq!(get(&rig, n).unwrap(), value(round, n), "document {n}");
    }
}
