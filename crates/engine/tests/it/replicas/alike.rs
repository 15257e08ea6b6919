//! Copies of a vBucket are alike, tombstones included, however each came by what it holds.

use base::{
    Cas, Seqno, Status, VbRole,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{
    Change, DocMeta, Expiry, MutationSpec, Precondition, Store, SubdocMutated, SubdocMutation, ValueForm,
    WithMeta, XattrRights,
};

use super::{
    B, MAJORITY, Pipe, ReplicaItem, ReplicaKind, Rig, VB, WAITER, both, delete, item, marker, node, pair,
    status, told, turned,
};

const DELETED: &[u8] = b"\0deleted";
const EXPIRED: &[u8] = b"\0expired";
const DURABLY: &[u8] = b"\0durably";
const BROUGHT: &[u8] = b"\0brought";
const STAGED: &[u8] = b"\0staged";
const KEYS: [&[u8]; 5] = [DELETED, EXPIRED, DURABLY, BROUGHT, STAGED];

fn meta(rig: &Rig, key: &[u8]) -> DocMeta {
    rig.run(key, |bucket, vb, key| bucket.meta(vb, key, rig.now())).unwrap()
}

fn set_with_flags(rig: &Rig, key: &[u8], expiry: u32) {
    let request = Store { flags: 77, expiry: Expiry::Wire(expiry), ..Store::set(b"v") };
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &request, rig.now())).unwrap();
}

fn stage(rig: &Rig) {
    let (path, value) = (&b"txn"[..], &b"1"[..]);
    let change = Change::DictUpsert;
    let specs =
        [MutationSpec { change, path, value, form: ValueForm::Plain, in_xattrs: true, create_parents: true }];
    let mutation = SubdocMutation {
        specs: &specs,
        precondition: Precondition::Absent,
        access_deleted: true,
        create_as_deleted: true,
        revive: false,
        expiry: Expiry::Wire(0),
        flags: Some(77),
        cas: Cas::NONE,
        durability: DurabilityLevel::None,
        rights: XattrRights::default(),
    };
    let done = rig.run(STAGED, |bucket, vb, key| bucket.subdoc_mutate(vb, key, &mutation, rig.now()));
    assert!(matches!(done, Ok(SubdocMutated::Done { deleted: true, .. })), "{done:?}");
}

/// Tombstones of every origin, on the active.
fn delete_all(active: &mut Rig) {
    for key in [DELETED, DURABLY] {
        set_with_flags(active, key, 0);
    }
    set_with_flags(active, EXPIRED, 1);
    delete(active, DELETED, DurabilityLevel::None).unwrap();
    let brought = WithMeta { flags: 77, ..WithMeta::new(Cas(active.now().wall_nanos), 9, b"") };
    active.run(BROUGHT, |bucket, vb, key| bucket.delete_with_meta(vb, key, &brought, active.now())).unwrap();
    stage(active);
    active.clock.advance_secs(5);
    assert!(meta(active, EXPIRED).deleted);
}

/// A tombstone's flags are told to nobody, so the only ones that every copy can have are none.
#[test]
fn a_tombstone_has_no_flags_on_any_copy() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (mut active, mut replica, mut pipe) = pair(kind);
        delete_all(&mut active);
        let durably = delete(&active, DURABLY, MAJORITY).unwrap();
        pipe.drain(&active, &replica);
        assert!(active.complete(DURABLY, &durably, WAITER).is_ok());
        pipe.drain(&active, &replica);
        for flushed in [false, true] {
            for key in KEYS {
                let found = meta(&active, key);
                let name = String::from_utf8_lossy(key);
                assert_eq!(
                    (found.deleted, found.flags),
                    (true, 0),
                    "{name} on a {kind:?} active ({flushed})"
                );
            }
            if kind == BucketKind::Couchbase {
                active.flush();
                replica.flush();
            }
        }
        // A copy that is made later, from disk or table.
        let mut later = node(kind, VbRole::Dead);
        later.bucket.make_replica(VB, 1).unwrap();
        let mut late = Pipe::connect(&active, &later, super::NodeId(2), 1).unwrap();
        late.drain(&active, &later);
        if kind == BucketKind::Couchbase {
            later.flush();
        }
        let of_active = KEYS.map(|key| meta(&active, key));
        active.bucket.seal(VB, 1).unwrap();
        for copy in [&replica, &later] {
            copy.bucket.activate(VB, 2, turned(), copy.now()).unwrap();
            assert_eq!(KEYS.map(|key| meta(copy, key)), of_active, "{kind:?}");
        }
    }
}

