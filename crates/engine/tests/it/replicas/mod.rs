//! Replicas: what they hold, what they acknowledge, and what becomes of both when roles change and nodes die.

mod alike;
mod collections;
mod durable;
mod followers;
mod gaps;
mod going_back;
mod remembering;
mod taken_over;
mod twins;

use std::sync::Arc;

use crate::support::{
    self, Clock, Disk, FaultDisk, MemDisk, MemStore, Rig, options,
    pipe::{Pipe, Step, VB},
};
use base::{
    Cas, Datatype, DocKey, HashedKey, NodeId, Seqno, Status, VbRole, VbUuid,
    bucket::{BucketKind, DurabilityLevel, EvictionPolicy},
};
use settee_engine::{
    BucketChange, BucketOptions, Budget, Delete, Durable, FeedOptions, FeedStep, Mutated, Refusal,
    ReplicaItem, ReplicaKind, ReplicaMarker, Store, StoreMode, Topology, Waiter, Work,
};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const MAJORITY: DurabilityLevel = DurabilityLevel::Majority;
const EVERYWHERE: DurabilityLevel = DurabilityLevel::PersistToMajority;
const WAITER: Waiter = Waiter { worker: 1, connection: 2, ticket: 3 };

fn node(kind: BucketKind, role: VbRole) -> Rig {
    Rig::new(BucketOptions { vbuckets: 1, shards: 1, role, replicas: 1, ..options(kind) })
}

/// A node over a disk whose bits the test can flip.
fn node_on(disk: Arc<FaultDisk>, role: VbRole) -> Rig {
    let options =
        BucketOptions { vbuckets: 1, shards: 1, role, replicas: 1, ..options(BucketKind::Couchbase) };
    Rig::over(options, Arc::default(), vec![disk as Arc<dyn Disk>], Clock(0))
}

fn both() -> Topology {
    Topology { chains: vec![vec![A, B]], copies: 2, to_disk: false }
}

/// One of so many copies.
fn alone(node: NodeId, copies: u8) -> Topology {
    Topology { chains: vec![vec![node]], copies, to_disk: false }
}

/// The same two after the second has taken over.
fn turned() -> Topology {
    Topology { chains: vec![vec![B, A]], copies: 2, to_disk: false }
}

/// An active and a replica of it, connected.
fn pair(kind: BucketKind) -> (Rig, Rig, Pipe) {
    let (active, replica) = (node(kind, VbRole::Dead), node(kind, VbRole::Dead));
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    replica.bucket.make_replica(VB, 1).unwrap();
    let pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    (active, replica, pipe)
}

fn set(rig: &Rig, key: &[u8], value: &[u8], durability: DurabilityLevel) -> Result<Mutated, Status> {
    let request = Store { durability, ..Store::set(value) };
    rig.run(key, |bucket, vb, key| bucket.store(vb, key, &request, rig.now()))
}

fn delete(rig: &Rig, key: &[u8], durability: DurabilityLevel) -> Result<Mutated, Status> {
    let request = Delete { durability, ..Delete::default() };
    rig.run(key, |bucket, vb, key| bucket.delete(vb, key, &request, rig.now()))
}

fn get(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    rig.run(key, |bucket, vb, key| bucket.get(vb, key, rig.now(), |view| view.value.to_vec()))
}

fn get_replica(rig: &Rig, key: &[u8]) -> Result<Vec<u8>, Status> {
    rig.run(key, |bucket, vb, key| bucket.get_replica(vb, key, rig.now(), |view| view.value.to_vec()))
}

fn status(rig: &Rig) -> settee_engine::VbStatus {
    rig.bucket.vb_status(VB).unwrap()
}

/// What a client's feed tells from the beginning: keys and values.
fn told_to_clients(rig: &Rig) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut feed = rig.bucket.feed(VB, FeedOptions::default(), WAITER).unwrap();
    let mut told = Vec::new();
    for _ in 0..10 {
        while rig.bucket.run_backfills(0, rig.now()).more {}
        if let FeedStep::Batch(batch) = feed.next(1 << 20, rig.now()).unwrap() {
            let items = batch.items.iter();
            told.extend(items.map(|item| (item.key().encoded().to_vec(), item.value().to_vec())));
        }
    }
    told
}

