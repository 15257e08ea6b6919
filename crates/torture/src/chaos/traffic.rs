//! Load with validation at a constant rate while the cluster is being hurt, and what of it was felt when.
//!
//! Two of them run side by side. One writes durably to a majority, and must never lose anything. The other writes
//! plainly, and must lose nothing as long as nodes are treated gracefully. What the plain one is acknowledged while
//! nodes are killed or cut off may be lost ([`Control::set_acks_may_be_lost`]). What it was acknowledged before that, and had
//! reached the replicas, may not.

use crate::TortureError;
use base::bucket::DurabilityLevel;
use client::Login;
use load::keys::KeyForm;
use load::values::{Dataset, ValueKind};
use load::{
    Choice, Control, Crew, Interval, Mix, OnBreak, Op, Pace, Part, Phase, Protocol, Records, Settings, Stop,
    Tally, Target,
};
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Grain of what was felt.
const GRAIN: Duration = Duration::from_millis(100);
/// An operation that takes longer has failed: what SDKs allow a durable one. How long the others took is told as well.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long reading everything back may take.
const SWEEP: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(1);

/// What one of them does.
#[derive(Clone, Debug)]
pub struct Kind {
    /// In reports and in front of its keys.
    pub name: &'static str,
    /// When its writes are acknowledged; without, nothing but the active's memory stands for them.
    pub level: Option<DurabilityLevel>,
    /// Operations per second.
    pub rate: f64,
    /// Documents.
    pub records: u64,
    /// Connections, over all nodes.
    pub connections: usize,
}

/// A tenth of a second.
#[derive(Clone, Debug, Default)]
struct Moment {
    ok: u64,
    failed: u64,
    temporary: u64,
    moved: u64,
    /// Answers that were neither success nor an expected miss, nor "not my vBucket", and connections that were lost, by name.
    refusals: BTreeMap<String, u64>,
    /// Seconds that the slowest operation took that was carried out.
    slowest: f64,
    /// How long a client without an answer at the end of it had waited, at most.
    waiting: Duration,
}

/// What was felt in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Felt {
    /// Operations that were carried out.
    pub done: u64,
    /// Operations that failed.
    pub failed: u64,
    /// Answers "not now"; the operations were tried again.
    pub temporary: u64,
    /// Answers "not my vBucket"; the operations were tried elsewhere.
    pub moved: u64,
    /// Whatever was answered but success, expected misses and "not my vBucket", and lost connections, by name.
    pub refusals: BTreeMap<String, u64>,
    /// From the first failure to the last, in seconds.
    pub window: f64,
    /// The longest time in which nothing was carried out, in seconds.
    pub silence: f64,
    /// The longest that anybody waited for an operation that was carried out, or is being waited for still, in seconds.
    pub slowest: f64,
}

impl Felt {
    /// Those that are no success, no expected miss and no "not my vBucket".
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.failed + self.temporary
    }

    /// What they were, in words.
    #[must_use]
    pub fn refusals_in_words(&self) -> String {
        let words: Vec<String> =
            self.refusals.iter().map(|(name, count)| format!("{count} x {name}")).collect();
        words.join(", ")
    }
}

/// One of them, at work.
pub struct Traffic {
    /// What it does.
    pub kind: Kind,
    control: Arc<Control>,
    began: Instant,
    moments: Arc<Mutex<Vec<Moment>>>,
    thread: JoinHandle<(Crew, Tally, Option<String>)>,
    phase: Phase,
}

/// What came of one in the end.
#[derive(Debug)]
pub struct Outcome {
    /// While the cluster was hurt.
    pub tally: Tally,
    /// Reading everything back.
    pub sweep: Tally,
    /// Whether that was possible.
    pub is_whole: bool,
    /// Why it ended early, if it did.
    pub failure: Option<String>,
}

impl Outcome {
    /// Documents that were not what was acknowledged, by kind.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let all = [&self.tally, &self.sweep];
        all.iter()
            .flat_map(|tally| &tally.violations)
            .map(|(name, count)| format!("{count} {name}"))
            .collect()
    }

    /// What happened to the first of them.
    pub fn histories(&self) -> impl Iterator<Item = &String> {
        self.tally.histories.iter().chain(&self.sweep.histories)
    }
}

