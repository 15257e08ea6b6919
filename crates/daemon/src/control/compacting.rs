//! Compacting a bucket because somebody asks for it: on every node that holds some of it.
//!
//! Invariant: one such compaction of a bucket runs at a time, however often it is asked for. A request that comes meanwhile
//! is told that it has started.

use std::sync::Arc;

use base::BucketUuid;
use cluster::{ClusterError, NodeInfo};
use http::Gate as _;

use crate::control::{
    Control,
    broadcast::{YES, absentees},
};

/// The question to compact the bucket with that uuid.
const COMPACT: &str = "compact";

/// Starts it on every node that holds data.
///
/// # Errors
/// When there is no such bucket, or nodes have not said that they have started.
pub(crate) async fn start(control: &Control, bucket: &str) -> Result<(), ClusterError> {
    let metadata = control.metadata();
    let uuid = &metadata.buckets.get(bucket).ok_or(ClusterError::BucketNotFound)?.uuid;
    let is_started = control.compact_here(uuid);
    let mut absent = absentees(control, COMPACT, uuid.0.as_bytes()).await;
    // A node that holds no data may be asked as well, and has nothing to do itself.
    let this = metadata.active_nodes().find(|node| node.id == control.this_id());
    absent.extend(this.filter(|_| !is_started).map(NodeInfo::called));
    if absent.is_empty() {
        return Ok(());
    }
    let text = format!("The bucket is being compacted, but not on: {}", absent.join(", "));
    Err(ClusterError::Failed(text))
}

/// Answers other nodes.
pub(crate) fn answer(control: &Arc<Control>) {
    control.answer(COMPACT, |control, body| async move {
        let bucket = String::from_utf8(body).map(BucketUuid);
        let is_started = bucket.is_ok_and(|bucket| control.compact_here(&bucket));
        Ok(if is_started { YES.to_vec() } else { Vec::new() })
    });
}
