//! At most one node acknowledges what is written to a vBucket. Within a term one node alone is ever active, whatever clocks and
//! leases say. Where leases are asked for, no vBucket is served by two nodes at any moment, of whatever terms. (What one
//! replaced node acknowledges beside its successor where none are is not durable: the histories tell.)

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, VbId};

/// What a node has active at the moment.
pub(crate) struct Serving<'a> {
    pub(crate) node: NodeId,
    /// Under a lease, which has not run out.
    pub(crate) is_leased: bool,
    /// And at which terms.
    pub(crate) active: Vec<(&'a BucketUuid, VbId, u64)>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct OneActive {
    /// The node that has been active, by vBucket and term.
    active: BTreeMap<(BucketUuid, VbId), BTreeMap<u64, NodeId>>,
    /// What was active at the last look: from one moment to the next it hardly ever changes.
    before: Vec<(NodeId, bool, BucketUuid, VbId, u64)>,
}

impl OneActive {
    /// Checks what is active at the moment.
    pub(crate) fn check<'a>(&mut self, all: impl Iterator<Item = Serving<'a>>) {
        let all: Vec<Serving<'a>> = all.collect();
        let flat = all.iter().flat_map(|one| {
            one.active.iter().map(move |(bucket, vb, term)| (one.node, one.is_leased, *bucket, *vb, *term))
        });
        let before =
            self.before.iter().map(|(node, leased, bucket, vb, term)| (*node, *leased, bucket, *vb, *term));
        if flat.clone().eq(before) {
            return;
        }
        self.before =
            flat.map(|(node, leased, bucket, vb, term)| (node, leased, bucket.clone(), vb, term)).collect();
        let mut served: BTreeMap<(&BucketUuid, VbId), NodeId> = BTreeMap::new();
        for Serving { node, is_leased, active } in all {
            for (bucket, vb, term) in active {
                let terms = self.active.entry((bucket.clone(), vb)).or_default();
                let of_term = *terms.entry(term).or_insert(node);
                assert_eq!(of_term, node, "{vb} of {bucket:?} is active on both in term {term}");
                if is_leased {
                    let other = served.insert((bucket, vb), node);
                    assert_eq!(other, None, "{vb} of {bucket:?} is served by {node} too");
                }
            }
        }
    }
}
