//! What counts of a node that was failed over, or removed, and does not vote any more.
//!
//! Such a node hears what is agreed on, so that it can be recovered, and Raft would believe whatever it says. Here it confirms what it was
//! sent, and asks how far the group is. Nothing else that it says counts: it does not lead, is not elected, answers no question, ends nobody's term,
//! and forms no group anew. Dropping its messages is safe as a lost message is, and costs no quorum: the others can elect one of
//! their own without it.
//!
//! Two cases keep this from being the whole rule:
//! - This member may be the one that is behind. The node was recovered, votes again and leads by now. So a member that has known no leader for
//!   [`LEADERLESS_TICKS`] takes every node's word. It goes on to take the word of the node that it follows.
//! - The node may be honest and in a later term, which it was asked to lead in just before it was cut off. It takes nothing of an
//!   earlier term. So the leader begins a term behind that one, once for each failover: a node that claims more cannot depose it again.

use std::collections::BTreeMap;

use base::NodeId;
use raft::eraftpb::{Message, MessageType};

use super::{Consensus, StepError, raft_id};

/// Ticks without a leader after which a member takes the word of nodes that were failed over. An election takes twenty
/// where a majority is there. This leaves room for several, and an attacker only the time in which the cluster can
/// agree on nothing anyway.
const LEADERLESS_TICKS: u32 = 100;
/// How far a node may be ahead of its leader. A node begins a term only where most voters would elect it, so an honest one is ahead
/// by few.
const TERMS_AHEAD_MAX: u64 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Excluded {
    /// Ticks since this member knew a leader.
    leaderless: u32,
    /// Nodes because of which this member has begun a term, and the version of the metadata of their failover.
    outrun: BTreeMap<NodeId, u64>,
}

impl Consensus {
    /// A tick has gone by.
    pub(super) fn look_for_a_leader(&mut self) {
        self.unled = self.unled.saturating_add(1);
        let is_led = self.leader().is_some();
        self.excluded.leaderless = if is_led { 0 } else { self.excluded.leaderless.saturating_add(1) };
    }

    /// Whether this member takes no node's word for the agreement that was failed over: it has a leader, or has had one of late.
    fn distrusts_excluded(&self) -> bool {
        self.excluded.leaderless < LEADERLESS_TICKS
    }

    /// Whether that node was failed over, or removed. The metadata know no longer of a removed node that it was failed over. The group may
    /// not have let it go yet.
    fn is_out(&self, node: NodeId) -> bool {
        let metadata = &self.state.metadata;
        metadata.has_removed(node)
            || metadata.node_by_id(node).is_some_and(crate::metadata::NodeInfo::is_failed_over)
    }

    /// Whether that node's word that the group was formed anew counts for nothing.
    pub(super) fn ignores_notice_of(&self, from: Option<NodeId>) -> Option<NodeId> {
        from.filter(|from| self.distrusts_excluded() && self.is_out(*from))
    }

    /// Whether that member votes, or is the leader that this one has followed so far. Without the word of a node that still votes there may be
    /// no majority.
    pub(super) fn heeds(&self, member: u64) -> bool {
        let raft = &self.raw.raft;
        raft.prs().conf().voters().contains(member) || raft.leader_id == member
    }

    /// Looks at the sender of a message.
    ///
    /// # Errors
    /// [`StepError::SenderFailedOver`] when it counts for nothing.
    pub(super) fn check_sender(&mut self, message: &Message, sender: NodeId) -> Result<(), StepError> {
        let raft = &self.raw.raft;
        // A question has no term. What is of an earlier term is over.
        if message.term < raft.term {
            return Ok(());
        }
        if self.heeds(raft_id(sender)) || !self.is_out(sender) || !self.distrusts_excluded() {
            return Ok(());
        }
        let kind = message.get_msg_type();
        let confirms = matches!(kind, MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse);
        if confirms && message.term == raft.term {
            return Ok(());
        }
        if confirms {
            self.outrun(sender, message.term);
        }
        Err(StepError::SenderFailedOver(sender))
    }

    /// As the leader: begins a term behind `term`, if that node was not the reason before.
    fn outrun(&mut self, node: NodeId, term: u64) {
        let raft = &self.raw.raft;
        let is_written = raft.raft_log.persisted == raft.raft_log.last_index();
        let can = self.leads() && is_written && !raft.has_pending_conf() && raft.lead_transferee.is_none();
        if !can || term - raft.term > TERMS_AHEAD_MAX {
            return;
        }
        let excluded = self.state.metadata.node_by_id(node).and_then(|node| node.excluded);
        let version = excluded.map_or(0, |excluded| excluded.version);
        if self.excluded.outrun.insert(node, version) == Some(version) {
            return;
        }
        // The others hear from this leader, and would wait until they have lost it. They vote at once for a member that was asked to
        // lead.
        let mut asked = Message { to: raft.id, from: raft.id, term, ..Message::default() };
        asked.set_msg_type(MessageType::MsgTimeoutNow);
        self.with_raft(|raw| raw.raft.become_follower(term, raft::INVALID_ID));
        self.step_checked(asked);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        consensus::{LogStore as _, Member, MemoryLog, codec, found},
        metadata::{Metadata, NodeInfo, Ports},
    };

    fn written(log: &mut MemoryLog, group: &mut Consensus) {
        let turn = group.turn();
        log.write(&turn.batches).unwrap();
        group.written(turn.number);
    }

    #[test]
    fn a_node_that_does_not_vote_cannot_end_a_members_part_for_good() {
        let member = Member {
            uuid: "n".into(),
            node: NodeId(0),
            cluster_uuid: "c".into(),
            epoch: Default::default(),
            secret: String::new(),
            peers: Vec::new(),
            authority: None,
        };
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = vec![NodeInfo::first("n".into(), "h".into(), Ports::default())];
        metadata.next_node = 1;
        let mut log = MemoryLog::default();
        log.write(&[found(&member, &Arc::new(metadata)).unwrap()]).unwrap();
        let mut group = Consensus::open(&log.load().unwrap(), 1).unwrap();
        (0..4).for_each(|_| written(&mut log, &mut group));
        let (from, to) = (raft_id(NodeId(7)), raft_id(NodeId(0)));
        let mut heartbeat = Message { from, to, term: group.term() + 1, commit: 99, ..Message::default() };
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        let bytes = codec::encode_message(member.epoch, &heartbeat).unwrap();
        assert!(matches!(group.step(Some(NodeId(7)), &bytes), Err(StepError::Broken(_))));
        assert!(group.broken().is_some(), "it may be the leader, if this member's log is old");
        written(&mut log, &mut group);
        assert_eq!(Consensus::open(&log.load().unwrap(), 1).unwrap().broken(), None);
    }
}
