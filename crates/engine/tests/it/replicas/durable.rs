//! What durable writes wait for, by their level and by the copies that there are.

use base::{
    Seqno, Status, VbRole, VbUuid,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{Durable, FlushFailure, Refusal, ReplicaKind, Topology, Work};

use super::{
    A, B, EVERYWHERE, MAJORITY, WAITER, alone, both, get, get_replica, item, marker, node, pair, set, status,
    support::{Rig, pipe::VB},
    told,
};

#[test]
fn a_majority_write_waits_for_the_replica_and_for_its_whole_snapshot() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (active, replica, mut pipe) = pair(kind);
        let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
        assert!(prepared.wait);
        set(&active, b"\0l", b"w", DurabilityLevel::None).unwrap();
        assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
        assert_eq!(get(&active, b"\0k"), Err(Status::KeyNotFound));
        // The first item, which is the prepare, is in the middle of the snapshot.
        pipe.step(&active, &replica, 1 << 20, 1);
        assert_eq!(replica.bucket.high_prepared(VB), Ok(Seqno(0)));
        assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
        pipe.drain(&active, &replica);
        assert_eq!(active.completed(b"\0k", &prepared).cas, prepared.cas);
        assert!(active.recorder.woken.lock().contains(&WAITER));
        pipe.drain(&active, &replica);
        assert_eq!(get_replica(&replica, b"\0k").unwrap(), b"v");
        assert_eq!((status(&active).prepares, status(&replica).prepares), (0, 0));
    }
}

#[test]
fn a_write_that_is_to_be_on_disks_waits_for_both_and_holds_back_those_behind_it() {
    let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    let first = set(&active, b"\0k", b"v", EVERYWHERE).unwrap();
    let second = set(&active, b"\0l", b"w", MAJORITY).unwrap();
    active.flush();
    pipe.drain(&active, &replica);
    assert_eq!(replica.bucket.high_prepared(VB), Ok(Seqno(0)), "not synced there");
    for (key, prepared) in [(b"\0k", &first), (b"\0l", &second)] {
        assert_eq!(active.complete(key, prepared, WAITER), Ok(Durable::Parked));
    }
    assert_eq!(replica.bucket.await_high_prepared(pipe.inflow(), Seqno(0), WAITER), Ok(Seqno(0)));
    replica.flush();
    assert!(replica.recorder.woken.lock().contains(&WAITER));
    assert_eq!(replica.bucket.high_prepared(VB), Ok(second.seqno));
    pipe.acknowledge(&active, &replica);
    let (first, second) = (active.completed(b"\0k", &first), active.completed(b"\0l", &second));
    assert!(first.seqno < second.seqno);
}

