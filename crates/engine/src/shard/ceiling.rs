//! The CAS ceiling: the number that a shard has on disk above every CAS it gives out, and what a restart learns from it.
//!
//! A ceiling is recorded in the state of one vBucket of the shard. It is two minutes ahead of the clock reading that it
//! is made from, so that it seldom has to be raised. Its low bits say what it is, and that the shard was not closed
//! cleanly:
//!
//! - A ceiling *of the clock* also tells the reading it was made from, which is no less than any CAS of that vBucket on
//!   disk. A restart that finds the clock beyond everything the disk knows goes on with the clock. Every CAS given out
//!   before was the clock's and lies behind it. Only when the clock was set back the ceiling itself is the floor.
//! - A ceiling *of a leader* is on disk before a CAS is taken over that is well ahead of the clock (another cluster's). It
//!   is always the floor.
//!
//! After a crash the clock of a vBucket must not stand still until the wall clock has caught up with a ceiling. Clients
//! tell by it how old a transaction is (`$vbucket.HLC`), and last-write-wins resolution compares it across clusters.

use base::{Cas, Now};
use storage::VbState;

/// How far ahead of the clock the ceiling is put, and how near the clock may come.
const AHEAD_NANOS: u64 = 120 * 1_000_000_000;
const NEAR_NANOS: u64 = AHEAD_NANOS / 2;
/// The same for CAS values that run ahead of the clock. They grow by one a mutation, so that a billion takes a while. A
/// wider lead would add up over crashes faster than the clock catches up.
const LEAD: u64 = 1_000_000_000;
const LEAD_NEAR: u64 = LEAD / 2;
/// As far as clocks may differ, a CAS from elsewhere is not one that leads.
const DIFFERENCE_NANOS: u64 = 1_000_000_000;
/// How far ahead of the clock a restart goes on after a crash; more than what does not count as leading.
const RESTART_NANOS: u64 = 2 * DIFFERENCE_NANOS;

/// The low bits that make a recorded CAS recognisable. All of them are set in a ceiling of a leader, all but one in a
/// ceiling of the clock.
const LOW_BITS: u64 = 0xffff;
const OF_THE_CLOCK: u64 = 0xfffe;

/// Whether a CAS is so far ahead of the clock that the disk has to know.
pub(crate) fn leads(cas: Cas, now: Now) -> bool {
    cas.get() > now.wall_nanos.saturating_add(DIFFERENCE_NANOS)
}

/// The ceiling that a shard needs. Its vBucket with the ceiling has given out `own`, and the shard has taken over, or
/// is to take over, CAS values up to `foreign`. It is no lower than the one it has.
pub(crate) fn above(own: Cas, foreign: Cas, now: Now, present: Cas) -> Cas {
    let reading = now.wall_nanos.max(own.get()).max(foreign.get());
    let is_leading = leads(foreign, now) || is_of_a_leader(present);
    let lead = if is_leading { LEAD } else { AHEAD_NANOS };
    let at_least =
        reading.saturating_add(lead).max(now.wall_nanos.saturating_add(AHEAD_NANOS)).max(present.get());
    // One more, so that the number marked as the clock's is no lower.
    let marked = at_least.saturating_add(1) | LOW_BITS;
    Cas(if is_leading { marked } else { marked & !LOW_BITS | OF_THE_CLOCK })
}

/// Whether CAS values that lead the clock may be taken over while this ceiling is on disk.
pub(crate) const fn is_of_a_leader(ceiling: Cas) -> bool {
    ceiling.get() & LOW_BITS == LOW_BITS
}

/// The ceiling that no longer lets CAS values lead the clock; what the disk says is still good.
pub(crate) const fn without_leader(ceiling: Cas) -> Cas {
    if is_of_a_leader(ceiling) { Cas(ceiling.get() - 1) } else { ceiling }
}

/// Whether the clock or the highest CAS has come near the ceiling.
pub(crate) fn is_near(ceiling: Cas, highest: Cas, now: Now) -> bool {
    now.wall_nanos.saturating_add(NEAR_NANOS) > ceiling.get()
        || highest.get().saturating_add(LEAD_NEAR) > ceiling.get()
}

/// What a clean stop records after the last CAS: not less, not to be taken for a ceiling, and something.
pub(crate) const fn clean_mark(last: Cas) -> Cas {
    if last.get() == 0 {
        return Cas(1);
    }
    if last.get() & LOW_BITS >= OF_THE_CLOCK { Cas((last.get() | LOW_BITS).saturating_add(1)) } else { last }
}

/// Whether a shard was closed after this was recorded. Nothing is no mark: a start that failed may have left it.
pub(crate) const fn is_clean_mark(recorded: Cas) -> bool {
    recorded.get() != 0 && recorded.get() & LOW_BITS < OF_THE_CLOCK
}

/// Where the clocks of a shard go on that was found on disk like this. That is above every CAS on disk, and above every
/// one that was given out. The one exception: the CAS was never synced, and the clock was set back since to a time
/// after the last sync.
pub(crate) fn floor<'a>(states: impl Iterator<Item = &'a VbState>, now: Now) -> Cas {
    let (mut highest, mut known) = (0, 0);
    for recorded in states.map(|state| state.max_cas.get()) {
        highest = highest.max(recorded);
        let is_of_the_clock = recorded & LOW_BITS == OF_THE_CLOCK;
        known = known.max(if is_of_the_clock { recorded.saturating_sub(AHEAD_NANOS) } else { recorded });
    }
    let ahead = now.wall_nanos.saturating_add(RESTART_NANOS);
    if highest == 0 {
        return Cas::NONE;
    }
    if known > ahead.saturating_add(RESTART_NANOS) {
        return Cas(highest);
    }
    // Also beyond what was given out since at the reading that is known.
    Cas(ahead.max(known.saturating_add(LOW_BITS)) | LOW_BITS)
}

