//! What is still under way for a stream, a role or a term when another one takes its place.

use std::sync::Arc;

use base::{
    Seqno, Status, VbUuid,
    bucket::{BucketKind, DurabilityLevel},
};
use parking_lot::Mutex;
use settee_engine::{ReplicaKind, Waiter, Work};

use super::{EVERYWHERE, MAJORITY, WAITER, item, marker, pair, set, status, support::pipe::VB, turned};

/// The active before has another history. It would take what is held of the next one's for its own, and tell clients that their
/// writes are safe. And the next one would wait for ever for what it is not told.
#[test]
fn a_stream_that_was_taken_over_learns_nothing_of_what_is_held_and_takes_nobodys_place() {
    let (_active, mut replica, pipe) = pair(BucketKind::Couchbase);
    let next = Waiter { ticket: WAITER.ticket + 1, ..WAITER };
    assert_eq!(replica.bucket.await_high_prepared(pipe.inflow(), Seqno(0), WAITER), Ok(Seqno(0)));
    replica.bucket.make_replica(VB, 2).unwrap();
    let inflow = replica.bucket.replica_begin(VB, 2, replica.now()).unwrap().inflow;
    replica.bucket.replica_accept_log(inflow, &[(VbUuid(77), Seqno(0))], replica.now()).unwrap();
    replica.bucket.replica_marker(inflow, &marker(0, 1, false), replica.now()).unwrap();
    let prepare = item(ReplicaKind::Prepare { level: EVERYWHERE, deleted: false }, b"\0k", 1);
    replica.bucket.replica_item(inflow, &prepare, replica.now()).unwrap();
    assert_eq!(replica.bucket.await_high_prepared(inflow, Seqno(0), next), Ok(Seqno(0)), "not synced yet");
    // Woken a moment ago, for what was held then.
    let void = replica.bucket.await_high_prepared(pipe.inflow(), Seqno(0), WAITER);
    replica.flush();
    assert!(replica.recorder.woken.lock().contains(&next), "what is synced now is told");
    assert_eq!(replica.bucket.await_high_prepared(inflow, Seqno(0), next), Ok(Seqno(1)));
    let told = replica.bucket.await_high_prepared(pipe.inflow(), Seqno(0), WAITER);
    assert_eq!((void, told), (Err(Status::NotMyVbucket), Err(Status::NotMyVbucket)));
}

/// An election goes by what a copy says of itself in the new term. It must not choose one that is being emptied by then.
#[test]
fn a_copy_that_is_being_emptied_is_not_whole_in_the_next_term() {
    let (mut active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"1", MAJORITY).unwrap();
    pipe.drain(&active, &replica);
    active.flush();
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    replica.flush();
    set(&active, b"\0l", b"2", DurabilityLevel::None).unwrap();
    active.flush();
    active.bucket.make_replica(VB, 2).unwrap();
    // It has what its successor has not, and is to be emptied.
    let start = active.bucket.replica_begin(VB, 2, active.now()).unwrap();
    active.bucket.replica_rollback(start.inflow, Seqno(1), active.now()).unwrap();
    assert!(active.recorder.work.lock().contains(&Work::Flush(0)));
    let said = Arc::new(Mutex::new(None));
    let (bucket, told) = (Arc::clone(&active.bucket), Arc::clone(&said));
    // The successor is lost while the disk is at it.
    active.stores[0].after_next_reset(move || {
        bucket.make_replica(VB, 3).unwrap();
        *told.lock() = Some(bucket.vb_status(VB).unwrap());
    });
    active.bucket.flush(0, active.now());
    let said = said.lock().take().unwrap();
    assert_eq!(said.term, 3);
    assert!(!said.complete, "it says that it has {:?}, and is about to have nothing", said.held);
    assert_eq!((status(&active).held, status(&active).complete), (Seqno(0), false));
}

/// Where the disk refuses, nothing is gone; it is asked again.
#[test]
fn a_copy_that_could_not_be_emptied_is_what_it_was() {
    let (mut active, _replica, _pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"1", DurabilityLevel::None).unwrap();
    active.flush();
    active.bucket.make_replica(VB, 2).unwrap();
    for is_full in [true, false] {
        let start = active.bucket.replica_begin(VB, 2, active.now()).unwrap();
        active.bucket.replica_rollback(start.inflow, Seqno(0), active.now()).unwrap();
        active.stores[0].set_full(is_full);
        active.bucket.flush(0, active.now());
        let stands = if is_full { (Seqno(1), true) } else { (Seqno(0), false) };
        assert_eq!((status(&active).held, status(&active).complete), stands);
    }
}
