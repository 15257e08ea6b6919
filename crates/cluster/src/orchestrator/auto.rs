//! Automatic failover: whether somebody has been silent for so long, and is so little needed, that the others go on
//! without.
//!
//! A node is failed over only if all of this holds:
//! - Automatic failover is on. Every node has said that it knows, or cannot serve any more.
//! - The node has been silent for the whole timeout, which is longer than any lease.
//! - No other node that fell silent with it is about to follow: they are failed over together, or none of them is.
//! - This leader hears a majority of the active nodes.
//! - The count of failovers allows it.
//! - If all nodes of a server group are silent, failing over groups is on.
//! - Enough whole copies are left of every vBucket.
//!
//! What can be checked without clocks and reports is checked again when the command is applied.

use base::{BucketUuid, NodeId, VbId, VbRole};

use super::Orchestrator;
use crate::{
    changes::{
        Command,
        rebalancing::{FailOver, Flaw},
    },
    metadata::Metadata,
};

/// Nodes that fall silent within that time are lost together: they are failed over together, or none of them is. One at a
/// time, the first of a server group would be failed over as a node. That would use up the count by which the group would
/// have been failed over.
const TOGETHER_MS: u64 = 1_000;

impl Orchestrator {
    pub(super) fn automatic(&self, meta: &Metadata, now_ms: u64) -> Option<Command> {
        let is_armed = meta.auto_failover.armed;
        let is_unsettled = meta.auto_failover.earlier_lease_ms.is_some() || meta.needs_leases() != is_armed;
        if is_unsettled && self.nobody_acts_by_earlier_settings(meta, now_ms) {
            let since = meta.auto_failover.since;
            let arm = Command::ArmAutoFailoverSince { since };
            return Some(if meta.admits(&arm).is_ok() { arm } else { Command::ArmAutoFailover });
        }
        if !is_armed {
            return None;
        }
        let nodes = self.candidates(meta, now_ms);
        let allowed = !nodes.is_empty()
            && meta.auto_failover.count.saturating_add(meta.events(&nodes)) <= meta.auto_failover.max_count
            && (meta.auto_failover.whole_groups || !empties_a_group(meta, &nodes))
            && meta.unsafe_with(&nodes, &|node, bucket, vb| self.flaw(node, bucket, vb, now_ms)).is_none();
        allowed.then_some(Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: true }))
    }

    /// What a copy says is wrong with it.
    fn flaw(&self, node: NodeId, bucket: &BucketUuid, vb: VbId, now_ms: u64) -> Option<Flaw> {
        if self.heard.is_unopened(node, bucket, now_ms) {
            return Some(Flaw::Part);
        }
        let copy = self.heard.copy(node, bucket, vb)?;
        let may_lack = copy.may_lack || (copy.unconfirmed && copy.role != VbRole::Active);
        (!copy.complete).then_some(Flaw::Part).or(may_lack.then_some(Flaw::MayLack))
    }

    /// Whether no active node serves by earlier settings than those of now. Each has said that it knows those of now,
    /// or has been granted no lease for longer than one could last. Or it has leases by those of now only. That counts
    /// for a node that hangs as well. Where leases are asked for that were not, that tells nothing: a node that does
    /// not know serves without one.
    fn nobody_acts_by_earlier_settings(&self, meta: &Metadata, now_ms: u64) -> bool {
        let settings = &meta.auto_failover;
        let is_leased = settings.is_leased || !meta.needs_leases();
        let lease_ms = meta.longest_lease_ms().filter(|_| is_leased);
        let granted_by_these_ms = self.heard.granted_by_ms(settings.since, now_ms);
        meta.active_nodes().all(|node| {
            let knows = self.heard.report(node.id).is_some_and(|said| said.applied >= settings.since);
            let is_bound = lease_ms
                .is_some_and(|ms| granted_by_these_ms.max(self.heard.unleased_ms(node.id, now_ms)) >= ms);
            (knows && self.heard.is_heard(node.id, now_ms)) || is_bound
        })
    }

    /// Active nodes that have been silent for the timeout. There are none unless this leader hears a majority of the active
    /// nodes, or while another one is about to join the silent ones.
    fn candidates(&self, meta: &Metadata, now_ms: u64) -> Vec<NodeId> {
        let timeout_ms = u64::from(meta.auto_failover.timeout_secs) * 1000;
        let active: Vec<NodeId> = meta.active_nodes().map(|node| node.id).collect();
        let silence_ms = |node: &NodeId| self.heard.missing_ms(*node, now_ms);
        let gone: Vec<NodeId> =
            active.iter().copied().filter(|node| silence_ms(node) >= timeout_ms).collect();
        let follows = |node: &NodeId| {
            let due_ms = timeout_ms.saturating_sub(silence_ms(node));
            (1..TOGETHER_MS).contains(&due_ms) && !self.heard.is_current(*node, now_ms)
        };
        let heard = active.iter().filter(|&&node| self.heard.is_heard(node, now_ms)).count();
        if heard * 2 > active.len() && !active.iter().any(follows) { gone } else { Vec::new() }
    }
}

/// Whether some server group would have no active node left, with others having some.
fn empties_a_group(meta: &Metadata, nodes: &[NodeId]) -> bool {
    let groups = |gone: bool| {
        let chosen = meta.active_nodes().filter(move |node| nodes.contains(&node.id) == gone);
        chosen.map(|node| node.group.as_str()).collect::<std::collections::BTreeSet<_>>()
    };
    let (lost, left) = (groups(true), groups(false));
    // A group of one node fails as that node.
    let of_several = |group: &&&str| meta.active_nodes().filter(|node| node.group == **group).count() > 1;
    lost.iter().filter(of_several).any(|group| !left.contains(group))
}
