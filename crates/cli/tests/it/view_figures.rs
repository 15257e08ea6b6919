//! What operators see of indexes: tasks while they are built, and statistics.

use client::{Client, Rest};
use serde_json::Value;

use crate::{
    cluster::eventually,
    design_documents::{get, put, start},
    login,
    node::{Node, PASSWORD, USERNAME},
};

/// A document takes this function a while.
const SLOW: &str = r#"{"views": {"v": {"map": "function (doc, meta) {
    for (var until = Date.now() + 15; Date.now() < until;); emit(doc.n, null) }", "reduce": "_count"}}}"#;
const DOCUMENTS: usize = 200;

fn told(node: &Node, path: &str) -> Value {
    Rest::new(node.rest(), Some((USERNAME, PASSWORD))).get_json(path).unwrap()
}

fn indexing(node: &Node) -> Vec<Value> {
    let tasks = told(node, "/pools/default/tasks");
    let tasks = tasks.as_array().unwrap().iter();
    tasks.filter(|task| task["type"] == "indexer").cloned().collect()
}

/// The newest sample of a statistic.
fn statistic(node: &Node, name: &str) -> f64 {
    let told = told(node, "/pools/default/buckets/app/stats");
    told["op"]["samples"][name].as_array().unwrap().last().unwrap().as_f64().unwrap()
}

#[test]
fn an_index_that_is_built_is_a_task_and_counts_in_statistics() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    for number in 0..DOCUMENTS {
        let (id, body) = (format!("d{number}"), format!("{{\"n\":{number}}}"));
        client.set(id.as_bytes(), body.as_bytes()).unwrap();
    }
    assert!(indexing(&node).is_empty());
    assert_eq!(statistic(&node, "couch_views_data_size"), 0.0);
    assert_eq!(put(&node, "/app/_design/slow", &SLOW.replace('\n', "")).status, 201);
    // Nobody asks for it, so it is not fed.
    assert_eq!(
        put(&node, "/app/_design/dev_other", &SLOW.replace("doc.n", "meta.id").replace('\n', "")).status,
        201
    );
    let task = eventually("an index is built", || indexing(&node).pop());
    assert_eq!((&task["designDocument"], &task["bucket"]), (&"_design/slow".into(), &"app".into()), "{task}");
    assert_eq!((&task["status"], task["totalChanges"].as_u64()), (&"running".into(), Some(DOCUMENTS as u64)));
    let (done, progress) = (task["changesDone"].as_u64().unwrap(), task["progress"].as_u64().unwrap());
    assert_eq!(progress, done * 100 / DOCUMENTS as u64, "{task}");
    let answer = get(&node, "/app/_design/slow/_view/v?stale=false");
    assert!(answer.body.contains("\"value\":200"), "{}", answer.body);
    eventually("no index is built", || indexing(&node).is_empty().then_some(()));

    eventually("the statistics know of the index", || {
        let sizes = ["couch_views_data_size", "couch_views_disk_size"].map(|name| statistic(&node, name));
        sizes.iter().all(|size| *size > 0.0).then_some(())
    });
    let metrics = Rest::new(node.rest(), Some((USERNAME, PASSWORD))).get("/metrics").unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    let ops = metrics.lines().find(|line| line.starts_with("couch_views_ops{bucket=\"app\"")).unwrap();
    assert!(ops.ends_with(" 1"), "{ops}");
    assert!(metrics.contains("\ncouch_views_actual_disk_size{bucket=\"app\""), "{metrics}");
}

/// What lies on the disk of an index, and of that what is in use.
fn disk_of(node: &Node, name: &str) -> (u64, u64) {
    let info: Value = serde_json::from_str(&get(node, &format!("/app/_design/{name}/_info")).body).unwrap();
    let of = |member: &str| info["view_index"][member].as_u64().unwrap();
    (of("disk_size"), of("data_size"))
}

#[test]
fn an_index_is_compacted_when_somebody_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let view = r#"{"views":{"v":{"map":"function (doc, meta) { emit(doc.n, doc); }"}}}"#;
    assert_eq!(put(&node, "/app/_design/x", view).status, 201);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    let filler = "x".repeat(300);
    let mut changed = DOCUMENTS;
    let mut wasted = || {
        for number in 0..std::mem::replace(&mut changed, DOCUMENTS / 2) {
            let (id, body) = (format!("d{number}"), format!("{{\"n\":{number},\"x\":\"{filler}\"}}"));
            client.set(id.as_bytes(), body.as_bytes()).unwrap();
        }
        assert_eq!(get(&node, "/app/_design/x/_view/v?stale=false&limit=1").status, 200);
        let (disk, data) = disk_of(&node, "x");
        (data > 0 && (disk - data) * 10 > disk).then_some(())
    };
    // Half of what the first commit wrote is superseded, and the other half is not. Were all of it superseded, nothing on the disk would be
    // in use until the next commit.
    eventually("an index that has something superseded on its disk", &mut wasted);
    let path = "/pools/default/buckets/app/ddocs/_design%2Fx/controller/compactView";
    let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
    eventually("an index without anything superseded", || {
        assert_eq!(rest.post(path, &[]).unwrap(), b"");
        let (disk, data) = disk_of(&node, "x");
        ((disk - data) * 20 < disk).then_some(())
    });
    let answer = get(&node, "/app/_design/x/_view/v?stale=false&limit=0");
    assert!(answer.body.contains(&format!("\"total_rows\":{DOCUMENTS}")), "{}", answer.body);
}
