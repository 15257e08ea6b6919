//! What the node is told of the indexes of its buckets, for statistics and tasks.

use std::sync::{Arc, Weak, atomic::Ordering};

use base::BucketUuid;
use indexer::IndexCourse;
use service::{BucketFigures, Figures, Progress};

use super::{BucketIndexes, Inner};
use crate::path::DESIGN;

/// Tells how this node's indexes are. It holds them weakly: once the service has dropped them, it tells of none.
pub(super) struct OfNode(pub(super) Weak<Inner>);

impl OfNode {
    fn indexes(&self, bucket: &BucketUuid) -> Option<Arc<BucketIndexes>> {
        self.0.upgrade()?.state.lock().open.get(bucket)?.running.clone()
    }
}

impl Figures for OfNode {
    fn of(&self, bucket: &BucketUuid) -> BucketFigures {
        let Some(indexes) = self.indexes(bucket) else { return BucketFigures::default() };
        let disk = indexes.indexer.disk();
        BucketFigures {
            queries: indexes.queries.load(Ordering::Relaxed),
            disk_bytes: disk.all,
            live_bytes: disk.live,
        }
    }

    fn progress(&self, bucket: &BucketUuid) -> Vec<Progress> {
        self.indexes(bucket).map(|indexes| told(indexes.indexer.courses())).unwrap_or_default()
    }

    fn compactions(&self, bucket: &BucketUuid) -> Vec<Progress> {
        self.indexes(bucket).map(|indexes| told(indexes.indexer.compactions())).unwrap_or_default()
    }
}

/// How far indexes are, by design document.
fn told(courses: Vec<IndexCourse>) -> Vec<Progress> {
    let of_documents = courses.into_iter().flat_map(|index| {
        let (done, total) = (index.done, index.done + index.left);
        let told = move |name: String| Progress { design_document: format!("{DESIGN}{name}"), done, total };
        index.names.into_iter().map(told)
    });
    of_documents.collect()
}
