//! One member of the group: Raft's state machine with ours behind it. See the module above for what it promises.

mod epochs;
mod formats;
mod reads;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use base::NodeId;
use raft::{
    Config, ProgressState, RawNode, SnapshotStatus, StateRole,
    eraftpb::{Entry, EntryType, HardState, Message, MessageType, Snapshot},
};

use super::{
    Batch, LogError, Member, Outcome, ProposalId, Record, Stored,
    codec::{self, Letter},
    entry::{MemberChange, Proposal},
    hostile::{self, Objection},
    members::{self, Members, NextStep},
    mirror::Mirror,
    node_id, raft_id,
    state::State,
};
use crate::{Command, Metadata, level::LEVEL};

/// Ticks between heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// Ticks without a leader after which a member asks for votes, at least; at most twice that.
const ELECTION_TICKS: usize = 10;
/// Bytes of entries in one message.
const MESSAGE_BYTES: u64 = 256 * 1024;
/// Messages with entries on their way to one member.
const MESSAGES_IN_FLIGHT: usize = 32;
/// Applied entries, and their bytes, after which the log is cut.
const COMPACT_ENTRIES: u64 = 512;
const COMPACT_BYTES: usize = 4 * 1024 * 1024;
/// Entries kept behind a cut for members that lag a little.
const KEEP_ENTRIES: u64 = 64;
/// Ticks after which a snapshot on its way counts as lost.
const SNAPSHOT_TICKS: u32 = 50;
/// Ticks between two questions how far the leader is.
const ASK_TICKS: u32 = 3;
/// Ticks without a word after which a member that does not vote takes its leader for lost.
const LOST_TICKS: u32 = 2 * ELECTION_TICKS as u32;
/// Ticks without a word after which a member says to all nodes it knows that it is there. It may have been removed: one that
/// does not vote asks nobody for anything, and those whom one that votes asks may be gone themselves.
const SILENCE_TICKS: u32 = 30;
/// Ticks after which a leader that waits for its disk lets somebody else lead.
const STALLED_TICKS: u32 = 30;
/// Index and term at which a group begins.
const FOUNDED: (u64, u64) = (1, 1);

pub use epochs::{epoch_of, rejoin};
use formats::{
    made_by_newer, member_bytes, read_proposal, read_state, state_bytes, unknown_cluster, unreadable,
};
use reads::Reads;
pub use reads::Round;

/// One member of the group.
pub struct Consensus {
    member: Member,
    seed: u64,
    /// The highest level of metadata that this version understands.
    highest: u32,
    raw: RawNode<Mirror>,
    state: State,
    applied: u64,
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
    /// How far the group is, as leaders have said since this member started.
    told: u64,
    /// The ready that the disk is at, 0 for none, and for how many ticks it has been.
    stalled: (u64, u32),
    /// Why this member cannot go on.
    broken: Option<String>,
    out: Turn,
}

/// What there is to do after something went in.
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
    /// The group was formed anew: this node goes on as that member, beginning with [`rejoin`].
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
    /// How proposals ended by it; after a snapshot those that ended last.
    pub outcomes: Vec<(ProposalId, Outcome)>,
}

/// Why a proposal was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// Another member leads, if anybody is known to.
    NotLeader(Option<NodeId>),
    /// Not now; it may be proposed again.
    Busy,
    /// Some members would not understand it: see [`crate::level`].
    AboveLevel,
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// It cannot be read, or is not for this member.
    #[error("{0}")]
    Refused(String),
    /// The sender belongs to the cluster no more.
    #[error("node {0} was removed from the cluster")]
    SenderRemoved(NodeId),
    /// The sender was added by nodes that were lost when the group was formed anew: nobody else has heard of it.
    #[error("node {0} is not known")]
    SenderUnknown(NodeId),
    /// What a peer says contradicts what this member has: one of them lost a part of its log.
    #[error("{0}")]
    Broken(String),
}

