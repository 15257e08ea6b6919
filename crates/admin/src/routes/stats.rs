//! Statistics over REST, in the shape of Couchbase's sampled statistics: what each node has sampled, put together here.

use axum::http::StatusCode;
use base::{NodeId, bucket::BucketKind};
use cluster::{NodeInfo, config};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::nodes;
use crate::{
    node::merged::{merge, merge_at, moments},
    request::{Call, asking},
};
use ::stats::{Across, Kind, Samples, Statistic, Unit, Zoom};
use http::reply::{self, Outcome, Refusal, json_ok};

/// Where a node tells its samples to the others.
const PATH: &str = "/_settee/samples";
/// Requests that put samples together take turns. Each takes tens of megabytes on the way, and a thread of the control plane.
pub(super) static TURN: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(1);

/// What one node asks another.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    bucket: String,
    zoom: Zoom,
}

/// `/pools/default/buckets/{bucket}[/nodes/{node}]/stats`, over the time that `zoom` says.
pub(super) async fn of_bucket(call: &Call, bucket: &str, node: Option<&str>) -> Outcome {
    let (info, zoom) = (call.bucket(bucket)?, zoom(call)?);
    let _turn = TURN.acquire().await;
    let asked = match node.map(|node| nodes::find(call, node)) {
        Some(None) => return Ok(reply::not_found()),
        Some(Some(node)) => vec![node],
        None => config::shown_nodes(&call.meta),
    };
    let wanted: Vec<NodeId> = asked.iter().map(|node| node.id).collect();
    let told = told(call, bucket, zoom, asked).await;
    let missing = missing(call, &wanted, &told);
    let said: Vec<_> = told.into_iter().map(|(_, samples)| samples).collect();
    let table = merge(&declared(call), &said, zoom.step_secs() * 1000);
    let Some(last) = table.timestamps.last() else {
        let text = "The bucket is not ready on this node.";
        return Ok(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!([text])));
    };
    let shown = |(name, figures): (&&str, &Vec<f64>)| ((*name).to_owned(), numbers(figures));
    let mut samples: Map<_, _> = table.values.iter().map(shown).collect();
    samples.insert("timestamp".into(), json!(table.timestamps));
    let mut answer = json!({
        "op": {
            "samples": samples, "samplesCount": table.timestamps.len(), "interval": zoom.step_secs() * 1000,
            "lastTStamp": last, "isPersistent": info.kind == BucketKind::Couchbase,
        },
    });
    answer["settee"] = json!({ "missingNodes": missing });
    match node {
        Some(node) => answer["hostname"] = node.into(),
        None => answer["hot_keys"] = json!([]),
    }
    Ok(json_ok(&answer))
}

/// `/pools/default/buckets/{bucket}/stats/{stat}`: one figure, node by node. Backup tools estimate by it how much there is to copy.
pub(super) async fn one_by_node(call: &Call, bucket: &str, stat: &str) -> Outcome {
    let (info, zoom) = (call.bucket(bucket)?, zoom(call)?);
    let _turn = TURN.acquire().await;
    let mut statistics = declared(call);
    if statistics.iter().any(|about| about.rest.contains(&stat) && !matches!(about.across, Across::Of(_))) {
        // Only a formula needs others.
        statistics.retain(|about| about.rest.contains(&stat));
    }
    let nodes = config::shown_nodes(&call.meta);
    let wanted: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let said = told(call, bucket, zoom, nodes).await;
    let missing = missing(call, &wanted, &said);
    // One row of moments is for all nodes: where a node has said nothing, as before it was started, it has 0.
    let moments = moments(said.iter().map(|(_, samples)| samples));
    let mut by_node = Map::new();
    for (node, samples) in said {
        let table = merge_at(moments.clone(), &statistics, &[samples], zoom.step_secs() * 1000);
        if let Some((figures, node)) = table.values.get(stat).zip(call.meta.node_by_id(node)) {
            by_node.insert(nodes::hostname(call, node), numbers(figures));
        }
    }
    let timestamps = moments;
    let Some(last) = timestamps.last().filter(|_| !by_node.is_empty()) else { return Ok(reply::not_found()) };
    Ok(json_ok(&json!({
        "samplesCount": timestamps.len(), "isPersistent": info.kind == BucketKind::Couchbase, "lastTStamp": last,
        "interval": zoom.step_secs() * 1000, "timestamp": timestamps, "nodeStats": by_node,
        "settee": { "missingNodes": missing },
    })))
}

