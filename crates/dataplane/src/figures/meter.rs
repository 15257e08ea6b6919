//! Operation counters and latency histograms per bucket.
//!
//! Each worker has a row of its own, which only that worker writes: plain loads and stores, no locked
//! instruction, no shared cache line. Readers sum the rows; a reading may be a few operations old.
//!
//! A latency is the time from the read that brought the request to its answer being ready to be written. Of a pipelined
//! batch it is that of the whole batch, since nothing of it leaves earlier. Parked requests count from the
//! read as well. What the time of requests is spent on is counted by phase ([`crate::figures::phases`]).

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use stats::HotReport;

use crate::figures::{
    hot::{self, HotRow},
    phases::Phase,
};

/// Kinds of operation that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OpKind {
    Get,
    GetReplica,
    GetMeta,
    Set,
    Add,
    Replace,
    Delete,
    Increment,
    Decrement,
    Append,
    Prepend,
    Touch,
    GetAndTouch,
    Lock,
    Unlock,
    SetWithMeta,
    DeleteWithMeta,
    Observe,
    SubdocLookup,
    SubdocMutation,
    Other,
}

impl OpKind {
    /// Whether it changes a document, and a CAS that it names has to be the document's.
    pub(crate) const fn compares(self) -> bool {
        use OpKind as K;
        matches!(self, K::Set | K::Add | K::Replace | K::Delete | K::Append | K::Prepend | K::SubdocMutation)
    }

    /// Every kind with the name it has in statistics.
    pub const ALL: [(OpKind, &'static str); 21] = [
        (Self::Get, "get"),
        (Self::GetReplica, "get_replica"),
        (Self::GetMeta, "get_meta"),
        (Self::Set, "set"),
        (Self::Add, "add"),
        (Self::Replace, "replace"),
        (Self::Delete, "delete"),
        (Self::Increment, "incr"),
        (Self::Decrement, "decr"),
        (Self::Append, "append"),
        (Self::Prepend, "prepend"),
        (Self::Touch, "touch"),
        (Self::GetAndTouch, "gat"),
        (Self::Lock, "getl"),
        (Self::Unlock, "unlock"),
        (Self::SetWithMeta, "set_with_meta"),
        (Self::DeleteWithMeta, "del_with_meta"),
        (Self::Observe, "observe"),
        (Self::SubdocLookup, "subdoc_lookup"),
        (Self::SubdocMutation, "subdoc_mutation"),
        (Self::Other, "other"),
    ];
    const COUNT: usize = Self::ALL.len();
}

/// Buckets of a histogram: eight per power of two of microseconds, up to 2^26 (67 s).
const STEPS: usize = 8 * 24;

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Cell {
    #[inline]
    fn add(&self, amount: u64) {
        // One writer: a load and a store lose nothing.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The sum lies in one cache line with the steps up to 6 us, which most phases take. Each operation writes several of these.
#[derive(Debug)]
#[repr(C, align(64))]
struct Histogram {
    nanos: Cell,
    counts: [Cell; STEPS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| Cell::default()), nanos: Cell::default() }
    }
}

impl Histogram {
    /// Counts what took `nanos` each.
    #[inline]
    fn record(&self, count: u64, nanos: u64) {
        if let Some(cell) = self.counts.get(step_of(nanos / 1000)) {
            cell.add(count);
        }
        self.nanos.add(nanos.saturating_mul(count));
    }
}

/// Which bucket of a histogram a duration falls into.
#[inline]
pub fn step_of(micros: u64) -> usize {
    if micros < 8 {
        return micros as usize;
    }
    let magnitude = micros.ilog2();
    let fraction = (micros >> (magnitude - 3)) & 7;
    (((magnitude as usize - 2) * 8) + fraction as usize).min(STEPS - 1)
}

/// The smallest duration of a histogram's bucket, in microseconds.
pub fn step_floor(step: usize) -> u64 {
    if step < 8 {
        return step as u64;
    }
    let (magnitude, fraction) = (step / 8 + 2, (step % 8) as u64);
    (8 + fraction) << (magnitude - 3)
}

/// One worker's row.
#[derive(Debug, Default)]
struct Row {
    latencies: [Histogram; OpKind::COUNT],
    misses: [Cell; OpKind::COUNT],
    cas_hits: Cell,
    cas_misses: Cell,
    phases: [Histogram; Phase::COUNT],
    hot: HotRow,
}

/// What a worker takes in memory for a bucket, the table of what is hot included.
pub const WORKER_BYTES: usize = size_of::<Row>() + hot::BYTES;
/// What a reading of all histograms of a bucket takes in memory at most.
pub const READING_BYTES: usize = (OpKind::COUNT + Phase::COUNT) * STEPS * size_of::<LatencyStep>();

/// What housekeeping does for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Making room.
    Page,
    /// Removing what is past its expiry.
    Expire,
    /// Moving documents together.
    Defragment,
}

impl Chore {
    /// All, with their established names.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Page, "ItemPager"),
        (Self::Expire, "ExpiredItemPager"),
        (Self::Defragment, "DefragmenterTask"),
    ];
}

