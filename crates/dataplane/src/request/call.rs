//! One request on its way through a handler: what was asked, by whom, where the answer goes, and the ways in which
//! a handler can end without one.

use base::{HashedKey, Status, VbId};
use engine::{Mutated, Refusal, Waiter};
use protocol::binary::{Frame, Opcode, RequestInfo, Violation};

use crate::{
    figures::phases::Phase,
    forward::Forwarding,
    handlers::{range_scan::ScanStage, store::Acknowledgement},
    net::output::Output,
    request::{context::Context, session::Session},
    state::helper::Completion,
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

/// A parked request that is executed again.
#[derive(Debug)]
pub(crate) struct Resumed {
    /// What it was parked under, and is again if it has to.
    pub(crate) ticket: u64,
    /// Where it stopped.
    pub(crate) stage: Stage,
    /// What became of slow work done for it.
    pub(crate) completion: Option<Completion>,
    /// Its deadline has passed.
    pub(crate) timed_out: bool,
}

/// Where a parked request stopped.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Before it began; it waits for the disk to catch up, until then (monotonic milliseconds).
    Paced {
        until: u64,
        /// Nothing more is read from its connection meanwhile.
        alone: bool,
    },
    /// Before it began; its document is being fetched.
    Fetch {
        /// So many fetches it has been through.
        fetches: u32,
        /// Too many others are fetched: nothing more is read from its connection meanwhile.
        alone: bool,
    },
    /// A durable mutation was applied and has to reach its level.
    Durable {
        mutated: Mutated,
        acknowledgement: Acknowledgement,
        /// When the outcome is called ambiguous (monotonic milliseconds).
        deadline: u64,
    },
    /// SEQNO_PERSISTENCE: the seqno is not on disk yet; given up at that time (monotonic milliseconds).
    Persistence(u64),
    /// The helper thread works for it.
    Helper,
    /// A helper works on its document, after so many fetches of it. Nothing more is read from its connection meanwhile: one
    /// client has one such request at a time in front of others.
    LargeDocument { fetches: u32 },
    /// Another node is asked, or the map is changing and it will be.
    Forward(Forwarding),
    /// In the middle of a long answer, to let the client take its beginning.
    More,
    /// A range scan is being created or read.
    RangeScan(ScanStage),
}

impl Stage {
    /// Whether the request can go on at once.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::More => true,
            Self::RangeScan(stage) => stage.is_ready(),
            _ => false,
        }
    }

    /// Whether it is for the bucket to say when the request goes on.
    pub(crate) fn is_of_bucket(&self) -> bool {
        match self {
            Self::Paced { .. }
            | Self::Fetch { .. }
            | Self::Durable { .. }
            | Self::Persistence(_)
            | Self::RangeScan(_) => true,
            Self::Helper | Self::LargeDocument { .. } | Self::Forward(_) | Self::More => false,
        }
    }

    /// Whether nothing more is to be read from the connection until the request goes on.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(
            self,
            Self::Paced { alone: true, .. } | Self::Fetch { alone: true, .. } | Self::LargeDocument { .. }
        )
    }

    /// What the time until it goes on is counted as; none if it can go on at once.
    pub(crate) fn phase(&self) -> Option<Phase> {
        match self {
            Self::Paced { .. } => Some(Phase::Pacing),
            Self::Fetch { .. } => Some(Phase::Fetch),
            Self::Durable { .. } => Some(Phase::Durability),
            Self::Persistence(_) => Some(Phase::Persistence),
            Self::Helper | Self::LargeDocument { .. } | Self::Forward(_) => Some(Phase::OtherWait),
            Self::RangeScan(stage) => (!stage.is_ready()).then_some(Phase::OtherWait),
            Self::More => None,
        }
    }
}

/// Why a handler ends without an answer.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The request is refused.
    Status(Status),
    /// The request is refused, with words for the developer.
    Refused(Status, &'static str),
    /// Its document has to be fetched from disk; execute it again then.
    Fetch,
    /// It waits; with a deadline in monotonic milliseconds.
    Park(Stage, Option<u64>),
    /// The connection ends, after what was answered so far.
    Close,
}

impl Stop {
    /// Whether what was said before stands: parts of a long answer.
    pub(crate) fn keeps_output(&self) -> bool {
        matches!(self, Self::Park(Stage::RangeScan(stage), _) if stage.keeps_output())
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Status(status) => Self::Status(status),
            Refusal::Fetch => Self::Fetch,
        }
    }
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Refused(violation.status, violation.context)
    }
}
