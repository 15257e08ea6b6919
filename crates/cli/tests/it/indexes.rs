//! Indexes of views: a node keeps them up to date with the documents that it serves, through kills, drops and rebalances.

use std::path::Path;

use client::{Client, Rest};
use serde_json::Value;

use crate::{
    cluster::{Cluster, VBUCKETS, eventually},
    design_documents::{get, put},
    login,
    node::{Node, PASSWORD, USERNAME},
    wait_persisted,
};

const IDS: &str =
    "{\"views\":{\"v\":{\"map\":\"function (doc, meta) { emit(meta.id, null) }\",\"reduce\":\"_count\"}}}";

fn start(dir: &Path) -> Node {
    Node::start(dir, &["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"])
}

/// What a node tells of the index of a design document.
fn info(node: &Node, name: &str) -> Value {
    let answer = get(node, &format!("/app/_design/{name}/_info"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str::<Value>(&answer.body).unwrap()["view_index"].clone()
}

/// Waits until the index of a node has so many rows, and all changes. Copies that a node has just begun to serve are not counted at once.
fn await_rows(node: &Node, name: &str, rows: u64) {
    eventually("the index has these rows", || (rows_of_all(node, name) == rows).then_some(()));
}

/// Waits until the index of a node has all changes of the copies that it has heard of; tells how many rows that are.
fn rows_of_all(node: &Node, name: &str) -> u64 {
    eventually("the index has everything", || {
        let index = info(node, name);
        (index["total_seqs_diff"].as_u64() == Some(0)).then(|| index["views"]["v"]["rows"].as_u64())?
    })
}

fn folder(dir: &Path, node: &Node) -> std::path::PathBuf {
    let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    let uuid = rest.get_json("/pools/default/buckets/app").unwrap()["uuid"].clone();
    dir.join("data/services/views").join(uuid.as_str().unwrap())
}

fn write(node: &Node, prefix: &str, count: usize) {
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    let set = |number| client.set(format!("{prefix}{number}").as_bytes(), b"{\"n\":1}").unwrap();
    let written: Vec<_> = (0..count).map(set).collect();
    written.iter().for_each(|written| wait_persisted(&mut client, written));
}

#[test]
fn an_index_follows_documents_through_a_kill_and_goes_with_its_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path());
    write(&node, "a", 300);
    let folder = folder(dir.path(), &node);
    assert!(!folder.exists(), "a bucket without views has no files of indexes");
    assert_eq!(put(&node, "/app/_design/x", IDS).status, 201);
    await_rows(&node, "x", 300);
    write(&node, "b", 200);
    await_rows(&node, "x", 500);
    let index = folder.join(info(&node, "x")["signature"].as_str().unwrap());
    eventually("it was committed", || index.join("head").exists().then_some(()));

    node.kill();
    node.restart(dir.path());
    write(&node, "c", 100);
    await_rows(&node, "x", 600);

    let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    assert_eq!(rest.request("DELETE", "/pools/default/buckets/app", &[]).unwrap().code, 200);
    eventually("its indexes are gone", || (!folder.exists()).then_some(()));
}

#[test]
fn after_a_rebalance_each_node_has_indexed_its_own() {
    let dirs: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let nodes =
        vec![Node::start(dirs[0].path(), &["--init-username", USERNAME]), Node::start(dirs[1].path(), &[])];
    let cluster = Cluster { nodes, dirs };
    let bucket = [("name", "app"), ("ramQuotaMB", "100"), ("replicaNumber", "0"), ("numVBuckets", VBUCKETS)];
    cluster.rest().post("/pools/default/buckets", &bucket).unwrap();
    assert_eq!(put(&cluster.nodes[0], "/app/_design/x", IDS).status, 201);
    eventually("the bucket is open", || cluster.try_client().ok());
    write(&cluster.nodes[0], "a", 300);
    await_rows(&cluster.nodes[0], "x", 300);
    cluster.command(&["add", &cluster.nodes[1].rest(), "--rebalance"]);
    let rows = eventually("each node has its own", || {
        let rows: Vec<u64> = cluster.nodes.iter().map(|node| rows_of_all(node, "x")).collect();
        (rows.iter().sum::<u64>() == 300).then_some(rows)
    });
    assert!(rows.iter().all(|rows| *rows > 50), "{rows:?}");
}
