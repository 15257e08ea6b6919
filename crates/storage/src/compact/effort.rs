//! What a step costs others: it works in slices, and asks after each whether it may go on. The answer may take a while,
//! which is how it is slowed down. And how far it has come: the disk gets everything back at the end of a step, which may
//! take long. The choice of victims, which goes by how much is dead, wants to know before.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    api::Liveness, counters::count, error::StoreError, format::UNIT, fs::stand_in_line, segment::Segment,
    state::Core,
};

/// Bytes read or written between two questions: well below a millisecond of a processor's time.
const SLICE_BYTES: u64 = 128 << 10;

/// See the module.
pub(crate) struct Effort<'a> {
    core: &'a Core,
    pub(super) liveness: &'a dyn Liveness,
    /// Since the last question.
    bytes: u64,
    /// Up to then.
    spent: u64,
    expected: Expected,
    /// Bytes of outputs beside the inputs whose place they are going to take.
    doubled: u64,
}

/// What a step is going to cost and to bring, by what is known of its victims beforehand; nothing where that does not matter.
#[derive(Default)]
struct Expected {
    work: u64,
    gain: u64,
}

impl Expected {
    fn of(inputs: &[Arc<Segment>]) -> Self {
        let sum = |of: fn(&Segment) -> u64| inputs.iter().map(|input| of(input)).sum::<u64>() * UNIT;
        let (all, live) = (sum(Segment::units), sum(Segment::live_units));
        // Everything is read once, and what is alive read, written, and read again.
        Self { work: all + 3 * live, gain: all.saturating_sub(live) }
    }

    /// What of the gain so much work stands for.
    fn earned(&self, work: u64) -> u64 {
        (self.gain as f64 * (work as f64 / self.work.max(1) as f64).min(1.0)) as u64
    }
}

impl<'a> Effort<'a> {
    pub(super) fn new(core: &'a Core, liveness: &'a dyn Liveness) -> Self {
        Self { core, liveness, bytes: 0, spent: 0, expected: Expected::default(), doubled: 0 }
    }

    /// The work is going to be the compaction of these.
    pub(super) fn expect(&mut self, inputs: &[Arc<Segment>]) {
        self.expected = Expected::of(inputs);
    }

    /// So many bytes of outputs have joined the set, and their inputs have not left it yet.
    pub(super) fn double(&mut self, bytes: u64) {
        self.doubled = bytes;
        self.tell();
    }

    /// The inputs have left the set, and with the outputs so many bytes were given back.
    pub(super) fn finish(&mut self, reclaimed: u64) {
        count(&self.core.counters.reclaimed, reclaimed);
        (self.expected, self.doubled) = (Expected::default(), 0);
        self.tell();
    }

    fn tell(&self) {
        let reclaiming = self.expected.earned(self.spent) + self.doubled;
        self.core.counters.reclaiming.store(reclaiming, Ordering::Relaxed);
    }

    /// Counts bytes that were read or written. `memory_bytes` tells at the end of a slice how many bytes of memory are held.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when the step is to be given up.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: u64, memory_bytes: impl Fn() -> u64) -> Result<(), StoreError> {
        self.bytes += bytes;
        if self.bytes < SLICE_BYTES || self.rest(memory_bytes()) {
            return Ok(());
        }
        Err(StoreError::Stopped)
    }

    /// As [`Effort::spend`], where it is too late for giving up.
    #[inline]
    pub(super) fn spend_unstoppably(&mut self, bytes: u64, memory_bytes: impl Fn() -> u64) {
        self.bytes += bytes;
        if self.bytes >= SLICE_BYTES {
            self.rest(memory_bytes());
        }
    }

    fn rest(&mut self, memory_bytes: u64) -> bool {
        self.spent += std::mem::take(&mut self.bytes);
        self.tell();
        // Somebody waits for the step's end, and may be a client.
        let is_awaited = || self.core.compaction_awaited.load(Ordering::Relaxed) > 0;
        let goes_on = !is_awaited() && self.liveness.go_on(memory_bytes) && !is_awaited();
        if !goes_on {
            // Where it is too late for giving up the end shall at least come soon.
            stand_in_line();
        }
        goes_on
    }
}

impl Drop for Effort<'_> {
    /// What was given up has reclaimed nothing.
    fn drop(&mut self) {
        self.core.counters.reclaiming.store(0, Ordering::Relaxed);
    }
}
