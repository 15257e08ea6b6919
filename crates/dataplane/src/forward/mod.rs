//! Port 11211 serves the whole bucket. What a plain memcached client asks of a vBucket on another node is asked of its
//! owner, and the client never knows.
//!
//! A request is first tried here. Where the engine says that the vBucket is not its own, the request is parked. It goes
//! as a binary packet to the node that the map names ([`crate::state::asking`]). Its answer is that of the request. If the owner says
//! that it is not the owner either, a change of the map is under way. The request is tried again in a moment, here
//! first. So a client rides through rebalance and failover, up to [`FORWARD_MILLIS`]. Retrievals that stand one behind the
//! other are asked for together ([`together`]).
//!
//! What is never repeated: a change of which it is not known whether it was made. What is never sent: a change whose client has been
//! answered already ([`crate::state::errand`]). Order per client is that of its
//! requests, since a connection waits for whatever it has parked. Queues are bounded; a full one is a temporary failure.

pub(crate) mod text;
pub(crate) mod together;

use std::sync::atomic::Ordering;

use base::{Status, VbId, bucket::DurabilityLevel};
use engine::Waiter;
use protocol::binary::{
    Decoded, Frame, Header, Opcode, Request as Packet, Response, decode_frame, write_response,
};

use crate::{
    net::peer::PeerAddress,
    request::{
        call::{Call, Request},
        context::Context,
        opcodes,
        session::Session,
        stage::{Forwarding, Resumed, Stage, Stop},
    },
    state::{
        asking::{ANSWER, Job, Lane, Peer, status_of},
        completion::{Completion, Unanswered},
        errand::Errand,
    },
};
use together::Retrieval;

/// How long a request looks for its owner.
const FORWARD_MILLIS: u64 = 2_500;
/// Between two tries while the map changes.
const AGAIN_MILLIS: u64 = 10;
/// By then a link has said what became of a request; it is only a safeguard.
const ANSWER_MILLIS: u64 = ANSWER.as_millis() as u64;

/// Where a vBucket of the session's bucket is, by the map; a node that is behind does not know.
fn owner(session: &Session, vb: VbId, context: &Context) -> Option<Peer> {
    if context.shared.behind.load(Ordering::Acquire) {
        return None;
    }
    let meta = &context.snapshot.metadata;
    let name = &session.attached()?.name;
    let bucket = meta.buckets.get(&**name)?;
    let plan = bucket.vbs.get(usize::from(vb.get()))?;
    let node = meta.node_by_id(plan.active()?)?;
    let address = PeerAddress::of(node, meta);
    let secret = if meta.accepts_secret() { meta.secret.clone() } else { String::new() };
    let (bucket, bucket_uuid) = (name.to_string(), bucket.uuid.clone());
    Some(Peer { address, bucket, bucket_uuid, uuid: node.uuid.clone(), secret })
}

/// Asks the owner of a vBucket that is not here, or rests before that is tried again; says how the request ends for now.
/// `packet` is the request in binary; `behind` are retrievals that may be asked for with it, if it is one itself.
pub(crate) fn ask(
    session: &Session,
    vb: VbId,
    packet: Option<Vec<u8>>,
    waiter: Waiter,
    resumed: Option<&Resumed>,
    behind: impl FnOnce() -> Vec<Retrieval>,
    context: &Context,
) -> Stop {
    let now = context.now.mono_millis;
    let before = resumed.and_then(|resumed| match &resumed.stage {
        Stage::Forward(forwarding) => Some(forwarding),
        _ => None,
    });
    let until = before.map_or(now + FORWARD_MILLIS, |forwarding| forwarding.until);
    if now >= until {
        return Stop::Status(Status::TemporaryFailure);
    }
    let rest = Stop::Park(Stage::Forward(Forwarding { until, sent: None }), Some(now + AGAIN_MILLIS));
    let came_back = before.is_some_and(|forwarding| forwarding.sent.is_some());
    let Some(peer) = owner(session, vb, context).filter(|_| !came_back) else { return rest };
    let Some(packet) = packet else { return Stop::Status(Status::Invalid) };
    let errand = Errand::new();
    let asked = errand.asked_by(waiter);
    let behind = behind();
    let submitted = if behind.is_empty() {
        let job = Job::one(asked, lane_of(session, &packet), packet, &context.shared.account);
        context.shared.forward.submit(peer, waiter.connection, job, &context.snapshot.metadata)
    } else {
        together::ask(session, (peer, packet), behind, asked, context)
    };
    match submitted {
        Ok(()) => {
            Stop::Park(Stage::Forward(Forwarding { until, sent: Some(errand) }), Some(now + ANSWER_MILLIS))
        }
        Err(status) => Stop::Status(status),
    }
}

