//! What follows the active.

use base::VbId;
use engine::{BucketOptions, FeedOptions, FeedStep, ReplicaItem, Waiter};
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
    /// Who has been woken.
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

/// What an active holds, as a feed of everything tells it.
pub(crate) fn contents_of(rig: &Rig, vb: VbId) -> Contents {
    let waiter = Waiter { worker: 9, connection: 9, ticket: 9 };
    let options = FeedOptions { prepares: true, ..FeedOptions::default() };
    let mut feed = rig.bucket.feed(vb, options, waiter).unwrap();
    let high = rig.bucket.vb_history(vb).unwrap().high_seqno;
    let mut contents = Contents::default();
    while contents.seqno < high {
        match feed.next(1 << 20, rig.now()).unwrap() {
            FeedStep::Wait => {
                for shard in 0..rig.bucket.shards() {
                    rig.bucket.run_backfills(shard, rig.now());
                }
            }
            FeedStep::Batch(batch) => {
                batch.items.iter().for_each(|item| contents.apply(&ReplicaItem::of_feed(item)));
                if batch.ends_snapshot && batch.items.is_empty() {
                    contents.seqno = high;
                }
            }
        }
    }
    contents
}
