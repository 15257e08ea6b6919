//! Readings of the clock that operations are timed with.
//!
//! Each turn of a connection reads it three times ([`ticks`]) and takes four differences. An [`std::time::Instant`] has seconds and nanoseconds, whose
//! difference costs ten times as many instructions as that of two numbers.

use std::time::Duration;

use super::ticks;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// When the clock was read: nanoseconds of the machine's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reading(u64);

/// Nanoseconds of the machine's monotonic clock, as the system tells them.
pub(super) fn clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is negative, and the seconds since the machine's start are few.
    (time.tv_sec as u64).wrapping_mul(NANOS_PER_SEC).wrapping_add(time.tv_nsec as u64)
}

impl Reading {
    #[inline]
    pub(crate) fn now() -> Self {
        Self(ticks::nanos().unwrap_or_else(clock))
    }

    /// Nanoseconds from an earlier reading to this one; none where that is the later one.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The same as a duration, off the path of each operation.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

#[cfg(test)]
impl std::ops::Add<Duration> for Reading {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn readings_run_as_the_clock_of_the_standard_library_does() {
        let (first, before) = (Reading::now(), Instant::now());
        std::thread::yield_now();
        let (after, second) = (Instant::now(), Reading::now());
        assert!(second.since(first) >= after - before);
        assert_eq!(first.nanos_since(second), 0, "the clock does not run backwards");
        assert_eq!((first + Duration::from_micros(3)).nanos_since(first), 3_000);
    }
}
