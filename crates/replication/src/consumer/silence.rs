//! Whether a producer that says nothing is gone: it was asked for a sign of life every second.
//!
//! A consumer that was held up itself, on a machine that was busy or paused, may not have read what was said meanwhile. So silence
//! is confirmed when it is found a second time, after a moment in which whatever has arrived is read.

use base::Now;

/// A producer that has said nothing for so long is suspected to be gone. Not much longer than it takes to be sure. TCP doubles the
/// pauses between its tries, so a connection may come back as late again as it was cut for. A new one comes at once.
const SUSPECT_MILLIS: u64 = 2_500;
/// A suspected producer is gone when it goes on to say nothing for so long.
const CONFIRM_MILLIS: u64 = 500;

/// See the module header.
#[derive(Debug)]
pub(super) struct Silence {
    /// When to look (monotonic milliseconds).
    due_at: u64,
    is_suspected: bool,
}

impl Silence {
    /// Something was heard, or could not have been because nobody read.
    pub(super) const fn broken(now: Now) -> Self {
        Self { due_at: now.mono_millis + SUSPECT_MILLIS, is_suspected: false }
    }

    /// When [`Silence::is_confirmed`] is to be asked next.
    pub(super) const fn due_at(&self) -> u64 {
        self.due_at
    }

    /// Whether the producer is gone.
    pub(super) const fn is_confirmed(&mut self, now: Now) -> bool {
        let is_due = now.mono_millis >= self.due_at;
        if is_due && !self.is_suspected {
            *self = Self { due_at: now.mono_millis + CONFIRM_MILLIS, is_suspected: true };
            return false;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(mono_millis: u64) -> Now {
        Now { wall_nanos: 0, mono_millis }
    }

    #[test]
    fn silence_is_confirmed_when_it_goes_on_after_a_second_look() {
        let mut silence = Silence::broken(at(100));
        assert!(!silence.is_confirmed(at(silence.due_at() - 1)));
        let suspected_at = silence.due_at();
        assert!(!silence.is_confirmed(at(suspected_at)));
        assert!(!silence.is_confirmed(at(silence.due_at() - 1)));
        assert!(silence.is_confirmed(at(silence.due_at())));
        assert_eq!(silence.due_at() - 100, 3_000, "what is promised");
        assert_eq!(Silence::broken(at(suspected_at)).due_at(), suspected_at + SUSPECT_MILLIS);
    }

    #[test]
    fn a_consumer_that_has_not_looked_for_long_looks_again_first() {
        let mut silence = Silence::broken(at(0));
        assert!(!silence.is_confirmed(at(60_000)), "what was said meanwhile is yet to be read");
        silence = Silence::broken(at(60_001));
        assert!(!silence.is_confirmed(at(60_001 + SUSPECT_MILLIS - 1)));
    }
}
