//! Raft's values as bytes, for peers and for the log.
//!
//! Written by hand because what comes from outside must not reach the `protobuf` parser that `raft` brings along: it
//! recurses without a bound. Integers are little-endian, byte strings carry a length of four bytes. A message begins
//! with the version of this layout, its kind and the epoch it belongs to. Decoding never takes more memory than the input
//! has bytes.

use base::NodeId;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Message, MessageType, Snapshot};

use super::node_id;
use crate::metadata::epoch::{Epoch, Notice};

/// Version of the layout of messages.
const VERSION: u8 = 2;
/// The kind of a [`Notice`], which is none of Raft's messages.
const NOTICE: u8 = 0x80;

/// Why bytes could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub(super) struct Malformed(&'static str);

type Read<T> = Result<T, Malformed>;

/// Kinds of messages between nodes with their numbers. What a node says to itself, and proposals, which travel by
/// another way, are not among them.
const KINDS: [(MessageType, u8); 12] = [
    (MessageType::MsgAppend, 1),
    (MessageType::MsgAppendResponse, 2),
    (MessageType::MsgRequestVote, 3),
    (MessageType::MsgRequestVoteResponse, 4),
    (MessageType::MsgSnapshot, 5),
    (MessageType::MsgHeartbeat, 6),
    (MessageType::MsgHeartbeatResponse, 7),
    (MessageType::MsgTimeoutNow, 8),
    (MessageType::MsgReadIndex, 9),
    (MessageType::MsgReadIndexResp, 10),
    (MessageType::MsgRequestPreVote, 11),
    (MessageType::MsgRequestPreVoteResponse, 12),
];

/// What one member says to another.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Letter {
    /// A message of Raft's, in an epoch.
    Raft(Epoch, Box<Message>),
    /// That the group was formed anew.
    Notice(Notice),
}

/// A message to a peer; `None` for kinds that do not travel.
pub(super) fn encode_message(epoch: Epoch, message: &Message) -> Option<Vec<u8>> {
    let (_, kind) = KINDS.iter().find(|(kind, _)| *kind == message.get_msg_type())?;
    let mut out = beginning(*kind, epoch);
    let numbers = [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.request_snapshot,
        message.reject_hint,
    ];
    numbers.into_iter().for_each(|number| put_u64(&mut out, number));
    out.push(u8::from(message.reject));
    put_bytes(&mut out, &message.context);
    put_u32(&mut out, message.entries.len());
    message.entries.iter().for_each(|entry| put_bytes(&mut out, &encode_entry(entry)));
    if message.get_msg_type() == MessageType::MsgSnapshot {
        out.extend(encode_snapshot(message.get_snapshot()));
    }
    Some(out)
}

/// A notice to a peer; `None` when it cannot be serialised.
pub(super) fn encode_notice(notice: &Notice) -> Option<Vec<u8>> {
    let mut out = beginning(NOTICE, notice.epoch);
    put_bytes(&mut out, &serde_json::to_vec(notice).ok()?);
    Some(out)
}

/// The epoch that a letter belongs to.
pub(super) fn epoch_of(bytes: &[u8]) -> Option<Epoch> {
    begin(&mut Input(bytes)).ok().map(|(_, epoch)| epoch)
}

/// The member whose word a letter is, where it names one. A notice names nobody, and a question is passed on by others.
pub(super) fn sender_of(bytes: &[u8]) -> Option<NodeId> {
    let mut input = Input(bytes);
    let (kind, _) = begin(&mut input).ok()?;
    let (_to, from) = (input.u64().ok()?, input.u64().ok()?);
    let names_nobody = kind == NOTICE || KINDS.contains(&(MessageType::MsgReadIndex, kind));
    node_id(from).filter(|_| !names_nobody)
}

/// Reads what [`encode_message`] or [`encode_notice`] wrote.
pub(super) fn decode(bytes: &[u8]) -> Read<Letter> {
    let mut input = Input(bytes);
    let (kind, epoch) = begin(&mut input)?;
    let letter = if kind == NOTICE {
        let notice = serde_json::from_slice::<Notice>(input.bytes()?).map_err(|_| Malformed("notice"))?;
        Letter::Notice(Notice { epoch, ..notice })
    } else {
        Letter::Raft(epoch, Box::new(read_message(kind, &mut input)?))
    };
    input.end()?;
    Ok(letter)
}

