//! `settee plan --from HOST`: what runs out on a cluster that is there, when, and how many nodes its buckets need.

use client::rest::percent;
use plan::{
    live::{Live, Need, WhatIf},
    sizing::Rule,
};
use serde_json::{Value, json};

use crate::{
    commands::{Failure, cluster::Session},
    outlook,
    table::table,
};

/// What is asked of every bucket.
const WHAT_IF: [(&str, WhatIf); 5] = [
    ("as it is", WhatIf::AsItIs),
    ("a node is lost", WhatIf::NodesLost(1)),
    ("one more replica", WhatIf::OneMoreReplica),
    ("three quarters of the quota", WhatIf::QuotaTimes(0.75)),
    ("1.5 times the documents", WhatIf::DocumentsTimes(1.5)),
];
/// Growth that is also asked for.
const FASTER: f64 = 1.5;

/// What REST says of a cluster.
struct Seen {
    forecasts: Vec<Value>,
    buckets: Vec<Bucket>,
}

struct Bucket {
    name: String,
    live: Live,
    documents: f64,
    resident_percent: f64,
    missed_percent: f64,
}

pub(super) fn run(session: &Session, as_json: bool) -> Result<(), Failure> {
    let seen = Seen::of(session)?;
    if as_json {
        println!("{}", json_of(&seen));
    } else {
        print!("{}", screen(&seen));
    }
    Ok(())
}

impl Seen {
    fn of(session: &Session) -> Result<Self, Failure> {
        let forecasts = session.get("/settee/forecast")?["forecasts"].as_array().cloned().unwrap_or_default();
        let pool = session.pool()?;
        let active = pool["nodes"].as_array().into_iter().flatten();
        let active = active.filter(|node| node["clusterMembership"] == "active").count();
        let nodes = u32::try_from(active).unwrap_or(u32::MAX);
        let listed = session.get("/pools/default/buckets?skipMap=true")?;
        let mut buckets = Vec::new();
        // Buckets that keep nothing on disk have no values that leave memory for it.
        for bucket in listed.as_array().into_iter().flatten().filter(|one| one["bucketType"] != "memcached") {
            let name = bucket["name"].as_str().unwrap_or_default();
            let stats = session.get(&format!("/pools/default/buckets/{}/stats", percent(name)))?;
            buckets.push(Bucket::of(bucket, &stats["op"]["samples"], nodes));
        }
        Ok(Self { forecasts, buckets })
    }
}

impl Bucket {
    fn of(bucket: &Value, samples: &Value, nodes: u32) -> Self {
        let newest =
            |name: &str| samples[name].as_array().and_then(|all| all.last()?.as_f64()).unwrap_or_default();
        let replicas = u32::try_from(bucket["replicaNumber"].as_u64().unwrap_or_default()).unwrap_or(0);
        let floor = newest("settee_mem_floor");
        // An ephemeral bucket has all of it in memory for good.
        let values = match bucket["bucketType"] == "ephemeral" {
            true => (newest("mem_used") - floor).max(0.0),
            false => newest("ep_value_size"),
        };
        Self {
            name: bucket["name"].as_str().unwrap_or_default().to_owned(),
            live: Live {
                floor,
                values,
                copies: (replicas + 1).min(nodes.max(1)),
                quota: bucket["quota"]["rawRAM"].as_f64().unwrap_or_default(),
                nodes,
            },
            documents: newest("curr_items"),
            resident_percent: newest("vb_active_resident_items_ratio"),
            missed_percent: newest("ep_cache_miss_rate"),
        }
    }

    fn needs(&self) -> impl Iterator<Item = (&'static str, Need)> {
        WHAT_IF.into_iter().map(|(name, what)| (name, self.live.needs(what, &Rule::SETTEE)))
    }
}