/// Nodes that have not said what they have sampled: they are in no sum.
pub(super) fn missing(call: &Call, wanted: &[NodeId], told: &[(NodeId, Samples)]) -> Vec<String> {
    let is_missing = |id: &&NodeId| !told.iter().any(|(node, _)| node == *id);
    let missing = wanted.iter().filter(is_missing).filter_map(|id| call.meta.node_by_id(*id));
    missing.map(|node| nodes::hostname(call, node)).collect()
}

/// `POST /_settee/samples`: what this node has sampled.
pub(super) fn show(call: &Call) -> Outcome {
    let question: Question =
        serde_json::from_slice(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    let Some(samples) = call.api.control.samples(&question.bucket, question.zoom) else {
        return Ok(reply::not_found());
    };
    let samples = serde_json::to_value(samples).map_err(|error| reply::bad_request(&error.to_string()))?;
    Ok(json_ok(&samples))
}

fn declared(call: &Call) -> Vec<&'static Statistic> {
    call.api.control.statistics().into_iter().flat_map(|(_, statistics)| statistics).collect()
}

/// `/pools/default/buckets/{bucket}/statsDirectory`: what there are samples of, by what it is about.
pub(super) fn directory(call: &Call, bucket: &str) -> Outcome {
    call.bucket(bucket)?;
    let blocks = call.api.control.statistics().into_iter().map(|(title, statistics)| {
        let shown = statistics.into_iter().filter(|about| matches!(about.kind, Kind::Counter | Kind::Gauge));
        (title, shown.flat_map(|about| about.rest.iter().map(|name| entry(about, name))).collect::<Vec<_>>())
    });
    let blocks = blocks.filter(|(_, stats)| !stats.is_empty());
    let blocks: Vec<_> = blocks.map(|(title, stats)| json!({ "blockName": title, "stats": stats })).collect();
    Ok(json_ok(&json!({ "blocks": blocks })))
}

fn entry(about: &Statistic, name: &str) -> Value {
    let mut entry = json!({ "name": name, "title": about.help.trim_end_matches('.'), "desc": about.help });
    match about.unit {
        Unit::Bytes => entry["isBytes"] = true.into(),
        Unit::Percent => entry["maxY"] = 100.into(),
        _ => {}
    }
    entry
}

fn zoom(call: &Call) -> Result<Zoom, Refusal> {
    let asked = call.query.get("zoom").map_or(Some(Zoom::Minute), Zoom::parse);
    asked.ok_or_else(|| reply::bad_request("zoom must be minute, hour, day, week, month or year"))
}

/// What these nodes have sampled, as far as they say so in time.
pub(super) async fn told(
    call: &Call,
    bucket: &str,
    zoom: Zoom,
    nodes: Vec<&NodeInfo>,
) -> Vec<(NodeId, Samples)> {
    let body = serde_json::to_vec(&Question { bucket: bucket.into(), zoom }).unwrap_or_default();
    let own = || call.api.control.samples(bucket, zoom);
    let mut told = asking::these_at_once(call, PATH, body, &nodes, own).await;
    told.sort_by_key(|(id, _)| *id);
    told
}

/// Whole numbers without a fraction, as tools expect counts.
fn numbers(figures: &[f64]) -> Value {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    let number = |figure: &f64| match figure {
        whole if whole.fract() == 0.0 && whole.abs() < WHOLE_MAX => json!(*whole as i64),
        finite if finite.is_finite() => json!(finite),
        _ => json!(0),
    };
    figures.iter().map(number).collect::<Vec<_>>().into()
}
