//! A consumer that follows a vBucket while its bucket is pressed, and takes its time. In the end it holds exactly what the
//! vBucket does. On the way it may be sent to the disk or told to begin anew, but costs no more memory than it may.

use std::collections::BTreeMap;

use base::{Seqno, VbId};
use settee_engine::{Feed, FeedFilter, FeedOptions, FeedStep, Waiter};

use crate::support::Rig;

/// Told at a time.
const BATCH_BYTES: usize = 64 << 10;

pub(crate) struct Follower {
    vb: VbId,
    feed: Option<Feed>,
    seqno: Seqno,
    /// In the middle of a snapshot what is held belongs to no moment.
    is_inside: bool,
    documents: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How often it had to begin with nothing.
    pub(crate) anew: u64,
}

impl Follower {
    pub(crate) fn new(vb: VbId) -> Self {
        Self { vb, feed: None, seqno: Seqno(0), is_inside: false, documents: BTreeMap::new(), anew: 0 }
    }

    /// Before the bucket goes.
    pub(crate) fn leave(&mut self) {
        self.feed = None;
    }

    /// Goes on where it stopped, if that still exists.
    pub(crate) fn connect(&mut self, rig: &Rig) {
        let history = rig.bucket.vb_history(self.vb).unwrap();
        if self.is_inside || self.seqno > history.high_seqno || history.purge_seqno > self.seqno {
            self.documents.clear();
            (self.seqno, self.is_inside) = (Seqno(0), false);
            self.anew += 1;
        }
        let options = FeedOptions {
            from: self.seqno,
            through: Seqno(0),
            inside: false,
            filter: FeedFilter::All,
            keys_only: false,
            disk_only: false,
            unordered: false,
            prepares: false,
            followers: false,
        };
        let waiter = Waiter { worker: 2, connection: u64::from(self.vb.get()), ticket: 0 };
        self.feed = Some(rig.bucket.feed(self.vb, options, waiter).unwrap());
    }

    /// Takes the next batches; false when there is nothing more for now.
    pub(crate) fn read(&mut self, rig: &Rig, batches: usize) -> bool {
        for _ in 0..batches {
            let Some(feed) = &mut self.feed else {
                self.connect(rig);
                continue;
            };
            let batch = match feed.next(BATCH_BYTES, rig.now()) {
                Ok(FeedStep::Batch(batch)) => batch,
                Ok(FeedStep::Wait) => return false,
                Err(_) => {
                    self.feed = None;
                    continue;
                }
            };
            self.is_inside |= batch.snapshot.is_some();
            for item in &batch.items {
                assert!(item.seqno > self.seqno, "{item:?} after {}", self.seqno);
                self.seqno = item.seqno;
                let key = item.key().encoded().to_vec();
                if item.deleted {
                    self.documents.remove(&key);
                } else {
                    self.documents.insert(key, item.value().to_vec());
                }
            }
            self.is_inside &= !batch.ends_snapshot;
        }
        true
    }

    /// Reads on until it has everything, and compares.
    pub(crate) fn check(&mut self, rig: &Rig, value_of: impl Fn(&[u8]) -> Option<Vec<u8>>, documents: usize) {
        let shard = usize::from(self.vb.get()) % rig.bucket.shards();
        let high = rig.bucket.vb_history(self.vb).unwrap().max_visible;
        for _ in 0..100_000 {
            rig.bucket.run_backfills(shard, rig.now());
            if !self.read(rig, 16) && !self.is_inside && self.seqno >= high {
                break;
            }
        }
        assert!(self.seqno >= high && !self.is_inside, "{} of {high} in {}", self.seqno, self.vb);
        for (key, held) in &self.documents {
            assert!(value_of(key).as_ref() == Some(held), "{key:?} is another");
        }
        assert_eq!(self.documents.len(), documents, "in {}", self.vb);
    }
}