fn screen(seen: &Seen) -> String {
    let mut screen = format!("What runs out, and when\n{}", outlook::screen(&seen.forecasts));
    let faster: Vec<_> = seen.forecasts.iter().filter_map(|one| Some((one, days_at(one, FASTER)?))).collect();
    if let Some((one, days)) = faster.iter().min_by(|a, b| a.1.total_cmp(&b.1)) {
        screen += &format!(
            "With {FASTER} times the growth: {} in {days:.0} days, as the first.\n",
            outlook::name(one)
        );
    }
    let rows = seen.buckets.iter().map(|bucket| {
        vec![
            bucket.name.clone(),
            format!("{:.0}", bucket.documents),
            outlook::bytes(bucket.live.floor),
            outlook::bytes(bucket.live.values),
            format!("{:.1} %", bucket.resident_percent),
            format!("{:.1} %", bucket.missed_percent),
        ]
    });
    let columns =
        ["BUCKET", "DOCUMENTS", "KEYS AND METADATA", "VALUES IN MEMORY", "IN MEMORY", "READS FROM DISK"];
    screen += &format!("\nWhat buckets hold, all nodes together\n{}", table(&columns, rows.collect()));
    let rows = seen.buckets.iter().flat_map(|bucket| {
        bucket.needs().map(|(what, need)| {
            let answer = if need.is_met() { "enough" } else { "not enough" };
            vec![
                bucket.name.clone(),
                what.to_owned(),
                outlook::bytes(need.memory),
                need.nodes.to_string(),
                format!("{}: {answer}", need.there_are),
            ]
        })
    });
    let columns = ["BUCKET", "WHAT IF", "QUOTA NEEDED", "NODES NEEDED", "NODES THERE"];
    screen += &format!("\nWhat if\n{}", table(&columns, rows.collect()));
    screen
}

/// In how many days a limit is reached with so many times the growth.
fn days_at(one: &Value, times: f64) -> Option<f64> {
    let (value, limit, per_day) = (one["value"].as_f64()?, one["limit"].as_f64()?, one["perDay"].as_f64()?);
    let days = (limit - value) / (per_day * times);
    (one["outlook"] == "dated" && days.is_finite() && days >= 0.0).then_some(days)
}

fn json_of(seen: &Seen) -> Value {
    let buckets = seen.buckets.iter().map(|bucket| {
        let needs = bucket.needs().map(|(what, need)| {
            json!({ "whatIf": what, "quota": need.memory, "nodes": need.nodes, "nodesThere": need.there_are, "isEnough": need.is_met() })
        });
        json!({
            "bucket": bucket.name, "documents": bucket.documents, "keysAndMetadata": bucket.live.floor,
            "valuesInMemory": bucket.live.values, "residentPercent": bucket.resident_percent,
            "readsFromDiskPercent": bucket.missed_percent, "needs": needs.collect::<Vec<_>>(),
        })
    });
    json!({ "forecasts": seen.forecasts, "buckets": buckets.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_sized_by_what_nodes_say_of_it() {
        let bucket = json!({ "name": "b", "bucketType": "membase", "replicaNumber": 1, "quota": { "rawRAM": 1_000.0 } });
        let samples = json!({
            "settee_mem_floor": [1, 2_000], "ep_value_size": [1, 1_500], "curr_items": [7],
            "vb_active_resident_items_ratio": [60.0], "ep_cache_miss_rate": [12.0],
        });
        let forecast = json!({
            "what": "disk", "node": "h:8091", "value": 50.0, "limit": 80.0, "perDay": 2.0, "outlook": "dated",
            "likely": "2026-12-12T00:00:00Z", "early": "2026-12-10T00:00:00Z", "pastForecasts": [],
        });
        let seen = Seen { forecasts: vec![forecast], buckets: vec![Bucket::of(&bucket, &samples, 5)] };
        let told = json_of(&seen);
        let needs = &told["buckets"][0]["needs"];
        assert_eq!((&needs[0]["nodes"], &needs[0]["isEnough"]), (&json!(5), &json!(true)), "{needs}");
        assert_eq!((&needs[1]["nodesThere"], &needs[1]["isEnough"]), (&json!(4), &json!(false)), "{needs}");
        let screen = screen(&seen);
        assert!(
            screen.contains("With 1.5 times the growth: disk of h:8091 in 10 days, as the first."),
            "{screen}"
        );
        assert!(screen.contains("b       a node is lost"), "{screen}");
        let ephemeral = json!({ "name": "e", "bucketType": "ephemeral", "quota": { "rawRAM": 1_000.0 } });
        let samples = json!({ "settee_mem_floor": [400], "mem_used": [900], "ep_value_size": [3] });
        assert_eq!(Bucket::of(&ephemeral, &samples, 5).live.values, 500.0);
    }
}
