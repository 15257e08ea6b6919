//! Feeds of copies that follow another node's. What they tell is whole and lies on the branch that is known when they are opened.
//! It is part of what the copy serves once it takes over.

use std::collections::BTreeMap;

use base::{
    Seqno, Status, VbRole, VbUuid,
    bucket::{BucketKind, DurabilityLevel},
};
use settee_engine::{Feed, FeedEnd, FeedKind, FeedOptions, FeedStep, ReplicaItem, ReplicaKind};

use super::{
    A, WAITER, item, marker, node, pair, set, status,
    support::{
        Rig,
        pipe::{Pipe, Step, VB},
    },
    told, turned,
};

fn options(from: Seqno) -> FeedOptions {
    FeedOptions { from, followers: true, ..FeedOptions::default() }
}

fn open(rig: &Rig, from: Seqno) -> Feed {
    rig.bucket.feed(VB, options(from), WAITER).unwrap()
}

/// What an index knows of a vBucket: newest versions, up to where, and whether that is the end of a snapshot.
#[derive(Clone, Default)]
struct Consumer {
    documents: BTreeMap<Vec<u8>, Vec<u8>>,
    seqno: Seqno,
    end: Seqno,
    is_whole: bool,
}

impl Consumer {
    /// Takes what the feed has; says whether there was something.
    fn take(&mut self, feed: &mut Feed, rig: &Rig, bytes: usize) -> Result<bool, FeedEnd> {
        let batch = match feed.next(bytes, rig.now())? {
            FeedStep::Batch(batch) => batch,
            FeedStep::Wait => return Ok(false),
        };
        if let Some(snapshot) = batch.snapshot {
            assert_eq!(snapshot.start, self.seqno, "no gap");
            self.end = snapshot.end;
        }
        for item in &batch.items {
            assert!(item.seqno > self.seqno);
            self.seqno = item.seqno;
            let key = item.key().encoded().to_vec();
            match item.kind {
                FeedKind::Mutation => drop(self.documents.insert(key, item.value().to_vec())),
                _ => drop(self.documents.remove(&key)),
            }
        }
        self.is_whole = batch.ends_snapshot;
        self.seqno = if batch.ends_snapshot { self.end } else { self.seqno };
        Ok(true)
    }

    fn take_all(&mut self, feed: &mut Feed, rig: &Rig) {
        loop {
            while rig.bucket.run_backfills(0, rig.now()).more {}
            if !self.take(feed, rig, 1 << 20).unwrap() && !rig.bucket.run_backfills(0, rig.now()).more {
                return;
            }
        }
    }
}

#[test]
fn a_copy_has_feeds_for_those_who_ask_for_them() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"v", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    let refused = |rig: &Rig, options| rig.bucket.feed(VB, options, WAITER).map(drop);
    assert_eq!(refused(&replica, FeedOptions::default()), Err(Status::NotMyVbucket));
    assert_eq!(refused(&replica, options(Seqno(2))), Err(Status::Range));
    let mut consumer = Consumer::default();
    consumer.take_all(&mut open(&replica, Seqno(0)), &replica);
    assert_eq!((consumer.seqno, consumer.documents.len(), consumer.is_whole), (Seqno(1), 1, true));
    replica.bucket.make_dead(VB, 2).unwrap();
    assert_eq!(refused(&replica, options(Seqno(0))), Err(Status::NotMyVbucket));
    let (_, in_memory, _) = pair(BucketKind::Ephemeral);
    assert_eq!(refused(&in_memory, options(Seqno(0))), Err(Status::NotMyVbucket));
}

