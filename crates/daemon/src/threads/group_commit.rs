//! Group commit: after a slow sync the next begins when the durable writers whom it let go are back.
//!
//! Without that, writers that each wait for their write split into two groups that take turns. While one group's writes
//! are synced the other's gather, and every sync carries half of what it could. Where a sync is slow, coming back takes
//! a client far less time than a sync. So waiting for that is worth up to half of one. A client that does not come back
//! is not waited for longer. Where a sync is fast there is nothing to be won.

use std::time::{Duration, Instant};

use engine::{Bucket, FlushReport};

use crate::threads::wake_flag::WakeFlag;

/// From here on a sync is slow.
const SLOW: Duration = Duration::from_millis(1);
/// Longest wait, whatever a sync takes.
const LONGEST: Duration = Duration::from_millis(2);

/// Whom the next flush waits for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupCommit {
    /// Durable writes since the last flush began.
    expected: usize,
    longest: Duration,
}

impl GroupCommit {
    /// Behind a flush that took so long, `waiting` durable writes having been made since it began. `None` when the next
    /// one is for nobody in particular.
    pub(crate) fn after(report: &FlushReport, took: Duration, waiting: usize) -> Option<Self> {
        // Writes of the last moment may be in both; then their writers come back, too.
        let expected = report.durable + waiting;
        let is_worth_it = report.durable > 0 && expected > 1 && took >= SLOW && report.failed.is_none();
        is_worth_it.then(|| Self { expected, longest: (took / 2).min(LONGEST) })
    }

    /// Waits for them. The flusher's wake flag is set when all are there.
    pub(crate) fn gather(self, bucket: &Bucket, shard: usize, wake_flag: &WakeFlag) {
        let until = Instant::now() + self.longest;
        bucket.gather_durable(shard, self.expected);
        while bucket.durable_waiting(shard) < self.expected {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            wake_flag.wait(left);
        }
        bucket.gather_durable(shard, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_flush_is_followed_by_one_for_the_same_writers() {
        let completed = |durable| FlushReport { synced: true, durable, ..FlushReport::default() };
        let group = |expected, millis| Some(GroupCommit { expected, longest: Duration::from_millis(millis) });
        let slow = Duration::from_millis(2);
        assert_eq!(GroupCommit::after(&completed(30), slow, 2), group(32, 1));
        assert_eq!(GroupCommit::after(&completed(1), slow, 31), group(32, 1));
        assert_eq!(GroupCommit::after(&completed(30), slow * 50, 2), group(32, 2), "no longer than that");
        assert_eq!(GroupCommit::after(&completed(30), SLOW / 2, 2), None, "a fast disk is not waited for");
        assert_eq!(GroupCommit::after(&completed(1), slow, 0), None, "one writer makes no group");
        assert_eq!(GroupCommit::after(&completed(0), slow, 5), None, "nobody comes back");
        let failed = FlushReport { failed: Some(engine::FlushFailure::NoSpace), ..completed(5) };
        assert_eq!(GroupCommit::after(&failed, slow, 5), None);
    }
}
