//! The rescues that did not help in the report. The quota of each node stays what it was.

use super::Plan;
use super::pace::Pace;
use super::press::Press;
use crate::TortureError;
use crate::checks::{Checks, found_or_none};
use crate::deleter::Deleter;
use crate::loaders::Task;
use crate::target::{Settling, Target};
use base::{Status, VbId};
use client::KvConnection;
use std::time::{Duration, Instant};

/// How long the loaders press on before the node is killed.
const PRESS_ON: u64 = 3;
/// While the node's progress on disk is noted before the kill.
const NOTE_EVERY: Duration = Duration::from_millis(100);
/// Deletions, updates and a rebalance that get nothing done for so long are wedged.
const PATIENCE: Duration = Duration::from_secs(60);

/// The load stops and nothing else is done.
///
/// # Errors
/// A node cannot be reached.
pub fn idle(plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.drain(checks)?;
    press.judge_memory(checks);
    press.served(plan.served_seconds, checks)?;
    finish(press, checks)
}

/// The lower half of the documents is deleted while the loaders insert new ones and overwrite the upper half.
///
/// # Errors
/// A node cannot be reached.
pub fn delete(plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.crew.keep_from(press.fill / 2);
    press.served(plan.served_seconds.min(PRESS_ON), checks)?;
    delete_lower_half(press, checks)?;
    press.served(plan.served_seconds, checks)?;
    press.drain(checks)?;
    press.judge_memory(checks);
    finish(press, checks)
}

/// Deletes the documents below half of the fill; the loaders do whatever they do.
///
/// # Errors
/// A node cannot be reached.
pub fn delete_lower_half(press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.watch.say("deleting the lower half");
    let before = press.crew.tally().count(Status::Success);
    let deleter = Deleter::start(&*press.target, &press.documents, &press.ledger, 0..press.fill / 2)?;
    let (mut progress, mut deleted) = (Instant::now(), 0);
    while !deleter.is_done() && progress.elapsed() < PATIENCE {
        press.tick()?;
        let now = deleter.tally().count(Status::Success);
        if now > deleted {
            (progress, deleted) = (Instant::now(), now);
        }
    }
    let tally = deleter.tally();
    let others = tally.others(&[Status::Success]);
    let found = format!(
        "{} deleted, p99 {:.1} ms, slowest {:.0} ms, {} late; failures: {}; {} writes were accepted meanwhile",
        tally.count(Status::Success),
        tally.latencies.percentile(99.0) as f64 / 1e6,
        tally.slowest.as_secs_f64() * 1e3,
        tally.late,
        found_or_none(&others),
        press.crew.tally().count(Status::Success) - before
    );
    let done = deleter.is_done();
    checks.add("every deletion succeeds in time", done && others.is_empty() && tally.late == 0, found);
    if done {
        deleter.finish()?;
    }
    Ok(())
}

/// kill -9 in the middle of it, restart, and the loaders go on at once.
///
/// # Errors
/// A node cannot be reached, or does not start again.
pub fn kill(plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.served(plan.served_seconds.min(PRESS_ON), checks)?;
    let noting = Instant::now();
    while noting.elapsed() < Duration::from_secs(1) {
        press.watch.note_persisted(&*press.target, &press.ledger)?;
        std::thread::sleep(NOTE_EVERY);
    }
    let lost = served_by(&*press.target, 0)?;
    press.watch.say("kill -9");
    press.expect_breaks();
    press.watch.forget_connections();
    press.target.kill(0)?;
    // What was promised until now is settled while nobody writes.
    press.crew.set(Task::Pause);
    while !press.crew.is_idle() {
        std::thread::sleep(NOTE_EVERY);
    }
    settle(press, &lost);
    let began = Instant::now();
    press.target.restart(0)?;
    press.watch.say(&format!("serves again {:.1} s after its start", began.elapsed().as_secs_f64()));
    press.served(plan.served_seconds, checks)?;
    // What it loads takes the disk and memory as well. Nothing is inserted any more: as long as this takes, keys alone could
    // fill the memory, which is the matter of other rescues.
    press.crew.set(Task::Update);
    press.await_warm_up(checks)?;
    press.drain(checks)?;
    press.judge_memory(checks);
    finish(press, checks)
}

