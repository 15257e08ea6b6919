//! Whether the data would fit the nodes after a change: the arithmetic that is shown when they would not.
//!
//! A node is only ever too small for what it would get beyond what it has. So a cluster that is too full already may grow,
//! and may keep its size. A full one does not take in a node that is smaller than its share would be.
//!
//! What goes where is known of copies: how many there are on nodes that say how much they hold, and how many there shall be.

use base::{NodeId, bucket::BucketKind};
use cluster::{BucketInfo, Membership, Metadata};

use crate::{node::control::BucketStatsView, request::figures::ClusterFigures};

const MIB: u64 = 1024 * 1024;

/// What would not fit on `keep`, in sentences; nothing when all does.
pub(super) fn shortages(meta: &Metadata, figures: &ClusterFigures, keep: &[NodeId]) -> Vec<String> {
    let memory = meta.buckets.iter().filter_map(|(name, bucket)| {
        let needed = Share::of(meta, figures, (name.as_str(), bucket), keep, in_memory(bucket.kind)?)?;
        needed.memory_shortage(name, bucket)
    });
    memory.chain(disk_shortage(meta, figures, keep)).collect()
}

/// What of a bucket has to be in memory on a node.
fn in_memory(kind: BucketKind) -> Option<fn(&BucketStatsView) -> u64> {
    match kind {
        // Values can leave memory, keys and metadata cannot.
        BucketKind::Couchbase => Some(|stats| stats.quota_min),
        BucketKind::Ephemeral => Some(|stats| stats.mem_used),
        // Every node has its own, and drops what does not fit.
        BucketKind::Memcached => None,
    }
}

/// What a node has of a bucket, now and then.
struct Share {
    /// Bytes on each node that says how much, and how many hold something.
    now: (u64, usize),
    /// Bytes on each node afterwards, and how many there are.
    then: (u64, usize),
    /// How many copies of each document there are then.
    copies: usize,
}

impl Share {
    /// Nothing where nobody says what it holds, or holds anything.
    fn of(
        meta: &Metadata,
        figures: &ClusterFigures,
        (name, bucket): (&str, &BucketInfo),
        keep: &[NodeId],
        bytes: fn(&BucketStatsView) -> u64,
    ) -> Option<Self> {
        let is_active = |id| meta.node_by_id(id).is_some_and(|node| node.membership == Membership::Active);
        let told = || {
            let active = figures.nodes().filter(|(node, _)| is_active(*node));
            active.filter_map(|(node, figures)| Some((node, figures.buckets.get(name)?)))
        };
        let total = told().map(|(_, stats)| bytes(stats)).fold(0, u64::saturating_add);
        let held = told().map(|(node, _)| copies_on(bucket, node)).sum();
        let copies = bucket.copies().min(keep.len());
        let now = total.checked_div(told().count() as u64)?;
        let then = spread(total, (held, bucket.vbs.len() * copies), keep.len())?;
        let holders = meta.active_nodes().count();
        Some(Self { now: (now, holders), then: (then, keep.len()), copies })
    }

    fn memory_shortage(&self, name: &str, bucket: &BucketInfo) -> Option<String> {
        let (now, then) = (self.now.0, self.then.0);
        let is_short = then > bucket.ram_quota_mb.saturating_mul(MIB) && then > now;
        is_short.then(|| {
            format!(
                "Bucket \"{name}\": what has to stay in memory, {} MiB on each of {} nodes now, comes to {} MiB on each of {} \
                 nodes (copies of each document: {}); its quota there is {} MiB.",
                now.div_ceil(MIB),
                self.now.1,
                then.div_ceil(MIB),
                self.then.1,
                self.copies,
                bucket.ram_quota_mb,
            )
        })
    }
}

/// Copies of vBuckets that count and are on a node.
fn copies_on(bucket: &BucketInfo, node: NodeId) -> usize {
    bucket.vbs.iter().filter(|plan| plan.chain.contains(&node)).count()
}

/// What each node has when what so many copies take (before, after) is spread over `nodes`; nothing where there are none of
/// either.
fn spread(total: u64, copies: (usize, usize), nodes: usize) -> Option<u64> {
    let (before, after) = (copies.0 as u128, copies.1 as u128);
    let each = (u128::from(total) * after).checked_div(before)?.checked_div(nodes as u128)?;
    Some(u64::try_from(each).unwrap_or(u64::MAX))
}

/// The node that has the least disk for its share, if it is too little. One that has as much already has room for it.
fn disk_shortage(meta: &Metadata, figures: &ClusterFigures, keep: &[NodeId]) -> Option<String> {
    let shares = meta.buckets.iter().filter_map(|(name, bucket)| {
        Share::of(meta, figures, (name.as_str(), bucket), keep, |stats| stats.data_used)
    });
    let needed = shares.map(|share| share.then.0).fold(0, u64::saturating_add);
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
        // Of 60 vBuckets: so many copies now and then.
        assert_eq!(spread(300, (60, 60), 2), Some(150));
        assert_eq!(spread(400, (120, 120), 2), Some(200));
        assert_eq!(spread(600, (180, 120), 2), Some(200), "a copy that no node is left for goes as well");
        assert_eq!(spread(400, (80, 120), 2), Some(300), "copies that were lost are made anew");
        assert_eq!(spread(200, (20, 60), 2), Some(300), "as much where others do not say");
        assert_eq!(spread(0, (60, 60), 1), Some(0));
        assert_eq!(spread(100, (0, 60), 1), None);
    }
}
