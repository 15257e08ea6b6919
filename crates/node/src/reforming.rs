//! Failing over so many nodes that the others cannot agree on it. This module decides when the survivors may form anew
//! the group that agrees on the metadata. It also decides which of them are asked what they know, and which of them
//! begins.
//!
//! Only an administrator can say that the lost ones will not go on by themselves. So it happens only where a failover may be unsafe,
//! nobody has led for long ([`Reforming`]), and nobody can. Nobody can where the survivors that vote are no majority. Every node that is
//! not named as lost has to answer, since what it knows may be more than what the others do ([`Survey`]). The one whose log goes furthest
//! begins the new group ([`Participant::reform`](crate::Participant::reform)), and decides once more whether it may, by what it knows.
//! The others, and those that were lost should they come back, are told to join it (`cluster::consensus`).
//!
//! Times are milliseconds of a clock that does not jump.

use std::collections::{BTreeSet, VecDeque};

use base::NodeId;
use cluster::{
    ClusterError, Membership, Metadata,
    consensus::{Epoch, Position},
};

/// How long nobody must have led: longer than it takes to elect somebody who can be elected.
const LEADERLESS_MILLIS: u64 = 4_000;

/// What a survivor says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The life of the group that it belongs to.
    pub epoch: Epoch,
    /// How far the log goes that it has.
    pub position: Position,
    /// The node that leads, as far as it knows.
    pub leader: Option<NodeId>,
}

/// A failover at any price, until there is nothing left but to form the group anew. Meanwhile it is proposed as every other one.
#[derive(Debug)]
pub struct Reforming {
    lost: Vec<NodeId>,
    /// Nobody has led since.
    since: u64,
}

impl Reforming {
    /// Of nodes that an administrator says are lost.
    #[must_use]
    pub fn new(lost: Vec<NodeId>, now: u64) -> Self {
        Self { lost, since: now }
    }

    /// How long nobody must lead yet before survivors may be asked. To be called often: a leader counts when it is seen.
    pub fn rests_for(&mut self, leader: Option<NodeId>, now: u64) -> u64 {
        if leader.is_some() {
            self.since = now;
        }
        (self.since + LEADERLESS_MILLIS).saturating_sub(now)
    }

    /// Whom to ask what they know, where the majority is lost by what the node `me` knows, which stands like that.
    ///
    /// # Errors
    /// [`ClusterError::MembersRefused`] where it is not, or this node is to be failed over itself.
    pub fn ask(
        &self,
        (me, survivor): (NodeId, Survivor),
        voters: &BTreeSet<NodeId>,
        metadata: &Metadata,
    ) -> Result<Survey, ClusterError> {
        if self.lost.contains(&me) {
            return Err(refused("Ask a node that is not to be failed over."));
        }
        cluster::consensus::check_majority_is_lost(voters, &self.lost)?;
        let others = metadata.nodes.iter().filter(|node| node.id != me && !self.lost.contains(&node.id));
        let counted = others.filter(|node| node.membership != Membership::InactiveFailed);
        let asked = counted.map(|node| Asked {
            node: node.id,
            host: node.host.clone(),
            may_be_silent: node.membership == Membership::InactiveAdded,
        });
        let mut survey =
            Survey { asked: asked.collect(), furthest: (me, survivor.position), epoch: survivor.epoch };
        survey.take(me, "this node", survivor)?;
        Ok(survey)
    }
}

/// A node that has yet to say what it knows.
#[derive(Debug)]
struct Asked {
    node: NodeId,
    host: String,
    /// It holds no data, and so nothing that clients have been told of rests on what it knows.
    may_be_silent: bool,
}

/// Asking survivors, one after the other.
#[derive(Debug)]
pub struct Survey {
    asked: VecDeque<Asked>,
    furthest: (NodeId, Position),
    /// The latest life of the group that any of them belongs to.
    epoch: Epoch,
}

impl Survey {
    /// The next one to be asked, and its host; nothing when all have answered.
    #[must_use]
    pub fn next(&self) -> Option<(NodeId, &str)> {
        self.asked.front().map(|asked| (asked.node, asked.host.as_str()))
    }

    /// It has answered, or nobody has heard from it.
    ///
    /// # Errors
    /// When the group is not to be formed anew because of that.
    pub fn answered(&mut self, answer: Option<Survivor>) -> Result<(), ClusterError> {
        let Some(Asked { node, host, may_be_silent }) = self.asked.pop_front() else { return Ok(()) };
        match answer {
            Some(survivor) => self.take(node, &host, survivor),
            None if may_be_silent => Ok(()),
            None => Err(refused(format!(
                "{host} is to stay and does not answer. Fail it over as well, or bring it back."
            ))),
        }
    }

    /// The node that is to form the group anew, and in which life. `lot` is random.
    #[must_use]
    pub fn founder(&self, lot: u64) -> (NodeId, Epoch) {
        (self.furthest.0, self.epoch.next(lot))
    }

