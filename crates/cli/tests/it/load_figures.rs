//! What `settee load` measures and is told of each operation, against what the servers' histograms have of the same ones.

use serde_json::Value;

use crate::{
    cluster::Cluster,
    node::{PASSWORD, USERNAME, settee},
};

const PERCENTILES: [&str; 3] = ["p50", "p90", "p99"];

/// A load on the bucket `app`, which has to succeed; its report.
fn report(cluster: &Cluster, flags: &[&str]) -> Value {
    let host = cluster.nodes[0].kv();
    let load = settee()
        .args(["load", "--host", &host, "-u", USERNAME, "-b", "app", "-n", "300", "--value-bytes", "100"])
        .args(["--verify", "0", "--json"])
        .args(flags)
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    serde_json::from_slice(&load.stdout).unwrap()
}

/// They have keys of their own, and most are on another node than the document beside them.
#[test]
fn counters_are_asked_of_the_nodes_that_have_them() {
    let cluster = Cluster::form(2);
    let told = report(&cluster, &["--mix", "incr=1", "--closed", "--seconds", "1", "--warmup", "0"]);
    assert!(told["operations"]["incr"]["ok"].as_u64() > Some(0), "{told}");
    assert_eq!(told["not_my_vbucket"], 0, "{told}");
}

/// Both sides are of the same operations and of one reading of the clock. So a percentile is of the same operation, and both sides
/// differ by nothing but how they round it. Other programs on this machine change that in no way.
#[test]
fn the_servers_histograms_have_what_a_load_measures_and_is_told_of_each_operation() {
    let cluster = Cluster::form(3);
    report(&cluster, &["--connections", "1", "--populate"]);
    let durable = &["--mix", "set=1", "--durability", "persistToMajority"];
    // Answers of a pipeline leave together, and so took as long as one another.
    let pipeline = &["--mix", "get=1", "--pipeline", "16"];
    for (operation, connections, mix) in [
        ("get", "1", &pipeline[..]),
        ("get", "4", &["--mix", "get=1"]),
        ("set", "4", &["--mix", "set=1"]),
        ("set", "1", durable),
    ] {
        let flags =
            ["--connections", connections, "--closed", "--seconds", "2", "--warmup", "0", "--explain"];
        let told = report(&cluster, &[mix, &flags[..]].concat());
        let what = format!("{mix:?}: {} {}", told["server_agreement"], told["split_us"]);
        println!("{what}");
        let measured = &told["operations"][operation];
        let [of_answers, of_histograms] = ["told", "counted"].map(|side| &told["server_agreement"][side]);
        // Of as few as that every node has had some.
        assert!(measured["ok"].as_u64() > Some(30), "{what}");
        for count in [&of_answers["count"], &of_histograms["count"], &told["split_us"]["beside"]["count"]] {
            assert_eq!(count, &measured["ok"], "{what}");
        }
        for percentile in PERCENTILES {
            let within =
                |side: &Value| [0, 1].map(|at| side[format!("{percentile}_within_us")][at].as_u64().unwrap());
            let ([least, most], [from, to]) = (within(of_answers), within(of_histograms));
            assert!(least <= to && from <= most, "{percentile}: {what}");
            // No operation took longer on its server than for its client.
            let of_client = measured["ok_us"][percentile].as_f64().unwrap();
            assert!(from as f64 <= of_client, "{percentile} is {of_client} us for the client: {what}");
        }
        assert_eq!(told["overstated_by_server"], 0, "{what}");
        let sentence =
            format!("Of the same {} operations the server told, and has in its histograms", measured["ok"]);
        let findings = told["findings"].as_array().unwrap();
        let found = findings.iter().filter_map(Value::as_str).find(|one| one.starts_with(&sentence));
        assert!(found.is_some_and(|one| one.ends_with("the differences come from that.")), "{findings:?}");
    }
}
