//! What the tests of this crate share.

use base::NodeId;
use cluster::NodeReport;

/// The report of a node that has nothing to say of any bucket.
pub(crate) fn report() -> NodeReport {
    NodeReport { boot: 1, ..NodeReport::bare(NodeId(0), "n".into(), 0) }
}
