//! Keys and metadata alone are more than the quota: nothing that the pager may take is left.
//!
//! With value eviction there is no way on then but to say so: inserts are refused with temporary failure and the
//! reason, everything else goes on. Two cures, each on a node of its own: deleting, and switching to full eviction
//! while the node runs.

use super::press::{Press, found_or_none};
use super::rescues::delete_lower_half;
use super::{Plan, Rescue};
use crate::TortureError;
use crate::checks::Checks;
use crate::loaders::Task;
use crate::target::BUCKET;
use base::Status;
use std::time::{Duration, Instant};

/// Inserts that are refused for so long are refused for want of memory, not of pace.
const FULL_AFTER: Duration = Duration::from_secs(8);
/// How long the node may take until it serves again after the cure.
const CURE: Duration = Duration::from_secs(60);

/// Fills, looks at what the refusals say, and cures.
///
/// # Errors
/// A node cannot be reached.
pub fn run(rescue: Rescue, plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    let is_full = fill_up(press)?;
    let inserted = press.crew.inserted();
    checks.add(
        "inserts are refused once nothing is left to evict",
        is_full,
        format!("after {inserted} documents"),
    );
    if !is_full {
        return Ok(());
    }
    // The probe has seen what it is like; the node's state is what counts from here on.
    let reasons: Vec<String> = press
        .crew
        .tally()
        .reasons
        .into_iter()
        .map(|(reason, count)| format!("{count} x {reason:?}"))
        .collect();
    let tells = reasons.iter().any(|reason| reason.contains("memory") || reason.contains("quota"));
    checks.add("the refusal gives its reason", tells, found_or_none(&reasons));
    if rescue == Rescue::MetadataDelete {
        press.fill = press.crew.inserted();
        press.crew.set(Task::Pause);
        delete_lower_half(press, checks)?;
    } else {
        let path = format!("/pools/default/buckets/{BUCKET}");
        let switched = press.target.rest().post(&path, &[("evictionPolicy", "fullEviction")]);
        let found = switched.as_ref().map_or_else(ToString::to_string, |_| "accepted".to_owned());
        checks.add("the bucket is switched to full eviction", switched.is_ok(), found);
    }
    await_service(press, checks)?;
    press.served(plan.served_seconds, checks)?;
    press.drain(checks)?;
    press.judge_memory(checks);
    press.verify(checks)?;
    press.judge_clients(checks);
    Ok(())
}

/// Inserts until nothing is accepted any more; whether it came to that.
fn fill_up(press: &mut Press) -> Result<bool, TortureError> {
    press.crew.set(Task::Fill);
    let (mut progress, mut inserted) = (Instant::now(), 0);
    while press.crew.inserted() < press.fill {
        press.tick()?;
        if press.crew.inserted() > inserted {
            (progress, inserted) = (Instant::now(), press.crew.inserted());
        } else if progress.elapsed() > FULL_AFTER {
            press.watch.say("nothing is accepted any more");
            return Ok(true);
        }
    }
    Ok(false)
}

/// The cure may take a moment; the loaders insert on meanwhile.
fn await_service(press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.crew.set(Task::GoOn);
    let before = press.crew.tally().count(Status::Success);
    let began = Instant::now();
    while press.crew.tally().count(Status::Success) == before && began.elapsed() < CURE {
        press.tick()?;
    }
    let accepted = press.crew.tally().count(Status::Success) > before;
    checks.add("the cure works", accepted, format!("after {:.1} s", began.elapsed().as_secs_f64()));
    Ok(())
}
