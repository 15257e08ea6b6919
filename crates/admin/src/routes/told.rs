//! `/settee/sdk/B`: what clients tell of their operations on a bucket. Of Settee alone.
//!
//! A client tells one node of what it does on all nodes. So each figure names the node that operations went to, and what several nodes
//! were told is added up. A node counts from its start on.

use std::collections::BTreeMap;

use cluster::auth::Privilege;
use http::reply::{self, Outcome, json_ok};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stats::{Reading, Value as Figure};
use watch::sdk::SERVICES;

use super::nodes;
use crate::{
    node::control::NodeControl,
    request::{Call, asking},
};

/// Where a node tells the others what it was told.
const PATH: &str = "/_settee/sdk";
/// The series with the number of clients that are asked.
const CLIENTS: &str = "cm_app_telemetry_curr_connections";

/// What a node was told of a bucket.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Told {
    clients: u64,
    latencies: Vec<Line<Latencies>>,
    requests: Vec<Line<u64>>,
}

/// A figure of a series.
#[derive(Debug, Serialize, Deserialize)]
struct Line<T> {
    series: String,
    /// The node that operations went to.
    node: String,
    figure: T,
}

/// Latencies in milliseconds, in cumulative steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Latencies {
    sum: u64,
    count: u64,
    steps: Vec<(Option<u32>, u64)>,
}

impl Latencies {
    /// Nodes of other versions might have other steps; those are left out, because they cannot be added.
    fn add(&mut self, other: &Self) {
        if self.steps.is_empty() {
            self.steps = other.steps.iter().map(|(bound, _)| (*bound, 0)).collect();
        }
        let bounds = |of: &Self| of.steps.iter().map(|(bound, _)| *bound).collect::<Vec<_>>();
        if bounds(self) != bounds(other) {
            return;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.count = self.count.saturating_add(other.count);
        for ((_, own), (_, more)) in self.steps.iter_mut().zip(&other.steps) {
            *own = own.saturating_add(*more);
        }
    }
}

/// What this node was told.
fn own(control: &dyn NodeControl, bucket: &str) -> Told {
    let mut told = Told::default();
    for Reading { about, value, labels } in control.readings(bucket) {
        let series =
            about.metrics.first().map(|metric| metric.family).filter(|name| name.starts_with("sdk_"));
        let node = labels.into_iter().find_map(|(label, value)| (label == "node").then_some(value));
        let (Some(series), Some(node)) = (series, node) else { continue };
        let series = series.to_owned();
        match value {
            Figure::Told { sum, count, steps } => {
                told.latencies.push(Line { series, node, figure: Latencies { sum, count, steps } });
            }
            Figure::Count(figure) => told.requests.push(Line { series, node, figure }),
            _ => {}
        }
    }
    let is_clients = |one: &&Reading| one.about.metrics.iter().any(|metric| metric.family == CLIENTS);
    let clients = control.node_readings().iter().find(is_clients).map(|one| one.value.clone());
    if let Some(Figure::Count(clients)) = clients {
        told.clients = clients;
    }
    told
}

/// `GET /settee/sdk/B`.
pub(super) async fn show(call: &Call, bucket: &str) -> Outcome {
    call.bucket(bucket)?;
    let own = own(call.api.control.as_ref(), bucket);
    let (told, missing) = asking::every_about(call, PATH, bucket.as_bytes().to_vec(), own).await;
    let told: Vec<Told> = told.into_iter().map(|(_, told)| told).collect();
    let clients = told.iter().fold(0_u64, |sum, one| sum.saturating_add(one.clients));
    let missing: Vec<_> = missing.into_iter().filter_map(|node| call.meta.node_by_id(node)).collect();
    let missing: Vec<_> = missing.into_iter().map(|node| nodes::hostname(call, node)).collect();
    Ok(json_ok(&json!({
        "clients": call.holds(Privilege::ClusterStats, None).then_some(clients),
        "operations": operations(&told), "requests": requests(&told), "missingNodes": missing,
    })))
}

/// `POST /_settee/sdk`: what this node was told.
pub(super) fn answer(call: &Call) -> Outcome {
    let bucket = std::str::from_utf8(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    let told = own(call.api.control.as_ref(), bucket);
    let told = serde_json::to_value(told).map_err(|error| reply::bad_request(&error.to_string()))?;
    Ok(json_ok(&told))
}

fn operations(told: &[Told]) -> Vec<Value> {
    let mut all = BTreeMap::<(&str, &str), Latencies>::new();
    for line in told.iter().flat_map(|one| &one.latencies) {
        let Some(of) =
            line.series.strip_prefix("sdk_").and_then(|name| name.strip_suffix("_duration_milliseconds"))
        else {
            continue;
        };
        all.entry((of, &line.node)).or_default().add(&line.figure);
    }
    let shown = all.into_iter().map(|((operation, node), known)| {
        let steps: Vec<_> =
            known.steps.iter().map(|(bound, count)| json!({ "withinMs": bound, "count": count })).collect();
        json!({
            "operation": operation, "node": node, "count": known.count, "sumMs": known.sum, "steps": steps,
        })
    });
    shown.collect()
}

fn requests(told: &[Told]) -> Vec<Value> {
    let mut all = BTreeMap::<(&str, &str), BTreeMap<&str, u64>>::new();
    for line in told.iter().flat_map(|one| &one.requests) {
        let Some((service, end)) = line.series.strip_prefix("sdk_").and_then(|name| name.split_once("_r_"))
        else {
            continue;
        };
        let sum = all.entry((service, &line.node)).or_default().entry(end).or_default();
        *sum = sum.saturating_add(line.figure);
    }
    let in_order = |service: &str| SERVICES.iter().position(|known| *known == service);
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|((service, _), _)| in_order(service));
    let shown = all.into_iter().map(|((service, node), ends)| {
        let of = |end: &str| ends.get(end).copied().unwrap_or_default();
        json!({
            "service": service, "node": node, "total": of("total"), "timedOut": of("timedout"), "canceled": of("canceled"),
        })
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(clients: u64, counts: [u64; 2], timed_out: u64) -> Told {
        let [within, all] = counts;
        let figure = Latencies { sum: all * 3, count: all, steps: vec![(Some(1), within), (None, all)] };
        let latencies =
            Line { series: "sdk_kv_retrieval_duration_milliseconds".into(), node: "a:1".into(), figure };
        let request = |series: &str, figure| Line { series: series.into(), node: "a:1".into(), figure };
        let requests = vec![request("sdk_kv_r_timedout", timed_out), request("sdk_kv_r_total", all)];
        Told { clients, latencies: vec![latencies], requests }
    }

    #[test]
    fn what_several_nodes_were_told_of_a_node_is_one_figure() {
        let mut all = vec![told(1, [2, 5], 0), told(2, [10, 10], 3)];
        let expected = json!([{
            "operation": "kv_retrieval", "node": "a:1", "count": 15, "sumMs": 45,
            "steps": [{ "withinMs": 1, "count": 12 }, { "withinMs": null, "count": 15 }],
        }]);
        assert_eq!(Value::from(operations(&all)), expected);
        let expected = json!([{ "service": "kv", "node": "a:1", "total": 15, "timedOut": 3, "canceled": 0 }]);
        assert_eq!(Value::from(requests(&all)), expected);
        // A node with other steps.
        all[1].latencies[0].figure.steps = vec![(Some(2), 1), (None, 10)];
        assert_eq!(operations(&all)[0]["count"], 5);
    }
}
