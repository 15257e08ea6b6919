//! What comes out of a member, and why it does not take what goes in.

use std::sync::Arc;

use base::NodeId;

use super::Round;
use crate::{
    consensus::{Batch, Member, Outcome, ProposalId},
    metadata::Metadata,
};

/// What is to be done after something went in.
#[derive(Debug, Default)]
pub struct Turn {
    /// For other members; any of them may be lost.
    pub messages: Vec<(NodeId, Vec<u8>)>,
    /// To be written together, after those of earlier turns; then [`Consensus::written`] is called with `number`.
    pub batches: Vec<Batch>,
    /// See `batches`.
    pub number: u64,
    /// Changes of the metadata, in order.
    pub commits: Vec<Commit>,
    /// With these commits reads up to that number are due: see [`Consensus::read`].
    pub read: Option<u64>,
    /// This member led when that round began, and all rounds before it: see [`Consensus::confirm`].
    pub confirmed: Option<Round>,
    /// The group was formed anew: this node goes on as that member, beginning with [`rejoin`](super::Consensus::rejoin).
    pub successor: Option<Member>,
}

impl Turn {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { messages, batches, number: _, commits, read, confirmed, successor } = self;
        messages.is_empty()
            && batches.is_empty()
            && commits.is_empty()
            && read.is_none()
            && confirmed.is_none()
            && successor.is_none()
    }
}

/// A change that was applied.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Place in the log.
    pub index: u64,
    /// The state afterwards.
    pub metadata: Arc<Metadata>,
    /// It is a snapshot: everything up to `index` at once.
    pub is_snapshot: bool,
    /// How proposals ended by it; after a snapshot those whose end is remembered.
    pub outcomes: Vec<(ProposalId, Outcome)>,
}

/// Why a proposal was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// Another member leads, if anybody is known to.
    NotLeader(Option<NodeId>),
    /// Not now; it may be proposed again.
    Busy,
    /// Some members would not understand it: see [`crate::metadata::level`].
    AboveLevel,
    /// The proposer was failed over: see [`Metadata::may_propose`].
    FailedOver,
    /// It would give a member a key that is not by that member: see [`Metadata::leaves_keys`].
    ForeignKey,
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It cannot be read, or is not for this member.
    #[error("{0}")]
    Refused(String),
    /// A snapshot of this member's leader that this version cannot read.
    #[error("{0}")]
    Newer(String),
    /// The sender belongs to the cluster no more.
    #[error("node {0} was removed from the cluster")]
    SenderRemoved(NodeId),
    /// The sender was added by nodes that were lost when the group was formed anew: nobody else has heard of it.
    #[error("node {0} is not known")]
    SenderUnknown(NodeId),
    /// The sender was failed over, and says what counts of other members only.
    #[error("node {0} was failed over; it neither leads nor votes")]
    SenderFailedOver(NodeId),
    /// The sender was failed over, and says that the group was formed anew.
    #[error("node {0}, which was failed over, says that the group was formed anew")]
    FormedElsewhere(NodeId),
    /// What a peer says contradicts what this member has: one of them lost a part of its log.
    #[error("{0}")]
    Broken(String),
}
