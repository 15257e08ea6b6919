//! Whether the data would fit the nodes after a change: the arithmetic of `settee plan` ([`plan::live`]), which is shown when it would not.
//!
//! A node is only ever too small for what it would get beyond what it has. So a cluster that is too full already may grow,
//! and may keep its size. A full one does not take in a node that is smaller than its share would be.
//!
//! What goes where is known of copies: how many there are on nodes that say how much they hold, and how many there shall be.

use base::NodeId;
use cluster::{BucketInfo, Membership, Metadata};
use http::form::Form;
use plan::{
    live::{Live, Need, Verdict, WhatIf},
    sizing::Rule,
};

use crate::{
    node::control::BucketStatsView,
    request::{Call, figures::ClusterFigures},
};

const MIB: u64 = 1024 * 1024;

/// The parameter by which a change is made although what is left is too small for it.
pub(super) const FORCE: &str = "allowUnderProvisioned";

/// Whether the sender knows better: by the form, or as a query beside a form or JSON.
pub(super) fn is_forced(call: &Call, form: &Form) -> bool {
    form.is_on(FORCE) || call.query.is_on(FORCE)
}

/// What would not fit on `keep`, in sentences; nothing when all does.
pub(super) fn shortages(meta: &Metadata, figures: &ClusterFigures, keep: &[NodeId]) -> Vec<String> {
    let memory = meta.buckets.iter().filter_map(|(name, bucket)| {
        let then = Then { keep, copies: bucket.copies(), quota_mb: bucket.ram_quota_mb };
        memory_shortage(meta, figures, (name.as_str(), bucket), &then)
    });
    memory.chain(disk_shortage(meta, figures, keep)).collect()
}

/// Why a bucket cannot have so many copies of each document with so much quota on the nodes that there are; nothing where it can.
pub(super) fn of_change(
    meta: &Metadata,
    figures: &ClusterFigures,
    bucket: (&str, &BucketInfo),
    copies: usize,
    quota_mb: u64,
) -> Option<String> {
    let keep: Vec<NodeId> = meta.active_nodes().map(|node| node.id).collect();
    memory_shortage(meta, figures, bucket, &Then { keep: &keep, copies, quota_mb })
}

/// What shall be of a bucket.
struct Then<'a> {
    keep: &'a [NodeId],
    copies: usize,
    quota_mb: u64,
}

/// The arithmetic of `settee plan`, by what has to stay in memory. Values may leave it, so too little for them is no reason to refuse.
fn memory_shortage(
    meta: &Metadata,
    figures: &ClusterFigures,
    (name, bucket): (&str, &BucketInfo),
    then: &Then<'_>,
) -> Option<String> {
    let share = Share::of(meta, figures, (name, bucket), then, floor)?;
    let nodes = u32::try_from(then.keep.len()).unwrap_or(u32::MAX);
    let live = Live {
        floor: share.total as f64,
        values: 0.0,
        copies: u32::try_from(share.copies).unwrap_or(u32::MAX),
        quota: then.quota_mb.saturating_mul(MIB) as f64,
        nodes,
    };
    let need = live.needs(WhatIf::AsItIs, &Rule::SETTEE);
    let is_worse = share.then.0 > share.now.0 || then.quota_mb < bucket.ram_quota_mb;
    (need.verdict() == Verdict::TooSmall && is_worse).then(|| share.told(name, &need, then.quota_mb))
}

/// What has to stay in memory on a node. A node of an earlier version tells only what quota that needs, which is a little more.
fn floor(stats: &BucketStatsView) -> u64 {
    if stats.mem_floor > 0 { stats.mem_floor } else { stats.quota_min }
}

/// What a node has of a bucket, now and then.
struct Share {
    /// Bytes on each node that says how much, and how many hold something.
    now: (u64, usize),
    /// Bytes on each node afterwards, and how many there are.
    then: (u64, usize),
    /// Bytes on all of them.
    total: u64,
    /// How many copies of each document there are then.
    copies: usize,
}

impl Share {
    /// Nothing where nobody says what it holds, or holds anything.
    fn of(
        meta: &Metadata,
        figures: &ClusterFigures,
        (name, bucket): (&str, &BucketInfo),
        then: &Then<'_>,
        bytes: fn(&BucketStatsView) -> u64,
    ) -> Option<Self> {
        let is_active = |id| meta.node_by_id(id).is_some_and(|node| node.membership == Membership::Active);
        let told = || {
            let active = figures.nodes().filter(|(node, _)| is_active(*node));
            active.filter_map(|(node, figures)| Some((node, figures.buckets.get(name)?)))
        };
        let total = told().map(|(_, stats)| bytes(stats)).fold(0, u64::saturating_add);
        let held = told().map(|(node, _)| copies_on(bucket, node)).sum();
        let copies = then.copies.min(then.keep.len());
        let now = total.checked_div(told().count() as u64)?;
        let total = whole(total, (held, bucket.vbs.len() * copies))?;
        let each = total.checked_div(then.keep.len() as u64)?;
        let holders = meta.active_nodes().count();
        Some(Self { now: (now, holders), then: (each, then.keep.len()), total, copies })
    }

    /// Why a bucket has too little room.
    fn told(&self, name: &str, need: &Need, quota_mb: u64) -> String {
        let least = need.least / f64::from(need.there_are.max(1)) / MIB as f64;
        format!(
            "Bucket \"{name}\": what has to stay in memory, {} MiB on each of {} nodes now, comes to {} MiB on each of {} \
             nodes (copies of each document: {}). With headroom that needs a quota of {:.0} MiB on each; its quota there is \
             {quota_mb} MiB.",
            self.now.0.div_ceil(MIB),
            self.now.1,
            self.then.0.div_ceil(MIB),
            self.then.1,
            self.copies,
            least.ceil(),
        )
    }
}

/// Copies of vBuckets that count and are on a node.
fn copies_on(bucket: &BucketInfo, node: NodeId) -> usize {
    bucket.vbs.iter().filter(|plan| plan.chain.contains(&node)).count()
}

/// What so many copies take, from what so many take now (before, after); nothing where there are none now.
fn whole(total: u64, copies: (usize, usize)) -> Option<u64> {
    let (before, after) = (copies.0 as u128, copies.1 as u128);
    let all = (u128::from(total) * after).checked_div(before)?;
    Some(u64::try_from(all).unwrap_or(u64::MAX))
}

/// The node that has the least disk for its share, if it is too little. One that has as much already has room for it.
fn disk_shortage(meta: &Metadata, figures: &ClusterFigures, keep: &[NodeId]) -> Option<String> {
    let shares = meta.buckets.iter().filter_map(|(name, bucket)| {
        let then = Then { keep, copies: bucket.copies(), quota_mb: bucket.ram_quota_mb };
        Share::of(meta, figures, (name.as_str(), bucket), &then, |stats| stats.data_used)
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
        assert_eq!(whole(300, (60, 60)), Some(300));
        assert_eq!(whole(600, (180, 120)), Some(400), "a copy that no node is left for goes as well");
        assert_eq!(whole(400, (80, 120)), Some(600), "copies that were lost are made anew");
        assert_eq!(whole(200, (20, 60)), Some(600), "as much where others do not say");
        assert_eq!(whole(0, (60, 60)), Some(0));
        assert_eq!(whole(100, (0, 60)), None);
    }
}
