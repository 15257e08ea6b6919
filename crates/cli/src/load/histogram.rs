//! What a phase of load came to: counts that keep good and bad apart, and latencies.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Latencies are kept between 100 ns and two minutes, with three significant digits.
const LOWEST_NANOS: u64 = 100;
const HIGHEST_NANOS: u64 = 120_000_000_000;

/// A histogram of latencies.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Latencies {
        // Bounds and digits are constants within what the crate documents as valid.
        match Histogram::new_with_bounds(LOWEST_NANOS, HIGHEST_NANOS, 3) {
            Ok(histogram) => Latencies(histogram),
            Err(error) => unreachable!("constant bounds: {error}"),
        }
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// The latency that this percentage of the operations did not exceed, in microseconds.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        self.0.value_at_quantile(percent / 100.0) as f64 / 1000.0
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.0.mean() / 1000.0
    }
}

/// Counts of one phase.
pub(crate) struct Tally {
    /// Reads that returned the document.
    pub(crate) hits: u64,
    /// Reads that found none.
    pub(crate) misses: u64,
    /// Writes that were acknowledged.
    pub(crate) stored: u64,
    /// "Temporary failure" answers; each was retried.
    pub(crate) temporary: u64,
    /// Refusals of any other kind.
    pub(crate) errors: u64,
    /// What the first of them said.
    pub(crate) first_error: Option<String>,
    /// Documents that came back different from what was stored.
    pub(crate) corrupt: u64,
    /// Bytes of the values of acknowledged writes and of hits.
    pub(crate) bytes: u64,
    /// How long the phase took.
    pub(crate) elapsed: Duration,
    /// Successful reads, misses included.
    pub(crate) read_latencies: Latencies,
    /// Acknowledged writes.
    pub(crate) write_latencies: Latencies,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally {
            hits: 0,
            misses: 0,
            stored: 0,
            temporary: 0,
            errors: 0,
            first_error: None,
            corrupt: 0,
            bytes: 0,
            elapsed: Duration::ZERO,
            read_latencies: Latencies::new(),
            write_latencies: Latencies::new(),
        }
    }

    /// Operations that did what they should: a miss is an answer, an error is none.
    pub(crate) fn done(&self) -> u64 {
        self.hits + self.misses + self.stored
    }

    /// Replies of any kind.
    pub(crate) fn answers(&self) -> u64 {
        self.done() + self.temporary + self.errors
    }

    pub(crate) fn ops_per_sec(&self) -> f64 {
        self.done() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}