#[test]
fn nothing_is_told_of_a_snapshot_before_all_of_it_is_here() {
    for from_disk in [false, true] {
        let mut rig = node(BucketKind::Couchbase, VbRole::Dead);
        rig.bucket.make_replica(VB, 1).unwrap();
        let mutation = |key, seqno| item(ReplicaKind::Mutation, key, seqno);
        let mut consumer = Consumer::default();
        told(&rig, &marker(0, 5, from_disk), &[mutation(b"\0a", 1), mutation(b"\0b", 3)]);
        assert_eq!(rig.bucket.vb_history(VB).unwrap().told_to, Seqno(0));
        let mut feed = open(&rig, Seqno(0));
        consumer.take_all(&mut feed, &rig);
        rig.flush();
        consumer.take_all(&mut feed, &rig);
        assert_eq!((consumer.seqno, consumer.documents.len()), (Seqno(0), 0));
        rig.recorder.woken.lock().clear();
        told(&rig, &marker(0, 5, from_disk), &[mutation(b"\0a", 5)]);
        assert!(rig.recorder.woken.lock().contains(&WAITER));
        rig.flush();
        consumer.take_all(&mut feed, &rig);
        assert_eq!((consumer.seqno, consumer.documents.len(), consumer.is_whole), (Seqno(5), 2, true));
        // In the middle of another one, on disk too: what was whole before it is told with what is there of it, as a part.
        told(&rig, &marker(5, 9, from_disk), &[mutation(b"\0b", 7)]);
        rig.flush();
        let mut other = Consumer::default();
        other.take_all(&mut open(&rig, Seqno(0)), &rig);
        assert!(!other.is_whole, "the state at 5 is not on disk any more");
    }
}

#[test]
fn a_feed_of_a_copy_ends_when_another_history_is_told_or_it_follows_no_more() {
    let (active, replica, mut pipe) = pair(BucketKind::Couchbase);
    set(&active, b"\0k", b"v", DurabilityLevel::None).unwrap();
    pipe.drain(&active, &replica);
    let ends = |feed: &mut Feed, rig: &Rig| matches!(feed.next(1 << 20, rig.now()), Err(FeedEnd::Reset));
    // Another log that has what is here.
    let (mut feed, log) = (open(&replica, Seqno(1)), status(&replica).history.log);
    assert!(!ends(&mut feed, &replica));
    let start = replica.bucket.replica_begin(VB, 1, replica.now()).unwrap();
    replica.bucket.replica_accept_log(start.inflow, &log, replica.now()).unwrap();
    assert!(!ends(&mut feed, &replica), "it is the same");
    replica.recorder.woken.lock().clear();
    let longer = [&[(VbUuid(9), Seqno(1))], &log[..]].concat();
    replica.bucket.replica_accept_log(start.inflow, &longer, replica.now()).unwrap();
    assert!(replica.recorder.woken.lock().contains(&WAITER));
    assert!(ends(&mut feed, &replica));
    // It takes over.
    let mut feed = open(&replica, Seqno(1));
    assert!(!ends(&mut feed, &replica));
    replica.bucket.activate(VB, 2, turned(), replica.now()).unwrap();
    assert!(ends(&mut feed, &replica));
    // It is begun anew.
    set(&active, b"\0l", b"more than the other", DurabilityLevel::None).unwrap();
    active.bucket.make_replica(VB, 2).unwrap();
    let mut feed = open(&active, Seqno(2));
    assert!(!ends(&mut feed, &active));
    let mut back = Pipe::connect(&replica, &active, A, 2).unwrap();
    assert!(ends(&mut feed, &active));
    back.drain(&replica, &active);
}

#[test]
fn a_copy_that_takes_over_begins_its_branch_where_its_feeds_are_or_behind() {
    let rig = node(BucketKind::Couchbase, VbRole::Dead);
    rig.bucket.make_replica(VB, 1).unwrap();
    let mutation = |key, seqno| item(ReplicaKind::Mutation, key, seqno);
    told(&rig, &marker(0, 2, false), &[mutation(b"\0a", 1), mutation(b"\0b", 2)]);
    told(&rig, &marker(2, 5, false), &[mutation(b"\0c", 3), mutation(b"\0a", 4)]);
    let mut consumer = Consumer::default();
    consumer.take_all(&mut open(&rig, Seqno(0)), &rig);
    rig.bucket.activate(VB, 2, turned(), rig.now()).unwrap();
    let history = rig.bucket.vb_history(VB).unwrap();
    assert_eq!((history.log[0].1, consumer.seqno), (Seqno(2), Seqno(2)));
    consumer.take_all(&mut open(&rig, Seqno(2)), &rig);
    assert_eq!((consumer.seqno, consumer.documents.len()), (Seqno(4), 3), "the rest is told by the active");
}

