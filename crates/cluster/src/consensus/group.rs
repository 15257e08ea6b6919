//! One member of the group: Raft's state machine with ours behind it. See the module above for what it promises.

mod applying;
mod epochs;
mod excluded;
mod formats;
mod opening;
mod readies;
mod reads;
mod time;
mod turn;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use base::NodeId;
use raft::{
    RawNode, StateRole,
    eraftpb::{Message, MessageType},
};

use super::{
    Batch, Member, Outcome, Position, Proposal, ProposalId, Record,
    codec::{self, Letter},
    hostile::{self, Objection},
    marks::{Marks, StateMarks, trouble},
    mirror::Mirror,
    node_id, raft_id,
    state::{State, Version},
};
use crate::{changes::Command, metadata::Metadata};

/// Ticks without a leader after which a member asks for votes, at least; at most twice that.
const ELECTION_TICKS: usize = 10;
/// Entries kept behind a cut for members that lag a little.
const KEEP_ENTRIES: u64 = 64;
/// Why a member takes no part whose log is not what it was.
const LACKS: &str = "this node's log of the metadata lacks what the node had confirmed (was an old copy restored?); \
                     remove the node from its cluster and add it again";
/// Ticks without a word of a leader after which a member that does not vote takes its leader for lost.
const LOST_TICKS: u32 = 2 * ELECTION_TICKS as u32;

pub use epochs::{check_majority_is_lost, epoch_of, is_from};
pub use opening::{found, join};
pub use reads::Round;
pub use turn::{Commit, ProposeError, StepError, Turn};

use excluded::Excluded;
use formats::read_state;
use readies::Pending;
use reads::Reads;

/// One member of the group.
pub struct Consensus {
    member: Member,
    seed: u64,
    version: Version,
    raw: RawNode<Mirror>,
    state: State,
    applied: u64,
    /// The term of what was applied last.
    applied_term: u64,
    /// How far the log went that its state is from, of a member that has heard nothing yet of a group that was formed anew.
    known_at: Option<Position>,
    /// Readies that wait for batches to be written, in order.
    pending: VecDeque<Pending>,
    /// The last ready that needs no batch any more.
    written: u64,
    /// A snapshot that arrived while readies were pending: what they change must come first.
    held: Option<Message>,
    /// Elections begun, which the next election timeout is drawn by.
    elections: u64,
    /// Members that are sent a snapshot, and for how many ticks.
    snapshots: BTreeMap<u64, u32>,
    catching_up: CatchingUp,
    reads: Reads,
    /// Ticks since a message was taken.
    silence: u32,
    /// Ticks since a message was taken that only a leader sends.
    unled: u32,
    /// How far the group is, as leaders have said since this member started.
    told: u64,
    /// The ready that the disk is at, 0 for none, and for how many ticks it has been.
    stalled: (u64, u32),
    marks: Marks,
    excluded: Excluded,
    /// Since which place this member's state differs from that of most members.
    diverged: Option<u64>,
    /// Where this member's log ended when it was found to lack what the member had confirmed.
    lacks: Option<u64>,
    /// Whether the metadata are of an earlier group, and were not what that had agreed on.
    is_unfit: bool,
    /// Why this member cannot go on.
    broken: Option<String>,
    out: Turn,
}

/// Whether this member has seen everything that was agreed on when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatchingUp {
    /// The leader is asked again and again.
    Asking,
    /// There the leader was.
    To(u64),
    Done,
}

