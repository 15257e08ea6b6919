//! Queries of views: what clients are answered by one node, and by several while vBuckets move.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use client::{Client, Login, Mutation, WriteOptions};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, write_durably},
    design_documents::{Answer, JSON, ask, get, put, start},
    node::{Node, PASSWORD, USERNAME},
    wait_persisted,
};

/// `all` has a row for each document, `odd` one for each odd number, with a reduction by a function.
const DESIGN: &str = r#"{"views": {
    "all": {"map": "function (doc, meta) { emit(doc.n, meta.id) }", "reduce": "_count"},
    "tens": {"map": "function (doc, meta) { emit([Math.floor(doc.n / 10), doc.n], doc.n) }", "reduce": "_sum"},
    "odd": {"map": "function (doc, meta) { if (doc.n % 2) emit(meta.id, doc.n) }",
            "reduce": "function (keys, values, rereduce) { return rereduce ? sum(values) : values.length }"}
}}"#;
const ALL: &str = "/app/_design/d/_view/all";

fn client(node: &Node) -> Client {
    let user = Some((USERNAME.into(), PASSWORD.into()));
    Client::connect(&node.kv(), &Login { user, bucket: Some("app".into()), collections: false }).unwrap()
}

fn id(number: usize) -> String {
    format!("d{number:04}")
}

fn store(client: &mut Client, number: usize) -> Mutation {
    client.set(id(number).as_bytes(), format!("{{\"n\":{number}}}").as_bytes()).unwrap()
}

/// The rows of an answer, joined by blanks, as `key:value`.
fn rows(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer.get("errors"), None, "{answer}");
    let rows = answer["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| format!("{}:{}", row["key"], row["value"]).replace('"', ""));
    rows.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_query_is_answered_as_it_was_asked_and_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path());
    let mut client = client(&node);
    let mut written: Vec<_> = (0..35).map(|number| store(&mut client, number)).collect();
    written.push(client.set(b"text", b"no number").unwrap());
    assert_eq!(put(&node, "/app/_design/d", DESIGN).status, 201);
    let asked = |node: &Node, view: &str, query: &str| {
        rows(&get(node, &format!("/app/_design/d/_view/{view}?stale=false&{query}")))
    };

    let first = get(&node, &format!("{ALL}?stale=false&reduce=false&startkey=33"));
    let line =
        |number: usize| format!("{{\"id\":\"d00{number}\",\"key\":{number},\"value\":\"d00{number}\"}}");
    let expected = format!("{{\"total_rows\":36,\"rows\":[\r\n{},\r\n{}\r\n]\r\n}}\n", line(33), line(34));
    // A document without a number has a row with the key null, which comes before all numbers.
    assert_eq!((first.status, first.body.as_str()), (200, expected.as_str()));
    assert_eq!(first.header("content-type"), Some("application/json"));

    let one = |node: &Node| {
        assert_eq!(asked(node, "all", ""), "null:36");
        assert_eq!(asked(node, "all", "reduce=false&key=7"), "7:d0007");
        assert_eq!(asked(node, "all", "reduce=false&keys=[9,3,9,99]"), "9:d0009 3:d0003 9:d0009");
        assert_eq!(asked(node, "all", "reduce=false&startkey=5&endkey=7"), "5:d0005 6:d0006 7:d0007");
        assert_eq!(
            asked(node, "all", "reduce=false&startkey=5&endkey=7&inclusive_end=false"),
            "5:d0005 6:d0006"
        );
        assert_eq!(asked(node, "all", "reduce=false&descending=true&skip=1&limit=2"), "33:d0033 32:d0032",);
        assert_eq!(asked(node, "all", "reduce=false&startkey=5&startkey_docid=e&limit=1"), "6:d0006");
        assert_eq!(asked(node, "tens", "group_level=1"), "[0]:45 [1]:145 [2]:245 [3]:160");
        assert_eq!(asked(node, "tens", "group=true&startkey=[3]&limit=2"), "[3,30]:30 [3,31]:31");
        assert_eq!(asked(node, "odd", ""), "null:17");
        assert_eq!(asked(node, "odd", "group=true&limit=2"), "d0001:1 d0003:1");
        assert_eq!(asked(node, "odd", "startkey=%22e%22"), "");
    };
    one(&node);
    let keys = ask(&node, "POST", &format!("{ALL}?reduce=false"), JSON, "{\"keys\":[2,1]}");
    assert_eq!(rows(&keys), "2:d0002 1:d0001");
    written.iter().for_each(|written| wait_persisted(&mut client, written));
    node.kill();
    node.restart(dir.path());
    one(&node);

    // What was acknowledged is in the next answer, each time.
    let mut client = self::client(&node);
    for number in 35..60 {
        store(&mut client, number);
        assert_eq!(asked(&node, "all", ""), format!("null:{}", number + 2));
    }
    for number in 0..60 {
        client.delete(id(number).as_bytes(), &WriteOptions::default()).unwrap();
    }
    assert_eq!(asked(&node, "all", ""), "null:1");
}

