//! The processor's counter of ticks, told as nanoseconds of the system's monotonic clock.
//!
//! Operations are timed by three readings for each input. The system takes twice as long to tell the time as the counter takes to be
//! read. Its answers were half of what seeing operations cost. The system's clock stays the measure of the counter:
//!
//! - The counter is read only where the kernel itself keeps time by it. Its rate is constant there, and all cores have the same.
//! - [`look`] compares both. The first second tells the rate, each later one tells it anew and sets the counter by the clock.
//! - Where both have come apart the clock is read from then on. The counter of a virtual machine may be another one on another host.
//! - Until the rate is known, and while it is set, the clock is read.

use std::{
    sync::atomic::{AtomicU64, Ordering, fence},
    time::Duration,
};

use parking_lot::Mutex;

use super::{machine::Told, reading};

/// What the kernel keeps time by.
static SOURCE: Told = Told::by("/sys/devices/system/clocksource/clocksource0/current_clocksource");
const COUNTER: &str = "tsc";
/// Rates are taken over so long at least: both readings of a pair lie less than [`GAP`] apart.
const LEAST: Duration = Duration::from_secs(1);
const GAP: Duration = Duration::from_micros(1);
/// Of so many pairs one will have no interruption in it.
const TRIES: usize = 8;
/// Both have come apart if they differ by more than this part of the time, which no adjustment of a clock reaches.
const APART: u64 = 1_000;
/// A rate is of so many nanoseconds in a tick, times this.
const SHIFT: u32 = 32;

static TICKS: Ticks = Ticks::new();

/// Nanoseconds of the monotonic clock, if the counter tells them.
#[inline]
pub(super) fn nanos() -> Option<u64> {
    TICKS.nanos(counter)
}

/// Compares the counter with the system's clock: about once a second.
pub fn look() {
    if SOURCE.read().trim() != COUNTER {
        TICKS.give_up();
    } else if let Some(pair) = Pair::now() {
        TICKS.look(pair);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, and it reads a number.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// No other architecture calls its counter by that name.
#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// What the counter and the clock said at one time.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    nanos: u64,
}

impl Pair {
    /// Nothing where something came between the two each time.
    fn now() -> Option<Self> {
        (0..TRIES).find_map(|_| {
            let (before, ticks, after) = (reading::clock(), counter(), reading::clock());
            (after - before < GAP.as_nanos() as u64).then_some(Self { ticks, nanos: before })
        })
    }
}

/// How far the comparison has got.
#[derive(Clone, Copy, Debug)]
enum Course {
    New,
    /// The rate is not known.
    Begun(Pair),
    /// The rate is that of the time before this.
    Known(Pair),
    GivenUp,
}

/// Invariant: the holder of the course's lock writes, and `version` is odd meanwhile. All that a reading needs lies in one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Ticks {
    version: AtomicU64,
    /// 0 where it is not known.
    rate: AtomicU64,
    /// The counter and the clock when it was set.
    ticks: AtomicU64,
    nanos: AtomicU64,
    course: Mutex<Course>,
}

