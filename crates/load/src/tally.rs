//! What a stretch of load came to: latencies per operation and ending, and where the time went.
//!
//! Invariants: every finished operation is in exactly one histogram of exactly one interval. So counts of rows,
//! intervals, threads and workers add up to the operations without remainder. Merging adds counts bucket by bucket
//! and loses nothing, because every histogram has the same bounds.

use crate::op::{Class, Op};
use crate::wire::told_within;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies are kept between 100 ns and an hour, with three significant digits. An open loop against a stalled
/// server measures long waits, so the end is far out.
const LOWEST_NANOS: u64 = 100;
const HIGHEST_NANOS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// So many records whose values were wrong are told with their history.
pub const HISTORIES_MAX: usize = 20;

/// A histogram of latencies in nanoseconds; takes memory with the first one.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Option<Box<Histogram<u64>>>);

impl Latencies {
    /// An empty histogram with the bounds of all of them.
    #[must_use]
    pub fn histogram() -> Histogram<u64> {
        // Bounds and digits are constants within what the crate documents as valid.
        match Histogram::new_with_bounds(LOWEST_NANOS, HIGHEST_NANOS, DIGITS) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("constant bounds: {error}"),
        }
    }

    /// One more.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.0.get_or_insert_with(|| Box::new(Self::histogram())).saturating_record(nanos);
    }

    /// All of `other` as well.
    pub fn merge(&mut self, other: &Latencies) {
        if let Some(other) = other.get() {
            let own = self.0.get_or_insert_with(|| Box::new(Self::histogram()));
            // Fails only for values outside the bounds, and recording saturates into them.
            let added = own.add(other);
            debug_assert!(added.is_ok(), "{added:?}");
        }
    }

    /// The buckets; `None` while nothing was recorded.
    #[must_use]
    pub fn get(&self) -> Option<&Histogram<u64>> {
        self.0.as_deref()
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.get().map_or(0, Histogram::len)
    }

    /// The latency that this percentage did not exceed, in nanoseconds.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        self.get().map_or(0, |histogram| histogram.value_at_quantile(percent / 100.0))
    }

    /// As [`Latencies::percentile`], in microseconds.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.percentile(percent) as f64 / 1000.0
    }

    /// The longest, in microseconds.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.get().map_or(0.0, |histogram| histogram.max() as f64 / 1000.0)
    }

    /// The shortest, in microseconds.
    #[must_use]
    pub fn min_us(&self) -> f64 {
        self.get().map_or(0.0, |histogram| histogram.min() as f64 / 1000.0)
    }

    /// The arithmetic mean, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.get().map_or(0.0, |histogram| histogram.mean() / 1000.0)
    }
}

impl From<Histogram<u64>> for Latencies {
    /// `histogram` must have the common bounds; another's counts are put where they belong.
    fn from(histogram: Histogram<u64>) -> Latencies {
        let mut latencies = Latencies::default();
        latencies.merge(&Latencies(Some(Box::new(histogram))));
        latencies
    }
}

/// One operation's latencies by ending.
#[derive(Clone, Debug, Default)]
pub struct OpTally {
    /// It did what it should.
    pub ok: Latencies,
    /// The answer was no.
    pub miss: Latencies,
    /// Refused or broken off.
    pub failed: Latencies,
}

impl OpTally {
    /// The histogram of an ending.
    pub fn of(&mut self, class: Class) -> &mut Latencies {
        match class {
            Class::Success => &mut self.ok,
            Class::Miss => &mut self.miss,
            Class::Failure => &mut self.failed,
        }
    }

    /// All endings together.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ok.count() + self.miss.count() + self.failed.count()
    }

    fn merge(&mut self, other: &OpTally) {
        self.ok.merge(&other.ok);
        self.miss.merge(&other.miss);
        self.failed.merge(&other.failed);
    }
}

/// Where the time of successful operations went, as far as this run could see.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// From the intended start to the request's way out (open loop).
    pub queue: Latencies,
    /// From the way out to the reply's arrival in this process.
    pub service: Latencies,
    /// The part of `service` that the server reports for itself.
    pub server: Latencies,
    /// The part of `service` that the reply waited in this machine's kernel for this process.
    pub receive: Latencies,
    /// From the way out to the reply's arrival in this process, less what the server reports for itself: network, sockets and this process.
    pub beside: Latencies,
}

