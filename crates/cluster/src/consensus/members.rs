//! The nodes that shall belong to the group: what follows from the metadata, one step at a time.
//!
//! Every node of the cluster is a member. At most [`VOTERS_MAX`] of them vote: a commit waits for a majority, and with
//! seven voters three may fail. A node that is failed over votes no more, so that the majority is counted of those that
//! are there; another one takes its place. One that is removed votes no more first, and goes then. So it is there until
//! those that vote without it know that they do.

use std::collections::BTreeSet;

use crate::metadata::{Metadata, topology::Membership};

use super::{entry::MemberChange, raft_id};

/// Most members that vote.
pub const VOTERS_MAX: usize = 7;

/// The members there are.
pub(super) struct Members<'a> {
    pub(super) voters: &'a BTreeSet<u64>,
    pub(super) learners: &'a BTreeSet<u64>,
    /// The one that leads, whose step this is.
    pub(super) leader: u64,
}

/// What the leader does next about the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Changes it.
    Change(MemberChange),
    /// Has somebody else lead, because it shall not vote itself.
    HandOver,
}

/// The next step towards what `metadata` says; `has_caught_up` tells which learners could vote.
pub(super) fn next_step(
    metadata: &Metadata,
    members: &Members<'_>,
    has_caught_up: impl Fn(u64) -> bool,
) -> Option<NextStep> {
    let nodes: BTreeSet<u64> = metadata.nodes.iter().map(|node| raft_id(node.id)).collect();
    let counted = metadata.nodes.iter().filter(|node| node.membership != Membership::InactiveFailed);
    let counted: BTreeSet<u64> = counted.map(|node| raft_id(node.id)).collect();
    let leaves = |id: &&u64| !nodes.contains(*id);
    let is_not_counted = |id: &&u64| !counted.contains(*id);
    let others = || members.voters.iter().filter(|id| **id != members.leader);
    if let Some(&id) = members.learners.iter().find(leaves) {
        return Some(NextStep::Change(MemberChange::Remove(id)));
    }
    if let Some(&id) = others().find(is_not_counted) {
        return Some(NextStep::Change(MemberChange::Learner(id)));
    }
    let is_member = |id: &u64| members.voters.contains(id) || members.learners.contains(id);
    if let Some(&id) = nodes.iter().find(|id| !is_member(id)) {
        return Some(NextStep::Change(MemberChange::Learner(id)));
    }
    let wanted = counted.len().min(VOTERS_MAX);
    let could_vote = |id: &&u64| members.learners.contains(*id) && has_caught_up(**id);
    // A leader that does not count goes on to vote until another one leads. The place that it has is wanted for that one.
    if members.voters.intersection(&counted).count() < wanted
        && let Some(&id) = counted.iter().find(could_vote)
    {
        return Some(NextStep::Change(MemberChange::Voter(id)));
    }
    let somebody_else_could = others().next().is_some();
    (!counted.contains(&members.leader) && somebody_else_could).then_some(NextStep::HandOver)
}

#[cfg(test)]
mod tests {
    use base::NodeId;

    use super::*;
    use crate::metadata::{NodeInfo, Ports};

    fn cluster(nodes: &[(u16, Membership)]) -> Metadata {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = nodes
            .iter()
            .map(|&(id, membership)| {
                let first = NodeInfo::first(format!("n{id}"), "h".into(), Ports::default());
                NodeInfo { id: NodeId(id), membership, ..first }
            })
            .collect();
        metadata
    }

