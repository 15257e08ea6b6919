//! Finds messages that Raft would answer by ending the process. Some are messages that no member sends. Others contradict
//! what this member had confirmed, for example after a restore of an old copy of its log.
//!
//! `raft` asserts where a member that keeps to the protocol cannot go wrong. Bytes from a network are no such member, so
//! everything that one of those assertions rests on is looked at here first. What is merely stale passes: Raft deals with it.

use std::collections::BTreeSet;

use raft::{
    Raft, StateRole,
    eraftpb::{Message, MessageType},
};

use super::mirror::Mirror;

/// No real term or place of a log comes near this: elections and changes count up one at a time.
const UNREAL: u64 = 1 << 62;
/// How far a message may go beyond what this member has, from [`UNREAL`] on.
const UNREAL_STEP: u64 = 1 << 32;
/// Raft counts on from what it has taken, and must not run over.
const COUNTABLE_MAX: u64 = 1 << 63;

/// The highest term, or place in the log, that is believed where this member has `own`. A message may bring some members to [`UNREAL`]
/// and not the others. All of them take what follows from that: members that differ by a few elections understand one another up
/// to [`COUNTABLE_MAX`].
const fn believable(own: u64) -> u64 {
    let start = if own > UNREAL { own } else { UNREAL };
    let highest = start.saturating_add(UNREAL_STEP);
    if highest < COUNTABLE_MAX { highest } else { COUNTABLE_MAX }
}

/// Why a message must not reach Raft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// No member says that.
    Nonsense(&'static str),
    /// This member said to have more than it has.
    Contradiction,
}

/// Whether a message may reach `raft`.
pub(super) fn check(message: &Message, raft: &Raft<Mirror>) -> Result<(), Objection> {
    let nonsense = |text| Err(Objection::Nonsense(text));
    let kind = message.get_msg_type();
    // A question has no term, and is passed on; whatever else has none would be taken for this member's own.
    if (kind == MessageType::MsgReadIndex) != (message.term == 0) {
        return nonsense("a message without a term, or a question with one");
    }
    if kind == MessageType::MsgReadIndex {
        let is_question = message.entries.len() == 1 && !message.entries[0].data.is_empty();
        return if is_question { Ok(()) } else { nonsense("a question without content") };
    }
    if message.request_snapshot != 0 {
        return nonsense("a request for a snapshot");
    }
    if message.term < raft.term {
        return Ok(());
    }
    let log = &raft.raft_log;
    let is_far = |index| index > believable(log.last_index());
    if message.term > believable(raft.term) || is_far(message.index) || is_far(message.commit) {
        return nonsense("a term, or a place in the log, that no group reaches");
    }
    match kind {
        MessageType::MsgAppend => check_append(message, raft),
        // One that led in this term before it was restarted, and lost what it had sent, is not meant: Raft ignores them then.
        MessageType::MsgAppendResponse if message.term == raft.term && raft.state == StateRole::Leader => {
            let is_known = message.index <= log.last_index() && message.reject_hint <= log.last_index();
            if is_known { Ok(()) } else { nonsense("an acknowledgement of what does not exist") }
        }
        // A candidate has written everything that it has.
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse
            if matches!(raft.state, StateRole::Candidate | StateRole::PreCandidate)
                && log.persisted < log.last_index() =>
        {
            nonsense("a vote that was not asked for")
        }
        MessageType::MsgHeartbeat if message.commit > log.last_index() => Err(Objection::Contradiction),
        MessageType::MsgSnapshot => check_snapshot(message, raft),
        _ => Ok(()),
    }
}

