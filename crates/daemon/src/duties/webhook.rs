//! Where alerts are sent: a webhook of the cluster's. Every node posts the alerts that fire on it and their ends there, as JSON.
//!
//! Invariant: delivery is bounded in time and number, and holds nothing else up. What could not be delivered is said in the log.

use std::{sync::Arc, time::Duration};

use admin::{Callee, NodeCall, NodeControl, Webhook};
use http::Gate as _;
use serde_json::json;
use tokio::sync::{mpsc, watch as flags};
use watch::alerts::{Change, Firing};

use crate::control::Control;

/// Changes that wait to be sent; more are dropped.
const WAITING_MAX: usize = 64;
/// How long a webhook may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pauses before a change is sent again.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// A change as it is posted.
struct Post {
    /// Of the alert.
    name: &'static str,
    body: Vec<u8>,
}

/// Takes changes to be sent.
pub(crate) struct Sender(mpsc::Sender<Post>);

impl Sender {
    /// Starts what sends, until `ended`.
    pub(crate) fn start(control: Arc<Control>, ended: flags::Receiver<bool>) -> Self {
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(control, waiting, ended));
        Self(sender)
    }

    /// Has a change sent, where a webhook is set. `node`: what the cluster calls this node.
    pub(crate) fn send(&self, control: &Control, change: &Change, node: &str) {
        let (name, _) = described(change);
        let body = body(control, change, node).to_string().into_bytes();
        if self.0.try_send(Post { name, body }).is_err() {
            tracing::warn!(alert = name, "an alert was not sent: too many wait for the webhook");
        }
    }
}

async fn run(control: Arc<Control>, mut waiting: mpsc::Receiver<Post>, mut ended: flags::Receiver<bool>) {
    loop {
        let post = tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            post = waiting.recv() => post,
        };
        let Some(post) = post else { return };
        let Some(webhook) = Webhook::of(&control.metadata()) else { continue };
        tokio::select! {
            _ = ended.wait_for(|stop| *stop) => return,
            () = deliver(&control, &webhook, &post) => {}
        }
    }
}

async fn deliver(control: &Control, webhook: &Webhook, post: &Post) {
    let mut failure = String::new();
    for pause in [Duration::ZERO].into_iter().chain(AGAIN) {
        tokio::time::sleep(pause).await;
        let call = NodeCall {
            to: Callee::Stranger { host: webhook.host.clone(), port: webhook.port, tls: webhook.tls },
            method: "POST".into(),
            path: webhook.path.clone(),
            credentials: None,
            content_type: "application/json".into(),
            body: post.body.clone(),
        };
        failure = match tokio::time::timeout(PATIENCE, control.call_node(call)).await {
            Ok(Ok((200..=299, _))) => return,
            Ok(Ok((status, _))) => format!("it answers {status}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer in time".into(),
        };
    }
    tracing::warn!(
        alert = post.name,
        host = webhook.host,
        failure,
        "an alert could not be sent to the webhook"
    );
}

fn described(change: &Change) -> (&'static str, &'static str) {
    match change {
        Change::Fired(Firing { about, .. }) => (about.name, "fired"),
        Change::Cleared(Firing { about, .. }) => (about.name, "cleared"),
    }
}

fn body(control: &Control, change: &Change, node: &str) -> serde_json::Value {
    let (Change::Fired(firing) | Change::Cleared(firing)) = change;
    let (name, event) = described(change);
    let metadata = control.metadata();
    json!({
        "event": event, "name": name, "level": firing.about.level.word(), "subject": firing.subject, "text": firing.text,
        "since": admin::rfc3339(firing.since_secs.saturating_mul(1_000)), "node": node,
        "cluster": metadata.cluster_name, "clusterUuid": metadata.cluster_uuid, "act": firing.about.act,
        "guide": firing.about.guide(), "guideUrl": control.guide_url(firing.about),
    })
}
