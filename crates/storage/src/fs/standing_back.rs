//! Threads that stand back at the disk: what they ask a throttled file system for gives way to what others do.
//!
//! It belongs to the thread that asks and not to the request, as the priorities do that operating systems give to reads
//! and writes. A background thread says so once, and no code in between has to hand it on. Where others wait for what
//! such a thread holds meanwhile, it stands back no longer.

use std::cell::Cell;

thread_local! {
    /// The share that the thread has in any case, if it stands back.
    static LEAST: Cell<Option<f64>> = const { Cell::new(None) };
}

/// Smaller shares are none: a thread that stands back still gets somewhere.
const LEAST_MIN: f64 = 1.0 / 256.0;

/// From here on the calling thread has of a disk what nobody else wants, and this share of it in any case.
pub fn stand_back(least: f64) {
    LEAST.set(Some(least.clamp(LEAST_MIN, 1.0)));
}

/// From here on the calling thread waits for the disk like any other.
pub fn stand_in_line() {
    LEAST.set(None);
}

/// Does something that others wait for: meanwhile the calling thread does not stand back.
pub(crate) fn in_line<R>(work: impl FnOnce() -> R) -> R {
    let before = LEAST.take();
    let done = work();
    LEAST.set(before);
    done
}

/// The share that the calling thread has in any case; none if it does not stand back.
pub(super) fn least() -> Option<f64> {
    LEAST.get()
}
