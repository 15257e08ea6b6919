//! What the tests of this crate share.

use base::NodeId;
use cluster::NodeReport;

/// The report of a node that has nothing to say of any bucket.
pub(crate) fn report() -> NodeReport {
    NodeReport {
        node: NodeId(0),
        uuid: "n".into(),
        boot: 1,
        started: 0,
        number: 0,
        applied: 0,
        level: cluster::level::LEVEL,
        stands_still: false,
        diverged: None,
        state: None,
        data_quota: 0,
        data_used: 0,
        disk_total: 0,
        disk_free: 0,
        buckets: Vec::new(),
    }
}
