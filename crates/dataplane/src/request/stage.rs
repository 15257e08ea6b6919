//! The ways in which a request ends without an answer, and where one that is parked stopped.
//!
//! What a handler has to remember of a parked request stands here, not with the handler: what parks requests and wakes
//! them knows no handler.

use std::sync::Arc;

use base::{Datatype, Status};
use engine::{Mutated, Refusal, ScanHold};
use protocol::binary::Violation;

use crate::{
    figures::{meter::OpKind, phases::Phase},
    state::{completion::Completion, errand::Errand},
};

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
    /// client has one such request at a time in front of others. What has not begun when the request is gone does not begin.
    LargeDocument { fetches: u32, _errand: Errand },
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

    /// Whether that is what it waits for. An answer of another node may be late, and find its request at the next thing.
    pub(crate) fn awaits(&self, completion: &Completion) -> bool {
        match completion {
            Completion::Login(_) | Completion::Done(_) => matches!(self, Self::Helper),
            Completion::Looked(_) | Completion::Changed(_) => matches!(self, Self::LargeDocument { .. }),
            Completion::Forwarded { asked, .. } | Completion::Gathered { asked, .. } => {
                matches!(self, Self::Forward(Forwarding { sent: Some(errand), .. }) if errand.is_of(asked))
            }
        }
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

    /// As what an operation counts that has ended so. One for another node is none of this node's: the client sends it there, where it
    /// counts.
    pub(crate) fn counts_as(&self, kind: OpKind) -> OpKind {
        let is_elsewhere = matches!(self, Self::Status(Status::NotMyVbucket));
        if is_elsewhere { OpKind::Other } else { kind }
    }

    /// Whether it was the document that said no: the request was allowed, and looked at it. Of other requests nobody knows whether
    /// the sender might have sent them.
    pub(crate) fn is_of_document(&self) -> bool {
        let (Self::Status(status) | Self::Refused(status, _)) = self else { return false };
        matches!(
            status,
            Status::KeyNotFound
                | Status::KeyExists
                | Status::NotStored
                | Status::DeltaBadValue
                | Status::Locked
                | Status::NotLocked
                | Status::SyncWriteInProgress
                | Status::SyncWriteAmbiguous
                | Status::SubdocPathNotFound
                | Status::SubdocPathExists
                | Status::SubdocPathMismatch
                | Status::SubdocDocNotJson
                | Status::SubdocMultiPathFailure
        )
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

/// How far a forwarded request is.
#[derive(Clone, Debug)]
pub(crate) struct Forwarding {
    /// When it is given up (monotonic milliseconds).
    pub(crate) until: u64,
    /// What a peer was asked for; none while it rests before the next try.
    pub(crate) sent: Option<Errand>,
}

/// Where a parked range scan stopped.
#[derive(Clone, Debug)]
pub(crate) enum ScanStage {
    /// The seqno that it requires is not on disk yet; given up at that time (monotonic milliseconds).
    Persisting(u64),
    /// It is being created.
    Creating(Arc<ScanHold>),
    /// It is being read, and waits for the disk.
    Fetching(Arc<Reading>),
    /// It is being read, and lets the client take what was said.
    Pausing(Arc<Reading>),
}

impl ScanStage {
    /// Whether the request can go on at once.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self, Self::Pausing(_))
    }

    /// Whether what was said before it was parked stands.
    pub(crate) fn keeps_output(&self) -> bool {
        matches!(self, Self::Fetching(_) | Self::Pausing(_))
    }
}

/// A CONTINUE under way.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) hold: Arc<ScanHold>,
    /// What the client still wants.
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    /// When it wants to be told how far this got (monotonic milliseconds).
    pub(crate) deadline: u64,
    /// Something was read already: one document comes in any case.
    pub(crate) began: bool,
}

/// What a mutation is acknowledged with beside its CAS and token.
#[derive(Clone, Debug)]
pub(crate) enum Acknowledgement {
    /// Nothing.
    Bare,
    /// A counter's new number.
    Number(u64),
    /// What became of the parts of a document.
    Parts { status: Status, datatype: Datatype, value: Box<[u8]> },
}

impl Acknowledgement {
    /// A counter's new number.
    pub(crate) fn number(&self) -> Option<u64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }
}

impl From<Option<u64>> for Acknowledgement {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Bare, Self::Number)
    }
}
