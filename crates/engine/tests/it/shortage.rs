//! A client that is refused is told why, whatever the cause; once that is over it is told nothing.

use std::sync::Arc;

use crate::support::{
    Clock, Disk, FaultDisk, Rig, mutation,
    numbered::{key, rig, set},
    options,
};
use base::{
    Cas, Datatype, Status,
    bucket::{BucketKind, EvictionPolicy},
};
use settee_engine::{
    BucketOptions, Change, Delete, DiskRefusals, FlushFailure, MutationSpec, Pool, Store, ValueCodec,
    ValueForm, WithMeta, subdoc::xattr::Builder,
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

fn attributes(bytes: usize) -> Vec<u8> {
    let mut attributes = Builder::default();
    attributes.set(b"_large", format!("\"{}\"", "x".repeat(bytes)).as_bytes());
    attributes.finish()
}

fn delete_by_parts(rig: &Rig, number: u32, large: bool) -> Result<(), Status> {
    let value = format!("\"{}\"", "x".repeat(500_000));
    let spec = |change, path, value, in_xattrs| MutationSpec {
        change,
        path,
        value,
        form: ValueForm::Plain,
        in_xattrs,
        create_parents: false,
    };
    let specs = [
        spec(Change::DictUpsert, b"_large", value.as_bytes(), true),
        spec(Change::DeleteDocument, b"", b"", false),
    ];
    let mutation = mutation(&specs[usize::from(!large)..]);
    let now = rig.now();
    rig.run(&key(number), |bucket, vb, key| bucket.subdoc_mutate(vb, key, &mutation, now)).map(drop)
}

fn delete_with_meta(rig: &Rig, number: u32, value: &[u8]) -> Result<(), Status> {
    let now = rig.now();
    let datatype = if value.is_empty() { Datatype::RAW } else { Datatype::XATTR };
    let with_meta = WithMeta { datatype, ..WithMeta::new(Cas(now.wall_nanos), 7, value) };
    rig.run(&key(number), |bucket, vb, key| bucket.delete_with_meta(vb, key, &with_meta, now)).map(drop)
}

/// What a deletion brings may be larger than what it deletes.
#[test]
fn a_deletion_that_grows_what_is_there_is_no_way_around_a_disk_with_too_little_space() {
    let rig = rig(64 * MIB);
    (0..4).for_each(|number| set(&rig, number, b"{}").unwrap());
    rig.bucket.set_disk_low(true);
    let refused = Err(Status::TemporaryFailure);
    assert_eq!((delete_by_parts(&rig, 0, true), delete_by_parts(&rig, 0, false)), (refused, Ok(())));
    let (large, none) = (attributes(500_000), Vec::new());
    for number in [1, 5] {
        assert_eq!(delete_with_meta(&rig, number, &large), refused, "{number}");
        assert_eq!(delete_with_meta(&rig, number, &none), Ok(()), "{number}");
    }
    assert_eq!(rig.bucket.stats().disk_refusals.space, 3);
    rig.bucket.set_disk_low(false);
    assert_eq!((delete_by_parts(&rig, 2, true), delete_with_meta(&rig, 3, &large)), (Ok(()), Ok(())));
}

#[test]
fn nor_around_the_quota() {
    let mut rig = rig(8 * MIB);
    (0..200).for_each(|number| set(&rig, number, b"{}").unwrap());
    rig.flush();
    let large = attributes(500_000);
    let by_parts = (0..100).take_while(|number| delete_by_parts(&rig, *number, true).is_ok()).count();
    let with_meta = (100..200).take_while(|number| delete_with_meta(&rig, *number, &large).is_ok()).count();
    assert!(by_parts < 20 && with_meta < 20, "{by_parts} {with_meta} of half a MiB each");
    rig.flush();
    assert_eq!((delete_by_parts(&rig, 150, true), delete_with_meta(&rig, 151, &large)), (Ok(()), Ok(())));
}

/// A tombstone keeps its attributes inflated.
#[test]
fn nor_is_one_of_a_document_whose_attributes_are_compressed() {
    let codec = ValueCodec {
        inflate: |_, into| {
            into.extend_from_slice(&attributes(500_000));
            true
        },
        inflated_len: |_| attributes(500_000).len(),
        ..ValueCodec::opaque()
    };
    let rig = Rig::new(BucketOptions { codec, quota_bytes: 64 * MIB, ..options(BucketKind::Couchbase) });
    let (now, datatype) = (rig.now(), Datatype::SNAPPY.with(Datatype::XATTR));
    let compressed = Store { datatype, ..Store::set(b"half a MiB") };
    rig.run(&key(1), |bucket, vb, key| bucket.store(vb, key, &compressed, now)).unwrap();
    rig.bucket.set_disk_low(true);
    assert_eq!(delete_by_parts(&rig, 1, false), Err(Status::TemporaryFailure));
    rig.bucket.set_disk_low(false);
    assert_eq!(delete_by_parts(&rig, 1, false), Ok(()));
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

/// What is dirty on a shard with a broken disk never drains: a writer that waited for that would wait until a restart.
#[test]
fn a_shard_whose_disk_fails_paces_no_writer_of_another() {
    let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard))).collect();
    let stores = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
    let mut rig = Rig::over(options(BucketKind::Couchbase), Arc::default(), stores, Clock(0));
    let numbers_of = |rig: &Rig, shard: u16| -> Vec<u32> {
        (0..1_000).filter(|&number| rig.key(&key(number)).0.get() % 2 == shard).collect()
    };
    let (broken, sound) = (numbers_of(&rig, 1), numbers_of(&rig, 0));
    let value = vec![7; 100_000];
    broken
        .iter()
        .take_while(|_| rig.bucket.pressure_percent() == 0)
        .for_each(|&n| set(&rig, n, &value).unwrap());
    let is_paced = |rig: &Rig| {
        rig.bucket.pace(rig.now());
        rig.bucket.is_paced()
    };
    assert!(is_paced(&rig), "half of what may be dirty is");
    disks[1].fs.fail_syncs(true);
    rig.clock.advance_secs(1);
    assert_eq!(rig.bucket.flush(1, rig.now()).failed, Some(FlushFailure::Poisoned));
    assert_eq!((rig.bucket.pressure_percent(), is_paced(&rig)), (0, false));
    assert_eq!(set(&rig, broken[0], b"v"), Err(Status::TemporaryFailure));
    assert_eq!(set(&rig, sound[0], b"v"), Ok(()));
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
fn memory_by_its_holder() {
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
