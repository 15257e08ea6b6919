//! What becomes of work that is done elsewhere for a parked request: by a helper, or by another node.

use base::Status;
use cluster::auth::Identity;
use engine::{LookedUp, Refusal, SubdocMutated};

use crate::state::{errand::Asked, gathering::Kept};

/// What became of work done elsewhere.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Whose password it was, if anybody's.
    Login(Option<Identity>),
    /// How a slow command ended.
    Done(Result<(), Status>),
    /// What another node answered to a request.
    Forwarded { asked: Asked, answer: Answer },
    /// As before, and what was answered to retrievals behind the request.
    Gathered { asked: Asked, first: Answer, others: Kept },
    /// What was found in a large document.
    Looked(Result<Looked, Refusal>),
    /// How a change of a large document ended.
    Changed(Result<SubdocMutated, Refusal>),
}

impl Completion {
    /// Bytes that wait for the turn of their request, but for those that are in an account already.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Forwarded { answer: Ok(packet), .. } | Self::Gathered { first: Ok(packet), .. } => {
                packet.len()
            }
            Self::Looked(Ok(looked)) => looked.body.len(),
            _ => 0,
        }
    }
}

/// What was found in a large document.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) looked_up: LookedUp,
    /// Why it is not the answer.
    pub(crate) failed: Option<Status>,
    pub(crate) body: Box<[u8]>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It was not sent: the peer cannot be reached.
    Unsent,
    /// It was sent, and the connection is gone: it may have been carried out.
    Lost,
}

/// A key, or a whole packet.
pub(crate) type Bytes = Box<[u8]>;
/// A whole packet, or why there is none.
pub(crate) type Answer = Result<Bytes, Unanswered>;
/// A key, and the packet that was the answer to its retrieval.
pub(crate) type Answered = (Bytes, Bytes);
