//! A node under pressure: the target, its clients, and the timeline, with the judgements that all rescues share.

use super::pace::Pace;
use super::slowly::LONGER;
use super::warned::Warned;
use super::{Plan, Rescue};
use crate::TortureError;
use crate::checks::{Checks, found_or_none};
use crate::documents::Documents;
use crate::ledger::Ledger;
use crate::loaders::{Crew, Pressure, Task};
use crate::probe::Probe;
use crate::reader;
use crate::target::Target;
use crate::watch::{Sample, Watch};
use base::Status;
use client::KvConnection;
use serde_json::Value;
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

/// Requests that a loader keeps under way at most where pressure comes slowly: a node refuses a write that has waited for a second.
const SLOW_WINDOW: usize = 6;

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
    /// When a pace allowed writes last.
    allowed_at: Instant,
}

impl Press {
    /// Connects all clients; nothing is written yet.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn start(plan: &Plan, rescue: Rescue, target: Box<dyn Target>) -> Result<Press, TortureError> {
        let small = rescue.fills_with_metadata();
        let value_bytes = match rescue {
            _ if small => plan.small_value_bytes,
            Rescue::Warnings => plan.value_bytes * LONGER,
            _ => plan.value_bytes,
        };
        let quota = plan.quota_of(rescue);
        let documents = Arc::new(Documents::new(plan.seed, value_bytes));
        let factor = match rescue {
            // With small values the quota's own size in documents is more than enough: each takes a header and a key.
            _ if small => 1.5,
            // What was seen ends it.
            Rescue::Warnings => plan.fill * 4.0,
            _ => plan.fill,
        };
        let window = if matches!(rescue, Rescue::Warnings | Rescue::MetadataWarnings) {
            plan.window.min(SLOW_WINDOW)
        } else {
            plan.window
        };
        let each = if small { PER_DOCUMENT } else { documents.value_bytes() as u64 + PER_DOCUMENT };
        let fill = ((quota as f64 * factor) as u64 / each).max(1);
        let vbuckets = KvConnection::open(&target.seed(), &target.login())?.cluster_map()?.vbuckets();
        // Loaders that go on need room; where it ends they overwrite.
        let ledger = Arc::new(Ledger::new(fill * 2, vbuckets));
        let pressure = Pressure { loaders: plan.loaders, window, fill };
        let crew = Crew::start(&*target, &documents, &ledger, pressure)?;
        let probe = Probe::start(&*target, &documents, &ledger)?;
        let mut watch = Watch::default();
        let nodes = target.pids().len().max(1) as u64;
        let rss_before = watch.sample(&*target)?.rss / nodes;
        watch.say(&format!(
            "{fill} documents of {value_bytes} bytes into a quota of {:.0} MiB, {} loaders with {} requests each",
            quota as f64 / MIB,
            plan.loaders,
            window
        ));
        let quota_bytes = quota / nodes;
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
            allowed_at: Instant::now(),
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

    /// A second of the timeline in which so many writes begin. The client beside the loaders rests.
    ///
    /// # Errors
    /// A node cannot be reached.
    pub fn paced_tick(&mut self, per_second: f64) -> Result<Sample, TortureError> {
        let began = Instant::now();
        while began.elapsed() < TICK {
            std::thread::sleep(LOOK);
            let passed = std::mem::replace(&mut self.allowed_at, Instant::now()).elapsed().min(2 * TICK);
            self.crew.allow((per_second * passed.as_secs_f64()) as u64);
        }
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