fn beginning(kind: u8, epoch: Epoch) -> Vec<u8> {
    let mut out = vec![VERSION, kind];
    put_u64(&mut out, epoch.number);
    put_u64(&mut out, epoch.lot);
    out
}

/// Reads what [`beginning`] made.
fn begin(input: &mut Input<'_>) -> Read<(u8, Epoch)> {
    if input.u8()? != VERSION {
        return Err(Malformed("a message of another version"));
    }
    let kind = input.u8()?;
    Ok((kind, Epoch { number: input.u64()?, lot: input.u64()? }))
}

fn read_message(kind: u8, input: &mut Input<'_>) -> Read<Message> {
    let (kind, _) = KINDS.iter().find(|(_, number)| *number == kind).ok_or(Malformed("kind of message"))?;
    let mut message = Message::default();
    message.set_msg_type(*kind);
    message.to = input.u64()?;
    message.from = input.u64()?;
    message.term = input.u64()?;
    message.log_term = input.u64()?;
    message.index = input.u64()?;
    message.commit = input.u64()?;
    message.commit_term = input.u64()?;
    message.request_snapshot = input.u64()?;
    message.reject_hint = input.u64()?;
    message.reject = input.u8()? != 0;
    message.context = input.bytes()?.to_vec().into();
    let count = input.u32()?;
    let entries: Read<Vec<Entry>> = (0..count).map(|_| decode_entry(input.bytes()?)).collect();
    message.set_entries(entries?.into());
    if *kind == MessageType::MsgSnapshot {
        message.set_snapshot(read_snapshot(input)?);
    }
    Ok(message)
}

/// An entry, for a message or the log.
pub(super) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let kind = match entry.get_entry_type() {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    };
    let mut out = vec![kind];
    put_u64(&mut out, entry.term);
    put_u64(&mut out, entry.index);
    put_bytes(&mut out, &entry.data);
    put_bytes(&mut out, &entry.context);
    out
}

/// Reads what [`encode_entry`] wrote.
pub(super) fn decode_entry(bytes: &[u8]) -> Read<Entry> {
    let mut input = Input(bytes);
    let mut entry = Entry::default();
    entry.set_entry_type(match input.u8()? {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChange,
        2 => EntryType::EntryConfChangeV2,
        _ => return Err(Malformed("kind of entry")),
    });
    entry.term = input.u64()?;
    entry.index = input.u64()?;
    entry.data = input.bytes()?.to_vec().into();
    entry.context = input.bytes()?.to_vec().into();
    input.end()?;
    Ok(entry)
}

/// A snapshot, for a message or the log.
pub(super) fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    let metadata = snapshot.get_metadata();
    let mut out = Vec::with_capacity(snapshot.data.len() + 64);
    put_u64(&mut out, metadata.index);
    put_u64(&mut out, metadata.term);
    put_ids(&mut out, &metadata.get_conf_state().voters);
    put_ids(&mut out, &metadata.get_conf_state().learners);
    put_bytes(&mut out, &snapshot.data);
    out
}

/// Reads what [`encode_snapshot`] wrote.
pub(super) fn decode_snapshot(bytes: &[u8]) -> Read<Snapshot> {
    let mut input = Input(bytes);
    let snapshot = read_snapshot(&mut input)?;
    input.end()?;
    Ok(snapshot)
}

/// Term, vote and commit index.
pub(super) fn encode_hard_state(state: &HardState) -> Vec<u8> {
    [state.term, state.vote, state.commit].into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Reads what [`encode_hard_state`] wrote.
pub(super) fn decode_hard_state(bytes: &[u8]) -> Read<HardState> {
    let mut input = Input(bytes);
    let (term, vote, commit) = (input.u64()?, input.u64()?, input.u64()?);
    input.end()?;
    Ok(HardState { term, vote, commit, ..HardState::default() })
}

/// Index and term of one place in the log.
pub(super) fn encode_place((index, term): (u64, u64)) -> Vec<u8> {
    [index, term].into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Reads what [`encode_place`] wrote.
pub(super) fn decode_place(bytes: &[u8]) -> Read<(u64, u64)> {
    let mut input = Input(bytes);
    let place = (input.u64()?, input.u64()?);
    input.end()?;
    Ok(place)
}

fn read_snapshot(input: &mut Input<'_>) -> Read<Snapshot> {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    metadata.index = input.u64()?;
    metadata.term = input.u64()?;
    let state = ConfState { voters: input.ids()?, learners: input.ids()?, ..ConfState::default() };
    metadata.set_conf_state(state);
    snapshot.data = input.bytes()?.to_vec().into();
    Ok(snapshot)
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    // Lengths come from memory that is bounded far below: a snapshot is a few megabytes.
    out.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend(bytes);
}

fn put_ids(out: &mut Vec<u8>, ids: &[u64]) {
    put_u32(out, ids.len());
    ids.iter().for_each(|id| put_u64(out, *id));
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed("too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed("too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Read<usize> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Read<&'a [u8]> {
        let count = self.u32()?;
        self.take(count)
    }

    fn ids(&mut self) -> Read<Vec<u64>> {
        let count = self.u32()?;
        (0..count).map(|_| self.u64()).collect()
    }

    fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("too long")) }
    }
}

