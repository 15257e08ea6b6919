//! Copies that begin anew, because they have what the active never had or lack what they should have. Also: what a copy in
//! the making is until it is whole.

use std::sync::Arc;

use base::{
    DocKey, Seqno, Status, VbId, VbRole, VbUuid,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{
    BucketChange, BucketOptions, Budget, Durable, Inflow, ReplicaItem, ReplicaKind, Topology, Work,
};

use super::{
    A, B, MAJORITY, WAITER, both, get, get_replica, item, marker, node, node_on, pair, set, status,
    support::{
        FaultDisk, Rig, options,
        pipe::{Pipe, Step, VB},
    },
    told, turned,
};

#[test]
fn a_demoted_active_that_had_more_than_its_successor_begins_anew() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"1", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    set(&active, b"\0k", b"2", DurabilityLevel::None).unwrap();
    let waits = set(&active, b"\0l", b"2", MAJORITY).unwrap();
    assert_eq!(active.complete(b"\0l", &waits, WAITER), Ok(Durable::Parked));
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    set(&replica, b"\0m", b"3", DurabilityLevel::None).unwrap();
    active.bucket.make_replica(VB, 2).unwrap();
    let incarnation = status(&active).complete;
    let mut back = Pipe::connect(&replica, &active, A, 2).unwrap();
    assert!(incarnation && !status(&active).complete, "what it builds is no copy yet");
    assert!(active.recorder.woken.lock().contains(&WAITER));
    assert_eq!(active.complete(b"\0l", &waits, WAITER), Err(Status::SyncWriteAmbiguous));
    back.drain(&replica, &active);
    assert!(status(&active).complete);
    assert_eq!(get_replica(&active, b"\0k").unwrap(), b"1");
    assert_eq!(get_replica(&active, b"\0l"), Err(Status::KeyNotFound));
    assert_eq!(status(&active).history.log, status(&replica).history.log);
}

/// An active, and a replica of it over that disk, connected.
fn pair_on(disk: &Arc<FaultDisk>) -> (Rig, Rig, Pipe) {
    let active = node(BucketKind::Couchbase, VbRole::Dead);
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    let replica = node_on(disk.clone(), VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    (active, replica, pipe)
}

#[test]
fn a_replica_that_cannot_read_what_it_prepared_is_built_anew() {
    let disk = Arc::new(FaultDisk::new(4, 0));
    let (active, mut replica, mut pipe) = pair_on(&disk);
    let prepared = set(&active, b"\0k", b"prepared, and to be committed", MAJORITY).unwrap();
    pipe.step(&active, &replica, 1 << 20, usize::MAX);
    replica.flush();
    active.completed(b"\0k", &prepared);
    drop(pipe);
    assert_eq!(disk.damage(b"prepared, and to be committed"), 1);
    replica = replica.crash();
    assert!(status(&replica).held < prepared.seqno, "what it cannot read it does not hold");
    replica.bucket.make_replica(VB, 1).unwrap();
    let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    assert!(!status(&replica).complete);
    pipe.drain(&active, &replica);
    replica.warm_up();
    assert_eq!(get_replica(&replica, b"\0k").unwrap(), b"prepared, and to be committed");
}

/// The log passes over a record of which not even the key can be read, and has counted it before anybody looks for prepares.
#[test]
fn a_replica_that_cannot_even_read_the_key_of_what_it_prepared_is_built_anew() {
    const KEY: &[u8] = b"\0key of what is prepared";
    for restarts in [0, 2] {
        let disk = Arc::new(FaultDisk::new(4, 0));
        let (active, mut replica, mut pipe) = pair_on(&disk);
        let prepared = set(&active, KEY, b"v", MAJORITY).unwrap();
        pipe.step(&active, &replica, 1 << 20, usize::MAX);
        replica.flush();
        active.completed(KEY, &prepared);
        drop(pipe);
        if restarts > 0 {
            replica = replica.restart();
        }
        assert!(disk.damage(KEY) > 0);
        replica = replica.crash();
        for _ in 0..restarts {
            replica = replica.restart();
        }
        let found = status(&replica);
        assert!(found.held < prepared.seqno && found.may_lack, "what it cannot read it does not hold");
        replica.bucket.make_replica(VB, 1).unwrap();
        let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
        pipe.drain(&active, &replica);
        replica.warm_up();
        assert_eq!(get_replica(&replica, KEY).unwrap(), b"v");
    }
}

#[test]
fn a_copy_that_lacks_a_prepare_is_none_and_is_built_anew() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let (active, mut replica, mut pipe) = pair(kind);
        set(&active, b"\0k", b"1", DurabilityLevel::None).unwrap();
        pipe.drain(&active, &replica);
        let prepared = set(&active, b"\0k", b"2", MAJORITY).unwrap();
        pipe.forget_prepares();
        pipe.drain(&active, &replica);
        let found = status(&replica);
        assert_eq!((found.history.high_seqno, found.prepares), (prepared.seqno, 0));
        assert!(found.complete, "it does not know");
        active.bucket.acknowledge(VB, 1, B, prepared.seqno, active.now()).unwrap();
        active.completed(b"\0k", &prepared);
        assert_eq!(pipe.drain(&active, &replica), Step::Broken);
        assert!(!status(&replica).complete, "what it has acknowledged it does not have");
        assert_eq!(replica.bucket.activate(VB, 2, turned(), replica.now()), Err(Status::NotMyVbucket));
        if kind == BucketKind::Couchbase {
            replica.flush();
            replica = replica.crash();
            replica.warm_up();
            assert!(!status(&replica).complete, "nor after a restart");
            replica.bucket.make_replica(VB, 1).unwrap();
        }
        let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
        assert_eq!(status(&replica).history.high_seqno, Seqno(0));
        assert_eq!(pipe.drain(&active, &replica), Step::Idle);
        assert!(status(&replica).complete);
        assert_eq!(get_replica(&replica, b"\0k").unwrap(), b"2");
        assert_eq!(status(&replica).history.high_seqno, status(&active).history.high_seqno);
    }
}

