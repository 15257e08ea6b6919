//! What an agent sees of the buckets and streams of its process.

use std::{collections::BTreeMap, sync::Arc};

use base::{BucketUuid, NodeId, VbId};
use engine::Bucket;
use settee_node::Buckets;

use crate::{link::Link, open_bucket::OpenBucket};

/// The open buckets and the open streams of this node.
pub(super) struct View<'a> {
    pub(super) buckets: &'a BTreeMap<BucketUuid, OpenBucket>,
    pub(super) links: &'a BTreeMap<(BucketUuid, NodeId), Link>,
}

impl Buckets for View<'_> {
    type Bucket = Arc<Bucket>;

    fn copies(&self, bucket: &BucketUuid) -> Option<Arc<Bucket>> {
        self.buckets.get(bucket).map(|open| Arc::clone(&open.engine))
    }

    fn following(&self, bucket: &BucketUuid, vb: VbId) -> Option<u64> {
        let of_bucket = self.links.iter().filter(|((uuid, _), _)| uuid == bucket);
        of_bucket.filter_map(|(_, link)| link.terms.get(&vb).copied()).max()
    }
}