/// Flags that an older version wrote into tombstones, or that a node of that version sends with a prepared deletion.
#[test]
fn flags_that_older_versions_gave_to_tombstones_are_not_taken_over() {
    let replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let flagged = |kind, key, seqno| ReplicaItem { flags: 77, value: b"", ..item(kind, key, seqno) };
    let prepare = ReplicaKind::Prepare { level: MAJORITY, deleted: true };
    let items = [
        flagged(ReplicaKind::Mutation, b"\0kept", 1),
        flagged(ReplicaKind::Deletion, DELETED, 2),
        flagged(prepare, DURABLY, 3),
    ];
    told(&replica, &marker(0, 3, false), &items);
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    replica.bucket.acknowledge(VB, 2, super::A, Seqno(99), replica.now()).unwrap();
    assert_eq!(meta(&replica, b"\0kept").flags, 77);
    for key in [DELETED, DURABLY] {
        let found = meta(&replica, key);
        assert_eq!((found.deleted, found.flags), (true, 0));
    }
}

/// A snapshot from disk leaves out what was completed before its end, and says up to where. That is true as well where the
/// rest of the snapshot comes from memory.
#[test]
fn a_snapshot_from_disk_that_goes_on_from_memory_still_completes_what_it_left_out() {
    let replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let prepare = |key, seqno| item(ReplicaKind::Prepare { level: MAJORITY, deleted: false }, key, seqno);
    told(&replica, &marker(0, 2, false), &[prepare(b"\0a", 1), prepare(b"\0b", 2)]);
    assert_eq!(status(&replica).prepares, 2);
    let disk = super::ReplicaMarker { high_completed: Seqno(1), purge_seqno: Seqno(4), ..marker(2, 9, true) };
    told(&replica, &disk, &[item(ReplicaKind::Mutation, b"\0y", 6)]);
    let memory = super::ReplicaMarker { max_visible: Seqno(9), ..marker(6, 10, false) };
    told(&replica, &memory, &[item(ReplicaKind::Mutation, b"\0z", 10)]);
    assert_eq!(status(&replica).prepares, 1, "a's abort was purged");
    assert_eq!(replica.bucket.vb_history(VB).unwrap().purge_seqno, Seqno(4));
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    replica.bucket.acknowledge(VB, 2, super::A, Seqno(99), replica.now()).unwrap();
    let found = replica.run(b"\0a", |bucket, vb, key| bucket.get(vb, key, replica.now(), |_| ()));
    assert_eq!(found, Err(Status::KeyNotFound));
}

/// A copy that was told at last that nothing more comes, and becomes the active, tells its followers so too.
#[test]
fn what_ends_without_an_item_is_told_to_its_end() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (first, second) = (node(kind, VbRole::Dead), node(kind, VbRole::Dead));
        first.bucket.make_replica(VB, 1).unwrap();
        second.bucket.make_replica(VB, 1).unwrap();
        let advance = ReplicaItem { value: b"", ..item(ReplicaKind::Advance, b"\0", 9) };
        let mutation = item(ReplicaKind::Mutation, b"\0k", 3);
        told(&second, &marker(0, 9, true), std::slice::from_ref(&mutation));
        // Keeps what comes in memory.
        told(&first, &marker(0, 9, true), &[mutation, advance]);
        first.bucket.activate(VB, 2, both(), first.now()).unwrap();
        second.bucket.make_replica(VB, 2).unwrap();
        let mut pipe = Pipe::connect(&first, &second, B, 2).unwrap();
        pipe.drain(&first, &second);
        let (told, held) = (status(&first).history.high_seqno, status(&second));
        assert_eq!((held.history.high_seqno, held.complete), (told, true), "{kind:?}");
    }
}