/// An item told by hand.
fn item(kind: ReplicaKind, key: &'static [u8], seqno: u64) -> ReplicaItem<'static> {
    ReplicaItem {
        kind,
        key: DocKey::trusted(key),
        seqno: Seqno(seqno),
        cas: Cas(seqno << 16),
        rev: seqno,
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        value: b"told",
    }
}

fn marker(start: u64, end: u64, from_disk: bool) -> ReplicaMarker {
    let (start, end, none) = (Seqno(start), Seqno(end), Seqno(0));
    ReplicaMarker { start, end, from_disk, max_visible: end, high_completed: none, purge_seqno: none }
}

/// A replica, told by hand under a history that is not its own.
fn told(rig: &Rig, marker: &ReplicaMarker, items: &[ReplicaItem<'_>]) {
    let start = rig.bucket.replica_begin(VB, 1, rig.now()).unwrap();
    rig.bucket.replica_accept_log(start.inflow, &[(VbUuid(77), Seqno(0))], rig.now()).unwrap();
    rig.bucket.replica_marker(start.inflow, marker, rig.now()).unwrap();
    items.iter().for_each(|item| rig.bucket.replica_item(start.inflow, item, rig.now()).unwrap());
}

#[test]
fn clients_are_served_by_the_active_only() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"v", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    let refused = Err(Status::NotMyVbucket);
    assert_eq!(get(&replica, b"\0k"), refused);
    assert_eq!(set(&replica, b"\0k", b"w", DurabilityLevel::None).map(|_| Vec::new()), refused);
    assert_eq!(delete(&replica, b"\0k", DurabilityLevel::None).map(|_| Vec::new()), refused);
    assert_eq!(get_replica(&replica, b"\0k").unwrap(), b"v");
    assert_eq!(get_replica(&replica, b"\0none"), Err(Status::KeyNotFound));
    assert_eq!(get_replica(&active, b"\0k"), refused);
    let last = active.bucket.seal(VB, 1).unwrap();
    assert_eq!(last, status(&active).history.high_seqno);
    assert_eq!(get(&active, b"\0k"), refused);
    assert_eq!(active.bucket.vb_role(VB), Ok((VbRole::Sealed, 1)));
    replica.bucket.make_dead(VB, 1).unwrap();
    assert_eq!(get_replica(&replica, b"\0k"), refused);
}

#[test]
fn copies_are_equal_and_counted_apart() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (active, replica, mut pipe) = pair(kind);
        for n in 0..50_u8 {
            set(&active, &[0, n], &[n; 40], DurabilityLevel::None).unwrap();
        }
        delete(&active, &[0, 7], DurabilityLevel::None).unwrap();
        pipe.drain(&active, &replica);
        let (of_active, of_replica) = (active.bucket.stats(), replica.bucket.stats());
        assert_eq!((of_active.curr_items, of_active.replica.items), (49, 0));
        assert_eq!((of_replica.curr_items, of_replica.replica.items), (0, 49));
        assert_eq!(of_replica.replica.item_bytes, of_active.active.item_bytes);
        let (of_active, of_replica) = (status(&active), status(&replica));
        assert_eq!(of_active.history.high_seqno, of_replica.history.high_seqno);
        assert_eq!(of_active.history.log, of_replica.history.log);
        assert!(of_replica.complete && of_replica.snapshot.is_none());
    }
}

#[test]
fn nothing_expires_on_a_replica_until_the_active_says_so() {
    let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    let request = Store { expiry: settee_engine::Expiry::Wire(5), ..Store::set(b"v") };
    active.run(b"\0k", |bucket, vb, key| bucket.store(vb, key, &request, active.now())).unwrap();
    pipe.drain(&active, &replica);
    for rig in [&mut active, &mut replica] {
        rig.clock.advance_secs(60);
    }
    replica.bucket.expire(replica.now(), settee_engine::Budget::default());
    assert_eq!(replica.bucket.stats().replica.items, 1);
    assert_eq!(get_replica(&replica, b"\0k"), Err(Status::KeyNotFound), "but nobody is shown it");
    active.bucket.expire(active.now(), settee_engine::Budget::default());
    pipe.drain(&active, &replica);
    assert_eq!(replica.bucket.stats().replica.items, 0);
}

#[test]
fn acknowledgements_are_of_one_term() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
    active.bucket.set_topology(VB, 2, both(), active.now()).unwrap();
    pipe.drain(&active, &replica);
    assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
    assert_eq!(active.bucket.acknowledge(VB, 1, B, prepared.seqno, active.now()), Err(Status::NotMyVbucket));
    active.bucket.acknowledge(VB, 2, B, prepared.seqno, active.now()).unwrap();
    active.completed(b"\0k", &prepared);
    assert_eq!(active.bucket.set_topology(VB, 1, both(), active.now()), Err(Status::Invalid));
    assert_eq!(active.bucket.seal(VB, 1), Err(Status::Invalid));
}

