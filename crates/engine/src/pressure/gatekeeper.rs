//! What a bucket remembers of the writers that it paces and refuses.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use base::Now;
use parking_lot::Mutex;

use crate::{api::pressure::Pressure, pressure::pacing::Pacer};

pub(crate) const SYNC_BYTES_MIN: u64 = 1 << 20;

/// A refusal is still the state of things for so long.
const REFUSED_MILLIS: u64 = 2_000;

/// See the module header.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    /// Asked by every mutation that grows memory, written when pacing begins and ends.
    pub(crate) is_paced: AtomicBool,
    pub(crate) step: AtomicU8,
    /// When somebody was last refused, in monotonic milliseconds plus one; 0: never.
    pub(crate) refused_at: AtomicU64,
    pub(crate) sync_bytes: AtomicU64,
    pub(crate) paced: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) pacer: Mutex<Pacing>,
}

#[derive(Debug, Default)]
pub(crate) struct Pacing {
    pub(crate) pacer: Pacer,
    /// Waiting bytes that the pools know of.
    pub(crate) accounted: u64,
}

impl Default for Gatekeeper {
    fn default() -> Self {
        Self {
            is_paced: AtomicBool::default(),
            step: AtomicU8::default(),
            refused_at: AtomicU64::default(),
            // Until it is known how the disk does.
            sync_bytes: SYNC_BYTES_MIN.into(),
            paced: AtomicU64::default(),
            refused: AtomicU64::default(),
            pacer: Mutex::default(),
        }
    }
}

impl Gatekeeper {
    pub(crate) fn step(&self) -> Pressure {
        Pressure::from_number(self.step.load(Ordering::Relaxed))
    }

    /// Somebody was refused for want of room.
    pub(crate) fn refuse(&self, now: Now) {
        self.refused_at.store(now.mono_millis.saturating_add(1), Ordering::Relaxed);
        self.step.store(Pressure::Refusing as u8, Ordering::Relaxed);
    }

    pub(crate) fn has_refused_lately(&self, now: Now) -> bool {
        let at = self.refused_at.load(Ordering::Relaxed);
        at != 0 && (now.mono_millis + 1).saturating_sub(at) < REFUSED_MILLIS
    }

    /// Bytes to commit per sync.
    pub(crate) fn sync_bytes(&self) -> u64 {
        self.sync_bytes.load(Ordering::Relaxed)
    }
}