impl Traffic {
    /// Writes every record once, then starts.
    ///
    /// # Errors
    /// The cluster cannot be reached, or refuses.
    pub fn start(kind: &Kind, seed: &str, login: Login, random: u64) -> Result<Traffic, TortureError> {
        let failed = |error: load::LoadError| TortureError::Node(format!("{}: {error}", kind.name));
        let target = Arc::new(Target::discover(Protocol::Couchbase, seed, login).map_err(failed)?);
        let sizes = "100-1000".parse().map_err(TortureError::Node)?;
        let prefix = format!("{}-", kind.name);
        let records: Arc<dyn Records> =
            Arc::new(Dataset::new(&prefix, KeyForm::Hex(24), ValueKind::Random(sizes)));
        let mut crew = Crew::connect(&target, &records, kind.connections, 1, Part::WHOLE).map_err(failed)?;
        let mix: Mix = "get=50,set=40,cas=5,delete=3,add=2".parse().map_err(TortureError::Node)?;
        let level = kind.level.map(|level| (level, None));
        let phase = Phase {
            mix,
            pace: Pace::Even,
            tick: TICK,
            pipeline: 16,
            validate: true,
            settings: Settings { durability: level, ..Settings::default() },
            timeout: Some(TIMEOUT),
            on_break: OnBreak::Reconnect,
            interval: GRAIN,
            seed: random,
            stop: Stop::Ops(u64::MAX),
            ..Phase::of(Op::Get, kind.records)
        };
        let fill = Phase {
            mix: Mix::only(Op::Set),
            choice: Choice::Each,
            pace: Pace::Closed,
            stop: Stop::All,
            ..phase.clone()
        };
        crew.total(&fill, &Control::new(0.0)).map_err(failed)?;
        let control = Arc::new(Control::new(kind.rate));
        let moments = Arc::new(Mutex::new(Vec::new()));
        let began = Instant::now();
        let (steered, noted, run) = (control.clone(), moments.clone(), phase.clone());
        let thread = std::thread::Builder::new().name(kind.name.to_owned()).spawn(move || {
            let mut total = Tally::default();
            let sink = |interval: Interval| {
                let moment = Moment::of(&interval.tally);
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(moment);
                total.merge(&interval.tally);
            };
            let failure = crew.run(&run, &steered, sink).err().map(|error| error.to_string());
            (crew, total, failure)
        })?;
        Ok(Traffic { kind: kind.clone(), control, began, moments, thread, phase })
    }

    /// Whether what a plain one is acknowledged from now on may be lost; never what a durable one is. Returns when it goes
    /// by that.
    pub fn set_acks_may_be_lost(&self, may: bool) {
        if self.kind.level.is_some() {
            return;
        }
        self.control.set_acks_may_be_lost(may);
        // Its thread looks at the control when it has handed out an interval: one that ended after this moment.
        let intervals = self.place(Instant::now()) + 1;
        while !self.has_ended() && self.moments().len() < intervals {
            std::thread::sleep(TICK);
        }
    }

    /// Whether it has ended by itself, which it never should.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// What was felt since a moment.
    #[must_use]
    pub fn felt_since(&self, since: Instant) -> Felt {
        felt(self.moments().get(self.place(since)..).unwrap_or_default())
    }

    /// Waits until everything that was asked before a moment has ended, or has taken longer than `limit`. So what one event is
    /// to blame for is not felt in the next one.
    pub fn await_answers(&self, before: Instant, limit: Duration) {
        let before = before.saturating_duration_since(self.began);
        // The interval that the limit is in has to have been handed out.
        while !self.has_ended() && self.began.elapsed() < before + limit + 2 * GRAIN {
            let moments = self.moments();
            let seen = GRAIN * moments.len() as u32;
            let waiting = moments.last().map_or(Duration::ZERO, |moment| moment.waiting);
            drop(moments);
            if seen.saturating_sub(waiting) >= before {
                return;
            }
            std::thread::sleep(TICK);
        }
    }

    fn moments(&self) -> MutexGuard<'_, Vec<Moment>> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the interval that a moment is in.
    fn place(&self, at: Instant) -> usize {
        (at.saturating_duration_since(self.began).as_nanos() / GRAIN.as_nanos()) as usize
    }

    /// Ends it and reads everything back.
    ///
    /// # Errors
    /// Its thread had panicked, or the cluster cannot be read.
    pub fn finish(self) -> Result<Outcome, TortureError> {
        self.control.stop();
        let (mut crew, tally, failure) = self.thread.join().map_err(|_| TortureError::Thread)?;
        let sweep = Phase {
            mix: Mix::only(Op::Get),
            choice: Choice::Each,
            pace: Pace::Closed,
            stop: Stop::All,
            ..self.phase
        };
        let control = Arc::new(Control::new(0.0));
        // A cluster that has not come to rest would never let it end.
        let ((done, waits), patience) = (channel::<()>(), control.clone());
        std::thread::spawn(move || {
            if waits.recv_timeout(SWEEP) == Err(RecvTimeoutError::Timeout) {
                patience.stop();
            }
        });
        let swept = crew.total(&sweep, &control);
        drop(done);
        let sweep = swept.map_err(|error| TortureError::Node(format!("{}: {error}", self.kind.name)))?;
        Ok(Outcome { tally, is_whole: sweep.done() == self.kind.records, sweep, failure })
    }
}

