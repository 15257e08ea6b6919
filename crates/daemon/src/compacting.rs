//! Compacting a bucket because somebody asks for it: on every node that holds some of it.
//!
//! Invariant: of a bucket one such compaction runs at a time, however often it is asked for; a request meanwhile is told that
//! it has started.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base::BucketUuid;
use cluster::{ClusterError, NodeInfo};
use http::Gate as _;

use super::{
    broadcast::{YES, absentees},
    control::Control,
};

/// The question to compact the bucket with that uuid.
const COMPACT: &str = "compact";

/// Whether an open bucket is being compacted because somebody asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Compacting(Arc<AtomicBool>);

/// It is, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn(Compacting);

impl Compacting {
    /// `None` if it is already.
    pub(super) fn begin(&self) -> Option<Turn> {
        let runs = self.0.swap(true, Ordering::AcqRel);
        (!runs).then(|| Turn(self.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// Starts it on every node that holds data.
///
/// # Errors
/// When there is no such bucket, or nodes have not said that they have started.
pub(super) async fn start(control: &Control, bucket: &str) -> Result<(), ClusterError> {
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
pub(super) fn answer(control: &Arc<Control>) {
    let me = Arc::downgrade(control);
    control.routes().add(COMPACT, move |body| {
        let bucket = String::from_utf8(body).map(BucketUuid);
        let is_started = me.upgrade().zip(bucket.ok()).is_some_and(|(me, bucket)| me.compact_here(&bucket));
        async move { Ok(if is_started { YES.to_vec() } else { Vec::new() }) }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runs_at_a_time_and_the_next_once_it_has_ended() {
        let compacting = Compacting::default();
        let turn = compacting.begin();
        assert!(turn.is_some() && compacting.begin().is_none());
        drop(turn);
        assert!(compacting.begin().is_some());
    }
}
