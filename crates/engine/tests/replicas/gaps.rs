//! What a copy was told from disk leaves out versions that have a newer one in the same snapshot. No reader of the copy, once it is
//! active, is told of an end in between.

use base::{Seqno, VbRole, bucket::BucketKind};
use settee_engine::{FeedEnd, FeedOptions, FeedStep, ReplicaItem, ReplicaKind};

use crate::{
    WAITER, item, marker, node,
    support::{Rig, pipe::VB},
    told, turned,
};

/// A copy that was told from disk of two documents, and of one (at 2) that was written again (at 5). It is active by now.
fn promoted() -> Rig {
    let copy = node(BucketKind::Couchbase, VbRole::Dead);
    copy.bucket.make_replica(VB, 1).unwrap();
    let version = |key, seqno| item(ReplicaKind::Mutation, key, seqno);
    told(&copy, &marker(0, 5, true), &[version(b"\0a", 1), version(b"\0c", 3), version(b"\0b", 5)]);
    copy.bucket.activate(VB, 2, turned(), copy.now()).unwrap();
    copy
}

/// Where the first snapshot ends that a reader is told which has everything up to 2, and is given little at a time.
fn first_end(rig: &Rig) -> Result<Option<Seqno>, FeedEnd> {
    let options = FeedOptions { from: Seqno(2), ..FeedOptions::default() };
    let mut feed = rig.bucket.feed(VB, options, WAITER).unwrap();
    for _ in 0..10 {
        while rig.bucket.run_backfills(0, rig.now()).more {}
        if let FeedStep::Batch(batch) = feed.next(1, rig.now())? {
            return Ok(batch.snapshot.map(|snapshot| snapshot.end));
        }
    }
    Ok(None)
}

#[test]
fn no_snapshot_ends_inside_of_what_was_told_from_disk() {
    let mut copy = promoted();
    assert_eq!(first_end(&copy), Ok(Some(Seqno(5))), "from memory");
    copy.flush();
    assert_eq!(first_end(&copy), Ok(Some(Seqno(5))), "from disk");
}

#[test]
fn what_ends_without_an_item_is_told_from_disk_to_its_end() {
    let mut copy = node(BucketKind::Couchbase, VbRole::Dead);
    copy.bucket.make_replica(VB, 1).unwrap();
    let advance = ReplicaItem { value: b"", ..item(ReplicaKind::Advance, b"\0", 9) };
    told(&copy, &marker(0, 9, true), &[item(ReplicaKind::Mutation, b"\0a", 3), advance]);
    copy.flush();
    copy.bucket.activate(VB, 2, turned(), copy.now()).unwrap();
    assert_eq!(first_end(&copy), Ok(Some(Seqno(9))));
}
