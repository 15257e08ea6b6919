//! The active probe of nodes that are processes: what it finds of nodes that answer, stall and stop.

use std::{
    thread,
    time::{Duration, Instant},
};

use client::Rest;
use serde_json::Value;

use crate::{
    cluster::{Cluster, eventually},
    node::Node,
};

/// The timeout of an operation, as the probe counts it.
const TIMEOUT_US: u64 = 2_500_000;

fn set(rest: &Rest, form: &[(&str, &str)]) {
    rest.put("/settee/probe", form).unwrap();
}

/// What every node has found, once each of so many pairs of nodes is among it.
fn results(rest: &Rest) -> Vec<Value> {
    rest.get_json("/settee/probe").unwrap()["results"].as_array().unwrap().clone()
}

fn to<'a>(found: &'a [Value], node: &Node) -> impl Iterator<Item = &'a Value> {
    let name = node.rest();
    found.iter().filter(move |one| one["to"] == name.as_str())
}

fn alerts(rest: &Rest) -> Vec<String> {
    let shown = rest.get_json("/settee/alerts").unwrap();
    let firing = shown["firing"].as_array().unwrap().iter();
    firing.filter(|one| one["name"] == "probe_not_answered").map(|one| one["subject"].to_string()).collect()
}

fn stat(cluster: &Cluster, name: &str) -> String {
    let mut client = cluster.client();
    let connection = client.connection(base::VbId(0)).unwrap();
    let all = connection.stats("").unwrap();
    all.into_iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn every_node_probes_every_node_apart_from_what_clients_do() {
    let cluster = Cluster::form(3);
    let rest = cluster.rest();
    assert!(
        results(&rest).is_empty(),
        "a bucket without an objective is not probed unless that is asked for"
    );
    set(&rest, &[("buckets", "all"), ("writes", "true"), ("periodSecs", "1")]);
    let all_answer = || {
        let found = results(&rest);
        let answers = |one: &Value| {
            ["get", "set", "durable"]
                .iter()
                .all(|name| one["operations"][*name]["answered"].as_u64() > Some(1))
        };
        (found.len() == 9 && found.iter().all(answers)).then_some(found)
    };
    let found = eventually("nine pairs answer three operations", all_answer);
    assert!(found.iter().all(|one| one["up"] == true && one["bucket"] == "app"), "{found:?}");
    for name in ["cmd_get", "cmd_set", "get_misses"] {
        assert_eq!(stat(&cluster, name), "0", "{name}: probes are not clients");
    }
    let metrics = String::from_utf8(rest.get("/metrics").unwrap()).unwrap();
    let up = format!("settee_probe_up{{bucket=\"app\",to=\"{}\"}} 1", cluster.nodes[1].rest());
    assert!(metrics.lines().any(|line| line == up), "{up}");
    assert!(metrics.contains("settee_probe_seconds_bucket{bucket=\"app\",to=\""));
    let published = String::from_utf8(rest.get("/settee/probe/metrics").unwrap()).unwrap();
    for family in ["couchbase_up{", "couchbase_latency{", "memcached_latency{"] {
        assert!(published.lines().any(|line| line.starts_with(family)), "{family}: {published}");
    }
    // Its documents are those that it is documented to have, and they expire.
    let shown = rest.get_json("/pools/default/buckets/app/docs?limit=100").unwrap();
    let keys: Vec<&str> =
        shown["rows"].as_array().unwrap().iter().filter_map(|row| row["id"].as_str()).collect();
    assert_eq!(keys.len(), 9, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("_settee:probe:")), "{keys:?}");
    set(&rest, &[("buckets", "none")]);
    eventually("nothing is probed", || results(&rest).is_empty().then_some(()));
}

#[test]
fn a_stall_is_seen_in_its_size_and_a_stopped_node_is_down_with_the_timeout() {
    let cluster = Cluster::form(3);
    let rest = cluster.rest();
    let objective = [("operation", "get"), ("latencyUs", "500000"), ("targetPercent", "99")];
    rest.put("/settee/slo/app/gets", &objective).unwrap();
    // The objective alone has the bucket probed.
    set(&rest, &[("periodSecs", "1")]);
    let last = &cluster.nodes[2];
    let outside =
        || rest.get_json("/settee/slo/app/gets").unwrap()["seenFromOutside"]["probe"]["events"].clone();
    eventually("probes count for the objective", || (outside()["total"].as_u64() > Some(20)).then_some(()));
    let slow = || {
        let found = results(&rest);
        let p99 = to(&found, last).filter_map(|one| one["operations"]["get"]["p99Us"].as_u64());
        p99.max().unwrap_or_default()
    };
    assert!(slow() < 500_000, "{}", slow());

    // A stall of two seconds meets a round in its first second, by the period.
    let stall = Duration::from_secs(2);
    last.pause();
    let begun = Instant::now();
    while begun.elapsed() < stall {
        thread::park_timeout(stall - begun.elapsed());
    }
    last.resume();
    let stalled = u64::try_from(begun.elapsed().as_micros()).unwrap();
    let seen = eventually("the stall is seen", || Some(slow()).filter(|seen| *seen >= 900_000));
    assert!(seen <= stalled + 200_000, "{seen} of {stalled}");
    eventually("the objective has it", || {
        let events = outside();
        (events["total"].as_u64()? > events["good"].as_u64()?).then_some(())
    });

    let unanswered = |one: &Value| one["operations"]["get"]["unanswered"].as_u64().unwrap();
    last.pause();
    let begun = Instant::now();
    let down = || {
        let found = results(&rest);
        let of_last: Vec<Value> = to(&found, last).cloned().collect();
        // The node itself tells nothing now.
        let is_down = of_last.len() == 2 && of_last.iter().all(|one| one["up"] == false);
        is_down.then_some(found)
    };
    let found = eventually("both others see that it is down", down);
    let within = begun.elapsed();
    // Two periods, the timeout of what was tried in them, and the time of two looks.
    assert!(within < Duration::from_millis(2_000 + 2_500 + 3_000), "{within:?}");
    for one in to(&found, last) {
        assert_eq!(one["operations"]["get"]["lastUs"], TIMEOUT_US, "{one}");
        assert!(unanswered(one) >= 1);
    }
    for other in &cluster.nodes[..2] {
        for one in to(&found, other) {
            assert_eq!((&one["up"], unanswered(one)), (&Value::Bool(true), 0), "untouched: {one}");
        }
    }
    let name = format!("\"{}/app\"", last.rest());
    eventually("an alert says so", || alerts(&rest).contains(&name).then_some(()));
    last.resume();
    eventually("it is up again", || results(&rest).iter().all(|one| one["up"] == true).then_some(()));
    eventually("the alert is over", || alerts(&rest).is_empty().then_some(()));
}
