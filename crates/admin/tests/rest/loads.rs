//! What clients tell, hot keys and connections over REST: users see keys of documents that they may read, and nobody else sees names or addresses.

use std::{
    sync::atomic::Ordering::Relaxed,
    thread,
    time::{Duration, Instant},
};

use cluster::Command;
use serde_json::json;

use crate::node::{ADMIN, TestNode};

#[test]
fn hot_keys_are_shown_to_users_that_may_read_them() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    assert_eq!(node.post("/pools/default/buckets/b/scopes", "name=s").status, 200);
    assert_eq!(node.post("/pools/default/buckets/b/scopes/s/collections", "name=c").status, 200);
    let told = |user: Option<&str>| {
        let answer = node.send("GET", "/settee/hot/b", user, None);
        let keys = (answer.status == 200).then(|| {
            let keys = answer.json()["keys"].as_array().unwrap().clone();
            keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        });
        keys.ok_or(answer.status)
    };
    let all = told(ADMIN).unwrap();
    assert!(all.contains(&"_default".to_owned()) && all.contains(&"c".to_owned()), "{all:?}");
    let of_c = node.with_user("of-c", "data_reader[b:s:c]");
    assert_eq!(told(Some(&of_c)), Ok(vec!["c".to_owned()]));
    // These see figures and settings, and no documents.
    for (name, role) in [("viewer", "ro_admin"), ("cluster", "cluster_admin"), ("of-none", "data_writer[b]")]
    {
        let user = node.with_user(name, role);
        assert_eq!(told(Some(&user)), Err(403), "{role}");
    }
    assert_eq!(node.send("GET", "/settee/hot/none", ADMIN, None).status, 404);
}

#[test]
fn hotter_keys_of_others_hide_none_and_rates_are_statistics() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    assert_eq!(node.post("/pools/default/buckets/b/scopes", "name=s").status, 200);
    assert_eq!(node.post("/pools/default/buckets/b/scopes/s/collections", "name=c").status, 200);
    node.node.hotter.store(50, Relaxed);
    assert_eq!(
        node.get("/settee/hot/b").json()["keys"].as_array().unwrap().len(),
        20,
        "an answer is bounded"
    );
    let told = |user: &str| {
        let answer = node.send("GET", "/settee/hot/b", Some(user), None).json();
        assert_eq!(answer["keys"].as_array().unwrap().len(), 1, "{answer}");
        let key = &answer["keys"][0];
        assert_eq!(key["key"], "c");
        [&answer["operationsPerSecond"], &key["operationsPerSecond"], &key["share"]].map(|one| one.as_f64())
    };
    let reader = node.with_user("of-c", "data_reader[b:s:c]");
    assert_eq!(told(&reader), [None; 3]);
    let watcher = node.with_user("watcher", "data_reader[b:s:c],data_monitoring[b]");
    assert_eq!(told(&watcher), [Some(20.0), Some(10.0), Some(0.5)]);
}

#[test]
fn hot_keys_of_a_bucket_are_none_of_the_next_one_with_its_name() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    let ask = |question: &str| {
        let answer = node.send("POST", "/_settee/hot", Some("@settee:between-nodes"), Some(question));
        (answer.status, answer.json().is_null())
    };
    let uuid = node.node.metadata_now().buckets["b"].uuid.0.clone();
    assert_eq!(ask("{\"bucket\":\"b\"}"), (200, false), "a node of an older version asks");
    assert_eq!(ask(&format!("{{\"bucket\":\"b\",\"uuid\":\"{uuid}\"}}")), (200, false));
    assert_eq!(ask("{\"bucket\":\"b\",\"uuid\":\"another\"}"), (200, true));
}