/// All workers' rows for one bucket, and the housekeeper's.
#[derive(Debug)]
pub struct BucketMeter {
    rows: Box<[Row]>,
    warm_up_began: OnceLock<Instant>,
    warm_up_took: OnceLock<Duration>,
    chores: [Histogram; Chore::ALL.len()],
    /// How long flushers held locks. They are several, and write a histogram that is one writer's.
    commits: Mutex<Histogram>,
    /// How long flushers took to write and sync. They are several as well.
    flushes: Mutex<Histogram>,
}

/// One line of a latency report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyStep {
    /// From this many microseconds on.
    pub from_micros: u64,
    /// Below this many.
    pub to_micros: u64,
    /// So many operations.
    pub count: u64,
}

/// What is known of one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseReport {
    /// Microseconds spent in it.
    pub micros: u64,
    /// Its histogram, empty steps left out.
    pub steps: Vec<LatencyStep>,
}

impl BucketMeter {
    /// A meter for that many workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            rows: (0..workers).map(|_| Row::default()).collect(),
            warm_up_began: OnceLock::new(),
            warm_up_took: OnceLock::new(),
            chores: Default::default(),
            commits: Mutex::default(),
            flushes: Mutex::default(),
        }
    }

    /// The first call counts.
    pub fn warm_up_begins(&self) {
        self.warm_up_began.get_or_init(Instant::now);
    }

    /// The first call counts.
    pub fn warm_up_ends(&self) {
        self.warm_up_took.get_or_init(|| self.warm_up_time());
    }

    /// How long warm-up took, or has taken so far; nothing where none is needed.
    #[must_use]
    pub fn warm_up_time(&self) -> Duration {
        let so_far = || self.warm_up_began.get().map_or(Duration::ZERO, Instant::elapsed);
        self.warm_up_took.get().copied().unwrap_or_else(so_far)
    }

    /// Counts a step that took so much processor time. Called by the housekeeper only.
    pub fn record_chore(&self, chore: Chore, took: Duration) {
        if let Some(histogram) = self.chores.get(chore as usize) {
            histogram.record(1, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Counts a lock that a flusher held for so much processor time.
    pub fn record_commit(&self, nanos: u64) {
        self.commits.lock().record(1, nanos);
    }

    /// Counts a flush that wrote or synced, and took so long.
    pub fn record_flush(&self, took: Duration) {
        self.flushes.lock().record(1, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How long flushes took, empty steps of the histogram left out.
    #[must_use]
    pub fn flushes(&self) -> PhaseReport {
        let histogram = self.flushes.lock();
        let histogram = std::iter::once(&*histogram);
        PhaseReport { micros: total_micros(histogram.clone()), steps: total_steps(histogram) }
    }

    /// Processor time for which flushers held locks, empty steps of the histogram left out.
    #[must_use]
    pub fn commits(&self) -> PhaseReport {
        let histogram = self.commits.lock();
        let histogram = std::iter::once(&*histogram);
        PhaseReport { micros: total_micros(histogram.clone()), steps: total_steps(histogram) }
    }

    /// Processor time of a chore's steps, empty steps of the histogram left out.
    #[must_use]
    pub fn chore(&self, chore: Chore) -> PhaseReport {
        let histogram = self.chores.get(chore as usize).into_iter();
        PhaseReport { micros: total_micros(histogram.clone()), steps: total_steps(histogram) }
    }

    /// Where a worker counts hot keys and clients.
    pub(crate) fn hot_row(&self, worker: usize) -> Option<&HotRow> {
        self.rows.get(worker).map(|row| &row.hot)
    }

    /// What most operations of the last seconds went to and came from; `now_millis` is of the loops' monotonic clock.
    #[must_use]
    pub fn hot(&self, bucket: &str, now_millis: u64) -> HotReport {
        let mut report = hot::report(self.rows.iter().map(|row| &row.hot), now_millis);
        bucket.clone_into(&mut report.bucket);
        report.clients.iter_mut().for_each(|client| bucket.clone_into(&mut client.bucket));
        report
    }

    /// Counts operations of one kind that took this long. Called by `worker` only.
    #[inline]
    pub fn record(&self, worker: usize, kind: OpKind, count: u64, micros: u64) {
        let Some(row) = self.rows.get(worker) else { return };
        if let Some(histogram) = row.latencies.get(kind as usize) {
            histogram.record(count, micros.saturating_mul(1000));
        }
    }

    /// Counts requests that spent `nanos` each in a phase. Called by `worker` only.
    #[inline]
    pub fn record_phase(&self, worker: usize, phase: Phase, count: u64, nanos: u64) {
        if let Some(histogram) = self.rows.get(worker).and_then(|row| row.phases.get(phase as usize)) {
            histogram.record(count, nanos);
        }
    }

    /// Counts an operation that found no document. Called by `worker` only.
    #[inline]
    pub(crate) fn miss(&self, worker: usize, kind: OpKind) {
        if let Some(cell) = self.rows.get(worker).and_then(|row| row.misses.get(kind as usize)) {
            cell.add(1);
        }
    }

    /// Counts a mutation that named a CAS, and matched it or found no document. Called by `worker` only.
    #[inline]
    pub(crate) fn compared(&self, worker: usize, is_hit: bool) {
        if let Some(row) = self.rows.get(worker) {
            if is_hit { &row.cas_hits } else { &row.cas_misses }.add(1);
        }
    }

    /// Mutations that named a CAS: those that matched it, and those that found no document.
    #[must_use]
    pub fn compared_all(&self) -> (u64, u64) {
        let sum = |of: fn(&Row) -> &Cell| self.rows.iter().map(|row| of(row).get()).sum();
        (sum(|row| &row.cas_hits), sum(|row| &row.cas_misses))
    }

    /// Operations of one kind.
    #[must_use]
    pub fn operations(&self, kind: OpKind) -> u64 {
        self.latencies(kind).iter().map(|step| step.count).sum()
    }

    /// Operations of one kind that found no document.
    #[must_use]
    pub fn misses(&self, kind: OpKind) -> u64 {
        self.rows.iter().filter_map(|row| row.misses.get(kind as usize)).map(Cell::get).sum()
    }

    /// Operations of every kind.
    #[must_use]
    pub fn total(&self) -> u64 {
        OpKind::ALL.iter().map(|(kind, _)| self.operations(*kind)).sum()
    }

    /// Microseconds spent on operations of one kind.
    #[must_use]
    pub fn micros(&self, kind: OpKind) -> u64 {
        total_micros(self.rows.iter().filter_map(|row| row.latencies.get(kind as usize)))
    }

    /// The histogram of one kind, empty steps left out.
    #[must_use]
    pub fn latencies(&self, kind: OpKind) -> Vec<LatencyStep> {
        total_steps(self.rows.iter().filter_map(|row| row.latencies.get(kind as usize)))
    }

    /// The histogram of several kinds together, empty steps left out.
    #[must_use]
    pub fn latencies_of(&self, kinds: &[OpKind]) -> Vec<LatencyStep> {
        let cells = self.rows.iter().flat_map(|row| {
            let of = |kind: &OpKind| row.latencies.get(*kind as usize);
            kinds.iter().filter_map(of)
        });
        total_steps(cells)
    }

    /// The histogram of all kinds together, empty steps left out.
    #[must_use]
    pub fn all_latencies(&self) -> Vec<LatencyStep> {
        total_steps(self.rows.iter().flat_map(|row| row.latencies.iter()))
    }

    /// What is known of one phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> PhaseReport {
        let histograms = self.rows.iter().filter_map(|row| row.phases.get(phase as usize));
        PhaseReport { micros: total_micros(histograms.clone()), steps: total_steps(histograms) }
    }
}

fn total_micros<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> u64 {
    histograms.map(|histogram| histogram.nanos.get()).sum::<u64>() / 1000
}

fn total_steps<'a>(histograms: impl Iterator<Item = &'a Histogram> + Clone) -> Vec<LatencyStep> {
    let mut steps = Vec::new();
    for step in 0..STEPS {
        let cells = histograms.clone().filter_map(|histogram| histogram.counts.get(step));
        let count: u64 = cells.map(Cell::get).sum();
        if count > 0 {
            let (from_micros, to_micros) = (step_floor(step), step_floor(step + 1));
            steps.push(LatencyStep { from_micros, to_micros, count });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_falls_between_the_bounds_of_its_step() {
        for micros in (0..5_000).chain((5_000..60_000_000).step_by(7_919)) {
            let step = step_of(micros);
            assert!(step_floor(step) <= micros && micros < step_floor(step + 1), "{micros} in {step}");
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }

    #[test]
    fn rows_of_several_workers_are_summed() {
        let meter = BucketMeter::new(2);
        meter.record(0, OpKind::Get, 1, 3);
        meter.record(1, OpKind::Get, 1, 3);
        meter.record(7, OpKind::Get, 1, 3);
        meter.miss(1, OpKind::Get);
        assert_eq!((meter.operations(OpKind::Get), meter.misses(OpKind::Get), meter.total()), (2, 1, 2));
        let expected = LatencyStep { from_micros: 3, to_micros: 4, count: 2 };
        assert_eq!((meter.latencies(OpKind::Get), meter.micros(OpKind::Get)), (vec![expected], 6));
    }

    #[test]
    fn shares_below_a_microsecond_add_up() {
        let meter = BucketMeter::new(2);
        meter.record_phase(0, Phase::Execute, 32, 500);
        meter.record_phase(1, Phase::Execute, 4, 9_000);
        let steps = vec![
            LatencyStep { from_micros: 0, to_micros: 1, count: 32 },
            LatencyStep { from_micros: 9, to_micros: 10, count: 4 },
        ];
        assert_eq!(meter.phase(Phase::Execute), PhaseReport { micros: 52, steps });
        assert_eq!(meter.phase(Phase::Fetch), PhaseReport::default());
    }
}
