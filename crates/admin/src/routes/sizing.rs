//! Whether what there is would fit on fewer nodes: the arithmetic that is shown when it would not.
//!
//! Asked only where nodes go. A cluster that is too full already must be allowed to grow, or to keep its size.

use base::{NodeId, bucket::BucketKind};
use cluster::{BucketInfo, Membership, Metadata};

use crate::figures::ClusterFigures;

const MIB: u64 = 1024 * 1024;

/// What would not fit on `keep`, in sentences; nothing when all does, or when no node goes.
pub(super) fn shortages(meta: &Metadata, figures: &ClusterFigures, keep: &[NodeId]) -> Vec<String> {
    let holders = meta.nodes.iter().filter(|node| node.membership == Membership::Active).count();
    if keep.is_empty() || keep.len() >= holders {
        return Vec::new();
    }
    let memory = meta.buckets.iter().filter_map(|(name, bucket)| {
        let sum = Needs::of(meta, figures, name, bucket, holders, keep.len())?;
        sum.memory_shortage(name, bucket)
    });
    memory.chain(disk_shortage(meta, figures, holders, keep)).collect()
}

/// What a bucket needs in memory on each node, now and then.
struct Needs {
    /// Bytes that have to be in memory, on all nodes.
    total: u64,
    nodes: (usize, usize),
    copies: (usize, usize),
    /// Bytes on each node afterwards.
    each: u64,
}

impl Needs {
    fn of(
        meta: &Metadata,
        figures: &ClusterFigures,
        name: &str,
        bucket: &BucketInfo,
        before: usize,
        after: usize,
    ) -> Option<Self> {
        let total = match bucket.kind {
            // Values can leave memory, keys and metadata cannot.
            BucketKind::Couchbase => figures.of_bucket(name).map(|stats| stats.quota_min).sum(),
            BucketKind::Ephemeral => figures.of_bucket(name).map(|stats| stats.mem_used).sum(),
            // Every node has its own, and drops what does not fit.
            BucketKind::Memcached => return None,
        };
        let copies = |nodes: usize| (usize::from(bucket.replicas) + 1).min(nodes);
        let copies = (copies(before), copies(after));
        debug_assert!(after <= meta.nodes.len());
        Some(Self { total, nodes: (before, after), copies, each: spread(total, copies, after) })
    }

    fn memory_shortage(&self, name: &str, bucket: &BucketInfo) -> Option<String> {
        let quota = bucket.ram_quota_mb.saturating_mul(MIB);
        (self.each > quota).then(|| {
            format!(
                "Bucket \"{name}\": {} MiB that have to stay in memory ({} copies of each document on {} nodes) come to \
                 {} MiB on each of {} nodes ({} copies); its quota there is {} MiB.",
                self.total.div_ceil(MIB),
                self.copies.0,
                self.nodes.0,
                self.each.div_ceil(MIB),
                self.nodes.1,
                self.copies.1,
                bucket.ram_quota_mb,
            )
        })
    }
}

/// What each node has when `total` bytes of so many copies (before, after) are spread over `nodes`.
fn spread(total: u64, copies: (usize, usize), nodes: usize) -> u64 {
    let (before, after) = (copies.0.max(1) as u128, copies.1 as u128);
    let each = u128::from(total) * after / before / nodes.max(1) as u128;
    u64::try_from(each).unwrap_or(u64::MAX)
}

/// The node that has the least disk for its share, if it is too little.
fn disk_shortage(
    meta: &Metadata,
    figures: &ClusterFigures,
    holders: usize,
    keep: &[NodeId],
) -> Option<String> {
    let needed: u64 = meta
        .buckets
        .iter()
        .map(|(name, bucket)| {
            let total = figures.of_bucket(name).map(|stats| stats.data_used).sum();
            let copies = |nodes: usize| (usize::from(bucket.replicas) + 1).min(nodes);
            spread(total, (copies(holders), copies(keep.len())), keep.len())
        })
        .sum();
    let room = keep.iter().filter_map(|&node| {
        let figures = figures.node(node)?;
        let own: u64 = figures.buckets.values().map(|stats| stats.disk_used).sum();
        let free = figures.system.disk_total.saturating_sub(figures.system.disk_used);
        // A disk that cannot be measured is no reason to refuse.
        (figures.system.disk_total > 0).then_some((free + own, node))
    });
    let (room, node) = room.min()?;
    let host = &meta.node_by_id(node)?.host;
    (needed > room).then(|| {
        format!(
            "Disk: each of {} nodes gets {} MiB of documents; {host} has {} MiB for them.",
            keep.len(),
            needed.div_ceil(MIB),
            room / MIB,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_that_go_hold_falls_to_the_others() {
        assert_eq!(spread(300, (1, 1), 2), 150);
        assert_eq!(spread(400, (2, 2), 2), 200);
        assert_eq!(spread(600, (3, 2), 2), 200, "a copy that no node is left for goes as well");
        assert_eq!(spread(0, (1, 1), 1), 0);
    }
}
