//! Whoever is refused is told why, whatever the cause; and once that is over there is nothing to be told.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::Arc;

use base::{
    Status,
    bucket::{BucketKind, EvictionPolicy},
};
use settee_engine::{BucketOptions, Delete, DiskRefusals, FlushFailure, Pool};
use support::{
    Clock, Disk, FaultDisk, Rig,
    numbered::{key, rig, set},
    options,
};

const MIB: u64 = 1 << 20;

/// A mutation is refused: what its client is told.
fn refused(rig: &Rig) -> &'static str {
    assert_eq!(set(rig, 0, b"v"), Err(Status::TemporaryFailure));
    rig.bucket.shortage(rig.now()).unwrap()
}

/// Writes such values until that is refused, flushing now and then if told to.
fn fill(rig: &mut Rig, value: &[u8], flushed: bool) -> &'static str {
    for number in 0.. {
        if set(rig, number, value).is_err() {
            break;
        }
        if flushed && number % 1_000 == 0 {
            rig.flush();
        }
    }
    rig.bucket.shortage(rig.now()).unwrap()
}

#[test]
fn a_disk_that_has_too_little_space_left() {
    let rig = rig(64 * MIB);
    set(&rig, 1, b"v").unwrap();
    rig.bucket.set_disk_low(true);
    assert!(refused(&rig).contains("less free space"));
    assert_eq!(rig.bucket.stats().disk_refusals, DiskRefusals { space: 1, ..DiskRefusals::default() });
    let now = rig.now();
    rig.run(&key(1), |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now)).unwrap();
    rig.bucket.set_disk_low(false);
    assert_eq!((set(&rig, 0, b"v"), rig.bucket.shortage(rig.now())), (Ok(()), None));
}

#[test]
fn a_disk_that_is_full() {
    let mut rig = rig(64 * MIB);
    rig.disks.iter().for_each(|disk| disk.set_full(true));
    set(&rig, 0, b"v").unwrap();
    rig.clock.advance_secs(1);
    let failed: Vec<_> = (0..2).map(|shard| rig.bucket.flush(shard, rig.now()).failed).collect();
    assert!(failed.contains(&Some(FlushFailure::NoSpace)), "{failed:?}");
    assert!(refused(&rig).contains("disk is full"));
    rig.disks.iter().for_each(|disk| disk.set_full(false));
    rig.flush();
    assert_eq!((set(&rig, 0, b"v"), rig.bucket.shortage(rig.now())), (Ok(()), None));
}

#[test]
fn a_disk_that_fails() {
    let disk = Arc::new(FaultDisk::new(7, 0));
    let options = BucketOptions { shards: 1, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::default(), vec![Arc::clone(&disk) as Arc<dyn Disk>], Clock(0));
    set(&rig, 0, b"v").unwrap();
    disk.fs.fail_syncs(true);
    rig.clock.advance_secs(1);
    assert_eq!(rig.bucket.flush(0, rig.now()).failed, Some(FlushFailure::Poisoned));
    // Space would not help.
    rig.bucket.set_disk_low(true);
    assert!(refused(&rig).contains("has failed"));
    assert_eq!(rig.bucket.stats().disk_refusals, DiskRefusals { broken: 1, ..DiskRefusals::default() });
}

#[test]
fn a_disk_that_does_not_take_what_is_written() {
    let mut rig = rig(64 * MIB);
    assert!(fill(&mut rig, &vec![7; 100_000], false).contains("waits for the disk"));
    rig.flush();
    rig.clock.advance_secs(3);
    rig.bucket.pace(rig.now());
    assert_eq!((set(&rig, 0, b"v"), rig.bucket.shortage(rig.now())), (Ok(()), None));
}

#[test]
fn a_disk_that_has_not_heard_how_late_it_is() {
    let mut rig = rig(64 * MIB);
    set(&rig, 0, b"v").unwrap();
    rig.clock.advance_secs(200);
    assert!(refused(&rig).contains("CAS"));
    assert_eq!(rig.bucket.stats().disk_refusals, DiskRefusals { ceiling: 1, ..DiskRefusals::default() });
    rig.flush();
    assert_eq!((set(&rig, 0, b"v"), rig.bucket.shortage(rig.now())), (Ok(()), None));
}

#[test]
fn memory_by_whoever_has_it() {
    let mut of_keys = rig(4 * MIB);
    assert!(fill(&mut of_keys, b"", true).contains("keys and metadata"));

    let rig = rig(64 * MIB);
    rig.bucket.hold_bytes(Pool::Connections, 63 * MIB);
    assert!(refused(&rig).contains("requests that wait"));
    rig.bucket.release_bytes(Pool::Connections, 63 * MIB);
    assert_eq!(set(&rig, 0, b"v"), Ok(()));

    let eviction = EvictionPolicy::NoEviction;
    let options = BucketOptions { quota_bytes: 4 * MIB, eviction, ..options(BucketKind::Ephemeral) };
    let mut ephemeral = Rig::new(options);
    assert!(fill(&mut ephemeral, &[7; 1_000], false).contains("eviction policy"));
}

#[test]
fn a_bucket_that_is_being_closed() {
    let rig = rig(64 * MIB);
    rig.bucket.begin_close();
    assert!(refused(&rig).contains("being closed"));
}