#[test]
fn a_write_whose_time_is_up_is_aborted_everywhere() {
    let (mut active, replica, mut pipe) = pair(BucketKind::Couchbase);
    let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
    active.clock.advance_secs(31);
    active.bucket.time_out_durable(active.now());
    assert_eq!(active.complete(b"\0k", &prepared, WAITER), Err(Status::SyncWriteAmbiguous));
    pipe.drain(&active, &replica);
    assert_eq!(status(&replica).prepares, 0);
    assert_eq!(get_replica(&replica, b"\0k"), Err(Status::KeyNotFound));
    assert_eq!(status(&replica).history.high_seqno, status(&active).history.high_seqno);
}

#[test]
fn an_abort_whose_prepare_left_no_trace_stays_invisible() {
    let mut replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let marker = ReplicaMarker { max_visible: Seqno(0), ..marker(0, 2, true) };
    told(&replica, &marker, &[item(ReplicaKind::Abort { prepared: Seqno(1) }, b"\0k", 2)]);
    assert_eq!(status(&replica).history.max_visible, Seqno(0));
    replica.flush();
    let restarted = replica.restart();
    let history = status(&restarted).history;
    assert_eq!((history.high_seqno, history.prepared, history.max_visible), (Seqno(2), Seqno(1), Seqno(0)));
}

#[test]
fn promotion_takes_over_what_is_in_progress_and_neither_loses_nor_invents() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (active, mut replica, mut pipe) = pair(kind);
        set(&active, b"\0old", b"1", DurabilityLevel::None).unwrap();
        let kept = set(&active, b"\0kept", b"v", MAJORITY).unwrap();
        let deletion = delete(&active, b"\0old", MAJORITY).unwrap();
        while status(&replica).prepares < 2 {
            assert_eq!(pipe.step(&active, &replica, 1 << 20, usize::MAX), Step::Moved);
        }
        // Acknowledged and committed there, and nobody has heard of that; and one that nobody else has heard of.
        active.completed(b"\0kept", &kept);
        set(&active, b"\0lost", b"x", MAJORITY).unwrap();
        let before = status(&replica).history.clone();
        replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
        let after = status(&replica).history;
        assert_eq!(after.log[0].1, before.high_seqno, "the branch begins where the copy ends");
        assert_ne!(after.uuid, before.uuid);
        assert_eq!(status(&replica).prepares, 2);
        // Clients may have been answered: neither the version before is to be seen nor its absence.
        for key in [&b"\0kept"[..], b"\0old"] {
            let uncommitted = Status::SyncWriteReCommitInProgress;
            assert_eq!(get(&replica, key), Err(uncommitted));
            let (vb, hashed) = replica.key(key);
            assert_eq!(replica.bucket.observe(vb, hashed, replica.now()).err(), Some(uncommitted.into()));
            assert_eq!(set(&replica, key, b"n", DurabilityLevel::None), Err(Status::SyncWriteInProgress));
            let replace = Store { mode: StoreMode::Replace, ..Store::set(b"n") };
            let replaced = replica.run(key, |bucket, vb, key| bucket.store(vb, key, &replace, replica.now()));
            assert_eq!(replaced, Err(Status::SyncWriteInProgress));
        }
        // Feeds tell what is committed, in the order in which it is.
        assert_eq!(told_to_clients(&replica), [(b"\0old".to_vec(), b"1".to_vec())]);
        replica.clock.advance_secs(1_000);
        replica.flush();
        replica.bucket.time_out_durable(replica.now());
        assert_eq!(status(&replica).prepares, 2, "they may have been acknowledged: no time is up for them");
        replica.bucket.acknowledge(VB, 2, A, deletion.seqno, replica.now()).unwrap();
        assert_eq!(get(&replica, b"\0kept").unwrap(), b"v");
        assert_eq!(get(&replica, b"\0old"), Err(Status::KeyNotFound));
        assert_eq!(get(&replica, b"\0lost"), Err(Status::KeyNotFound));
        let cas = set(&replica, b"\0new", b"n", DurabilityLevel::None).unwrap().cas;
        assert!(cas > kept.cas && cas > deletion.cas);
    }
}

#[test]
fn a_writer_that_waits_at_a_handover_is_answered_by_what_the_next_active_does() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
    assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
    let last = active.bucket.seal(VB, 1).unwrap();
    pipe.drain(&active, &replica);
    assert_eq!((status(&replica).promotable, status(&active).history.high_seqno), (last, last));
    assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked), "sealed is sealed");
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    active.bucket.make_replica(VB, 2).unwrap();
    let mut back = Pipe::connect(&replica, &active, A, 2).unwrap();
    assert_eq!(status(&active).history.high_seqno, last, "nothing to roll back");
    back.drain(&replica, &active);
    let committed = active.completed(b"\0k", &prepared);
    assert_eq!((committed.cas, committed.vb_uuid), (prepared.cas, status(&replica).history.uuid));
    assert!(active.recorder.woken.lock().contains(&WAITER));
}

