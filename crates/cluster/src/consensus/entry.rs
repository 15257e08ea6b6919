//! What an entry of the log holds beside Raft's own fields.

use base::NodeId;
use raft::eraftpb::{ConfChange, ConfChangeType};
use serde::{Deserialize, Serialize};

use crate::{
    changes::{Command, rebalancing::FailOver},
    metadata::{Metadata, topology::Membership},
};

/// Names a proposal for as long as anybody may ask how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProposalId {
    /// Random, one per start of the process that proposes.
    pub origin: u64,
    /// Counts that process's proposals.
    pub number: u64,
}

/// What a proposer says of its other proposals, so that each one is carried out once at most (`proposers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The lowest number of its proposals that have not ended: it never makes those below again.
    pub open: u64,
    /// `Metadata::version` that it knew before it made this proposal for the first time.
    pub seen: u64,
}

/// A proposed command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its name.
    pub id: ProposalId,
    /// Absent where a member may not understand it: see [`crate::metadata::level`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The change.
    pub command: Command,
}

impl Proposal {
    /// One that says nothing of its proposer's others.
    #[must_use]
    pub fn new(id: ProposalId, command: Command) -> Self {
        Self { id, place: None, command }
    }

    /// The same without those nodes that it would fail over and that were removed, or failed over, by then. `None` where nothing is left to
    /// be done.
    pub(super) fn without_gone(&self, metadata: &Metadata) -> Option<Self> {
        let Command::FailOver(fail_over) = &self.command else { return Some(self.clone()) };
        let has_failed = |node: NodeId| {
            metadata.node_by_id(node).is_some_and(|node| node.membership == Membership::InactiveFailed)
        };
        let mut nodes = fail_over.nodes.clone();
        nodes.retain(|node| !metadata.has_removed(*node) && !has_failed(*node));
        if nodes.is_empty() && !fail_over.nodes.is_empty() {
            return None;
        }
        let command = Command::FailOver(FailOver { nodes, ..fail_over.clone() });
        Some(Self { command, ..self.clone() })
    }
}

/// A change of who belongs to the group, by Raft id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum MemberChange {
    /// Receives the log and does not vote: a new member, or a voter that is one no more.
    Learner(u64),
    /// Votes.
    Voter(u64),
    /// Belongs no more.
    Remove(u64),
}

impl MemberChange {
    /// As Raft has it.
    pub(super) fn conf_change(self) -> ConfChange {
        let (change, id) = match self {
            Self::Learner(id) => (ConfChangeType::AddLearnerNode, id),
            Self::Voter(id) => (ConfChangeType::AddNode, id),
            Self::Remove(id) => (ConfChangeType::RemoveNode, id),
        };
        let mut conf_change = ConfChange { node_id: id, ..ConfChange::default() };
        conf_change.set_change_type(change);
        conf_change
    }
}