struct Pending {
    number: u64,
    needs_write: bool,
    /// Whether somebody joins or leaves the group by it.
    changes_group: bool,
    messages: Vec<Message>,
    snapshot: Option<Snapshot>,
    entries: Vec<Entry>,
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

/// What makes a node that knows no cluster a cluster of its own with this state.
///
/// # Errors
/// When the state cannot be serialised.
pub fn found(member: &Member, metadata: &Arc<Metadata>) -> Result<Batch, LogError> {
    begin(member, &State::new(Arc::clone(metadata)))
}

/// The beginning of a group of one.
fn begin(member: &Member, state: &State) -> Result<Batch, LogError> {
    let (index, term) = FOUNDED;
    let mut snapshot = Snapshot { data: state_bytes(state)?.into(), ..Snapshot::default() };
    snapshot.mut_metadata().index = index;
    snapshot.mut_metadata().term = term;
    snapshot.mut_metadata().mut_conf_state().voters = vec![raft_id(member.node)];
    let hard_state = HardState { term, commit: index, ..HardState::default() };
    let records = vec![
        (Record::Member, member_bytes(member)?),
        (Record::HardState, codec::encode_hard_state(&hard_state)),
        (Record::Snapshot, codec::encode_snapshot(&snapshot)),
        (Record::Start, codec::encode_place(FOUNDED)),
    ];
    Ok(Batch { clear: true, records, ..Batch::default() })
}

/// What makes a node a member of a group that knows it already; everything else comes from the leader.
///
/// # Errors
/// When the member cannot be serialised.
pub fn join(member: &Member) -> Result<Batch, LogError> {
    Ok(Batch { clear: true, records: vec![(Record::Member, member_bytes(member)?)], ..Batch::default() })
}

impl Consensus {
    /// The member that `stored` describes, as it was when that was written. A group of one leads itself at once: call
    /// [`Consensus::turn`].
    ///
    /// # Errors
    /// [`LogError::Unreadable`] when `stored` is not what this version writes.
    pub fn open(stored: &Stored, seed: u64) -> Result<Self, LogError> {
        Self::open_as(stored, seed, LEVEL)
    }

    /// The same as a version would do it that understands metadata up to the level `highest`.
    ///
    /// # Errors
    /// As [`Consensus::open`].
    pub fn open_as(stored: &Stored, seed: u64, highest: u32) -> Result<Self, LogError> {
        let missing = |what: &str| LogError::Unreadable(what.into());
        let record = |record| stored.records.get(&record).map(Vec::as_slice);
        let member = record(Record::Member).ok_or_else(|| missing("it does not say who this node is"))?;
        let member: Member = serde_json::from_slice(member).map_err(unreadable)?;
        let hard_state =
            record(Record::HardState).map(codec::decode_hard_state).transpose().map_err(unreadable)?;
        let snapshot =
            record(Record::Snapshot).map(codec::decode_snapshot).transpose().map_err(unreadable)?;
        let start = record(Record::Start).map(codec::decode_place).transpose().map_err(unreadable)?;
        let entries = stored.entries.values().map(|entry| codec::decode_entry(entry));
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        let state = match &snapshot {
            Some(snapshot) => read_state(snapshot, highest).map_err(LogError::Unreadable)?,
            None => State::new(Arc::new(match record(Record::Known) {
                Some(known) => formats::read_known(known, highest).map_err(LogError::Unreadable)?,
                None => unknown_cluster(&member),
            })),
        };
        let applied = snapshot.as_ref().map_or(0, |snapshot| snapshot.get_metadata().index);
        let mirror = Mirror::new(
            hard_state.unwrap_or_default(),
            snapshot.unwrap_or_default(),
            start.unwrap_or_default(),
            entries,
        );
        let mirror = mirror.ok_or_else(|| missing("entries are missing"))?;
        let config = Config {
            id: raft_id(member.node),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: 2 * ELECTION_TICKS,
            applied,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: MESSAGES_IN_FLIGHT,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, mirror, &logger).map_err(unreadable)?;
        let mut group = Self {
            member,
            seed,
            highest,
            raw,
            state,
            applied,
            pending: VecDeque::new(),
            written: 0,
            held: None,
            elections: 0,
            snapshots: BTreeMap::new(),
            catching_up: CatchingUp::Asking,
            reads: Reads::default(),
            silence: 0,
            told: 0,
            stalled: (0, 0),
            broken: None,
            out: Turn::default(),
        };
        group.draw_timeout();
        if group.votes_alone() {
            // Nobody else could object, so there is nothing to wait for.
            group.with_raft(RawNode::campaign).map_err(unreadable)?;
        }
        Ok(group)
    }

    /// Who this node is.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
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

