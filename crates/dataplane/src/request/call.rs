//! One request on its way through a handler: what was asked, by whom, and where the answer goes. Also the ways in
//! which a handler can end without an answer.

use base::{HashedKey, VbId};
use engine::Waiter;
use protocol::binary::{Frame, Opcode, RequestInfo};

use crate::{
    net::output::Output,
    request::{context::Context, session::Session, stage::Resumed},
};

/// A decoded and validated request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) frame: &'a Frame<'a>,
    /// As sent.
    pub(crate) opcode: Opcode,
    /// The same without its quietness; what handlers look at.
    pub(crate) loud: Opcode,
    pub(crate) info: RequestInfo<'a>,
    /// The document's key; empty unless the opcode has one.
    pub(crate) key: HashedKey<'a>,
    pub(crate) vb: VbId,
}

impl Request<'_> {
    /// Whether success (of a mutation) or absence (for a read) goes unanswered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.opcode != self.loud
    }
}

/// A request with everything a handler may touch.
#[derive(Debug)]
pub(crate) struct Call<'c, 'r> {
    pub(crate) session: &'c mut Session,
    pub(crate) request: &'c Request<'r>,
    pub(crate) out: &'c mut Output,
    pub(crate) context: &'c mut Context,
    /// What the request is parked under, should it have to wait.
    pub(crate) ticket: u64,
    /// Set when the request was parked before.
    pub(crate) resumed: Option<Resumed>,
}

impl Call<'_, '_> {
    /// Names this request to the thread that will wake it.
    pub(crate) fn waiter(&self) -> Waiter {
        self.context.waiter(self.ticket)
    }
}
