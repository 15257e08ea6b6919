//! Groups that are formed anew, and nodes that go on as members of them.

use std::sync::Arc;

use base::NodeId;
use settee_cluster::{
    Command, FailOver, Metadata,
    consensus::{Batch, Consensus, LogStore as _, Member, MemoryLog, ProposalId},
};

use super::Simulation;

impl Simulation {
    /// Forms the group anew of those that are not `lost`, as an administrator would: whose log goes furthest begins, which
    /// is returned. They lose nothing that one of them knew of.
    pub(crate) fn reform(&mut self, lost: &[usize]) -> usize {
        let nodes: Vec<NodeId> = lost.iter().map(|node| self.nodes[*node].id).collect();
        self.reform_without(&nodes)
    }

    /// The same, by the numbers of nodes, some of which may be gone.
    pub(crate) fn reform_without(&mut self, lost: &[NodeId]) -> usize {
        let is_left = |node: &usize| !lost.contains(&self.nodes[*node].id);
        let left: Vec<usize> = (0..self.nodes.len()).filter(is_left).collect();
        assert!(left.iter().all(|node| !self.node(*node).leads()), "somebody leads");
        let founder = *left.iter().max_by_key(|node| self.node(**node).position()).unwrap();
        self.proposed += 1;
        let id = ProposalId { origin: u64::from(self.nodes[founder].id.get()), number: self.proposed };
        // Nobody names whom he does not know.
        let known = |node: &NodeId| self.node(founder).metadata().node_by_id(*node).is_some();
        let nodes = lost.iter().copied().filter(known).collect();
        let command = Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false });
        let last = left.iter().map(|node| self.node(*node).epoch()).max().unwrap();
        let epoch = last.next(self.rng.u64(..));
        let (member, first) = self.node(founder).reform(epoch, id, command).unwrap();
        let known: Vec<Arc<Metadata>> =
            left.iter().map(|node| Arc::clone(self.node(*node).metadata())).collect();
        self.begin_again(founder, &member, first);
        let now = self.node(founder).metadata();
        for metadata in known {
            assert!(metadata.settings.keys().all(|setting| now.settings.contains_key(setting)));
            assert!(metadata.version < now.version && metadata.rev_epoch < now.rev_epoch);
        }
        founder
    }

    /// A node goes on as another member; what it was writing is written first.
    pub(super) fn begin_again(&mut self, at: usize, member: &Member, first: Batch) {
        let mut disk = MemoryLog::default();
        disk.write(std::slice::from_ref(&first)).unwrap();
        let group = Consensus::open(&disk.load().unwrap(), self.rng.u64(..)).unwrap();
        assert_eq!(group.member(), member);
        let Some(running) = &mut self.nodes[at].running else { return };
        running.unwritten.iter_mut().for_each(|(_, number)| *number = 0);
        running.unwritten.push((vec![first], 0));
        let beginning = group.so_far();
        // What versions another group had says nothing.
        running.applied = (0, 0);
        running.reads.clear();
        for (id, outcome) in &beginning.outcomes {
            let waited_for = running.waiting.remove(id);
            if waited_for.is_some_and(|wanted| wanted.is_setting()) && outcome.is_ok() {
                self.checks.acknowledged(member.epoch, *id);
            }
        }
        running.group = group;
    }
}
