//! A node under pressure: the target, its clients, and the timeline, with the judgements that all rescues share.

use super::pace::Pace;
use super::{Plan, Rescue};
use crate::TortureError;
use crate::checks::Checks;
use crate::documents::Documents;
use crate::ledger::Ledger;
use crate::loaders::{Crew, Pressure, Task};
use crate::probe::Probe;
use crate::reader;
use crate::target::Target;
use crate::watch::{Sample, Watch};
use base::Status;
use client::{KvConnection, Rest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two lines of the timeline.
const TICK: Duration = Duration::from_secs(1);
/// Between two looks where a moment matters.
const LOOK: Duration = Duration::from_millis(100);
/// Key, header and the record's frame on disk, roughly: for sizing a run only.
const PER_DOCUMENT: u64 = 100;
/// Loaders that get nothing accepted for so long are wedged.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is allowed on top of 1.5 times the time that the disk needs for what is dirty.
const GRACE: Duration = Duration::from_secs(5);
/// Memory is watched by second, and bounded by the quota with this much on top for what is on its way.
const MEMORY_SLACK: f64 = 1.05;
/// The process may grow by so much of the quota, and by what all buckets share: workers' buffers, indexes of segments.
const RESIDENT_SLACK: f64 = 1.10;
const SHARED_BYTES: f64 = 24.0 * MIB;

/// An alert is due once its condition was seen by so many looks in a row. Nodes look once a second as well, and hear of each other's
/// alerts a moment later. A bucket that is full sooner leaves no time for an alert.
const DUE_LOOKS: u32 = 3;
/// The step of memory pressure at which writers are slowed down. At the next one they are refused, which is another alert.
const PACED_STEP: Range<f64> = 3.0..4.0;
/// Keys and metadata take more than half of the quota, and not just so.
const FLOOR_SHARE: f64 = 0.52;

const MIB: f64 = 1024.0 * 1024.0;

/// One pressed target.
pub struct Press {
    /// Whom.
    pub target: Box<dyn Target>,
    /// What documents look like.
    pub documents: Arc<Documents>,
    /// What was promised.
    pub ledger: Arc<Ledger>,
    /// The loaders.
    pub crew: Crew,
    /// The client beside them.
    pub probe: Probe,
    /// The timeline.
    pub watch: Watch,
    /// Documents to insert.
    pub fill: u64,
    /// Of one node.
    quota_bytes: u64,
    /// Resident memory of one node before anything was written.
    rss_before: u64,
    /// Connections that broke because the node was killed.
    breaks_expected: bool,
}

/// Whether operators heard of what comes before clients did. Two alerts have to come before the first refused write, each once its
/// condition holds. The others are no part of this: the pager finds values to eject, so memory need not come close to the
/// quota. The queue for the disk and the lag of replicas swing while writers are slowed down for them. Too few reads wait for
/// the disk, and forecasts need a day.
#[derive(Default)]
pub struct Warned {
    looks: u32,
    /// By alert, the look that saw it first.
    alerts: BTreeMap<String, u32>,
    /// By alert, the looks in a row that saw its condition. From the first refused write on they stay.
    held: BTreeMap<&'static str, u32>,
    /// The look that saw the first refused write.
    refused: Option<u32>,
}

impl Warned {
    /// A second's look at what fires. `refused`: how many writes were refused until now.
    pub fn look(&mut self, rest: &Rest, sample: &Sample, refused: u64) {
        let told = rest.get_json("/settee/alerts").ok();
        let firing = told.as_ref().and_then(|alerts| alerts["firing"].as_array());
        let names = firing.into_iter().flatten().filter_map(|alert| alert["name"].as_str());
        // What nobody could be asked about is no alert that is lacking.
        let is_told =
            told.as_ref().is_some_and(|alerts| alerts["missingNodes"].as_array().is_some_and(Vec::is_empty));
        let holds = [
            ("writes_paced", is_told && PACED_STEP.contains(&sample.get("ep_pressure_step"))),
            ("metadata_share", is_told && sample.floor_share() > FLOOR_SHARE),
        ];
        self.note(names, holds, refused);
    }

    fn note<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        holds: [(&'static str, bool); 2],
        refused: u64,
    ) {
        self.looks += 1;
        for name in names {
            self.alerts.entry(name.to_owned()).or_insert(self.looks);
        }
        if refused > 0 {
            self.refused.get_or_insert(self.looks);
            return;
        }
        for (name, is_so) in holds {
            let looks = self.held.entry(name).or_default();
            // What was due once stays due.
            *looks = if is_so {
                *looks + 1
            } else if *looks < DUE_LOOKS {
                0
            } else {
                *looks
            };
        }
    }

    /// Whether this alert came before the first refused write, or with it in one second.
    fn is_before(&self, name: &str) -> bool {
        self.alerts.get(name).is_some_and(|look| self.refused.is_none_or(|refused| *look <= refused))
    }

    /// What was seen, by looks.
    fn found(&self) -> String {
        let refused = self.refused.map_or("none".to_owned(), |look| format!("at {look} s"));
        let seen: Vec<_> = self.alerts.iter().map(|(name, look)| format!("{name} at {look} s")).collect();
        format!("first refused write {refused}; {}", found_or_none(&seen))
    }

    /// Any alert has to come before clients see an error.
    fn judge_any(&self, checks: &mut Checks) {
        let is_any = self.alerts.keys().any(|name| self.is_before(name));
        checks.add("an alert fires before a write is refused", is_any, self.found());
    }

    /// So has each whose condition held long enough; how many these are.
    pub fn judge_each(&self, checks: &mut Checks) -> usize {
        let due = self.held.iter().filter(|(_, looks)| **looks >= DUE_LOOKS).map(|(name, _)| *name);
        let due: Vec<_> = due.collect();
        for name in &due {
            checks.add(format!("{name} fires before a write is refused"), self.is_before(name), self.found());
        }
        due.len()
    }
}

impl Press {
    /// Connects all clients; nothing is written yet.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn start(plan: &Plan, rescue: Rescue, target: Box<dyn Target>) -> Result<Press, TortureError> {
        let small = rescue.fills_with_metadata();
        let value_bytes = if small { plan.small_value_bytes } else { plan.value_bytes };
        let documents = Arc::new(Documents::new(plan.seed, value_bytes));
        // With small values the quota's own size in documents is more than enough: each takes a header and a key.
        let factor = if small { 1.5 } else { plan.fill };
        let each = if small { PER_DOCUMENT } else { documents.value_bytes() as u64 + PER_DOCUMENT };
        let fill = ((plan.quota_bytes as f64 * factor) as u64 / each).max(1);
        let vbuckets = KvConnection::open(&target.seed(), &target.login())?.cluster_map()?.vbuckets();
        // Loaders that go on need room; where it ends they overwrite.
        let ledger = Arc::new(Ledger::new(fill * 2, vbuckets));
        let pressure = Pressure { loaders: plan.loaders, window: plan.window, fill };
        let crew = Crew::start(&*target, &documents, &ledger, pressure)?;
        let probe = Probe::start(&*target, &documents, &ledger)?;
        let mut watch = Watch::default();
        let nodes = target.pids().len().max(1) as u64;
        let rss_before = watch.sample(&*target)?.rss / nodes;
        watch.say(&format!(
            "{fill} documents of {value_bytes} bytes into a quota of {:.0} MiB, {} loaders with {} requests each",
            plan.quota_bytes as f64 / MIB,
            plan.loaders,
            plan.window
        ));
        let quota_bytes = plan.quota_bytes / nodes;
        Ok(Press {
            target,
            documents,
            ledger,
            crew,
            probe,
            watch,
            fill,
            quota_bytes,
            rss_before,
            breaks_expected: false,
        })
    }

    /// A second of the timeline.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn tick(&mut self) -> Result<Sample, TortureError> {
        std::thread::sleep(TICK);
        self.probe.limit(self.crew.inserted());
        self.watch.tick(&*self.target, &self.crew.tally())
    }

    /// Lets the loaders insert everything; whether they could.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn fill(&mut self, checks: &mut Checks) -> Result<bool, TortureError> {
        self.crew.set(Task::Fill);
        let began = Instant::now();
        let (mut progress, mut inserted) = (Instant::now(), 0);
        let mut warned = Warned::default();
        while self.crew.inserted() < self.fill && progress.elapsed() < PATIENCE {
            let sample = self.tick()?;
            warned.look(&self.target.rest(), &sample, self.crew.tally().count(Status::TemporaryFailure));
            if self.crew.inserted() > inserted {
                (progress, inserted) = (Instant::now(), self.crew.inserted());
            }
        }
        let inserted = self.crew.inserted();
        let found =
            format!("{inserted} of {} documents in {:.1} s", self.fill, began.elapsed().as_secs_f64());
        checks.add("the loaders get everything in", inserted >= self.fill, found);
        warned.judge_any(checks);
        warned.judge_each(checks);
        Ok(inserted >= self.fill)
    }

    /// Waits until the nodes have everything in memory that they load after a start; judges nothing but that it ends.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn await_warm_up(&mut self, checks: &mut Checks) -> Result<(), TortureError> {
        let began = Instant::now();
        let (mut progress, mut loaded) = (Instant::now(), 0.0);
        let mut is_warm = false;
        while !is_warm && progress.elapsed() < PATIENCE {
            self.tick()?;
            let now;
            (is_warm, now) = self.watch.warm_up(&*self.target)?;
            if now > loaded {
                (progress, loaded) = (Instant::now(), now);
            }
        }
        let found = format!("{loaded:.0} documents, done after {:.1} s", began.elapsed().as_secs_f64());
        checks.add("the warm-up ends", is_warm, found);
        Ok(())
    }

    /// Stops the loaders and waits for quiet: memory below the low watermark, nothing left to write.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn drain(&mut self, checks: &mut Checks) -> Result<(), TortureError> {
        self.stop_loaders(checks)?;
        let dirty = self.watch.sample(&*self.target)?.dirty_bytes();
        let rate = self.target.disk_bytes_per_sec().max(1) as f64;
        let bound = Duration::from_secs_f64(1.5 * dirty / rate) + GRACE;
        self.watch.say(&format!(
            "{:.1} MiB are dirty; quiet is due within {:.1} s",
            dirty / MIB,
            bound.as_secs_f64()
        ));
        let began = Instant::now();
        let mut shown = Instant::now();
        let (mut drained, mut below) = (None, None);
        // A node that is late is watched a little longer, to tell late from never.
        while (drained.is_none() || below.is_none()) && began.elapsed() < bound * 3 {
            let sample = self.watch.sample(&*self.target)?;
            drained = drained.or_else(|| sample.is_drained().then(|| began.elapsed()));
            below = below.or_else(|| sample.is_below_low_watermark().then(|| began.elapsed()));
            if shown.elapsed() >= TICK {
                shown = Instant::now();
                self.watch.tick(&*self.target, &self.crew.tally())?;
            }
            std::thread::sleep(LOOK);
        }
        self.watch.tick(&*self.target, &self.crew.tally())?;
        let mut judge = |what: &str, after: Option<Duration>| {
            let took =
                after.map_or("never".to_owned(), |after| format!("after {:.1} s", after.as_secs_f64()));
            let found = format!("{took}, allowed {:.1} s", bound.as_secs_f64());
            checks.add(what, after.is_some_and(|after| after <= bound), found);
        };
        judge("queues are empty", drained);
        judge("memory is below the low watermark", below);
        Ok(())
    }

    /// Tells the loaders to stop, and waits for their last answers.
    fn stop_loaders(&mut self, checks: &mut Checks) -> Result<(), TortureError> {
        self.crew.set(Task::Pause);
        let began = Instant::now();
        while !self.crew.is_idle() && began.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        if !self.crew.is_idle() {
            checks.add("the loaders' last requests are answered", false, format!("not within {PATIENCE:?}"));
        }
        Ok(())
    }

    /// Stops the loaders and waits until everything is on disk, judging nothing.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn settle_down(&mut self) -> Result<(), TortureError> {
        self.crew.set(Task::Pause);
        let began = Instant::now();
        while began.elapsed() < PATIENCE * 4 {
            if self.crew.is_idle() && self.watch.sample(&*self.target)?.is_drained() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets the loaders go on for a while; something must be accepted in every second of it.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn served(&mut self, seconds: u64, checks: &mut Checks) -> Result<(), TortureError> {
        self.watch.say("the loaders go on");
        self.crew.set(Task::GoOn);
        let mut pace = Pace::begin(&self.crew);
        for _ in 0..seconds {
            self.tick()?;
            pace.note(&self.crew);
        }
        checks.add("the loaders are served again", pace.worst > 0, pace.to_string());
        Ok(())
    }

    /// Reads everything; the loaders must be stopped. The probe rests meanwhile, and after.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn verify(&mut self, checks: &mut Checks) -> Result<(), TortureError> {
        self.watch.say("reading every document");
        self.probe.rest();
        let verdict = reader::verify(&*self.target, &self.documents, &self.ledger)?;
        checks.add(
            "every acknowledged document has its right content",
            verdict.is_clean(),
            verdict.to_string(),
        );
        let others = verdict.tally.others(&[Status::Success, Status::KeyNotFound]);
        checks.add("reads are never refused", others.is_empty(), found_or_none(&others));
        // Documents that must be there bound the count from below, those that may be from above.
        let documents = self.watch.sample(&*self.target)?.get("curr_items");
        checks.add(
            "the node counts as many documents as can be read",
            documents == verdict.present as f64,
            format!("{documents} counted, {} read", verdict.present),
        );
        Ok(())
    }

    /// From now on broken connections are the scenario's doing.
    pub fn expect_breaks(&mut self) {
        self.breaks_expected = true;
    }

    /// What must hold whatever was done: bounded memory, and clients that were always answered.
    pub fn judge_clients(&mut self, checks: &mut Checks) {
        let tally = self.crew.tally();
        let others = tally.others(&[Status::Success, Status::TemporaryFailure]);
        checks.add(
            "loaders see success or temporary failure only",
            others.is_empty(),
            found_or_none(&others),
        );
        checks.add(
            "loaders are answered before SDKs give up",
            tally.late == 0 && (self.breaks_expected || tally.breaks == 0),
            format!(
                "p99 {:.1} ms, slowest {:.0} ms, {} late, {} broken connections, {} temporary failures",
                tally.latencies.percentile(99.0) as f64 / 1e6,
                tally.slowest.as_secs_f64() * 1e3,
                tally.late,
                tally.breaks,
                tally.count(Status::TemporaryFailure)
            ),
        );
        let seen = self.probe.seen();
        for (what, tally) in [("reads", &seen.reads), ("touches", &seen.touches), ("deletes", &seen.deletes)]
        {
            let mut expected = vec![Status::Success];
            // A read may find what another deletion has taken; touches and deletions are of documents that must be there.
            expected.extend((what == "reads").then_some(Status::KeyNotFound));
            // A node that was killed serves nothing until its cluster trusts it again, which SDKs wait for.
            let may_be_unconfirmed = self.breaks_expected && self.target.pids().len() > 1;
            expected.extend(may_be_unconfirmed.then_some(Status::TemporaryFailure));
            let others = tally.others(&expected);
            let is_fine = others.is_empty() && tally.late == 0 && tally.latencies.count() > 0;
            let breaks_fine = self.breaks_expected || tally.breaks == 0;
            checks.add(
                format!("{what} beside the loaders always succeed in time"),
                is_fine && breaks_fine,
                format!(
                    "{} of them, p99 {:.1} ms, slowest {:.0} ms, {} late; failures: {}",
                    tally.latencies.count(),
                    tally.latencies.percentile(99.0) as f64 / 1e6,
                    tally.slowest.as_secs_f64() * 1e3,
                    tally.late,
                    found_or_none(&others)
                ),
            );
        }
        checks.add("reads beside the loaders are right", seen.wrong.is_empty(), found_or_none(&seen.wrong));
    }

    /// What must hold of memory whatever was done.
    pub fn judge_memory(&mut self, checks: &mut Checks) {
        let quota = self.quota_bytes as f64;
        let peaks = self.watch.peaks;
        checks.add(
            "memory stays within the quota, but for a twentieth at moments",
            peaks.fullness <= MEMORY_SLACK,
            format!("peak {:.1} MiB of {:.0}", peaks.fullness * quota / MIB, quota / MIB),
        );
        let nodes = self.target.pids().len() as u64;
        let grown = peaks.rss.saturating_sub(self.rss_before * nodes) as f64;
        checks.add(
            "the process grows by no more than the quota and its overhead",
            grown <= nodes as f64 * (quota * RESIDENT_SLACK + SHARED_BYTES),
            format!("by {:.1} MiB to {:.1} MiB resident", grown / MIB, peaks.rss as f64 / MIB),
        );
    }

    /// For the report.
    #[must_use]
    pub fn timeline(&self) -> Value {
        self.watch.to_json()
    }

    /// Ends all clients, then the target.
    ///
    /// # Errors
    /// A client had panicked.
    pub fn finish(self) -> Result<(), TortureError> {
        let (crew, probe) = (self.crew.finish(), self.probe.finish());
        drop(self.target);
        crew.and(probe)
    }
}