/// For the fuzzer: bytes are refused, or are read as something that is the same after another journey.
#[cfg(test)]
pub(crate) fn read_fuzzed(bytes: &[u8]) {
    if let Ok(letter) = decode(bytes) {
        let again = match &letter {
            Letter::Raft(epoch, message) => encode_message(*epoch, message),
            Letter::Notice(notice) => encode_notice(notice),
        };
        let again = again.expect("what is read also travels");
        assert_eq!(decode(&again).as_ref(), Ok(&letter));
        assert_eq!((epoch_of(&again), sender_of(&again)), (epoch_of(bytes), sender_of(bytes)));
    }
    let written = [
        decode_entry(bytes).map(|entry| encode_entry(&entry)),
        decode_snapshot(bytes).map(|snapshot| encode_snapshot(&snapshot)),
        decode_hard_state(bytes).map(|state| encode_hard_state(&state)),
        decode_place(bytes).map(encode_place),
    ];
    written.into_iter().flatten().for_each(|again| assert_eq!(again, bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let mut message = Message { to: 2, from: 1, term: 7, log_term: 6, index: 40, ..Message::default() };
        message.set_msg_type(MessageType::MsgSnapshot);
        message.commit = 39;
        message.reject = true;
        message.context = b"context".to_vec().into();
        let mut entry = Entry { term: 7, index: 41, ..Entry::default() };
        entry.set_entry_type(EntryType::EntryConfChange);
        entry.data = b"data".to_vec().into();
        message.set_entries(vec![entry].into());
        let snapshot = message.mut_snapshot();
        snapshot.data = b"state".to_vec().into();
        snapshot.mut_metadata().index = 38;
        snapshot.mut_metadata().mut_conf_state().voters = vec![1, 2, 3];
        message
    }

    const EPOCH: Epoch = Epoch { number: 4, lot: 0xdead_beef };

    #[test]
    fn messages_survive_the_journey() {
        let bytes = encode_message(EPOCH, &message()).unwrap();
        assert_eq!(decode(&bytes).unwrap(), Letter::Raft(EPOCH, Box::new(message())));
        assert_eq!((epoch_of(&bytes), sender_of(&bytes)), (Some(EPOCH), Some(NodeId(0))));
        let mut question = message();
        question.set_msg_type(MessageType::MsgReadIndex);
        assert_eq!(sender_of(&encode_message(EPOCH, &question).unwrap()), None, "others pass it on");
        let notice = Notice { epoch: EPOCH, secret: "secret".into(), nodes: Vec::new() };
        let bytes = encode_notice(&notice).unwrap();
        assert_eq!(decode(&bytes).unwrap(), Letter::Notice(notice));
        assert_eq!((epoch_of(&bytes), sender_of(&bytes)), (Some(EPOCH), None));
    }

    #[test]
    fn what_does_not_travel_is_neither_sent_nor_accepted() {
        for kind in [MessageType::MsgPropose, MessageType::MsgHup, MessageType::MsgSnapStatus] {
            let mut message = Message::default();
            message.set_msg_type(kind);
            assert_eq!(encode_message(EPOCH, &message), None);
        }
        assert!(decode(&beginning(0, EPOCH)).is_err());
    }

    #[test]
    fn cut_or_changed_bytes_are_refused_or_read_as_something_else() {
        let bytes = encode_message(EPOCH, &message()).unwrap();
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err());
        }
        assert!(decode(&[bytes.clone(), vec![0]].concat()).is_err());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            // Must not panic, and must not allocate what a length merely claims.
            let _ = decode(&changed);
        }
    }
}