/// The CAS that leads the clock in a shard that goes on above `floor`, if any does.
pub(crate) fn leader(floor: Cas, now: Now) -> Cas {
    let is_near = floor.get() <= now.wall_nanos.saturating_add(2 * RESTART_NANOS + 2 * LOW_BITS);
    if is_near { Cas::NONE } else { floor }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Now {
        Now { wall_nanos: seconds * SECOND, mono_millis: 0 }
    }

    fn floor_of(recorded: &[Cas], now: Now) -> Cas {
        let states: Vec<_> =
            recorded.iter().map(|&max_cas| VbState { max_cas, ..VbState::default() }).collect();
        floor(states.iter(), now)
    }

    #[test]
    fn after_a_crash_the_clock_goes_on() {
        let ceiling = above(Cas(999 * SECOND), Cas::NONE, at(1_000), Cas::NONE);
        assert!(!is_clean_mark(ceiling) && !is_of_a_leader(ceiling));
        assert!(ceiling.get() >= 1_120 * SECOND);
        for recorded in [[ceiling, Cas(1_001 * SECOND)], [ceiling, Cas::NONE]] {
            assert_eq!(floor_of(&recorded, at(1_002)), Cas((1_002 * SECOND + RESTART_NANOS) | LOW_BITS));
        }
    }

    #[test]
    fn a_clock_that_was_set_back_gives_nothing_out_again() {
        let ceiling = above(Cas(999 * SECOND), Cas::NONE, at(1_000), Cas::NONE);
        assert_eq!(floor_of(&[ceiling], at(990)), ceiling);
        assert_eq!(floor_of(&[ceiling, Cas(1_030 * SECOND)], at(1_020)), ceiling, "as another vBucket tells");
    }

    #[test]
    fn what_is_a_little_ahead_of_the_clock_is_still_the_clock() {
        // The flusher's reading may be older than a writer's, and a restart begins ahead.
        let own = Cas(1_002 * SECOND + 0xffff);
        let ceiling = above(own, Cas::NONE, at(1_000), Cas::NONE);
        for reading in [1_000, 1_001, 1_002] {
            let floor = floor_of(&[ceiling], at(reading));
            assert_eq!(leader(floor, at(reading)), Cas::NONE);
            assert!(own < floor && floor < Cas((reading + 3) * SECOND), "{floor:?} at {reading}");
        }
    }

    #[test]
    fn what_leads_the_clock_stays_ahead_of_it() {
        for ahead in [2, 10, 3_000] {
            let far = Cas((1_000 + ahead) * SECOND);
            let ceiling = above(Cas::NONE, far, at(1_000), Cas::NONE);
            assert!(leads(far, at(1_000)) && is_of_a_leader(ceiling) && !is_clean_mark(ceiling));
            assert!(ceiling.get() >= far.get() + LEAD);
            assert_eq!(floor_of(&[ceiling], at(1_000)), ceiling);
        }
        assert!(!leads(Cas(1_001 * SECOND), at(1_000)));
    }

    #[test]
    fn a_leader_is_forgotten_only_where_it_is_said() {
        let of_a_leader = above(Cas::NONE, Cas(1_010 * SECOND), at(1_000), Cas::NONE);
        assert!(is_of_a_leader(above(Cas::NONE, Cas::NONE, at(1_020), of_a_leader)));
        let present = without_leader(of_a_leader);
        assert!(!is_of_a_leader(above(Cas::NONE, Cas::NONE, at(1_020), present)));
        assert!(is_of_a_leader(above(Cas::NONE, Cas(1_010 * SECOND), at(1_000), present)));
    }

    #[test]
    fn ceilings_do_not_add_up_over_crashes_with_the_clock_set_back() {
        let now = at(1_000);
        let first = above(Cas::NONE, Cas::NONE, at(2_000), Cas::NONE);
        assert_eq!(floor_of(&[], now), Cas::NONE);
        let next = |recorded, _| {
            let floor = floor_of(&[recorded], now);
            above(floor, leader(floor, now), now, Cas::NONE)
        };
        let tenth = (0..9).fold(first, next);
        assert!(tenth.get() - first.get() < 10 * (LEAD + LOW_BITS + 1));
        assert!(!is_near(tenth, Cas(tenth.get() - LEAD), now));
        assert!(is_near(tenth, tenth, now));
    }

    #[test]
    fn a_ceiling_is_never_lowered_and_a_clean_stop_is_told_from_it() {
        let present = Cas(9_000 * SECOND);
        assert!(above(Cas::NONE, Cas::NONE, at(1_000), present) >= present);
        for low in [0, 1, 0xfffd, 0xfffe, 0xffff] {
            let last = Cas(5 << 16 | low);
            assert!(is_clean_mark(clean_mark(last)) && clean_mark(last) >= last);
        }
    }
}
