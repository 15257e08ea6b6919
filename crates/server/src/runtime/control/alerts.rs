//! What an administrator must know of this node.

use base::bucket::BucketKind;
use cluster::{ClusterError, NodeInfo};
use engine::Pressure;

use super::Control;
use crate::{lease, shared::BucketEntry};

/// Percent of a quota that keys and metadata may take without a warning (ns_server).
const OVERHEAD_PERCENT: u64 = 50;

impl Control {
    /// Replicas of a bucket that shall follow other nodes' copies now, and do not.
    pub(super) fn cut_off(&self, bucket: &BucketEntry) -> u64 {
        let links = self.shared.links();
        links.map_or(0, |links| links.cut_off(&bucket.uuid).values().copied().map(u64::from).sum())
    }

    pub(super) fn lease_alert(&self) -> Option<String> {
        self.shared.lease.has_run_out(lease::clock_millis).then(|| {
            let node = self.listen;
            format!("Node {node} has lost touch with its cluster: it serves nothing until a majority hears it again.")
        })
    }

    pub(super) fn failover_alert(&self) -> Option<String> {
        let metadata = self.metadata.load();
        let is_out = metadata.node(&self.this_node.uuid()).is_some_and(NodeInfo::is_failed_over);
        is_out.then(|| ClusterError::failed_over(&metadata).to_string())
    }

    pub(super) fn agreement_alert(&self) -> Option<String> {
        let trouble = self.agreement.trouble()?;
        Some(format!("Cluster metadata cannot change on node {}: {trouble}.", self.listen))
    }

    /// What the memory of buckets makes an administrator's business: before clients see errors, then while they do.
    pub(super) fn pressure_alerts(&self) -> Vec<String> {
        let node = self.listen;
        let mut alerts = Vec::new();
        for (bucket, _) in self.buckets.patients() {
            let name = bucket.name();
            match bucket.pressure_step() {
                Pressure::None | Pressure::Paging => {}
                Pressure::Cursors => alerts.push(format!(
                    "Memory pressure: Bucket \"{name}\" on node {node} is close to its quota. Slow streams are read \
                     from disk."
                )),
                Pressure::Pacing => alerts.push(format!(
                    "Write pressure: Writers of bucket \"{name}\" on node {node} are slowed down to what the disk takes."
                )),
                Pressure::Refusing => alerts.push(format!(
                    "Heavy memory pressure: Bucket \"{name}\" on node {node} has reached its quota. The server will \
                     attempt to recover from this issue."
                )),
            }
            let stats = bucket.stats();
            let percent = stats.mem_floor * 100 / stats.quota_bytes.max(1);
            if bucket.kind() == BucketKind::Couchbase && percent > OVERHEAD_PERCENT {
                alerts.push(format!(
                    "Metadata overhead warning. Over {percent}% of RAM allocated to bucket \"{name}\" on node \
                     \"{node}\" is taken up by keys and metadata."
                ));
            }
        }
        alerts
    }
}
