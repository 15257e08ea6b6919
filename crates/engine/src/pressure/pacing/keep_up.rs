//! How much may be taken in so that something slower than the disk keeps up: compaction, or copies on other nodes.
//!
//! Two rates are known: what drains, and what the other takes. From where that falls behind on, what is taken in goes over from
//! the first to the second, and on to less than that. In between it settles, wherever that is. There is no step in it.

use super::{RATE_MIN, RATE_UNKNOWN};

/// Where as much may be taken in as the other takes.
const SETTLED: f64 = 0.5;
/// Writers have at least this part of what the other takes. Of what compaction reclaims, as much is left for each of four copies,
/// of which three come over the network.
const SHARE_MIN: f64 = 0.25;
/// And of what drains: a copy that waits for a busy disk shows nothing for seconds, in which nobody is to be refused. It is less beyond
/// the limit, and nothing as far beyond it again.
const DRAIN_SHARE_MIN: f64 = 1.0 / 16.0;

/// Bytes per second that may be taken in where so many `drain`, and so many the `other` takes. Pressure is zero where it begins to
/// matter, and one at the limit; below zero there is no bound.
pub(super) fn rate(pressure: f64, drain: Option<f64>, other: f64) -> f64 {
    if pressure <= 0.0 {
        return f64::INFINITY;
    }
    let sustainable = other.max(RATE_MIN) * ((1.0 - pressure) / (1.0 - SETTLED)).clamp(SHARE_MIN, 2.0);
    let drain = drain.unwrap_or(RATE_UNKNOWN);
    let least = drain * DRAIN_SHARE_MIN * (2.0 - pressure).clamp(0.0, 1.0);
    let (sustainable, drain) = (sustainable.max(least), drain.max(sustainable));
    let way = (pressure / SETTLED).min(1.0);
    drain + (sustainable - drain) * way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_from_what_drains_to_what_the_other_takes_without_a_step() {
        let rate = |pressure| rate(pressure, Some(4e6), 1e6);
        assert!(rate(0.0) == f64::INFINITY && rate(-1.0) == f64::INFINITY);
        assert!((rate(1e-6) / 4e6 - 1.0).abs() < 0.01 && (rate(0.5) / 1e6 - 1.0).abs() < 0.01);
        let rates: Vec<_> = (1..200).map(|step| rate(f64::from(step) / 100.0)).collect();
        assert!(rates.is_sorted_by(|more, less| more >= less), "{rates:?}");
        let steepest = rates.windows(2).map(|pair| pair[0] - pair[1]).fold(0.0, f64::max);
        assert!(steepest < 0.1 * 4e6, "{steepest}");
    }

    #[test]
    fn nobody_is_ever_stopped() {
        let far_beyond = rate(30.0, Some(4e6), 1e6);
        assert!((far_beyond / 2.5e5 - 1.0).abs() < 0.01, "{far_beyond}");
        assert!(rate(30.0, None, 0.0) > 0.0);
    }

    #[test]
    fn writers_keep_a_part_of_what_drains_where_the_other_shows_nothing_for_a_while() {
        let rate = |pressure| rate(pressure, Some(32e6), 0.0);
        assert!((rate(0.9) / 2e6 - 1.0).abs() < 0.01, "{}", rate(0.9));
        assert!(rate(1.5) < rate(0.9) && rate(2.0) < 1e5, "but not for ever");
    }
}
