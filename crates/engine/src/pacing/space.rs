//! How much may be taken in so that compaction keeps up: what writers overwrite is dead on disk until it is reclaimed, and a
//! disk that takes everything fills up.
//!
//! Two rates are known: what drains, and what compaction reclaims while it is pressed. From where space is short on, what is
//! taken in goes over from the first to the second, and on to less than that. In between it settles, wherever that is: the less
//! writers do, the more of the processor and of the disk compaction has. There is no step in it, and no stop: space that deletions
//! have left is reclaimed beside writers, who never have less than a quarter of what is reclaimed: as much as is left of it for
//! each of four copies, of which three come over the network.

use super::{RATE_MIN, RATE_UNKNOWN, rate::MeasuredRate};

/// Where as much may be taken in as is reclaimed.
const SETTLED: f64 = 0.5;
/// What writers have of the reclaimed at least.
const SHARE_MIN: f64 = 0.25;
/// And of what drains: compaction that waits for a busy disk shows nothing for seconds, in which nobody is to be refused. It is
/// less beyond the limit, and nothing as far beyond it again.
const DRAIN_SHARE_MIN: f64 = 1.0 / 16.0;

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
        if pressure <= 0.0 {
            return f64::INFINITY;
        }
        let reclaim = self.reclaim.known().unwrap_or_default().max(RATE_MIN);
        let sustainable = reclaim * ((1.0 - pressure) / (1.0 - SETTLED)).clamp(SHARE_MIN, 2.0);
        let drain = drain.unwrap_or(RATE_UNKNOWN);
        let least = drain * DRAIN_SHARE_MIN * (2.0 - pressure).clamp(0.0, 1.0);
        let (sustainable, drain) = (sustainable.max(least), drain.max(sustainable));
        let way = (pressure / SETTLED).min(1.0);
        drain + (sustainable - drain) * way
    }

    /// Bytes per second that compaction reclaims when it has to.
    pub(super) fn reclaim_rate(&self) -> u64 {
        self.reclaim.known().unwrap_or_default() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of which `reclaim` bytes per second are given back has been watched for some seconds.
    fn pacer(reclaim: u64) -> SpacePacer {
        let mut pacer = SpacePacer::default();
        for step in 0..100 {
            pacer.observe(step * 100, step * reclaim / 10, 1.0);
        }
        pacer
    }

    #[test]
    fn it_goes_from_what_drains_to_what_is_reclaimed_without_a_step() {
        let pacer = pacer(1_000_000);
        let rate = |pressure| pacer.rate(pressure, Some(4e6));
        assert!(rate(0.0) == f64::INFINITY && rate(-1.0) == f64::INFINITY);
        assert!((rate(1e-6) / 4e6 - 1.0).abs() < 0.01 && (rate(0.5) / 1e6 - 1.0).abs() < 0.01);
        let rates: Vec<_> = (1..200).map(|step| rate(f64::from(step) / 100.0)).collect();
        assert!(rates.is_sorted_by(|more, less| more >= less), "{rates:?}");
        let steepest = rates.windows(2).map(|pair| pair[0] - pair[1]).fold(0.0, f64::max);
        assert!(steepest < 0.1 * 4e6, "{steepest}");
    }

    #[test]
    fn nobody_is_stopped_by_what_others_have_deleted() {
        let rate = pacer(1_000_000).rate(30.0, Some(4e6));
        assert!((rate / 2.5e5 - 1.0).abs() < 0.01, "{rate}");
        assert!(SpacePacer::default().rate(30.0, None) > 0.0);
    }

    #[test]
    fn nobody_is_stopped_while_compaction_waits_for_the_disk() {
        let rate = |pressure| pacer(0).rate(pressure, Some(32e6));
        assert!((rate(0.9) / 2e6 - 1.0).abs() < 0.01, "{}", rate(0.9));
        assert!(rate(1.5) < rate(0.9) && rate(2.0) < 1e5, "but not for ever");
    }
}
