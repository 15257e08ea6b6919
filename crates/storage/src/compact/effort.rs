//! What a step costs others: it works in slices, and asks after each whether it may go on. The answer may take a while,
//! which is how it is slowed down.

use std::sync::atomic::Ordering;

use crate::{api::Liveness, error::StoreError, log::Core};

/// Bytes read or written between two questions: well below a millisecond of a processor's time.
const SLICE_BYTES: u64 = 128 << 10;

/// See the module.
pub(crate) struct Effort<'a> {
    core: &'a Core,
    pub(super) liveness: &'a dyn Liveness,
    /// Since the last question.
    bytes: u64,
}

impl<'a> Effort<'a> {
    pub(super) fn new(core: &'a Core, liveness: &'a dyn Liveness) -> Self {
        Self { core, liveness, bytes: 0 }
    }

    /// Counts bytes that were read or written while so many bytes of memory were held.
    ///
    /// # Errors
    /// [`StoreError::Stopped`] when the step is to be given up.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: u64, memory_bytes: u64) -> Result<(), StoreError> {
        self.bytes += bytes;
        if self.bytes < SLICE_BYTES || self.rest(memory_bytes) {
            return Ok(());
        }
        Err(StoreError::Stopped)
    }

    /// As [`Effort::spend`], where it is too late for giving up.
    #[inline]
    pub(super) fn spend_unstoppably(&mut self, bytes: u64, memory_bytes: u64) {
        self.bytes += bytes;
        if self.bytes >= SLICE_BYTES {
            self.rest(memory_bytes);
        }
    }

    fn rest(&mut self, memory_bytes: u64) -> bool {
        self.bytes = 0;
        // Somebody waits for the step's end, and may be a client.
        let is_awaited = || self.core.compaction_awaited.load(Ordering::Relaxed) > 0;
        !is_awaited() && self.liveness.go_on(memory_bytes) && !is_awaited()
    }
}
