//! Nodes whose metadata differ though they have agreed on the same.
//!
//! Every node tells hashes of what it has made of the log ([`crate::consensus::StateMarks`]). The leader compares those of equal
//! places. A node that differs from a majority acts by something that nobody has agreed on. The leader names it, lets it serve nothing,
//! and tells it to take part in nothing any more. What it holds stays as it is until an administrator removes the node.
//!
//! Invariants:
//! - A node is fenced only where a majority of the nodes that are not failed over has the same hash, and the node has another.
//! - Where no majority has the same hash, all that have told one are named, and nothing else happens.
//! - A node that was fenced stays so for as long as it is the same member; it says so itself after a restart.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;

use crate::{
    metadata::{Metadata, NodeInfo, epoch::Epoch, topology::Membership},
    orchestrator::report::NodeReport,
};

/// Places that are remembered of each node, to be compared with what slower ones tell.
const PLACES_MAX: usize = 64;

type Place = (Epoch, u64);

/// What the leader knows of the states of nodes.
#[derive(Debug, Default)]
pub struct Divergence {
    told: BTreeMap<NodeId, Told>,
    /// Nodes that differ from a majority, and since which place.
    fenced: BTreeMap<NodeId, u64>,
    /// Nodes of which some differ from the others, where no majority agrees; and since which place.
    undecided: BTreeMap<NodeId, u64>,
}

#[derive(Debug)]
struct Told {
    uuid: String,
    hashes: BTreeMap<Place, u64>,
}

impl Divergence {
    /// Takes note of what a node says of itself.
    pub fn take(&mut self, meta: &Metadata, report: &NodeReport) {
        self.told.retain(|id, told| meta.node_by_id(*id).is_some_and(|node| node.uuid == told.uuid));
        self.fenced.retain(|id, _| self.told.contains_key(id));
        if meta.reporter(report).is_none() {
            return;
        }
        let new = || Told { uuid: report.uuid.clone(), hashes: BTreeMap::new() };
        let told = self.told.entry(report.node).or_insert_with(new);
        if let Some(index) = report.diverged {
            self.fenced.entry(report.node).or_insert(index);
        }
        let marks = report.state.iter().flat_map(|state| state.marks.iter().map(|mark| (state.epoch, mark)));
        let mut has_news = report.diverged.is_some();
        for (epoch, mark) in marks {
            has_news |= told.hashes.insert((epoch, mark.index), mark.hash) != Some(mark.hash);
        }
        while told.hashes.len() > PLACES_MAX {
            told.hashes.pop_first();
        }
        if has_news {
            self.compare(meta);
        }
    }

    /// Nodes that differ from a majority, and since which place of the log.
    #[must_use]
    pub fn fenced(&self) -> &BTreeMap<NodeId, u64> {
        &self.fenced
    }

    /// Nodes that differ from one another, where no majority agrees.
    #[must_use]
    pub fn undecided(&self) -> &BTreeMap<NodeId, u64> {
        &self.undecided
    }

