//! What a copy was told in one snapshot leaves out versions that have a newer one in it. No reader of the copy, once it is active,
//! is told of an end in between. Nor is a reader of a copy of that copy.

use base::{Seqno, VbRole, bucket::BucketKind};
use settee_engine::{FeedEnd, FeedOptions, FeedStep, ReplicaItem, ReplicaKind};

use super::{
    A, WAITER, both, item, marker, node,
    support::{
        Rig,
        pipe::{Pipe, Step, VB},
    },
    told, turned,
};

/// A copy that was told of two documents, and of one (at 2) that was written again (at 5), in one snapshot. It is active by now.
fn promoted(from_disk: bool) -> Rig {
    let copy = node(BucketKind::Couchbase, VbRole::Dead);
    copy.bucket.make_replica(VB, 1).unwrap();
    let version = |key, seqno| item(ReplicaKind::Mutation, key, seqno);
    told(&copy, &marker(0, 5, from_disk), &[version(b"\0a", 1), version(b"\0c", 3), version(b"\0b", 5)]);
    copy.bucket.activate(VB, 2, turned(), copy.now()).unwrap();
    copy
}

/// A copy of that copy, which has taken over in turn.
fn promoted_next(first: &Rig) -> Rig {
    let next = node(BucketKind::Couchbase, VbRole::Dead);
    next.bucket.make_replica(VB, 2).unwrap();
    Pipe::connect(first, &next, A, 2).unwrap().drain(first, &next);
    next.bucket.activate(VB, 3, both(), next.now()).unwrap();
    next
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
fn no_snapshot_ends_inside_of_what_was_told_in_one() {
    for from_disk in [true, false] {
        let mut copy = promoted(from_disk);
        assert_eq!(first_end(&copy), Ok(Some(Seqno(5))), "from memory");
        copy.flush();
        assert_eq!(first_end(&copy), Ok(Some(Seqno(5))), "from disk");
    }
}

#[test]
fn nor_does_one_of_the_second_node_that_takes_over() {
    for from_disk in [true, false] {
        let mut next = promoted_next(&promoted(from_disk));
        assert_eq!(first_end(&next), Ok(Some(Seqno(5))), "from memory");
        next.flush();
        assert_eq!(first_end(&next), Ok(Some(Seqno(5))), "from disk");
    }
}

/// A durable write begins in one snapshot and ends in the next, in which the version at 4 is left out. Where one snapshot may tell only one
/// thing of such a document, it would be cut at 5.
#[test]
fn nor_is_it_cut_where_a_durable_write_ends() {
    let copy = node(BucketKind::Couchbase, VbRole::Dead);
    copy.bucket.make_replica(VB, 1).unwrap();
    let prepare = ReplicaKind::Prepare { level: super::MAJORITY, deleted: false };
    let version = |key, seqno| item(ReplicaKind::Mutation, key, seqno);
    told(&copy, &marker(0, 2, false), &[item(prepare, b"\0k", 1), version(b"\0x", 2)]);
    let commit = ReplicaItem {
        cas: base::Cas(1 << 16),
        ..item(ReplicaKind::Commit { prepared: Seqno(1) }, b"\0k", 5)
    };
    told(&copy, &marker(2, 7, false), &[version(b"\0y", 3), commit, version(b"\0z", 7)]);
    copy.bucket.activate(VB, 2, turned(), copy.now()).unwrap();
    let next = node(BucketKind::Couchbase, VbRole::Dead);
    next.bucket.make_replica(VB, 2).unwrap();
    let mut pipe = Pipe::connect(&copy, &next, A, 2).unwrap();
    let mut whole_at = Seqno(0);
    while pipe.step(&copy, &next, 1, 1) == Step::Moved {
        whole_at = next.bucket.vb_status(VB).unwrap().promotable;
        assert!(![3, 4, 5, 6].contains(&whole_at.get()), "{whole_at}");
    }
    assert_eq!((whole_at, super::get_replica(&next, b"\0k")), (Seqno(7), Ok(b"told".to_vec())));
    assert_eq!(super::status(&next).prepares, 0);
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
