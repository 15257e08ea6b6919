//! The bytes of layout 2, kept as a file: what members say to one another, and what they write to their logs. Every later version reads
//! them, and answers what a member of this layout reads.
//!
//! A member that refuses what others of its group say takes no part. So a new layout is spoken from a level of the metadata on
//! (`docs/decisions/2026-11-26-level-of-the-metadata.md`), and this file stays.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use serde_json::Value;
use settee_cluster::consensus::{
    Consensus, Epoch, LogStore as _, MemoryLog, Record, StepError, Stored, Turn, epoch_of, join,
};

/// The file.
const LETTERS: &str = include_str!("../fixtures/letters-of-layout-2.json");
/// The member that is looked at, and the others that vote.
const ME: NodeId = NodeId(1);
const OTHERS: [NodeId; 2] = [NodeId(0), NodeId(2)];

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file() -> Value {
    serde_json::from_str(LETTERS).unwrap()
}

/// What somebody says to the member.
fn heard(name: &str) -> Vec<u8> {
    unhex(file()["heard"][name].as_str().unwrap_or_else(|| panic!("there is no {name}")))
}

/// A log as it was written.
fn kept() -> Stored {
    let file = file();
    let bytes = |value: &Value| unhex(value.as_str().unwrap());
    let record = |name: &str| Record::ALL.into_iter().find(|record| record.name() == name).unwrap();
    let (records, entries) = (file["records"].as_object().unwrap(), file["entries"].as_object().unwrap());
    Stored {
        records: records.iter().map(|(name, value)| (record(name), bytes(value))).collect(),
        entries: entries.iter().map(|(index, value)| (index.parse().unwrap(), bytes(value))).collect(),
    }
}

/// The member, and what it has said.
struct Listener {
    group: Consensus,
    log: MemoryLog,
    said: BTreeMap<NodeId, Vec<String>>,
    last: Turn,
}

impl Listener {
    fn open(stored: &Stored) -> Self {
        let mut log = MemoryLog::default();
        let records = stored.records.clone().into_iter().collect();
        let entries = stored.entries.clone().into_iter().collect();
        log.write(&[settee_cluster::consensus::Batch { records, entries, ..Default::default() }]).unwrap();
        let group = Consensus::open(stored, 1).unwrap();
        let mut listener = Self { group, log, said: BTreeMap::new(), last: Turn::default() };
        listener.go_on();
        listener
    }

    /// One that has just joined.
    fn joined() -> Self {
        let member = serde_json::from_slice(&kept().records[&Record::Member]).unwrap();
        let mut stored = Stored::default();
        stored.apply(&join(&member).unwrap());
        Self::open(&stored)
    }

    /// One that has heard everything from a leader.
    fn that_follows() -> Self {
        let mut listener = Self::joined();
        for name in ["snapshot", "append", "heartbeat"] {
            listener.hear(OTHERS[0], name);
        }
        listener
    }

    fn go_on(&mut self) {
        self.last = Turn::default();
        for _ in 0..10 {
            let turn = self.group.turn();
            if turn.is_empty() {
                break;
            }
            self.log.write(&turn.batches).unwrap();
            self.group.written(turn.number);
            for (to, bytes) in turn.messages {
                assert_eq!(epoch_of(&bytes), Some(Epoch { number: 1, lot: 7 }));
                self.said.entry(to).or_default().push(hex(&bytes));
            }
            self.last.read = self.last.read.max(turn.read);
            self.last.confirmed = self.last.confirmed.or(turn.confirmed);
            self.last.successor = self.last.successor.take().or(turn.successor);
        }
    }

    fn hear(&mut self, from: NodeId, name: &str) {
        self.said.clear();
        assert_eq!(self.group.step(Some(from), &heard(name)), Ok(()), "{name}");
        self.go_on();
        assert_eq!(self.group.broken(), None, "{name}");
    }

    /// It has said that among others.
    fn assert_said(&self, to: NodeId, name: &str) {
        let file = file();
        let expected = file["said"][name].as_str().unwrap_or_default();
        let said = self.said.get(&to).map(Vec::as_slice).unwrap_or_default();
        assert!(said.iter().any(|letter| letter == expected), "{name} to {to} is none of {said:#?}");
    }
}

