//! How much may be on its way at once, per node.
//!
//! Copies cost the node that sends them and the node that takes them. A role on its way costs clients a pause: requests
//! for that vBucket wait for its end. A client keeps only so many requests under way, so its other requests wait behind
//! them. Copies that wait for a silent node count for nothing, so that it does not hold up the others.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, VbId};
use serde_json::Value;

use super::heard::Heard;
use crate::metadata::{Metadata, topology::VbPhase};

/// Copies on their way to, and from, one node (`rebalanceMovesPerNode`, ns_server's default).
const MOVES_PER_NODE: u64 = 4;
/// Copies so small in sum do not count one by one: what they cost is the time it takes to decide.
const SMALL_MOVES_BYTES: u64 = 16 << 20;
const SMALL_MOVES: u64 = 64;
/// Roles on their way to or from one node.
const HANDOVERS_PER_NODE: u64 = 4;
/// Chains of one node's active copies that change at once.
const CHANGES_PER_NODE: u64 = 64;

pub(super) struct Budget {
    moves_per_node: u64,
    incoming: BTreeMap<NodeId, Load>,
    outgoing: BTreeMap<NodeId, Load>,
    handovers: BTreeMap<NodeId, u64>,
    changes: BTreeMap<NodeId, u64>,
    /// Nodes on which operations miss their objective.
    strained: Vec<NodeId>,
}

/// How many roles may be on their way at once; the more cautious one is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HandoverLimit {
    OneByOne,
    Freely,
}

impl HandoverLimit {
    fn most(self) -> u64 {
        match self {
            Self::Freely => HANDOVERS_PER_NODE,
            Self::OneByOne => 1,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Load {
    moves: u64,
    bytes: u64,
}

impl Budget {
    /// What is left beside what is on its way already.
    pub(super) fn new(meta: &Metadata, heard: &Heard, now_ms: u64) -> Self {
        let setting = meta.settings.get("rebalance").and_then(|set| set.get("rebalanceMovesPerNode"));
        let moves_per_node = setting.and_then(Value::as_u64).unwrap_or(MOVES_PER_NODE).max(1);
        let strained = meta
            .nodes
            .iter()
            .map(|node| node.id)
            .filter(|&node| heard.missed_objective(node).is_some())
            .collect();
        let mut this = Self {
            moves_per_node,
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            handovers: BTreeMap::new(),
            changes: BTreeMap::new(),
            strained,
        };
        for bucket in meta.buckets.values() {
            for (at, plan) in bucket.vbs.iter().enumerate().filter(|(_, plan)| !plan.is_quiet()) {
                let Some(&active) = plan.chain.first() else { continue };
                let vb = VbId(at as u16);
                let bytes = weight(heard, active, &bucket.uuid, vb);
                let arrived = |node: NodeId| {
                    heard
                        .copy(node, &bucket.uuid, vb)
                        .is_some_and(|copy| copy.complete && copy.term == plan.term)
                };
                let coming =
                    plan.building.iter().filter(|&&node| !heard.is_silent(node, now_ms) && !arrived(node));
                coming.for_each(|&node| this.add(active, node, bytes));
                if let VbPhase::Handover { to, .. } = plan.phase {
                    this.add_handover(active, to);
                }
                if plan.joint.is_some() {
                    *this.changes.entry(active).or_default() += 1;
                }
            }
        }
        this
    }

    /// Whether copies of so many bytes may begin to travel from one node to others.
    pub(super) fn admit_build(&mut self, from: NodeId, to: &[NodeId], bytes: u64) -> bool {
        let free = self.is_free(&self.outgoing, from, bytes)
            && to.iter().all(|&node| self.is_free(&self.incoming, node, bytes));
        if free {
            to.iter().for_each(|&node| self.add(from, node, bytes));
        }
        free
    }

    pub(super) fn admit_handover(&mut self, from: NodeId, to: NodeId, limit: HandoverLimit) -> bool {
        let busy = |node: &NodeId| self.handovers.get(node).copied().unwrap_or(0) >= limit.most();
        let free = ![from, to].iter().any(busy);
        if free {
            self.add_handover(from, to);
        }
        free
    }

    pub(super) fn admit_change(&mut self, active: NodeId) -> bool {
        let changes = self.changes.entry(active).or_default();
        let free = *changes < CHANGES_PER_NODE;
        *changes += u64::from(free);
        free
    }

    fn is_free(&self, loads: &BTreeMap<NodeId, Load>, node: NodeId, bytes: u64) -> bool {
        let load = loads.get(&node).copied().unwrap_or_default();
        // Where operations are slow already one copy at a time has to do; none at all would never end.
        let most = if self.strained.contains(&node) { 1 } else { self.moves_per_node };
        let small = load.moves < SMALL_MOVES && load.bytes.saturating_add(bytes) <= SMALL_MOVES_BYTES;
        load.moves < most || (small && most > 1)
    }

    fn add(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        let ends = [self.outgoing.entry(from).or_default(), self.incoming.entry(to).or_default()];
        for load in ends {
            load.moves += 1;
            load.bytes = load.bytes.saturating_add(bytes);
        }
    }

    fn add_handover(&mut self, from: NodeId, to: NodeId) {
        for node in [from, to] {
            *self.handovers.entry(node).or_default() += 1;
        }
    }
}

/// Bytes of a copy as far as its node has said; one of unknown size may be large.
pub(super) fn weight(heard: &Heard, active: NodeId, bucket: &BucketUuid, vb: VbId) -> u64 {
    heard.weight(active, bucket, vb).map_or(SMALL_MOVES_BYTES, |weight| weight.bytes)
}