    fn compare(&mut self, meta: &Metadata) {
        let counted = |node: &&NodeInfo| node.membership != Membership::InactiveFailed;
        let counted: BTreeSet<NodeId> = meta.nodes.iter().filter(counted).map(|node| node.id).collect();
        let mut by_place: BTreeMap<Place, BTreeMap<u64, Vec<NodeId>>> = BTreeMap::new();
        for (&id, told) in &self.told {
            for (&place, &hash) in &told.hashes {
                by_place.entry(place).or_default().entry(hash).or_default().push(id);
            }
        }
        by_place.retain(|_, hashes| hashes.len() > 1);
        self.undecided.clear();
        for ((_, index), hashes) in by_place {
            let agreeing = |nodes: &[NodeId]| nodes.iter().filter(|node| counted.contains(node)).count();
            let majority = hashes.values().position(|nodes| agreeing(nodes) * 2 > counted.len());
            let named = if majority.is_some() { &mut self.fenced } else { &mut self.undecided };
            let others = hashes.values().enumerate().filter(|(at, _)| Some(*at) != majority);
            for &node in others.flat_map(|(_, nodes)| nodes) {
                named.entry(node).or_insert(index);
            }
        }
        // One that is known to be wrong makes no other copy suspect.
        self.undecided.retain(|node, _| !self.fenced.contains_key(node));
        if self.undecided.len() < 2 {
            self.undecided.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        consensus::{StateMark, StateMarks},
        metadata::Ports,
    };

    fn cluster(nodes: u16) -> Metadata {
        let node = |id: u16| {
            let first = NodeInfo::first(id.to_string(), format!("h{id}"), Ports::default());
            NodeInfo { id: NodeId(id), ..first }
        };
        Metadata { nodes: (0..nodes).map(node).collect(), ..Metadata::new("c".into(), 256) }
    }

    fn report(node: u16, marks: &[(u64, u64)]) -> NodeReport {
        let marks = marks.iter().map(|&(index, hash)| StateMark { index, hash }).collect();
        NodeReport {
            boot: 1,
            started: 1,
            number: 1,
            state: Some(StateMarks { epoch: Epoch::default(), marks }),
            ..NodeReport::bare(NodeId(node), node.to_string(), 1)
        }
    }

    fn named(nodes: &BTreeMap<NodeId, u64>) -> Vec<(u16, u64)> {
        nodes.iter().map(|(node, index)| (node.get(), *index)).collect()
    }

    #[test]
    fn one_that_differs_from_a_majority_is_named_and_stays_so() {
        let (meta, mut divergence) = (cluster(3), Divergence::default());
        divergence.take(&meta, &report(0, &[(64, 7), (128, 8)]));
        divergence.take(&meta, &report(1, &[(64, 7)]));
        assert!(divergence.fenced().is_empty() && divergence.undecided().is_empty());
        // Two that differ are no majority of three; the third one decides, however late.
        divergence.take(&meta, &report(2, &[(128, 9)]));
        assert_eq!(named(divergence.undecided()), [(0, 128), (2, 128)]);
        divergence.take(&meta, &report(1, &[(128, 8)]));
        assert_eq!((named(divergence.fenced()), named(divergence.undecided())), (vec![(2, 128)], vec![]));
        for index in 3..100 {
            (0..2).for_each(|node| divergence.take(&meta, &report(node, &[(64 * index, index)])));
        }
        assert_eq!(named(divergence.fenced()), [(2, 128)]);
        // Removed and added anew it is another one.
        let mut meta = meta;
        meta.nodes[2].uuid = "new".into();
        divergence.take(&meta, &report(0, &[]));
        assert!(divergence.fenced().is_empty());
    }

    #[test]
    fn where_no_majority_agrees_all_are_named_and_none_is_fenced() {
        for nodes in [2, 4] {
            let (meta, mut divergence) = (cluster(nodes), Divergence::default());
            for node in 0..nodes {
                divergence.take(&meta, &report(node, &[(64, u64::from(node % 2))]));
            }
            assert!(divergence.fenced().is_empty());
            assert_eq!(divergence.undecided().len(), usize::from(nodes));
        }
    }

    #[test]
    fn what_a_failed_over_node_tells_makes_no_majority() {
        let (mut meta, mut divergence) = (cluster(3), Divergence::default());
        meta.nodes[2].membership = Membership::InactiveFailed;
        for (node, hash) in [(0, 1), (1, 2), (2, 2)] {
            divergence.take(&meta, &report(node, &[(64, hash)]));
        }
        assert!(divergence.fenced().is_empty(), "of the two that count each has its own");
        assert_eq!(named(divergence.undecided()), [(0, 64), (1, 64), (2, 64)]);
    }

    #[test]
    fn places_of_different_lives_of_a_group_are_not_compared() {
        let (meta, mut divergence) = (cluster(3), Divergence::default());
        let mut earlier = report(2, &[(64, 1)]);
        (0..2).for_each(|node| divergence.take(&meta, &report(node, &[(64, 7)])));
        if let Some(state) = &mut earlier.state {
            state.epoch = Epoch { number: 1, lot: 5 };
        }
        divergence.take(&meta, &earlier);
        assert!(divergence.fenced().is_empty() && divergence.undecided().is_empty());
    }

    #[test]
    fn a_node_that_knows_that_it_differs_says_so_to_every_leader() {
        let (meta, mut divergence) = (cluster(3), Divergence::default());
        divergence.take(&meta, &NodeReport { diverged: Some(64), ..report(1, &[]) });
        assert_eq!(named(divergence.fenced()), [(1, 64)]);
        let stranger = NodeReport { diverged: Some(64), uuid: "x".into(), ..report(0, &[]) };
        divergence.take(&meta, &stranger);
        assert_eq!(named(divergence.fenced()), [(1, 64)]);
    }
}
