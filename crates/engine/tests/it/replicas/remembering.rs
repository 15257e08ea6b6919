//! What a copy says of itself after a restart: whether it may have lost what it acknowledged, and when that is over.

use base::{
    Seqno, VbId, VbRole,
    bucket::{BucketKind, DurabilityLevel},
};

use settee_engine::{Bucket, BucketOptions, Notifier, ReplicaKind, ReplicaMarker, Store, Waiter, Work};

use super::{
    A, Arc, B, Clock, Disk, FaultDisk, MAJORITY, Rig, alone, both, item, marker, node, options, pair, set,
    status,
    support::pipe::{Pipe, VB},
};

#[test]
fn a_copy_that_was_killed_does_not_count_before_it_has_caught_up() {
    let (active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"on disk", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    replica.flush();
    let last = set(&active, b"\0l", b"in memory", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    assert!(!status(&replica).may_lack);
    drop(pipe);
    replica = replica.crash();
    replica.warm_up();
    assert!(status(&replica).may_lack && status(&replica).held < last.seqno);
    replica.bucket.make_replica(VB, 1).unwrap();
    assert!(status(&replica).may_lack, "a role brings nothing back");
    let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    assert!(status(&replica).may_lack, "nor does a stream that has told nothing");
    pipe.drain(&active, &replica);
    assert!(!status(&replica).may_lack && status(&replica).held >= last.seqno);
}

#[test]
fn a_copy_that_lacks_nothing_is_told_so() {
    let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"on disk", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    replica.flush();
    active.flush();
    pipe.drain(&active, &replica);
    replica.flush();
    drop(pipe);
    replica = replica.crash();
    replica.warm_up();
    replica.bucket.make_replica(VB, 1).unwrap();
    assert!(status(&replica).may_lack);
    let _pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    assert!(!status(&replica).may_lack, "there is nothing behind what it has");
}

#[test]
fn a_clean_stop_does_not_make_a_copy_remember() {
    let (active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"v", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    drop(pipe);
    replica = replica.restart();
    assert!(!status(&replica).may_lack, "everything was on disk");
    replica = replica.crash();
    replica = replica.restart();
    assert!(status(&replica).may_lack, "it has not caught up since it was killed");
}

/// The vBucket whose state carries the mark of a clean stop is another one than the copy that forgot.
#[test]
fn what_others_write_does_not_make_a_copy_remember() {
    let couchbase = options(BucketKind::Couchbase);
    let mut node =
        Rig::new(BucketOptions { vbuckets: 2, shards: 1, role: VbRole::Dead, replicas: 1, ..couchbase });
    for vb in [0, 1].map(VbId) {
        node.bucket.activate(vb, 1, alone(A, 1), node.now()).unwrap();
    }
    let lacks = |node: &Rig, vb| node.bucket.vb_status(VbId(vb)).unwrap().may_lack;
    node.flush();
    node = node.restart();
    assert!(!lacks(&node, 0) && !lacks(&node, 1));
    node = node.crash();
    node.warm_up();
    assert!(lacks(&node, 0) && lacks(&node, 1));
    node.clock.advance_secs(3600);
    node.bucket.activate(VbId(0), 2, alone(A, 1), node.now()).unwrap();
    node.run(b"\0k", |bucket, _, key| bucket.store(VbId(0), key, &Store::set(b"v"), node.now())).unwrap();
    node = node.restart();
    assert!(lacks(&node, 1), "it has not caught up since it was killed");
}

/// Nobody is woken.
#[derive(Debug)]
struct Silent;

impl Notifier for Silent {
    fn wake(&self, _: Waiter) {}

    fn work(&self, _: Work) {}
}

/// A node with two vBuckets in one shard, which has a copy of the first one only.
fn with_one_of_two() -> Rig {
    let couchbase = options(BucketKind::Couchbase);
    let two = BucketOptions { vbuckets: 2, shards: 1, role: VbRole::Dead, replicas: 1, ..couchbase };
    let node = Rig::new(two);
    node.bucket.activate(VbId(0), 1, alone(A, 1), node.now()).unwrap();
    node
}

#[test]
fn copies_that_are_none_keep_no_clean_stop_from_counting() {
    let facts = |node: &Rig| [0, 1].map(|vb| node.bucket.vb_status(VbId(vb)).unwrap());
    let mut node = with_one_of_two().restart();
    for kill in [false, true, false] {
        let [first, second] = facts(&node);
        assert!(!first.may_lack && !first.blank, "it is whole, though nothing was written");
        assert!(second.blank);
        node.bucket.activate(VbId(0), 2, alone(A, 1), node.now()).unwrap();
        if kill {
            node = node.crash();
            node.warm_up();
            let [first, second] = facts(&node);
            assert!(first.may_lack && second.blank && !second.may_lack);
            node.bucket.activate(VbId(0), 3, alone(A, 1), node.now()).unwrap();
        }
        node = node.restart();
    }
    // Stores of earlier versions know a branch of every vBucket. The node is nothing to it, and drops it.
    node = node.crash();
    node.bucket.note_loss(VbId(1)).unwrap();
    node.bucket.drop_vb(VbId(1), node.now()).unwrap();
    node.clock.advance_secs(60);
    node.flush();
    assert!(!facts(&node)[1].may_lack);
    node.bucket.activate(VbId(0), 4, alone(A, 1), node.now()).unwrap();
    assert!(!facts(&node.restart())[0].may_lack);
}

/// Nobody has the vBucket, or its node was failed over: what the node may have had of it is noted at every start.
#[test]
fn copies_that_have_lost_everything_keep_no_clean_stop_from_counting() {
    for was_dropped in [false, true] {
        let mut node = with_one_of_two();
        if was_dropped {
            node.bucket.make_replica(VbId(1), 1).unwrap();
            node.bucket.make_dead(VbId(1), 2).unwrap();
            node.bucket.drop_vb(VbId(1), node.now()).unwrap();
            node.flush();
        }
        for _ in 0..3 {
            node = node.restart();
            let [first, second] = [0, 1].map(|vb| node.bucket.vb_status(VbId(vb)).unwrap());
            assert!(!first.may_lack && !first.blank, "it is whole, though nothing was written");
            assert!(second.blank, "it is found that nothing is left of it");
            node.bucket.note_loss(VbId(1)).unwrap();
            node.bucket.make_dead(VbId(1), 2).unwrap();
            assert!(node.bucket.vb_status(VbId(1)).unwrap().may_lack);
            node.bucket.activate(VbId(0), 2, alone(A, 1), node.now()).unwrap();
        }
    }
}

/// A copy that is begun anew has a branch on disk that nobody has heard of. Its terms are those of another life of the group.
#[test]
fn a_copy_of_another_life_that_holds_nothing_does_not_count_after_a_clean_stop() {
    let node = with_one_of_two();
    let second = VbId(1);
    node.bucket.make_replica(second, 1).unwrap();
    let start = node.bucket.replica_begin(second, 1, node.now()).unwrap();
    node.bucket.replica_rollback(start.inflow, Seqno(0), node.now()).unwrap();
    assert_eq!(node.bucket.flush(0, node.now()).failed, None);
    node.bucket.forget_role(second).unwrap();
    let node = node.restart();
    let [first, second] = [0, 1].map(|vb| node.bucket.vb_status(VbId(vb)).unwrap());
    assert!(second.blank, "the node, which knows that it was there, takes note of a loss");
    assert!(!first.may_lack);
}

#[test]
fn an_open_that_fails_makes_no_copy_whole() {
    let couchbase = options(BucketKind::Couchbase);
    let options = BucketOptions { vbuckets: 2, shards: 2, role: VbRole::Dead, replicas: 1, ..couchbase };
    let disks = [0, 1].map(|shard| Arc::new(FaultDisk::new(4, shard)));
    let stores: Vec<_> = disks.iter().map(|disk| disk.open()).collect();
    disks[1].set_full(true);
    let opened = Bucket::open(options.clone(), stores, Arc::default(), Arc::new(Silent), Clock(0).now());
    assert!(opened.is_err());
    disks[1].set_full(false);
    let disks = disks.map(|disk| disk as Arc<dyn Disk>).into();
    let node = Rig::over(options, Arc::default(), disks, Clock(0));
    let status = node.bucket.vb_status(VbId(0)).unwrap();
    assert!(status.blank || status.may_lack, "its disk has been lost");
}

#[test]
fn a_copy_that_nobody_has_told_anything_does_not_count_after_a_clean_stop() {
    let fresh = node(BucketKind::Couchbase, VbRole::Dead);
    let counts = |rig: &Rig| !status(rig).blank && !status(rig).may_lack;
    assert!(!counts(&fresh));
    assert!(!counts(&fresh.restart()), "its folder may have been lost before");
}

#[test]
fn a_copy_in_memory_that_was_restarted_does_not_count_before_it_has_caught_up() {
    let (active, _, _pipe) = pair(BucketKind::Ephemeral);
    set(&active, b"\0k", b"v", MAJORITY).unwrap();
    let restarted = node(BucketKind::Ephemeral, VbRole::Dead);
    assert!(status(&restarted).blank && !status(&restarted).may_lack, "the node knows that there was one");
    restarted.bucket.note_loss(VB).unwrap();
    restarted.bucket.make_replica(VB, 1).unwrap();
    assert!(status(&restarted).may_lack && status(&restarted).complete, "it may be chosen");
    let mut pipe = Pipe::connect(&active, &restarted, B, 1).unwrap();
    assert!(!status(&restarted).complete, "a copy in the making");
    pipe.drain(&active, &restarted);
    assert!(status(&restarted).complete && !status(&restarted).may_lack);
}

/// A snapshot from disk may leave out what it says is completed. So a copy that stopped in the middle has to hear it again.
#[test]
fn a_copy_killed_inside_a_snapshot_from_disk_hears_again_what_was_completed() {
    let (mut active, mut replica) =
        (node(BucketKind::Couchbase, VbRole::Dead), node(BucketKind::Couchbase, VbRole::Dead));
    active.bucket.activate(VB, 1, both(), active.now()).unwrap();
    set(&active, b"\0a", b"aborted", MAJORITY).unwrap();
    active.clock.advance_secs(31);
    active.bucket.time_out_durable(active.now());
    for key in [b"\0k", b"\0l"] {
        set(&active, key, b"v", DurabilityLevel::None).unwrap();
    }
    assert_eq!(status(&active).history.high_seqno, Seqno(4), "prepare, abort, and two more");
    // It has the prepare, and of a snapshot from disk the first part. Compaction has dropped the abort.
    replica.bucket.make_replica(VB, 1).unwrap();
    let start = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap();
    let log = active.bucket.vb_history(VB).unwrap().log;
    replica.bucket.replica_accept_log(start.inflow, &log, replica.now()).unwrap();
    let prepare = item(ReplicaKind::Prepare { level: MAJORITY, deleted: false }, b"\0a", 1);
    let disk = ReplicaMarker { high_completed: Seqno(1), ..marker(1, 4, true) };
    for (marker, item) in [(marker(0, 1, false), prepare), (disk, item(ReplicaKind::Mutation, b"\0k", 3))] {
        replica.bucket.replica_marker(start.inflow, &marker, replica.now()).unwrap();
        replica.bucket.replica_item(start.inflow, &item, replica.now()).unwrap();
    }
    replica.flush();
    replica = replica.crash();
    replica.warm_up();
    replica.bucket.make_replica(VB, 1).unwrap();
    assert_eq!(status(&replica).prepares, 1);

    let mut pipe = Pipe::connect(&active, &replica, B, 1).unwrap();
    pipe.drain(&active, &replica);
    active.flush();
    pipe.drain(&active, &replica);
    assert_eq!(status(&replica).history.high_seqno, Seqno(4));
    assert_eq!(status(&replica).prepares, 0, "the prepare was aborted");
}
