//! What alerts tell of nodes that are silenced, lost, removed, or without a majority.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{
    cluster::{Cluster, eventually, eventually_or_say},
    node::{Node, PASSWORD, USERNAME, settee},
    probe::Inbox,
};

fn firing(cluster: &Cluster, name: &str, subject: &str) -> Option<Value> {
    let told = cluster.rest().get_json("/settee/alerts").unwrap();
    let mut all = told["firing"].as_array().unwrap().iter();
    all.find(|one| one["name"] == name && one["subject"] == subject).cloned()
}

/// `settee status`: what it says, and its exit code.
fn status(node: &Node) -> (String, Option<i32>) {
    let output = settee()
        .args(["status", "--host", &node.rest(), "--username", USERNAME])
        .env("SETTEE_PASSWORD", PASSWORD)
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn a_silence_for_a_node_is_for_its_own_outage_and_nothing_is_told_of_a_node_that_was_removed() {
    let mut cluster = Cluster::form(3);
    let rest = cluster.rest();
    rest.put("/settee/probe", &[("buckets", "all"), ("periodSecs", "1")]).unwrap();
    let lost = cluster.nodes[2].rest();
    let silence = [("alert", "node_down"), ("node", lost.as_str()), ("minutes", "10")];
    rest.post("/settee/alerts/silences", &silence).unwrap();
    let inbox = Inbox::of(&rest);
    cluster.nodes[2].kill();
    let down = eventually("the outage is told", || firing(&cluster, "node_down", &lost));
    assert!(down["silencedUntil"].is_string(), "{down}");
    eventually("a node posts another alert", || inbox.told("probe_not_answered", &lost).pop());
    assert_eq!(inbox.told("node_down", &lost), [""; 0]);
    let (screen, _) = status(&cluster.nodes[0]);
    assert!(
        screen.contains("silenced until") && screen.contains(&format!("node_down of {lost}")),
        "{screen}"
    );
    cluster.command(&["failover", "--hard", &lost]);
    assert!(firing(&cluster, "probe_not_answered", &lost).is_some(), "it is over a minute after an answer");
    cluster.command(&["remove", &lost]);
    // A node looks once a second, and what others tell is shared for a second.
    let removed = Instant::now();
    eventually("it is over", || firing(&cluster, "probe_not_answered", &lost).is_none().then_some(()));
    assert!(removed.elapsed() < Duration::from_secs(20), "{:?}", removed.elapsed());
    eventually("the end is posted", || inbox.posted("cleared", "probe_not_answered", &lost).pop());
    let silences = rest.get_json("/settee/alerts/silences").unwrap();
    assert_eq!(silences["silences"][0]["subject"], lost.as_str(), "{silences}");
}

#[test]
fn a_node_that_is_removed_as_planned_tells_of_no_loss_and_ends_what_it_told() {
    let cluster = Cluster::form_with(4, "1", |index| {
        if index == 3 { &["--disk-free-min", "1152921504606846976"] } else { &[] }
    });
    let rest = cluster.rest();
    // A lease is so short that it ends before the node begins anew.
    rest.post("/settings/autoFailover", &[("enabled", "true"), ("timeout", "5")]).unwrap();
    let inbox = Inbox::of(&rest);
    let gone = &cluster.nodes[3];
    eventually("it posts an alert of its own", || inbox.told("disk_low", "").pop());
    cluster.command(&["remove", &gone.rest()]);
    eventually("it has begun anew", || {
        let pools = client::Rest::new(gone.rest(), None).get_json("/pools").ok()?;
        pools["pools"].as_array()?.is_empty().then_some(())
    });
    assert_eq!(inbox.told("lost_touch", ""), [""; 0]);
    eventually_or_say(|| {
        let ended = inbox.posted("cleared", "disk_low", "");
        if ended == [gone.rest()] { Ok(()) } else { Err(format!("{ended:?}")) }
    });
}

#[test]
fn one_of_two_nodes_says_that_it_is_without_a_majority_and_what_to_do() {
    let mut cluster = Cluster::form(2);
    let inbox = Inbox::of(&cluster.rest());
    let other = cluster.nodes[1].rest();
    cluster.nodes[1].kill();
    let told = eventually("the survivor tells it", || firing(&cluster, "no_majority", ""));
    let text = told["text"].as_str().unwrap();
    assert!(text.contains(&other) && text.contains("failover --hard --unsafe"), "{text}");
    eventually("it posts it", || inbox.told("no_majority", "").pop());
    let (screen, code) = status(&cluster.nodes[0]);
    assert!(code == Some(2) && screen.contains("!! no_majority"), "{screen}");
    let screen = cluster.command(&["status"]);
    assert!(screen.contains("no node leads"), "{screen}");
    cluster.command(&["failover", "--hard", "--unsafe", &other]);
    eventually("it is over", || firing(&cluster, "no_majority", "").is_none().then_some(()));
}
