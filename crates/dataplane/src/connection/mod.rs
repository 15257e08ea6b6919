//! A connection as a state machine over bytes: no socket, no clock of its own.
//!
//! [`Connection::consume`] executes the complete requests at the beginning of what was read. A batch is decoded
//! first, so that the hash-table lines of all its keys are on their way from memory before the first is needed.
//!
//! A request that must wait is *parked*: its packet is copied, and it is executed again when it is woken, when slow
//! work for it is done, or when its deadline passes. On a connection that negotiated nothing else, what follows
//! waits behind it. With unordered execution only commands that must not be reordered do, and a bound on parked
//! requests keeps their memory bounded. While a connection is blocked nothing is read from it, but what has been read
//! is looked through for more that the disk will be asked for ([`look_ahead`]).
//!
//! | module | job |
//! |---|---|
//! | this one | what the first byte decides; binary requests from packet to handler |
//! | [`text`] | the same for the text protocol |
//! | [`waiting`] | parked requests |
//! | [`inbound`] | the other way round: what a node that is followed says |
//! | [`prefetch`], [`look_ahead`] | having what comes next fetched from memory, and from disk |

mod inbound;
mod look_ahead;
mod prefetch;
mod text;
mod waiting;

use std::time::Duration;

use base::{DocKey, HashedKey};
use protocol::{
    binary::{Decoded, Frame, Header, Magic, Opcode, decode_frame_within, document_key, validate},
    hello::Feature,
    text::{Parsed, parse},
};
use replication::producer::STREAM_TICKETS;

use crate::{
    figures::slow::Asker,
    forward,
    handlers::{self, sasl, text::TextState},
    net::{listener::ListenerKind, output::Output, transport::Transport},
    request::{
        admission,
        call::{Call, Request},
        context::Context,
        fetch,
        located::Located,
        opcodes,
        reply::{self, HangUp},
        session::{Session, SessionStatus},
        stage::{Resumed, Stop},
    },
    state::{completion::Completion, link::LinkOrder},
};

use inbound::Inbound;
use waiting::{Parked, Waiting};

/// Requests of one connection that are decoded ahead of execution.
const BATCH: usize = 32;
/// Requests after which the time is looked at, whatever they were.
const CHECKED_REQUESTS: usize = 16;
/// Requests of one connection before others get their turn.
const TURN_REQUESTS: usize = 256;
/// Largest packet body of a connection without bucket or identity: nothing it may send is longer.
const STRANGER_BODY_BYTES_MAX: usize = 64 * 1024;

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing; its input may be looked at.
    Ready,
    /// More input: so many bytes from the first one not consumed.
    Need(usize),
    /// Another turn: there may be complete requests left.
    Again,
    /// A parked request to be done.
    Blocked,
    /// To be closed once its output is written.
    Close,
}

/// The protocol of a connection; its first byte decides it.
#[derive(Debug)]
enum Protocol {
    /// Nothing came yet, and the port allows both.
    Undecided,
    Binary,
    Text(Box<TextState>),
    /// The other way round: a node that we follow speaks.
    Link(Box<Inbound>),
}

/// A packet, and what has been read behind it.
#[derive(Clone, Copy, Debug)]
struct Input<'a> {
    packet: &'a [u8],
    behind: &'a [u8],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Session,
    protocol: Protocol,
    waiting: Waiting,
    /// Nothing may be executed for now.
    blocked: bool,
    /// A parked request must not be overtaken.
    barrier: bool,
    /// Operations that were answered on it.
    pub(crate) answered: u64,
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Answered, or parked where what follows need not wait.
    Next,
    /// Not begun: it may not overtake what is parked.
    NotYet,
    /// Parked, and what follows has to wait.
    Parked,
    Close,
}

impl From<Result<(), HangUp>> for Flow {
    fn from(answered: Result<(), HangUp>) -> Flow {
        if answered.is_ok() { Flow::Next } else { Flow::Close }
    }
}

impl Connection {
    pub(crate) fn new(kind: ListenerKind, transport: &Transport, context: &Context) -> Self {
        let session = Session::new(kind, Some(transport), &context.snapshot);
        sasl::note_certificate(&session, context);
        Self::with_session(session)
    }

