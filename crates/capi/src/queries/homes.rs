//! What this node has of its buckets, as queries see it: the copies in the engine, and the indexes of them.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use base::{BucketUuid, Seqno, VbId, VbRole, VbUuid};
use engine::Bucket;
use indexer::{WaitError, Wants};
use views::{
    design::Signature,
    index::{Snapshot, VbSet},
};

use super::{answers::Homes, here::Holding};
use crate::indexes::{BucketIndexes, Indexes};

/// The buckets of this node.
pub(crate) struct OfNode(pub(crate) Indexes);

impl Homes for OfNode {
    fn of(&self, bucket: &BucketUuid) -> Option<Arc<dyn Holding>> {
        Some(self.0.of(bucket)?)
    }
}

impl Holding for BucketIndexes {
    fn may_serve(&self) -> bool {
        self.gate().may_serve()
    }

    fn role_and_term(&self, vb: VbId) -> (VbRole, u64) {
        self.bucket().vb_role(vb).unwrap_or_default()
    }

    fn newest(&self, vb: VbId) -> Option<(VbUuid, Seqno)> {
        self.bucket().vb_newest(vb).ok()
    }

    fn documents(&self) -> u64 {
        self.bucket().stats().curr_items
    }

    fn look(&self, signature: &Signature, vbs: &VbSet) -> Option<(Option<Snapshot>, VbSet)> {
        self.indexer().look(signature, vbs)
    }

    fn wait_for(&self, signature: &Signature, wanted: &Wants, until: Instant) -> Result<Snapshot, WaitError> {
        self.indexer().wait_for(signature, wanted, until)
    }

    fn ask(&self, signature: &Signature, wanted: &Wants) {
        self.indexer().ask(signature, wanted);
    }

    fn count_query(&self) {
        self.note_query();
    }

    fn report_damage(&self, signature: &Signature, opening: u64) {
        self.indexer().report_damage(signature, opening);
    }

    fn life(&self) -> Weak<dyn Send + Sync> {
        let bucket: Weak<Bucket> = Arc::downgrade(self.bucket());
        bucket
    }
}
