//! A connection as a state machine over bytes: no socket, no clock of its own.
//!
//! [`Connection::consume`] executes the complete requests at the beginning of what was read. A batch is decoded
//! first, so that the hash-table lines of all its keys are on their way from memory before the first is needed.
//!
//! A request that must wait is *parked*: its packet is copied. It is executed again when it is woken, when slow work for it is
//! done, or when its deadline passes. On a connection that negotiated nothing else, what follows waits behind it. With
//! unordered execution only commands that must not be reordered do. The number of parked requests has a bound, and so has their
//! memory. While a connection is blocked nothing is read from it. But the loop looks through what has been read for more that
//! the disk will be asked for ([`look_ahead`]).
//!
//! | module | job |
//! |---|---|
//! | this one | what a loop asks of a connection; what the first byte decides |
//! | [`turn`] | what a connection asks of each of the three protocols |
//! | [`binary`], [`text`] | a client: requests from packet to handler |
//! | [`link`] | the other way round: what a node that is followed says |
//! | [`requests`], [`waiting`] | the order of a client's requests, and those that are parked |
//! | [`prefetch`], [`look_ahead`] | having what comes next fetched from memory, and from disk |

mod binary;
mod decode;
mod link;
mod look_ahead;
mod prefetch;
mod requests;
mod text;
mod turn;
mod waiting;

use protocol::binary::Magic;

use crate::{
    handlers::sasl,
    net::{listener::ListenerKind, output::Output, transport::Transport},
    request::{admission, context::Context, located::Located, session::Session},
    state::{completion::Completion, link::LinkOrder, shared::Snapshot},
};

pub(crate) use turn::After;

use binary::Binary;
use link::Link;
use requests::Requests;
use text::Text;
use turn::{Protocol, Turn};

/// What its peer speaks. Which it is is asked per turn, never per request.
#[derive(Debug)]
enum Spoken {
    Binary(Binary),
    Text(Box<Text>),
    Link(Box<Link>),
}

/// Has the protocol of a connection do something, whichever it is.
macro_rules! with_protocol {
    ($spoken:expr, $protocol:ident => $call:expr) => {
        match $spoken {
            Spoken::Binary($protocol) => $call,
            Spoken::Text($protocol) => $call,
            Spoken::Link($protocol) => $call,
        }
    };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Session,
    spoken: Spoken,
    /// Nothing came yet, and the port allows binary and text: the first byte decides.
    undecided: bool,
}

impl Connection {
    pub(crate) fn new(kind: ListenerKind, transport: &Transport, context: &Context) -> Self {
        let session = Session::new(kind, Some(transport), &context.snapshot);
        sasl::note_certificate(&session, context);
        Self::with_session(session)
    }

    /// A connection to a node that is followed.
    pub(crate) fn of_link(order: LinkOrder, transport: &Transport, context: &Context) -> Self {
        let link = Link::new(order, context.waiter(0), context);
        let session = Session::of_link(transport, &context.snapshot);
        Self { session, spoken: Spoken::Link(Box::new(link)), undecided: false }
    }

    pub(crate) fn with_session(session: Session) -> Self {
        let undecided = session.kind == ListenerKind::Memcached;
        Self { session, spoken: Spoken::Binary(Binary::default()), undecided }
    }

    fn requests(&self) -> Option<&Requests> {
        with_protocol!(&self.spoken, protocol => protocol.client())
    }

    /// Whether somebody has logged in, or no login is needed for its bucket.
    pub(crate) fn is_known(&self) -> bool {
        self.session.is_known()
    }

    /// Operations that were answered on it.
    pub(crate) fn answered(&self) -> u64 {
        self.requests().map_or(0, |requests| requests.answered)
    }

    /// Whether requests wait for something.
    pub(crate) fn has_parked(&self) -> bool {
        self.requests().is_some_and(|requests| !requests.waiting.is_empty())
    }

    /// Whether a parked request can be executed.
    pub(crate) fn has_ready(&self) -> bool {
        self.requests().is_some_and(|requests| requests.waiting.has_ready())
    }

    /// Bytes of parked packets, and of answers that wait for their turn.
    pub(crate) fn parked_bytes(&self) -> usize {
        self.requests().map_or(0, |requests| requests.waiting.bytes())
    }

    /// Whether nothing more may be executed, and so nothing be read, until a parked request is done.
    pub(crate) fn is_blocked(&self) -> bool {
        with_protocol!(&self.spoken, protocol => protocol.is_blocked())
    }