/// What began before goes by the level that it asked for.
#[test]
fn while_a_node_leaves_durable_writes_of_every_level_wait_for_both_disks() {
    let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    let before = set(&active, b"\0k", b"v", MAJORITY).unwrap();
    active.bucket.set_topology(VB, 1, Topology { to_disk: true, ..both() }, active.now()).unwrap();
    let since = set(&active, b"\0l", b"w", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    active.completed(b"\0k", &before);
    assert_eq!(active.complete(b"\0l", &since, WAITER), Ok(Durable::Parked));
    replica.flush();
    pipe.acknowledge(&active, &replica);
    assert_eq!(active.complete(b"\0l", &since, WAITER), Ok(Durable::Parked), "not synced on the active");
    active.flush();
    active.completed(b"\0l", &since);
    active.bucket.set_topology(VB, 1, both(), active.now()).unwrap();
    let after = set(&active, b"\0m", b"x", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    active.completed(b"\0m", &after);
    assert!(!set(&active, b"\0n", b"y", DurabilityLevel::None).unwrap().wait);
}

#[test]
fn without_enough_copies_nothing_happens_at_all() {
    let active = node(BucketKind::Couchbase, VbRole::Dead);
    active.bucket.activate(VB, 1, alone(A, 2), active.now()).unwrap();
    let before = status(&active).history.high_seqno;
    assert_eq!(set(&active, b"\0k", b"v", MAJORITY), Err(Status::DurabilityImpossible));
    assert_eq!(status(&active).history.high_seqno, before);
    let one_of_two = Topology { chains: vec![vec![A], vec![A, B]], copies: 2, to_disk: false };
    active.bucket.set_topology(VB, 1, one_of_two, active.now()).unwrap();
    assert_eq!(
        set(&active, b"\0k", b"v", MAJORITY),
        Err(Status::DurabilityImpossible),
        "the chain to be counts"
    );
    active.bucket.set_topology(VB, 1, both(), active.now()).unwrap();
    assert!(set(&active, b"\0k", b"v", MAJORITY).unwrap().wait);
    active.bucket.set_topology(VB, 2, alone(A, 1), active.now()).unwrap();
    assert!(!set(&active, b"\0l", b"v", MAJORITY).unwrap().wait, "one copy is its own majority");
    assert_eq!(get(&active, b"\0k").unwrap(), b"v", "of what was in progress too");
}

/// A write that has to be on disks, in a snapshot from 1 to 4.
const PREPARED: Seqno = Seqno(3);

/// A copy that has all of that snapshot, of which all but the last item is synced.
fn synced_inside_a_snapshot(from_disk: bool) -> Rig {
    let mut replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    replica.bucket.replica_accept_log(inflow, &[(VbUuid(77), Seqno(0))], replica.now()).unwrap();
    let begin =
        |replica: &Rig, marker| replica.bucket.replica_marker(inflow, &marker, replica.now()).unwrap();
    let tell = |replica: &Rig, item| replica.bucket.replica_item(inflow, &item, replica.now()).unwrap();
    begin(&replica, marker(0, 1, false));
    tell(&replica, item(ReplicaKind::Mutation, b"\0j", 1));
    replica.flush();
    begin(&replica, marker(1, 4, from_disk));
    tell(&replica, item(ReplicaKind::Mutation, b"\0k", 2));
    tell(&replica, item(ReplicaKind::Prepare { level: EVERYWHERE, deleted: false }, b"\0l", 3));
    replica.flush();
    replica.recorder.work.lock().clear();
    tell(&replica, item(ReplicaKind::Mutation, b"\0m", 4));
    replica
}

/// A kill leaves a copy whole up to where a snapshot began, if what it has synced ends inside. An election takes another copy that
/// has a little of the rest.
#[test]
fn a_write_that_is_to_be_on_disks_is_held_once_a_kill_leaves_its_snapshot_whole() {
    for from_disk in [false, true] {
        let held_after_a_kill = status(&synced_inside_a_snapshot(from_disk).crash()).held;
        assert_eq!(held_after_a_kill, Seqno(1));
        let mut replica = synced_inside_a_snapshot(from_disk);
        assert!(replica.bucket.high_prepared(VB).unwrap() < PREPARED, "what is synced ends inside");
        let said = status(&replica);
        assert_eq!((said.promotable, said.history.persisted), (Seqno(4), held_after_a_kill));
        assert_eq!(*replica.recorder.work.lock(), [Work::Flush(0)], "the rest is synced at once");
        replica.flush();
        assert_eq!(replica.bucket.high_prepared(VB), Ok(PREPARED));
        assert_eq!(status(&replica).history.persisted, Seqno(4));
        assert_eq!(status(&replica.crash()).held, Seqno(4));
    }
}

/// The same of a copy that takes over before the rest is synced. What it commits is whole after a kill.
#[test]
fn a_copy_that_takes_over_commits_what_is_to_be_on_disks_once_a_kill_leaves_it_whole() {
    let mut replica = synced_inside_a_snapshot(false);
    replica.bucket.activate(VB, 2, alone(B, 1), replica.now()).unwrap();
    assert_eq!(status(&replica).prepares, 1, "what is synced ends inside");
    replica.flush();
    assert_eq!(status(&replica).prepares, 0);
}

/// It would wait until a restart, and hold up the vBuckets of other shards on its connection.
#[test]
fn a_copy_on_a_shard_whose_disk_has_failed_waits_for_no_room() {
    let replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let prepare = ReplicaKind::Prepare { level: EVERYWHERE, deleted: false };
    told(&replica, &marker(0, 1, false), &[item(prepare, b"\0j", 1)]);
    replica.stores[0].fail_sync();
    let poisoned = replica.bucket.flush(0, replica.now()).failed;
    assert_eq!(poisoned, Some(FlushFailure::Poisoned));
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    replica.bucket.replica_marker(inflow, &marker(1, 2, false), replica.now()).unwrap();
    let more = item(ReplicaKind::Mutation, b"\0k", 2);
    let refused = replica.bucket.replica_item(inflow, &more, replica.now());
    assert_eq!(refused, Err(Refusal::Status(Status::Internal)));
}
