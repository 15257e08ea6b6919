//! Which node is to answer for which vBuckets: each vBucket is asked of one node, the one that serves it by the metadata.

use std::collections::BTreeMap;

use base::{NodeId, VbId};
use cluster::BucketInfo;
use views::index::VbSet;

/// A development view is asked over one vBucket where a node has more documents for each vBucket of the bucket.
const DOCUMENTS_OF_VBUCKET: u64 = 20;

/// The nodes that are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The nodes, with what each is asked for.
    pub(crate) nodes: BTreeMap<NodeId, VbSet>,
    /// vBuckets that nobody serves now.
    pub(crate) unserved: VbSet,
}

impl Plan {
    /// By the metadata, for these vBuckets of a bucket.
    pub(crate) fn of(info: &BucketInfo, wanted: &VbSet) -> Self {
        let mut plan = Self::default();
        // Mostly a node serves many vBuckets in a row.
        let mut run: Option<(NodeId, VbSet)> = None;
        for vb in wanted.iter() {
            let Some(node) = info.vbs.get(usize::from(vb.get())).and_then(cluster::VbPlan::active) else {
                plan.unserved.insert(vb);
                continue;
            };
            match &mut run {
                Some((of, vbs)) if *of == node => vbs.insert(vb),
                _ => {
                    let ended = run.replace((node, [vb].into_iter().collect()));
                    ended.into_iter().for_each(|ended| plan.add(ended));
                }
            }
        }
        run.into_iter().for_each(|ended| plan.add(ended));
        plan
    }

    fn add(&mut self, (node, vbs): (NodeId, VbSet)) {
        self.nodes.entry(node).or_default().extend(&vbs);
    }
}

/// All vBuckets of a bucket.
pub(crate) fn all(info: &BucketInfo) -> VbSet {
    (0..info.vbuckets).map(VbId).collect()
}

/// The vBuckets that a node serves by the metadata.
pub(crate) fn served_by(info: &BucketInfo, node: NodeId) -> VbSet {
    let served = (0..info.vbuckets).zip(info.vbs.iter()).filter(|(_, plan)| plan.active() == Some(node));
    served.map(|(vb, _)| VbId(vb)).collect()
}

/// The vBuckets that a view under development is asked over by a node that serves these, with so many documents.
pub(crate) fn of_development(info: &BucketInfo, served: &VbSet, documents: u64) -> VbSet {
    match served.iter().next() {
        Some(first) if documents > DOCUMENTS_OF_VBUCKET.saturating_mul(u64::from(info.vbuckets)) => {
            [first].into_iter().collect()
        }
        _ => all(info),
    }
}