/// The links that a request takes to its owner.
fn lane_of(session: &Session, packet: &[u8]) -> Lane {
    let header = packet.first_chunk().and_then(Header::decode);
    let opcode = header.and_then(|header| Opcode::from_wire(header.opcode));
    let Some(opcode) = opcode.map(Opcode::loud) else { return Lane::Other };
    // Every change waits for other nodes where the bucket has a least level of durability.
    let is_durable = session.attached().is_some_and(|bucket| bucket.engine.has_level(DurabilityLevel::None));
    let may_wait = opcodes::of(opcode).grows || (is_durable && opcode.mutates());
    if may_wait { Lane::Waiting } else { Lane::Other }
}

/// The answer of the owner, if there is one that ends the request: a packet that says success. Without one the request is
/// tried here.
///
/// # Errors
/// - The status with which the owner refused it.
/// - `TemporaryFailure` for a change that was not sent in time, and is not going to be.
/// - `Internal` when nobody knows what became of it. A `repeatable` request is just tried again.
/// - [`Stop::Park`] while the owner has not answered yet.
pub(crate) fn arrived(
    resumed: &mut Option<Resumed>,
    repeatable: bool,
    context: &Context,
) -> Result<Option<Box<[u8]>>, Stop> {
    let Some(Resumed { stage: Stage::Forward(forwarding), completion, timed_out, .. }) = resumed else {
        return Ok(None);
    };
    let Some(errand) = &forwarding.sent else { return Ok(None) };
    let unknown = if repeatable { Ok(None) } else { Err(Stop::Status(Status::Internal)) };
    match completion.take() {
        Some(Completion::Forwarded { answer: Ok(packet), .. }) => verdict(packet),
        Some(Completion::Forwarded { answer: Err(Unanswered::Unsent), .. }) => Ok(None),
        Some(_) => unknown,
        // Its link never sends it now, so that it was not made.
        None if *timed_out && !repeatable && errand.take_back() => {
            Err(Stop::Status(Status::TemporaryFailure))
        }
        None if *timed_out => unknown,
        // Woken for nothing, by what the request had waited for before. Asked again, its owner would carry it out twice.
        None => {
            let again = Stage::Forward(forwarding.clone());
            Err(Stop::Park(again, Some(context.now.mono_millis + ANSWER_MILLIS)))
        }
    }
}

/// What an answer says: success, a refusal, or nothing if its sender turned out not to be the owner.
///
/// # Errors
/// What the owner refused the request with.
pub(crate) fn verdict(packet: Box<[u8]>) -> Result<Option<Box<[u8]>>, Stop> {
    match status_of(&packet) {
        Status::Success => Ok(Some(packet)),
        Status::NotMyVbucket => Ok(None),
        status => Err(Stop::Status(status)),
    }
}

/// The frame of an answer.
fn frame_of(packet: &[u8]) -> Result<Frame<'_>, Stop> {
    match decode_frame(packet) {
        Decoded::Frame(frame) => Ok(frame),
        _ => Err(Stop::Status(Status::Internal)),
    }
}

/// Answers a binary request that was forwarded, if its owner has.
pub(crate) fn answer(call: &mut Call<'_, '_>) -> Result<bool, Stop> {
    let loud = call.request.loud;
    let mut answered = arrived(&mut call.resumed, is_repeatable(loud), call.context)?;
    if !is_repeatable(loud) {
        call.session.ahead.clear();
    } else if answered.is_none()
        && let Some(packet) = call.session.ahead.take(call.request.frame.key)
    {
        answered = verdict(packet)?;
    }
    let Some(packet) = answered else { return Ok(false) };
    let frame = frame_of(&packet)?;
    // Quiet reads say what they have found, quiet changes that they failed.
    if !call.request.is_quiet() || is_retrieval(call.request.loud) {
        let response = Response::new(Status::Success).with_cas(frame.header.cas);
        let header = &call.request.frame.header;
        // It may have been asked for by another command.
        let key = if loud == Opcode::Getk { call.request.frame.key } else { &[] };
        write_response(&mut call.out.bytes, header, false, &response, frame.extras, key, frame.value);
    }
    Ok(true)
}

/// A binary request as it goes to its owner: never quiet, since every packet has its answer.
pub(crate) fn packet_of(request: &Request<'_>) -> Option<Vec<u8>> {
    let frame = request.frame;
    let mut packet = Vec::with_capacity(frame.packet_len());
    let sent = Packet {
        vbucket: request.vb,
        cas: frame.header.cas,
        datatype: frame.header.datatype,
        extras: frame.extras,
        key: frame.key,
        value: frame.value,
        ..Packet::new(request.loud)
    };
    sent.encode(&mut packet).ok()?;
    Some(packet)
}

/// The retrievals in the input behind a request that can be asked for together with it.
pub(crate) fn behind(session: &Session, request: &Request<'_>, input: &[u8]) -> Vec<Retrieval> {
    if is_repeatable(request.loud) { together::far_requests(session, input) } else { Vec::new() }
}

/// Whether doing it twice is doing it once.
fn is_repeatable(loud: Opcode) -> bool {
    matches!(loud, Opcode::Get | Opcode::Getk)
}

fn is_retrieval(loud: Opcode) -> bool {
    matches!(loud, Opcode::Get | Opcode::Getk | Opcode::Gat)
}
