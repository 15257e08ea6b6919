//! What an administrator must know of this node.

use base::bucket::BucketKind;
use cluster::{ClusterError, NodeInfo};
use dataplane::{BucketMeter, lease, shared::BucketEntry};
use engine::{Bucket, Pressure};
use stats::HotClient;
use watch::{
    alerts::{self, Holds},
    hot,
    trend::{LOOKS, grows},
};

use super::Control;
use crate::past::forecasts::OVERHEAD_PERCENT;

/// Queues that are shorter grow and shrink all the time.
const QUEUE_MIN: f64 = 10_000.0;
/// Of fewer reads a second the share that waits for the disk says nothing.
const READS_MIN: f64 = 100.0;
/// Share of reads that may wait for the disk.
const FETCHED_SHARE: f64 = 0.1;

impl Control {
    /// Replicas of a bucket that shall follow other nodes' copies now, and do not.
    pub(crate) fn cut_off(&self, bucket: &BucketEntry) -> u64 {
        let links = self.shared.links();
        links.map_or(0, |links| links.cut_off(&bucket.uuid).values().copied().map(u64::from).sum())
    }

    pub(crate) fn lease_alert(&self) -> Option<Holds> {
        let lease = &self.shared.lease;
        let (may_not_serve, was_answered) = (lease.has_run_out(lease::clock_millis), lease.was_answered());
        let is_lost = self.alerting().touch.lock().is_lost(may_not_serve, was_answered, self.unix_secs());
        is_lost.then(|| {
            let node = self.host();
            let text = format!(
                "Node {node} has lost touch with its cluster: it serves nothing until a majority hears it again."
            );
            Holds::new(&alerts::NO_TOUCH, "", text)
        })
    }

    pub(crate) fn failover_alert(&self) -> Option<Holds> {
        let metadata = self.metadata.load();
        let is_out = metadata.node(&self.this_node.uuid()).is_some_and(NodeInfo::is_failed_over);
        is_out.then(|| Holds::new(&alerts::FAILED_OVER, "", ClusterError::failed_over(&metadata).to_string()))
    }

    pub(crate) fn agreement_alert(&self) -> Option<Holds> {
        let trouble = self.agreement.trouble()?;
        let text = format!("Cluster metadata cannot change on node {}: {trouble}.", self.host());
        Some(Holds::new(&alerts::METADATA_STUCK, "", text))
    }

    pub(crate) fn two_groups_alert(&self) -> Option<Holds> {
        let other = self.agreement.has_another_group()?;
        let metadata = self.metadata.load();
        let host = metadata.node_by_id(other).map_or("", |node| &node.host);
        let text = format!(
            "Node {host} ({other}) was failed over and goes on in a group that was formed anew. Node {} does not believe it: there are two \
             clusters.",
            self.host()
        );
        Some(Holds::new(&alerts::TWO_GROUPS, "", text))
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
        holding.extend(self.open_buckets().unopened().into_iter().map(|(bucket, why)| {
            let text = format!("Node {} serves nothing of a bucket: {why}.", self.host());
            Holds::new(&alerts::BUCKET_CLOSED, bucket, text)
        }));
        for (bucket, meter) in self.open_buckets().metered_buckets() {
            holding.extend(self.pressure_of(&bucket));
            holding.extend(self.trends_of(&bucket));
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
        let stats = bucket.stats();
        let percent = stats.mem_floor * 100 / stats.quota_bytes.max(1);
        if bucket.kind() == BucketKind::Couchbase && percent > OVERHEAD_PERCENT {
            add(
                &alerts::METADATA_SHARE,
                format!(
                    "Metadata overhead warning. Over {percent}% of RAM allocated to bucket \"{name}\" on node \"{node}\" is \
                     taken up by keys and metadata."
                ),
            );
        }
        if stats.poisoned {
            add(
                &alerts::SYNC_FAILED,
                format!(
                    "A shard of bucket \"{name}\" on node {node} writes no more: a write or a sync has failed."
                ),
            );
        }
        holding
    }

    /// What the last half minute of a bucket's statistics says.
    fn trends_of(&self, bucket: &Bucket) -> Vec<Holds> {
        let (name, node) = (bucket.name(), self.host());
        let last = |stat: &str| self.gauges().last_minute(name, stat);
        let mut holding = Vec::new();
        let mut add = |about, text: String| holding.push(Holds::new(about, name, text));
        let now = |figures: &[f64]| figures.last().copied().unwrap_or_default();
        let queue = last("ep_diskqueue_items");
        if grows(&queue, QUEUE_MIN) {
            let items = now(&queue);
            add(
                &alerts::QUEUE_GROWS,
                format!(
                    "The disk queue of bucket \"{name}\" on node {node} grows: {items:.0} mutations wait."
                ),
            );
        }
        let behind = last("ep_dcp_replica_items_remaining");
        if grows(&behind, QUEUE_MIN) {
            let items = now(&behind);
            add(
                &alerts::REPLICA_LAG,
                format!(
                    "Replicas of bucket \"{name}\" fall behind node {node}: {items:.0} changes are to be sent."
                ),
            );
        }
        let (reads, fetched) = (mean(&last("cmd_get")), mean(&last("ep_bg_fetched")));
        if reads >= READS_MIN && fetched > reads * FETCHED_SHARE {
            let percent = fetched * 100.0 / reads;
            add(
                &alerts::WORKING_SET,
                format!("Of the reads of bucket \"{name}\" on node {node} {percent:.0} % wait for the disk."),
            );
        }
        holding
    }

    /// A key or a client that takes too much of a bucket. The texts go to logs, so they name neither.
    fn hot_of(&self, name: &str, meter: &BucketMeter) -> Vec<Holds> {
        let node = self.host();
        let report = meter.hot(name, self.loops().0.now().mono_millis);
        let percent = |share: f64| share * 100.0;
        let key = report.keys.first().filter(|key| hot::is_hot_key(key.share, key.per_second)).map(|key| {
            let (percent, per_second) = (percent(key.share), key.per_second);
            let text = format!(
                "A single document takes {percent:.0} % of the operations of bucket \"{name}\" on node {node}: {per_second:.0} a \
                 second."
            );
            Holds::new(&alerts::HOT_KEY, name, text)
        });
        let is_hot = |one: &&HotClient| hot::is_hot_client(one.share, one.per_second, report.addresses);
        let client = report.clients.first().filter(is_hot).map(|client| {
            let (percent, per_second) = (percent(client.share), client.per_second);
            let text = format!(
                "A single client address takes {percent:.0} % of the operations of bucket \"{name}\" on node {node}: \
                 {per_second:.0} a second."
            );
            Holds::new(&alerts::HOT_CLIENT, name, text)
        });
        key.into_iter().chain(client).collect()
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

/// Of the newest half minute; nothing of less.
fn mean(figures: &[f64]) -> f64 {
    let newest = figures.len().checked_sub(LOOKS).and_then(|from| figures.get(from..));
    newest.map_or(0.0, |newest| newest.iter().sum::<f64>() / LOOKS as f64)
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
