//! What this node has of its buckets, as queries see it: the copies in the engine, and the indexes of them.

use std::{sync::Arc, time::Instant};

use base::{BucketUuid, Seqno, VbId, VbRole, VbUuid};
use http::Gate;
use indexer::{WaitError, Wants};
use views::{
    design::Signature,
    index::{Snapshot, VbSet},
};

use super::{answers::Homes, here::Holding};
use crate::indexes::{BucketIndexes, Indexes};

/// The buckets of this node.
pub(crate) struct OfNode {
    pub(crate) indexes: Indexes,
    pub(crate) gate: Arc<dyn Gate>,
}

impl Homes for OfNode {
    fn of(&self, bucket: &BucketUuid) -> Option<Arc<dyn Holding>> {
        let indexes = self.indexes.of(bucket)?;
        Some(Arc::new(OfBucket { indexes, gate: Arc::clone(&self.gate) }))
    }
}

struct OfBucket {
    indexes: Arc<BucketIndexes>,
    gate: Arc<dyn Gate>,
}

impl Holding for OfBucket {
    fn may_serve(&self) -> bool {
        self.gate.may_serve()
    }

    fn role_and_term(&self, vb: VbId) -> (VbRole, u64) {
        self.indexes.bucket().vb_role(vb).unwrap_or_default()
    }

    fn newest(&self, vb: VbId) -> Option<(VbUuid, Seqno)> {
        self.indexes.bucket().vb_newest(vb).ok()
    }

    fn documents(&self) -> u64 {
        self.indexes.bucket().stats().curr_items
    }

    fn look(&self, signature: &Signature, vbs: &VbSet) -> Option<(Option<Snapshot>, VbSet)> {
        self.indexes.indexer().look(signature, vbs)
    }

    fn wait_for(&self, signature: &Signature, wanted: &Wants, until: Instant) -> Result<Snapshot, WaitError> {
        self.indexes.indexer().wait_for(signature, wanted, until)
    }

    fn ask(&self, signature: &Signature, wanted: &Wants) {
        self.indexes.indexer().ask(signature, wanted);
    }

    fn count_query(&self) {
        self.indexes.count_query();
    }

    fn report_damage(&self, signature: &Signature) {
        self.indexes.indexer().report_damage(signature);
    }
}
