//! The slow way into pressure, on which operators have time to hear of it. Each alert that is due has to fire before a client meets an
//! error ([`super::warned`]). Fast ways are the matter of the rescues.
//!
//! 1. Documents come so slowly that memory takes half a minute to fill. One node's disk takes less than that.
//! 2. Documents of the other nodes alone come, and more of them. So their replicas on that node fall behind. Documents of the other nodes
//!    are read at random; many of them have left memory. That node's own would wait for its disk for seconds.
//! 3. The loaders write as fast as they can, until a client meets an error.

use super::press::Press;
use super::rescues::served_by;
use super::warned::Warned;
use super::{Plan, Rescue};
use crate::TortureError;
use crate::checks::Checks;
use crate::loaders::Task;
use crate::readers::Readers;
use crate::target::BUCKET;
use crate::watch::Sample;
use base::{Status, VbId};
use std::collections::BTreeSet;
use std::time::Instant;

/// What a document takes in memory beside its value, and on disk, roughly: for sizing a run only.
const PER_DOCUMENT: f64 = 150.0;
/// Values are so many times as long as others', since bytes are what presses.
pub(super) const LONGER: usize = 4;
/// Of one node. Memory takes more than half a minute to fill: a forecast of a new bucket needs that long.
const QUOTA: u64 = 64 << 20;
/// Bytes per second that the slowest disk takes.
const SLOWEST: u64 = 1_000_000;
/// First its node is sent so many times that, then so many.
const FILLED_TIMES: f64 = 1.6;
const FOLLOWED_TIMES: f64 = 8.0;
/// A stage may take so many seconds.
const PATIENCE: u64 = 120;
/// From when on writers are late that are slowed down, in microseconds.
const LATENCY_US: &str = "50000";

impl Plan {
    /// Memory quota of the bucket, of all nodes together.
    #[must_use]
    pub fn quota_of(&self, rescue: Rescue) -> u64 {
        if rescue == Rescue::Warnings { QUOTA * self.nodes } else { self.quota_bytes }
    }
}

/// Bytes per second that the last node's disk is held to, where one has to be slower than the others.
#[must_use]
pub fn slowest_disk(rescue: Rescue) -> Option<u64> {
    (rescue == Rescue::Warnings).then_some(SLOWEST)
}

/// Carries out all stages, and judges.
///
/// # Errors
/// A node cannot be reached.
pub fn run(plan: &Plan, press: &mut Press, checks: &mut Checks) -> Result<(), TortureError> {
    let (slow, disk) = press.target.slowest_disk();
    let spared: BTreeSet<VbId> = served_by(&*press.target, slow)?.into_iter().collect();
    let readers = Readers::start(&*press.target, &press.documents, spared.clone())?;
    let disk = disk as f64;
    let mut slowly = Slowly { plan, disk, spared, readers, warned: Warned::default(), reads: false };
    let done = slowly.stages(press);
    slowly.readers.finish()?;
    done?;
    slowly.warned.judge_order(checks);
    Ok(())
}

struct Slowly<'a> {
    plan: &'a Plan,
    /// What the slowest disk takes, in bytes per second.
    disk: f64,
    /// What its node serves.
    spared: BTreeSet<VbId>,
    readers: Readers,
    warned: Warned,
    /// Whether documents are read.
    reads: bool,
}

impl Slowly<'_> {
    fn stages(&mut self, press: &mut Press) -> Result<(), TortureError> {
        let objective = [("operation", "set"), ("latencyUs", LATENCY_US), ("targetPercent", "99.9")];
        press.target.rest().put(&format!("/settee/slo/{BUCKET}/writes"), &objective)?;
        let each = (self.plan.value_bytes * LONGER) as f64 + PER_DOCUMENT;
        let nodes = self.plan.nodes as f64;
        let rate = FILLED_TIMES * self.disk * nodes / (f64::from(self.plan.replicas) + 1.0) / each;
        press
            .watch
            .say(&format!("memory fills slowly, by {rate:.0} documents a second; one disk takes less"));
        press.crew.pace(true);
        press.crew.set(Task::Fill);
        for name in ["memory_fills_soon", "disk_queue_grows", "writes_paced", "budget_burns_fast"] {
            self.warned.is_due(name);
        }
        let is_full = |sample: &Sample| sample.get("vb_active_perc_mem_resident") < 100.0;
        self.until(press, rate, |warned, sample| warned.all_fired() && is_full(sample))?;

        press.watch.say("other nodes get more, which that disk follows slowly; more than fits is read");
        self.warned.is_due("working_set_does_not_fit");
        if self.plan.replicas > 0 {
            self.warned.is_due("replica_lag_grows");
        }
        self.reads = true;
        press.crew.spare(self.spared.clone());
        let rate = FOLLOWED_TIMES * self.disk * (nodes - 1.0) / each;
        self.until(press, rate, |warned, _| warned.all_fired())?;

        press.watch.say("the loaders write as fast as they can");
        press.crew.spare(BTreeSet::new());
        press.crew.pace(false);
        self.until(press, f64::MAX, |_, _| false)
    }

    /// Goes on second by second until that is so, a client meets an error, or it takes too long.
    fn until(
        &mut self,
        press: &mut Press,
        rate: f64,
        is_over: impl Fn(&Warned, &Sample) -> bool,
    ) -> Result<(), TortureError> {
        let began = Instant::now();
        while began.elapsed().as_secs() < PATIENCE && !self.warned.has_error() {
            let sample = press.paced_tick(rate)?;
            self.readers.limit(if self.reads { press.crew.inserted() } else { 0 });
            let writing = press.crew.tally().errors(&[Status::Success]);
            // Some of what is read at random is not there yet.
            let reading = self.readers.tally().errors(&[Status::Success, Status::KeyNotFound]);
            self.warned.look(&press.target.rest(), &sample, writing + reading);
            if is_over(&self.warned, &sample) {
                break;
            }
        }
        Ok(())
    }
}
