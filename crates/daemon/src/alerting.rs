//! Looks once a second whether there is something that an administrator should know before clients notice it, and tells the log
//! when an alert fires and when it is over. What fires when is decided by [`watch::alerts`]; the figures are those of the statistics.

use std::{sync::Arc, time::Duration};

use admin::{NodeControl as _, Webhook};
use base::bucket::BucketKind;
use dataplane::BucketMeter;
use engine::{Bucket, Pressure};
use http::Gate as _;
use parking_lot::Mutex;
use plan::forecast::{Forecast, Point, reaching};
use tokio::sync::watch as flags;
use watch::{
    Severity,
    alerts::{self, Board, Change, Firing, Holds},
    hot, judge,
    silences::Outbox,
    trend::{LOOKS, grows},
};

use super::{control::Control, webhook};
use stats::{HotClient, Zoom};

use crate::statistics::{FiringFacts, of_alert};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Seconds between two forecasts: they look at two weeks.
const FORECAST_EVERY: u64 = 600;
/// A figure that reaches its limit within so many seconds is worth an alert.
const SOON: u64 = 14 * 24 * 3600;
/// A certificate is to be replaced within so many seconds.
const CERTIFICATE_SOON: u64 = 30 * 24 * 3600;
/// Queues that are shorter grow and shrink all the time.
const QUEUE_MIN: f64 = 10_000.0;
/// Of fewer reads a second the share that waits for the disk says nothing.
const READS_MIN: f64 = 100.0;
/// Share of reads that may wait for the disk.
const FETCHED_SHARE: f64 = 0.1;
/// Percent of a quota that keys and metadata may take (ns_server).
const OVERHEAD_PERCENT: u64 = 50;

/// The alerts of this node.
#[derive(Default)]
pub(crate) struct Alerting {
    board: Mutex<Board>,
    /// When the disk was looked ahead for last, and what holds since.
    ahead: Mutex<(u64, Option<Holds>)>,
}

impl Alerting {
    /// What fires now, the gravest first.
    pub(super) fn firing(&self) -> Vec<Firing> {
        self.board.lock().firing().into_iter().cloned().collect()
    }

    /// The same as statistics.
    pub(super) fn readings(&self) -> Vec<stats::Reading> {
        let firing = self.firing();
        firing.iter().flat_map(|one| of_alert(&FiringFacts { level: one.about.level }, one)).collect()
    }
}

/// Looks until `ended`.
pub(super) async fn run(control: Arc<Control>, mut ended: flags::Receiver<bool>) {
    let sender = webhook::Sender::start(Arc::clone(&control), ended.clone());
    let (mut known, mut outbox) = (None, Outbox::default());
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => {}
        }
        control.look_at_alerts().iter().for_each(tell);
        let metadata = control.metadata();
        let webhook = Webhook::of(&metadata);
        if webhook != known {
            // A webhook that is new hears of what fires already.
            (known, outbox) = (webhook, Outbox::default());
        }
        if known.is_some() {
            let (silences, now) = (admin::silences(&metadata), control.unix_secs());
            let covers = |firing: &Firing| {
                silences.values().any(|one| one.covers(firing.about.name, &firing.subject, now))
            };
            outbox.look(control.alerting().firing(), covers).iter().for_each(|change| sender.send(change));
        }
    }
}

fn tell(change: &Change) {
    match change {
        Change::Fired(Firing { about, subject, text, .. }) => {
            tracing::warn!(alert = about.name, level = about.level.word(), subject, text, "an alert fires");
        }
        Change::Cleared(Firing { about, subject, .. }) => {
            tracing::info!(alert = about.name, subject, "an alert is over");
        }
    }
}

impl Control {
    /// Looks at everything, and says which alerts fire or are over by that.
    fn look_at_alerts(&self) -> Vec<Change> {
        let now = self.unix_secs();
        let mut holding = self.holding();
        holding.extend(self.burning(now));
        holding.extend(self.disk_ahead(now));
        holding.extend(self.certificate_ends(now));
        holding.extend(self.nodes_down());
        holding.extend(self.clock_skew());
        holding.extend(self.probing().silent(&self.metadata()));
        self.alerting().board.lock().look(now, holding)
    }

    pub(crate) fn unix_secs(&self) -> u64 {
        u64::from(self.loops().0.now().unix_secs())
    }

    /// What holds of the node and its buckets at this moment.
    pub(super) fn holding(&self) -> Vec<Holds> {
        let mut holding: Vec<Holds> =
            [self.disk_alert(), self.failover_alert(), self.lease_alert(), self.agreement_alert()]
                .into_iter()
                .flatten()
                .collect();
        for (bucket, meter) in self.open_buckets().metered_buckets() {
            holding.extend(self.pressure_of(&bucket));
            holding.extend(self.trends_of(&bucket));
            holding.extend(self.hot_of(bucket.name(), &meter));
        }
        holding
    }

