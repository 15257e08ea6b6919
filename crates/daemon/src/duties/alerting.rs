//! Looks once a second whether an administrator should know of something before clients notice it. It tells the log when an alert
//! fires and when it is over. What fires when is decided by [`watch::alerts`]; the figures are those of the statistics.

use std::{sync::Arc, time::Duration};

use admin::{MailSettings, NodeControl as _, Webhook};
use cluster::Metadata;
use engine::Bucket;
use http::Gate as _;
use tokio::sync::watch as flags;
use watch::{
    alerts::{self, Change, Firing, Holds},
    silences::Outbox,
    turns::is_about_a_node,
};

use super::ticks::Ticks;
use crate::{
    control::Control,
    duties::{mail::Mailer, webhook},
    watching::{looks::Look, rules},
};

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks until `ended`.
pub(crate) async fn run(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let sender = webhook::Sender::start(Arc::clone(&control), ended.clone());
    let mailer = Mailer::start(Arc::clone(&control), ended.clone());
    let (mut known, mut outbox) = (None, Outbox::default());
    let (mut mails_known, mut mails) = (MailSettings::default(), Outbox::default());
    // What its cluster calls this node. One that was removed is called so still.
    let mut name = control.name();
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
        let has_left = metadata.node(&this_node).is_none();
        let is_silenced = |firing: &Firing| {
            silences.values().any(|one| one.covers(firing.about.name, &firing.subject, &this_node, now))
        };
        let mut firing = control.to_send();
        if has_left {
            // It was removed, and is about to begin anew. Nobody could end later what it has sent.
            firing.clear();
        } else {
            name = control.name();
        }
        if known.is_some() {
            let changes = outbox.look(firing.clone(), is_silenced);
            changes.iter().for_each(|change| sender.send(&control, change, &name));
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

/// Whether an alert is about a node that is none of the cluster's.
fn is_of_no_node(firing: &Firing, metadata: &Metadata) -> bool {
    is_about_a_node(firing.about.name)
        && !metadata.nodes.iter().any(|node| admin::name_in_alerts(node) == firing.subject)
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
        let (metadata, node) = (self.metadata(), self.host());
        holding.extend(rules::burning(&metadata, self.objectives_here().counted(&metadata, now), &node));
        holding.extend(rules::runs_out(self.forecasting().told(), now, &node, &self.gauges().data_dir()));
        holding.extend(self.fills_soon(now));
        holding.extend(self.certificates_end(now));
        holding.extend(self.nodes_down());
        holding.extend(self.majority_alert());
        holding.extend(self.clocks().skew(&node));
        holding.extend(self.probing().silent(&metadata));
        let mut board = self.alerting().board.lock();
        // Nothing is to be told of a node that has left, however long it had not answered.
        let mut changes = board.end(|one| is_of_no_node(one, &metadata));
        changes.extend(board.look(now, holding));
        changes
    }

    /// What runs out within the hour.
    fn fills_soon(&self, now_secs: u64) -> Vec<Holds> {
        let node = self.host();
        let look = Look { past: self.gauges().history(), node: &node, now_secs };
        let (open, disk) = (self.open_buckets().metered_buckets(), *self.loops().0.disk.lock());
        let names: Vec<&str> = open.iter().map(|(bucket, _)| bucket.name()).collect();
        let disk = look.disk_fills(&names, &disk, &self.gauges().data_dir());
        let of_bucket = |bucket: &Bucket| look.memory_fills(bucket.name(), bucket.kind(), &bucket.stats());
        open.iter().flat_map(|(bucket, _)| of_bucket(bucket)).chain(disk).collect()
    }

    /// This node's certificate, and the authorities that its cluster trusts.
    fn certificates_end(&self, now_secs: u64) -> Vec<Holds> {
        let own = self.certificate_pem().and_then(|pem| self.alerting().certificate_end(pem));
        let own = own.and_then(|ends| rules::certificate(&ends, now_secs, &self.host()));
        let authorities = self.alerting().authorities(&self.metadata());
        let authorities =
            authorities.iter().filter_map(|(name, ends)| rules::authority(name, ends, now_secs));
        own.into_iter().chain(authorities).collect()
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
            let name = admin::name_in_alerts(node);
            let text = format!("Node {name} is not heard of.");
            Holds::new(&alerts::NODE_DOWN, name, text)
        };
        silent.map(down).collect()
    }
}
