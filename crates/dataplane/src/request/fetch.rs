//! Requests whose document has to be brought from disk: the data plane's side of [`engine::Bucket::fetch`].
//!
//! Such a request is parked before it has begun and executed again once somebody has read its document. However many
//! wait for the disk, none is refused for that. Where the engine has no place for one more, the request waits for a
//! place, and its connection is not read meanwhile.

use base::{HashedKey, Status, VbId};
use engine::{Fetching, Waiter};

use crate::request::{
    context::Context,
    session::Session,
    stage::{Resumed, Stage, Stop},
};

/// A document that was fetched this often and is gone again each time is given up: memory is short.
const FETCHES_MAX: u32 = 16;
/// A fetch that nobody has reported done by then is asked for again.
const RETRY_MILLIS: u64 = 10_000;

/// Asks for a document, and says how the request ends for now; `resumed` is what it was parked as before.
pub(crate) fn ask(
    session: &Session,
    vb: VbId,
    key: HashedKey<'_>,
    waiter: Waiter,
    resumed: Option<&Resumed>,
    context: &Context,
) -> Stop {
    ask_for_one_of(1, session, (vb, key), waiter, resumed, context)
}

/// How many fetches a request has been through.
pub(crate) fn fetches_of(resumed: Option<&Resumed>) -> u32 {
    match resumed {
        Some(Resumed {
            stage: Stage::Fetch { fetches, .. } | Stage::LargeDocument { fetches, .. }, ..
        }) => *fetches,
        _ => 0,
    }
}

/// As [`ask`], for a request that needs up to so many documents: each of them may have to be fetched.
pub(crate) fn ask_for_one_of(
    documents: usize,
    session: &Session,
    (vb, key): (VbId, HashedKey<'_>),
    waiter: Waiter,
    resumed: Option<&Resumed>,
    context: &Context,
) -> Stop {
    let fetches_max =
        FETCHES_MAX.saturating_add(u32::try_from(documents.saturating_sub(1)).unwrap_or(u32::MAX));
    let fetches = fetches_of(resumed);
    if fetches >= fetches_max {
        return Stop::Status(Status::TemporaryFailure);
    }
    let bucket = match session.bucket() {
        Ok(bucket) => bucket,
        Err(stop) => return stop,
    };
    match bucket.engine.fetch(vb, key, waiter) {
        Ok(Fetching::Queued) => {
            let stage = Stage::Fetch { fetches: fetches + 1, alone: false };
            Stop::Park(stage, Some(context.now.mono_millis + RETRY_MILLIS))
        }
        // To be told when there is a place takes one of its own; asking again would take another.
        Ok(Fetching::Crowded) => Stop::Park(Stage::Fetch { fetches, alone: true }, None),
        Err(status) => Stop::Status(status),
    }
}