    fn take(&mut self, node: NodeId, host: &str, survivor: Survivor) -> Result<(), ClusterError> {
        if let Some(leader) = survivor.leader {
            return Err(ClusterError::Failed(format!("by what {host} knows, node {leader} leads")));
        }
        self.epoch = self.epoch.max(survivor.epoch);
        if survivor.position > self.furthest.1 {
            self.furthest = (node, survivor.position);
        }
        Ok(())
    }
}

fn refused(text: impl Into<String>) -> ClusterError {
    ClusterError::MembersRefused(text.into())
}

#[cfg(test)]
mod tests {
    use cluster::{NodeInfo, Ports};

    use super::*;

    fn metadata(nodes: u16) -> Metadata {
        let mut metadata = Metadata::new("c".into(), 16);
        metadata.nodes = (0..nodes)
            .map(|id| NodeInfo {
                id: NodeId(id),
                ..NodeInfo::first(id.to_string(), format!("h{id}"), Ports::default())
            })
            .collect();
        metadata.next_node = nodes;
        metadata
    }

    fn ids(numbers: &[u16]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    fn survivor(number: u64, index: u64) -> Survivor {
        let epoch = Epoch { number, lot: 0 };
        Survivor { epoch, position: Position { epoch, term: 1, index }, leader: None }
    }

    fn ask(lost: &[u16], metadata: &Metadata) -> Result<Survey, ClusterError> {
        let voters = metadata.nodes.iter().map(|node| node.id).collect();
        Reforming::new(ids(lost), 0).ask((NodeId(0), survivor(0, 5)), &voters, metadata)
    }

    #[test]
    fn nobody_is_asked_before_nobody_has_led_for_long() {
        let mut reforming = Reforming::new(ids(&[1]), 1_000);
        assert_eq!(reforming.rests_for(None, 2_000), 3_000);
        assert_eq!(reforming.rests_for(Some(NodeId(1)), 4_000), 4_000);
        assert_eq!(reforming.rests_for(None, 7_999), 1);
        assert_eq!(reforming.rests_for(None, 8_000), 0);
    }

    #[test]
    fn a_majority_that_is_left_is_refused_and_so_is_a_lost_node_that_asks() {
        let metadata = metadata(5);
        assert!(matches!(ask(&[3, 4], &metadata), Err(ClusterError::MembersRefused(_))));
        assert!(matches!(ask(&[0, 1, 2], &metadata), Err(ClusterError::MembersRefused(_))));
        assert!(ask(&[2, 3, 4], &metadata).is_ok());
    }

    #[test]
    fn the_log_that_goes_furthest_begins_once_all_have_answered() {
        let mut survey = ask(&[3, 4, 5], &metadata(6)).unwrap();
        assert_eq!(survey.next(), Some((NodeId(1), "h1")));
        survey.answered(Some(survivor(0, 7))).unwrap();
        assert_eq!(survey.next(), Some((NodeId(2), "h2")));
        survey.answered(Some(survivor(0, 6))).unwrap();
        assert_eq!(survey.next(), None);
        assert_eq!(survey.founder(9), (NodeId(1), Epoch { number: 1, lot: 9 }));
    }

    #[test]
    fn the_new_life_is_later_than_that_of_a_survivor_whose_log_is_of_an_earlier_one() {
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        // It was told to join a group that was formed anew, and has heard nothing of that group yet.
        let rejoined = Survivor { epoch: Epoch { number: 1, lot: 3 }, ..survivor(0, 4) };
        survey.answered(Some(rejoined)).unwrap();
        assert_eq!(survey.founder(9), (NodeId(0), Epoch { number: 2, lot: 9 }));
    }

    #[test]
    fn a_survivor_that_is_silent_or_knows_a_leader_ends_it() {
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        assert!(matches!(survey.answered(None), Err(ClusterError::MembersRefused(_))));
        let mut survey = ask(&[2, 3], &metadata(4)).unwrap();
        let led = Survivor { leader: Some(NodeId(3)), ..survivor(0, 9) };
        assert!(matches!(survey.answered(Some(led)), Err(ClusterError::Failed(_))));
    }

    #[test]
    fn a_node_without_data_may_be_silent_and_one_that_was_failed_over_is_not_asked() {
        let mut metadata = metadata(6);
        metadata.nodes[1].membership = Membership::InactiveAdded;
        metadata.nodes[2].membership = Membership::InactiveFailed;
        let mut survey = ask(&[3, 4, 5], &metadata).unwrap();
        assert_eq!(survey.next(), Some((NodeId(1), "h1")));
        survey.answered(None).unwrap();
        assert_eq!(survey.next(), None);
        assert_eq!(survey.founder(1).0, NodeId(0));
    }
}