fn check_append(message: &Message, raft: &Raft<Mirror>) -> Result<(), Objection> {
    let log = &raft.raft_log;
    if (message.log_term == 0) != (message.index == 0) {
        return Err(Objection::Nonsense("entries behind one that does not exist"));
    }
    let mut before = (message.index, message.log_term);
    for entry in message.entries.iter() {
        let is_next = before.0.checked_add(1) == Some(entry.index);
        if !is_next || entry.term == 0 || entry.term < before.1 || entry.term > message.term {
            return Err(Objection::Nonsense("entries out of order"));
        }
        before = (entry.index, entry.term);
    }
    let confirmed = log.term(log.committed).unwrap_or(0);
    if message.index >= log.committed && message.log_term < confirmed {
        return Err(Objection::Nonsense("entries behind one that is older than what was agreed on"));
    }
    Ok(())
}

/// A group begins with its founder alone. So a snapshot that does not name this member is from before it was one.
fn check_snapshot(message: &Message, raft: &Raft<Mirror>) -> Result<(), Objection> {
    let nonsense = |text| Err(Objection::Nonsense(text));
    let metadata = message.get_snapshot().get_metadata();
    let (voters, learners) = (&metadata.get_conf_state().voters, &metadata.get_conf_state().learners);
    let ids: BTreeSet<u64> = voters.iter().chain(learners).copied().collect();
    let is_group = !voters.is_empty() && ids.len() == voters.len() + learners.len() && !ids.contains(&0);
    if metadata.index == 0 || metadata.term == 0 || !is_group {
        return nonsense("a snapshot of no group");
    }
    if metadata.index > believable(raft.raft_log.last_index()) || metadata.term > message.term {
        return nonsense("a snapshot of a place that no group has reached");
    }
    if ids.contains(&raft.id) { Ok(()) } else { nonsense("a snapshot without this member") }
}

#[cfg(test)]
mod tests {
    use raft::{
        Config, RawNode,
        eraftpb::{Entry, HardState, Snapshot},
    };

    use super::*;

    /// A follower, number 2 of three, that has everything up to entry 3 of term 5.
    fn follower() -> RawNode<Mirror> {
        let mut snapshot = group(&[1, 2, 3]);
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (3, 5);
        let hard_state = HardState { term: 5, commit: 3, ..HardState::default() };
        let mirror = Mirror::new(hard_state, snapshot, (3, 5), Vec::new()).unwrap();
        let config = Config { id: 2, applied: 3, ..Config::default() };
        RawNode::new(&config, mirror, &slog::Logger::root(slog::Discard, slog::o!())).unwrap()
    }

    fn group(voters: &[u64]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().mut_conf_state().voters = voters.to_vec();
        snapshot
    }

