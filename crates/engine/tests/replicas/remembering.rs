//! What a copy says of itself after a restart: whether it may have lost what it acknowledged, and when that is over.

use base::{VbRole, bucket::BucketKind};

use crate::{
    B, MAJORITY, node, pair, set, status,
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