#[test]
fn a_copy_that_is_built_anew_counts_once_it_has_what_was_prepared_before() {
    let (mut active, mut replica) =
        (node(BucketKind::Couchbase, VbRole::Dead), node(BucketKind::Couchbase, VbRole::Dead));
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    set(&active, b"\0k", b"1", DurabilityLevel::None).unwrap();
    active.flush();
    let prepared = set(&active, b"\0l", b"2", MAJORITY).unwrap();
    replica.bucket.make_replica(VB, 1).unwrap();
    told(&replica, &marker(0, 2, false), &[item(ReplicaKind::Mutation, b"\0other", 2)]);
    replica.flush();
    let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    assert!(!status(&replica).complete, "what it had is gone");
    pipe.drain(&active, &replica);
    assert!(!status(&replica).complete, "and what it may have acknowledged cannot be read yet");
    replica.flush();
    replica = replica.crash();
    assert!(!status(&replica).complete, "a restart does not make it a copy");
    replica.bucket.make_replica(VB, 1).unwrap();
    pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    active.flush();
    pipe.drain(&active, &replica);
    let found = status(&replica);
    assert!(found.complete && found.history.high_seqno >= prepared.seqno, "{found:?}");
    replica.flush();
    pipe.acknowledge(&active, &replica);
    active.completed(b"\0l", &prepared);
}

/// Brings an item as often as there is no room for it, the disk writing meanwhile; how often that was.
fn bring(replica: &mut Rig, inflow: Inflow, item: &ReplicaItem<'_>) -> usize {
    for waited in 0..100 {
        match replica.bucket.replica_item(inflow, item, replica.now()) {
            Ok(()) => return waited,
            Err(refusal) => assert_eq!(refusal, Status::TemporaryFailure.into()),
        }
        let called = std::mem::take(&mut *replica.recorder.work.lock());
        assert!(called.contains(&Work::Flush(0)), "the waiting thread has called it");
        replica.flush();
        replica.bucket.page(replica.now(), Budget::default());
    }
    panic!("there is never any room");
}

