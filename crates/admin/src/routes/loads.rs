//! `/settee/slow`, `/settee/hot/B` and `/settee/connections`: operations that took half a second or longer, and keys, clients and
//! connections that load the nodes. Of Settee alone.
//!
//! A sender sees slow operations of buckets whose statistics it may see. Users and their addresses are for senders that may see logs,
//! which name them as well; so are connections. Keys are content. So the table of routes lets in only senders that may read somewhere
//! in the bucket. They see the keys of the collections that they may read.

use base::BucketUuid;
use cluster::auth::Privilege;
use http::reply::{self, Outcome, json_ok};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stats::{ConnectionLoad, HotKey};

use super::nodes;
use crate::{
    node::time::rfc3339,
    request::{Call, asking},
};

/// Where nodes tell the others.
const SLOW_PATH: &str = "/_settee/slow";
const HOT_PATH: &str = "/_settee/hot";
const CONNECTIONS_PATH: &str = "/_settee/connections";
/// Keys of a node in an answer.
const KEYS_OF_NODE: usize = 20;
/// Connections of an answer, where a request does not say, and most of them.
const CONNECTIONS: usize = 100;
const CONNECTIONS_MAX: usize = 1_000;

/// `GET /settee/slow`: the last ones of each node, the newest first.
pub(super) async fn slow(call: &Call) -> Outcome {
    let (told, missing) = asking::every(call, SLOW_PATH, call.api.control.slow_operations()).await;
    let mut all: Vec<_> = told
        .into_iter()
        .flat_map(|(node, operations)| operations.into_iter().map(move |operation| (node, operation)))
        .filter(|(_, operation)| call.holds(Privilege::Stats, Some(operation.bucket.as_str())))
        .collect();
    all.sort_by_key(|(_, operation)| std::cmp::Reverse(operation.at_ms));
    let name = |node| call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
    let sees_users = call.holds(Privilege::SecurityRead, None);
    let of_user = |text: String| if sees_users { Value::from(text) } else { Value::Null };
    let shown = all.into_iter().map(|(node, one)| {
        let phases: Vec<Value> =
            one.phases.iter().map(|(phase, micros)| json!({ "phase": phase, "us": micros })).collect();
        json!({
            "at": rfc3339(one.at_ms), "node": name(node), "bucket": one.bucket, "operation": one.operation,
            "count": one.count, "tookUs": one.took_us, "phases": phases, "user": of_user(one.user),
            "client": of_user(one.client), "agent": of_user(one.agent),
        })
    });
    let missing: Vec<_> = missing.into_iter().filter_map(name).collect();
    Ok(json_ok(&json!({ "operations": shown.collect::<Vec<_>>(), "missingNodes": missing })))
}

/// `POST /_settee/slow`: those of this node.
pub(super) fn show_slow(call: &Call) -> Outcome {
    told(&call.api.control.slow_operations())
}

#[derive(Deserialize, Serialize)]
struct Question {
    bucket: String,
    /// Nodes that hear late of a bucket that was made anew must not tell keys of the former one. Older nodes do not say.
    #[serde(default)]
    uuid: Option<String>,
}

/// `GET /settee/hot/B`: keys that many operations go to on each node, as far as the sender may read them. How many operations those
/// are is statistics, and needs the right to them.
pub(super) async fn hot(call: &Call, bucket: &str) -> Outcome {
    let info = call.bucket(bucket)?;
    let question = Question { bucket: bucket.into(), uuid: Some(info.uuid.0.clone()) };
    let question = serde_json::to_vec(&question).unwrap_or_default();
    let own = call.api.control.hot(bucket, Some(&info.uuid));
    let (told, missing) = asking::every_about(call, HOT_PATH, question, own).await;
    let held = call.sender().privileges(Some(bucket));
    let sees_rates = call.holds(Privilege::Stats, Some(bucket));
    let mut keys = Vec::new();
    let mut per_second = 0.0;
    for (node, report) in told {
        let Some(report) = report else { continue };
        per_second += report.per_second;
        let name = call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
        let readable = report.keys.iter().filter_map(|key| {
            let (scope, collection) = info.manifest.collection(base::CollectionId(key.collection))?;
            let may_read = held.has_in(scope.id, collection.id, Privilege::Read);
            may_read.then_some((key, (scope.name.as_str(), collection.name.as_str())))
        });
        // Of those that the sender may read: keys of others would tell by their number that they are hotter.
        for (key, path) in readable.take(KEYS_OF_NODE) {
            keys.push((key.per_second, view(key, name.as_deref(), path, sees_rates)));
        }
    }
    keys.sort_by(|one, other| other.0.total_cmp(&one.0));
    let keys: Vec<Value> = keys.into_iter().map(|(_, key)| key).collect();
    let missing: Vec<_> = missing
        .into_iter()
        .filter_map(|node| call.meta.node_by_id(node).map(|node| nodes::hostname(call, node)))
        .collect();
    Ok(json_ok(&json!({
        "bucket": bucket, "operationsPerSecond": sees_rates.then_some(per_second), "keys": keys, "missingNodes": missing,
    })))
}