    /// A connection to a node that is followed.
    pub(crate) fn of_link(order: LinkOrder, transport: &Transport, context: &Context) -> Self {
        let link = Inbound::new(order, context.waiter(0), context);
        Self::speaking(Session::of_link(transport, &context.snapshot), Protocol::Link(Box::new(link)))
    }

    pub(crate) fn with_session(session: Session) -> Self {
        let protocol =
            if session.kind == ListenerKind::Memcached { Protocol::Undecided } else { Protocol::Binary };
        Self::speaking(session, protocol)
    }

    fn speaking(session: Session, protocol: Protocol) -> Self {
        Self { session, protocol, waiting: Waiting::default(), blocked: false, barrier: false, answered: 0 }
    }

    /// Whether somebody has logged in, or no login is needed for its bucket.
    pub(crate) fn is_known(&self) -> bool {
        self.session.is_logged_in() || self.session.attached().is_some()
    }

    /// Whether requests wait for something.
    pub(crate) fn has_parked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a parked request can be executed.
    pub(crate) fn has_ready(&self) -> bool {
        self.waiting.has_ready()
    }

    /// Bytes of parked packets.
    pub(crate) fn parked_bytes(&self) -> usize {
        self.waiting.bytes()
    }

    /// Whether nothing more may be executed, and so nothing be read, until a parked request is done.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked || self.link().is_some_and(Inbound::is_blocked)
    }

    /// Whether this node has opened it, to another one.
    pub(crate) fn is_link(&self) -> bool {
        self.link().is_some()
    }

    fn link(&self) -> Option<&Inbound> {
        match &self.protocol {
            Protocol::Link(link) => Some(link),
            _ => None,
        }
    }

    /// It is about to be closed: what waits for its turn is to take none from others.
    pub(crate) fn leave(&self, context: &Context) {
        let Some(bucket) = self.session.attached() else { return };
        for (ticket, stage) in self.waiting.stages() {
            admission::forget(bucket, stage, context.waiter(ticket));
        }
    }

    /// Marks a parked request for execution. Unknown tickets were answered already.
    pub(crate) fn wake(&mut self, ticket: u64) {
        match (&mut self.protocol, &mut self.session.dcp) {
            (Protocol::Link(link), _) => link.wake(ticket),
            (_, Some(dcp)) if ticket >= STREAM_TICKETS => dcp.wake(ticket),
            _ => self.waiting.wake(ticket),
        }
    }

    /// Whether it streams to its peer.
    pub(crate) fn is_producer(&self) -> bool {
        self.session.dcp.is_some()
    }

    /// Whether there are streams on it, in either direction.
    pub(crate) fn has_streams(&self) -> bool {
        self.is_producer() || self.link().is_some()
    }

    /// Whether it streamed under a name that another connection has now.
    pub(crate) fn is_superseded(&self) -> bool {
        self.session.dcp.as_ref().is_some_and(|dcp| dcp.is_superseded())
    }

    /// Whether streams could go on at once.
    pub(crate) fn has_streams_ready(&self) -> bool {
        if let Some(link) = self.link() {
            return link.has_more();
        }
        self.session.dcp.as_ref().is_some_and(|dcp| dcp.producer.has_more())
    }

    /// Lets streams say what they have; false if the connection is to be closed.
    pub(crate) fn pump(&mut self, out: &mut Output, context: &mut Context) -> bool {
        if let Protocol::Link(link) = &mut self.protocol {
            return link.tend(out, context);
        }
        self.session.dcp.as_mut().is_none_or(|dcp| out.is_full() || dcp.pump(out, context))
    }

    /// Marks a parked request whose slow work is done.
    pub(crate) fn complete(&mut self, ticket: u64, completion: Completion) {
        let Some(completion_of) = self.waiting.wake_with(ticket) else { return };
        *completion_of = Some(match completion {
            Completion::Gathered { first, others } => {
                self.session.ahead.fill(others);
                Completion::Forwarded(first)
            }
            other => other,
        });
    }

    /// Marks the parked requests whose deadline has passed; returns when to call again.
    pub(crate) fn expire(&mut self, now_millis: u64) -> Option<u64> {
        self.waiting.expire(now_millis)
    }

    /// Follows the node's state, answers parked requests that can be, pushes a newer cluster map.
    pub(crate) fn catch_up(&mut self, out: &mut Output, context: &mut Context) -> After {
        if let Protocol::Link(link) = &mut self.protocol {
            return link.catch_up(out, context);
        }
        match self.session.refresh(&context.snapshot) {
            SessionStatus::Good => {}
            // What waits for something of the bucket that was there would wait for ever.
            SessionStatus::BucketReplaced
                if !self.waiting.stages().any(|(_, stage)| stage.is_of_bucket()) => {}
            SessionStatus::BucketReplaced | SessionStatus::BucketGone | SessionStatus::LoginEnded => {
                return After::Close;
            }
        }
        if !self.session.follow_dcp(context) {
            return After::Close;
        }
        handlers::config::push(&mut self.session, out, context);
        while self.waiting.has_ready() {
            if out.is_full() {
                return After::Again;
            }
            let Some(parked) = self.waiting.take_ready() else { break };
            if self.resume(parked, out, context) == Flow::Close {
                return After::Close;
            }
            if context.is_turn_over() {
                return After::Again;
            }
        }
        self.barrier &= !self.waiting.is_empty();
        self.blocked &= self.barrier || self.waiting.is_crowded();
        After::Ready
    }

    fn is_unordered(&self) -> bool {
        self.session.has(Feature::UnorderedExecution) && matches!(self.protocol, Protocol::Binary)
    }

    fn resume(&mut self, parked: Parked, out: &mut Output, context: &mut Context) -> Flow {
        let Parked { ticket, packet, read_at, since, stage, completion, timed_out, .. } = parked;
        if let (Some(phase), Some(meter)) = (stage.phase(), self.session.meter()) {
            let waited = context.stopwatch.at().saturating_duration_since(since);
            meter.record_phase(context.worker, phase, 1, waited);
            context.waited = Some((phase, waited));
        }
        let others = self.waiting.len();
        let now_read_at = std::mem::replace(&mut context.read_at, read_at);
        let resumed = Resumed { ticket, stage, completion, timed_out };
        let flow = if let Protocol::Text(_) = self.protocol {
            match parse(&packet, base::limits::VALUE_BYTES_MAX) {
                Parsed::Command { command, .. } => {
                    self.execute_text(&packet, &command, Some(resumed), out, context)
                }
                // Only whole commands are parked.
                _ => Flow::Close,
            }
        } else if let Decoded::Frame(frame) = decode_frame_within(&packet, usize::MAX) {
            let input = Input { packet: &packet, behind: &[] };
            self.execute(input, &frame, None, Some(resumed), out, context)
        } else {
            // Only whole packets are parked.
            Flow::Close
        };
        self.record_batch(others, None, context);
        context.read_at = now_read_at;
        flow
    }

    /// Something was read that is no whole packet yet.
    pub(crate) fn hear_part(&mut self, context: &Context) {
        if let Protocol::Link(link) = &mut self.protocol {
            link.hear_part(context);
        }
    }

    /// Executes the complete requests at the beginning of `input`; returns how many bytes they took.
    pub(crate) fn consume(
        &mut self,
        input: &[u8],
        out: &mut Output,
        context: &mut Context,
    ) -> (usize, After) {
        if let Protocol::Link(link) = &mut self.protocol {
            return link.consume(input, out, context);
        }
        if let Protocol::Undecided = self.protocol {
            match input.first() {
                None => return (0, After::Need(1)),
                Some(&first) if Magic::from_wire(first).is_some() => self.protocol = Protocol::Binary,
                Some(_) => self.protocol = Protocol::Text(Box::default()),
            }
        }
        let (others, queued) = (self.waiting.len(), context.stopwatch.queued());
        let result = match self.protocol {
            Protocol::Text(_) => self.consume_text(input, out, context),
            _ => self.consume_binary(input, out, context),
        };
        self.record_batch(others, Some(queued), context);
        result
    }

    fn consume_binary(&mut self, input: &[u8], out: &mut Output, context: &mut Context) -> (usize, After) {
        let mut at = 0;
        let mut executed = 0;
        let mut planned = 0;
        let mut previewed = context.previewed.take();
        loop {
            if self.blocked {
                return (at, After::Blocked);
            }
            if out.is_full() || executed >= TURN_REQUESTS {
                return (at, After::Again);
            }
            let rest = input.get(at..).unwrap_or_default();
            let (header, flow) = match decode_frame_within(rest, self.body_bytes_max()) {
                Decoded::Frame(frame) => {
                    let length = frame.packet_len();
                    if planned == 0 && length < rest.len() {
                        planned = self.plan(rest, context);
                    }
                    let mut located = previewed.take();
                    if planned > 0 {
                        let index = context.planned.len().saturating_sub(planned);
                        located = context.planned.get(index).copied().flatten();
                        // Other commands may change what keys mean: look ahead anew behind them.
                        planned = if located.is_some() { planned - 1 } else { 0 };
                    }
                    let (packet, behind) = rest.split_at_checked(length).unwrap_or_default();
                    let input = Input { packet, behind };
                    (frame.header, self.execute(input, &frame, located, None, out, context))
                }
                Decoded::Incomplete { need } => return (at, After::Need(need)),
                Decoded::Invalid(header) => {
                    planned = 0;
                    (header, self.answer_invalid(&header, out, context))
                }
                Decoded::Fatal(fatal) => {
                    tracing::info!(%fatal, peer = ?self.session.peer, "closing a connection");
                    return (at, After::Close);
                }
            };
            match flow {
                Flow::Next | Flow::Parked => {
                    at += header.packet_len();
                    if flow == Flow::Parked {
                        self.look_ahead(input.get(at..).unwrap_or_default(), context);
                    }
                    executed += 1;
                    // Any command may have something large to copy.
                    context.check_turn_time |= executed % CHECKED_REQUESTS == 0;
                }
                Flow::NotYet => {}
                Flow::Close => return (at, After::Close),
            }
            if context.is_turn_over() {
                return (at, After::Again);
            }
        }
    }

    fn body_bytes_max(&self) -> usize {
        if self.is_known() { base::limits::FRAME_BODY_BYTES_MAX } else { STRANGER_BODY_BYTES_MAX }
    }

    fn answer_invalid(&mut self, header: &Header, out: &mut Output, context: &mut Context) -> Flow {
        if !header.magic.is_client_request() {
            return Flow::Close;
        }
        let words = "The parts of the packet are longer than its body";
        reply::refuse(&mut self.session, header, out, context, base::Status::Invalid, Some(words)).into()
    }

    /// Executes one packet. `located` says where its document is, if that was found out before.
    fn execute(
        &mut self,
        input: Input<'_>,
        frame: &Frame<'_>,
        located: Option<Located>,
        resumed: Option<Resumed>,
        out: &mut Output,
        context: &mut Context,
    ) -> Flow {
        let magic = frame.header.magic;
        if let Some(dcp) = &mut self.session.dcp {
            dcp.producer.heard(context.now);
            if magic.is_client_response() {
                return if dcp.answered(&frame.header) { Flow::Next } else { Flow::Close };
            }
        }
        if !magic.is_client_request() {
            // Answers to what we pushed need no attention; nothing else may come from a client.
            return if magic == Magic::ServerResponse { Flow::Next } else { Flow::Close };
        }
        let mut keys = std::mem::take(&mut context.keys);
        let flow = match self.decode(frame, located, &mut keys) {
            Ok(request) => {
                let overtakes = resumed.is_none() && !self.waiting.is_empty();
                if overtakes && (request.info.barrier || !request.opcode.may_reorder()) {
                    self.blocked = true;
                    Flow::NotYet
                } else {
                    self.carry_out(input, &request, resumed, out, context)
                }
            }
            Err(stop) => self.stop(input.packet, &frame.header, stop, 0, out, context),
        };
        context.keys = keys;
        flow
    }

    /// From a frame to a request that a handler can rely on.
    fn decode<'a>(
        &self,
        frame: &'a Frame<'a>,
        located: Option<Located>,
        keys: &'a mut Vec<u8>,
    ) -> Result<Request<'a>, Stop> {
        let opcode =
            Opcode::from_wire(frame.header.opcode).ok_or(Stop::Status(base::Status::UnknownCommand))?;
        let on_memcached_port = self.session.kind == ListenerKind::Memcached;
        if on_memcached_port && opcode.code() > Opcode::Gatq.code() {
            return Err(Stop::Status(base::Status::UnknownCommand));
        }
        validate(opcode, frame, self.session.features)?;
        let info = frame.framing.parse_request(opcode)?;
        let mut vb = frame.header.vbucket();
        let key = if opcode.has_document_key() {
            let key = document_key(frame.key, self.session.has(Feature::Collections), keys)?;
            match located {
                Some(located) => {
                    vb = located.vb;
                    HashedKey { key, hash: located.hash }
                }
                None => {
                    if self.session.places_by_key() {
                        vb = self.session.vbucket_of(key.logical());
                    }
                    HashedKey::new(key)
                }
            }
        } else {
            HashedKey { key: DocKey::trusted(&[]), hash: 0 }
        };
        Ok(Request { frame, opcode, loud: opcode.loud(), info, key, vb })
    }

    fn carry_out(
        &mut self,
        Input { packet, behind }: Input<'_>,
        request: &Request<'_>,
        resumed: Option<Resumed>,
        out: &mut Output,
        context: &mut Context,
    ) -> Flow {
        let ticket = self.waiting.ticket_for(resumed.as_ref());
        let mark = out.mark();
        let mut call = Call { session: &mut self.session, request, out, context, ticket, resumed };
        // Requests are forwarded on one port only: the others' never look for an answer of another node.
        let may_be_forwarded = call.session.kind == ListenerKind::Memcached;
        let answered = if may_be_forwarded { forward::answer(&mut call) } else { Ok(false) };
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
        context.check_turn_time |= traits.may_take_long;
        let Err(stop) = result else {
            context.ran(traits.kind);
            self.session.draw(request.key, context);
            return if self.session.quitting { Flow::Close } else { Flow::Next };
        };
        if !stop.keeps_output() {
            out.rewind(mark);
        }
        if let Stop::Status(base::Status::KeyNotFound) = stop
            && let Some(meter) = self.session.meter()
        {
            meter.miss(context.worker, traits.kind);
        }
        let is_drawn = stop.is_of_document();
        let flow = self.stop(packet, &request.frame.header, stop, ticket, out, context);
        if flow == Flow::Parked {
            let may_go_on = self.is_unordered() && request.opcode.may_reorder() && !request.info.barrier;
            self.barrier |= !may_go_on;
            self.blocked |= !may_go_on || self.waiting.is_crowded();
            return if self.blocked { Flow::Parked } else { Flow::Next };
        }
        context.ran(traits.kind);
        if is_drawn {
            self.session.draw(request.key, context);
        }
        if self.session.quitting { Flow::Close } else { flow }
    }

    /// Carries out what a handler ended with instead of an answer.
    fn stop(
        &mut self,
        packet: &[u8],
        header: &Header,
        stop: Stop,
        ticket: u64,
        out: &mut Output,
        context: &mut Context,
    ) -> Flow {
        let (status, words) = match stop {
            Stop::Status(status) => (status, None),
            Stop::Refused(status, words) => (status, Some(words)),
            Stop::Fetch => (base::Status::TemporaryFailure, None),
            Stop::Close => return Flow::Close,
            Stop::Park(stage, deadline) => {
                self.waiting.park(packet, stage, ticket, deadline, context);
                return Flow::Parked;
            }
        };
        reply::refuse(&mut self.session, header, out, context, status, words).into()
    }

    /// Records what was executed since `others` requests were parked; `queued` is how long it waited for its turn.
    fn record_batch(&mut self, others: usize, queued: Option<Duration>, context: &mut Context) {
        let parked = self.waiting.len().saturating_sub(others) as u64;
        let (answered, slow) = context.record_batch(self.session.meter(), parked, queued);
        self.answered = self.answered.wrapping_add(answered);
        let Some(slow) = slow else { return };
        let bucket = self.session.attached();
        let asker = Asker {
            bucket: bucket.map(|bucket| bucket.name.to_string()).unwrap_or_default(),
            user: self.session.identity.name.clone(),
            peer: self.session.peer,
            agent: self.session.agent.as_deref().unwrap_or_default().to_owned(),
        };
        context.shared.slow.note(&slow, &asker);
    }
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
