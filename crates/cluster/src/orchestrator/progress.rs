//! How far a rebalance has come, and when it will be done.
//!
//! What is left is counted in bytes per node that sends or takes them; how fast it goes is measured. The node with the
//! most left is the one that others wait for: its pace decides where it is slower than that of all. The rate counts from when this leader first saw the rebalance; how much there was in
//! all follows from the number of copies that were to move when it started.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, VbId};

use super::heard::Heard;
use crate::{BucketInfo, Metadata, NodeInfo, VbPhase, VbPlan};

/// What a copy costs beside its bytes: the steps it takes, in bytes that could have been sent meanwhile.
const MOVE_COST: f64 = 256.0 * 1024.0;
/// The same of a handover of the active role. A guess: it waits for a seal, a sync and a report, whatever the bytes. What a rebalance
/// does in its last seconds, when all has been handed over, is in no cost yet.
const HANDOVER_COST: f64 = 1024.0 * 1024.0;
/// Share of a copy's cost that is left once all of it has been sent.
const SWITCH_SHARE: f64 = 0.05;
/// Without any progress for so long there is no honest guess.
const STALLED_AFTER_MS: u64 = 10_000;

/// How far a rebalance has come.
#[derive(Clone, Debug, PartialEq)]
pub struct RebalanceProgress {
    /// From 0 to 1.
    pub total: f64,
    /// By node that sends or takes something.
    pub nodes: BTreeMap<NodeId, NodeProgress>,
    /// Copies that count already, of those that were to move.
    pub moves_done: u64,
    /// Copies that were to move.
    pub moves_total: u64,
    /// Bytes that are still to be sent.
    pub bytes_left: u64,
    /// Seconds until it is done; `None` while nobody can know.
    pub eta_secs: Option<u64>,
    /// What it waits for, in words.
    pub waits_for: Option<String>,
}

/// How far one node has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeProgress {
    /// From 0 to 1.
    pub done: f64,
    /// Documents that it sends.
    pub outgoing: Documents,
    /// Documents that it takes.
    pub incoming: Documents,
}

/// Documents that travel, as far as nodes have said how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// In all.
    pub total: u64,
    /// Those that have arrived.
    pub done: u64,
}

