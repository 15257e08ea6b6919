//! When operations are due.
//!
//! In an open loop they are due at times that do not depend on the answers, and latency counts from there. A server
//! that stalls for a second shows a second in the latencies of everything that was due meanwhile. In a closed loop
//! the next operation is due when an answer has made room for it. That measures a server's speed and hides its
//! stalls.
//!
//! The rate is in a [`Control`] that several threads share and that may be changed while they run. Ramps, steps and
//! searches are changes of it.
//!
//! Operations that fall into the same *tick* are due together, at its beginning. A client that wakes up once per tick
//! and not once per operation takes a fraction of the CPU. Nothing is late by that: the time that the latency counts from
//! moves with the sending. The price is that arrivals are bunched, by less than a tick.

use crate::choose::Part;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How operations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As soon as there is room.
    Closed,
    /// At the rate of the [`Control`], evenly.
    Even,
    /// At the rate of the [`Control`], as independent users come: gaps of an exponential distribution.
    Poisson,
}

impl Pace {
    /// Whether due times depend on nothing but the rate.
    #[must_use]
    pub const fn is_open(self) -> bool {
        !matches!(self, Pace::Closed)
    }
}

/// What can be changed while the load runs.
#[derive(Debug)]
pub struct Control {
    /// Operations per second of the whole run, as the bits of a float.
    rate: AtomicU64,
    stop: AtomicBool,
    /// How often what is due and late was given up.
    skips: AtomicU64,
    /// Whether what is acknowledged now may be lost.
    acks_may_be_lost: AtomicBool,
}

impl Control {
    /// Starts with a rate of operations per second over all threads and workers; closed loops ignore it.
    #[must_use]
    pub fn new(rate: f64) -> Control {
        Control {
            rate: AtomicU64::new(rate.to_bits()),
            stop: AtomicBool::new(false),
            skips: AtomicU64::new(0),
            acks_may_be_lost: AtomicBool::new(false),
        }
    }

    /// From now on, or not any more, what the server acknowledges may be lost: its nodes are being killed. Each thread looks at
    /// it right after it has handed out an interval. See [`crate::validate::Ledger::set_acks_may_be_lost`].
    pub fn set_acks_may_be_lost(&self, acks_may_be_lost: bool) {
        self.acks_may_be_lost.store(acks_may_be_lost, Ordering::Relaxed);
    }

    /// Whether what the server acknowledges now may be lost.
    #[must_use]
    pub fn acks_may_be_lost(&self) -> bool {
        self.acks_may_be_lost.load(Ordering::Relaxed)
    }

    /// Operations per second of the whole run.
    #[must_use]
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Sets another rate; zero pauses.
    pub fn set_rate(&self, rate: f64) {
        self.rate.store(rate.max(0.0).to_bits(), Ordering::Relaxed);
    }

    /// Ends the run: nothing more is due, what is under way is waited for.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Gives up what is due and late: after an overload the next rate begins with nothing owed.
    pub fn skip_backlog(&self) {
        self.skips.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was asked for.
    #[must_use]
    pub fn skips(&self) -> u64 {
        self.skips.load(Ordering::Relaxed)
    }

    /// Whether the run is to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The due times of one part of the run, in nanoseconds since its start.
pub struct Arrivals {
    pace: Pace,
    part: Part,
    /// Of the whole run, at `next`.
    rate: f64,
    /// Where counting with this rate began, and how many mean gaps of this part have passed since.
    base: f64,
    gaps: f64,
    next: u64,
    /// Length of a tick in nanoseconds, 1 where each operation has a time of its own; and when the first one begins.
    tick: u64,
    shift: u64,
    /// Changes of the rate that lie behind `next`, which may be late: when, and to what.
    changes: VecDeque<(u64, f64)>,
}

impl Arrivals {
    /// Begins at `from`. Parts that are even interleave exactly.
    pub fn new(pace: Pace, part: Part, rate: f64, from: u64, rng: &mut fastrand::Rng) -> Arrivals {
        let (base, changes) = (from as f64, VecDeque::new());
        let mut arrivals =
            Arrivals { pace, part, rate, base, gaps: 0.0, next: 0, tick: 1, shift: 0, changes };
        arrivals.begin(rng);
        arrivals.place(rng);
        arrivals
    }

    /// In ticks of so many nanoseconds. Those of several parts take turns, so that not all parts send at once.
    #[must_use]
    pub fn in_ticks(mut self, nanos: u64) -> Arrivals {
        self.tick = nanos.max(1);
        self.shift = (self.tick as f64 * self.part.index as f64 / self.part.of as f64) as u64;
        self
    }

    /// The first gap with a new rate.
    fn begin(&mut self, rng: &mut fastrand::Rng) {
        self.gaps = match self.pace {
            Pace::Poisson => exponential(rng),
            Pace::Even | Pace::Closed => self.part.index as f64 / self.part.of as f64,
        };
    }

    /// Due times are computed from the beginning and not from each other, so that rounding does not add up.
    fn place(&mut self, rng: &mut fastrand::Rng) {
        loop {
            let nanos = if self.rate > 0.0 { 1e9 * self.part.of as f64 / self.rate } else { f64::INFINITY };
            // No gap at no rate is no time at all.
            let next = if nanos.is_finite() { self.base + self.gaps * nanos } else { f64::INFINITY };
            self.next = if next.is_finite() { next as u64 } else { u64::MAX };
            match self.changes.front() {
                Some(&(at, rate)) if self.next >= at => {
                    self.changes.pop_front();
                    (self.rate, self.base) = (rate, at as f64);
                    self.begin(rng);
                }
                _ => return,
            }
        }
    }

    /// When the next operation is due.
    #[must_use]
    pub fn due(&self) -> u64 {
        if self.next == u64::MAX { u64::MAX } else { self.tick_of(self.next) }
    }

    /// Its due time without ticks. This decides whether it belongs to a run of a certain length, so that ticks
    /// do not change the number of operations.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.next
    }

    /// When the tick begins that a time is in; what lies before the first one belongs to it.
    fn tick_of(&self, time: u64) -> u64 {
        self.shift + time.saturating_sub(self.shift) / self.tick * self.tick
    }

    /// The next one is taken.
    pub fn advance(&mut self, rng: &mut fastrand::Rng) {
        self.gaps += if self.pace == Pace::Poisson { exponential(rng) } else { 1.0 };
        self.place(rng);
    }

    /// Follows a change of the rate. What was due before `now` stays due at the rate of its time, however late it is.
    pub fn set_rate(&mut self, rate: f64, now: u64, rng: &mut fastrand::Rng) {
        let last = self.changes.back().map_or(self.rate, |change| change.1);
        if rate != last {
            // From the next tick on: the present one has begun without it.
            let begun = self.tick_of(now);
            let at = if begun < now { begun + self.tick } else { begun };
            self.changes.push_back((at, rate));
            self.place(rng);
        }
    }
}

/// A gap of mean one.
fn exponential(rng: &mut fastrand::Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arrivals: &mut Arrivals, until: u64, rng: &mut fastrand::Rng) -> Vec<u64> {
        let mut due = Vec::new();
        while arrivals.time() < until {
            due.push(arrivals.due());
            arrivals.advance(rng);
        }
        due
    }

