//! The active probe: when a node tries which operation where, and what it makes of the answers.
//!
//! A target is a bucket on a node. Each is probed once a period, at a moment of its own, so that probes are spread over the period. A
//! round tries the operations one after the other. An operation that is not answered within the timeout counts with the timeout as its
//! latency. So do those that would have followed it: nothing on that connection is answered.
//!
//! Invariants:
//! - No target is probed twice at once, and no more than [`AT_ONCE_MAX`] are probed at once.
//! - No more than [`ROUNDS_PER_SEC`] rounds begin in a second. With more targets than that allows, the period gets longer for all.
//! - What is kept is bounded by [`TARGETS_MAX`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::burn::Counts;

/// Most targets of a node. Further ones are not probed.
pub const TARGETS_MAX: usize = 1_000;
/// Most rounds under way.
pub const AT_ONCE_MAX: usize = 32;
/// Most rounds that begin in a second.
pub const ROUNDS_PER_SEC: u64 = 50;
/// An operation without an answer by then has none: the timeout of SDKs for documents.
pub const TIMEOUT_MICROS: u32 = 2_500_000;
/// Latencies of an operation that are kept for quantiles.
pub const RECENT_MAX: usize = 60;
/// Steps of a histogram: powers of two of microseconds. The last has everything above.
const STEPS: usize = 26;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Try {
    Get,
    Set,
    Durable,
}

impl Try {
    /// Every one, in the order of a round.
    pub const ALL: [Self; 3] = [Self::Get, Self::Set, Self::Durable];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Durable => "durable",
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// As it should.
    Answered,
    /// With an error.
    Refused,
    /// Not at all within the timeout.
    Unanswered,
}

impl Ended {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Answered, Self::Refused, Self::Unanswered];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Unanswered => "unanswered",
        }
    }
}

/// One operation of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Which.
    pub what: Try,
    /// How it ended.
    pub ended: Ended,
    /// Its latency; the timeout where it was not answered.
    pub micros: u32,
}

impl Tried {
    /// One without an answer.
    #[must_use]
    pub const fn unanswered(what: Try) -> Self {
        Self { what, ended: Ended::Unanswered, micros: TIMEOUT_MICROS }
    }

    /// What it counts for an objective: good is an answer within the latency, and nothing else.
    #[must_use]
    pub fn counts(&self, latency_us: u32) -> Counts {
        let is_good = self.ended == Ended::Answered && self.micros <= latency_us;
        Counts { good: u64::from(is_good), total: 1 }
    }
}

/// What is known of an operation on a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// How many ended in each way, in the order of [`Ended::ALL`].
    pub ended: [u64; 3],
    /// Their latencies together, in microseconds.
    pub micros: u64,
    steps: [u64; STEPS],
    /// The newest latencies and when they were taken in milliseconds, oldest first.
    recent: std::collections::VecDeque<(u64, u32)>,
    /// The newest of all.
    pub last: Option<(Ended, u32)>,
}

impl Known {
    fn add(&mut self, now_millis: u64, tried: Tried) {
        self.ended[tried.ended as usize] += 1;
        self.micros = self.micros.saturating_add(u64::from(tried.micros));
        let step = tried.micros.checked_ilog2().map_or(0, |log| log as usize + 1);
        self.steps[step.min(STEPS - 1)] += 1;
        self.recent.push_back((now_millis, tried.micros));
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        self.last = Some((tried.ended, tried.micros));
    }

    /// The histogram: microseconds, and how many took less than that and no less than those before. Empty steps are left out.
    #[must_use]
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let all = self.steps.iter().enumerate().map(|(step, count)| (1 << step, *count));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// The latency that this share of the latencies of the last minute does not exceed.
    #[must_use]
    pub fn quantile(&self, now_millis: u64, share: f64) -> Option<u32> {
        let fresh = self.recent.iter().filter(|(at, _)| now_millis.saturating_sub(*at) <= 60_000);
        let mut latencies: Vec<u32> = fresh.map(|(_, micros)| *micros).collect();
        latencies.sort_unstable();
        let place = (latencies.len() as f64 * share).ceil() as usize;
        latencies.get(place.max(1) - 1).copied()
    }
}

/// What a target takes in memory at most, about. A map has room for eleven entries in each of its nodes, and half of it may be unused.
pub const TARGET_BYTES: usize = 2 * size_of::<Target>()
    + 11 * (size_of::<Try>() + size_of::<Box<Known>>())
    + Try::ALL.len() * (size_of::<Known>() + (RECENT_MAX + 1).next_power_of_two() * size_of::<(u64, u32)>());