impl Ticks {
    const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            course: Mutex::new(Course::New),
        }
    }

    #[inline]
    fn nanos(&self, counter: impl FnOnce() -> u64) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        let rate = self.rate.load(Ordering::Relaxed);
        let (ticks, nanos) = (self.ticks.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed));
        // What was read is of this version, or of a later one, which is seen now.
        fence(Ordering::Acquire);
        if rate == 0 || version & 1 == 1 || self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let passed = u128::from(counter().saturating_sub(ticks)) * u128::from(rate);
        Some(nanos.wrapping_add((passed >> SHIFT) as u64))
    }

    fn look(&self, now: Pair) {
        let mut course = self.course.lock();
        let begin = match *course {
            Course::New => return *course = Course::Begun(now),
            Course::GivenUp => return,
            Course::Begun(begin) | Course::Known(begin) => begin,
        };
        let passed = now.nanos.saturating_sub(begin.nanos);
        if passed < LEAST.as_nanos() as u64 {
            return;
        }
        let said = self.nanos(|| now.ticks).unwrap_or(now.nanos);
        let rate = (u128::from(passed) << SHIFT).checked_div(now.ticks.saturating_sub(begin.ticks).into());
        let rate = rate.and_then(|rate| u64::try_from(rate).ok()).filter(|rate| *rate > 0);
        match rate {
            Some(rate) if said.abs_diff(now.nanos) <= passed / APART => {
                self.set(rate, now);
                *course = Course::Known(now);
            }
            _ => {
                self.set(0, now);
                *course = Course::GivenUp;
            }
        }
    }

    fn give_up(&self) {
        let mut course = self.course.lock();
        self.set(0, Pair { ticks: 0, nanos: 0 });
        *course = Course::GivenUp;
    }

    /// The caller holds the lock of the course.
    fn set(&self, rate: u64, at: Pair) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that sees something of what follows sees the odd version, too.
        fence(Ordering::Release);
        self.rate.store(rate, Ordering::Relaxed);
        self.ticks.store(at.ticks, Ordering::Relaxed);
        self.nanos.store(at.nanos, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A counter of 2.5 GHz that began at a million.
    fn pair(nanos: u64) -> Pair {
        Pair { ticks: 1_000_000 + nanos * 5 / 2, nanos }
    }

    fn told(ticks: &Ticks, nanos: u64) -> Option<u64> {
        ticks.nanos(|| pair(nanos).ticks)
    }

    #[test]
    fn the_counter_tells_the_clock_once_its_rate_is_known() {
        let ticks = Ticks::new();
        ticks.look(pair(5 * SECOND));
        ticks.look(pair(5 * SECOND + SECOND / 2));
        assert_eq!(told(&ticks, 6 * SECOND), None, "half a second tells no rate");
        ticks.look(pair(7 * SECOND));
        for nanos in [7 * SECOND, 7 * SECOND + 12_345, 3_600 * SECOND] {
            assert!(
                told(&ticks, nanos).is_some_and(|told| told.abs_diff(nanos) <= nanos / 1_000_000_000 + 1)
            );
        }
        assert_eq!(told(&ticks, 6 * SECOND), Some(7 * SECOND), "another core's may be a little behind");
    }

    #[test]
    fn the_counter_follows_a_clock_that_is_adjusted() {
        let ticks = Ticks::new();
        for second in 0..1_000 {
            // The clock runs too fast by half a thousandth, which is what adjustments reach.
            let now = Pair { nanos: second * (SECOND + SECOND / 2_000), ..pair(second * SECOND) };
            ticks.look(now);
            let apart = ticks.nanos(|| now.ticks).map(|told| told.abs_diff(now.nanos));
            assert!(apart.is_none_or(|apart| apart <= 1), "{apart:?} after {second} s");
        }
        assert!(told(&ticks, 1_001 * SECOND).is_some());
    }

    #[test]
    fn a_counter_that_was_set_or_runs_at_another_rate_is_read_no_more() {
        let known = || {
            let ticks = Ticks::new();
            (1..4).for_each(|second| ticks.look(pair(second * SECOND)));
            assert!(told(&ticks, 4 * SECOND).is_some());
            ticks
        };
        let ahead = Pair { ticks: pair(5 * SECOND).ticks, nanos: 4 * SECOND };
        let behind = Pair { ticks: 17, nanos: 4 * SECOND };
        let stands = Pair { ticks: pair(3 * SECOND).ticks, nanos: 4 * SECOND };
        for now in [ahead, behind, stands] {
            let ticks = known();
            ticks.look(now);
            assert_eq!(ticks.nanos(|| now.ticks), None, "{now:?}");
            (5..9).for_each(|second| ticks.look(pair(second * SECOND)));
            assert_eq!(told(&ticks, 9 * SECOND), None, "for good");
        }
        let ticks = known();
        ticks.give_up();
        assert_eq!(told(&ticks, 4 * SECOND), None);
    }

    #[test]
    fn readers_see_what_was_set_at_one_time() {
        let ticks = Ticks::new();
        let (first, second) = (Pair { ticks: 0, nanos: 0 }, Pair { ticks: 1 << 40, nanos: 1 << 40 });
        ticks.set(1 << SHIFT, first);
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0_u32;
                while !over.load(Ordering::Relaxed) || seen == 0 {
                    if let Some(nanos) = ticks.nanos(|| 1 << 41) {
                        assert_eq!(nanos, 1 << 41);
                        seen += 1;
                    }
                }
            });
            for round in 0..100_000 {
                ticks.set(1 << SHIFT, if round % 2 == 0 { second } else { first });
            }
            over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
    }

    #[test]
    fn where_the_kernel_counts_ticks_they_run_as_its_clock() {
        if SOURCE.read().trim() != COUNTER {
            return;
        }
        let ticks = Ticks::new();
        let pair = || (0..1_000).find_map(|_| Pair::now()).unwrap();
        ticks.look(pair());
        std::thread::sleep(LEAST);
        ticks.look(pair());
        let (before, told, after) = (reading::clock(), ticks.nanos(counter).unwrap(), reading::clock());
        let slack = 10_000;
        assert!(before <= told + slack && told <= after + slack, "{before} {told} {after}");
    }
}
