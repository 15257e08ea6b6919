//! A rebalance onto nodes that are too small for what they would get: refused, and where it is forced, no dead end.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use client::{Client, Login};

use crate::{
    cluster::{Cluster, VBUCKETS},
    node::{PASSWORD, USERNAME},
};

/// Nothing of this bucket leaves memory: three nodes have room for it, two have not.
const BUCKET: [(&str, &str); 6] = [
    ("name", "tight"),
    ("bucketType", "ephemeral"),
    ("evictionPolicy", "noEviction"),
    ("ramQuotaMB", "100"),
    ("replicaNumber", "0"),
    ("numVBuckets", VBUCKETS),
];
const VALUE_BYTES: usize = 128 * 1024;
const DOCUMENTS: u16 = 1_720;
/// How old figures of nodes may be by which a rebalance is judged.
const FIGURES: Duration = Duration::from_secs(2);
/// A rebalance that has come no further for so long waits for room.
const STILL: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(180);

fn client(cluster: &Cluster) -> Client {
    let user = Some((USERNAME.into(), PASSWORD.into()));
    let login = Login { user, bucket: Some("tight".into()), collections: false };
    let mut client = Client::connect(&cluster.nodes[0].kv(), &login).unwrap();
    client.patience = Duration::from_secs(20);
    client
}

fn key(number: u16) -> String {
    format!("key-{number}")
}

/// The documents that are there, each with the value it was written with.
fn read_all(client: &mut Client) -> BTreeSet<u16> {
    let mut has = |number: &u16| {
        let found = client.get(key(*number).as_bytes()).unwrap_or_else(|error| panic!("{number}: {error}"));
        let byte = number.to_le_bytes()[0];
        found.is_some_and(|found| {
            assert!(found.value.len() == VALUE_BYTES && found.value.iter().all(|&there| there == byte));
            true
        })
    };
    (0..DOCUMENTS).filter(|number| has(number)).collect()
}

/// How far the rebalance is, if one runs.
fn progress(cluster: &Cluster) -> Option<f64> {
    let tasks = cluster.rest().get_json("/pools/default/tasks").unwrap();
    let task = tasks.as_array().unwrap().iter().find(|task| task["type"] == "rebalance").unwrap().clone();
    assert!(task["errorMessage"].is_null(), "{task}");
    (task["status"] == "running").then(|| task["progress"].as_f64().unwrap())
}

/// Until the rebalance comes no further; whether it still runs.
fn until_still(cluster: &Cluster) -> bool {
    let began = Instant::now();
    let (mut seen, mut since) = (progress(cluster), Instant::now());
    while seen.is_some() && since.elapsed() < STILL {
        assert!(began.elapsed() < LONG, "{seen:?}");
        thread::sleep(Duration::from_millis(200));
        let now = progress(cluster);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    seen.is_some()
}

fn until_over(cluster: &Cluster) {
    let began = Instant::now();
    while progress(cluster).is_some() {
        assert!(began.elapsed() < LONG, "the rebalance does not end");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Three full nodes, one of which is to go although the others have no room for what it holds.
fn forced() -> Cluster {
    let cluster = Cluster::form(3);
    cluster.rest().delete("/pools/default/buckets/app").unwrap();
    cluster.rest().post("/pools/default/buckets", &BUCKET).unwrap();
    let mut client = client(&cluster);
    for number in 0..DOCUMENTS {
        let value = vec![number.to_le_bytes()[0]; VALUE_BYTES];
        client.set(key(number).as_bytes(), &value).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    thread::sleep(FIGURES);
    let leaving = cluster.nodes[2].rest();
    let refused = cluster.refusal(&["remove", &leaving]);
    assert!(
        refused.contains("on each of 2 nodes") && refused.contains("its quota there is 100 MiB"),
        "{refused}"
    );
    cluster.command(&["remove", &leaving, "--force", "--no-wait"]);
    assert!(until_still(&cluster), "there was room for everything");
    assert_eq!(read_all(&mut client).len(), usize::from(DOCUMENTS), "whatever waits is served where it was");
    cluster
}

#[test]
fn a_forced_rebalance_waits_for_room_and_goes_on_once_documents_are_deleted() {
    let cluster = forced();
    let mut client = client(&cluster);
    let (deleted, kept): (BTreeSet<u16>, _) = (0..DOCUMENTS).partition(|number| number % 2 == 0);
    for &number in &deleted {
        client
            .delete(key(number).as_bytes(), &Default::default())
            .unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    until_over(&cluster);
    let mut client = self::client(&cluster);
    assert_eq!(client.map().nodes.len(), 2);
    assert_eq!(read_all(&mut client), kept);
    client.set(b"more", b"room").unwrap();
}

#[test]
fn a_forced_rebalance_that_waits_for_room_is_stopped_and_the_node_kept() {
    let cluster = forced();
    cluster.command(&["stop"]);
    cluster.command(&["rebalance"]);
    let mut client = client(&cluster);
    assert_eq!(client.map().nodes.len(), 3);
    assert_eq!(read_all(&mut client).len(), usize::from(DOCUMENTS));
    client.set(b"more", b"room").unwrap();
}
