//! How much may be taken in so that compaction keeps up. What writers overwrite is dead on disk until it is reclaimed, and a
//! disk that takes everything fills up.
//!
//! Where it settles depends on writers too: the less they do, the more of the processor and of the disk compaction has. There is
//! no stop: space that deletions have left is reclaimed beside writers.

use super::{keep_up, rate::MeasuredRate};

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct SpacePacer {
    reclaim: MeasuredRate,
}

impl SpacePacer {
    /// Takes note: `reclaimed` bytes have been given back, ever; above a `pressure` of zero compaction does all it can.
    pub(super) fn observe(&mut self, now_millis: u64, reclaimed: u64, pressure: f64) {
        let backlog = if pressure > 0.0 { u64::MAX } else { 0 };
        self.reclaim.observe(now_millis, reclaimed, backlog);
    }

    /// Bytes per second that may be taken in where so many drain; infinite below a pressure of zero.
    pub(super) fn rate(&self, pressure: f64, drain: Option<f64>) -> f64 {
        keep_up::rate(pressure, drain, self.reclaim.known().unwrap_or_default())
    }

    /// Bytes per second that compaction reclaims when it has to.
    pub(super) fn reclaim_rate(&self) -> u64 {
        self.reclaim.known().unwrap_or_default() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compaction_was_seen_to_reclaim_is_what_writers_have() {
        let mut pacer = SpacePacer::default();
        for step in 0..100 {
            pacer.observe(step * 100, step * 100_000, 1.0);
        }
        let rate = pacer.rate(0.5, Some(4e6));
        assert!((rate / 1e6 - 1.0).abs() < 0.01, "{rate}");
    }
}
