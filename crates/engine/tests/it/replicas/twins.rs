//! A replica is told of a key whose hash another one has that it has evicted.

use base::{
    DocKey, HashedKey, VbRole,
    bucket::{BucketKind, EvictionPolicy},
};
use settee_engine::{BucketChange, BucketOptions, Budget, Refusal, ReplicaItem, ReplicaKind};

use super::{Rig, VB, WAITER, get_replica, item, marker, options, told};
use crate::support::twins::twins;

fn evict_everything(rig: &Rig) {
    let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
    rig.bucket.reconfigure(quota(0));
    // The pager gives a document that was just written some turns.
    (0..100).for_each(|_| _ = rig.bucket.page(rig.now(), Budget::default()));
    rig.bucket.reconfigure(quota(rig.options.quota_bytes));
}

/// Takes an item, once the disk has said what it knows of the key.
fn take(rig: &Rig, item: &ReplicaItem<'_>) {
    let inflow = rig.bucket.replica_begin(VB, 1, rig.now()).unwrap().inflow;
    let before = item.seqno.get() - 1;
    rig.bucket.replica_marker(inflow, &marker(before, item.seqno.get(), false), rig.now()).unwrap();
    assert_eq!(rig.bucket.replica_item(inflow, item, rig.now()), Err(Refusal::Fetch));
    rig.bucket.fetch(VB, HashedKey::new(item.key), WAITER).unwrap();
    while rig.bucket.run_fetches(0, 16, rig.now()) > 0 {}
    rig.bucket.replica_item(inflow, item, rig.now()).unwrap();
}

/// The disk cannot say whether the replica has a document under the key. Another one that is evicted is found all the same.
#[test]
fn what_replaces_a_document_that_cannot_be_read_leaves_its_twin() {
    let options = BucketOptions {
        vbuckets: 1,
        shards: 1,
        role: VbRole::Dead,
        replicas: 1,
        eviction: EvictionPolicy::FullEviction,
        ..options(BucketKind::Couchbase)
    };
    let mut replica = Rig::new(options);
    replica.bucket.make_replica(VB, 1).unwrap();
    let [first, second] = twins(1).map(|key| &*key.leak());
    let mutation = |key, seqno| item(ReplicaKind::Mutation, key, seqno);
    told(&replica, &marker(0, 1, false), &[mutation(second, 1)]);
    replica.flush();
    evict_everything(&replica);
    assert_eq!(replica.bucket.stats().evicted, 1);
    replica.stores[0].set_unreadable(true);
    take(&replica, &ReplicaItem { key: DocKey::trusted(first), value: b"anew", ..mutation(first, 2) });
    replica.stores[0].set_unreadable(false);
    assert_eq!(get_replica(&replica, first).unwrap(), b"anew");
    assert_eq!(get_replica(&replica, second).as_deref(), Ok(b"told".as_slice()));
    let stats = replica.bucket.stats();
    assert_eq!((stats.replica.items, stats.evicted), (2, 0));
}