#[test]
fn what_is_wrong_with_a_query_is_told_in_the_words_of_couchbase() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    assert_eq!(put(&node, "/app/_design/d", DESIGN).status, 201);
    for (path, status, error, reason) in [
        ("all?limit=x", 400, "query_parse_error", "Invalid value for integer parameter: \\\"x\\\""),
        ("all?stale=no", 400, "query_parse_error", "stale only available as stale=ok, stale=update_after"),
        (
            "all?startkey=3&endkey=1&reduce=false",
            400,
            "query_parse_error",
            "No rows can match your key range",
        ),
        (
            "all?keys=[1]",
            400,
            "query_parse_error",
            "Multi-key fetchs for reduce view must include `group=true`",
        ),
        ("all?key=x", 400, "bad_request", "invalid UTF-8 JSON"),
        ("none", 404, "not_found", "Error opening view `none`, from set `app`, design document `_design/d`"),
    ] {
        let refused = get(&node, &format!("/app/_design/d/_view/{path}"));
        assert_eq!(refused.status, status, "{path}: {}", refused.body);
        let starts = format!("{{\"error\":\"{error}\",\"reason\":\"{reason}");
        assert!(refused.body.starts_with(&starts), "{path}: {}", refused.body);
    }
    let broken = r#"{"views": {"v": {"map": "function (doc) { emit(1, 1) }", "reduce": "function () { throw 'no luck' }"}}}"#;
    assert_eq!(put(&node, "/app/_design/e", broken).status, 201);
    store(&mut client(&node), 1);
    let failed = get(&node, "/app/_design/e/_view/v?stale=false");
    assert_eq!(failed.told(), (500, "{\"error\":\"error\",\"reason\":\"no luck\"}\n"));
    let refused = ask(&node, "POST", ALL, "Content-Type: text/plain", "{}");
    assert_eq!(refused.status, 415, "{}", refused.body);
    let head = ask(&node, "HEAD", ALL, JSON, "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

/// Rows by their ids; each once.
fn ids(answer: &Value) -> BTreeSet<String> {
    let rows = answer["rows"].as_array().unwrap();
    let ids: BTreeSet<String> = rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), rows.len(), "a row came twice: {answer}");
    ids
}

/// Asks nodes in turn while something is done to the cluster. An answer has every document or says what it lacks. How many were whole,
/// and how many were not.
fn asked_meanwhile(nodes: &[&Node], documents: &BTreeSet<String>, change: impl FnOnce()) -> (usize, usize) {
    let (is_over, whole, partial) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for stale in ["false", "ok"] {
            let (is_over, whole, partial) = (&is_over, &whole, &partial);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(Ordering::Relaxed) {
                    number += 1;
                    let node = nodes[number % nodes.len()];
                    let answer = get(node, &format!("{ALL}?stale={stale}&reduce=false"));
                    let told: Value = serde_json::from_str(&answer.body).unwrap_or_default();
                    if answer.status == 302 {
                        continue;
                    }
                    if answer.status != 200 || told.get("errors").is_some() {
                        eprintln!("stale={stale}: {} {}", answer.status, told["errors"]);
                        partial.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let ids = ids(&told);
                    let lacking: Vec<_> = documents.difference(&ids).take(5).collect();
                    assert!(ids == *documents, "stale={stale}: of {} lack {lacking:?}", documents.len());
                    whole.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Without an end the threads would keep a test that failed from ending.
        let changed = catch_unwind(AssertUnwindSafe(change));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = changed {
            resume_unwind(panic);
        }
    });
    (whole.into_inner(), partial.into_inner())
}

#[test]
fn answers_have_every_row_once_while_vbuckets_move_and_after_a_node_is_lost() {
    let mut cluster = Cluster::form(2);
    assert_eq!(put(&cluster.nodes[0], "/app/_design/d", DESIGN).status, 201);
    let documents: BTreeSet<String> = write_durably(&mut cluster.client(), "d", 300).into_keys().collect();
    let count = |node: &Node| rows(&get(node, &format!("{ALL}?stale=false")));
    for node in &cluster.nodes {
        assert_eq!(count(node), "null:300");
    }

    let dir = tempfile::tempdir().unwrap();
    let third = Node::start(dir.path(), &[]);
    let nodes: Vec<&Node> = cluster.nodes.iter().collect();
    cluster.command(&["add", &third.rest()]);
    let elsewhere = get(&third, ALL);
    let location = elsewhere.header("location").unwrap_or_default();
    let mut places = nodes.iter().map(|node| format!("http://127.0.0.1:{}{ALL}", node.port("capi")));
    assert!(elsewhere.status == 302 && places.any(|place| place == location), "{location}");
    let told: Value = serde_json::from_str(&elsewhere.body).unwrap();
    let reason = "Cannot execute view query since the node has no active vbuckets";
    assert_eq!(told, json!({ "error": "no_active_vbuckets", "reason": reason }));
    let (whole, partial) = asked_meanwhile(&nodes, &documents, || drop(cluster.command(&["rebalance"])));
    assert!(whole > 4 && partial * 10 <= whole, "{whole} answers were whole, {partial} were not");
    assert_eq!(count(&third), "null:300");
    cluster.nodes[1].kill();
    let lost = cluster.nodes[1].rest();
    let partial = get(&cluster.nodes[0], &format!("{ALL}?stale=false&reduce=false"));
    assert_eq!(partial.status, 200);
    let told: Value = serde_json::from_str(&partial.body).unwrap();
    assert!(ids(&told).is_subset(&documents) && told["errors"].is_array(), "{}", told["errors"]);
    cluster.command(&["failover", "--hard", &lost]);
    assert_eq!(count(&cluster.nodes[0]), "null:300");
    assert_eq!(count(&third), "null:300");
}