#[test]
fn a_drained_active_brings_what_is_in_progress_to_its_end_before_it_leaves() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (mut active, mut replica, mut pipe) = pair(kind);
        let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
        assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
        assert_eq!(active.bucket.drain(VB, 1, active.now()), Ok(Some(0)));
        // Whatever is not durable goes on.
        assert_eq!(set(&active, b"\0l", b"v", MAJORITY), Err(Status::NotMyVbucket));
        set(&active, b"\0l", b"w", DurabilityLevel::None).unwrap();
        assert_eq!(delete(&active, b"\0l", MAJORITY), Err(Status::NotMyVbucket));
        assert_eq!(get(&active, b"\0l").unwrap(), b"w");
        active.clock.advance_secs(1);
        assert_eq!(active.bucket.drain(VB, 1, active.now()), Ok(Some(1_000)));
        assert_eq!(active.bucket.vb_role(VB), Ok((VbRole::Active, 1)));
        pipe.drain(&active, &replica);
        assert_eq!(active.bucket.drain(VB, 1, active.now()), Ok(None));
        let last = active.bucket.seal(VB, 1).unwrap();
        pipe.drain(&active, &replica);
        replica.bucket.activate(VB, 2, alone(B, 1), replica.now()).unwrap();
        active.bucket.make_dead(VB, 2).unwrap();
        assert!(active.recorder.woken.lock().contains(&WAITER));
        let committed = active.completed(b"\0k", &prepared);
        assert_eq!(committed, Mutated { seqno: committed.seqno, wait: false, ..prepared });
        assert!(committed.seqno <= last);
        assert_eq!(get(&replica, b"\0k").unwrap(), b"v");
        assert_eq!((status(&replica).prepares, status(&replica).history.high_seqno), (0, last));
        // It is told once, like everything else that waits.
        assert_eq!(active.complete(b"\0k", &prepared, WAITER), Err(Status::SyncWriteAmbiguous));
        [&mut active, &mut replica].into_iter().for_each(|rig| rig.clock.advance_secs(60));
        replica.bucket.time_out_durable(replica.now());
        assert_eq!(status(&replica).history.high_seqno, last);
    }
}

#[test]
fn what_is_not_drained_in_time_is_ambiguous_to_the_writer_and_committed_once() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
    assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
    assert_eq!(active.bucket.drain(VB, 1, active.now()), Ok(Some(0)));
    let last = active.bucket.seal(VB, 1).unwrap();
    assert_eq!(active.bucket.drain(VB, 1, active.now()), Ok(None), "sealed is sealed");
    pipe.drain(&active, &replica);
    assert_eq!((status(&active).prepares, status(&active).history.high_seqno), (1, last));
    replica.bucket.activate(VB, 2, alone(B, 1), replica.now()).unwrap();
    active.bucket.make_dead(VB, 2).unwrap();
    assert!(active.recorder.woken.lock().contains(&WAITER));
    assert_eq!(active.complete(b"\0k", &prepared, WAITER), Err(Status::SyncWriteAmbiguous));
    assert_eq!(get(&replica, b"\0k").unwrap(), b"v");
    assert_eq!((status(&replica).prepares, status(&replica).history.high_seqno), (0, last.next()));
}

#[test]
fn an_active_is_drained_for_one_term() {
    let (active, replica, _) = pair(BucketKind::Couchbase);
    assert_eq!(active.bucket.drain(VB, 0, active.now()), Err(Status::Invalid));
    // Nobody follows it in the term that it knows: waiting is in vain.
    set(&active, b"\0k", b"v", MAJORITY).unwrap();
    assert_eq!(active.bucket.drain(VB, 2, active.now()), Ok(None));
    assert!(set(&active, b"\0l", b"v", MAJORITY).is_ok());
    assert_eq!(replica.bucket.drain(VB, 1, replica.now()), Ok(None));
    assert_eq!(active.bucket.drain(VB, 1, active.now()), Ok(Some(0)));
    assert_eq!(set(&active, b"\0m", b"v", MAJORITY), Err(Status::NotMyVbucket));
    // The handover was called off.
    active.bucket.set_topology(VB, 2, both(), active.now()).unwrap();
    assert!(set(&active, b"\0m", b"v", MAJORITY).is_ok());
    assert_eq!(status(&active).prepares, 3);
}

