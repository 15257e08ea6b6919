//! How a member begins: as the founder of a group, as one that joins, or from what its disk holds.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use raft::{
    Config, RawNode,
    eraftpb::{HardState, Snapshot},
};

use super::{
    CatchingUp, Consensus, ELECTION_TICKS, Excluded, LACKS, Reads, Turn,
    formats::{member_bytes, read_known, read_state, state_bytes, unknown_cluster, unreadable},
};
use crate::{
    consensus::{
        Batch, LogError, Member, Record, Stored, codec,
        marks::{Marks, trouble},
        mirror::Mirror,
        raft_id,
        state::{State, Version},
    },
    metadata::Metadata,
};

/// Ticks between heartbeats.
const HEARTBEAT_TICKS: usize = 2;
/// Bytes of entries in one message.
const MESSAGE_BYTES: u64 = 256 * 1024;
/// Messages with entries on their way to one member.
const MESSAGES_IN_FLIGHT: usize = 32;
/// Index and term at which a group begins.
const FOUNDED: (u64, u64) = (1, 1);

/// What makes a node that knows no cluster a cluster of its own with this state.
///
/// # Errors
/// When the state cannot be serialised.
pub fn found(member: &Member, metadata: &Arc<Metadata>) -> Result<Batch, LogError> {
    begin(member, &State::new(Arc::clone(metadata)))
}

/// The beginning of a group of one.
pub(super) fn begin(member: &Member, state: &State) -> Result<Batch, LogError> {
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
        Self::open_as(stored, seed, Version::THIS)
    }

    /// The same as another version would do it.
    ///
    /// # Errors
    /// As [`Consensus::open`].
    pub fn open_as(stored: &Stored, seed: u64, version: Version) -> Result<Self, LogError> {
        let missing = |what: &str| LogError::Unreadable(what.into());
        let record = |record| stored.records.get(&record).map(Vec::as_slice);
        let member = record(Record::Member).ok_or_else(|| missing("it does not say who this node is"))?;
        let member: Member = serde_json::from_slice(member).map_err(unreadable)?;
        let hard_state =
            record(Record::HardState).map(codec::decode_hard_state).transpose().map_err(unreadable)?;
        let snapshot =
            record(Record::Snapshot).map(codec::decode_snapshot).transpose().map_err(unreadable)?;
        let place = |of| record(of).map(codec::decode_place).transpose().map_err(unreadable);
        let start = place(Record::Start)?;
        let diverged = place(Record::Diverged)?.map(|(index, _)| index);
        let lacks = place(Record::Lacks)?.map(|(index, _)| index);
        let is_unfit = snapshot.is_none() && record(Record::Unfit).is_some();
        let known_at = record(Record::KnownAt).map(serde_json::from_slice).transpose().map_err(unreadable)?;
        let entries = stored.entries.values().map(|entry| codec::decode_entry(entry));
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
        let state = match &snapshot {
            Some(snapshot) => read_state(snapshot, version.highest).map_err(LogError::Unreadable)?,
            None => State::new(Arc::new(match record(Record::Known) {
                Some(known) => read_known(known, version.highest).map_err(LogError::Unreadable)?,
                None => unknown_cluster(&member),
            })),
        };
        let reached = |snapshot: &Snapshot| (snapshot.get_metadata().index, snapshot.get_metadata().term);
        let (applied, applied_term) = snapshot.as_ref().map_or((0, 0), reached);
        let mirror = Mirror::new(
            hard_state.unwrap_or_default(),
            snapshot.unwrap_or_default(),
            start.unwrap_or_default(),
            entries,
        );
        let mirror = mirror.ok_or_else(|| missing("entries are missing"))?;
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config(&member, applied), mirror, &logger).map_err(unreadable)?;
        let mut group = Self {
            member,
            seed,
            version,
            raw,
            state,
            applied,
            applied_term,
            known_at,
            pending: VecDeque::new(),
            written: 0,
            held: None,
            elections: 0,
            snapshots: BTreeMap::new(),
            catching_up: CatchingUp::Asking,
            reads: Reads::default(),
            silence: 0,
            unled: 0,
            told: 0,
            stalled: (0, 0),
            marks: Marks::default(),
            excluded: Excluded::default(),
            broken: diverged.map(trouble).or_else(|| lacks.map(|_| LACKS.into())),
            diverged,
            lacks,
            is_unfit,
            out: Turn::default(),
        };
        group.draw_timeout();
        if group.votes_alone() && group.broken.is_none() {
            // Nobody else could object, so there is nothing to wait for.
            group.with_raft(RawNode::campaign).map_err(unreadable)?;
        }
        Ok(group)
    }
}

/// How Raft is to go on that has applied so much.
fn config(member: &Member, applied: u64) -> Config {
    Config {
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
    }
}
