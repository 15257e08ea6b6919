//! Retrievals that are asked for together. A list of keys, or a pipeline of requests, costs one round trip to each node that
//! has some of them, not one per key.
//!
//! The first of them is the request that waits. The others are those behind it, up to the first thing that is no retrieval. Nothing may be
//! read before a change that stands in front of it. Their answers are kept with the connection until their turn comes
//! ([`Ahead`](crate::request::ahead::Ahead)), which is in the order in which they were asked for. Nothing is lost when an answer is
//! missing: its request is executed in its turn as if nobody had asked.

use std::{collections::HashMap, sync::Arc};

use base::{Status, VbId, VbRole};
use protocol::binary::{Decoded, Opcode, Request as Packet, decode_frame_within, validate};

use super::{is_repeatable, owner};
use crate::{
    request::{context::Context, session::Session},
    state::{
        asking::{Job, Peer},
        completion::{Bytes, Unanswered},
        errand::Asked,
        gathering::Gathering,
    },
};

/// Retrievals looked at behind the first. With the longest keys their packets still fit what a link sends at once.
const BEHIND_MAX: usize = 100;

/// A retrieval of a document that another node has.
#[derive(Debug)]
pub(crate) struct Retrieval {
    pub(crate) vb: VbId,
    /// As the client named it.
    pub(crate) key: Bytes,
    /// What its owner is asked.
    pub(crate) packet: Vec<u8>,
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
        // Of one that is refused in its turn the answer would be left over, and be taken for that of a later one.
        if !frame.header.magic.is_client_request() || !frame.framing.bytes().is_empty() {
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

/// Asks for a document, and those behind it; the asker is told when all have been answered.
///
/// # Errors
/// When the first cannot be asked for now.
pub(super) fn ask(
    session: &Session,
    first: (Peer, Vec<u8>),
    behind: Vec<Retrieval>,
    asked: Asked,
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
    let connection = asked.waiter.connection;
    let (forward, account) = (&context.shared.forward, &context.shared.account);
    let gathering = Arc::new(Gathering::new(asked, keys, account));
    let metadata = &context.snapshot.metadata;
    let packets: Vec<_> = std::iter::once((0, packet)).chain(own).collect();
    forward.submit(first_peer, connection, Job::part(&gathering, packets, account), metadata)?;
    for (peer, packets) in by_peer {
        let places: Vec<usize> = packets.iter().map(|(place, _)| *place).collect();
        if forward.submit(peer, connection, Job::part(&gathering, packets, account), metadata).is_err() {
            for place in places {
                forward.complete(gathering.put(place, Err(Unanswered::Unsent)));
            }
        }
    }
    Ok(())
}
