//! `/settee/alerts`: what fires now on every node, and which alerts there are. `/settee/forecast`: what runs out on every node, and when.
//! Of Settee alone.
//!
//! Of forecasts a sender sees those of buckets whose statistics it may see, and of disks where it may see the cluster's.

use base::NodeId;
use cluster::auth::Privilege;
use http::reply::{self, Outcome, json_ok};
use serde_json::{Value, json};
use watch::{alerts::ALERTS, judge, turns::is_shared};

use super::{nodes, objectives, silences::silenced_until};
use crate::{
    node::{
        alerts::FiringAlert,
        forecasts::{Foretold, Outlook},
        time::{now_ms, rfc3339},
    },
    request::{Call, asking},
};

/// Where a node tells the others what fires on it.
const PATH: &str = "/_settee/alerts";

/// `GET /settee/alerts` or `GET /settee/forecast`.
pub(super) async fn of_every_node(call: &Call, what: &str) -> Outcome {
    if what == "forecast" { forecasts(call).await } else { list(call).await }
}

/// `GET /settee/alerts`.
async fn list(call: &Call) -> Outcome {
    let (told, missing) = asking::every(call, PATH, call.api.control.firing_alerts()).await;
    let told = told.into_iter().flat_map(|(node, alerts)| alerts.into_iter().map(move |alert| (node, alert)));
    let seen = told.filter(|(_, alert)| is_shown(call, &alert.subject));
    let mut firing: Vec<Value> =
        by_what_they_are_about(seen).into_iter().map(|(by, alert)| shown(call, &by, &alert)).collect();
    // Critical ones come first; their word is the smaller one.
    firing.sort_by_key(|alert| alert["level"].as_str().unwrap_or_default().to_owned());
    let missing: Vec<_> = missing.into_iter().filter_map(|node| call.meta.node_by_id(node)).collect();
    let missing: Vec<_> = missing.into_iter().map(|node| nodes::hostname(call, node)).collect();
    Ok(json_ok(&json!({ "firing": firing, "missingNodes": missing })))
}

/// Every alert with the nodes that tell it. Several nodes may see that one of them does not answer: that is one alert, since the first of
/// them saw it.
fn by_what_they_are_about(
    told: impl Iterator<Item = (NodeId, FiringAlert)>,
) -> Vec<(Vec<NodeId>, FiringAlert)> {
    let mut firing: Vec<(Vec<NodeId>, FiringAlert)> = Vec::new();
    for (node, alert) in told {
        let is_same = |known: &FiringAlert| (&known.name, &known.subject) == (&alert.name, &alert.subject);
        match firing.iter_mut().find(|(_, known)| is_shared(&known.name) && is_same(known)) {
            Some((by, known)) => {
                by.push(node);
                known.since_secs = known.since_secs.min(alert.since_secs);
            }
            None => firing.push((vec![node], alert)),
        }
    }
    firing
}

fn shown(call: &Call, by: &[NodeId], alert: &FiringAlert) -> Value {
    let by: Vec<_> = by.iter().filter_map(|node| call.meta.node_by_id(*node)).collect();
    let names: Vec<_> = by.iter().map(|node| nodes::hostname(call, node)).collect();
    let mut shown = json!({
        "name": alert.name, "level": alert.level, "node": names.first(), "seenBy": names, "subject": alert.subject,
        "text": alert.text, "since": rfc3339(alert.since_secs.saturating_mul(1_000)),
    });
    // A node of a later version may tell an alert that this one does not know.
    if let Some(about) = ALERTS.iter().find(|about| about.name == alert.name) {
        shown["guide"] = about.guide().into();
        shown["guideUrl"] = names.first().map(|name| format!("http://{name}{}", about.console_path())).into();
    }
    // It is sent as long as one of the nodes that tell it is not silenced.
    let until = by.iter().map(|node| silenced_until(&call.meta, &alert.name, &alert.subject, &node.uuid));
    if let Some(until) = until.collect::<Option<Vec<_>>>().and_then(|until| until.into_iter().min()) {
        shown["silencedUntil"] = rfc3339(until.saturating_mul(1_000)).into();
    }
    shown
}

/// A subject that begins with the name of a bucket is shown to those who may see its statistics.
pub(super) fn is_shown(call: &Call, subject: &str) -> bool {
    let bucket = subject.split('/').next().unwrap_or_default();
    !call.meta.buckets.contains_key(bucket) || call.holds(Privilege::Stats, Some(bucket))
}

