//! Copies that follow another node's: a bucket of that node, and a stream from there.

use std::{sync::Arc, time::Instant};

use base::{DocKey, HashedKey, NodeId, Seqno, Status, VbId, VbRole, bucket::BucketKind};
use engine::{
    Bucket, BucketOptions, Feed, FeedOptions, FeedStep, Inflow, Notifier, ReplicaItem, ReplicaKind,
    ReplicaMarker, ReplicaStart, Store, Topology, VbHistory, Waiter, Work,
};
use settee_indexer::{Change, Lane};

use crate::{
    alarms::now,
    world::{MANY, VBUCKETS, World, document},
};

struct Deaf;

impl Notifier for Deaf {
    fn wake(&self, _: Waiter) {}

    fn work(&self, _: Work) {}
}

fn alone() -> Topology {
    Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false }
}

/// Another node's bucket.
struct Elsewhere {
    bucket: Arc<Bucket>,
    begin: Instant,
}

impl Elsewhere {
    fn new(seed: u64) -> Self {
        let begin = Instant::now();
        let options = BucketOptions {
            kind: BucketKind::Ephemeral,
            vbuckets: VBUCKETS,
            shards: 1,
            role: VbRole::Dead,
            seed,
            ..BucketOptions::new("elsewhere", 64 << 20)
        };
        let bucket = Bucket::open(options, Vec::new(), Arc::default(), Arc::new(Deaf), now(begin)).unwrap();
        Self { bucket, begin }
    }

    fn serve(&self, vb: VbId, term: u64) {
        self.bucket.activate(vb, term, alone(), now(self.begin)).unwrap();
    }

    fn store(&self, vb: VbId, id: &str, n: u32) {
        let key = [&[0], id.as_bytes()].concat();
        let value = format!("{{\"n\":{n},\"t\":\"a\"}}");
        let store = Store { datatype: base::Datatype::JSON, ..Store::set(value.as_bytes()) };
        self.bucket.store(vb, HashedKey::new(DocKey::trusted(&key)), &store, now(self.begin)).unwrap();
    }

    /// Streams to a copy, at most so many items.
    fn stream(&self, to: &Bucket, vb: VbId, term: u64, items: usize) {
        let (inflow, mut feed, high) = loop {
            match self.connect(to, vb, term) {
                Some(connected) => break connected,
                None => std::thread::yield_now(),
            }
        };
        let (mut left, mut end, mut reached) = (items, Seqno(0), feed.1);
        while reached < high && left > 0 {
            let batch = match feed.0.next(1 << 10, now(self.begin)).unwrap() {
                FeedStep::Batch(batch) => batch,
                FeedStep::Wait => {
                    while self.bucket.run_backfills(0, now(self.begin)).more {}
                    continue;
                }
            };
            if let Some(snapshot) = &batch.snapshot {
                end = snapshot.end;
                to.replica_marker(inflow, &ReplicaMarker::from(snapshot), now(self.begin)).unwrap();
            }
            for item in batch.items.iter().take(left) {
                to.replica_item(inflow, &ReplicaItem::of_feed(item), now(self.begin)).unwrap();
            }
            left = left.saturating_sub(batch.items.len());
            if batch.ends_snapshot && left > 0 {
                reached = end;
                if to.vb_history(vb).unwrap().high_seqno < end {
                    to.replica_item(inflow, &nothing_up_to(end), now(self.begin)).unwrap();
                }
            }
        }
    }

    /// A stream begins; `None` while what the copy has is being dropped. The feed goes on behind the seqno beside it.
    fn connect(&self, to: &Bucket, vb: VbId, term: u64) -> Option<(Inflow, (Feed, Seqno), Seqno)> {
        let start = match to.replica_begin(vb, term, now(self.begin)) {
            Err(Status::TemporaryFailure) => return None,
            start => start.unwrap(),
        };
        let history = self.bucket.vb_history(vb).unwrap();
        if let Some(back) = rollback_of(&start, &history) {
            to.replica_rollback(start.inflow, back, now(self.begin)).unwrap();
            return None;
        }
        let through = if start.start < start.snap_end { start.snap_end } else { Seqno(0) };
        let options = FeedOptions { from: start.start, through, ..FeedOptions::default() };
        let waiter = Waiter { worker: 7, connection: 7, ticket: 7 };
        let feed = self.bucket.feed(vb, options, waiter).unwrap();
        to.replica_accept_log(start.inflow, &history.log, now(self.begin)).unwrap();
        Some((start.inflow, (feed, start.start), history.high_seqno))
    }
}

