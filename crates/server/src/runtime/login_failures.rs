//! Failed logins, counted by address: a line of the audit trail for the first one, and one for all that follow within ten
//! seconds. Strangers can fail as often as they like; what they can have written is bounded.
//!
//! Pure: [`super::audit`] asks and writes. Addresses beyond [`ADDRESSES_MAX`] share one count.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use base::places::network_of;

/// How long failures of one address are counted before the next line.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Addresses that are counted apart.
const ADDRESSES_MAX: usize = 1024;
/// Stands for all addresses beyond those.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LoginFailures(BTreeMap<IpAddr, Count>);

#[derive(Debug)]
struct Count {
    since: Instant,
    /// Failures of this window that no line tells of.
    untold: u64,
}

/// What one address did within a window.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// `None` for the addresses that were not counted apart.
    pub(crate) from: Option<IpAddr>,
    pub(crate) count: u64,
}

impl LoginFailures {
    /// Takes note of a failure; true if it deserves a line of its own.
    pub(crate) fn note(&mut self, from: IpAddr, now: Instant) -> bool {
        let network = network_of(from);
        let is_counted = self.0.contains_key(&network) || self.0.len() < ADDRESSES_MAX;
        let count = self.0.entry(if is_counted { network } else { OTHERS });
        let mut is_first = false;
        let count = count.or_insert_with(|| {
            is_first = is_counted;
            Count { since: now, untold: 0 }
        });
        count.untold += u64::from(!is_first);
        is_first
    }

    /// What has to be told by now. Addresses that have been quiet for a window are forgotten.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Summary> {
        self.take(|count| now.saturating_duration_since(count.since) >= WINDOW, now)
    }

    /// Everything that no line tells of yet: nobody will ask again.
    pub(crate) fn rest(&mut self) -> Vec<Summary> {
        self.take(|_| true, Instant::now())
    }

    fn take(&mut self, is_due: impl Fn(&Count) -> bool, now: Instant) -> Vec<Summary> {
        let mut told = Vec::new();
        self.0.retain(|&from, count| {
            if !is_due(count) {
                return true;
            }
            let untold = std::mem::take(&mut count.untold);
            count.since = now;
            if untold > 0 {
                told.push(Summary { from: (from != OTHERS).then_some(from), count: untold });
            }
            untold > 0
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from(0x0a00_0000 + number))
    }

    #[test]
    fn the_first_failure_is_told_at_once_and_the_others_as_a_count() {
        let (mut failures, begun) = (LoginFailures::default(), Instant::now());
        let told = (0..65_000).filter(|_| failures.note(address(1), begun)).count();
        assert_eq!(told, 1);
        assert_eq!(failures.due(begun + WINDOW / 2), []);
        let count = Summary { from: Some(address(1)), count: 64_999 };
        assert_eq!(failures.due(begun + WINDOW), [count]);
        assert!(!failures.note(address(1), begun + WINDOW), "it goes on as it was");
    }

    #[test]
    fn an_address_that_was_quiet_for_a_window_is_told_at_once_again() {
        let (mut failures, begun) = (LoginFailures::default(), Instant::now());
        assert!(failures.note(address(1), begun));
        assert_eq!(failures.due(begun + WINDOW), []);
        assert!(failures.note(address(1), begun + WINDOW));
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_number_of_addresses_fail() {
        let (mut failures, now) = (LoginFailures::default(), Instant::now());
        let many = 2 * ADDRESSES_MAX as u32;
        let told = (0..many).filter(|&number| failures.note(address(number), now)).count();
        assert_eq!((told, failures.0.len()), (ADDRESSES_MAX, ADDRESSES_MAX + 1));
        assert_eq!(failures.rest(), [Summary { from: None, count: ADDRESSES_MAX as u64 }]);
    }
}
