//! What copies hear of collections that begin and end, and what becomes of durable writes in those that end.

use std::sync::Arc;

use base::{
    CollectionId, Manifest, ManifestUid, Seqno, Status, VbRole,
    bucket::{BucketKind, DurabilityLevel},
    manifest::Collection,
};
use settee_engine::Durable;

use super::{
    A, B, EVERYWHERE, MAJORITY, WAITER, both, get_replica, node, pair, set, status,
    support::pipe::{Pipe, VB},
    turned,
};

/// A manifest whose default scope has these collections beside the default one.
fn manifest(uid: u64, collections: &[u32]) -> Arc<Manifest> {
    let mut manifest = Manifest { uid: ManifestUid(uid), next_id: 20, ..Manifest::default() };
    let scope = &mut manifest.scopes[0];
    let default = scope.collections[0].clone();
    let named = |&id: &u32| Collection { id: CollectionId(id), name: format!("c{id}"), ..default.clone() };
    scope.collections.extend(collections.iter().map(named));
    Arc::new(manifest)
}

#[test]
fn a_new_active_tells_what_the_one_before_did_not_come_to() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    let manifest = manifest(5, &[9]);
    replica.bucket.set_manifest(manifest.clone(), replica.now());
    let before = status(&replica).history.high_seqno;
    pipe.drain(&active, &replica);
    assert_eq!(status(&replica).history.high_seqno, before, "a replica records nothing by itself");
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    assert_eq!(status(&replica).history.high_seqno, Seqno(before.get() + 1));
    set(&replica, b"\x09car", b"v", DurabilityLevel::None).unwrap();
    // And one that was told all is not told again.
    active.bucket.set_manifest(manifest, active.now());
    active.bucket.make_replica(VB, 2).unwrap();
    let mut back = Pipe::connect(&replica, &active, A, 2).unwrap();
    back.drain(&replica, &active);
    active.bucket.activate(VB, 3, both(), active.now()).unwrap();
    assert_eq!(status(&active).history.high_seqno, status(&replica).history.high_seqno);
}

#[test]
fn the_end_of_a_collection_ends_what_is_in_progress_in_it_on_every_copy() {
    let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    active.bucket.set_manifest(manifest(1, &[9]), active.now());
    // In the order of seqnos one that goes on being in progress comes first: what is completed is not told beyond it.
    let kept = set(&active, b"\0k", b"v", EVERYWHERE).unwrap();
    let dropped = set(&active, b"\x09k", b"v", EVERYWHERE).unwrap();
    assert_eq!(active.complete(b"\x09k", &dropped, WAITER), Ok(Durable::Parked));
    active.flush();
    pipe.drain(&active, &replica);
    assert_eq!((status(&active).prepares, status(&replica).prepares), (2, 2));
    active.bucket.set_manifest(manifest(2, &[]), active.now());
    pipe.drain(&active, &replica);
    assert_eq!((status(&active).prepares, status(&replica).prepares), (1, 1));
    assert!(active.recorder.woken.lock().contains(&WAITER), "nobody waits in vain");
    assert_eq!(active.complete(b"\x09k", &dropped, WAITER), Err(Status::SyncWriteAmbiguous));
    // Nor does a restart find it again.
    replica.flush();
    drop(pipe);
    replica = replica.crash();
    assert_eq!(status(&replica).prepares, 1);
    replica.bucket.make_replica(VB, 1).unwrap();
    let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    active.completed(b"\0k", &kept);
    pipe.drain(&active, &replica);
    assert_eq!((status(&active).prepares, status(&replica).prepares), (0, 0));
    assert_eq!(get_replica(&replica, b"\0k").unwrap(), b"v");
}

#[test]
fn a_former_active_does_not_wait_for_an_abort_that_its_successor_knows_nothing_of() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let mut active = node(kind, VbRole::Dead);
        active.bucket.activate(VB, 1, both(), active.now()).unwrap();
        active.bucket.set_manifest(manifest(1, &[9]), active.now());
        set(&active, b"\x09k", b"v", MAJORITY).unwrap();
        active.bucket.set_manifest(manifest(2, &[]), active.now());
        active.flush();
        // A copy that is made now is not told what belongs to the collection any more.
        let successor = node(kind, VbRole::Dead);
        successor.bucket.make_replica(VB, 1).unwrap();
        let mut pipe = Pipe::connect(&active, &successor, B, 1).unwrap();
        active.bucket.seal(VB, 1).unwrap();
        pipe.drain(&active, &successor);
        successor.bucket.activate(VB, 2, turned(), successor.now()).unwrap();
        active.bucket.make_replica(VB, 2).unwrap();
        let mut back = Pipe::connect(&successor, &active, A, 2).unwrap();
        set(&successor, b"\0k", b"v", DurabilityLevel::None).unwrap();
        back.drain(&successor, &active);
        assert_eq!(get_replica(&active, b"\0k").unwrap(), b"v");
        assert_eq!((status(&successor).prepares, status(&active).prepares), (0, 0));
    }
}