    fn message(kind: MessageType, term: u64, change: impl FnOnce(&mut Message)) -> Message {
        let mut message = Message { from: 1, to: 2, term, ..Message::default() };
        message.set_msg_type(kind);
        change(&mut message);
        message
    }

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: b"x".to_vec().into(), ..Entry::default() }
    }

    /// One message may bring a member there. The others follow it, and elect one of them all the same.
    #[test]
    fn members_that_were_brought_to_a_huge_term_go_on_from_it() {
        let huge = message(MessageType::MsgHeartbeat, UNREAL, |_| {});
        let mut brought = follower();
        assert_eq!(check(&huge, &brought.raft), Ok(()));
        brought.raft.become_follower(UNREAL, 1);
        for elections in [1, 1_000] {
            let vote = message(MessageType::MsgRequestVote, UNREAL + elections, |_| {});
            assert_eq!(check(&vote, &brought.raft), Ok(()));
            assert_eq!(check(&vote, &follower().raft), Ok(()), "one that has not heard of it");
        }
        brought.raft.become_follower(COUNTABLE_MAX, 1);
        let last = message(MessageType::MsgRequestVote, COUNTABLE_MAX + 1, |_| {});
        assert!(check(&last, &brought.raft).is_err(), "Raft would run over one day");
    }

    #[test]
    fn what_no_member_says_does_not_reach_raft() {
        use MessageType::*;
        let node = follower();
        let entries = |at: u64, entries: Vec<Entry>| {
            move |message: &mut Message| {
                (message.index, message.log_term) = (at, if at == 0 { 0 } else { 5 });
                message.set_entries(entries.into());
            }
        };
        let snapshot = |index, term, voters: &[u64]| {
            let mut snapshot = group(voters);
            (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (index, term);
            move |message: &mut Message| message.set_snapshot(snapshot)
        };
        let nonsense = [
            message(MsgHeartbeat, 0, |message| message.commit = 99),
            message(MsgRequestVote, 0, |_| {}),
            message(MsgReadIndex, 0, |_| {}),
            message(MsgReadIndex, 7, entries(0, vec![entry(1, 1)])),
            message(MsgHeartbeat, 5, |message| message.request_snapshot = 1),
            message(MsgAppend, 5, |message| message.index = 9),
            message(MsgAppend, 5, entries(3, vec![entry(5, 5)])),
            message(MsgAppend, 5, entries(3, vec![entry(4, 6)])),
            message(MsgAppend, 6, entries(3, vec![entry(4, 6), entry(5, 5)])),
            message(MsgSnapshot, 5, snapshot(9, 0, &[1, 2])),
            message(MsgSnapshot, 5, snapshot(0, 5, &[1, 2])),
            message(MsgSnapshot, 5, snapshot(9, 5, &[])),
            message(MsgSnapshot, 5, snapshot(9, 5, &[0, 2])),
            message(MsgSnapshot, 5, snapshot(9, 5, &[2, 2])),
            message(MsgSnapshot, 5, snapshot(9, 5, &[1])),
            message(MsgSnapshot, 5, snapshot(9, 6, &[1, 2])),
            message(MsgSnapshot, 5, snapshot(u64::MAX, 5, &[1, 2])),
            message(MsgHeartbeat, u64::MAX, |_| {}),
            message(MsgRequestVote, u64::MAX, |_| {}),
            message(MsgTimeoutNow, UNREAL + UNREAL_STEP + 1, |_| {}),
            message(MsgHeartbeat, 5, |message| message.commit = u64::MAX),
            message(MsgAppend, 5, |message| (message.index, message.log_term) = (u64::MAX, 5)),
        ];
        for message in nonsense {
            let outcome = check(&message, &node.raft);
            assert!(matches!(outcome, Err(Objection::Nonsense(_))), "{message:?}: {outcome:?}");
        }
        let mut leader = follower();
        leader.raft.become_candidate();
        leader.raft.become_leader();
        let last = leader.raft.raft_log.last_index();
        for (index, hint) in [(last + 1, 0), (last, u64::MAX)] {
            let acknowledgement = message(MsgAppendResponse, leader.raft.term, |message| {
                (message.index, message.reject_hint) = (index, hint);
            });
            assert!(matches!(check(&acknowledgement, &leader.raft), Err(Objection::Nonsense(_))));
            // It may have led and have lost what it had sent.
            assert_eq!(check(&Message { term: 5, ..acknowledgement }, &node.raft), Ok(()));
        }
        let contradiction = message(MsgHeartbeat, 5, |message| message.commit = 4);
        assert_eq!(check(&contradiction, &node.raft), Err(Objection::Contradiction));
        let sense = [
            message(MsgHeartbeat, 5, |message| message.commit = 3),
            message(MsgReadIndex, 0, entries(0, vec![entry(0, 0)])),
            message(MsgAppend, 5, entries(3, vec![entry(4, 5), entry(5, 5)])),
            message(MsgAppend, 6, entries(3, vec![entry(4, 5), entry(5, 6)])),
            message(MsgAppendResponse, 5, |message| message.index = 3),
            message(MsgSnapshot, 5, snapshot(9, 5, &[1, 2])),
            // Of a term that is over: Raft ignores it.
            message(MsgHeartbeat, 4, |message| message.commit = 99),
        ];
        for message in sense {
            assert_eq!(check(&message, &node.raft), Ok(()), "{message:?}");
        }
    }
}
