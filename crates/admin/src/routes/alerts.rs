//! `/settee/alerts`: what fires now on every node, and which alerts there are. Of Settee alone.

use http::reply::{self, Outcome, json_ok};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use watch::alerts::ALERTS;

use super::{nodes, silences::silenced_until, users::rfc3339};
use crate::{call::Call, figures};

/// Where a node tells the others what fires on it.
const PATH: &str = "/_settee/alerts";

/// An alert that fires on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringAlert {
    /// Which.
    pub name: String,
    /// `warning` or `critical`.
    pub level: String,
    /// What it is about: a bucket, an objective, a node. Empty: the node that tells it.
    pub subject: String,
    /// What is to be told.
    pub text: String,
    /// Since when, in seconds since 1970.
    pub since_secs: u64,
}

/// `GET /settee/alerts`.
pub(super) async fn list(call: &Call) -> Outcome {
    let (told, missing) = figures::every(call, PATH, call.api.control.firing_alerts()).await;
    let mut firing: Vec<Value> = told
        .into_iter()
        .flat_map(|(node, alerts)| alerts.into_iter().map(move |alert| (node, alert)))
        .map(|(node, alert)| {
            let node = call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
            let mut shown = json!({
                "name": alert.name, "level": alert.level, "node": node, "subject": alert.subject, "text": alert.text,
                "since": rfc3339(alert.since_secs.saturating_mul(1_000)),
            });
            if let Some(until) = silenced_until(&call.meta, &alert.name, &alert.subject) {
                shown["silencedUntil"] = rfc3339(until.saturating_mul(1_000)).into();
            }
            shown
        })
        .collect();
    // Critical ones come first; their word is the smaller one.
    firing.sort_by_key(|alert| alert["level"].as_str().unwrap_or_default().to_owned());
    let missing: Vec<_> = missing.into_iter().filter_map(|node| call.meta.node_by_id(node)).collect();
    let missing: Vec<_> = missing.into_iter().map(|node| nodes::hostname(call, node)).collect();
    Ok(json_ok(&json!({ "firing": firing, "missingNodes": missing })))
}

/// `GET /settee/alerts/kinds`: every alert there is, with what to do about it.
pub(super) fn kinds() -> Outcome {
    let shown = ALERTS.iter().map(|about| {
        json!({
            "name": about.name, "level": about.level.word(), "firesAfterSecs": about.fires_after_secs,
            "clearsAfterSecs": about.clears_after_secs, "means": about.means, "cause": about.cause, "act": about.act,
        })
    });
    Ok(json_ok(&json!({ "kinds": shown.collect::<Vec<_>>() })))
}

/// `POST /_settee/alerts`: what fires on this node.
pub(super) fn show(call: &Call) -> Outcome {
    match serde_json::to_value(call.api.control.firing_alerts()) {
        Ok(firing) => Ok(json_ok(&firing)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}
