//! Mutations that have to wait for the disk before they are executed: the data plane's side of pacing
//! ([`engine::Admission`]).
//!
//! A paced mutation is parked like any other request that waits, and so counts towards what its connection may have parked.
//! It goes on when the engine grants it, or is refused with temporary failure, unexecuted, when
//! [`engine::PACED_MILLIS_MAX`] have passed. Requests that grow memory are asked ([`crate::request::opcodes`]). Deletions,
//! reads and touches never are.

use base::Status;
use engine::{Admission, PACED_MILLIS_MAX, Waiter};

use crate::{
    request::{
        context::Context,
        stage::{Resumed, Stage, Stop},
    },
    state::shared::BucketEntry,
};

/// What a document takes beyond its key and value, about.
const OVERHEAD_BYTES: u64 = 40;

/// Asks whether a mutation of about so many bytes may be executed now; for one that waited, whether it may by now. What has
/// begun is not asked again.
///
/// # Errors
/// [`Stop::Park`], or `TemporaryFailure` when it has waited for as long as it may.
pub(crate) fn ask(
    bucket: &BucketEntry,
    waiter: Waiter,
    bytes: usize,
    resumed: &mut Option<Resumed>,
    context: &Context,
) -> Result<(), Stop> {
    let (engine, now) = (&bucket.engine, context.now);
    let asked = match resumed {
        None if !engine.is_paced() => return Ok(()),
        None => engine.ask(waiter, bytes as u64 + OVERHEAD_BYTES, now),
        Some(Resumed { stage: Stage::Paced { .. }, .. }) if engine.redeem(waiter) => Admission::Go,
        Some(Resumed { stage: Stage::Paced { .. }, timed_out: true, .. }) => {
            engine.give_up(waiter, now);
            Admission::Refuse
        }
        // Woken for nothing.
        Some(Resumed { stage: Stage::Paced { until, alone }, .. }) => {
            let stage = Stage::Paced { until: *until, alone: *alone };
            return Err(Stop::Park(stage, Some(*until)));
        }
        Some(_) => return Ok(()),
    };
    let alone = match asked {
        Admission::Go => {
            // From here on it is like one that has just come.
            *resumed = None;
            return Ok(());
        }
        Admission::Refuse => return Err(Stop::Status(Status::TemporaryFailure)),
        Admission::Wait => false,
        Admission::WaitAlone => true,
    };
    let until = now.mono_millis + PACED_MILLIS_MAX;
    Err(Stop::Park(Stage::Paced { until, alone }, Some(until)))
}

/// A mutation that waits is not going to be executed: its connection ends.
pub(crate) fn forget(bucket: &BucketEntry, stage: &Stage, waiter: Waiter) {
    if let Stage::Paced { .. } = stage {
        bucket.engine.forget(waiter);
    }
}
