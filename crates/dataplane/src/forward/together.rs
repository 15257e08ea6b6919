//! Retrievals that are asked for together: a list of keys, or a pipeline of requests, costs one round trip to each node that
//! has some of them, not one for each key.
//!
//! The first of them is the request that waits. The others are those behind it, up to the first thing that is no retrieval:
//! nothing may be read before a change that stands in front of it. Their answers are kept with the connection until their
//! turn comes ([`Ahead`]), which is in the order in which they were asked for. Nothing is lost when an answer is missing: its
//! request is executed in its turn as if nobody had asked.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use base::{Status, VbId, VbRole};
use engine::Waiter;
use parking_lot::Mutex;
use protocol::binary::{Decoded, Opcode, Request as Packet, decode_frame_within, validate};

use super::{
    Unanswered, is_repeatable,
    link::{Job, Peer},
    owner,
};
use crate::{
    request::{context::Context, session::Session},
    state::helper::Completion,
};

/// Retrievals looked at behind the first. With the longest keys their packets still fit what a link sends at once.
const BEHIND_MAX: usize = 100;
/// Bytes of answers kept for later; what is more is asked for again in its turn.
const KEPT_BYTES: usize = 1 << 20;

/// A key, or a whole packet.
type Bytes = Box<[u8]>;
/// A whole packet, or why there is none.
pub(crate) type Answer = Result<Bytes, Unanswered>;
/// A key, and the packet that was the answer to its retrieval.
pub(crate) type Answered = (Bytes, Bytes);

/// A retrieval of a document that another node has.
#[derive(Debug)]
pub(crate) struct Retrieval {
    pub(crate) vb: VbId,
    /// As the client named it.
    pub(crate) key: Bytes,
    /// What its owner is asked.
    pub(crate) packet: Vec<u8>,
}

/// Answers to retrievals whose turn is still to come, by key, in their order.
#[derive(Debug, Default)]
pub(crate) struct Ahead(VecDeque<Answered>);

impl Ahead {
    /// These are next.
    pub(crate) fn fill(&mut self, answers: Vec<Answered>) {
        self.0 = answers.into();
    }

    /// The answer to a retrieval of that key, if it is the next one.
    pub(crate) fn take(&mut self, key: &[u8]) -> Option<Bytes> {
        let (_, packet) = self.0.pop_front_if(|(next, _)| **next == *key)?;
        Some(packet)
    }

    /// Something else is next.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Those of some keys of a list that other nodes have. `packet` makes the request for a key.
pub(crate) fn far<'k>(
    session: &Session,
    keys: impl Iterator<Item = &'k [u8]>,
    packet: impl Fn(VbId, &[u8]) -> Option<Vec<u8>>,
) -> Vec<Retrieval> {
    let retrievals = keys.take(BEHIND_MAX).filter_map(|key| {
        let vb = session.vbucket_of(key);
        let packet = is_elsewhere(session, vb).then(|| packet(vb, key))??;
        Some(Retrieval { vb, key: key.into(), packet })
    });
    retrievals.collect()
}

/// Those of the binary retrievals at the beginning of `input` that are for other nodes. On the memcached port nothing is
/// negotiated, so that keys are keys.
pub(crate) fn far_requests(session: &Session, input: &[u8]) -> Vec<Retrieval> {
    let mut rest = input;
    let keys = std::iter::from_fn(|| {
        let Decoded::Frame(frame) = decode_frame_within(rest, base::limits::KEY_BYTES_MAX) else {
            return None;
        };
        let opcode = Opcode::from_wire(frame.header.opcode).filter(|opcode| is_repeatable(opcode.loud()))?;
        if !frame.header.magic.is_client_request() {
            return None;
        }
        validate(opcode, &frame, session.features).ok()?;
        rest = rest.get(frame.packet_len()..).unwrap_or_default();
        Some(frame.key)
    });
    far(session, keys, |vb, key| {
        let mut bytes = Vec::new();
        Packet { vbucket: vb, key, ..Packet::new(Opcode::Get) }.encode(&mut bytes).ok()?;
        Some(bytes)
    })
}

fn is_elsewhere(session: &Session, vb: VbId) -> bool {
    let role = session.attached().and_then(|bucket| bucket.engine.vb_role(vb).ok());
    role.is_some_and(|(role, _)| role != VbRole::Active)
}