#[test]
fn a_writer_that_waits_is_not_told_a_later_write_for_its_own() {
    for is_their_own in [true, false] {
        let (active, _, _) = pair(BucketKind::Couchbase);
        let prepared = set(&active, b"\0k", b"v", MAJORITY).unwrap();
        assert_eq!(active.complete(b"\0k", &prepared, WAITER), Ok(Durable::Parked));
        let last = active.bucket.seal(VB, 1).unwrap();
        active.bucket.make_replica(VB, 2).unwrap();
        // The next active goes on from there; from its disk it tells of the key's newest version alone.
        let inflow = active.bucket.replica_begin(VB, 2, active.now()).unwrap().inflow;
        let mut log = vec![(VbUuid(77), last)];
        log.extend(active.bucket.failover_log(VB).unwrap());
        active.bucket.replica_accept_log(inflow, &log, active.now()).unwrap();
        let (begin, end) = (last.get(), last.get() + 4);
        let disk = ReplicaMarker { high_completed: last, ..marker(begin, end, true) };
        active.bucket.replica_marker(inflow, &disk, active.now()).unwrap();
        let newest = item(ReplicaKind::Mutation, b"\0k", end);
        let cas = if is_their_own { prepared.cas } else { newest.cas };
        active.bucket.replica_item(inflow, &ReplicaItem { cas, ..newest }, active.now()).unwrap();
        match active.complete(b"\0k", &prepared, WAITER) {
            Ok(Durable::Committed(committed)) => assert!(is_their_own && committed.seqno == Seqno(end)),
            // It may have been aborted before that.
            other => assert!(!is_their_own && other == Err(Status::SyncWriteAmbiguous), "{other:?}"),
        }
    }
}

#[test]
fn a_replica_killed_inside_a_snapshot_knows_it() {
    let mut replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let mutation = |seqno| item(ReplicaKind::Mutation, b"\0k", seqno);
    told(&replica, &marker(0, 9, true), &[mutation(3), item(ReplicaKind::Mutation, b"\0l", 5)]);
    assert!(!status(&replica).complete);
    replica.flush();
    replica = replica.crash();
    let found = status(&replica);
    assert_eq!((found.complete, found.snapshot), (false, Some((Seqno(0), Seqno(9)))));
    assert!(found.unconfirmed);
    replica.bucket.make_replica(VB, 1).unwrap();
    assert_eq!(replica.bucket.activate(VB, 2, turned(), replica.now()), Err(Status::NotMyVbucket));
    let start = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap();
    assert_eq!((start.start, start.snap_start, start.snap_end), (Seqno(5), Seqno(0), Seqno(9)));
    told(&replica, &marker(0, 9, true), &[mutation(9)]);
    assert!(status(&replica).complete);
    // The second one: complete it stays, but only up to where that began.
    told(&replica, &marker(9, 20, false), &[mutation(12), item(ReplicaKind::Mutation, b"\0m", 14)]);
    replica.flush();
    replica = replica.crash();
    let found = status(&replica);
    assert_eq!((found.complete, found.promotable), (true, Seqno(9)));
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    assert_eq!(status(&replica).history.log[0].1, Seqno(9));
    replica = replica.crash();
    assert_eq!(status(&replica).snapshot, None, "as a promoted one it is whole");
    assert_eq!(status(&replica).history.log[0].1, Seqno(9), "and its branch was synced before it was served");
}

