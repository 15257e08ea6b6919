//! Statistics over REST: what the bucket counts now, in the shape of Couchbase's sampled statistics with one sample.
//! A history is not kept, and nothing is shown that was not measured.

use axum::http::StatusCode;
use base::bucket::BucketKind;
use cluster::config;
use serde_json::{Map, Value, json};

use super::{nodes, users::now_ms};
use http::reply::{self, Outcome, json_ok};

use crate::{call::Call, control::BucketStatsView};

/// `/pools/default/buckets/{bucket}[/nodes/{node}]/stats`.
///
/// The bucket's own statistics, by their published names, are this node's: they are there when nothing else was asked for,
/// that is for this node, and for the bucket where it has no other.
pub(super) fn of_bucket(call: &Call, bucket: &str, node: Option<&str>) -> Outcome {
    let info = call.bucket(bucket)?;
    let chosen = match node.map(|node| nodes::find(call, node)) {
        Some(None) => return Ok(reply::not_found()),
        Some(chosen) => chosen,
        None => None,
    };
    let stats = match chosen {
        Some(node) => call.figures.node(node.id).and_then(|figures| figures.buckets.get(bucket)).copied(),
        None => call.figures.of_bucket(bucket).next().map(|_| call.figures.sum(bucket)),
    };
    let Some(stats) = stats else {
        let text = "The bucket is not ready on this node.";
        return Ok(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!([text])));
    };
    let now = now_ms();
    let mut samples = Map::new();
    let this = call.api.control.this_node();
    if chosen.map_or(call.meta.nodes.len() == 1, |node| node.uuid == this) {
        let control = &call.api.control;
        for reading in control.node_readings().into_iter().chain(control.readings(bucket)) {
            let Some(number) = reading.value.number() else { continue };
            samples.extend(reading.about.rest.iter().map(|name| ((*name).to_owned(), json!([number]))));
        }
    }
    for (name, value) in measured(&stats) {
        samples.insert(name.into(), json!([value]));
    }
    samples.insert("timestamp".into(), json!([now]));
    let mut answer = json!({
        "op": {
            "samples": samples, "samplesCount": 1, "interval": 1000, "lastTStamp": now,
            "isPersistent": info.kind == BucketKind::Couchbase,
        },
    });
    match node {
        Some(node) => answer["hostname"] = node.into(),
        None => answer["hot_keys"] = json!([]),
    }
    Ok(json_ok(&answer))
}

/// `/pools/default/buckets/{bucket}/stats/{stat}`: one figure, node by node. Backup tools estimate by it how much there is to copy.
pub(super) fn one_by_node(call: &Call, bucket: &str, stat: &str) -> Outcome {
    let info = call.bucket(bucket)?;
    let mut by_node = Map::new();
    for node in config::shown_nodes(&call.meta) {
        let stats = call.figures.node(node.id).and_then(|figures| figures.buckets.get(bucket));
        let value = stats.and_then(|stats| measured(stats).into_iter().find(|(name, _)| *name == stat));
        if let Some((_, value)) = value {
            by_node.insert(nodes::hostname(call, node), json!([value]));
        }
    }
    if by_node.is_empty() {
        return Ok(reply::not_found());
    }
    let now = now_ms();
    Ok(json_ok(&json!({
        "samplesCount": 1, "isPersistent": info.kind == BucketKind::Couchbase, "lastTStamp": now,
        "interval": 1000, "timestamp": [now], "nodeStats": by_node,
    })))
}

/// What is measured of a bucket, by the names of Couchbase where it has some.
fn measured(stats: &BucketStatsView) -> [(&'static str, Value); 16] {
    [
        ("curr_items", stats.items.into()),
        ("vb_replica_curr_items", stats.replica_items.into()),
        ("mem_used", stats.mem_used.into()),
        ("ops", stats.ops_per_sec.into()),
        ("couch_docs_actual_disk_size", stats.disk_used.into()),
        ("couch_docs_data_size", stats.data_used.into()),
        ("disk_write_queue", stats.disk_queue.into()),
        ("vb_active_resident_items_ratio", stats.resident_percent.into()),
        ("curr_connections", stats.connections.into()),
        ("ep_bg_fetched", stats.disk_fetches_per_sec.into()),
        ("ep_dcp_replica_count", stats.links.into()),
        ("ep_dcp_replica_items_sent", stats.links_items_sent.into()),
        ("ep_dcp_replica_items_remaining", stats.links_items_remaining.into()),
        ("ep_dcp_replica_total_bytes", stats.links_bytes_sent.into()),
        ("ep_dcp_replica_total_uncompressed_data_size", stats.links_inflated_bytes_sent.into()),
        ("settee_replicas_cut_off", stats.replicas_cut_off.into()),
    ]
}
