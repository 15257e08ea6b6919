//! Until when this node's active copies may serve.
//!
//! Where a node that has gone silent is replaced automatically ([`cluster::Metadata::needs_leases`]), it must stop by
//! itself before that: whoever cannot hear the leader cannot hear that he has been replaced either. A lease runs from
//! when the report was sent that it answers, by the node's own clock, and is shorter than the silence after which the
//! leader acts; no two clocks are compared. The clock goes on while the machine is suspended: a node that was put to
//! sleep must not wake up believing that it is still what it was.
//!
//! One number, read once per turn by every data-plane loop and written by whoever hears from the leader.

use std::sync::atomic::{AtomicU64, Ordering};

/// No lease is needed.
const UNBOUNDED: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Milliseconds of [`clock_millis`].
    until: AtomicU64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { until: AtomicU64::new(UNBOUNDED) }
    }
}

impl Lease {
    /// Whether actives must not serve now. Free of charge where no lease is needed.
    #[inline]
    pub(crate) fn has_run_out(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != UNBOUNDED && clock_millis() >= until
    }

    /// Milliseconds left; `None` where no lease is needed.
    pub(crate) fn left_millis(&self) -> Option<u64> {
        let until = self.until.load(Ordering::Relaxed);
        (until != UNBOUNDED).then(|| until.saturating_sub(clock_millis()))
    }

    /// From now on a lease is needed; `until` it ends if there was none before.
    pub(crate) fn require(&self, until: u64) {
        let _ = self.until.compare_exchange(UNBOUNDED, until, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// No lease is needed any more.
    pub(crate) fn waive(&self) {
        self.until.store(UNBOUNDED, Ordering::Relaxed);
    }

    /// Makes a lease that is needed last until then at least.
    pub(crate) fn extend(&self, until: u64) {
        let later = |now: u64| (now < until).then_some(until);
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }
}

/// Milliseconds since the machine was started, the time that it was suspended included.
pub(crate) fn clock_millis() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    secs.unwrap_or_default() * 1000 + nanos.unwrap_or_default() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_needed_from_when_that_is_said_and_only_grows() {
        let lease = Lease::default();
        lease.extend(clock_millis());
        assert!(!lease.has_run_out(), "none is needed");
        let now = clock_millis();
        lease.require(now + 3_600_000);
        lease.require(now);
        assert!(!lease.has_run_out(), "the one in force stays");
        lease.extend(now);
        assert!(!lease.has_run_out(), "an answer that comes late shortens nothing");
        assert!(lease.left_millis().is_some_and(|left| left > 3_500_000));
        lease.waive();
        assert_eq!(lease.left_millis(), None);
        lease.require(now);
        assert!(lease.has_run_out());
        lease.extend(now + 3_600_000);
        assert!(!lease.has_run_out());
    }
}