impl Split {
    fn merge(&mut self, other: &Split) {
        self.queue.merge(&other.queue);
        self.service.merge(&other.service);
        self.server.merge(&other.server);
        self.receive.merge(&other.receive);
        self.beside.merge(&other.beside);
    }
}

/// Counts and latencies of a stretch of load.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    ops: Vec<OpTally>,
    /// Where the time went.
    pub split: Split,
    /// Documents that multi-gets found and missed.
    pub keys_found: u64,
    /// See `keys_found`.
    pub keys_missed: u64,
    /// Bytes of the values of successful operations.
    pub bytes: u64,
    /// "Temporary failure" answers; each was retried.
    pub temporary: u64,
    /// Those of which the server said why it could not do something yet, by its words.
    pub reasons: BTreeMap<String, u64>,
    /// "Not my vBucket" answers; each was tried again with a newer map.
    pub moved: u64,
    /// Failures by what the server called them.
    pub failures: BTreeMap<String, u64>,
    /// Documents that came back different from anything that was stored.
    pub corrupt: u64,
    /// What validation found, by [`crate::validate::Violation`].
    pub violations: BTreeMap<String, u64>,
    /// What happened to the first records it concerns.
    pub histories: Vec<String>,
    /// Operations that by the server's account took longer than this process waited for them.
    pub overstated: u64,
    /// Connections that broke and were made again.
    pub reconnects: u64,
    /// Operations that were due before the end and could not be sent (open loop).
    pub unsent: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// How long whatever had not ended by the end of it had been waited for, at most.
    pub waiting: Duration,
}

impl Tally {
    /// One operation has ended.
    #[inline]
    pub fn record(&mut self, op: Op, class: Class, nanos: u64) {
        if self.ops.is_empty() {
            self.ops.resize_with(Op::ALL.len(), OpTally::default);
        }
        self.ops[op as usize].of(class).record(nanos);
    }

    /// What the server reports of an operation that took `nanos` from its way out to its reply.
    #[inline]
    pub fn told(&mut self, nanos: u64, micros: u64) {
        let told = micros * 1000;
        self.split.server.record(told);
        self.split.beside.record(nanos.saturating_sub(told));
        // A little more is its rounding.
        let is_more = told > nanos && told_within(micros).0 * 1000 > nanos;
        self.overstated += u64::from(is_more);
    }

    /// The histogram of an operation and ending, to be filled by the merging thread.
    pub fn of(&mut self, op: Op, class: Class) -> &mut Latencies {
        if self.ops.is_empty() {
            self.ops.resize_with(Op::ALL.len(), OpTally::default);
        }
        self.ops[op as usize].of(class)
    }

    /// Adds everything of `other`; `elapsed` becomes the longer one, since threads run side by side.
    pub fn merge(&mut self, other: &Tally) {
        if self.ops.len() < other.ops.len() {
            self.ops.resize_with(other.ops.len(), OpTally::default);
        }
        for (own, other) in self.ops.iter_mut().zip(&other.ops) {
            own.merge(other);
        }
        self.split.merge(&other.split);
        self.keys_found += other.keys_found;
        self.keys_missed += other.keys_missed;
        self.bytes += other.bytes;
        self.temporary += other.temporary;
        add_counts(&mut self.reasons, &other.reasons);
        self.moved += other.moved;
        add_counts(&mut self.failures, &other.failures);
        self.corrupt += other.corrupt;
        add_counts(&mut self.violations, &other.violations);
        let room = HISTORIES_MAX.saturating_sub(self.histories.len());
        self.histories.extend(other.histories.iter().take(room).cloned());
        self.overstated += other.overstated;
        self.reconnects += other.reconnects;
        self.unsent += other.unsent;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.waiting = self.waiting.max(other.waiting);
    }

    /// The operations that occurred.
    pub fn ops(&self) -> impl Iterator<Item = (Op, &OpTally)> {
        Op::ALL.iter().copied().zip(&self.ops).filter(|(_, tally)| tally.count() > 0)
    }

    /// Successful operations.
    #[must_use]
    pub fn ok(&self) -> u64 {
        self.ops.iter().map(|op| op.ok.count()).sum()
    }