#[test]
fn what_a_copy_is_caught_up_with_leaves_clients_what_may_be_dirty() {
    let mut replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    replica.bucket.replica_accept_log(inflow, &[(VbUuid(77), Seqno(0))], replica.now()).unwrap();
    let value = vec![7; 256 << 10];
    let share = replica.options.quota_bytes / 10 + 2 * value.len() as u64;
    let keys: Vec<[u8; 2]> = (0..200).map(|n| [0, n]).collect();
    let document = |seqno: u64| ReplicaItem {
        key: DocKey::trusted(&keys[seqno as usize]),
        value: &value,
        ..item(ReplicaKind::Mutation, b"\0", seqno)
    };
    replica.bucket.replica_marker(inflow, &marker(0, 100, true), replica.now()).unwrap();
    let mut waited = 0;
    for seqno in 1..=100 {
        waited += bring(&mut replica, inflow, &document(seqno));
        assert!(replica.bucket.stats().diskqueue_bytes <= share);
        assert_eq!(replica.bucket.pressure_percent(), 0, "no client is paced for it");
    }
    assert!(waited >= 3 && status(&replica).complete);
    // A writer waits for a whole copy, which is given everything.
    replica.flush();
    replica.bucket.replica_marker(inflow, &marker(100, 140, false), replica.now()).unwrap();
    let waited: usize = (101..=140).map(|seqno| bring(&mut replica, inflow, &document(seqno))).sum();
    assert_eq!(waited, 0);
    assert!(replica.bucket.stats().diskqueue_bytes > share);
    // Behind, and told from disk, it waits again.
    replica.flush();
    replica.bucket.replica_marker(inflow, &marker(140, 190, true), replica.now()).unwrap();
    let waited: usize = (141..=190).map(|seqno| bring(&mut replica, inflow, &document(seqno))).sum();
    assert!(waited > 0);
}

#[test]
fn a_copy_is_made_though_memory_is_short() {
    let mut replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    replica.bucket.replica_accept_log(inflow, &[(VbUuid(77), Seqno(0))], replica.now()).unwrap();
    replica.bucket.replica_marker(inflow, &marker(0, 1_200, true), replica.now()).unwrap();
    let keys: Vec<[u8; 3]> = (0..=1_200_u16).map(|n| [0, (n >> 8) as u8, n as u8]).collect();
    let value = vec![7; 16 << 10];
    let document = |seqno: u64| ReplicaItem {
        key: DocKey::trusted(&keys[seqno as usize]),
        value: &value,
        ..item(ReplicaKind::Mutation, b"\0", seqno)
    };
    (1..=1_000).for_each(|seqno| _ = bring(&mut replica, inflow, &document(seqno)));
    replica.flush();
    // Above where clients are paced, below where they are refused.
    let quota = replica.bucket.stats().mem_used * 100 / 91;
    replica.bucket.reconfigure(BucketChange { quota_bytes: Some(quota), ..BucketChange::default() });
    assert!(replica.bucket.pressure_percent() > 0);
    let mut brought = 1_000;
    while replica.bucket.replica_item(inflow, &document(brought + 1), replica.now()).is_ok() {
        brought += 1;
    }
    assert!(brought > 1_000, "some of it");
    assert!(replica.bucket.stats().diskqueue_bytes <= quota / 100, "and a little at a time");
    (brought + 1..=1_200).for_each(|seqno| _ = bring(&mut replica, inflow, &document(seqno)));
    assert!(status(&replica).complete);
}

#[test]
fn a_copy_of_nothing_is_whole() {
    let (active, mut replica) =
        (node(BucketKind::Couchbase, VbRole::Dead), node(BucketKind::Couchbase, VbRole::Dead));
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    replica.bucket.make_replica(VB, 1).unwrap();
    told(&replica, &marker(0, 2, false), &[item(ReplicaKind::Mutation, b"\0other", 2)]);
    let inflow = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap().inflow;
    assert_eq!(replica.bucket.replica_rollback(inflow, Seqno(0), replica.now()), Ok(()));
    replica.flush();
    assert!(!status(&replica).complete);
    Pipe::connect(&active, &replica, B, 1).unwrap();
    let found = |rig: &Rig| (status(rig).complete, status(rig).history.high_seqno);
    assert_eq!(found(&replica), (true, Seqno(0)));
    replica.flush();
    assert_eq!(found(&replica.crash()), (true, Seqno(0)));
}

