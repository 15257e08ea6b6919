//! What strangers and users can do as often as they like, and auditors want to know: counted by sender. The first ones have a line of
//! the audit trail each, and all that follow within ten seconds have one together. So what a sender can have written is bounded.
//!
//! Pure: [`crate::audit`] asks and writes. Senders beyond [`SENDERS_MAX`] share one count.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use base::places::network_of;

/// How long what a sender does is counted before the next line.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Senders that are counted apart.
const SENDERS_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Repeated {
    /// Lines of its own that a sender has, until it was quiet for a window.
    lines: u64,
    counts: BTreeMap<Sender, Count>,
}

/// Whose acts are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sender {
    /// Anybody at an address, or in the network that it stands for.
    Address(IpAddr),
    /// A user who has logged in.
    User(String),
    /// All that are not counted apart.
    Others,
}

#[derive(Debug)]
struct Count {
    since: Instant,
    /// What had a line of its own.
    told: u64,
    /// What no line tells of, in this window.
    untold: u64,
}

/// What one sender did within a window.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) of: Sender,
    pub(crate) count: u64,
}

impl Repeated {
    /// `lines`: how many of them have a line of their own.
    pub(crate) fn new(lines: u64) -> Self {
        Self { lines, counts: BTreeMap::new() }
    }

    /// Takes note of one; true if it deserves a line of its own.
    pub(crate) fn note(&mut self, of: Sender, now: Instant) -> bool {
        let of = match of {
            Sender::Address(address) => Sender::Address(network_of(address)),
            of => of,
        };
        let is_counted = self.counts.contains_key(&of) || self.counts.len() < SENDERS_MAX;
        let (of, lines) = if is_counted { (of, self.lines) } else { (Sender::Others, 0) };
        let count = self.counts.entry(of).or_insert(Count { since: now, told: 0, untold: 0 });
        let has_line = count.told < lines;
        count.told += u64::from(has_line);
        count.untold += u64::from(!has_line);
        has_line
    }

    /// What has to be told by now. Senders that have been quiet for a window are forgotten.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Summary> {
        self.take(|count| now.saturating_duration_since(count.since) >= WINDOW, now)
    }

    /// Everything that no line tells of yet: nobody will ask again.
    pub(crate) fn rest(&mut self) -> Vec<Summary> {
        self.take(|_| true, Instant::now())
    }

    fn take(&mut self, is_due: impl Fn(&Count) -> bool, now: Instant) -> Vec<Summary> {
        let mut told = Vec::new();
        self.counts.retain(|of, count| {
            if !is_due(count) {
                return true;
            }
            let untold = std::mem::take(&mut count.untold);
            count.since = now;
            if untold > 0 {
                told.push(Summary { of: of.clone(), count: untold });
            }
            untold > 0
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> Sender {
        Sender::Address(IpAddr::V4(std::net::Ipv4Addr::from(0x0a00_0000 + number)))
    }

    #[test]
    fn the_first_ones_are_told_at_once_and_the_others_as_a_count() {
        for lines in [1, 16] {
            let (mut repeated, begun) = (Repeated::new(lines), Instant::now());
            for of in [address(1), Sender::User("ann".into())] {
                let told = (0..65_000).filter(|_| repeated.note(of.clone(), begun)).count() as u64;
                assert_eq!(told, lines);
                assert_eq!(repeated.due(begun + WINDOW / 2), []);
                assert_eq!(repeated.due(begun + WINDOW), [Summary { of: of.clone(), count: 65_000 - lines }]);
                assert!(!repeated.note(of, begun + WINDOW), "it goes on as it was");
                let _ = repeated.rest();
            }
        }
    }

    #[test]
    fn a_sender_that_was_quiet_for_a_window_is_told_at_once_again() {
        let (mut repeated, begun) = (Repeated::new(1), Instant::now());
        assert!(repeated.note(address(1), begun));
        assert_eq!(repeated.due(begun + WINDOW), []);
        assert!(repeated.note(address(1), begun + WINDOW));
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_number_of_senders_there_is() {
        let (mut repeated, now) = (Repeated::new(16), Instant::now());
        let many = 2 * SENDERS_MAX as u32;
        let told = (0..many).filter(|&number| repeated.note(address(number), now)).count();
        assert_eq!((told, repeated.counts.len()), (SENDERS_MAX, SENDERS_MAX + 1));
        assert_eq!(repeated.rest(), [Summary { of: Sender::Others, count: SENDERS_MAX as u64 }]);
    }
}