impl Consensus {
    /// The number of this node.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// What this node's version makes of the log.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The state as far as it was applied here.
    #[must_use]
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.state.metadata
    }

    /// How a proposal ended, if it did lately.
    #[must_use]
    pub fn outcome(&self, id: ProposalId) -> Option<&Outcome> {
        self.state.outcome(id)
    }

    /// The leader, as far as is known here.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        let raft = &self.raw.raft;
        // A voter would seek another leader in such a silence, and knows of none then. What others say breaks it not: members that hear no
        // leader greet one another.
        let learns = !raft.promotable() && raft.state != StateRole::Leader;
        let is_lost = self.broken.is_some() || learns && self.unled > LOST_TICKS;
        node_id(raft.leader_id).filter(|_| !is_lost)
    }

    /// Whether this member leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && self.broken.is_none()
    }

    /// Raft's term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// Index of the last applied entry.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Members that vote and members that learn.
    #[must_use]
    pub fn members(&self) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let conf = self.raw.raft.prs().conf().to_conf_state();
        let ids = |ids: &[u64]| ids.iter().filter_map(|id| node_id(*id)).collect();
        (ids(&conf.voters), ids(&conf.learners))
    }

    /// Whether a node was a member and is one no more. One that the metadata knows no longer stays a member until the
    /// group has changed: that may need its consent.
    #[must_use]
    pub fn was_removed(&self, node: NodeId) -> bool {
        self.state.metadata.has_removed(node) && self.raw.raft.prs().get(raft_id(node)).is_none()
    }

    /// Whether this member was removed and somebody else knows that for good, so that it may be gone. Members that do
    /// not know may still need its vote. So a member that has this from its own log only, as its leader or after a
    /// restart, waits. It waits until a leader says so, or the node that it asks (see [`StepError::SenderRemoved`]).
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.was_removed(self.member.node) && self.told >= self.applied
    }

    /// Whether the group consists of this member and is to: nobody to talk to, no need to tick.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let progress = self.raw.raft.prs();
        // A node that starts again between the addition of a node and the change of the group has that before it.
        let is_to_grow = self.state.metadata.nodes.len() > 1;
        progress.iter().len() == 1 && self.votes_alone() && self.leads() && !is_to_grow
    }

    /// Whether everything was applied that was agreed on when this member started, so that what it knows is no older
    /// than its start.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.catching_up == CatchingUp::Done && self.diverged.is_none()
    }

    /// Why this member cannot go on, if it cannot: it neither votes nor applies any more.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Ends this member's part in the group for that reason, until it is opened again: its log takes nothing any more.
    pub fn give_up(&mut self, reason: String) {
        self.broken.get_or_insert(reason);
    }

    /// Hashes of this member's state at the last places of the log that members compare.
    #[must_use]
    pub fn marks(&self) -> StateMarks {
        self.marks.told(self.member.epoch)
    }

    /// Since which place this member's state differs from that of most members, if the leader has said so.
    #[must_use]
    pub fn diverged(&self) -> Option<u64> {
        self.diverged
    }

    /// This member's state differs from that of most members since that place. It takes no part any more until it is removed and added
    /// anew, after a restart either.
    pub fn fence(&mut self, index: u64) {
        if self.diverged.replace(self.diverged.unwrap_or(index)).is_some() {
            return;
        }
        self.give_up(trouble(index));
        let record = (Record::Diverged, codec::encode_place((index, 0)));
        self.out.batches.push(Batch { records: vec![record], ..Batch::default() });
    }

    /// Takes a message from a peer: that of the member `from`, where that is known.
    ///
    /// # Errors
    /// [`StepError`] when it was refused.
    pub fn step(&mut self, from: Option<NodeId>, message: &[u8]) -> Result<(), StepError> {
        let refused = |what: &str| Err(StepError::Refused(what.into()));
        let letter = codec::decode(message).map_err(|error| StepError::Refused(error.to_string()))?;
        let (epoch, message) = match letter {
            Letter::Notice(notice) => return self.take_notice(notice, from),
            Letter::Raft(epoch, message) => (epoch, *message),
        };
        if message.to != self.raw.raft.id {
            return refused("a message for another node");
        }
        if message.from == message.to {
            // A question comes back where it came from when the asked node has been told meanwhile that this member leads. It is
            // asked again anyway; nothing else that a member says is passed on.
            let is_question = message.get_msg_type() == MessageType::MsgReadIndex;
            return if is_question { Ok(()) } else { refused("a message of this member's own") };
        }
        let Some(sender) = node_id(message.from) else { return refused("a message from nobody") };
        self.check_epoch(epoch, sender)?;
        if let Some(broken) = &self.broken {
            return refused(broken);
        }
        if self.was_removed(sender) {
            return Err(StepError::SenderRemoved(sender));
        }
        self.check_sender(&message, sender)?;
        self.check(&message)?;
        self.silence = 0;
        let kind = message.get_msg_type();
        // Nobody leads in an earlier term any more, and anybody may claim to: `check_sender` lets that through.
        if message.term >= self.raw.raft.term {
            match kind {
                MessageType::MsgAppend | MessageType::MsgHeartbeat => {
                    (self.told, self.unled) = (self.told.max(message.commit), 0);
                }
                MessageType::MsgSnapshot => self.unled = 0,
                _ => {}
            }
        }
        if kind == MessageType::MsgSnapshot && !self.pending.is_empty() {
            self.held = Some(message);
            return Ok(());
        }
        let log = &self.raw.raft.raft_log;
        if kind == MessageType::MsgTimeoutNow && log.applied + 1 < log.first_index() {
            // A snapshot is taken and not applied. A candidate reads the entries in between, which are gone, and the library ends the
            // process over that. The leader tries again, or leads on.
            return Ok(());
        }
        self.step_checked(message);
        Ok(())
    }

    /// Proposes a command, which ends with a [`Commit`] that names it, or not at all. It may be proposed again under
    /// the same name, here or by another member.
    ///
    /// # Errors
    /// [`ProposeError`] when it was not taken.
    pub fn propose(&mut self, proposal: &Proposal) -> Result<(), ProposeError> {
        if !self.leads() || self.broken.is_some() {
            return Err(ProposeError::NotLeader(self.leader().filter(|_| !self.leads())));
        }
        let metadata = &self.state.metadata;
        if metadata.admits(&proposal.command).is_err()
            || proposal.place.is_some() && !metadata.places_proposals()
        {
            return Err(ProposeError::AboveLevel);
        }
        if matches!(&proposal.command, Command::RaiseLevel { level, .. } if !self.may_rise(*level)) {
            return Err(ProposeError::Busy);
        }
        let data = serde_json::to_vec(proposal).map_err(|_| ProposeError::Busy)?;
        self.with_raft(|raw| raw.propose(Vec::new(), data)).map_err(|_| ProposeError::Busy)
    }

    /// As the leader: whether nobody stops at a rise of the level whose consent the group still needs. That may be a node that was removed: it
    /// may be of an older version, and the group has yet to let it go. Before this member has applied what other leaders have left, it does
    /// not know who was removed.
    fn may_rise(&self, level: u32) -> bool {
        let raft = &self.raw.raft;
        let is_known =
            |id: u64| node_id(id).is_some_and(|node| self.state.metadata.node_by_id(node).is_some());
        let mut members = raft.prs().iter().map(|(id, _)| *id);
        level <= self.version.highest && raft.apply_to_current_term() && members.all(is_known)
    }

    /// Asks how far the group is. Once this member has applied that much, a [`Turn`] says so, with the number that is
    /// returned here. Its metadata then has everything that anybody was told to be done before it asked. It may take for ever
    /// where nobody leads.
    pub fn read(&mut self) -> u64 {
        self.ask_how_far_the_leader_is();
        self.reads.want()
    }

    /// Has another member lead, if there is one that could: the one that has most. Returns which.
    pub fn hand_over(&mut self) -> Option<NodeId> {
        if !self.leads() || self.broken.is_some() {
            return None;
        }
        let me = self.raw.raft.id;
        let voters: BTreeSet<u64> = self.raw.raft.prs().conf().to_conf_state().voters.into_iter().collect();
        let others = self.raw.raft.prs().iter().filter(|(id, _)| **id != me && voters.contains(id));
        let (.., heir) = others.map(|(id, at)| (at.recent_active, at.matched, *id)).max()?;
        self.with_raft(|raw| raw.transfer_leader(heir));
        node_id(heir)
    }

    /// The batches of all turns up to `number` are durable.
    pub fn written(&mut self, number: u64) {
        self.written = self.written.max(number);
        self.with_raft(|raw| raw.on_persist_ready(number));
    }

    /// Memory that the log takes, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.raw.store().memory_bytes()
    }

    /// What has to be done now.
    pub fn turn(&mut self) -> Turn {
        loop {
            self.settle();
            if let Some(snapshot) = self.held.take_if(|_| self.pending.is_empty()) {
                // What was pending may have made it meaningless.
                if self.check(&snapshot).is_ok() {
                    self.step_checked(snapshot);
                }
            }
            if self.broken.is_some() || !self.raw.has_ready() {
                break;
            }
            self.take_ready();
        }
        std::mem::take(&mut self.out)
    }

    fn votes_alone(&self) -> bool {
        self.raw.raft.promotable() && self.raw.raft.prs().conf().to_conf_state().voters.len() == 1
    }

    /// Does something with Raft, and makes sure that it keeps to our election timeouts. Raft draws its own from a
    /// generator that no seed reaches.
    fn with_raft<T>(&mut self, act: impl FnOnce(&mut RawNode<Mirror>) -> T) -> T {
        let done = act(&mut self.raw);
        self.draw_timeout();
        done
    }

    fn draw_timeout(&mut self) {
        let mixed = mix(self.seed ^ mix(self.raw.raft.term) ^ mix(self.elections.wrapping_add(1 << 32)));
        let ticks = ELECTION_TICKS + (mixed % ELECTION_TICKS as u64) as usize;
        self.raw.raft.set_randomized_election_timeout(ticks);
    }

    fn step_checked(&mut self, message: Message) {
        // Raft says no to what is not for it (a response from somebody it does not know, for instance): nothing to do.
        let _ = self.with_raft(|raw| raw.step(message));
    }

    /// Refuses what must not reach Raft.
    fn check(&mut self, message: &Message) -> Result<(), StepError> {
        match hostile::check(message, &self.raw.raft) {
            Ok(()) if message.get_msg_type() == MessageType::MsgSnapshot => {
                // A leader that this member follows goes on to send it, and nobody else can help this member.
                let is_followed = message.from == self.raw.raft.leader_id;
                let refused = if is_followed { StepError::Newer } else { StepError::Refused };
                read_state(message.get_snapshot(), self.version.highest).map(drop).map_err(refused)
            }
            Ok(()) => Ok(()),
            Err(Objection::Nonsense(what)) => Err(StepError::Refused(what.into())),
            Err(Objection::Contradiction) => {
                self.distrust_log(message.from);
                Err(StepError::Broken(LACKS.into()))
            }
        }
    }

    /// This member's log lacks what the member had confirmed. Its leader may change and forget that, and the votes that it has given
    /// may be lost as well. So it takes no part any more until it is removed and added anew, after a restart either. `from` says so: a
    /// node that does not vote, and was not followed, ends this member's part until a restart only.
    fn distrust_log(&mut self, from: u64) {
        let last = self.raw.raft.raft_log.last_index();
        self.lacks = Some(last);
        self.give_up(LACKS.into());
        if !self.heeds(from) {
            return;
        }
        let record = (Record::Lacks, codec::encode_place((last, 0)));
        self.out.batches.push(Batch { records: vec![record], ..Batch::default() });
    }

    fn send(&mut self, message: &Message) {
        let Some(to) = node_id(message.to) else { return };
        if let Some(bytes) = codec::encode_message(self.member.epoch, message) {
            self.out.messages.push((to, bytes));
        }
    }
}

/// Spreads a number over all 64 bits (the finaliser of SplitMix64).
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod versions;
