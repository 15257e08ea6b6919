//! How much this node has still to send to the nodes that follow it in a bucket, as far as their copies count. Writers are
//! paced by that ([`engine::FollowerLoad`]).
//!
//! A copy that is being made is behind by all there is, and nobody waits for it. A node that is not connected is in no list: the
//! engine remembers it for a while, since it may be about to connect again.

use std::sync::atomic::Ordering;

use cluster::BucketInfo;
use engine::FollowerLoad;
use replication::{LinkName, producer::stats::ProducerStats};

use crate::state::{
    producers::Highs,
    shared::{BucketEntry, Shared, Snapshot},
};

/// Of every node that follows this one in a bucket.
pub fn loads(shared: &Shared, snapshot: &Snapshot, bucket: &BucketEntry) -> Vec<FollowerLoad> {
    let Some(info) = snapshot.metadata.buckets.get(&*bucket.name) else { return Vec::new() };
    let mut producers = shared.dcp.of_bucket(&bucket.uuid.0);
    producers.retain(|stats| LinkName::parse(&stats.name).is_some());
    // Where nobody follows, nobody looks at every vBucket either.
    if producers.is_empty() {
        return Vec::new();
    }
    let highs = Highs::of(&bucket.engine);
    producers.iter().filter_map(|stats| load(stats, info, &highs)).collect()
}

fn load(stats: &ProducerStats, info: &BucketInfo, highs: &Highs) -> Option<FollowerLoad> {
    let node = LinkName::parse(&stats.name)?.to;
    let (mut copies, mut items) = (0_u64, 0);
    for stream in stats.streams.lock().iter() {
        let plan = info.vbs.get(usize::from(stream.vb.get()));
        if plan.is_some_and(|plan| plan.chain.contains(&node)) {
            copies += 1;
            items += highs.remaining(stream);
        }
    }
    Some(FollowerLoad {
        node,
        sent: stats.inflated_bytes_sent.load(Ordering::Relaxed),
        items_sent: stats.items_sent.load(Ordering::Relaxed),
        items_behind: items,
        share: copies as f64 / highs.len().max(1) as f64,
    })
}
