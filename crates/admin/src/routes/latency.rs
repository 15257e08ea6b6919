//! `/settee/latency`: how long operations of a bucket took on all nodes, over time. Of Settee alone.

use cluster::config;
use http::reply::{self, Outcome, json_ok};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{nodes, stats};
use crate::{
    node::latency::{Histogram, LatencyPast, LatencyZoom, Times, Together},
    request::{Call, asking},
};

/// Where a node tells the others what it has counted.
const PATH: &str = "/_settee/latency";

/// Intervals of [`LatencyZoom::Minutes`] in a minute.
const MINUTE_STEPS: usize = (60 / LatencyZoom::Minutes.step_secs()) as usize;

/// What one node asks another.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    bucket: String,
    zoom: LatencyZoom,
}

/// `GET /settee/latency/{bucket}`: percentiles of each operation. The one that `operation` names has its histograms as well.
pub(super) async fn show(call: &Call, bucket: &str) -> Outcome {
    call.bucket(bucket)?;
    let asked = call.query.get("zoom").unwrap_or(LatencyZoom::Minutes.name());
    // The end of the ten minutes that nodes tell.
    let is_minute = asked == "minute";
    let zoom = if is_minute { Some(LatencyZoom::Minutes) } else { LatencyZoom::parse(asked) };
    let zoom = zoom.ok_or_else(|| reply::bad_request("zoom must be minute, minutes, hour or day"))?;
    let _turn = stats::TURN.acquire().await;
    let (told, missing) = told(call, bucket, zoom).await;
    let all = Together::of(told, if is_minute { MINUTE_STEPS } else { zoom.steps() });
    let with_histogram = call.query.get("operation");
    let of = |all_of: &std::collections::BTreeMap<String, Times>| -> Map<String, Value> {
        let each = all_of.iter().map(|(name, times)| {
            (name.clone(), view(times, &all.at_secs, with_histogram == Some(name.as_str())))
        });
        each.collect()
    };
    let timestamps: Vec<u64> = all.at_secs.iter().map(|at| at.saturating_mul(1000)).collect();
    Ok(json_ok(&json!({
        "zoom": asked, "stepSecs": zoom.step_secs(), "timestamps": timestamps,
        "operations": of(&all.operations), "phases": of(&all.phases), "missingNodes": missing,
    })))
}

/// `POST /_settee/latency`: what this node has counted.
pub(super) fn answer(call: &Call) -> Outcome {
    let Question { bucket, zoom } =
        serde_json::from_slice(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    let Some(past) = call.api.control.latency_past(&bucket, zoom) else { return Ok(reply::not_found()) };
    let past = serde_json::to_value(past).map_err(|error| reply::bad_request(&error.to_string()))?;
    Ok(json_ok(&past))
}

/// What nodes have counted, and those that do not say.
async fn told(call: &Call, bucket: &str, zoom: LatencyZoom) -> (Vec<LatencyPast>, Vec<String>) {
    let body = serde_json::to_vec(&Question { bucket: bucket.into(), zoom }).unwrap_or_default();
    let nodes = config::shown_nodes(&call.meta);
    let own = || call.api.control.latency_past(bucket, zoom);
    let (told, missing) = asking::these_about(call, PATH, body, &nodes, own).await;
    let missing = missing.into_iter().filter_map(|id| call.meta.node_by_id(id));
    (
        told.into_iter().map(|(_, past)| past).collect(),
        missing.map(|node| nodes::hostname(call, node)).collect(),
    )
}

/// Figures at each of these moments, and of all of them together. Where nothing was counted there is no percentile.
fn view(times: &Times, at_secs: &[u64], with_histogram: bool) -> Value {
    let nothing = Histogram::default();
    let mut all = Histogram::default();
    let each: Vec<&Histogram> = at_secs.iter().map(|at| times.get(at).unwrap_or(&nothing)).collect();
    for histogram in &each {
        all.add(&histogram.steps().copied().collect::<Vec<_>>());
    }
    let quantiles = |share: f64| -> Vec<Option<f64>> { each.iter().map(|one| rounded(one, share)).collect() };
    let counts: Vec<u64> = each.iter().map(|one| one.count()).collect();
    let mut shown = json!({
        "counts": counts, "p50Us": quantiles(0.5), "p99Us": quantiles(0.99), "p999Us": quantiles(0.999),
        "all": { "count": all.count(), "p50Us": rounded(&all, 0.5), "p99Us": rounded(&all, 0.99), "p999Us": rounded(&all, 0.999) },
    });
    if with_histogram {
        let steps = |one: &&Histogram| -> Vec<Value> {
            one.steps().map(|step| json!([step.from_us, step.to_us, step.count])).collect()
        };
        shown["histograms"] = each.iter().map(steps).collect::<Vec<_>>().into();
    }
    shown
}

fn rounded(histogram: &Histogram, share: f64) -> Option<f64> {
    histogram.quantile(share).map(|micros| (micros * 10.0).round() / 10.0)
}