    /// Carries out every step until there is none; returns voters and learners.
    fn settled(metadata: &Metadata, voters: &[u64], learners: &[u64], leader: u64) -> (Vec<u64>, Vec<u64>) {
        let mut voters: BTreeSet<u64> = voters.iter().copied().collect();
        let mut learners: BTreeSet<u64> = learners.iter().copied().collect();
        for _ in 0..100 {
            let members = Members { voters: &voters, learners: &learners, leader };
            let Some(NextStep::Change(change)) = next_step(metadata, &members, |_| true) else { break };
            let (MemberChange::Learner(id) | MemberChange::Voter(id) | MemberChange::Remove(id)) = change;
            voters.remove(&id);
            learners.remove(&id);
            match change {
                MemberChange::Learner(id) => learners.insert(id),
                MemberChange::Voter(id) => voters.insert(id),
                MemberChange::Remove(_) => true,
            };
        }
        (voters.into_iter().collect(), learners.into_iter().collect())
    }

    #[test]
    fn a_node_added_learns_and_then_votes() {
        let metadata = cluster(&[(0, Membership::Active), (1, Membership::InactiveAdded)]);
        let (voters, learners) = (BTreeSet::from([1]), BTreeSet::from([2]));
        let members = Members { voters: &voters, learners: &learners, leader: 1 };
        assert_eq!(next_step(&metadata, &members, |_| false), None, "not before it has caught up");
        assert_eq!(settled(&metadata, &[1], &[], 1), (vec![1, 2], vec![]));
    }

    #[test]
    fn no_more_than_seven_vote_and_the_failed_are_replaced() {
        let mut nodes: Vec<_> = (0..9).map(|id| (id, Membership::Active)).collect();
        let (voters, learners) = settled(&cluster(&nodes), &[1], &[], 1);
        assert_eq!((voters, learners), ((1..=7).collect(), vec![8, 9]));
        nodes[2].1 = Membership::InactiveFailed;
        let (voters, learners) = settled(&cluster(&nodes), &[1, 2, 3, 4, 5, 6, 7], &[8, 9], 1);
        assert_eq!((voters, learners), (vec![1, 2, 4, 5, 6, 7, 8], vec![3, 9]));
    }

    #[test]
    fn a_leader_that_leaves_hands_over_after_the_others_are_in_order() {
        let metadata = cluster(&[(1, Membership::Active)]);
        let (voters, learners) = (BTreeSet::from([1, 2, 3]), BTreeSet::new());
        let members = Members { voters: &voters, learners: &learners, leader: 1 };
        let step = next_step(&metadata, &members, |_| true);
        assert_eq!(step, Some(NextStep::Change(MemberChange::Learner(3))), "it is not gone yet");
        let (voters, without) = (BTreeSet::from([1, 2]), BTreeSet::from([3]));
        let members = Members { voters: &voters, learners: &without, leader: 1 };
        let step = next_step(&metadata, &members, |_| true);
        assert_eq!(step, Some(NextStep::Change(MemberChange::Remove(3))));
        let members = Members { voters: &voters, learners: &learners, leader: 1 };
        assert_eq!(next_step(&metadata, &members, |_| true), Some(NextStep::HandOver));
        let members = Members { voters: &voters, learners: &learners, leader: 2 };
        let step = next_step(&metadata, &members, |_| true);
        assert_eq!(step, Some(NextStep::Change(MemberChange::Learner(1))));
    }

    #[test]
    fn a_leader_that_votes_no_more_hands_over_to_the_only_one_that_does() {
        let metadata = cluster(&[(0, Membership::InactiveFailed), (1, Membership::Active)]);
        let (voters, learners) = (BTreeSet::from([2]), BTreeSet::from([1]));
        let members = Members { voters: &voters, learners: &learners, leader: 1 };
        assert_eq!(next_step(&metadata, &members, |_| true), Some(NextStep::HandOver));
        let (voters, learners) = (BTreeSet::from([1]), BTreeSet::from([2]));
        let members = Members { voters: &voters, learners: &learners, leader: 1 };
        assert_eq!(next_step(&metadata, &members, |_| false), None, "nobody else could vote yet");
        let step = next_step(&metadata, &members, |_| true);
        assert_eq!(step, Some(NextStep::Change(MemberChange::Voter(2))), "nobody else votes yet");
    }
}
