//! What an administrator must know of this node.

use admin::NodeControl as _;
use cluster::{ClusterError, NodeInfo};
use dataplane::{BucketMeter, lease, shared::BucketEntry};
use engine::{Bucket, Pressure};
use watch::alerts::{self, Holds};

use super::Control;
use crate::watching::{looks::Look, rules};

impl Control {
    /// Replicas of a bucket that shall follow other nodes' copies now, and do not.
    pub(crate) fn cut_off(&self, bucket: &BucketEntry) -> u64 {
        let links = self.shared.links();
        links.map_or(0, |links| links.cut_off(&bucket.uuid).values().copied().map(u64::from).sum())
    }

    pub(crate) fn lease_alert(&self) -> Option<Holds> {
        let full_millis = self.metadata.load().lease_ms();
        let (lease, touch, clock) = (&self.shared.lease, &self.alerting().touch, lease::clock_millis());
        let held = rules::lease(lease, &mut touch.lock(), full_millis, clock, self.unix_secs(), &self.host());
        held.filter(|_| !rules::is_leaving(&self.metadata.load(), &self.this_node.uuid()))
    }

    /// Whether this node hears of no node that leads. Elections are over in a moment, so it is to be told where it lasts.
    pub(crate) fn majority_alert(&self) -> Option<Holds> {
        let metadata = self.metadata.load();
        rules::majority(&metadata, &self.this_node.uuid(), self.cluster_status().stale)
    }

    pub(crate) fn failover_alert(&self) -> Option<Holds> {
        let metadata = self.metadata.load();
        let is_out = metadata.node(&self.this_node.uuid()).is_some_and(NodeInfo::is_failed_over);
        is_out.then(|| Holds::new(&alerts::FAILED_OVER, "", ClusterError::failed_over(&metadata).to_string()))
    }

    pub(crate) fn agreement_alert(&self) -> Option<Holds> {
        rules::agreement(self.agreement.trouble(), &self.host())
    }

    pub(crate) fn two_groups_alert(&self) -> Option<Holds> {
        rules::two_groups(self.agreement.has_another_group(), &self.metadata.load(), &self.host())
    }

    pub(crate) fn disk_alert(&self) -> Option<Holds> {
        let disk = *self.shared.disk.lock();
        let used = (disk.total - disk.free.min(disk.total)) * 100 / disk.total.max(1);
        disk.low.then(|| {
            let (folder, node) = (self.gauges.data_dir(), self.host());
            let text = format!(
                "Approaching full disk warning. Usage of disk \"{folder}\" on node \"{node}\" is around {used}%: only deletions are \
                 accepted."
            );
            Holds::new(&alerts::DISK_LOW, "", text)
        })
    }

    /// What holds of the node and its buckets at this moment.
    pub(crate) fn holding(&self) -> Vec<Holds> {
        let of_node = [
            self.disk_alert(),
            self.failover_alert(),
            self.lease_alert(),
            self.agreement_alert(),
            self.two_groups_alert(),
        ];
        let mut holding: Vec<Holds> = of_node.into_iter().flatten().collect();
        let node = self.host();
        holding.extend(rules::unopened(self.open_buckets().unopened(), &node));
        let look = Look { past: self.gauges().history(), node: &node, now_secs: self.unix_secs() };
        for (bucket, meter) in self.open_buckets().metered_buckets() {
            holding.extend(self.pressure_of(&bucket));
            holding.extend(look.trends(bucket.name(), bucket.stats().quota_bytes));
            holding.extend(self.hot_of(bucket.name(), &meter));
        }
        holding
    }

    /// What the memory of a bucket makes an administrator's business: before clients see errors, then while they do.
    pub(crate) fn pressure_of(&self, bucket: &Bucket) -> Vec<Holds> {
        let (name, node) = (bucket.name(), self.host());
        let mut holding = Vec::new();
        let mut add = |about, text: String| holding.push(Holds::new(about, name, text));
        let (is_close, later) = of_pressure(bucket.pressure_step(), bucket.room_urgency());
        if is_close {
            add(
                &alerts::MEMORY_CLOSE,
                format!(
                    "Memory pressure: Bucket \"{name}\" on node {node} is close to its quota. Slow streams are read from disk."
                ),
            );
        }
        match later {
            Later::None => {}
            Later::Paced => add(
                &alerts::WRITES_PACED,
                format!(
                    "Write pressure: Writers of bucket \"{name}\" on node {node} are slowed down to what the disk takes."
                ),
            ),
            Later::Refused => add(
                &alerts::WRITES_REFUSED,
                format!(
                    "Heavy memory pressure: Bucket \"{name}\" on node {node} has reached its quota. The server will attempt to \
                     recover from this issue."
                ),
            ),
        }
        holding.extend(rules::bucket(name, bucket.kind(), &bucket.stats(), &node));
        holding
    }

    fn hot_of(&self, name: &str, meter: &BucketMeter) -> Vec<Holds> {
        rules::hot(name, &meter.hot(name, self.loops().0.now().mono_millis), &self.host())
    }
}

/// What pressure does to writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Later {
    None,
    Paced,
    Refused,
}

/// Whether memory is close to the quota, and what writers meet. `urgency` is 1 where lagging streams are sent to the disk. A bucket
/// that fills quickly comes to a later step between two looks, and what it has too much of may be dirty bytes alone.
fn of_pressure(step: Pressure, urgency: f64) -> (bool, Later) {
    let is_close = step == Pressure::Cursors || (step > Pressure::Cursors && urgency >= 1.0);
    let later = match step {
        Pressure::None | Pressure::Paging | Pressure::Cursors => Later::None,
        Pressure::Pacing => Later::Paced,
        Pressure::Refusing => Later::Refused,
    };
    (is_close, later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_close_to_its_quota_is_told_at_later_steps_too() {
        let told = |step| [0.4, 1.0].map(|urgency| of_pressure(step, urgency));
        assert_eq!(told(Pressure::Paging), [(false, Later::None); 2]);
        assert_eq!(told(Pressure::Cursors), [(true, Later::None); 2]);
        assert_eq!(told(Pressure::Pacing), [(false, Later::Paced), (true, Later::Paced)]);
        assert_eq!(told(Pressure::Refusing), [(false, Later::Refused), (true, Later::Refused)]);
    }
}