/// One more node gets its share while the loaders go on; adding nodes is what did not complete in the report. Then the
/// report's second phase: updates.
///
/// # Errors
/// A node cannot be reached.
pub fn add_node(plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.served(plan.served_seconds.min(PRESS_ON), checks)?;
    press.watch.say("adding a node");
    press.crew.set(Task::GoOn);
    let began = Instant::now();
    let mut pace = Pace::begin(&press.crew);
    let added = press.target.add_node();
    let hindrance = match added {
        Ok(()) => await_share(press, &mut pace)?,
        Err(error) => Some(error.to_string()),
    };
    // There is one more to be asked now.
    press.watch.forget_connections();
    let took = format!("after {:.1} s; {pace}", began.elapsed().as_secs_f64());
    checks.add(
        "a node that is added gets its share",
        hindrance.is_none(),
        hindrance.map_or(took.clone(), |hindrance| format!("{hindrance}, {took}")),
    );
    checks.add("the loaders are served meanwhile", pace.worst > 0, pace.to_string());
    press.served(plan.served_seconds, checks)?;
    update(press, checks)?;
    press.drain(checks)?;
    press.judge_memory(checks);
    finish(press, checks)
}

/// Watches until data has been moved to where it shall be; what keeps it, if nothing moves any more.
fn await_share(press: &mut Press, pace: &mut Pace) -> Result<Option<String>, TortureError> {
    let (mut progress, mut done) = (Instant::now(), 0.0);
    loop {
        press.tick()?;
        pace.note(&press.crew);
        let hindrance = match press.target.settling() {
            Settling::Done => return Ok(None),
            Settling::Moving(percent) => {
                if percent > done {
                    (progress, done) = (Instant::now(), percent);
                }
                format!("the rebalance stays at {percent:.1} %")
            }
            Settling::Still(reason) => reason,
        };
        if progress.elapsed() > PATIENCE {
            return Ok(Some(hindrance));
        }
    }
}

/// Overwrites as many documents as there are.
fn update(press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.watch.say("the update phase");
    press.crew.set(Task::Update);
    let mut pace = Pace::begin(&press.crew);
    let mut progress = Instant::now();
    while pace.accepted() < press.fill && progress.elapsed() < PATIENCE {
        press.tick()?;
        if pace.note(&press.crew) > 0 {
            progress = Instant::now();
        }
    }
    let is_through = pace.accepted() >= press.fill && pace.worst > 0;
    checks.add("the update phase goes through", is_through, pace.to_string());
    Ok(())
}

/// The vBuckets that a node serves, in order.
pub(super) fn served_by(target: &dyn Target, node: usize) -> Result<Vec<VbId>, TortureError> {
    let map = KvConnection::open(&target.seed(), &target.login())?.cluster_map()?;
    let address = target.address(node);
    let is_its = |vb: &VbId| map.active_node(*vb).is_some_and(|active| map.nodes[active] == address);
    Ok((0..map.vbuckets()).map(VbId).filter(is_its).collect())
}

/// The node that served these vBuckets was killed: what was not known to be on disk may be lost.
fn settle(press: &Press, served: &[VbId]) {
    let mut key = String::new();
    for index in 0..press.ledger.capacity() {
        if press.ledger.known(index).seqno() > 0 {
            press.documents.key(index, &mut key);
            let vb = base::hash::vbucket_of(key.as_bytes(), press.ledger.vbuckets());
            if served.binary_search(&vb).is_ok() {
                press.ledger.killed(index, vb.get());
            }
        }
    }
}

/// Drains once more, reads everything, and judges what the clients saw.
///
/// # Errors
/// A node cannot be reached.
fn finish(press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    press.settle_down()?;
    press.verify(checks)?;
    press.judge_clients(checks);
    Ok(())
}