/// A list in words.
#[must_use]
pub fn found_or_none(found: &[String]) -> String {
    if found.is_empty() { "none".to_owned() } else { found.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(paced: bool, metadata: bool) -> [(&'static str, bool); 2] {
        [("writes_paced", paced), ("metadata_share", metadata)]
    }

    #[test]
    fn an_alert_that_comes_after_the_first_refused_write_is_too_late() {
        let mut warned = Warned::default();
        warned.note(["writes_paced"].into_iter(), holds(true, true), 0);
        warned.note([].into_iter(), holds(true, true), 0);
        warned.note([].into_iter(), holds(true, true), 0);
        warned.note(["same"].into_iter(), holds(false, true), 3);
        warned.note(["metadata_share"].into_iter(), holds(false, true), 9);
        let judged = ["writes_paced", "same", "metadata_share", "never"].map(|name| warned.is_before(name));
        assert_eq!(judged, [true, true, false, false]);
        let mut checks = Checks::default();
        assert_eq!(warned.judge_each(&mut checks), 2);
        assert_eq!((checks.made(), checks.failed()), (2, 1));
    }

    #[test]
    fn an_alert_is_due_once_its_condition_has_lasted() {
        let mut warned = Warned::default();
        for is_paced in [true, true, false, true, true] {
            warned.note(["writes_paced"].into_iter(), holds(is_paced, false), 0);
        }
        let mut checks = Checks::default();
        assert_eq!(warned.judge_each(&mut checks), 0, "it came and went between two looks");
        warned.note([].into_iter(), holds(true, false), 0);
        warned.note([].into_iter(), holds(false, true), 0);
        // What holds only from the first refusal on left no time.
        warned.note([].into_iter(), holds(false, true), 1);
        assert_eq!(warned.judge_each(&mut checks), 1);
        assert_eq!((checks.made(), checks.failed()), (1, 0));
    }
}
