//! Forming the group anew, and joining one that was: see `epoch`.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use base::NodeId;
use raft::{
    GetEntriesContext,
    eraftpb::{EntryType, Message, MessageType},
};

use super::{
    Commit, Consensus, StepError, codec,
    formats::{member_bytes, read_proposal, unreadable},
    opening::begin,
    raft_id,
};
use crate::{
    changes::{Command, rebalancing::FailOver},
    consensus::{Batch, LogError, Member, Position, Proposal, ProposalId, Record},
    metadata::{ClusterError, Metadata, epoch::Epoch, epoch::Notice, topology::Membership},
};

/// The epoch that a message belongs to, if it is one.
#[must_use]
pub fn epoch_of(message: &[u8]) -> Option<Epoch> {
    codec::epoch_of(message)
}

/// Whether a message counts for which that node has signed: what a node says for another one does not. A message that names no node
/// counts while the signer is a member.
#[must_use]
pub fn is_from(message: &[u8], signer: NodeId, is_member: bool) -> bool {
    codec::sender_of(message).map_or(is_member, |sender| sender == signer)
}

/// Whether those that vote can elect nobody without `lost`. A group that could is not formed anew. Nodes that were removed or failed over,
/// by `metadata`, are not left either, and nobody can name them as lost. The group may yet have to let them go.
///
/// # Errors
/// [`ClusterError::MembersRefused`] when they can.
pub fn check_majority_is_lost(
    voters: &BTreeSet<NodeId>,
    lost: &[NodeId],
    metadata: &Metadata,
) -> Result<(), ClusterError> {
    let counts = |voter: NodeId| {
        metadata.node_by_id(voter).is_some_and(|node| node.membership != Membership::InactiveFailed)
    };
    let left = voters.iter().filter(|voter| !lost.contains(voter) && counts(**voter)).count();
    if left * 2 > voters.len() {
        let text = "The nodes that are to stay cannot agree, although they would be a majority. Name every node that is lost.";
        return Err(ClusterError::MembersRefused(text.into()));
    }
    Ok(())
}