#[test]
fn connections_are_shown_to_users_that_may_see_logs() {
    let node = TestNode::initialized();
    let told = node.get("/settee/connections").json();
    let clients: Vec<_> = told["connections"].as_array().unwrap().iter().map(|one| &one["client"]).collect();
    assert_eq!(clients, ["10.0.0.2:2", "10.0.0.1:1"], "the busiest first");
    assert_eq!(told["open"][0]["connections"], 2);
    let one = node.get("/settee/connections?limit=1").json();
    assert_eq!(one["connections"].as_array().unwrap().len(), 1);
    for wrong in ["0", "1001", "x", "-1"] {
        assert_eq!(node.get(&format!("/settee/connections?limit={wrong}")).status, 400, "{wrong}");
    }
    let user = node.with_user("cluster", "cluster_admin");
    assert_eq!(node.send("GET", "/settee/connections", Some(&user), None).status, 403);
}

#[test]
fn what_clients_tell_of_a_bucket_is_shown_with_its_statistics() {
    let node = TestNode::initialized();
    assert_eq!(node.post("/pools/default/buckets", "name=told&ramQuota=100&replicaNumber=0").status, 202);
    let told = node.get("/settee/sdk/told").json();
    let expected = json!({
        "clients": 0, "requests": [], "missingNodes": [],
        "operations": [{
            "operation": "kv_retrieval", "node": "10.0.0.2:8091", "count": 20, "sumMs": 40,
            "steps": [{ "withinMs": 1, "count": 15 }, { "withinMs": null, "count": 20 }],
        }],
    });
    assert_eq!(told, expected);
    let watcher = node.with_user("watcher", "data_monitoring[told]");
    let told = node.send("GET", "/settee/sdk/told", Some(&watcher), None).json();
    assert_eq!((&told["clients"], &told["operations"]), (&json!(null), &expected["operations"]));
    let reader = node.with_user("reader", "data_reader[told]");
    assert_eq!(node.send("GET", "/settee/sdk/told", Some(&reader), None).status, 403);
    assert_eq!(node.send("GET", "/settee/sdk/none", ADMIN, None).status, 404);
}

/// Members that answer what this node does.
fn with_members(node: &TestNode) {
    node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    node.node.add_members(2);
    node.node.speaks_for_others.store(true, Relaxed);
}

#[test]
fn many_consoles_ask_other_nodes_once_a_second() {
    let node = TestNode::initialized();
    with_members(&node);
    assert_eq!(node.post("/pools/default/buckets", "name=told&ramQuota=100&replicaNumber=0").status, 202);
    let asked =
        |path: &str| node.node.asked_members.lock().unwrap().iter().filter(|one| *one == path).count();
    for (path, inner) in [
        ("/settee/alerts", "/_settee/alerts"),
        ("/settee/slow", "/_settee/slow"),
        ("/settee/sdk/told", "/_settee/sdk"),
        ("/pools/default/buckets/told/stats?zoom=hour", "/_settee/samples"),
    ] {
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..8).for_each(|_| assert_eq!(node.get(path).status, 200, "{path}")));
            }
        });
        let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
        let count = asked(inner);
        assert!((2..=2 * seconds).contains(&count), "{path}: {count} questions in {seconds} s");
        // And again, once the answers are old.
        let until = Instant::now() + Duration::from_secs(60);
        while asked(inner) == count && Instant::now() < until {
            node.get(path);
        }
        assert!(asked(inner) > count, "{path}");
    }
    let told = node.get("/settee/sdk/told").json();
    assert_eq!(told["operations"][0]["count"], 60, "of three nodes: {told}");
}

#[test]
fn what_other_nodes_answered_somebody_else_is_shown_by_the_rights_of_each() {
    let node = TestNode::initialized();
    with_members(&node);
    assert_eq!(node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    assert_eq!(node.post("/pools/default/buckets/b/scopes", "name=s").status, 200);
    assert_eq!(node.post("/pools/default/buckets/b/scopes/s/collections", "name=c").status, 200);
    let of_c = node.with_user("of-c", "data_reader[b:s:c]");
    let keys = |user: Option<&str>| {
        let told = node.send("GET", "/settee/hot/b", user, None).json();
        assert_eq!(told["missingNodes"], json!([]), "{told}");
        told["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|key| key["key"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // By turns, whichever of them asks the nodes.
    for _ in 0..3 {
        assert_eq!(keys(ADMIN).iter().filter(|key| *key == "_default").count(), 3);
        assert_eq!(keys(Some(&of_c)), ["c", "c", "c"]);
    }
}