    /// Whether this node has opened it, to another one.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self.spoken, Spoken::Link(_))
    }

    /// It is about to be closed: what waits for its turn is to take none from others.
    pub(crate) fn leave(&self, context: &Context) {
        let (Some(bucket), Some(requests)) = (self.session.attached(), self.requests()) else { return };
        for (ticket, stage) in requests.waiting.stages() {
            admission::forget(bucket, stage, context.waiter(ticket));
        }
    }

    /// Marks a parked request for execution. Unknown tickets were answered already.
    pub(crate) fn wake(&mut self, ticket: u64) {
        with_protocol!(&mut self.spoken, protocol => protocol.wake(ticket, &mut self.session));
    }

    /// Whether it streams to its peer.
    pub(crate) fn is_producer(&self) -> bool {
        self.session.dcp.is_some()
    }

    /// Whether there are streams on it, in either direction.
    pub(crate) fn has_streams(&self) -> bool {
        self.is_producer() || self.is_link()
    }

    /// Whether it streamed under a name that another connection has now.
    pub(crate) fn is_superseded(&self) -> bool {
        self.session.dcp.as_ref().is_some_and(|dcp| dcp.is_superseded())
    }

    /// Whether it holds a bucket that was dropped or emptied, and lets go of it in its next turn only.
    pub(crate) fn holds_gone_bucket(&self, snapshot: &Snapshot) -> bool {
        with_protocol!(&self.spoken, protocol => protocol.holds_gone_bucket(&self.session, snapshot))
    }

    /// Whether streams could go on at once.
    pub(crate) fn has_streams_ready(&self) -> bool {
        with_protocol!(&self.spoken, protocol => protocol.has_streams_ready(&self.session))
    }

    /// Lets streams say what they have; false if the connection is to be closed.
    pub(crate) fn pump(&mut self, out: &mut Output, context: &mut Context) -> bool {
        let turn = &mut Turn { session: &mut self.session, out, context };
        with_protocol!(&mut self.spoken, protocol => protocol.pump(turn))
    }

    /// Marks a parked request whose slow work is done. What none waits for any more is dropped.
    pub(crate) fn complete(&mut self, ticket: u64, completion: Completion) {
        let requests = with_protocol!(&mut self.spoken, protocol => protocol.client_mut());
        let place = requests.and_then(|requests| requests.waiting.wake_with(ticket, &completion));
        let Some(place) = place else { return };
        *place = Some(match completion {
            Completion::Gathered { asked, first, others } => {
                self.session.ahead.fill(others);
                Completion::Forwarded { asked, answer: first }
            }
            other => other,
        });
    }

    /// Marks the parked requests whose deadline has passed; returns when to call again.
    pub(crate) fn expire(&mut self, now_millis: u64) -> Option<u64> {
        let requests = with_protocol!(&mut self.spoken, protocol => protocol.client_mut());
        requests.and_then(|requests| requests.waiting.expire(now_millis))
    }

    /// Follows the node's state, answers parked requests that can be, pushes a newer cluster map.
    pub(crate) fn catch_up(&mut self, out: &mut Output, context: &mut Context) -> After {
        let turn = &mut Turn { session: &mut self.session, out, context };
        with_protocol!(&mut self.spoken, protocol => protocol.catch_up(turn))
    }

    /// Something was read that is no whole packet yet.
    pub(crate) fn hear_part(&mut self, context: &Context) {
        with_protocol!(&mut self.spoken, protocol => protocol.hear_part(context));
    }

    /// Where the document is if `input` is one request for one; its table line is fetched meanwhile. Pipelines look
    /// ahead themselves.
    pub(crate) fn preview(&self, input: &[u8]) -> Option<Located> {
        prefetch::preview(&self.session, input)
    }

    /// Has a document fetched from memory, its table line being there.
    pub(crate) fn prefetch_document(&self, located: Located) {
        prefetch::document(&self.session, located);
    }

    /// Executes the complete requests at the beginning of `input`; returns how many bytes they took.
    pub(crate) fn consume(
        &mut self,
        input: &[u8],
        out: &mut Output,
        context: &mut Context,
    ) -> (usize, After) {
        if self.undecided
            && let Some(&first) = input.first()
        {
            self.undecided = false;
            if Magic::from_wire(first).is_none() {
                self.spoken = Spoken::Text(Box::default());
            }
        }
        let turn = &mut Turn { session: &mut self.session, out, context };
        with_protocol!(&mut self.spoken, protocol => protocol.consume(input, turn))
    }
}