impl Consensus {
    /// The group's life, to which this member belongs.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.member.epoch
    }

    /// How far this member's log goes. Of a member that has heard nothing yet of the group that it joined: how far the log went that
    /// its metadata are from.
    #[must_use]
    pub fn position(&self) -> Position {
        let log = &self.raw.raft.raft_log;
        if log.last_index() == 0 {
            return self.known_at.unwrap_or_default();
        }
        Position { epoch: self.member.epoch, term: log.last_term(), index: log.last_index() }
    }

    /// What makes this member `successor`, one of the group that was formed anew. Until that has told it everything, it goes by the
    /// metadata that it has. Where these were not what was agreed on, it founds no group of them.
    ///
    /// # Errors
    /// When the metadata cannot be serialised.
    pub fn rejoin(&self, successor: &Member) -> Result<Batch, LogError> {
        let bytes = serde_json::to_vec(&*self.state.metadata).map_err(unreadable)?;
        let mut records = vec![(Record::Member, member_bytes(successor)?), (Record::Known, bytes)];
        // What was not applied is forgotten with the log. Of what was, the log may know no more: a snapshot takes its place before that is
        // applied.
        let known_at = match self.applied {
            0 => self.known_at,
            index => Some(Position { epoch: self.member.epoch, term: self.applied_term, index }),
        };
        if let Some(known_at) = known_at {
            records.push((Record::KnownAt, serde_json::to_vec(&known_at).map_err(unreadable)?));
        }
        if self.diverged.is_some() || self.lacks.is_some() || self.is_unfit {
            records.push((Record::Unfit, Vec::new()));
        }
        Ok(Batch { clear: true, records, ..Batch::default() })
    }

    /// What this member has applied, as if all of it were one change.
    #[must_use]
    pub fn so_far(&self) -> Commit {
        let metadata = Arc::clone(&self.state.metadata);
        Commit { index: self.applied, metadata, is_snapshot: true, outcomes: self.state.outcomes() }
    }

    /// What makes this member a group of its own, in `epoch`, whose other members have to join it. It is for a group that has lost
    /// a majority of its voters for good. Everything in this member's log counts as agreed on, whether or not a majority had it;
    /// what only the lost ones had is lost. Then comes `command`.
    ///
    /// # Errors
    /// - The command is refused.
    /// - The group has a leader, or can elect one without the nodes that the command fails over.
    /// - `epoch` is no later one than this member's, or this member cannot tell what it knows.
    pub fn reform(
        &self,
        epoch: Epoch,
        id: ProposalId,
        command: Command,
    ) -> Result<(Member, Batch), ClusterError> {
        let failed = |text: &str| ClusterError::Failed(text.into());
        if let Some(leader) = self.leader() {
            return Err(failed(&format!("node {leader} leads: there is a majority")));
        }
        if let Command::FailOver(FailOver { nodes: lost, .. }) = &command {
            check_majority_is_lost(&self.members().0, lost, &self.state.metadata)?;
        }
        if epoch <= self.member.epoch || self.broken.is_some() || self.is_unfit {
            return Err(failed("this node cannot form the group anew"));
        }
        // A member that has only joined takes its peers' word for the members of the group. It knows of no number that
        // was given to a node. A group that it formed would know nothing of any of them.
        if self.state.metadata.next_node == 0 {
            return Err(failed(
                "this node has not heard yet what its cluster has agreed on; ask another one",
            ));
        }
        let log = &self.raw.raft.raft_log;
        let left = log.entries(self.applied + 1, None, GetEntriesContext::empty(false));
        let left = left.map_err(|_| failed("this node is about to learn more; try again"))?;
        // The members of the old group do not matter to the new one.
        let proposals = left
            .iter()
            .filter(|entry| entry.get_entry_type() == EntryType::EntryNormal && !entry.data.is_empty());
        let proposals = proposals.map(|entry| read_proposal(&entry.data, self.version.highest));
        let proposals = proposals.collect::<Result<Vec<_>, _>>();
        let proposals = proposals.map_err(|error| failed(&error))?;
        // What this member knows may be from before the last group that was formed, which has leapt already.
        let leaps = epoch.number.saturating_sub(self.position().epoch.number);
        let last = Proposal::new(id, command);
        let state = self.state.reformed(&proposals, (leaps, &last), self.version.apply)?;
        state.metadata.admits_level(self.version.highest)?;
        let member = Member { epoch, ..self.member.clone() };
        let first = begin(&member, &state).map_err(|error| failed(&error.to_string()))?;
        Ok((member, first))
    }

    /// Says that this member is there. A leader that knows it takes it for what it is: an answer to a heartbeat. Others
    /// ignore it, or say that the sender is a member no more, or that the group was formed anew.
    pub(super) fn say_hello(&mut self, to: NodeId) {
        let from = self.raw.raft.id;
        // A message without a term is refused; one of the first term, which is over, is taken for nothing but a sign of life.
        // A member that knows of no term yet cannot say more than that. One that cannot go on must not say more: its leader
        // would count on it.
        let term = if self.broken.is_some() { 1 } else { self.raw.raft.term.max(1) };
        let mut message = Message { to: raft_id(to), from, term, ..Message::default() };
        message.set_msg_type(MessageType::MsgHeartbeatResponse);
        self.send(&message);
    }

    /// Deals with a node of another epoch than this member's.
    pub(super) fn check_epoch(&mut self, epoch: Epoch, sender: NodeId) -> Result<(), StepError> {
        match epoch.cmp(&self.member.epoch) {
            Ordering::Equal => return Ok(()),
            // Not before it is known that the new group lasts: a node that is told throws its log away.
            Ordering::Less if !self.has_caught_up() => {}
            Ordering::Less if self.was_removed(sender) => return Err(StepError::SenderRemoved(sender)),
            Ordering::Less if self.state.metadata.knows_nothing_of(sender) => {
                return Err(StepError::SenderUnknown(sender));
            }
            Ordering::Less => self.give_notice(sender),
            Ordering::Greater if self.ignores_notice_of(Some(sender)).is_some() => {
                return Err(StepError::FormedElsewhere(sender));
            }
            // Brings a notice back.
            Ordering::Greater => self.say_hello(sender),
        }
        Err(StepError::Refused("a message of another epoch".into()))
    }

    /// Tells a node that its group was formed anew, if it still belongs to it.
    fn give_notice(&mut self, to: NodeId) {
        let metadata = &self.state.metadata;
        if metadata.node_by_id(to).is_none() {
            return;
        }
        let (secret, nodes) = (metadata.secret.clone(), metadata.nodes.clone());
        let notice = codec::encode_notice(&Notice { epoch: self.member.epoch, secret, nodes });
        self.out.messages.extend(notice.map(|notice| (to, notice)));
    }

    /// The group was formed anew, and this node shall be one of it. So says that member, where that is known.
    pub(super) fn take_notice(&mut self, notice: Notice, from: Option<NodeId>) -> Result<(), StepError> {
        let Notice { epoch, secret, nodes } = notice;
        if epoch > self.member.epoch
            && let Some(ignored) = self.ignores_notice_of(from)
        {
            return Err(StepError::FormedElsewhere(ignored));
        }
        // A number may have been given to another node in the meantime; an identity is not.
        let Some(me) = nodes.iter().find(|node| node.uuid == self.member.uuid).map(|node| node.id) else {
            return Ok(());
        };
        let newest = self.out.successor.as_ref().map_or(self.member.epoch, |successor| successor.epoch);
        if epoch > newest {
            let successor = Member { node: me, epoch, secret, peers: nodes, ..self.member.clone() };
            self.out.successor = Some(successor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{NodeInfo, Ports};

    #[test]
    fn nodes_that_the_metadata_do_not_count_are_no_part_of_a_majority_that_is_left() {
        let mut metadata = Metadata::new("c".into(), 16);
        let node = |id: u16| {
            let first = NodeInfo::first(format!("n{id}"), format!("h{id}"), Ports::default());
            NodeInfo { id: NodeId(id), ..first }
        };
        metadata.nodes = (0..3).map(node).collect();
        let (voters, lost) = (metadata.nodes.iter().map(|node| node.id).collect(), [NodeId(1)]);
        assert!(check_majority_is_lost(&voters, &lost, &metadata).is_err());
        metadata.nodes[2].membership = Membership::InactiveFailed;
        assert_eq!(check_majority_is_lost(&voters, &lost, &metadata), Ok(()));
        metadata.nodes.remove(2);
        assert_eq!(check_majority_is_lost(&voters, &lost, &metadata), Ok(()), "nobody can name it");
    }

    #[test]
    fn a_node_speaks_for_itself_alone_and_once_it_was_removed_of_no_group_formed_anew() {
        let (one, other) = (NodeId(0), NodeId(1));
        let said = |kind| {
            let mut message = Message { to: 3, from: raft_id(one), term: 7, ..Message::default() };
            message.set_msg_type(kind);
            codec::encode_message(Epoch::default(), &message).unwrap()
        };
        for kind in [MessageType::MsgAppend, MessageType::MsgAppendResponse, MessageType::MsgRequestVote] {
            let message = said(kind);
            for is_member in [true, false] {
                assert!(is_from(&message, one, is_member));
                assert!(!is_from(&message, other, is_member), "{kind:?} in the name of another");
            }
        }
        let notice = Notice { epoch: Epoch::default(), secret: String::new(), nodes: Vec::new() };
        for message in [codec::encode_notice(&notice).unwrap(), said(MessageType::MsgReadIndex)] {
            assert!(is_from(&message, other, true) && !is_from(&message, other, false));
        }
    }
}
