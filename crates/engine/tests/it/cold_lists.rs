//! When a vBucket's list of evicted keys is made anew, and when not.

use std::sync::Arc;

use base::{
    CollectionId, Manifest, ManifestUid,
    bucket::{BucketKind, EvictionPolicy},
    manifest::Collection,
};
use settee_engine::{BucketOptions, Budget, Pool, Store, Waiter};

use crate::{
    full_eviction::{evict_everything, get, key, store},
    support::{Clock, Disk, FaultDisk, MemDisk, MemStore, Rig, options},
};

/// Evicted documents that stay, and of a collection that goes.
const EACH: usize = 4_000;

fn manifest(uid: u64, has_collection: bool) -> Arc<Manifest> {
    let mut manifest = Manifest { uid: ManifestUid(uid), next_id: 100, ..Manifest::default() };
    let collection = Collection { id: CollectionId(8), name: "c".to_owned(), max_ttl_secs: None };
    manifest.scopes[0].collections.extend(has_collection.then_some(collection));
    Arc::new(manifest)
}

/// One vBucket, half of whose list means nothing any more.
fn rig(disk: Arc<dyn Disk>) -> Rig {
    let options = BucketOptions {
        eviction: EvictionPolicy::FullEviction,
        vbuckets: 1,
        shards: 1,
        ..options(BucketKind::Couchbase)
    };
    let mut rig = Rig::over(options, manifest(1, true), vec![disk], Clock(0));
    for number in 0..EACH {
        store(&rig, &key(number), Store::set(b"stays")).unwrap();
        let goes = [b"\x08", key(number).get(1..).unwrap()].concat();
        store(&rig, &goes, Store::set(b"goes")).unwrap();
    }
    rig.flush();
    evict_everything(&rig);
    rig.bucket.set_manifest(manifest(2, false), rig.now());
    rig.flush();
    while rig.bucket.expire(rig.now(), Budget::default()).more {}
    rig
}

/// Without what the store needs to find documents.
fn list_bytes(rig: &Rig) -> u64 {
    rig.bucket.stats().pools.of(Pool::ColdIndex) - rig.open[0].stats().index_bytes
}

fn work(rig: &Rig) {
    while rig.bucket.run_backfills(0, rig.now()).more {}
}

fn assert_made_anew(rig: &Rig, before: u64) {
    let after = list_bytes(rig);
    assert!(after < before * 2 / 3, "{after} bytes of {before}");
    for number in 0..EACH {
        assert_eq!(get(rig, &key(number)).unwrap(), b"stays");
    }
}

#[test]
fn a_list_is_made_anew_after_the_disk_could_not_be_read_for_a_moment() {
    let disk = Arc::new(MemStore::default());
    let mut rig = rig(Arc::new(MemDisk(disk.clone())));
    let before = list_bytes(&rig);
    assert!(rig.bucket.run_backfills(0, rig.now()).more, "a pass has begun");
    disk.set_unreachable(true);
    work(&rig);
    disk.set_unreachable(false);
    assert!(list_bytes(&rig) >= before);
    rig.clock.advance_secs(61);
    work(&rig);
    assert_made_anew(&rig, before);
}

#[test]
fn making_a_list_anew_rests_after_clients_have_been_in_its_way() {
    let mut rig = rig(Arc::new(FaultDisk::new(7, 0)));
    let before = list_bytes(&rig);
    let backfills = |rig: &Rig| rig.open[0].stats().backfills;
    assert!(rig.bucket.run_backfills(0, rig.now()).more);
    assert_eq!(backfills(&rig), 1, "a pass has begun");
    for number in 0..1_000 {
        let (key, waiter) = (key(number), Waiter { worker: 0, connection: number as u64, ticket: 0 });
        let (vb, hashed) = rig.key(&key);
        rig.bucket.fetch(vb, hashed, waiter).unwrap();
    }
    work(&rig);
    assert_eq!(backfills(&rig), 0, "clients go first");
    while rig.bucket.run_fetches(0, 64, rig.now()) > 0 {}
    for _ in 0..50 {
        rig.clock.advance_secs(1);
        assert!(!rig.bucket.run_backfills(0, rig.now()).more, "it rests");
    }
    rig.clock.advance_secs(11);
    work(&rig);
    assert_made_anew(&rig, before);
}
