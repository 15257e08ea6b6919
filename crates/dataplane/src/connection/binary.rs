//! The binary protocol of a client: from packet to handler.

use base::Cas;
use protocol::{
    binary::{Decoded, Frame, Header, Magic, decode_frame_within},
    hello::Feature,
};

use super::{
    decode::decode,
    look_ahead, prefetch,
    requests::{Client, Requests},
    turn::{After, CHECKED_REQUESTS, Flow, TURN_REQUESTS, Turn},
};
use crate::{
    forward, handlers,
    net::listener::ListenerKind,
    request::{
        admission,
        call::{Call, Request},
        fetch,
        located::Located,
        opcodes, reply,
        session::Session,
        stage::{Resumed, Stop},
    },
};

/// Largest packet body of a connection without bucket or identity: nothing it may send is longer.
const STRANGER_BODY_BYTES_MAX: usize = 64 * 1024;

/// A client that speaks the binary protocol.
#[derive(Debug, Default)]
pub(super) struct Binary {
    requests: Requests,
}

/// A packet, and what has been read behind it.
#[derive(Clone, Copy, Debug)]
struct Input<'a> {
    packet: &'a [u8],
    behind: &'a [u8],
}

impl Client for Binary {
    fn requests(&self) -> &Requests {
        &self.requests
    }

    fn requests_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }

    fn execute_all(&mut self, input: &[u8], turn: &mut Turn<'_>) -> (usize, After) {
        let mut at = 0;
        let mut executed = 0;
        let mut planned = 0;
        let mut previewed = turn.context.previewed.take();
        loop {
            if self.requests.blocked {
                return (at, After::Blocked);
            }
            if turn.out.is_full() || executed >= TURN_REQUESTS {
                return (at, After::Again);
            }
            let rest = input.get(at..).unwrap_or_default();
            let (header, flow) = match decode_frame_within(rest, body_bytes_max(turn.session)) {
                Decoded::Frame(frame) => {
                    let length = frame.packet_len();
                    if planned == 0 && length < rest.len() {
                        planned = prefetch::plan(turn.session, rest, turn.context);
                    }
                    let mut located = previewed.take();
                    if planned > 0 {
                        let index = turn.context.planned.len().saturating_sub(planned);
                        located = turn.context.planned.get(index).copied().flatten();
                        // Other commands may change what keys mean: look ahead anew behind them.
                        planned = if located.is_some() { planned - 1 } else { 0 };
                    }
                    let (packet, behind) = rest.split_at_checked(length).unwrap_or_default();
                    let input = Input { packet, behind };
                    (frame.header, self.execute(input, &frame, located, None, turn))
                }
                Decoded::Incomplete { need } => return (at, After::Need(need)),
                Decoded::Invalid(header) => {
                    planned = 0;
                    (header, Self::answer_invalid(&header, turn))
                }
                Decoded::Fatal(fatal) => {
                    tracing::info!(%fatal, peer = ?turn.session.peer, "closing a connection");
                    return (at, After::Close);
                }
            };
            match flow {
                Flow::Next | Flow::Parked => {
                    at += header.packet_len();
                    if flow == Flow::Parked {
                        let behind = input.get(at..).unwrap_or_default();
                        look_ahead::of_binary(&self.requests, turn.session, behind, turn.context);
                    }
                    executed += 1;
                    // Any command may have something large to copy.
                    turn.context.check_turn_time |= executed % CHECKED_REQUESTS == 0;
                }
                Flow::NotYet => {}
                Flow::Close => return (at, After::Close),
            }
            if turn.context.is_turn_over() {
                return (at, After::Again);
            }
        }
    }

    fn resume(&mut self, packet: &[u8], resumed: Resumed, turn: &mut Turn<'_>) -> Flow {
        let Decoded::Frame(frame) = decode_frame_within(packet, usize::MAX) else {
            // Only whole packets are parked.
            return Flow::Close;
        };
        self.execute(Input { packet, behind: &[] }, &frame, None, Some(resumed), turn)
    }
}

impl Binary {
    fn answer_invalid(header: &Header, turn: &mut Turn<'_>) -> Flow {
        if !header.magic.is_client_request() {
            return Flow::Close;
        }
        let words = "The parts of the packet are longer than its body";
        reply::refuse(turn.session, header, turn.out, turn.context, base::Status::Invalid, Some(words)).into()
    }

    /// Executes one packet. `located` says where its document is, if that was found out before.
    fn execute(
        &mut self,
        input: Input<'_>,
        frame: &Frame<'_>,
        located: Option<Located>,
        resumed: Option<Resumed>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let magic = frame.header.magic;
        if let Some(dcp) = &mut turn.session.dcp {
            dcp.producer.heard(turn.context.now);
            if magic.is_client_response() {
                return if dcp.answered(&frame.header) { Flow::Next } else { Flow::Close };
            }
        }
        if !magic.is_client_request() {
            // Answers to what we pushed need no attention; nothing else may come from a client.
            return if magic == Magic::ServerResponse { Flow::Next } else { Flow::Close };
        }
        let mut keys = std::mem::take(&mut turn.context.keys);
        let flow = match decode(turn.session, frame, located, &mut keys) {
            Ok(request) => {
                let overtakes = resumed.is_none() && !self.requests.waiting.is_empty();
                if overtakes && (request.info.barrier || !request.opcode.may_reorder()) {
                    self.requests.blocked = true;
                    Flow::NotYet
                } else {
                    self.carry_out(input, &request, resumed, turn)
                }
            }
            Err(stop) => self.stop(input.packet, &frame.header, stop, 0, turn),
        };
        turn.context.keys = keys;
        flow
    }