#[test]
fn a_follower_understands_layout_2_and_answers_in_it() {
    let mut follower = Listener::joined();
    follower.hear(OTHERS[0], "snapshot");
    follower.assert_said(OTHERS[0], "append_response to a snapshot");
    let voters: BTreeSet<NodeId> = [OTHERS[0], ME, OTHERS[1]].into();
    assert_eq!(follower.group.members(), (voters.clone(), [NodeId(3)].into()));
    assert_eq!((follower.group.applied(), follower.group.metadata().nodes.len()), (5, 4));

    follower.hear(OTHERS[0], "append");
    follower.assert_said(OTHERS[0], "append_response");
    follower.hear(OTHERS[0], "heartbeat");
    follower.assert_said(OTHERS[0], "heartbeat_response");
    assert_eq!((follower.group.applied(), follower.group.leader()), (8, Some(OTHERS[0])));
    assert_eq!(follower.group.metadata().settings["p"], 1, "the first entry is a proposal");
    assert_eq!(follower.group.members(), (voters, [NodeId(3)].into()), "the others take it out and in again");

    follower.said.clear();
    let question = follower.group.read();
    follower.go_on();
    follower.assert_said(OTHERS[0], "read_index");
    assert!(!follower.group.has_caught_up());
    follower.hear(OTHERS[0], "read_index_response");
    assert_eq!(follower.last.read, Some(question));
    assert!(follower.group.has_caught_up());
    follower.hear(OTHERS[0], "append of nothing");
    follower.assert_said(OTHERS[0], "append_response to nothing");
}

#[test]
fn a_candidate_understands_layout_2_and_leads_in_it() {
    let mut candidate = Listener::that_follows();
    candidate.hear(OTHERS[0], "timeout_now");
    candidate.assert_said(OTHERS[1], "request_vote");
    candidate.hear(OTHERS[1], "request_vote_response");
    assert!(candidate.group.leads());
    candidate.assert_said(OTHERS[1], "append");

    candidate.hear(OTHERS[1], "append_response");
    assert_eq!(candidate.group.applied(), 9, "a majority has its first entry");
    candidate.said.clear();
    let round = candidate.group.confirm();
    candidate.go_on();
    candidate.assert_said(OTHERS[1], "heartbeat");
    candidate.hear(OTHERS[1], "heartbeat_response");
    assert_eq!(candidate.last.confirmed, round);

    candidate.hear(OTHERS[1], "read_index");
    candidate.hear(OTHERS[1], "heartbeat_response to a question");
    candidate.assert_said(OTHERS[1], "read_index_response");
}

#[test]
fn a_member_without_a_leader_understands_layout_2_and_votes_in_it() {
    let mut voter = Listener::that_follows();
    voter.hear(OTHERS[1], "request_vote");
    voter.assert_said(OTHERS[1], "request_vote_response");

    let mut member = Listener::that_follows();
    member.said.clear();
    for _ in 0..40 {
        member.group.tick();
        member.go_on();
        if member.said.contains_key(&OTHERS[1]) {
            break;
        }
    }
    member.assert_said(OTHERS[1], "request_pre_vote");
    member.hear(OTHERS[1], "request_pre_vote");
    member.assert_said(OTHERS[1], "request_pre_vote_response");
    member.hear(OTHERS[1], "request_pre_vote_response");
    member.assert_said(OTHERS[1], "request_vote after a request_pre_vote");
}

#[test]
fn a_notice_of_layout_2_is_understood() {
    let mut follower = Listener::that_follows();
    assert_eq!(follower.group.step(Some(OTHERS[0]), &heard("notice")), Ok(()));
    follower.go_on();
    let successor = follower.last.successor.expect("it goes on in the next life of its group");
    assert_eq!((successor.epoch, successor.node), (Epoch { number: 2, lot: 9 }, ME));
    assert_eq!((successor.secret.as_str(), successor.peers.len()), ("t", 4));
}

#[test]
fn a_log_of_layout_2_is_read_and_written() {
    let kept = kept();
    let mut opened = Listener::open(&kept);
    assert_eq!((opened.group.broken(), opened.group.applied(), opened.group.term()), (None, 8, 3));
    assert_eq!(opened.group.metadata().settings["p"], 1);
    // What a member writes that hears the same is the same.
    let written = Listener::that_follows().log.load().unwrap();
    assert_eq!(written.entries, kept.entries);
    for record in [Record::HardState, Record::Start] {
        assert_eq!(written.records[&record], kept.records[&record], "{}", record.name());
    }
    // A member that was fenced stays so.
    opened.group.fence(8);
    opened.go_on();
    assert_eq!(hex(&opened.log.load().unwrap().records[&Record::Diverged]), file()["said"]["diverged"]);
}

#[test]
fn every_kind_of_letter_is_kept() {
    let file = file();
    let heard = file["heard"].as_object().unwrap();
    let kinds: BTreeSet<u8> = heard.values().map(|letter| unhex(letter.as_str().unwrap())[1]).collect();
    assert_eq!(kinds, (1..=12).chain([0x80]).collect(), "of messages");
    let kinds: BTreeSet<u8> = kept().entries.values().map(|entry| entry[0]).collect();
    assert_eq!(kinds, (0..=2).collect(), "of entries");
    // One of another layout is refused.
    let mut other = self::heard("heartbeat");
    other[0] = 0xff;
    let refused = Listener::that_follows().group.step(Some(OTHERS[0]), &other);
    assert!(matches!(refused, Err(StepError::Refused(_))), "{refused:?}");
}