fn nothing_up_to(seqno: Seqno) -> ReplicaItem<'static> {
    ReplicaItem {
        kind: ReplicaKind::Advance,
        key: DocKey::trusted(b"\0"),
        seqno,
        cas: base::Cas(0),
        rev: 0,
        flags: 0,
        expiry: 0,
        datatype: base::Datatype::RAW,
        value: &[],
    }
}

/// Where a copy has to go back to, if it has to.
fn rollback_of(start: &ReplicaStart, history: &VbHistory) -> Option<Seqno> {
    if start.start == Seqno(0) {
        return None;
    }
    let Some(at) = history.log.iter().position(|entry| entry.0 == start.vb_uuid) else {
        return Some(Seqno(0));
    };
    let good = at.checked_sub(1).map_or(history.high_seqno, |younger| history.log[younger].1);
    let is_inside = start.snap_start < start.start && start.snap_end > good;
    (start.start > good || is_inside).then_some(start.snap_start.min(good))
}

impl World {
    /// A copy of another node's, which is indexed or is not.
    fn follow(&mut self, vb: VbId, change: Change) -> u64 {
        self.terms += 1;
        self.bucket.make_replica(vb, self.terms).unwrap();
        self.served.retain(|served| *served != vb);
        self.indexer().hear(vb, change);
        self.terms
    }

    /// Waits until the index has what is whole of a copy.
    fn await_indexed(&self, vb: VbId) {
        let signature = document(MANY).signature();
        self.poll("the copy's index", || {
            let told_to = self.bucket.vb_history(vb).unwrap().told_to;
            let snapshot = self.indexer().snapshot(&signature)?;
            (snapshot.state(vb)?.seqno >= told_to).then_some(())
        });
    }

    fn begun(&self) -> u64 {
        self.status_of(MANY).unwrap().begun
    }
}

pub(crate) fn a_copy_is_indexed_before_it_takes_over() {
    let mut world = World::new(&[("b", MANY)]);
    world.start();
    world.change(300);
    world.check(MANY);
    let (elsewhere, vb) = (Elsewhere::new(7), VbId(3));
    world.empty(vb);
    elsewhere.serve(vb, 1);
    (0..500).for_each(|n| elsewhere.store(vb, &format!("e{}", n % 200), n));
    let term = world.follow(vb, Change::Following);
    elsewhere.stream(&world.bucket, vb, term, usize::MAX);
    world.await_indexed(vb);
    // No query counts it.
    world.check(MANY);
    let begun = world.begun();
    (0..50).for_each(|n| elsewhere.store(vb, &format!("e{n}"), 1000 + n));
    elsewhere.stream(&world.bucket, vb, term, usize::MAX);
    // An index that is in the middle of a snapshot when its copy takes over begins anew.
    let is_whole = || world.status_of(MANY).is_some_and(|status| status.followers == 1);
    world.poll("an index that is whole", || is_whole().then_some(()));
    world.come(vb);
    world.check(MANY);
    assert!(world.truth().contains_key("e199"));
    assert_eq!(world.begun(), begun, "it went on with what it had");
    // One that is not to take over is not indexed, nor is one any more that is not to after all.
    world.follow(vb, Change::Gone);
    let signature = document(MANY).signature();
    let is_forgotten = || world.indexer().snapshot(&signature).unwrap().state(vb).is_none();
    world.poll("an index without the copy", || is_forgotten().then_some(()));
    world.come(vb);
    world.check(MANY);
    assert_eq!(world.begun(), begun + 1, "it had nothing of it");
}

pub(crate) fn a_copy_lacks_its_index_until_that_is_close() {
    let mut world = World::new(&[("b", MANY)]);
    world.start();
    world.change(100);
    world.check(MANY);
    let (elsewhere, vb, other) = (Elsewhere::new(8), VbId(3), VbId(4));
    let lacking = |world: &World| world.indexer().lacking(&[vb, other].into());
    assert_eq!(lacking(&world), [].into(), "both are served");
    world.empty(vb);
    elsewhere.serve(vb, 1);
    (0..200).for_each(|n| elsewhere.store(vb, &format!("e{n}"), n));
    // The indexer has not been told to follow it.
    let term = world.follow(vb, Change::Gone);
    elsewhere.stream(&world.bucket, vb, term, 60);
    assert_eq!(lacking(&world), [vb].into(), "a part of it is here");
    elsewhere.stream(&world.bucket, vb, term, usize::MAX);
    assert!(world.bucket.vb_status(vb).unwrap().complete);
    assert_eq!(lacking(&world), [vb].into(), "nothing of it is indexed");
    // Nobody waits for an index of development documents.
    world.define(&[("dev_b", MANY)]);
    assert_eq!(lacking(&world), [].into());
    world.define(&[("b", MANY)]);
    assert_eq!(lacking(&world), [vb].into());
    world.indexer().hear(vb, Change::Following);
    world.poll("an index that is close", || lacking(&world).is_empty().then_some(()));
    world.come(vb);
    world.check(MANY);
}

