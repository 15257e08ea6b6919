//! Where leases are asked for, no vBucket is served by two nodes at any moment.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, VbId};

/// Checks what nodes serve at the moment: of each whether it needs a lease for it, and what.
pub(crate) fn check<'a>(serving: impl Iterator<Item = (NodeId, bool, Vec<(&'a BucketUuid, VbId)>)>) {
    let mut served: BTreeMap<(&BucketUuid, VbId), NodeId> = BTreeMap::new();
    for (node, _, copies) in serving.filter(|(_, is_leased, _)| *is_leased) {
        for copy in copies {
            let other = served.insert(copy, node);
            assert_eq!(other, None, "{copy:?} is served by {node} too");
        }
    }
}
