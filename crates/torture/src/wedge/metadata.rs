//! Keys and metadata alone are more than the quota: nothing that the pager may take is left.
//!
//! With value eviction the node can only say so then. It refuses inserts with temporary failure and the reason, and
//! everything else goes on. Two cures, each on a node of its own: deleting, and switching to full eviction while the
//! node runs.
//!
//! A third run fills a cluster slowly. It judges that alerts come before the first refusal.

use super::press::Press;
use super::rescues::delete_lower_half;
use super::warned::Warned;
use super::{Plan, Rescue};
use crate::TortureError;
use crate::checks::{Checks, found_or_none};
use crate::loaders::Task;
use crate::target::BUCKET;
use base::Status;
use std::time::{Duration, Instant};

/// Inserts that are refused for so long are refused for want of memory, not of pace.
const FULL_AFTER: Duration = Duration::from_secs(8);
/// Next to nothing: less than one answer in so many.
const SCARCE: u64 = 4;
/// Of what was inserted, half is deleted then; one in so many has to fit in again.
const REFILLED: u64 = 4;
/// How long the node may take until it serves again after the cure.
const CURE: Duration = Duration::from_secs(60);
/// What a small document takes beside its value, roughly, and in how many seconds a node is filled slowly: for sizing a run only.
const PER_DOCUMENT: f64 = 100.0;
const FILLED_IN: f64 = 60.0;
/// Alerts of keys and metadata have to come within so many seconds, and the error within as many behind them.
const WARNED_IN: u64 = 120;

/// Keys and metadata fill memory slowly, so that operators have time to hear of it. Once both alerts have fired, the loaders insert as
/// fast as they can, until a client meets an error. Each alert has to have come before it.
///
/// # Errors
/// A node cannot be reached.
pub fn run_slowly(plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    let mut warned = Warned::default();
    for name in ["metadata_share", "metadata_fills_soon"] {
        warned.is_due(name);
    }
    let copies = f64::from(plan.replicas) + 1.0;
    let quota = plan.quota_of(Rescue::MetadataWarnings) as f64;
    let rate = quota / copies / PER_DOCUMENT / FILLED_IN;
    press.watch.say(&format!("keys and metadata come slowly, {rate:.0} documents a second"));
    press.crew.pace(true);
    press.crew.set(Task::Fill);
    until(press, &mut warned, rate, Warned::all_fired)?;
    press.watch.say("the loaders insert as fast as they can");
    press.crew.pace(false);
    until(press, &mut warned, f64::MAX, |_| false)?;
    warned.judge_order(checks);
    Ok(())
}

/// Goes on second by second until that is so, a client meets an error, or it takes too long.
fn until(
    press: &mut Press,
    warned: &mut Warned,
    rate: f64,
    is_over: impl Fn(&Warned) -> bool,
) -> Result<(), TortureError> {
    let began = Instant::now();
    while began.elapsed().as_secs() < WARNED_IN && !warned.has_error() && !is_over(warned) {
        let sample = press.paced_tick(rate)?;
        warned.look(&press.target.rest(), &sample, press.crew.tally().errors(&[Status::Success]));
    }
    Ok(())
}

/// Fills, looks at what the refusals say, and cures.
///
/// # Errors
/// A node cannot be reached.
pub fn run(rescue: Rescue, plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    let mut warned = Warned::default();
    let is_full = fill_up(press, &mut warned)?;
    if warned.judge_each(checks) == 0 {
        press.watch.say("the quota was full sooner than nodes look for alerts: none is judged");
    }
    let inserted = press.crew.inserted();
    checks.add(
        "inserts are refused once nothing is left to evict",
        is_full,
        format!("after {inserted} documents"),
    );
    if !is_full {
        return Ok(());
    }
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
        press.fill = inserted;
        press.crew.set(Task::Pause);
        delete_lower_half(press, checks)?;
        // Before the loaders fill the room again.
        press.drain(checks)?;
    } else {
        let path = format!("/pools/default/buckets/{BUCKET}");
        let switched = press.target.rest().post(&path, &[("evictionPolicy", "fullEviction")]);
        let found = switched.as_ref().map_or_else(ToString::to_string, |_| "accepted".to_owned());
        checks.add("the bucket is switched to full eviction", switched.is_ok(), found);
    }
    let before = press.crew.tally().count(Status::Success);
    await_service(press, checks)?;
    if rescue == Rescue::MetadataDelete {
        refill(press, before, inserted / REFILLED, checks)?;
    } else {
        press.served(plan.served_seconds, checks)?;
        press.drain(checks)?;
    }
    press.judge_memory(checks);
    press.settle_down()?;
    press.verify(checks)?;
    press.judge_clients(checks);
    Ok(())
}

/// Inserts until next to nothing is accepted any more; whether it came to that.
fn fill_up(press: &mut Press, warned: &mut Warned) -> Result<bool, TortureError> {
    press.crew.set(Task::Fill);
    let (mut progress, mut accepted, mut refused) = (Instant::now(), 0, 0);
    while press.crew.inserted() < press.fill {
        let sample = press.tick()?;
        let tally = press.crew.tally();
        let now = (tally.count(Status::Success), tally.count(Status::TemporaryFailure));
        warned.look(&press.target.rest(), &sample, now.1);
        // What the probe deletes makes room for as many, so a few are always accepted.
        if (now.0 - accepted) * SCARCE >= now.1 - refused {
            progress = Instant::now();
        } else if progress.elapsed() > FULL_AFTER {
            press.watch.say("next to nothing is accepted any more");
            return Ok(true);
        }
        (accepted, refused) = now;
    }
    Ok(false)
}

/// The cure may take a moment; the loaders insert on meanwhile.
fn await_service(press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.crew.set(Task::GoOn);
    let began = Instant::now();
    let (mut accepted, mut before) = (false, press.crew.tally());
    while !accepted && began.elapsed() < CURE {
        press.tick()?;
        let now = press.crew.tally();
        let new = |status| now.count(status) - before.count(status);
        accepted = new(Status::Success) * SCARCE > new(Status::TemporaryFailure);
        before = now;
    }
    checks.add("the cure works", accepted, format!("after {:.1} s", began.elapsed().as_secs_f64()));
    Ok(())
}

/// The room that deletions have made is used again. The loaders fill all of it within seconds, so no rate is judged.
fn refill(press: &mut Press, before: u64, wanted: u64, checks: &mut Checks) -> Result<(), TortureError> {
    let began = Instant::now();
    let accepted = |press: &Press| press.crew.tally().count(Status::Success) - before;
    while accepted(press) < wanted && began.elapsed() < CURE {
        press.tick()?;
    }
    let found = accepted(press);
    checks.add(
        "the loaders use the room that was made",
        found >= wanted,
        format!(
            "{found} writes accepted, at least {wanted} had to be, {:.1} s",
            began.elapsed().as_secs_f64()
        ),
    );
    Ok(())
}
