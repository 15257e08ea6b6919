//! Whether work that can wait gives way, because a bucket's operations miss an objective just now.
//!
//! Gentle burning is what a budget is for, and paces nothing. Fast burning is what the first of [`RULES`] calls so, over a few seconds in
//! place of its spans. Where a target is so loose that no burning is as fast, half of the operations have to be bad.
//!
//! Pacing itself makes operations quick again. So it begins at once, and ends once all has been well for a while, clearly and not just
//! barely. Otherwise it would begin and end with every look.

use std::time::Duration;

use crate::burn::{Counts, EVENTS_MIN, MILLION, RULES};

/// What happened within this time is judged.
pub const RECENT: Duration = Duration::from_secs(10);
/// Pacing goes on for as long after the last look at which not all was well.
pub const HOLD: Duration = Duration::from_secs(30);
/// The largest share of bad operations that paces nothing, however loose the target is.
const SHARE_MAX: f64 = 0.5;
/// All is well at this part of the share from which pacing begins.
const WELL: f64 = 0.5;

/// The share of bad operations above which pacing begins, by the objective's target in parts of a million.
#[must_use]
pub fn bad_share_max(target_ppm: u32) -> f64 {
    let budget = f64::from(MILLION - target_ppm.min(MILLION - 1)) / f64::from(MILLION);
    (RULES[0].burn * budget).min(SHARE_MAX)
}

/// Of one objective on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The last look at which not all was well, while work gives way.
    unwell: Option<Duration>,
}

impl Pace {
    /// Judges what was counted within [`RECENT`] before `now`, by a clock that only goes forth. Whether the objective is missed at this look.
    pub fn look(&mut self, now: Duration, target_ppm: u32, recent: Counts) -> bool {
        let bad = recent.bad_share().filter(|_| recent.total >= EVENTS_MIN).unwrap_or_default();
        let most = bad_share_max(target_ppm);
        self.unwell = match self.unwell {
            _ if bad > most => Some(now),
            Some(_) if bad > most * WELL => Some(now),
            Some(last) if now.saturating_sub(last) < HOLD => Some(last),
            _ => None,
        };
        bad > most
    }

    /// Whether work that can wait gives way.
    #[must_use]
    pub const fn gives_way(&self) -> bool {
        self.unwell.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(bad: u64, total: u64) -> Counts {
        Counts { good: total - bad, total }
    }

    const fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn only_fast_burning_of_enough_operations_begins_it() {
        let begins = |target_ppm, recent| {
            let mut pace = Pace::default();
            let missed = pace.look(at(5), target_ppm, recent);
            assert_eq!(pace.gives_way(), missed);
            missed
        };
        // A thousandth may be bad; 14.4 times as many are too many.
        assert!(!begins(999_000, counts(144, 10_000)));
        assert!(begins(999_000, counts(145, 10_000)));
        assert!(!begins(999_000, counts(EVENTS_MIN - 1, EVENTS_MIN - 1)), "chance");
        assert!(begins(999_000, counts(EVENTS_MIN, EVENTS_MIN)));
        assert!(!begins(999_000, Counts::default()));
        assert!(!begins(500_000, counts(500, 1_000)), "a loose target can be missed as well");
        assert!(begins(500_000, counts(501, 1_000)));
    }

    #[test]
    fn it_ends_once_all_has_been_well_for_a_while() {
        let mut pace = Pace::default();
        let mut look = |secs, bad| {
            let missed = pace.look(at(secs), 999_000, counts(bad, 10_000));
            (missed, pace.gives_way())
        };
        assert_eq!(look(0, 100), (false, false), "not fast enough to begin");
        assert_eq!(look(1, 200), (true, true));
        assert_eq!(look(20, 100), (false, true), "too fast to end");
        assert_eq!(look(49, 72), (false, true), "well, and not for long enough");
        assert_eq!(look(50, 72), (false, false));
        assert_eq!(look(51, 100), (false, false), "it does not begin by what it would not end by");
    }

    /// A rebalance at full pace makes a twentieth of the operations bad, and one that gives way none.
    #[test]
    fn what_pacing_repairs_does_not_end_it_at_once() {
        let (mut pace, mut past, mut changes) = (Pace::default(), std::collections::VecDeque::new(), 0);
        for secs in 0..600 {
            past.push_back(counts(if pace.gives_way() { 0 } else { 50 }, 1_000));
            past.drain(..past.len().saturating_sub(RECENT.as_secs() as usize));
            let recent = past.iter().fold(Counts::default(), |sum, one| sum.plus(*one));
            let before = pace.gives_way();
            pace.look(at(secs), 999_000, recent);
            changes += u32::from(before != pace.gives_way());
        }
        assert!((2..=40).contains(&changes), "{changes} in ten minutes");
    }
}