impl Moment {
    fn of(tally: &Tally) -> Moment {
        let slowest = tally.ops().map(|(_, op)| op.ok.max_us().max(op.miss.max_us())).fold(0.0, f64::max);
        Moment {
            ok: tally.done(),
            failed: tally.failed(),
            temporary: tally.temporary,
            moved: tally.moved,
            refusals: refusals(tally),
            slowest: slowest / 1e6,
            waiting: tally.waiting,
        }
    }
}

/// By name; a temporary failure of which the server did not say why has that of its status.
fn refusals(tally: &Tally) -> BTreeMap<String, u64> {
    let mut refusals = tally.failures.clone();
    for (reason, count) in &tally.reasons {
        *refusals.entry(reason.clone()).or_default() += count;
    }
    let unnamed = tally.temporary.saturating_sub(tally.reasons.values().sum());
    if unnamed > 0 {
        *refusals.entry("TemporaryFailure".to_owned()).or_default() += unnamed;
    }
    refusals
}

fn felt(moments: &[Moment]) -> Felt {
    let seconds = |grains: usize| grains as f64 * GRAIN.as_secs_f64();
    let sum = |count: fn(&Moment) -> u64| moments.iter().map(count).sum();
    let first = moments.iter().position(|moment| moment.failed > 0);
    let last = moments.iter().rposition(|moment| moment.failed > 0);
    let (mut silence, mut longest, mut refusals) = (0, 0, BTreeMap::new());
    for moment in moments {
        silence = if moment.ok == 0 { silence + 1 } else { 0 };
        longest = longest.max(silence);
        for (name, count) in &moment.refusals {
            *refusals.entry(name.clone()).or_default() += count;
        }
    }
    let waiting = moments.last().map_or(0.0, |moment| moment.waiting.as_secs_f64());
    Felt {
        done: sum(|moment| moment.ok),
        failed: sum(|moment| moment.failed),
        temporary: sum(|moment| moment.temporary),
        moved: sum(|moment| moment.moved),
        refusals,
        window: first.zip(last).map_or(0.0, |(first, last)| seconds(last - first + 1)),
        silence: seconds(longest),
        slowest: moments.iter().map(|moment| moment.slowest).fold(waiting, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_goes_from_the_first_failure_to_the_last() {
        let quiet = Moment { ok: 10, slowest: 0.01, ..Moment::default() };
        let broken = Moment { ok: 4, failed: 6, slowest: 0.5, ..Moment::default() };
        let silent = Moment::default();
        assert_eq!(felt(&[]), Felt::default());
        let calm = vec![quiet.clone(); 3];
        assert_eq!(felt(&calm), Felt { done: 30, slowest: 0.01, ..Felt::default() });
        let all = [&quiet, &broken, &silent, &silent, &quiet, &broken, &quiet].map(Clone::clone);
        let hurt = felt(&all);
        assert_eq!((hurt.done, hurt.failed), (38, 12));
        assert!((hurt.window - 0.5).abs() < 1e-9 && (hurt.silence - 0.2).abs() < 1e-9, "{hurt:?}");
        assert!((hurt.slowest - 0.5).abs() < 1e-9, "{hurt:?}");
    }

    #[test]
    fn what_is_being_waited_for_still_is_felt() {
        let waiting = |seconds| Moment { ok: 1, waiting: Duration::from_secs(seconds), ..Moment::default() };
        assert!((felt(&[waiting(1), waiting(2)]).slowest - 2.0).abs() < 1e-9);
        assert!(felt(&[waiting(2), waiting(0)]).slowest < 1e-9, "that has ended, and told how long it took");
    }

    #[test]
    fn temporary_failures_are_felt_and_named() {
        let mut tally = Tally::default();
        (tally.temporary, tally.moved) = (5, 7);
        tally.reasons.insert("Busy (0x85)".to_owned(), 2);
        let felt = felt(&[Moment::of(&tally), Moment::of(&tally)]);
        assert_eq!((felt.refused(), felt.temporary, felt.moved), (10, 10, 14));
        assert_eq!(felt.refusals_in_words(), "4 x Busy (0x85), 6 x TemporaryFailure");
    }
}
