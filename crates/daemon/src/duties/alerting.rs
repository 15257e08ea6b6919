//! Looks once a second whether there is something that an administrator should know before clients notice it, and tells the log
//! when an alert fires and when it is over. What fires when is decided by [`watch::alerts`]; the figures are those of the statistics.

use std::{sync::Arc, time::Duration};

use admin::{NodeControl as _, Webhook};
use http::Gate as _;
use plan::forecast::{Forecast, Point, reaching};
use stats::Zoom;
use tokio::sync::watch as flags;
use watch::{
    Severity,
    alerts::{self, Change, Firing, Holds},
    judge,
    silences::Outbox,
};

use crate::{control::Control, duties::webhook};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Seconds between two forecasts: they look at two weeks.
const FORECAST_EVERY: u64 = 600;
/// A figure that reaches its limit within so many seconds is worth an alert.
const SOON: u64 = 14 * 24 * 3600;
/// A certificate is to be replaced within so many seconds.
const CERTIFICATE_SOON: u64 = 30 * 24 * 3600;

/// Looks until `ended`.
pub(crate) async fn run(control: Arc<Control>, mut ended: flags::Receiver<bool>) {
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
        holding.extend(self.clocks().skew(&self.address().to_string()));
        holding.extend(self.probing().silent(&self.metadata()));
        self.alerting().board.lock().look(now, holding)
    }

    pub(crate) fn unix_secs(&self) -> u64 {
        u64::from(self.loops().0.now().unix_secs())
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
