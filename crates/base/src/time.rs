//! Time as a value: state machines are handed a [`Now`], they never read a clock.

use crate::limits::EXPIRY_RELATIVE_SECS_MAX;

/// One reading of the clocks, taken by the driver of a state machine (a worker takes one per turn).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock nanoseconds since the Unix epoch; source of CAS values. May jump.
    pub wall_nanos: u64,
    /// Monotonic milliseconds since an arbitrary start; source of lock and queue deadlines. Never goes back.
    pub mono_millis: u64,
}

impl Now {
    /// Wall-clock seconds since the Unix epoch; source of expiry decisions.
    #[inline]
    #[must_use]
    pub const fn unix_secs(self) -> u32 {
        (self.wall_nanos / 1_000_000_000) as u32
    }

    /// Turns an expiry from the wire (0 none, up to 30 days relative, beyond that absolute) into absolute Unix
    /// seconds, 0 meaning never.
    #[inline]
    #[must_use]
    pub const fn absolute_expiry(self, wire: u32) -> u32 {
        if wire == 0 {
            0
        } else if wire <= EXPIRY_RELATIVE_SECS_MAX {
            self.unix_secs().saturating_add(wire)
        } else {
            wire
        }
    }
}
