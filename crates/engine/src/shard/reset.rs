//! That what a copy holds is to go, as the flusher finds it noted.

use base::{Now, VbRole};

/// What a copy held that is none any more may stay for so long, so that others are emptied with it.
const WAIT_MILLIS_MAX: u64 = 2_000;

/// That what a copy holds is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    /// The role and term in which it is no use.
    pub(crate) role_state: (VbRole, u64),
    /// When that was found (monotonic milliseconds).
    pub(crate) since_millis: u64,
}

impl Reset {
    /// Whether nobody waits for it.
    pub(crate) fn may_wait(&self, now: Now) -> bool {
        let waited = now.mono_millis.saturating_sub(self.since_millis);
        self.role_state.0 == VbRole::Dead && waited < WAIT_MILLIS_MAX
    }
}
