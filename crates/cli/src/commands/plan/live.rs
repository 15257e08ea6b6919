//! `settee plan --from HOST`: what runs out on a cluster that is there, when, and how many nodes its buckets need.

use std::collections::BTreeMap;

use client::rest::percent;
use plan::{
    live::{Live, Need, Verdict, WhatIf, worst_group},
    sizing::Rule,
};
use serde_json::{Value, json};

use crate::{
    commands::{Failure, cluster::Session},
    outlook,
    table::table,
};

/// What is shown of the working set, which is not measured itself.
const WORKING_SET: &str = "\
Nothing counts which documents are in use. READS FROM DISK is the sign of it: the share of all reads in the last second that had to wait
for the disk. Near 0 % what clients read fits in memory; well above it does not. A bucket that nobody reads shows 0 %.
";

/// What could become of a cluster: what is asked of every bucket.
#[derive(clap::Args)]
pub(super) struct Changes {
    /// With --from: what if so many nodes are lost.
    #[arg(long, default_value_t = 1, value_name = "COUNT", conflicts_with = "documents", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    lose_nodes: u32,

    /// With --from: what if each document has so many more replicas.
    #[arg(long, default_value_t = 1, value_name = "COUNT", conflicts_with = "documents", value_parser = clap::value_parser!(u32).range(1..=3))]
    more_replicas: u32,

    /// With --from: what if each bucket's quota is so many percent of today's.
    #[arg(long, default_value_t = 75.0, value_name = "PERCENT", conflicts_with = "documents", value_parser = quota)]
    quota_percent: f64,

    /// With --from: what if clients write so many times as much. Documents and their growth are so many times today's.
    #[arg(long, default_value_t = 1.5, value_name = "FACTOR", conflicts_with = "documents", value_parser = factor)]
    writes_times: f64,
}

fn within(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse().ok().filter(|value| range.contains(value));
    value.ok_or_else(|| format!("{} to {}", range.start(), range.end()))
}

fn quota(text: &str) -> Result<f64, String> {
    within(text, 1.0..=10_000.0)
}

fn factor(text: &str) -> Result<f64, String> {
    within(text, 0.01..=10_000.0)
}

impl Changes {
    /// Each with its name. The group is the one whose loss takes the most nodes.
    fn all(&self, worst: Option<(&str, u32)>) -> Vec<(String, WhatIf)> {
        let lost = match self.lose_nodes {
            1 => "a node is lost".to_owned(),
            nodes => format!("{nodes} nodes are lost"),
        };
        let group = worst.map(|(group, nodes)| {
            let words = if nodes == 1 { "node" } else { "nodes" };
            (format!("the group {group} is lost ({nodes} {words})"), WhatIf::NodesLost(nodes))
        });
        let more = match self.more_replicas {
            1 => "one more replica".to_owned(),
            more => format!("{more} more replicas"),
        };
        let (quota, writes) = (self.quota_percent, self.writes_times);
        let after = [
            (more, WhatIf::MoreReplicas(self.more_replicas)),
            (format!("{quota} % of the quota"), WhatIf::QuotaTimes(quota / 100.0)),
            (format!("{writes} times the documents"), WhatIf::DocumentsTimes(writes)),
        ];
        let before = [("as it is".to_owned(), WhatIf::AsItIs), (lost, WhatIf::NodesLost(self.lose_nodes))];
        before.into_iter().chain(group).chain(after).collect()
    }
}

/// What REST says of a cluster.
struct Seen {
    forecasts: Vec<Value>,
    buckets: Vec<Bucket>,
    what_if: Vec<(String, WhatIf)>,
    /// So many times the growth.
    faster: f64,
}

struct Bucket {
    name: String,
    live: Live,
    documents: f64,
    resident_percent: f64,
    missed_percent: f64,
}

pub(super) fn run(session: &Session, changes: &Changes, as_json: bool) -> Result<(), Failure> {
    let seen = Seen::of(session, changes)?;
    if as_json {
        println!("{}", json_of(&seen));
    } else {
        print!("{}", screen(&seen));
    }
    Ok(())
}

impl Seen {
    fn of(session: &Session, changes: &Changes) -> Result<Self, Failure> {
        let forecasts = session.get("/settee/forecast")?["forecasts"].as_array().cloned().unwrap_or_default();
        let pool = session.pool()?;
        let groups = groups(&pool);
        let nodes = groups.values().sum();
        let worst = worst_group(groups.iter().map(|(name, nodes)| (name.as_str(), *nodes)));
        let listed = session.get("/pools/default/buckets?skipMap=true")?;
        let mut buckets = Vec::new();
        // Buckets that keep nothing on disk have no values that leave memory for it.
        for bucket in listed.as_array().into_iter().flatten().filter(|one| one["bucketType"] != "memcached") {
            let name = bucket["name"].as_str().unwrap_or_default();
            let stats = session.get(&format!("/pools/default/buckets/{}/stats", percent(name)))?;
            buckets.push(Bucket::of(bucket, &stats["op"]["samples"], nodes));
        }
        Ok(Self { forecasts, buckets, what_if: changes.all(worst), faster: changes.writes_times })
    }