/// Asks for a document, and those behind it; `waiter` is told when all have been answered.
///
/// # Errors
/// When the first cannot be asked for now.
pub(super) fn ask(
    session: &Session,
    first: (Peer, Vec<u8>),
    behind: Vec<Retrieval>,
    waiter: Waiter,
    context: &Context,
) -> Result<(), Status> {
    let (first_peer, packet) = first;
    let mut keys = Vec::new();
    let mut by_peer: HashMap<Peer, Vec<(usize, Vec<u8>)>> = HashMap::new();
    for Retrieval { vb, key, packet } in behind {
        if let Some(peer) = owner(session, vb, context) {
            keys.push(key);
            by_peer.entry(peer).or_default().push((keys.len(), packet));
        }
    }
    let own = by_peer.remove(&first_peer).unwrap_or_default();
    let gathering = Arc::new(Gathering::new(waiter, keys));
    let (forward, account) = (&context.shared.forward, &context.shared.account);
    let packets: Vec<_> = std::iter::once((0, packet)).chain(own).collect();
    forward.submit(first_peer, waiter.connection, Job::part(&gathering, packets, account))?;
    for (peer, packets) in by_peer {
        let places: Vec<usize> = packets.iter().map(|(place, _)| *place).collect();
        if forward.submit(peer, waiter.connection, Job::part(&gathering, packets, account)).is_err() {
            for place in places {
                forward.complete(gathering.put(place, Err(Unanswered::Unsent)));
            }
        }
    }
    Ok(())
}

/// Collects the answers to what was asked for together.
#[derive(Debug)]
pub(super) struct Gathering {
    waiter: Waiter,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    first: Answer,
    /// The keys behind the first, and what was answered.
    others: Vec<(Bytes, Option<Bytes>)>,
    kept: usize,
    missing: usize,
}

impl Gathering {
    /// Of one retrieval, and of those keys behind it.
    fn new(waiter: Waiter, keys: Vec<Bytes>) -> Self {
        let missing = 1 + keys.len();
        let others = keys.into_iter().map(|key| (key, None)).collect();
        Self { waiter, state: Mutex::new(State { first: Err(Unanswered::Lost), others, kept: 0, missing }) }
    }

    /// Takes an answer: place 0 is the first retrieval's. With the last one, whom to tell what.
    pub(super) fn put(&self, place: usize, answer: Answer) -> Option<(Waiter, Completion)> {
        let mut state = self.state.lock();
        state.missing = state.missing.saturating_sub(1);
        state.take(place, answer);
        (state.missing == 0).then(|| (self.waiter, state.completion()))
    }
}

impl State {
    fn take(&mut self, place: usize, answer: Answer) {
        if place == 0 {
            self.first = answer;
        } else if let (Some((_, slot)), Ok(packet)) = (self.others.get_mut(place - 1), answer)
            && self.kept + packet.len() <= KEPT_BYTES
        {
            self.kept += packet.len();
            *slot = Some(packet);
        }
    }

    fn completion(&mut self) -> Completion {
        let first = std::mem::replace(&mut self.first, Err(Unanswered::Lost));
        let others = std::mem::take(&mut self.others).into_iter();
        let others = others.filter_map(|(key, packet)| Some((key, packet?))).collect();
        Completion::Gathered { first, others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITER: Waiter = Waiter { worker: 0, connection: 1, ticket: 2 };

    #[test]
    fn who_waits_is_told_once_and_what_is_too_much_is_left_out() {
        let keys = [&b"a"[..], b"b", b"c"].map(Box::from).to_vec();
        let gathering = Gathering::new(WAITER, keys);
        let packet = |bytes: usize| Ok(vec![7; bytes].into());
        assert!(gathering.put(1, packet(10)).is_none());
        assert!(gathering.put(3, packet(KEPT_BYTES)).is_none());
        assert!(gathering.put(2, Err(Unanswered::Lost)).is_none());
        let Some((WAITER, Completion::Gathered { first: Ok(first), others })) =
            gathering.put(0, packet(2 * KEPT_BYTES))
        else {
            panic!("all are here");
        };
        assert_eq!(first.len(), 2 * KEPT_BYTES, "there is always one that gets on");
        assert_eq!(others, [(Box::from(&b"a"[..]), Box::from([7; 10]))]);
    }

    #[test]
    fn answers_are_taken_in_their_order() {
        let mut ahead = Ahead::default();
        let answers = [b"a", b"a", b"b"].map(|key| (Box::from(&key[..]), Box::from(&key[..])));
        ahead.fill(answers.to_vec());
        assert!(ahead.take(b"b").is_none());
        assert!(ahead.take(b"a").is_some());
        assert!(ahead.take(b"a").is_some());
        assert!(ahead.take(b"a").is_none());
        ahead.clear();
        assert!(ahead.take(b"b").is_none());
    }
}