    /// Operations whose answer was no.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.ops.iter().map(|op| op.miss.count()).sum()
    }

    /// Operations that were refused or broken off.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.ops.iter().map(|op| op.failed.count()).sum()
    }

    /// Operations that were carried out: a miss is an answer, a failure is none.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.ok() + self.misses()
    }

    /// Successful and missed operations of reads, or of writes.
    #[must_use]
    pub fn done_of(&self, reads: bool) -> u64 {
        let side = self.ops().filter(|(op, _)| op.is_read() == reads);
        side.map(|(_, tally)| tally.ok.count() + tally.miss.count()).sum()
    }

    /// Successful operations of reads, or of writes.
    #[must_use]
    pub fn ok_of(&self, reads: bool) -> u64 {
        self.ops().filter(|(op, _)| op.is_read() == reads).map(|(_, tally)| tally.ok.count()).sum()
    }

    /// Latencies of all successful operations, or of those of one side.
    #[must_use]
    pub fn latencies(&self, reads: Option<bool>) -> Latencies {
        let mut all = Latencies::default();
        for (op, tally) in self.ops() {
            if reads.is_none_or(|reads| op.is_read() == reads) {
                all.merge(&tally.ok);
            }
        }
        all
    }

    /// Carried out operations per second.
    #[must_use]
    pub fn ops_per_sec(&self) -> f64 {
        self.done() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// What the most frequent failure was, in the server's words.
    #[must_use]
    pub fn main_failure(&self) -> Option<&str> {
        most_frequent(&self.failures)
    }

    /// Why most temporary failures were, in the server's words.
    #[must_use]
    pub fn main_reason(&self) -> Option<&str> {
        most_frequent(&self.reasons)
    }
}

fn add_counts(counts: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        *counts.entry(name.clone()).or_default() += count;
    }
}

fn most_frequent(counts: &BTreeMap<String, u64>) -> Option<&str> {
    counts.iter().max_by_key(|(_, count)| **count).map(|(name, _)| name.as_str())
}

/// One thread's tally of one interval of the run. Interval `i` holds what ended from `i` to `i + 1` times the length.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Its number since the start of the run.
    pub index: u64,
    /// What happened in it.
    pub tally: Tally,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_parts_equal_the_whole() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut whole, mut parts) =
            (Tally::default(), [Tally::default(), Tally::default(), Tally::default()]);
        for _ in 0..50_000 {
            let op = Op::ALL[rng.usize(..Op::ALL.len())];
            let class = [Class::Success, Class::Miss, Class::Failure][rng.usize(..3)];
            let nanos = 1 << rng.u32(0..45);
            whole.record(op, class, nanos);
            parts[rng.usize(..3)].record(op, class, nanos);
        }
        let mut merged = Tally::default();
        for part in &parts {
            merged.merge(part);
        }
        assert_eq!(merged.ok() + merged.misses() + merged.failed(), 50_000, "rows add up");
        for ((op, one), (_, other)) in whole.ops().zip(merged.ops()) {
            assert_eq!(one.ok.get(), other.ok.get(), "{op:?}");
            assert_eq!(one.miss.get(), other.miss.get(), "{op:?}");
            assert_eq!(one.failed.get(), other.failed.get(), "{op:?}");
        }
    }

    #[test]
    fn what_the_server_tells_is_a_part_of_what_was_waited_for() {
        let mut tally = Tally::default();
        tally.told(50_000, 12);
        assert_eq!(
            (tally.split.server.count(), tally.split.beside.max_us().round(), tally.overstated),
            (1, 38.0, 0)
        );
        // Told as 11 us it may have been 10, and no 9.
        tally.told(10_500, 11);
        assert_eq!(tally.overstated, 0);
        tally.told(9_500, 11);
        assert_eq!((tally.split.beside.count(), tally.overstated), (3, 1));
    }

    #[test]
    fn a_percentile_lies_in_the_bucket_that_holds_it() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut latencies = Latencies::default();
        let mut samples: Vec<u64> =
            (0..10_001).map(|_| 100 + (1u64 << rng.u32(7..36)) + rng.u64(..100)).collect();
        samples.iter().for_each(|&nanos| latencies.record(nanos));
        samples.sort_unstable();
        let histogram = latencies.get().expect("samples");
        for percent in [0.1, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let rank = ((percent / 100.0 * samples.len() as f64).ceil() as usize).max(1) - 1;
            assert!(histogram.equivalent(latencies.percentile(percent), samples[rank]), "p{percent}");
        }
    }
}