    /// What the memory of a bucket makes an administrator's business: before clients see errors, then while they do.
    pub(super) fn pressure_of(&self, bucket: &Bucket) -> Vec<Holds> {
        let (name, node) = (bucket.name(), self.address());
        let mut holding = Vec::new();
        let mut add = |about, text: String| holding.push(Holds::new(about, name, text));
        match bucket.pressure_step() {
            Pressure::None | Pressure::Paging => {}
            Pressure::Cursors => add(
                &alerts::MEMORY_CLOSE,
                format!(
                    "Memory pressure: Bucket \"{name}\" on node {node} is close to its quota. Slow streams are read from disk."
                ),
            ),
            Pressure::Pacing => add(
                &alerts::WRITES_PACED,
                format!(
                    "Write pressure: Writers of bucket \"{name}\" on node {node} are slowed down to what the disk takes."
                ),
            ),
            Pressure::Refusing => add(
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
        let (name, node) = (bucket.name(), self.address());
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
        let node = self.address();
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

    /// Objectives whose budgets burn too fast, by what this node has counted.
    fn burning(&self, now_secs: u64) -> Vec<Holds> {
        let metadata = self.metadata();
        let burning = |one: admin::Counted| {
            let objective = metadata.buckets.get(&one.bucket)?.objectives.get(&one.objective)?;
            let judged = judge(objective.target_ppm, &one.spans);
            let rule = judged.worst()?;
            let about = match rule.severity {
                Severity::Page => &alerts::BURN_PAGE,
                Severity::Ticket => &alerts::BURN_TICKET,
            };
            let burn = judged.burn[rule.long as usize].unwrap_or_default();
            let (seen, place) = match one.source {
                admin::Source::Server => ("", String::new()),
                admin::Source::Probe => (" by its probes", "/probe".to_owned()),
            };
            let text = format!(
                "Objective \"{}\" of bucket \"{}\": node {} uses its error budget {burn:.1} times too fast over {}{seen}.",
                one.objective,
                one.bucket,
                self.address(),
                rule.long.name(),
            );
            Some(Holds::new(about, format!("{}/{}{place}", one.bucket, one.objective), text))
        };
        self.objectives_here().counted(&metadata, now_secs).into_iter().filter_map(burning).collect()
    }

    /// Whether the disk will be full soon.
    fn disk_ahead(&self, now_secs: u64) -> Option<Holds> {
        let mut ahead = self.alerting().ahead.lock();
        if now_secs < ahead.0 || now_secs - ahead.0 >= FORECAST_EVERY {
            *ahead = (now_secs, self.forecast_disk(now_secs));
        }
        ahead.1.clone()
    }

    fn forecast_disk(&self, now_secs: u64) -> Option<Holds> {
        let disk = *self.loops().0.disk.lock();
        let bucket = self.metadata().buckets.keys().next()?.clone();
        let samples = self.gauges().samples(self.loops().0, &bucket, Zoom::Month)?;
        let free = samples.values.get("settee_disk_free")?;
        // Half-hours; two of them are an hour.
        let points = samples
            .timestamps
            .iter()
            .zip(free)
            .step_by(2)
            .map(|(at_ms, free)| Point { at_secs: at_ms / 1_000, value: disk.total as f64 - free });
        let limit = disk.total.saturating_sub(disk.free_min) as f64;
        let Forecast::Reaches { likely_secs: Some(full), .. } = reaching(&points.collect::<Vec<_>>(), limit)
        else {
            return None;
        };
        let days = full.saturating_sub(now_secs) / 86_400;
        let text = || {
            format!(
                "The disk \"{}\" of node {} will be full in {days} days.",
                self.gauges().data_dir(),
                self.address()
            )
        };
        (full.saturating_sub(now_secs) < SOON).then(|| Holds::new(&alerts::DISK_FILLS, "", text()))
    }

    fn certificate_ends(&self, now_secs: u64) -> Option<Holds> {
        let pem = self.certificate_pem()?;
        let ends = cluster::x509::Certificate::of_pem(&pem)?.not_after;
        // Both are in one form, in which the later time is the greater text.
        (ends.as_str() < admin::rfc3339((now_secs + CERTIFICATE_SOON) * 1_000).as_str()).then(|| {
            let day = ends.split('T').next().unwrap_or_default();
            let text =
                format!("The certificate that node {} shows to clients ends on {day}.", self.address());
            Holds::new(&alerts::CERTIFICATE_ENDS, "", text)
        })
    }

    /// Nodes that are not heard of: told by the node that leads.
    fn nodes_down(&self) -> Vec<Holds> {
        let status = self.cluster_status();
        if status.stale || !self.leads() {
            return Vec::new();
        }
        let metadata = self.metadata();
        let silent = status.silent.iter().filter_map(|id| metadata.node_by_id(*id));
        let down = |node: &cluster::NodeInfo| {
            let name = format!("{}:{}", node.host, node.ports.mgmt);
            let text = format!("Node {name} is not heard of.");
            Holds::new(&alerts::NODE_DOWN, name, text)
        };
        silent.map(down).collect()
    }
}

/// Of the newest half minute; nothing of less.
fn mean(figures: &[f64]) -> f64 {
    let newest = figures.len().checked_sub(LOOKS).and_then(|from| figures.get(from..));
    newest.map_or(0.0, |newest| newest.iter().sum::<f64>() / LOOKS as f64)
}