/// Random writes, streams, syncs, losses of places and takeovers. At each end of a snapshot of the active's a consumer has what the
/// active had there.
#[test]
fn what_is_told_is_what_the_active_had() {
    let mut compared = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (active, mut replica, mut pipe) = pair(BucketKind::Couchbase);
        let (mut states, mut state) = (BTreeMap::new(), BTreeMap::new());
        states.insert(Seqno(0), state.clone());
        let (mut consumer, mut feed) = (Consumer::default(), open(&replica, Seqno(0)));
        for step in 0..200_u32 {
            match random.u8(..10) {
                0..=4 => {
                    let key = vec![0, b'a' + random.u8(..12)];
                    let value = step.to_string().into_bytes();
                    set(&active, &key, &value, DurabilityLevel::None).unwrap();
                    state.insert(key, value);
                    states.insert(active.bucket.vb_history(VB).unwrap().high_seqno, state.clone());
                }
                5..=6 => drop(pipe.step(&active, &replica, random.usize(1..200), random.usize(1..4))),
                7 => replica.flush(),
                8 => drop(replica.bucket.run_backfills(0, replica.now())),
                _ if random.bool() => {
                    // What is inside of a snapshot of a copy is of no use to another feed.
                    consumer = if consumer.is_whole { consumer } else { Consumer::default() };
                    feed = open(&replica, consumer.seqno);
                }
                _ => {
                    // A connection that breaks off; the copy is in the middle of something.
                    pipe = Pipe::connect(&active, &replica, super::B, 1).unwrap();
                }
            }
            if random.bool() && consumer.take(&mut feed, &replica, random.usize(1..400)).unwrap_or_default() {
                let at = consumer.seqno;
                if consumer.is_whole {
                    assert_eq!(consumer.documents, states[&at], "seed {seed}, step {step}, at {at:?}");
                    compared += 1;
                }
            }
        }
        while pipe.drain(&active, &replica) == Step::Moved {}
        replica.flush();
        consumer.take_all(&mut feed, &replica);
        assert_eq!(consumer.documents, state, "seed {seed}");
    }
    assert!(compared > 300, "{compared} snapshots were compared");
}

/// The active's snapshot left out versions that it had a newer one of: in its middle the copy is nothing that ever was.
#[test]
fn what_is_cut_within_a_snapshot_from_memory_is_told_as_a_part() {
    let rig = node(BucketKind::Couchbase, VbRole::Dead);
    rig.bucket.make_replica(VB, 1).unwrap();
    let large = vec![b'x'; 700 << 10];
    let mutation = |key, seqno| ReplicaItem { value: &large, ..item(ReplicaKind::Mutation, key, seqno) };
    let items = [mutation(b"\0a", 1), mutation(b"\0b", 4), mutation(b"\0c", 9)];
    told(&rig, &marker(0, 9, false), &items);
    let (mut consumer, mut feed) = (Consumer::default(), open(&rig, Seqno(0)));
    assert!(consumer.take(&mut feed, &rig, 1).unwrap());
    assert_eq!((consumer.seqno, consumer.end, consumer.is_whole), (Seqno(4), Seqno(9), false));
    assert!(consumer.take(&mut feed, &rig, 1).unwrap());
    assert_eq!((consumer.seqno, consumer.documents.len(), consumer.is_whole), (Seqno(9), 3, true));
    assert!(!consumer.take(&mut feed, &rig, 1).unwrap());
}