    fn carry_out(
        &mut self,
        Input { packet, behind }: Input<'_>,
        request: &Request<'_>,
        resumed: Option<Resumed>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let ticket = self.requests.waiting.ticket_for(resumed.as_ref());
        let mark = turn.out.mark();
        let mut call =
            Call { session: turn.session, request, out: turn.out, context: turn.context, ticket, resumed };
        // Requests are forwarded on one port only: the others' never look for an answer of another node.
        let may_be_forwarded = call.session.kind == ListenerKind::Memcached;
        let answered = if may_be_forwarded { forward::answer(&mut call) } else { Ok(false) };
        let is_forwarded = matches!(answered, Ok(true));
        let mut result = match answered {
            Ok(true) => Ok(()),
            Ok(false) => admit(&mut call, packet.len()).and_then(|()| handlers::handle(&mut call)),
            Err(stop) => Err(stop),
        };
        if let Err(Stop::Fetch) = result {
            result = Err(fetch(&call));
        }
        if let Err(Stop::Status(base::Status::NotMyVbucket)) = result
            && may_be_forwarded
        {
            let (sent, waiter) = (forward::packet_of(request), call.waiter());
            result = Err(forward::ask(
                call.session,
                request.vb,
                sent,
                waiter,
                call.resumed.as_ref(),
                || forward::behind(call.session, request, behind),
                call.context,
            ));
        }
        let traits = opcodes::of(request.loud);
        turn.context.check_turn_time |= traits.may_take_long;
        count_comparison(turn, request, is_forwarded, &result);
        let Err(stop) = result else {
            turn.context.ran(traits.kind);
            turn.session.draw(request.key, turn.context);
            return if turn.session.quitting { Flow::Close } else { Flow::Next };
        };
        if !stop.keeps_output() {
            turn.out.rewind(mark);
        }
        if let Stop::Status(base::Status::KeyNotFound) = stop
            && let Some(meter) = turn.session.meter()
        {
            meter.miss(turn.context.worker, traits.kind);
        }
        let is_drawn = stop.is_of_document();
        let counts_as = stop.counts_as(traits.kind);
        let flow = self.stop(packet, &request.frame.header, stop, ticket, turn);
        if flow == Flow::Parked {
            let may_go_on = turn.session.has(Feature::UnorderedExecution)
                && request.opcode.may_reorder()
                && !request.info.barrier;
            self.requests.barrier |= !may_go_on;
            self.requests.blocked |= !may_go_on || self.requests.waiting.is_crowded();
            return if self.requests.blocked { Flow::Parked } else { Flow::Next };
        }
        turn.context.ran(counts_as);
        if is_drawn {
            turn.session.draw(request.key, turn.context);
        }
        if turn.session.quitting { Flow::Close } else { flow }
    }

    /// Carries out what a handler ended with instead of an answer.
    fn stop(&mut self, packet: &[u8], header: &Header, stop: Stop, ticket: u64, turn: &mut Turn<'_>) -> Flow {
        let (status, words) = match stop {
            Stop::Status(status) => (status, None),
            Stop::Refused(status, words) => (status, Some(words)),
            Stop::Fetch => (base::Status::TemporaryFailure, None),
            Stop::Close => return Flow::Close,
            Stop::Park(stage, deadline) => {
                self.requests.waiting.park(packet, stage, ticket, deadline, turn.context);
                return Flow::Parked;
            }
        };
        reply::refuse(turn.session, header, turn.out, turn.context, status, words).into()
    }
}

fn body_bytes_max(session: &Session) -> usize {
    if session.is_known() { base::limits::FRAME_BODY_BYTES_MAX } else { STRANGER_BODY_BYTES_MAX }
}

/// Lets a mutation wait for its turn when the bucket is paced.
#[inline]
fn admit(call: &mut Call<'_, '_>, bytes: usize) -> Result<(), Stop> {
    let traits = opcodes::of(call.request.loud);
    if !traits.grows {
        return Ok(());
    }
    let waiter = call.waiter();
    let Some(bucket) = call.session.attached() else { return Ok(()) };
    let mut bytes = bytes;
    if bucket.engine.is_paced() && call.resumed.is_none() {
        let (vb, key) = (call.request.vb, call.request.key);
        // A client that may not write is told so at once, and takes no turn from those who may.
        if !call.session.may_grow(key.key) {
            return Ok(());
        }
        if traits.rewrites {
            bytes = bytes.saturating_add(bucket.engine.rewritten_bytes(vb, key) as usize);
        }
    }
    admission::ask(bucket, waiter, bytes, &mut call.resumed, call.context)
}

/// Asks for a request's document to be brought from disk.
fn fetch(call: &Call<'_, '_>) -> Stop {
    let (vb, key) = (call.request.vb, call.request.key);
    fetch::ask(call.session, vb, key, call.waiter(), call.resumed.as_ref(), call.context)
}

/// Counts a mutation that named a CAS, by what came of it. Those whose CAS did not match are counted by the engine.
fn count_comparison(turn: &Turn<'_>, request: &Request<'_>, is_forwarded: bool, result: &Result<(), Stop>) {
    let names_cas = request.frame.header.cas != Cas::NONE && opcodes::of(request.loud).kind.compares();
    // Another node counts what it answers.
    if is_forwarded || !names_cas {
        return;
    }
    let is_hit = match result {
        Ok(()) => true,
        Err(Stop::Status(base::Status::KeyNotFound)) => false,
        Err(_) => return,
    };
    if let Some(meter) = turn.session.meter() {
        meter.compared(turn.context.worker, is_hit);
    }
}
