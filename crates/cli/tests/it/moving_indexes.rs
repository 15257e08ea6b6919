//! Indexes of copies that another node serves: they are there before a node takes over, and are seen by no query before that.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
};

use serde_json::Value;

use crate::{
    cluster::{Cluster, VBUCKETS, eventually, eventually_or_say, write_durably},
    design_documents::{get, put},
    node::Node,
};

const IDS: &str =
    "{\"views\":{\"v\":{\"map\":\"function (doc, meta) { emit(meta.id, null) }\",\"reduce\":\"_count\"}}}";
const DOCUMENTS: usize = 1000;

fn info(node: &Node, figure: &str) -> u64 {
    let answer = get(node, "/app/_design/x/_info");
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    told["view_index"][figure].as_u64().unwrap_or_default()
}

/// How often a node indexed a vBucket from its beginning that had documents by then.
fn begun(node: &Node) -> u64 {
    info(node, "vbuckets_begun")
}

/// Of how many copies that other nodes serve each node has an index.
fn followers(cluster: &Cluster) -> Vec<u64> {
    cluster.nodes.iter().map(|node| info(node, "replica_vbuckets")).collect()
}

/// What is counted at `stale=false`; `None` where the answer says that it lacks something.
fn count(node: &Node) -> Option<usize> {
    let answer = get(node, "/app/_design/x/_view/v?stale=false");
    let told: Value = serde_json::from_str(&answer.body).ok()?;
    if answer.status != 200 || told.get("errors").is_some() {
        eprintln!("{} {}", answer.status, told["errors"]);
        return None;
    }
    let rows = told["rows"].as_array()?;
    Some(rows.first().map_or(0, |row| row["value"].as_u64().unwrap() as usize))
}

/// What each node counts once it lacks nothing. A slow machine may need more time than a query has.
fn counts(cluster: &Cluster) -> Vec<usize> {
    let nodes = cluster.nodes.iter();
    nodes.map(|node| eventually("an answer with all vBuckets", || count(node))).collect()
}

/// Nodes with documents and a view.
fn with_view(nodes: usize, replica_index: &str) -> Cluster {
    let cluster = Cluster::form(nodes);
    let rest = cluster.rest();
    assert_eq!(rest.request("DELETE", "/pools/default/buckets/app", &[]).unwrap().code, 200);
    let bucket = [("replicaNumber", "1"), ("numVBuckets", VBUCKETS), ("replicaIndex", replica_index)];
    let bucket = [&[("name", "app"), ("ramQuotaMB", "100")][..], &bucket].concat();
    eventually("the bucket is created anew", || rest.post("/pools/default/buckets", &bucket).ok());
    let told = rest.get_json("/pools/default/buckets/app").unwrap();
    assert_eq!(told["replicaIndex"], (replica_index == "1"));
    assert_eq!(put(&cluster.nodes[0], "/app/_design/x", IDS).status, 201);
    eventually("the bucket is open", || cluster.try_client().ok());
    write_durably(&mut cluster.client(), "a", DOCUMENTS);
    assert!(counts(&cluster).iter().all(|counted| *counted == DOCUMENTS));
    cluster
}

/// How often the nodes that are left begin a vBucket after they have taken over those of a node that was lost.
fn begun_by_a_failover(cluster: &mut Cluster) -> u64 {
    let of_others = |cluster: &Cluster| begun(&cluster.nodes[0]) + begun(&cluster.nodes[2]);
    let before = of_others(cluster);
    cluster.nodes[1].kill();
    let lost = cluster.nodes[1].rest();
    cluster.command(&["failover", "--hard", &lost]);
    let whole = eventually("an answer with all vBuckets", || count(&cluster.nodes[0]));
    assert_eq!(whole, DOCUMENTS);
    of_others(cluster) - before
}

#[test]
fn with_indexes_of_replicas_a_failover_builds_nothing() {
    let vbuckets: u64 = VBUCKETS.parse().unwrap();
    let mut with = with_view(3, "1");
    eventually_or_say(|| {
        let indexed = followers(&with);
        if indexed.iter().sum::<u64>() == vbuckets { Ok(()) } else { Err(format!("indexed: {indexed:?}")) }
    });
    assert_eq!(begun_by_a_failover(&mut with), 0);
    drop(with);
    let mut without = with_view(3, "0");
    assert_eq!(followers(&without), [0; 3]);
    let built = begun_by_a_failover(&mut without);
    assert!(built >= vbuckets / 3 - 1, "{built} vBuckets were indexed from the beginning");
}

#[test]
fn counts_are_exact_while_documents_are_written_and_vbuckets_move() {
    let cluster = with_view(2, "0");
    let dir = tempfile::tempdir().unwrap();
    let third = Node::start(dir.path(), &[]);
    let (tried, written, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let asked = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = cluster.client();
            for number in 0.. {
                if is_over.load(SeqCst) {
                    return;
                }
                tried.store(number + 1, SeqCst);
                let key = format!("b{number}");
                eventually("a write", || client.set(key.as_bytes(), b"{}").ok());
                written.store(number + 1, SeqCst);
            }
        });
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                let least = DOCUMENTS + written.load(SeqCst);
                let Some(counted) = count(&cluster.nodes[0]) else { continue };
                let most = DOCUMENTS + tried.load(SeqCst);
                assert!((least..=most).contains(&counted), "{counted}, not {least} to {most}");
                asked.fetch_add(1, SeqCst);
            }
        });
        // Without an end the threads would keep a test that failed from ending.
        let changed = catch_unwind(AssertUnwindSafe(|| {
            cluster.command(&["add", &third.rest(), "--rebalance"]);
            cluster.command(&["remove", &third.rest()]);
        }));
        is_over.store(true, SeqCst);
        changed.unwrap_or_else(|panic| resume_unwind(panic));
    });
    assert!(asked.load(SeqCst) > 3);
    let all = DOCUMENTS + written.load(SeqCst);
    assert_eq!(counts(&cluster), [all; 2]);
}