/// `GET /settee/alerts/kinds`: every alert there is, with what to do about it.
pub(super) fn kinds() -> Outcome {
    let shown = ALERTS.iter().map(|about| {
        json!({
            "name": about.name, "level": about.level.word(), "firesAfterSecs": about.fires_after_secs,
            "clearsAfterSecs": about.clears_after_secs, "means": about.means, "cause": about.cause, "act": about.act,
            "guide": about.guide(),
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

/// Where a node tells the others what it foretells of itself.
const FORECASTS_PATH: &str = "/_settee/forecast";

/// `GET /settee/forecast`: the soonest first.
async fn forecasts(call: &Call) -> Outcome {
    let (told, missing) = asking::every(call, FORECASTS_PATH, call.api.control.forecasts()).await;
    let sees = |one: &Foretold| match &one.bucket {
        Some(bucket) => {
            call.meta.buckets.contains_key(bucket) && call.holds(Privilege::Stats, Some(bucket.as_str()))
        }
        None => call.holds(Privilege::ClusterStats, None),
    };
    let name = |node| call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
    let mut shown: Vec<(Option<u64>, Value)> = told
        .into_iter()
        .flat_map(|(node, forecasts)| forecasts.into_iter().map(move |one| (node, one)))
        .filter(|(_, one)| sees(one))
        .map(|(node, one)| (soon(&one), view(name(node), &one)))
        .collect();
    shown.extend(budgets(call).await);
    shown.sort_by_key(|(soon, _)| soon.unwrap_or(u64::MAX));
    let missing: Vec<_> = missing.into_iter().filter_map(name).collect();
    let shown: Vec<_> = shown.into_iter().map(|(_, one)| one).collect();
    Ok(json_ok(&json!({ "forecasts": shown, "missingNodes": missing })))
}

/// What forecasts are sorted by: what has been reached comes first.
fn soon(one: &Foretold) -> Option<u64> {
    match one.outlook {
        Outlook::Reached => Some(0),
        _ => one.likely_secs,
    }
}

fn view(node: Option<String>, one: &Foretold) -> Value {
    let at = |secs: Option<u64>| secs.map(|secs| rfc3339(secs.saturating_mul(1_000)));
    json!({
        "what": one.what.name(), "node": node, "bucket": one.bucket, "value": one.value, "limit": one.limit,
        "perDay": one.per_day, "outlook": one.outlook.name(), "likely": at(one.likely_secs),
        "early": at(one.early_secs), "pastForecasts": one.past, "madeAt": at(Some(one.at_secs)),
    })
}

/// When error budgets of objectives are used up at the pace of the last days. They have no past forecasts: what a budget was on a day
/// is not kept, and it moves with its period.
async fn budgets(call: &Call) -> Vec<(Option<u64>, Value)> {
    let now = now_ms() / 1_000;
    let visible: Vec<_> = call
        .meta
        .buckets
        .iter()
        .filter(|(name, info)| {
            !info.objectives.is_empty() && call.holds(Privilege::BucketRead, Some(name.as_str()))
        })
        .collect();
    if visible.is_empty() {
        return Vec::new();
    }
    let together = objectives::together(call).await;
    let objectives =
        visible.into_iter().flat_map(|(bucket, info)| info.objectives.iter().map(move |one| (bucket, one)));
    objectives
        .map(|(bucket, (name, objective))| {
            let judged = judge(objective.target_ppm, &together.of(bucket, name));
            let ends = judged.budget_ends(objective.period_days);
            let at = |secs: Option<u64>| secs.map(|secs| now.saturating_add(secs));
            let text = |secs: Option<u64>| at(secs).map(|secs| rfc3339(secs.saturating_mul(1_000)));
            let soon = if ends.outlook == "reached" { Some(0) } else { at(ends.likely_secs) };
            let shown = json!({
                "what": "objective", "node": null, "bucket": bucket, "objective": name,
                "value": judged.budget_left.map(|left| (1.0 - left) * 100.0), "limit": 100.0, "perDay": ends.per_day,
                "outlook": ends.outlook, "likely": text(ends.likely_secs), "early": text(ends.early_secs),
                "madeAt": rfc3339(now.saturating_mul(1_000)),
            });
            (soon, shown)
        })
        .collect()
}

/// `POST /_settee/forecast`: what this node foretells of itself.
pub(super) fn show_forecasts(call: &Call) -> Outcome {
    match serde_json::to_value(call.api.control.forecasts()) {
        Ok(forecasts) => Ok(json_ok(&forecasts)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_several_see_silent_is_one_alert_and_other_alerts_are_each_nodes_own() {
        let alert = |name: &str, subject: &str, since_secs| FiringAlert {
            name: name.into(),
            level: "critical".into(),
            subject: subject.into(),
            text: String::new(),
            since_secs,
        };
        let told = [
            (NodeId(1), alert("probe_not_answered", "c:1", 7)),
            (NodeId(1), alert("disk_low", "", 1)),
            (NodeId(2), alert("probe_not_answered", "c:1", 5)),
            (NodeId(2), alert("probe_not_answered", "d:1", 9)),
            (NodeId(2), alert("disk_low", "", 2)),
        ];
        let merged = by_what_they_are_about(told.into_iter());
        let expected = [
            (vec![NodeId(1), NodeId(2)], alert("probe_not_answered", "c:1", 5)),
            (vec![NodeId(1)], alert("disk_low", "", 1)),
            (vec![NodeId(2)], alert("probe_not_answered", "d:1", 9)),
            (vec![NodeId(2)], alert("disk_low", "", 2)),
        ];
        assert_eq!(merged, expected);
    }
}