    /// Who leads, as far as is known here.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        // Who votes would seek another leader in such a silence, and knows of none then.
        let is_lost = self.broken.is_some() || !self.raw.raft.promotable() && self.silence > LOST_TICKS;
        node_id(self.raw.raft.leader_id).filter(|_| !is_lost)
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

    /// Whether this member was removed and somebody else knows that for good, so that it may be gone. Those who do not know may
    /// still need its vote: one that has this from its own log only, as its leader or after a restart, waits until a
    /// leader says so, or whoever it asks (see [`StepError::SenderRemoved`]).
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.was_removed(self.member.node) && self.told >= self.applied
    }

    /// Whether the group consists of this member and is to: nobody to talk to, no need to tick.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let progress = self.raw.raft.prs();
        // Whoever starts again between the addition of a node and the change of the group has that before it.
        let is_to_grow = self.state.metadata.nodes.len() > 1;
        progress.iter().len() == 1 && self.votes_alone() && self.leads() && !is_to_grow
    }

    /// Whether everything was applied that was agreed on when this member started, so that what it knows is no older
    /// than its start.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.catching_up == CatchingUp::Done
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

    /// Time goes by: a tenth of a second, say.
    pub fn tick(&mut self) {
        if self.broken.is_some() {
            // The cure is to remove it, and it has to hear of that.
            self.break_silence();
            return;
        }
        // Who waits for its own disk would campaign with a log that it may not have.
        if !self.leads() && !self.pending.is_empty() {
            return;
        }
        self.hand_over_if_stalled();
        self.with_raft(|raw| {
            raw.tick();
        });
        let raft = &self.raw.raft;
        let asks_for_votes = matches!(raft.state, StateRole::PreCandidate | StateRole::Candidate);
        if asks_for_votes && raft.election_elapsed == 0 {
            self.elections += 1;
            self.draw_timeout();
        }
        self.give_up_lost_snapshots();
        self.repeat_questions();
        self.break_silence();
        self.adjust_members();
    }

    /// Takes a message from a peer.
    ///
    /// # Errors
    /// [`StepError`] when it was refused.
    pub fn step(&mut self, message: &[u8]) -> Result<(), StepError> {
        let refused = |what: &str| Err(StepError::Refused(what.into()));
        let letter = codec::decode(message).map_err(|error| StepError::Refused(error.to_string()))?;
        let (epoch, message) = match letter {
            Letter::Notice(notice) => {
                self.take_notice(notice);
                return Ok(());
            }
            Letter::Raft(epoch, message) => (epoch, *message),
        };
        if message.to != self.raw.raft.id {
            return refused("a message for another node");
        }
        if message.from == message.to {
            // A question comes back where it came from when whoever was asked has been told meanwhile that this member leads. It is
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
        self.check(&message)?;
        self.silence = 0;
        if matches!(message.get_msg_type(), MessageType::MsgAppend | MessageType::MsgHeartbeat) {
            self.told = self.told.max(message.commit);
        }
        if message.get_msg_type() == MessageType::MsgSnapshot && !self.pending.is_empty() {
            self.held = Some(message);
            return Ok(());
        }
        self.step_checked(message);
        Ok(())
    }

    /// Proposes a command, which ends with a [`Commit`] that names `id`, or not at all. It may be proposed again under
    /// the same name, here or by another member.
    ///
    /// # Errors
    /// [`ProposeError`] when it was not taken.
    pub fn propose(&mut self, id: ProposalId, command: Command) -> Result<(), ProposeError> {
        if !self.leads() || self.broken.is_some() {
            return Err(ProposeError::NotLeader(self.leader().filter(|_| !self.leads())));
        }
        if self.state.metadata.admits(&command).is_err() {
            return Err(ProposeError::AboveLevel);
        }
        let data = serde_json::to_vec(&Proposal { id, command }).map_err(|_| ProposeError::Busy)?;
        self.with_raft(|raw| raw.propose(Vec::new(), data)).map_err(|_| ProposeError::Busy)
    }

    /// Asks how far the group is. Once this member has applied that much a [`Turn`] says so, with the number that is returned
    /// here: then its metadata has everything that anybody was told to be done before it asked. It may take for ever where
    /// nobody leads.
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

    /// What there is to do now.
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

    /// Does something with Raft, and makes sure that it keeps to our election timeouts rather than its own, which it
    /// draws from a generator that no seed reaches.
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
                read_state(message.get_snapshot(), self.highest).map(drop).map_err(StepError::Refused)
            }
            Ok(()) => Ok(()),
            Err(Objection::Nonsense(what)) => Err(StepError::Refused(what.into())),
            Err(Objection::Contradiction) => {
                let text = "this node's log of the metadata lacks what the node had confirmed (was an old copy restored?); \
                            remove the node from its cluster and add it again";
                self.broken = Some(text.into());
                Err(StepError::Broken(text.into()))
            }
        }
    }

    /// Collects what Raft wants written, sent and applied.
    fn take_ready(&mut self) {
        let mut ready = self.raw.ready();
        let number = ready.number();
        if let Some(state) = ready.hs() {
            self.raw.mut_store().hard_state = state.clone();
        }
        for read in ready.take_read_states() {
            let question = std::str::from_utf8(&read.request_ctx).ok();
            let question = question.and_then(|text| text.strip_prefix(&self.question_prefix())?.parse().ok());
            let Some(question) = question else { continue };
            self.reads.answer(question, read.index);
            self.note_confirmed(question);
            if self.catching_up == CatchingUp::Asking {
                self.catching_up = CatchingUp::To(read.index);
            }
        }
        let committed = ready.take_committed_entries();
        let snapshot = Some(ready.snapshot().clone()).filter(|snapshot| !snapshot.is_empty());
        let changes_group = committed.iter().any(|entry| entry.get_entry_type() != EntryType::EntryNormal);
        // See the module above about changes of the group; an ordinary commit index need not survive.
        let needs_write = ready.must_sync() || changes_group;
        // Whoever is told that it was removed is gone at once. Had this member forgotten by then, after a crash, it would go on
        // waiting for the vote of somebody who is not there.
        let is_held = changes_group || self.pending.iter().any(|pending| pending.changes_group);
        let (mut messages, at_once) = match is_held {
            true => (ready.take_messages(), Vec::new()),
            false => (Vec::new(), ready.take_messages()),
        };
        at_once.iter().for_each(|message| self.send(message));
        if needs_write {
            let batch = self.batch(snapshot.as_ref(), ready.entries());
            self.out.batches.push(batch);
            self.out.number = number;
        }
        if let Some(snapshot) = &snapshot {
            self.raw.mut_store().install(snapshot.clone());
        }
        let entries = ready.take_entries();
        self.raw.mut_store().append(&entries);
        messages.extend(ready.take_persisted_messages());
        self.raw.advance_append_async(ready);
        self.draw_timeout();
        let entries = committed;
        self.pending.push_back(Pending { number, needs_write, changes_group, messages, snapshot, entries });
    }

    fn batch(&self, snapshot: Option<&Snapshot>, entries: &[Entry]) -> Batch {
        let mut batch = Batch::default();
        batch.records.push((Record::HardState, codec::encode_hard_state(&self.raw.store().hard_state)));
        if let Some(snapshot) = snapshot {
            let place = (snapshot.get_metadata().index, snapshot.get_metadata().term);
            batch.records.push((Record::Snapshot, codec::encode_snapshot(snapshot)));
            batch.records.push((Record::Start, codec::encode_place(place)));
            batch.drop_from = Some(0);
        }
        if let Some(first) = entries.first() {
            batch.drop_from = Some(if snapshot.is_some() { 0 } else { first.index });
            batch.entries = entries.iter().map(|entry| (entry.index, codec::encode_entry(entry))).collect();
        }
        batch
    }

    /// Lets go what waited for batches that are written by now.
    fn settle(&mut self) {
        while let Some(first) =
            self.pending.pop_front_if(|first| !first.needs_write || first.number <= self.written)
        {
            if !first.needs_write {
                self.with_raft(|raw| raw.on_persist_ready(first.number));
            }
            for message in &first.messages {
                self.send(message);
            }
            if let Some(snapshot) = &first.snapshot {
                self.install(snapshot);
            }
            for entry in &first.entries {
                if self.broken.is_none() {
                    self.apply(entry);
                }
            }
        }
        self.compact();
        if let CatchingUp::To(index) = self.catching_up
            && self.applied >= index
        {
            self.catching_up = CatchingUp::Done;
        }
        if self.leads() && self.raw.raft.apply_to_current_term() {
            self.catching_up = CatchingUp::Done;
            if self.votes_alone() {
                // There is nobody to ask, and nothing to be heard of.
                let (asked, committed) = (self.reads.asked(), self.raw.raft.raft_log.committed);
                self.reads.answer(asked, committed);
                self.note_confirmed(asked);
            }
        }
        let read = self.reads.settle(self.applied);
        self.out.read = read.or(self.out.read);
    }

    fn send(&mut self, message: &Message) {
        let Some(to) = node_id(message.to) else { return };
        if let Some(bytes) = codec::encode_message(self.member.epoch, message) {
            self.out.messages.push((to, bytes));
        }
    }

    fn install(&mut self, snapshot: &Snapshot) {
        match read_state(snapshot, self.highest) {
            Ok(state) => self.state = state,
            Err(error) => {
                self.broken = Some(error);
                return;
            }
        }
        self.applied = snapshot.get_metadata().index;
        let applied = self.applied;
        self.with_raft(|raw| raw.advance_apply_to(applied));
        self.commit(self.state.outcomes());
    }

    fn apply(&mut self, entry: &Entry) {
        let change = entry.get_entry_type() != EntryType::EntryNormal;
        let proposal = match (change, entry.data.is_empty()) {
            (true, _) => {
                self.change_members(entry);
                None
            }
            // A new leader's first entry.
            (false, true) => None,
            (false, false) => match read_proposal(&entry.data, self.highest) {
                Ok(proposal) => Some(proposal),
                Err(error) => {
                    let index = entry.index;
                    self.broken = Some(made_by_newer(&format!("change {index}"), &error));
                    return;
                }
            },
        };
        self.applied = entry.index;
        let applied = self.applied;
        self.with_raft(|raw| raw.advance_apply_to(applied));
        if let Some(proposal) = proposal {
            let outcome = self.state.apply(&proposal);
            self.commit(vec![(proposal.id, outcome)]);
            self.adjust_members();
        }
    }

    fn commit(&mut self, outcomes: Vec<(ProposalId, Outcome)>) {
        let metadata = Arc::clone(&self.state.metadata);
        self.out.commits.push(Commit { index: self.applied, metadata, outcomes });
    }

    fn change_members(&mut self, entry: &Entry) {
        match serde_json::from_slice::<MemberChange>(&entry.context) {
            Ok(change) => {
                // Refused by every member alike, if at all: it depends on nothing but the group before.
                let _ = self.with_raft(|raw| raw.apply_conf_change(&change.conf_change()));
                self.step_down_if_removed();
            }
            Err(error) => {
                let index = entry.index;
                self.broken = Some(format!("change {index} of the group cannot be read ({error})"));
            }
        }
    }

    /// Who was about to be removed may have become the leader. Raft counts on every leader to be a member, and the others elect
    /// one of their own, with this member's vote where they do not know yet that they need it no more.
    fn step_down_if_removed(&mut self) {
        let raft = &self.raw.raft;
        if self.leads() && raft.prs().get(raft.id).is_none() {
            self.with_raft(|raw| raw.raft.become_follower(raw.raft.term, raft::INVALID_ID));
        }
    }

    /// As the leader: takes the next step towards the group that the metadata asks for.
    fn adjust_members(&mut self) {
        let raft = &self.raw.raft;
        let can = self.leads() && raft.apply_to_current_term() && !raft.has_pending_conf();
        if !can || raft.lead_transferee.is_some() {
            return;
        }
        let conf = raft.prs().conf().to_conf_state();
        let (voters, learners) = (conf.voters.into_iter().collect(), conf.learners.into_iter().collect());
        let members = Members { voters: &voters, learners: &learners, leader: raft.id };
        let last = raft.raft_log.last_index();
        let has_caught_up = |id| {
            // One that is behind but has something is at most a message away; an idle log would never show more.
            let at = raft.prs().get(id).filter(|at| at.recent_active && at.matched > 0);
            at.is_some_and(|at| at.matched + KEEP_ENTRIES >= last)
        };
        match members::next_step(&self.state.metadata, &members, has_caught_up) {
            None => {}
            Some(NextStep::HandOver) => {
                self.hand_over();
            }
            Some(NextStep::Change(change)) => {
                let Ok(context) = serde_json::to_vec(&change) else { return };
                // Refused while another change is under way; the next tick tries again.
                let _ = self.with_raft(|raw| raw.propose_conf_change(context, change.conf_change()));
            }
        }
    }

    /// Raft waits for a snapshot to arrive without looking at the clock; one that was lost is sent again.
    fn give_up_lost_snapshots(&mut self) {
        if !self.leads() {
            self.snapshots.clear();
            return;
        }
        let sent = self.raw.raft.prs().iter().filter(|(_, at)| at.state == ProgressState::Snapshot);
        let sent: Vec<u64> = sent.map(|(id, _)| *id).collect();
        self.snapshots.retain(|id, _| sent.contains(id));
        let mut lost = Vec::new();
        for id in sent {
            let ticks = self.snapshots.entry(id).or_default();
            *ticks += 1;
            if *ticks > SNAPSHOT_TICKS {
                lost.push(id);
            }
        }
        for id in lost {
            self.snapshots.remove(&id);
            self.with_raft(|raw| raw.report_snapshot(id, SnapshotStatus::Failure));
        }
    }

    fn repeat_questions(&mut self) {
        let is_waiting = self.catching_up == CatchingUp::Asking || self.reads.is_waiting();
        if is_waiting && self.reads.wait_a_tick().is_multiple_of(ASK_TICKS) {
            self.ask_how_far_the_leader_is();
        }
    }

    fn ask_how_far_the_leader_is(&mut self) {
        let question = format!("{}{}", self.question_prefix(), self.reads.ask());
        self.with_raft(|raw| raw.read_index(question.into()));
    }

    /// What questions of this member, since it started, begin with. The leader tells them apart by their content, and what
    /// it answers to one that was asked before the start says nothing about what has happened since.
    fn question_prefix(&self) -> String {
        format!("{}/{:x}/", self.raw.raft.id, self.seed)
    }

    /// A leader that waits for its disk for long applies nothing meanwhile; the others may be luckier. One whose disk is
    /// busy all the time but gets on is not meant.
    fn hand_over_if_stalled(&mut self) {
        let first = self.pending.front().map_or(0, |first| first.number);
        let ticks = if first == self.stalled.0 { self.stalled.1.saturating_add(1) } else { 0 };
        self.stalled = (first, ticks);
        if first > 0 && ticks > 0 && ticks.is_multiple_of(STALLED_TICKS) {
            self.hand_over();
        }
    }

    fn break_silence(&mut self) {
        self.silence = self.silence.saturating_add(1);
        // A leader that cannot go on has a successor by now, and hears nothing of him.
        let is_heard = self.leads() && self.broken.is_none();
        if is_heard || !self.silence.is_multiple_of(SILENCE_TICKS) {
            return;
        }
        let (metadata, me) = (Arc::clone(&self.state.metadata), self.member.node);
        metadata.nodes.iter().filter(|node| node.id != me).for_each(|node| self.say_hello(node.id));
    }

    /// Cuts the log once enough of it has been applied, or a member needs a newer snapshot than there is.
    fn compact(&mut self) {
        let (entries, bytes) = self.raw.store().weight(self.applied);
        let is_large = entries > COMPACT_ENTRIES || bytes > COMPACT_BYTES && entries > KEEP_ENTRIES;
        let is_due = is_large || self.raw.store().newer_snapshot_wanted.get();
        // What is pending may still be cut off the end; then the snapshot at its beginning is as good a moment later.
        if !is_due || !self.pending.is_empty() || self.broken.is_some() {
            return;
        }
        let Some(term) = self.raw.store().term_at(self.applied) else { return };
        let Ok(data) = state_bytes(&self.state) else { return };
        let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
        snapshot.mut_metadata().index = self.applied;
        snapshot.mut_metadata().term = term;
        snapshot.mut_metadata().set_conf_state(self.raw.raft.prs().conf().to_conf_state());
        let encoded = codec::encode_snapshot(&snapshot);
        let start = self.raw.mut_store().compact(snapshot, KEEP_ENTRIES);
        let hard_state = codec::encode_hard_state(&self.raw.store().hard_state);
        self.out.batches.push(Batch {
            drop_below: Some(start.0 + 1),
            records: vec![
                // The commit index must cover the snapshot.
                (Record::HardState, hard_state),
                (Record::Snapshot, encoded),
                (Record::Start, codec::encode_place(start)),
            ],
            ..Batch::default()
        });
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