    #[test]
    fn even_parts_interleave_to_the_whole() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut all: Vec<u64> = (0..3)
            .flat_map(|index| {
                let mut part = Arrivals::new(Pace::Even, Part { index, of: 3 }, 3000.0, 0, &mut rng);
                take(&mut part, 1_000_000_000, &mut rng)
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all.len(), 3000);
        assert!(all.windows(2).all(|pair| (333_332..=333_335).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn independent_users_come_at_the_rate_with_random_gaps() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut arrivals = Arrivals::new(Pace::Poisson, Part::WHOLE, 100_000.0, 0, &mut rng);
        let due = take(&mut arrivals, 1_000_000_000, &mut rng);
        assert!((98_000..102_000).contains(&due.len()), "{}", due.len());
        let long = due.windows(2).filter(|pair| pair[1] - pair[0] > 30_000).count();
        // e^-3 of the gaps are longer than three means.
        assert!((4_600..5_400).contains(&long), "{long}");
    }

    #[test]
    fn a_tick_bunches_what_falls_into_it_and_loses_nothing() {
        let mut rng = fastrand::Rng::with_seed(4);
        for (pace, of) in [(Pace::Even, 1), (Pace::Even, 3), (Pace::Poisson, 2)] {
            for index in 0..of {
                let part = Part { index, of };
                let mut alone = fastrand::Rng::with_seed(index);
                let mut one_by_one = Arrivals::new(pace, part, 20_000.0, 0, &mut alone);
                let exact = take(&mut one_by_one, 1_000_000_000, &mut alone);
                let mut same = fastrand::Rng::with_seed(index);
                let mut bunched = Arrivals::new(pace, part, 20_000.0, 0, &mut same).in_ticks(200_000);
                let due = take(&mut bunched, 1_000_000_000, &mut same);
                assert_eq!(due.len(), exact.len(), "{pace:?} {index} of {of}");
                let first = 200_000 * index / of;
                for (due, exact) in due.iter().zip(&exact) {
                    assert_eq!(due % 200_000, first, "{pace:?} {index} of {of}");
                    assert!(*due == first || (*due..*due + 200_000).contains(exact), "{due} {exact}");
                }
            }
        }
        let mut arrivals = Arrivals::new(Pace::Even, Part::WHOLE, 20_000.0, 0, &mut rng).in_ticks(200_000);
        arrivals.set_rate(40_000.0, 300_000, &mut rng);
        let due = take(&mut arrivals, 600_000, &mut rng);
        let times = |tick| due.iter().filter(|due| **due == tick).count();
        assert_eq!([0, 200_000, 400_000].map(times), [4, 4, 8], "a new rate begins with a tick");
    }

    #[test]
    fn a_new_rate_counts_from_its_moment_and_forgets_nothing_that_is_due() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut arrivals = Arrivals::new(Pace::Even, Part::WHOLE, 1000.0, 0, &mut rng);
        arrivals.set_rate(2000.0, 500, &mut rng);
        assert_eq!(arrivals.due(), 0, "due before the change");
        arrivals.advance(&mut rng);
        arrivals.set_rate(2000.0, 500, &mut rng);
        let due = take(&mut arrivals, 1_000_000_500, &mut rng);
        assert_eq!((due.len(), due[0], due[1]), (2000, 500, 500_500));
        arrivals.set_rate(0.0, 2_000_000_000, &mut rng);
        arrivals.set_rate(10.0, 3_000_000_000, &mut rng);
        let late = take(&mut arrivals, 3_000_000_001, &mut rng);
        assert_eq!(
            (late.len(), late[0]),
            (2_001, 1_000_000_500),
            "what was due before stays due, late as it is"
        );
        assert_eq!(late.last(), Some(&3_000_000_000), "nothing was due in the pause");
        assert_eq!(arrivals.due(), 3_100_000_000);
        arrivals.set_rate(0.0, 3_000_000_100, &mut rng);
        assert_eq!(arrivals.due(), u64::MAX, "paused");
        arrivals.set_rate(5.0, 9_000_000_000, &mut rng);
        assert_eq!(arrivals.due(), 9_000_000_000);
    }
}