    /// What a bucket needs in each case.
    fn needs<'a>(&'a self, bucket: &'a Bucket) -> impl Iterator<Item = (&'a str, Need)> {
        self.what_if.iter().map(|(name, what)| (name.as_str(), bucket.live.needs(*what, &Rule::SETTEE)))
    }
}

/// How many active nodes each server group has.
fn groups(pool: &Value) -> BTreeMap<String, u32> {
    let mut groups = BTreeMap::new();
    let nodes = pool["nodes"].as_array().into_iter().flatten();
    for node in nodes.filter(|node| node["clusterMembership"] == "active") {
        *groups.entry(node["serverGroup"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    groups
}

/// The word for it.
const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Enough => "enough",
        Verdict::Tight => "tight",
        Verdict::TooSmall => "too small",
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
}

fn screen(seen: &Seen) -> String {
    let mut screen = format!("What runs out, and when\n{}", outlook::screen(&seen.forecasts));
    let times = seen.faster;
    let faster: Vec<_> = seen.forecasts.iter().filter_map(|one| Some((one, days_at(one, times)?))).collect();
    if let Some((one, days)) = faster.iter().min_by(|a, b| a.1.total_cmp(&b.1)) {
        screen += &format!(
            "With {times} times the growth: {} in {days:.0} days, as the first.\n",
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
    screen += WORKING_SET;
    let rows = seen.buckets.iter().flat_map(|bucket| {
        seen.needs(bucket).map(|(what, need)| {
            vec![
                bucket.name.clone(),
                what.to_owned(),
                outlook::bytes(need.memory),
                outlook::bytes(need.least),
                need.nodes.to_string(),
                format!("{}: {}", need.there_are, word(need.verdict())),
            ]
        })
    });
    let columns = ["BUCKET", "WHAT IF", "QUOTA NEEDED", "AT THE LEAST", "NODES NEEDED", "NODES THERE"];
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
        let needs = seen.needs(bucket).map(|(what, need)| {
            json!({
                "whatIf": what, "quota": need.memory, "quotaAtLeast": need.least, "nodes": need.nodes, "nodesThere": need.there_are,
                "isEnough": need.is_met(), "verdict": word(need.verdict()),
            })
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
        let changes = Changes { lose_nodes: 1, more_replicas: 1, quota_percent: 75.0, writes_times: 1.5 };
        let seen = Seen {
            forecasts: vec![forecast],
            buckets: vec![Bucket::of(&bucket, &samples, 5)],
            what_if: changes.all(None),
            faster: changes.writes_times,
        };
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
        assert!(
            screen.contains("4: tight") && screen.contains("READS FROM DISK is the sign of it"),
            "{screen}"
        );
        let ephemeral = json!({ "name": "e", "bucketType": "ephemeral", "quota": { "rawRAM": 1_000.0 } });
        let samples = json!({ "settee_mem_floor": [400], "mem_used": [900], "ep_value_size": [3] });
        assert_eq!(Bucket::of(&ephemeral, &samples, 5).live.values, 500.0);
    }

    #[test]
    fn what_is_asked_is_what_flags_say_and_the_loss_of_the_worst_group() {
        let node =
            |group: &str, membership: &str| json!({ "serverGroup": group, "clusterMembership": membership });
        let nodes = [("rack 1", "active"), ("rack 2", "active"), ("rack 2", "active"), ("rack 1", "active")];
        let mut nodes: Vec<_> = nodes.map(|(group, membership)| node(group, membership)).into();
        nodes.extend([
            node("rack 1", "inactiveFailed"),
            node("rack 2", "active"),
            node("rack 3", "inactiveAdded"),
        ]);
        let groups = groups(&json!({ "nodes": nodes }));
        let counts: Vec<_> = groups.iter().map(|(name, nodes)| (name.as_str(), *nodes)).collect();
        assert_eq!(counts, [("rack 1", 2), ("rack 2", 3)]);
        let changes = Changes { lose_nodes: 2, more_replicas: 2, quota_percent: 120.0, writes_times: 3.0 };
        let asked = changes.all(worst_group(counts));
        let expected = [
            ("as it is", WhatIf::AsItIs),
            ("2 nodes are lost", WhatIf::NodesLost(2)),
            ("the group rack 2 is lost (3 nodes)", WhatIf::NodesLost(3)),
            ("2 more replicas", WhatIf::MoreReplicas(2)),
            ("120 % of the quota", WhatIf::QuotaTimes(1.2)),
            ("3 times the documents", WhatIf::DocumentsTimes(3.0)),
        ];
        assert_eq!(asked, expected.map(|(name, what)| (name.to_owned(), what)));
    }
}
