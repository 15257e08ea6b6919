//! Looks once a second whether an administrator should know of something before clients notice it. It tells the log when an alert
//! fires and when it is over. What fires when is decided by [`watch::alerts`]; the figures are those of the statistics.

use std::{sync::Arc, time::Duration};

use admin::{Foretold, Limit, MailSettings, NodeControl as _, Webhook};
use http::Gate as _;
use tokio::sync::watch as flags;
use watch::{
    Severity,
    alerts::{self, Change, Firing, Holds},
    judge,
    silences::Outbox,
};

use super::ticks::Ticks;
use crate::{
    control::Control,
    duties::{mail::Mailer, webhook},
    past::forecasts::OVERHEAD_PERCENT,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A certificate is to be replaced within so many seconds.
const CERTIFICATE_SOON: u64 = 30 * 24 * 3600;
/// A figure that reaches its limit within so many seconds is worth an alert.
const SOON_SECS: u64 = 14 * DAY_SECS;
const DAY_SECS: u64 = 24 * 3600;

/// Looks until `ended`.
pub(crate) async fn run(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let sender = webhook::Sender::start(Arc::clone(&control), ended.clone());
    let mailer = Mailer::start(Arc::clone(&control), ended.clone());
    let (mut known, mut outbox) = (None, Outbox::default());
    let (mut mails_known, mut mails) = (MailSettings::default(), Outbox::default());
    let mut ticks = Ticks::every(LOOK_EVERY, ended);
    while ticks.next().await {
        control.look_at_alerts().iter().for_each(|change| tell(&control, change));
        let metadata = control.metadata();
        let webhook = Webhook::of(&metadata);
        if webhook != known {
            // A webhook that is new hears of what fires already.
            (known, outbox) = (webhook, Outbox::default());
        }
        let settings = MailSettings::of(&metadata);
        if settings != mails_known {
            (mails_known, mails) = (settings, Outbox::default());
        }
        let (silences, now) = (admin::silences(&metadata), control.unix_secs());
        let this_node = control.this_node();
        let is_silenced = |firing: &Firing| {
            silences.values().any(|one| one.covers(firing.about.name, &firing.subject, &this_node, now))
        };
        let mut firing = control.to_send();
        if known.is_some() {
            outbox.look(firing.clone(), is_silenced).iter().for_each(|change| sender.send(change));
        }
        if mails_known.enabled {
            firing.retain(|one| mails_known.covers(one.about));
            mails.look(firing, is_silenced).iter().for_each(|change| mailer.send(change));
        }
    }
}

/// Has forecasts made until `ended`. They have a task of their own, because they take a while where there are many buckets.
pub(crate) async fn foretell(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let mut ticks = Ticks::every(LOOK_EVERY, ended);
    while ticks.next().await {
        let now = control.unix_secs();
        let buckets: Vec<_> =
            control.open_buckets().metered_buckets().into_iter().map(|(bucket, _)| bucket).collect();
        if control.forecasting().is_due(control.gauges().history(), buckets.len(), now) {
            let control = Arc::clone(&control);
            let look = move || {
                let disk = *control.loops().0.disk.lock();
                control.forecasting().look(control.gauges().history(), &buckets, &disk, now);
            };
            let _ = tokio::task::spawn_blocking(look).await;
        }
    }
}

fn tell(control: &Control, change: &Change) {
    match change {
        Change::Fired(Firing { about, subject, text, .. }) => {
            let guide = control.guide_url(about).unwrap_or_else(|| about.guide());
            tracing::warn!(
                alert = about.name,
                level = about.level.word(),
                subject,
                text,
                guide,
                "an alert fires"
            );
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
        holding.extend(self.runs_out(now));
        holding.extend(self.certificate_ends(now));
        holding.extend(self.nodes_down());
        holding.extend(self.clocks().skew(&self.host()));
        holding.extend(self.probing().silent(&self.metadata()));
        self.alerting().board.lock().look(now, holding)
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
                admin::Source::Sdk => (" as its clients tell", "/sdk".to_owned()),
            };
            let text = format!(
                "Objective \"{}\" of bucket \"{}\": node {} uses its error budget {burn:.1} times too fast over {}{seen}.",
                one.objective,
                one.bucket,
                self.host(),
                rule.long.name(),
            );
            Some(Holds::new(about, format!("{}/{}{place}", one.bucket, one.objective), text))
        };
        self.objectives_here().counted(&metadata, now_secs).into_iter().filter_map(burning).collect()
    }

    /// What runs out within two weeks.
    fn runs_out(&self, now_secs: u64) -> Vec<Holds> {
        let node = self.host();
        let held = |one: Foretold| {
            let left = one.likely_secs?.saturating_sub(now_secs);
            let days = match left / DAY_SECS {
                0 => "less than a day".to_owned(),
                1 => "a day".to_owned(),
                days => format!("{days} days"),
            };
            let bucket = one.bucket.unwrap_or_default();
            let (about, text) = match one.what {
                Limit::Disk => {
                    let folder = self.gauges().data_dir();
                    let text = format!("The disk \"{folder}\" of node {node} will be full in {days}.");
                    (&alerts::DISK_FILLS, text)
                }
                Limit::Memory => (
                    &alerts::MEMORY_FILLS,
                    format!(
                        "Memory of bucket \"{bucket}\" on node {node} will reach its high watermark in {days}."
                    ),
                ),
                Limit::Metadata => (
                    &alerts::METADATA_FILLS,
                    format!(
                        "Keys and metadata of bucket \"{bucket}\" on node {node} will take more than {OVERHEAD_PERCENT} % of \
                         its quota in {days}."
                    ),
                ),
            };
            (left < SOON_SECS).then(|| Holds::new(about, bucket, text))
        };
        self.forecasting().told().into_iter().filter_map(held).collect()
    }

    fn certificate_ends(&self, now_secs: u64) -> Option<Holds> {
        let ends = self.alerting().certificate_end(self.certificate_pem()?)?;
        // Both are in one form, in which the later time is the greater text.
        (ends.as_str() < admin::rfc3339((now_secs + CERTIFICATE_SOON) * 1_000).as_str()).then(|| {
            let day = ends.split('T').next().unwrap_or_default();
            let text = format!("The certificate that node {} shows to clients ends on {day}.", self.host());
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