fn view(key: &HotKey, node: Option<&str>, (scope, collection): (&str, &str), sees_rates: bool) -> Value {
    json!({
        "key": String::from_utf8_lossy(&key.key), "scope": scope, "collection": collection, "node": node,
        "operationsPerSecond": sees_rates.then_some(key.per_second), "share": sees_rates.then_some(key.share),
    })
}

/// `POST /_settee/hot`: what this node has counted.
pub(super) fn show_hot(call: &Call) -> Outcome {
    let Question { bucket, uuid } =
        serde_json::from_slice(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    told(&call.api.control.hot(&bucket, uuid.map(BucketUuid).as_ref()))
}

/// `GET /settee/connections`: those with the most load over all nodes, and the busiest addresses.
pub(super) async fn connections(call: &Call) -> Outcome {
    let limit = match call.query.get("limit").map(str::parse::<usize>) {
        None => CONNECTIONS,
        Some(Ok(limit)) if (1..=CONNECTIONS_MAX).contains(&limit) => limit,
        Some(_) => {
            return Err(reply::bad_request(&format!("limit must be a number from 1 to {CONNECTIONS_MAX}")));
        }
    };
    let own = call.api.control.connections().await;
    let (reports, missing) = asking::every(call, CONNECTIONS_PATH, own).await;
    let name = |node| call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
    let (mut busiest, mut clients, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for (node, report) in reports {
        let name = name(node);
        open.push(json!({ "node": name, "connections": report.open }));
        busiest.extend(report.busiest.into_iter().map(|one| (name.clone(), one)));
        clients.extend(report.clients.into_iter().map(|one| (name.clone(), one)));
    }
    busiest.sort_by(|(_, one), (_, other)| weight(other).total_cmp(&weight(one)));
    clients.sort_by(|(_, one), (_, other)| other.per_second.total_cmp(&one.per_second));
    let busiest = busiest.iter().take(limit).map(|(node, one)| {
        json!({
            "node": node, "client": one.client, "user": one.user, "bucket": one.bucket, "agent": one.agent,
            "operationsPerSecond": one.per_second, "bytesReadPerSecond": one.read_per_second,
            "bytesWrittenPerSecond": one.written_per_second, "idleMs": one.idle_ms, "isTls": one.is_tls,
            "isStream": one.is_stream, "isInternal": one.is_internal,
        })
    });
    let busiest: Vec<Value> = busiest.collect();
    let clients = clients.iter().take(limit).map(|(node, one)| {
        json!({
            "node": node, "bucket": one.bucket, "address": one.address, "operationsPerSecond": one.per_second,
            "share": one.share,
        })
    });
    let clients: Vec<Value> = clients.collect();
    let missing: Vec<_> = missing.into_iter().filter_map(name).collect();
    Ok(json_ok(&json!({
        "open": open, "connections": busiest, "clients": clients, "missingNodes": missing,
    })))
}

/// A KiB is as much as an operation.
fn weight(one: &ConnectionLoad) -> f64 {
    one.per_second + (one.read_per_second + one.written_per_second) / 1_024.0
}

/// `POST /_settee/connections`: those of this node.
pub(super) async fn show_connections(call: &Call) -> Outcome {
    told(&call.api.control.connections().await)
}

fn told<T: Serialize>(report: &T) -> Outcome {
    let report = serde_json::to_value(report).map_err(|error| reply::bad_request(&error.to_string()))?;
    Ok(json_ok(&report))
}
