//! That what a copy holds is to go, as the flusher finds it noted.

use base::{Now, VbRole};

/// What copies hold that are none any more may stay for so long, or until there are so many of them: each time that some are
/// emptied, a compaction that is under way is given up, and a manifest is written.
pub(crate) const COMPANY_MILLIS: u64 = 2_000;

/// That what a copy holds is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    /// The role and term in which it is no use.
    pub(crate) standing: (VbRole, u64),
    /// When that was found (monotonic milliseconds).
    pub(crate) since_millis: u64,
}

impl Reset {
    /// Whether nobody waits for it.
    pub(crate) fn may_wait(&self, now: Now) -> bool {
        let waited = now.mono_millis.saturating_sub(self.since_millis);
        self.standing.0 == VbRole::Dead && waited < COMPANY_MILLIS
    }
}
