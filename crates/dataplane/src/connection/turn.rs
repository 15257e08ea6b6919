//! What a connection asks of the protocol that its peer speaks.

use super::requests::Requests;
use crate::{
    net::output::Output,
    request::{context::Context, reply::HangUp, session::Session},
    state::shared::Snapshot,
};

/// Requests of one connection that are decoded ahead of execution.
pub(super) const BATCH: usize = 32;
/// Requests after which the time is looked at, whatever they were.
pub(super) const CHECKED_REQUESTS: usize = 16;
/// Requests of one connection before others get their turn.
pub(super) const TURN_REQUESTS: usize = 256;

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

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
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

/// What a protocol may use in a turn of its connection.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    pub(super) session: &'t mut Session,
    pub(super) out: &'t mut Output,
    pub(super) context: &'t mut Context,
}

/// One side of a conversation: with a client in binary or in text, or with a node that is followed.
pub(super) trait Protocol {
    /// The beginning of a turn: follows the node's state and goes on with what has waited.
    fn catch_up(&mut self, turn: &mut Turn<'_>) -> After;

    /// Executes the complete packets at the beginning of `input`; returns how many bytes they took.
    fn consume(&mut self, input: &[u8], turn: &mut Turn<'_>) -> (usize, After);

    /// The end of a turn: lets streams say what they have; false if the connection is to be closed.
    fn pump(&mut self, turn: &mut Turn<'_>) -> bool;

    /// Marks what waits under a ticket as ready. Unknown tickets were answered already.
    fn wake(&mut self, ticket: u64, session: &mut Session);

    /// Whether nothing more may be executed, and so nothing be read.
    fn is_blocked(&self) -> bool;

    /// Whether streams could go on at once.
    fn has_streams_ready(&self, session: &Session) -> bool;

    /// Whether it holds a bucket that is gone, and lets go of it in its next turn only.
    fn holds_gone_bucket(&self, session: &Session, snapshot: &Snapshot) -> bool {
        session.is_at_gone_bucket(snapshot)
    }

    /// Something was read that is no whole packet yet.
    fn hear_part(&mut self, _context: &Context) {}

    /// The requests of a client.
    fn client(&self) -> Option<&Requests> {
        None
    }

    /// The same, to be changed.
    fn client_mut(&mut self) -> Option<&mut Requests> {
        None
    }
}
