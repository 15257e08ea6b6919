//! A vBucket's hybrid logical clock: where CAS values come from.
//!
//! A CAS is the wall clock in nanoseconds with the low 16 bits cleared. When the clock has not moved on (or has gone
//! back), it is one more than the last CAS. No CAS is ever given out twice. So that this holds across restarts, a
//! shard keeps a synced ceiling on disk ahead of the clock (`ceiling`), which this clock refuses to pass.

use base::{Cas, Now};

/// Low bits that count events within one reading of the clock.
const LOGICAL_MASK: u64 = 0xffff;

/// How far into the future a CAS that comes from another cluster may lie (kv_engine,
/// `hlc_max_future_threshold_us`).
const FUTURE_NANOS_MAX: u64 = 65 * 60 * 1_000_000_000;

/// The last CAS given out or seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hlc {
    last: u64,
}

impl Hlc {
    /// Starts above everything up to `floor`.
    pub(crate) const fn above(floor: Cas) -> Self {
        Self { last: floor.get() }
    }

    /// The last CAS given out or seen.
    pub(crate) const fn last(self) -> Cas {
        Cas(self.last)
    }

    /// The next CAS, unless it would lie above `ceiling`.
    #[inline]
    pub(crate) fn tick(&mut self, now: Now, ceiling: Cas) -> Option<Cas> {
        let next = (now.wall_nanos & !LOGICAL_MASK).max(self.last.saturating_add(1));
        if next > ceiling.get() {
            return None;
        }
        self.last = next;
        Some(Cas(next))
    }

    /// Takes note of a CAS that somebody else gave out.
    pub(crate) fn witness(&mut self, cas: Cas) {
        self.last = self.last.max(cas.get());
    }
}

/// Whether a CAS from elsewhere is one that this node may adopt: not a reserved number, not from the far future.
pub(crate) const fn is_acceptable(cas: Cas, now: Now) -> bool {
    !matches!(cas, Cas::NONE | Cas::LOCKED) && cas.get() <= now.wall_nanos.saturating_add(FUTURE_NANOS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_nanos: u64) -> Now {
        Now { wall_nanos, mono_millis: 0 }
    }

    #[test]
    fn a_cas_is_never_given_out_twice_even_when_the_clock_goes_back() {
        let mut hlc = Hlc::default();
        let ceiling = Cas(u64::MAX - 1);
        let mut last = Cas::NONE;
        for wall in [1 << 20, 1 << 20, (1 << 20) + 5, 1 << 10, 1 << 21, 0] {
            let cas = hlc.tick(at(wall), ceiling).unwrap();
            assert!(cas > last);
            last = cas;
        }
    }

    #[test]
    fn the_ceiling_holds() {
        let mut hlc = Hlc::above(Cas(100));
        assert_eq!(hlc.tick(at(0), Cas(101)), Some(Cas(101)));
        assert_eq!(hlc.tick(at(0), Cas(101)), None);
        assert_eq!(hlc.tick(at(1 << 30), Cas(101)), None);
        assert_eq!(hlc.last(), Cas(101), "a refusal changes nothing");
    }

    #[test]
    fn reserved_numbers_and_the_far_future_are_not_adopted() {
        assert!(!is_acceptable(Cas::NONE, at(5)));
        assert!(!is_acceptable(Cas::LOCKED, at(u64::MAX)));
        assert!(is_acceptable(Cas(FUTURE_NANOS_MAX), at(0)));
        assert!(!is_acceptable(Cas(FUTURE_NANOS_MAX + 1), at(0)));
    }
}
