//! What `settee load` tells of the server, against what the server tells of itself.

use serde_json::Value;

use crate::{
    cluster::Cluster,
    node::{PASSWORD, USERNAME, settee},
};

/// A load on the bucket `app`, which has to succeed; its report.
fn report(cluster: &Cluster, flags: &[&str]) -> Value {
    let host = cluster.nodes[0].kv();
    let load = settee()
        .args(["load", "--host", &host, "-u", USERNAME, "-b", "app", "-n", "300", "--value-bytes", "100"])
        .args(["--connections", "1", "--verify", "0", "--json"])
        .args(flags)
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    serde_json::from_slice(&load.stdout).unwrap()
}

/// Both are of the same operations, so they have as many. A percentile is in the same step, which is an eighth of its value, and what is
/// told with an answer is rounded.
#[test]
fn the_servers_histograms_have_what_it_tells_a_load_of_each_operation() {
    const NEAR: f64 = 0.2;
    let cluster = Cluster::form_with(2, "0", |_| &[]);
    report(&cluster, &["--populate"]);
    let durable = ["--mix", "set=1", "--durability", "persistToMajority"];
    let told = report(
        &cluster,
        &[&durable[..], &["--closed", "--seconds", "2", "--warmup", "0", "--explain"]].concat(),
    );
    let [of_answers, of_histograms] = ["told", "counted"].map(|side| &told["server_agreement"][side]);
    let count = of_answers["count"].as_u64().unwrap();
    // Of as few as that both nodes have had some.
    assert!(count > 20, "{count} writes");
    assert_eq!(told["operations"]["set"]["ok"], count);
    assert_eq!(of_histograms["count"], count, "{}", told["findings"]);
    for percentile in ["p50_us", "p90_us", "p99_us"] {
        let [told, counted] = [of_answers, of_histograms].map(|side| side[percentile].as_f64().unwrap());
        assert!((counted / told - 1.0).abs() < NEAR, "{percentile}: {told} told, {counted} counted");
    }
    let sentence = format!("Of the same {count} operations the server told, and has in its histograms");
    let findings = told["findings"].as_array().unwrap();
    assert!(findings.iter().any(|one| one.as_str().unwrap().starts_with(&sentence)), "{findings:?}");
}