/// Takes its time over each document.
const SLOW: &str = r#"{"views":{"n":{"map":"function (doc, meta) { var end = Date.now() + 100; while (Date.now() < end); emit(doc.n, null); }"}}}"#;

pub(crate) fn a_copy_is_indexed_once_however_often_a_lane_is_called() {
    let mut world = World::new(&[("b", SLOW)]);
    // Each document is indexed by itself, so that a batch takes longer than a lane goes without a look at its orders.
    (world.rows_bytes, world.batch_documents) = (1, 8);
    world.start();
    world.check(SLOW);
    world.poll("the first lane", || (world.status_of(SLOW)?.lane == Lane::Front).then_some(()));
    let (elsewhere, vb, other) = (Elsewhere::new(9), VbId(3), VbId(4));
    world.empty(vb);
    elsewhere.serve(vb, 1);
    (0..20).for_each(|n| elsewhere.store(vb, &format!("e{n}"), n));
    let term = world.follow(vb, Change::Gone);
    elsewhere.stream(&world.bucket, vb, term, usize::MAX);
    world.indexer().hear(vb, Change::Following);
    let signature = document(SLOW).signature();
    world.poll("the copy's index", || {
        world.indexer().hear(other, Change::Served);
        let begun = world.status_of(SLOW).map_or(0, |status| status.begun);
        assert!(begun <= 1, "it began {begun} times");
        let snapshot = world.indexer().snapshot(&signature)?;
        (snapshot.state(vb)?.seqno >= world.bucket.vb_history(vb).unwrap().told_to).then_some(())
    });
    world.come(vb);
    world.check(SLOW);
}

/// A copy is fed in parts, loses its active copy, goes back, crashes with its node, and takes over at some time. The
/// index is always what the copy is.
pub(crate) fn a_copy_may_take_over_at_any_time() {
    let mut world = World::new(&[("b", MANY)]);
    world.pacing.commit_after = std::time::Duration::ZERO;
    world.start();
    world.change(200);
    let vb = VbId(5);
    let mut number = 0;
    for round in 0..12 {
        world.empty(vb);
        let mut active = Elsewhere::new(100 + round);
        let mut term = world.follow(vb, Change::Following);
        active.serve(vb, term);
        for _ in 0..world.rng.u32(1..6) {
            for _ in 0..world.rng.u32(0..150) {
                number += 1;
                active.store(vb, &format!("e{}", world.rng.u32(..80)), number);
            }
            let whole = [usize::MAX, world.rng.usize(..60)][world.rng.usize(..2)];
            match world.rng.u8(..6) {
                // Another node takes over there, which lacks what came last.
                0 => {
                    let next = Elsewhere::new(1000 + u64::from(number));
                    next.bucket.make_replica(vb, term).unwrap();
                    active.stream(&next.bucket, vb, term, usize::MAX);
                    active.store(vb, "lost", number);
                    active.stream(&world.bucket, vb, term, whole);
                    world.await_indexed_or_not(vb);
                    term = world.follow(vb, Change::Following);
                    next.serve(vb, term);
                    active = next;
                }
                1 => {
                    active.stream(&world.bucket, vb, term, whole);
                    world.crash();
                    world.indexer().hear(vb, Change::Following);
                    term = world.follow(vb, Change::Following).max(term);
                }
                _ => {
                    active.stream(&world.bucket, vb, term, whole);
                    world.await_indexed_or_not(vb);
                }
            }
        }
        if world.bucket.vb_status(vb).unwrap().complete {
            world.come(vb);
            world.check(MANY);
        } else {
            world.served.retain(|served| *served != vb);
            active.stream(&world.bucket, vb, term, usize::MAX);
            world.come(vb);
            world.check(MANY);
        }
    }
}

impl World {
    fn await_indexed_or_not(&mut self, vb: VbId) {
        if self.rng.bool() && self.bucket.vb_history(vb).unwrap().told_to > Seqno(0) {
            self.await_indexed(vb);
        }
    }
}
