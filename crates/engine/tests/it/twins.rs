//! Two keys that share their hash are two keys: whatever becomes of one, the other is found.

use std::sync::Arc;

use crate::support::{Clock, Disk, FaultDisk, Rig, options, twins::twins};
use base::{
    Status,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
};
use settee_engine::{BucketChange, BucketOptions, Budget, Delete, Store};

fn store(rig: &Rig, key: &[u8], value: &[u8]) -> Result<(), Status> {
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &Store::set(value), rig.now())).map(drop)
}

fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, rig.now(), |view| view.value.to_vec()))
}

fn delete(rig: &Rig, key: &[u8]) {
    rig.run(key, |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), rig.now())).unwrap();
}

fn full_eviction() -> BucketOptions {
    BucketOptions { eviction: EvictionPolicy::FullEviction, ..options(BucketKind::Couchbase) }
}

fn evict_everything(rig: &Rig) {
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    while rig.bucket.page(rig.now(), Budget::default()).more {}
    rig.bucket.reconfigure(quota(rig.options.quota_bytes));
}

#[test]
fn a_key_that_is_looked_up_during_warm_up_does_not_vouch_for_its_twin() {
    for (eviction, is_first_gone) in [EvictionPolicy::ValueOnly, EvictionPolicy::FullEviction]
        .into_iter()
        .flat_map(|eviction| [(eviction, false), (eviction, true)])
    {
        let mut rig = Rig::new(BucketOptions { eviction, ..options(BucketKind::Couchbase) });
        let [first, second] = twins(rig.bucket.vbuckets());
        store(&rig, &first, b"first").unwrap();
        store(&rig, &second, b"second").unwrap();
        if is_first_gone {
            delete(&rig, &first);
        }
        rig.flush();
        let expected = if is_first_gone { Err(Status::KeyNotFound) } else { Ok(b"first".to_vec()) };
        let rig = rig.crash();
        assert_eq!(get(&rig, &first), expected);
        rig.warm_up();
        assert_eq!(get(&rig, &second).as_deref(), Ok(b"second".as_slice()), "after warm-up");
        let rig = rig.crash();
        assert_eq!(get(&rig, &first), expected);
        assert_eq!(get(&rig, &second).as_deref(), Ok(b"second".as_slice()), "during warm-up");
    }
}

/// The disk cannot say whether there is a document that is replaced. Another one that is evicted is found all the same, and stays
/// on the disk.
#[test]
fn a_document_that_cannot_be_read_does_not_take_its_twin_along() {
    let mut rig = Rig::new(full_eviction());
    let [first, second] = twins(rig.bucket.vbuckets());
    store(&rig, &second, b"second").unwrap();
    rig.flush();
    evict_everything(&rig);
    assert_eq!(rig.bucket.stats().evicted, 1);
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    store(&rig, &first, b"first").unwrap();
    rig.stores.iter().for_each(|store| store.set_unreadable(false));
    assert_eq!(get(&rig, &first).unwrap(), b"first");
    assert_eq!(get(&rig, &second).as_deref(), Ok(b"second".as_slice()));
    assert_eq!((rig.bucket.stats().curr_items, rig.bucket.stats().evicted), (2, 0));
}

/// A durable write replaces it only when it commits, after the next flush.
#[test]
fn a_durable_write_over_a_document_that_cannot_be_read_leaves_its_twin() {
    let mut rig = Rig::new(full_eviction());
    let [first, second] = twins(rig.bucket.vbuckets());
    store(&rig, &second, b"second").unwrap();
    rig.flush();
    evict_everything(&rig);
    rig.stores.iter().for_each(|store| store.set_unreadable(true));
    let durability = DurabilityLevel::MajorityAndPersistActive;
    let request = Store { durability, ..Store::set(b"first") };
    let prepared = rig.run(&first, |bucket, vb, key| bucket.store(vb, key, &request, rig.now())).unwrap();
    assert!(prepared.wait, "it is not committed yet");
    rig.flush();
    rig.stores.iter().for_each(|store| store.set_unreadable(false));
    assert_eq!(get(&rig, &first).unwrap(), b"first");
    assert_eq!(get(&rig, &second).as_deref(), Ok(b"second".as_slice()));
    assert_eq!((rig.bucket.stats().curr_items, rig.bucket.stats().evicted), (2, 0));
}

/// As before, with a tombstone that is damaged, and a log that is compacted and opened again.
#[test]
fn compaction_keeps_the_twin_of_a_document_that_cannot_be_read() {
    let disks: Vec<_> = (0..2).map(|shard| Arc::new(FaultDisk::new(7, shard))).collect();
    let opened = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Disk>).collect();
    let mut rig = Rig::over(full_eviction(), Arc::default(), opened, Clock(0));
    let [first, second] = twins(rig.bucket.vbuckets());
    store(&rig, &first, b"first").unwrap();
    delete(&rig, &first);
    rig.flush();
    store(&rig, &second, b"second").unwrap();
    rig.flush();
    evict_everything(&rig);
    assert_eq!(disks.iter().map(|disk| disk.damage(&first)).sum::<usize>(), 1);
    assert_eq!(
        get(&rig, &first),
        Err(Status::TemporaryFailure),
        "another key may be this one, for all that memory knows"
    );
    store(&rig, &first, b"anew").unwrap();
    rig.flush();
    evict_everything(&rig);
    for shard in 0..2 {
        while rig.bucket.compact_eagerly(shard, rig.now()).unwrap().more {}
    }
    let found = |rig: &Rig| (get(rig, &first).unwrap(), get(rig, &second).unwrap());
    assert_eq!(found(&rig), (b"anew".to_vec(), b"second".to_vec()));
    let rig = rig.crash();
    assert_eq!(found(&rig), (b"anew".to_vec(), b"second".to_vec()));
}
