//! Dead connections. A consumer that asked for it is sent a NOOP every interval, and is cut off if it says nothing at all
//! for long.
//!
//! Anything received counts as a sign of life, as in kv_engine: a consumer that is busy with what it has may answer a NOOP
//! late. Consumers in turn give us up after two intervals without a message.

use base::Now;

/// How long a consumer may say nothing (kv_engine, `dcp_idle_timeout`), unless its interval is longer.
const SILENCE_MILLIS: u64 = 360_000;
const INTERVAL_MILLIS: u64 = 20_000;
/// The first opaque; streams choose theirs from the other end.
const FIRST_OPAQUE: u32 = 10_000_000;

/// See the module header.
#[derive(Debug)]
pub struct Noop {
    enabled: bool,
    interval_millis: u64,
    sent_at: u64,
    heard_at: u64,
    opaque: u32,
    /// The last one has not been answered.
    waiting: bool,
}

/// What the time brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// Send a NOOP with this opaque.
    Send(u32),
    /// The consumer is gone.
    Silent,
}

impl Noop {
    /// Switched off, on a connection that begins now.
    #[must_use]
    pub const fn new(now: Now) -> Self {
        let millis = now.mono_millis;
        Self {
            enabled: false,
            interval_millis: INTERVAL_MILLIS,
            sent_at: millis,
            heard_at: millis,
            opaque: FIRST_OPAQUE,
            waiting: false,
        }
    }

    /// Whether the consumer wants it.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Milliseconds between two.
    #[must_use]
    pub const fn interval_millis(&self) -> u64 {
        self.interval_millis
    }

    /// Whether one has not been answered yet.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Switches it on or off.
    pub fn enable(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Sets the interval.
    pub fn set_interval(&mut self, millis: u64) {
        self.interval_millis = millis;
    }

    /// Something was received.
    pub fn heard(&mut self, now: Now) {
        self.heard_at = now.mono_millis;
    }

    /// A NOOP was answered; false if it was none of ours.
    pub fn answered(&mut self, opaque: u32) -> bool {
        let ours = opaque == self.opaque;
        self.waiting &= !ours;
        ours
    }

    /// What has to be done now. [`Due::Send`] counts as sent.
    pub fn due(&mut self, now: Now) -> Due {
        if !self.enabled {
            return Due::Nothing;
        }
        if now.mono_millis >= self.silent_at() {
            return Due::Silent;
        }
        if self.waiting || now.mono_millis < self.sent_at + self.interval_millis {
            return Due::Nothing;
        }
        self.opaque = self.opaque.wrapping_add(1);
        (self.waiting, self.sent_at) = (true, now.mono_millis);
        Due::Send(self.opaque)
    }

    /// When there will be something to do (monotonic milliseconds).
    #[must_use]
    pub fn due_at(&self) -> Option<u64> {
        let next = if self.waiting { u64::MAX } else { self.sent_at + self.interval_millis };
        self.enabled.then(|| next.min(self.silent_at()))
    }

    fn silent_at(&self) -> u64 {
        // Twice: an interval until we ask, and one to answer.
        self.heard_at + SILENCE_MILLIS.max(2 * self.interval_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { wall_nanos: 0, mono_millis: seconds * 1000 }
    }

    #[test]
    fn one_is_sent_per_interval_and_not_before_the_last_was_answered() {
        let mut noop = Noop::new(at(0));
        assert_eq!((noop.due(at(1000)), noop.due_at()), (Due::Nothing, None));
        noop.heard(at(1000));
        noop.enable(true);
        noop.set_interval(30_000);
        let Due::Send(first) = noop.due(at(1000)) else { panic!("none sent") };
        assert_eq!(noop.due(at(1100)), Due::Nothing);
        assert!(!noop.answered(first + 1) && noop.is_waiting());
        noop.heard(at(1101));
        assert!(noop.answered(first));
        assert_eq!(noop.due_at(), Some(1_030_000));
        assert_eq!(noop.due(at(1101)), Due::Send(first + 1));
    }

    #[test]
    fn only_complete_silence_ends_a_connection() {
        let mut noop = Noop::new(at(0));
        noop.enable(true);
        assert!(matches!(noop.due(at(20)), Due::Send(_)));
        assert_eq!((noop.due_at(), noop.due(at(359))), (Some(360_000), Due::Nothing));
        noop.heard(at(359));
        assert_eq!(noop.due(at(718)), Due::Nothing);
        assert_eq!(noop.due(at(719)), Due::Silent);
        noop.set_interval(600_000);
        assert_eq!(noop.due(at(1558)), Due::Nothing);
        assert_eq!(noop.due(at(1559)), Due::Silent);
    }
}
