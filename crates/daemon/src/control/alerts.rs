//! What an administrator must know of this node.

use cluster::{ClusterError, NodeInfo};
use dataplane::{lease, shared::BucketEntry};
use watch::alerts::{self, Holds};

use super::Control;

impl Control {
    /// Replicas of a bucket that shall follow other nodes' copies now, and do not.
    pub(super) fn cut_off(&self, bucket: &BucketEntry) -> u64 {
        let links = self.shared.links();
        links.map_or(0, |links| links.cut_off(&bucket.uuid).values().copied().map(u64::from).sum())
    }

    pub(crate) fn lease_alert(&self) -> Option<Holds> {
        self.shared.lease.has_run_out(lease::clock_millis).then(|| {
            let node = self.listen;
            let text = format!(
                "Node {node} has lost touch with its cluster: it serves nothing until a majority hears it again."
            );
            Holds::new(&alerts::NO_TOUCH, "", text)
        })
    }

    pub(crate) fn failover_alert(&self) -> Option<Holds> {
        let metadata = self.metadata.load();
        let is_out = metadata.node(&self.this_node.uuid()).is_some_and(NodeInfo::is_failed_over);
        is_out.then(|| Holds::new(&alerts::FAILED_OVER, "", ClusterError::failed_over(&metadata).to_string()))
    }

    pub(crate) fn agreement_alert(&self) -> Option<Holds> {
        let trouble = self.agreement.trouble()?;
        let text = format!("Cluster metadata cannot change on node {}: {trouble}.", self.listen);
        Some(Holds::new(&alerts::METADATA_STUCK, "", text))
    }

    pub(crate) fn disk_alert(&self) -> Option<Holds> {
        let disk = *self.shared.disk.lock();
        let used = (disk.total - disk.free.min(disk.total)) * 100 / disk.total.max(1);
        disk.low.then(|| {
            let (folder, node) = (self.gauges.data_dir(), self.listen);
            let text = format!(
                "Approaching full disk warning. Usage of disk \"{folder}\" on node \"{node}\" is around {used}%: only deletions are \
                 accepted."
            );
            Holds::new(&alerts::DISK_LOW, "", text)
        })
    }
}
