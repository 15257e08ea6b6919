//! What keeps a node from serving although it is there: for orchestrators, which ask without a login.

use admin::Obstacle;
use dataplane::lease;

use super::Control;

impl Control {
    /// See [`Obstacle`].
    pub(crate) fn find_obstacles(&self) -> Vec<Obstacle> {
        let has_no_lease = self.shared.lease.has_run_out(lease::clock_millis);
        let cannot_write = self.agreement.trouble().is_some() || self.stands_still();
        let is_broken = || self.buckets.metered_buckets().iter().any(|(bucket, _)| bucket.stats().poisoned);
        let found = [
            (has_no_lease, Obstacle::NoLease),
            (cannot_write, Obstacle::MetadataLog),
            (is_broken(), Obstacle::Disk),
        ];
        found.into_iter().filter_map(|(is_so, obstacle)| is_so.then_some(obstacle)).collect()
    }
}