impl Documents {
    fn of(all: f64, left: f64) -> Self {
        let total = all.max(left);
        Self { total: total.round() as u64, done: (total - left).round() as u64 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Tracker {
    tracked: Option<Tracked>,
}

#[derive(Debug)]
struct Tracked {
    id: String,
    began_ms: u64,
    /// When there was first anything known to measure from.
    first: Left,
    now: Left,
    /// When something last got less.
    moved_ms: u64,
}

/// What is left to do.
#[derive(Clone, Debug, Default)]
struct Left {
    cost: f64,
    bytes: f64,
    copies: u64,
    nodes: BTreeMap<NodeId, NodeLeft>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeLeft {
    cost: f64,
    /// Documents.
    outgoing: f64,
    /// Documents.
    incoming: f64,
}

impl Tracker {
    pub(super) fn observe(&mut self, meta: &Metadata, heard: &Heard, now_ms: u64) {
        let Some(rebalance) = &meta.rebalance else {
            self.tracked = None;
            return;
        };
        let now = left(meta, heard);
        match self.tracked.as_mut().filter(|tracked| tracked.id == rebalance.id) {
            Some(tracked) => tracked.take(now, now_ms),
            None => {
                let first = now.clone();
                let id = rebalance.id.clone();
                self.tracked = Some(Tracked { id, began_ms: now_ms, first, now, moved_ms: now_ms });
            }
        }
    }

    /// `unwell`: whose copy of which bucket a graceful failover waits for.
    pub(super) fn progress(
        &self,
        meta: &Metadata,
        heard: &Heard,
        unwell: Option<&(NodeId, BucketUuid)>,
        now_ms: u64,
    ) -> Option<RebalanceProgress> {
        let rebalance = meta.rebalance.as_ref()?;
        let tracked = self.tracked.as_ref().filter(|tracked| tracked.id == rebalance.id)?;
        let moves_total = rebalance.copies.max(tracked.now.copies);
        // What there was before this leader came is taken to have been like what it found.
        let scale = match tracked.first.copies {
            0 => 1.0,
            copies => moves_total as f64 / copies as f64,
        };
        let of = |left: &Left, node| left.nodes.get(node).copied().unwrap_or_default();
        let part = tracked.first.nodes.keys().chain(tracked.now.nodes.keys());
        let nodes = part.map(|node| {
            let (first, left) = (of(&tracked.first, node), of(&tracked.now, node));
            let progress = NodeProgress {
                done: share_done(left.cost, first.cost * scale),
                outgoing: Documents::of(first.outgoing * scale, left.outgoing),
                incoming: Documents::of(first.incoming * scale, left.incoming),
            };
            (*node, progress)
        });
        Some(RebalanceProgress {
            total: share_done(tracked.now.cost, tracked.first.cost * scale),
            nodes: nodes.collect(),
            moves_done: moves_total - tracked.now.copies,
            moves_total,
            bytes_left: tracked.now.bytes as u64,
            eta_secs: tracked.eta_secs(now_ms),
            waits_for: waits_for(meta, heard, unwell, now_ms),
        })
    }
}

fn share_done(left: f64, all: f64) -> f64 {
    if all <= 0.0 { 1.0 } else { (1.0 - left / all).clamp(0.0, 1.0) }
}

impl Tracked {
    fn take(&mut self, now: Left, now_ms: u64) {
        if now.cost < self.now.cost {
            self.moved_ms = now_ms;
        }
        if now.cost > self.first.cost {
            // More has become known, or more has to be done: what was measured says nothing about it.
            (self.first, self.began_ms) = (now.clone(), now_ms);
        }
        self.now = now;
    }

    /// The longer of what the node with the most left and all together take, at their pace so far.
    fn eta_secs(&self, now_ms: u64) -> Option<u64> {
        if now_ms.saturating_sub(self.moved_ms) >= STALLED_AFTER_MS {
            return None;
        }
        let elapsed = now_ms.saturating_sub(self.began_ms) as f64 / 1000.0;
        let need = |left: f64, first: f64| (first > left).then(|| left * elapsed / (first - left));
        let by_load = |(_, one): &(&NodeId, &NodeLeft), (_, other): &(&NodeId, &NodeLeft)| {
            one.cost.total_cmp(&other.cost)
        };
        // Others send and take as they are asked to: their pace says nothing.
        let busiest = self.now.nodes.iter().max_by(by_load).and_then(|(node, left)| {
            need(left.cost, self.first.nodes.get(node).map_or(0.0, |first| first.cost))
        });
        let all = need(self.now.cost, self.first.cost);
        let longest = busiest.into_iter().chain(all).max_by(f64::total_cmp);
        longest.map(|secs| secs.round() as u64)
    }
}

fn left(meta: &Metadata, heard: &Heard) -> Left {
    let mut all = Left::default();
    for bucket in meta.buckets.values() {
        let Some(target) = &bucket.target else { continue };
        for (at, (plan, target)) in bucket.vbs.iter().zip(target.iter()).enumerate() {
            if plan.chain != *target || !plan.is_quiet() {
                add_left(&mut all, bucket, VbId(at as u16), plan, target, heard);
            }
        }
    }
    all
}

fn add_left(all: &mut Left, bucket: &BucketInfo, vb: VbId, plan: &VbPlan, target: &[NodeId], heard: &Heard) {
    let Some(&active) = plan.chain.first() else { return };
    let weight = heard.weight(active, &bucket.uuid, vb).unwrap_or_default();
    let bytes = weight.bytes as f64;
    let cost = bytes + MOVE_COST;
    let seqno = |node: NodeId| heard.copy(node, &bucket.uuid, vb).map_or(0, |copy| copy.high_seqno.get());
    for &node in target.iter().filter(|node| !plan.chain.contains(node)) {
        let sent = match seqno(active) {
            0 => 0.0,
            high if plan.building.contains(&node) => (seqno(node) as f64 / high as f64).min(1.0),
            _ => 0.0,
        };
        let (unsent, documents) = (bytes * (1.0 - sent), weight.items as f64 * (1.0 - sent));
        let left = cost * SWITCH_SHARE + cost * (1.0 - SWITCH_SHARE) * (1.0 - sent);
        all.copies += 1;
        all.bytes += unsent;
        all.cost += left;
        let from = all.nodes.entry(active).or_default();
        (from.cost, from.outgoing) = (from.cost + left, from.outgoing + documents);
        let to = all.nodes.entry(node).or_default();
        (to.cost, to.incoming) = (to.cost + left, to.incoming + documents);
    }
    if target.first() != Some(&active) || !matches!(plan.phase, VbPhase::Settled) {
        all.cost += HANDOVER_COST;
        for node in target.first().into_iter().chain([&active]) {
            all.nodes.entry(*node).or_default().cost += HANDOVER_COST;
        }
    }
}

fn waits_for(
    meta: &Metadata,
    heard: &Heard,
    unwell: Option<&(NodeId, BucketUuid)>,
    now_ms: u64,
) -> Option<String> {
    let named = |node: &NodeInfo| format!("node {}:{}", node.host, node.ports.mgmt);
    let silent = |node: &&NodeInfo| heard.is_silent(node.id, now_ms) && meta.holds_copies(node.id);
    if let Some(node) = meta.nodes.iter().find(silent) {
        return Some(format!("{} has not been heard of", named(node)));
    }
    let pressed =
        meta.buckets.iter().find_map(|(name, bucket)| Some((name, pressed(bucket, heard, now_ms)?)));
    if let Some((bucket, node)) = pressed {
        let node = meta.node_by_id(node)?;
        return Some(format!("{} slows down those who write to bucket \"{bucket}\"", named(node)));
    }
    if let Some((node, uuid)) = unwell {
        let (node, (bucket, _)) = (meta.node_by_id(*node)?, meta.bucket_by_uuid(uuid)?);
        return Some(format!("{} has to catch up with its copies of bucket \"{bucket}\"", named(node)));
    }
    meta.nodes.iter().find_map(|node| {
        let (uuid, latency) = heard.missed_objective(node.id)?;
        let (bucket, _) = meta.buckets.iter().find(|(_, bucket)| bucket.uuid == *uuid)?;
        Some(format!(
            "one copy at a time: on {} operations on bucket \"{bucket}\" take {} us (p99), its objective is {}",
            named(node),
            latency.p99_us,
            latency.objective_us
        ))
    })
}

/// A node that active roles have to go to, and where writers fare worse than where those are.
fn pressed(bucket: &BucketInfo, heard: &Heard, now_ms: u64) -> Option<NodeId> {
    let pressure = |node: NodeId| heard.pressure(node, &bucket.uuid, now_ms).0;
    let aims = bucket.vbs.iter().zip(bucket.target.iter().flat_map(|target| target.iter()));
    aims.filter_map(|(plan, target)| Some((plan.active()?, *target.first()?)))
        .find(|&(active, leader)| pressure(leader) > pressure(active))
        .map(|(_, leader)| leader)
}
