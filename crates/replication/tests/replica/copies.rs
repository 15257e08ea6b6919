//! What follows the active: a model of a replica, or the replica that a bucket has.

use std::sync::Arc;

use base::{NodeId, VbId};
use engine::{Bucket, BucketOptions, FeedOptions, FeedStep, ReplicaItem, Topology, Waiter};
use fastrand::Rng;
use settee_replication::consumer::replica::Replica;

use super::{
    shelf::{Contents, Shelf},
    support::Rig,
};

/// See the module header.
pub(crate) trait Copies {
    type R: Replica;

    /// Copies of as many vBuckets as the options say.
    fn new(options: &BucketOptions) -> Self;
    /// What a link feeds.
    fn replica(&self) -> Self::R;
    /// All of them follow at that term from now on.
    fn follow(&mut self, term: u64);
    /// Something happens to them; true if links to them are lost.
    fn disturb(&mut self, rng: &mut Rng) -> bool;
    /// Time passes, and what is to be done is done.
    fn tend(&mut self, millis: u64);
    /// The copies that were woken.
    fn woken(&mut self) -> Vec<Waiter>;
    /// What a vBucket holds, in the end.
    fn contents(&mut self, vb: VbId) -> Contents;
}

impl Copies for Shelf {
    type R = Self;

    fn new(_: &BucketOptions) -> Self {
        Self::default()
    }

    fn replica(&self) -> Self {
        self.clone()
    }

    fn follow(&mut self, _: u64) {}

    fn disturb(&mut self, rng: &mut Rng) -> bool {
        self.fill_up(rng.u32(1..20));
        false
    }

    fn tend(&mut self, _: u64) {
        self.fill_up(0);
    }

    fn woken(&mut self) -> Vec<Waiter> {
        Vec::new()
    }

    fn contents(&mut self, vb: VbId) -> Contents {
        assert!(self.is_consistent(vb));
        Shelf::contents(self, vb)
    }
}

/// A bucket whose vBuckets are replicas.
pub(crate) struct Node {
    rig: Option<Rig>,
    term: u64,
}

impl Node {
    fn rig(&mut self) -> &mut Rig {
        self.rig.as_mut().unwrap()
    }
}

impl Copies for Node {
    type R = Arc<Bucket>;

    fn new(options: &BucketOptions) -> Self {
        let mut node = Self { rig: Some(Rig::new(options.clone())), term: 0 };
        node.rig().warm_up();
        node
    }

    fn replica(&self) -> Arc<Bucket> {
        Arc::clone(&self.rig.as_ref().unwrap().bucket)
    }

    fn follow(&mut self, term: u64) {
        self.term = term;
        let bucket = self.replica();
        for vb in (0..bucket.vbuckets()).map(VbId) {
            bucket.make_replica(vb, term).unwrap();
        }
    }

    fn disturb(&mut self, rng: &mut Rng) -> bool {
        match rng.u8(0..8) {
            0 => {
                let rig = self.rig.take().unwrap();
                self.rig = Some(if rng.bool() { rig.crash() } else { rig.restart() });
                self.rig().warm_up();
                let term = self.term;
                self.follow(term);
                true
            }
            1..=5 => {
                self.rig().flush();
                false
            }
            _ => {
                self.rig().clock.advance_secs(1);
                false
            }
        }
    }

    fn tend(&mut self, millis: u64) {
        self.rig().clock.0 += millis;
        self.rig().flush();
        let rig = self.rig();
        for shard in 0..rig.bucket.shards() {
            while rig.bucket.run_fetches(shard, 16, rig.now()) > 0 {}
        }
    }

    fn woken(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut *self.rig().recorder.woken.lock())
    }

    fn contents(&mut self, vb: VbId) -> Contents {
        let status = self.rig().bucket.vb_status(vb).unwrap();
        assert!(status.snapshot.is_none() && status.complete, "{vb}: {status:?}");
        // Feeds are for actives, which commit what they find prepared.
        let topology = Topology { chains: vec![vec![NodeId(2)]], copies: 1, to_disk: false };
        let (term, now) = (self.term + 1, self.rig().now());
        self.rig().bucket.activate(vb, term, topology, now).unwrap();
        // What was told from disk is told on once all of it is on disk.
        self.rig().flush();
        let contents = contents_of(self.rig(), vb);
        Contents { seqno: status.history.high_seqno, ..contents }
    }
}

/// What an active holds, as a feed of everything tells it.
pub(crate) fn contents_of(rig: &Rig, vb: VbId) -> Contents {
    let waiter = Waiter { worker: 9, connection: 9, ticket: 9 };
    let options = FeedOptions { prepares: true, ..FeedOptions::default() };
    let mut feed = rig.bucket.feed(vb, options, waiter).unwrap();
    let high = rig.bucket.vb_history(vb).unwrap().high_seqno;
    let mut contents = Contents::default();
    let mut end = high;
    while contents.seqno < high {
        match feed.next(1 << 20, rig.now()).unwrap() {
            FeedStep::Wait => {
                for shard in 0..rig.bucket.shards() {
                    rig.bucket.run_backfills(shard, rig.now());
                }
            }
            FeedStep::Batch(batch) => {
                end = batch.snapshot.map_or(end, |snapshot| snapshot.end);
                batch.items.iter().for_each(|item| contents.apply(&ReplicaItem::of_feed(item)));
                if batch.ends_snapshot {
                    // Its last seqno need not have an item: an abort may be compacted away, a collection dropped.
                    contents.seqno = end;
                }
            }
        }
    }
    contents
}