#[test]
fn a_batch_that_ends_inside_a_whole_snapshot_is_recorded_as_such() {
    let options = BucketOptions {
        vbuckets: 1,
        shards: 1,
        role: VbRole::Dead,
        part_bytes_max: 64,
        ..options(BucketKind::Couchbase)
    };
    let mut replica = Rig::new(options);
    replica.bucket.make_replica(VB, 1).unwrap();
    let items: [ReplicaItem<'_>; 3] =
        [(b"\0a", 1), (b"\0b", 2), (b"\0c", 3)].map(|(key, seqno)| item(ReplicaKind::Mutation, key, seqno));
    told(&replica, &marker(0, 3, false), &items);
    assert!(status(&replica).complete);
    replica.clock.0 += 1_000;
    let report = replica.bucket.flush(0, replica.now());
    assert!(report.synced && report.more, "{report:?}");
    assert!(status(&replica).history.persisted < Seqno(3));
    replica = replica.crash();
    assert!(!status(&replica).complete);
    assert_eq!(status(&replica).snapshot, Some((Seqno(0), Seqno(3))));
}

#[test]
fn what_came_already_is_ignored_and_what_does_not_fit_refused() {
    let replica = node(BucketKind::Couchbase, VbRole::Dead);
    let refused = |refusal: Result<(), Refusal>| refusal.err();
    assert_eq!(replica.bucket.replica_begin(VB, 1, replica.now()).err(), Some(Status::NotMyVbucket));
    replica.bucket.make_replica(VB, 1).unwrap();
    assert_eq!(replica.bucket.replica_begin(VB, 2, replica.now()).err(), Some(Status::NotMyVbucket));
    let mutation = |seqno| item(ReplicaKind::Mutation, b"\0k", seqno);
    let stale = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    told(&replica, &marker(0, 5, false), &[mutation(2), mutation(2), mutation(1)]);
    assert_eq!(status(&replica).history.high_seqno, Seqno(2));
    let void = Some(Refusal::Status(Status::NotMyVbucket));
    assert_eq!(refused(replica.bucket.replica_item(stale, &mutation(3), replica.now())), void);
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    let range = Some(Refusal::Status(Status::Range));
    assert_eq!(refused(replica.bucket.replica_item(inflow, &mutation(3), replica.now())), range, "no marker");
    let marks = |marker| replica.bucket.replica_marker(inflow, &marker, replica.now());
    assert_eq!(marks(marker(3, 9, false)), Err(Status::Range), "a gap");
    assert_eq!(marks(marker(2, 4, false)), Err(Status::Range), "shorter than the open one");
    marks(marker(0, 6, false)).unwrap();
    assert_eq!(refused(replica.bucket.replica_item(inflow, &mutation(7), replica.now())), range);
    let commit = item(ReplicaKind::Commit { prepared: Seqno(1) }, b"\0k", 4);
    let unprepared = Some(Refusal::Status(Status::Invalid));
    assert_eq!(refused(replica.bucket.replica_item(inflow, &commit, replica.now())), unprepared);
    replica.bucket.make_replica(VB, 2).unwrap();
    assert_eq!(refused(replica.bucket.replica_item(inflow, &mutation(6), replica.now())), void);
    assert_eq!(replica.bucket.make_replica(VB, 1), Err(Status::Invalid));
}

#[test]
fn an_abort_that_a_snapshot_from_disk_leaves_out_is_an_abort_all_the_same() {
    let replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let prepare = |key, seqno| item(ReplicaKind::Prepare { level: MAJORITY, deleted: false }, key, seqno);
    told(&replica, &marker(0, 3, false), &[prepare(b"\0a", 1), prepare(b"\0b", 2), prepare(b"\0c", 3)]);
    assert_eq!((status(&replica).prepares, replica.bucket.high_prepared(VB)), (3, Ok(Seqno(3))));
    // Compaction has dropped both a's prepare and its abort, and b is committed; c is open.
    let disk = ReplicaMarker { high_completed: Seqno(2), ..marker(3, 9, true) };
    told(&replica, &disk, &[item(ReplicaKind::Mutation, b"\0b", 6), item(ReplicaKind::Mutation, b"\0z", 9)]);
    assert_eq!(status(&replica).prepares, 1);
    assert_eq!(get_replica(&replica, b"\0a"), Err(Status::KeyNotFound));
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    replica.bucket.acknowledge(VB, 2, A, Seqno(99), replica.now()).unwrap();
    assert_eq!(
        (get(&replica, b"\0a"), get(&replica, b"\0c")),
        (Err(Status::KeyNotFound), Ok(b"told".to_vec()))
    );
}

#[test]
fn what_has_to_be_on_disk_is_not_held_before_the_branch_is() {
    let (active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    let prepared = set(&active, b"\0k", b"v", EVERYWHERE).unwrap();
    pipe.drain(&active, &replica);
    replica.flush();
    assert_eq!(replica.bucket.high_prepared(VB), Ok(prepared.seqno));
    // The same active again, in a later term: it goes on behind the prepare, on a branch of its own.
    active.bucket.seal(VB, 1).unwrap();
    active.bucket.activate(VB, 2, both(), active.now()).unwrap();
    replica.bucket.make_replica(VB, 2).unwrap();
    replica.recorder.work.lock().clear();
    pipe = Pipe::connect(&active, &replica, B, 2).unwrap();
    assert_eq!(status(&replica).branch, status(&active).branch);
    assert!(replica.bucket.high_prepared(VB).unwrap() < prepared.seqno);
    assert!(
        replica.recorder.work.lock().iter().any(|work| matches!(work, Work::Flush(_))),
        "it asks for that"
    );
    replica.flush();
    assert_eq!(replica.bucket.high_prepared(VB), Ok(prepared.seqno));
    let branch = status(&replica).branch;
    replica = replica.crash();
    assert_eq!((status(&replica).branch, replica.bucket.high_prepared(VB)), (branch, Ok(prepared.seqno)));
    drop(pipe);
}

#[test]
fn a_copy_is_on_a_branch_once_it_has_everything_up_to_its_beginning() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    let third = node(BucketKind::Couchbase, VbRole::Dead);
    set(&active, b"\0k", b"1", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    set(&active, b"\0l", b"2", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    third.bucket.make_replica(VB, 1).unwrap();
    let mut slow = Pipe::connect(&active, &third, NodeId(2), 1).unwrap();
    slow.step(&active, &third, 1, 1);
    let before = status(&active).branch;
    set(&active, b"\0m", b"never replicated", MAJORITY).unwrap();
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    let after = status(&replica).branch;
    assert!(after.generation() > before.generation());
    // The one before has more, of an older generation.
    active.bucket.make_replica(VB, 2).unwrap();
    assert_eq!(status(&active).branch, before);
    assert!(status(&active).held > status(&replica).held);
    third.bucket.make_replica(VB, 2).unwrap();
    let mut slow = Pipe::connect(&replica, &third, NodeId(2), 2).unwrap();
    assert_eq!(status(&third).history.uuid, after, "heard of it");
    assert_eq!(status(&third).branch, before, "and is not there yet");
    slow.drain(&replica, &third);
    assert_eq!(status(&third).branch, after);
}

#[test]
fn open_prepares_survive_a_restart_of_a_replica() {
    for level in [MAJORITY, EVERYWHERE] {
        let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
        let prepared = set(&active, b"\0k", b"v", level).unwrap();
        active.flush();
        pipe.drain(&active, &replica);
        replica.flush();
        drop(pipe);
        replica = replica.crash();
        replica.warm_up();
        assert_eq!((status(&replica).prepares, replica.bucket.high_prepared(VB)), (1, Ok(prepared.seqno)));
        replica.bucket.make_replica(VB, 1).unwrap();
        let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
        active.completed(b"\0k", &prepared);
        pipe.drain(&active, &replica);
        assert_eq!((status(&replica).prepares, get_replica(&replica, b"\0k").unwrap()), (0, b"v".to_vec()));
    }
}

#[test]
fn a_damaged_open_prepare_makes_its_key_unreadable_and_nothing_else() {
    let disk = Arc::new(FaultDisk::new(3, 0));
    let mut active = node_on(disk.clone(), VbRole::Dead);
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    set(&active, b"\0k", b"the version before", DurabilityLevel::None).unwrap();
    set(&active, b"\0l", b"another document", DurabilityLevel::None).unwrap();
    set(&active, b"\0k", b"prepared and never committed", MAJORITY).unwrap();
    active.flush();
    assert_eq!(disk.damage(b"prepared and never committed"), 1);
    active = active.crash();
    active.warm_up();
    active.bucket.activate(VB, 2, alone(A, 1), active.now()).unwrap();
    for _ in 0..3 {
        assert_eq!(get(&active, b"\0k"), Err(Status::TemporaryFailure), "neither the old version nor none");
        assert_eq!(get(&active, b"\0l").unwrap(), b"another document");
    }
    set(&active, b"\0k", b"written again", DurabilityLevel::None).unwrap();
    assert_eq!(get(&active, b"\0k").unwrap(), b"written again");
    active.flush();
    active = active.crash();
    active.warm_up();
    active.bucket.activate(VB, 3, alone(A, 1), active.now()).unwrap();
    assert_eq!(get(&active, b"\0k").unwrap(), b"written again");
}

#[test]
fn an_abort_of_what_was_never_prepared_here_changes_nothing() {
    let mut replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    told(&replica, &marker(0, 1, false), &[item(ReplicaKind::Mutation, b"\0k", 1)]);
    let abort = |seqno| item(ReplicaKind::Abort { prepared: Seqno(2) }, b"\0k", seqno);
    for from_disk in [false, true] {
        let high = status(&replica).history.high_seqno.get();
        told(&replica, &marker(high, high + 2, from_disk), &[abort(high + 2)]);
        for _ in 0..2 {
            let found = status(&replica);
            assert_eq!((found.history.high_seqno, found.prepares), (Seqno(high + 2), 0));
            assert!(found.complete && found.snapshot.is_none());
            assert_eq!(get_replica(&replica, b"\0k").unwrap(), b"told");
            replica.flush();
            replica = replica.crash();
            replica.warm_up();
            replica.bucket.make_replica(VB, 1).unwrap();
        }
    }
    // One that names the prepare of another key is no abort of it.
    let prepare = item(ReplicaKind::Prepare { level: MAJORITY, deleted: false }, b"\0l", 6);
    told(&replica, &marker(5, 7, false), &[prepare]);
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    replica.bucket.replica_marker(inflow, &marker(5, 7, false), replica.now()).unwrap();
    let stray = item(ReplicaKind::Abort { prepared: Seqno(6) }, b"\0k", 7);
    let refused = Err(Refusal::Status(Status::Invalid));
    assert_eq!(replica.bucket.replica_item(inflow, &stray, replica.now()), refused);
    let found = status(&replica);
    assert_eq!((found.complete, found.prepares), (false, 1));
}

#[test]
fn what_a_promoted_copy_commits_replaces_what_it_has_on_disk_only() {
    let (active, mut replica) =
        (node(BucketKind::Couchbase, VbRole::Dead), node_on(Arc::new(FaultDisk::new(5, 0)), VbRole::Dead));
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    replica.bucket.make_replica(VB, 1).unwrap();
    let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    set(&active, b"\0k", b"on disk only", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    replica.flush();
    let change = |quota_bytes| BucketChange {
        quota_bytes: Some(quota_bytes),
        eviction: Some(EvictionPolicy::FullEviction),
        ..BucketChange::default()
    };
    replica.bucket.reconfigure(change(0));
    // The pager gives a document that was just written some turns.
    (0..100).for_each(|_| _ = replica.bucket.page(replica.now(), Budget::default()));
    replica.bucket.reconfigure(change(replica.options.quota_bytes));
    assert_eq!(replica.bucket.stats().evicted, 1);
    let prepared = set(&active, b"\0k", b"prepared", MAJORITY).unwrap();
    while status(&replica).prepares == 0 {
        assert_eq!(pipe.step(&active, &replica, 1 << 20, usize::MAX), Step::Moved);
    }
    drop(pipe);
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    replica.bucket.acknowledge(VB, 2, A, prepared.seqno, replica.now()).unwrap();
    for _ in 0..3 {
        while replica.bucket.run_fetches(0, 16, replica.now()) > 0 {}
        replica.bucket.time_out_durable(replica.now());
    }
    assert_eq!(status(&replica).prepares, 0);
    assert_eq!(
        (get(&replica, b"\0k").unwrap(), replica.bucket.stats().curr_items),
        (b"prepared".to_vec(), 1)
    );
}

#[test]
fn a_copy_is_promoted_though_the_disk_is_full() {
    let (active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"v", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    drop(pipe);
    replica.flush();
    replica.stores[0].set_full(true);
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    replica.stores[0].set_full(false);
    replica = replica.crash();
    assert_eq!(status(&replica).history.log[0].1, Seqno(1), "its branch is on disk");
}

#[test]
fn dropped_contents_are_gone_for_good() {
    let store = Arc::new(MemStore::default());
    let disks = vec![Arc::new(MemDisk(store.clone())) as Arc<dyn Disk>];
    let options =
        BucketOptions { vbuckets: 1, shards: 1, role: VbRole::Dead, ..options(BucketKind::Couchbase) };
    let mut rig = Rig::over(options, Arc::default(), disks, Clock(0));
    rig.bucket.activate(VB, 1, alone(A, 1), rig.now()).unwrap();
    set(&rig, b"\0k", b"v", DurabilityLevel::None).unwrap();
    rig.flush();
    assert_eq!(rig.bucket.drop_vb(VB, rig.now()), Err(Status::NotMyVbucket), "not while it is served");
    rig.bucket.make_dead(VB, 2).unwrap();
    assert!(status(&rig).complete && status(&rig).history.high_seqno > Seqno(0), "dead is not dropped");
    // A caller does not wait for the disk, and the disk is not asked for every one of them.
    rig.bucket.drop_vb(VB, rig.now()).unwrap();
    assert!(status(&rig).history.high_seqno > Seqno(0));
    rig.flush();
    assert!(status(&rig).history.high_seqno > Seqno(0));
    // It is of use after all.
    rig.bucket.make_replica(VB, 3).unwrap();
    rig.clock.advance_secs(10);
    rig.flush();
    assert!(rig.bucket.replica_begin(VB, 3, rig.now()).is_ok());
    assert!(status(&rig).history.high_seqno > Seqno(0));
    rig.bucket.make_dead(VB, 3).unwrap();
    rig.bucket.drop_vb(VB, rig.now()).unwrap();
    rig.clock.advance_secs(10);
    rig.flush();
    for _ in 0..2 {
        let found = status(&rig);
        assert_eq!((found.complete, found.history.high_seqno), (false, Seqno(0)));
        rig = rig.crash();
    }
    rig.bucket.activate(VB, 3, alone(A, 1), rig.now()).unwrap();
    let hashed = HashedKey::new(DocKey::trusted(b"\0k"));
    assert_eq!(rig.bucket.get(VB, hashed, rig.now(), |_| ()), Err(Status::KeyNotFound.into()));
}

#[test]
fn two_actives_never_write_on_one_branch() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    pipe.drain(&active, &replica);
    assert_eq!(
        status(&replica).history.uuid,
        status(&active).history.uuid,
        "nothing was written, but it is heard of"
    );
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    assert_ne!(status(&replica).history.uuid, status(&active).history.uuid);
    let before = status(&replica).history.uuid;
    replica.bucket.make_replica(VB, 3).unwrap();
    replica.bucket.activate(VB, 4, turned(), replica.now()).unwrap();
    assert_ne!(status(&replica).history.uuid, before);
}