#[derive(Debug, Default)]
struct Target {
    /// When its next round begins (milliseconds).
    due: u64,
    runs: bool,
    /// Boxed, since a map has room for more operations than are tried.
    known: BTreeMap<Try, Box<Known>>,
    /// Rounds in a row with something unanswered.
    silent: u32,
}

/// The probes of one node on all of its targets `T`. It has no clock: callers say what time it is, in milliseconds of one that
/// is never set.
#[derive(Debug)]
pub struct Probes<T> {
    targets: BTreeMap<T, Target>,
    /// When the next round may begin at the earliest.
    earliest: u64,
}

impl<T> Default for Probes<T> {
    fn default() -> Self {
        Self { targets: BTreeMap::new(), earliest: 0 }
    }
}

impl<T: Ord + Clone> Probes<T> {
    /// Has these targets probed from now on, and no others. What is known of the others is forgotten.
    pub fn want(&mut self, now_millis: u64, period_millis: u64, wanted: impl IntoIterator<Item = T>) {
        let mut old = std::mem::take(&mut self.targets);
        for (index, target) in wanted.into_iter().take(TARGETS_MAX).enumerate() {
            // New ones are spread over the period, by a stride that is prime to most counts.
            let spread = (index as u64 * 7_919) % period_millis.max(1);
            let new = || Target { due: now_millis + spread, ..Target::default() };
            let mut state = old.remove(&target).unwrap_or_else(new);
            // The period may have got shorter.
            state.due = state.due.min(now_millis + period_millis);
            self.targets.insert(target, state);
        }
    }

    /// The targets whose rounds begin now, those first that have waited longest.
    pub fn begin(&mut self, now_millis: u64, period_millis: u64) -> Vec<T> {
        let running = self.targets.values().filter(|target| target.runs).count();
        let mut due: Vec<(u64, T)> = self
            .targets
            .iter()
            .filter(|(_, target)| !target.runs && target.due <= now_millis)
            .map(|(name, target)| (target.due, name.clone()))
            .collect();
        due.sort_unstable();
        let gap = 1_000 / ROUNDS_PER_SEC;
        // What was not used in the past is not saved up beyond a second.
        self.earliest = self.earliest.max(now_millis.saturating_sub(1_000));
        let may = (now_millis.saturating_sub(self.earliest) / gap) as usize;
        due.truncate(may.min(AT_ONCE_MAX.saturating_sub(running)));
        self.earliest += due.len() as u64 * gap;
        for (was_due, name) in &due {
            if let Some(target) = self.targets.get_mut(name) {
                target.runs = true;
                // In step with the round before, unless that is long ago.
                target.due = (was_due + period_millis).max(now_millis + period_millis / 2);
            }
        }
        due.into_iter().map(|(_, name)| name).collect()
    }

    /// When the next round may begin, so when [`Self::begin`] has something to say. None: not before a target comes or a round ends.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let (running, rest): (Vec<_>, Vec<_>) = self.targets.values().partition(|target| target.runs);
        if running.len() >= AT_ONCE_MAX {
            return None;
        }
        let due = rest.iter().map(|target| target.due).min()?;
        Some(due.max(self.earliest + 1_000 / ROUNDS_PER_SEC))
    }

    /// Takes what a round has found. A round that could not be tried has found nothing, and changes nothing.
    pub fn end(&mut self, now_millis: u64, name: &T, found: &[Tried]) {
        let Some(target) = self.targets.get_mut(name) else { return };
        target.runs = false;
        for tried in found {
            target.known.entry(tried.what).or_default().add(now_millis, *tried);
        }
        if !found.is_empty() {
            let is_silent = found.iter().any(|tried| tried.ended == Ended::Unanswered);
            target.silent = if is_silent { target.silent.saturating_add(1) } else { 0 };
        }
    }

    /// Every target: what is known of its operations, and how many rounds in a row had something unanswered. None of that: it was
    /// not probed yet.
    pub fn known(&self) -> impl Iterator<Item = (&T, &BTreeMap<Try, Box<Known>>, u32)> {
        self.targets.iter().map(|(name, target)| (name, &target.known, target.silent))
    }

    /// How many targets there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether nothing is probed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}