/// The reader of streams has other connections to serve, so going back must not have it wait for the disk. Least of all
/// may it wait once for each of hundreds of copies, as after a failover.
#[test]
fn copies_that_go_back_are_emptied_by_the_flusher_with_one_sync() {
    const COPIES: u16 = 8;
    let options =
        BucketOptions { vbuckets: COPIES, shards: 1, role: VbRole::Dead, ..options(BucketKind::Couchbase) };
    let mut replica = Rig::new(options);
    let all = || (0..COPIES).map(VbId);
    for vb in all() {
        replica.bucket.make_replica(vb, 1).unwrap();
        let inflow = replica.bucket.replica_begin(vb, 1, replica.now()).unwrap().inflow;
        replica.bucket.replica_accept_log(inflow, &[(VbUuid(77), Seqno(0))], replica.now()).unwrap();
        replica.bucket.replica_marker(inflow, &marker(0, 2, false), replica.now()).unwrap();
        let document = item(ReplicaKind::Mutation, b"\0k", 2);
        replica.bucket.replica_item(inflow, &document, replica.now()).unwrap();
    }
    replica.flush();
    let syncs = replica.stores[0].syncs();
    replica.recorder.work.lock().clear();
    let void: Vec<_> =
        all().map(|vb| replica.bucket.replica_begin(vb, 1, replica.now()).unwrap().inflow).collect();
    for inflow in void {
        replica.bucket.replica_rollback(inflow, Seqno(1), replica.now()).unwrap();
        let late = replica.bucket.replica_marker(inflow, &marker(2, 3, false), replica.now());
        assert_eq!(late, Err(Status::NotMyVbucket));
        let again = replica.bucket.replica_begin(inflow.vb, 1, replica.now());
        assert_eq!(again.err(), Some(Status::TemporaryFailure), "not before it is empty");
    }
    assert_eq!(replica.stores[0].syncs(), syncs, "nobody has waited for the disk");
    assert!(replica.recorder.work.lock().contains(&Work::Flush(0)), "but the flusher has been called");
    // Meanwhile one becomes the active, and one a replica of another term.
    let (promoted, other) = (VbId(0), VbId(1));
    let alone = Topology { chains: vec![vec![B]], copies: 2, to_disk: false };
    replica.bucket.activate(promoted, 2, alone, replica.now()).unwrap();
    replica.bucket.make_replica(other, 2).unwrap();
    let syncs = replica.stores[0].syncs();
    assert_eq!(replica.bucket.flush(0, replica.now()).failed, None);
    assert_eq!(replica.stores[0].syncs(), syncs + 1);
    for vb in all() {
        let found = replica.bucket.vb_status(vb).unwrap();
        let stays = vb == promoted || vb == other;
        assert_eq!((found.complete, found.history.high_seqno), (stays, Seqno(if stays { 2 } else { 0 })));
        let term = if vb == other { 2 } else { 1 };
        let start = replica.bucket.replica_begin(vb, term, replica.now());
        assert_eq!(start.is_ok(), vb != promoted, "{vb:?}");
    }
}

#[test]
fn an_only_copy_in_the_making_is_all_there_is() {
    let replica = node(BucketKind::Couchbase, VbRole::Dead);
    replica.bucket.make_replica(VB, 1).unwrap();
    told(&replica, &marker(0, 9, true), &[item(ReplicaKind::Mutation, b"\0k", 3)]);
    assert_eq!(replica.bucket.activate(VB, 2, turned(), replica.now()), Err(Status::NotMyVbucket));
    let alone = Topology { chains: vec![vec![B]], copies: 2, to_disk: false };
    replica.bucket.activate(VB, 2, alone, replica.now()).unwrap();
    assert!(status(&replica).complete);
    assert_eq!(get(&replica, b"\0k").unwrap(), b"told");
}

#[test]
fn a_copy_that_forgets_its_role_obeys_an_earlier_term_and_is_fed_by_nobody() {
    let copy = node(BucketKind::Couchbase, VbRole::Dead);
    copy.bucket.make_replica(VB, 7).unwrap();
    let start = copy.bucket.replica_begin(VB, 7, copy.now()).unwrap();
    copy.bucket.replica_accept_log(start.inflow, &[(VbUuid(77), Seqno(0))], copy.now()).unwrap();
    copy.bucket.replica_marker(start.inflow, &marker(0, 1, false), copy.now()).unwrap();
    let version = |seqno| item(ReplicaKind::Mutation, b"\0k", seqno);
    copy.bucket.replica_item(start.inflow, &version(1), copy.now()).unwrap();
    assert_eq!(copy.bucket.make_replica(VB, 5), Err(Status::Invalid));
    copy.bucket.forget_role(VB).unwrap();
    assert_eq!(copy.bucket.vb_role(VB), Ok((VbRole::Dead, 0)));
    // In a term that is the same by chance, too, nothing comes from a node of the other life.
    copy.bucket.make_replica(VB, 7).unwrap();
    let late = copy.bucket.replica_marker(start.inflow, &marker(1, 2, false), copy.now());
    assert_eq!(late, Err(Status::NotMyVbucket));
    copy.bucket.forget_role(VB).unwrap();
    copy.bucket.make_replica(VB, 5).unwrap();
    let status = status(&copy);
    assert_eq!((status.term, status.history.high_seqno, status.may_lack), (5, Seqno(1), true));
}
