//! The audit trail as REST shows it: who may see it, page by page, and what of a request it refuses.

use serde_json::{Value, json};

use crate::node::{ADMIN, TestNode};

/// A node with so many events of two users and two kinds.
fn with_events(count: u64) -> TestNode {
    let node = TestNode::initialized();
    let event = |at: u64| {
        let (user, name) =
            (["ann", "ben"][at as usize % 2], ["login failure", "bucket changed"][at as usize / 2 % 2]);
        json!({ "timestamp_ms": at, "user": user, "name": name, "subject": "<b>" })
    };
    *node.node.trail.lock().unwrap() = Some((0..count).map(event).collect());
    node
}

fn times(told: &Value) -> Vec<u64> {
    told["events"].as_array().unwrap().iter().map(|event| event["timestamp_ms"].as_u64().unwrap()).collect()
}

#[test]
fn the_audit_trail_is_told_page_by_page_to_its_beginning() {
    let node = with_events(25);
    let (mut seen, mut place) = (Vec::new(), String::new());
    for pages in 1.. {
        let told = node.get(&format!("/settee/audit?limit=10&before={place}")).json();
        seen.push(times(&told));
        assert_eq!(told["missingNodes"], json!([]));
        match told["before"].as_str() {
            Some(before) => place = before.to_owned(),
            None => {
                assert_eq!(pages, 3);
                break;
            }
        }
    }
    assert_eq!(seen.concat(), (0..25).rev().collect::<Vec<_>>());
    let told = node.get("/settee/audit?user=ann&event=bucket%20changed&limit=3").json();
    assert_eq!(times(&told), [22, 18, 14]);
    let shown = node.get("/pools/nodes").json()["nodes"][0]["hostname"].clone();
    assert_eq!((&told["events"][0]["node"], &told["events"][0]["subject"]), (&shown, &json!("<b>")));
    assert_eq!(times(&node.get("/settee/audit?user=an").json()), [0; 0]);
}

#[test]
fn only_those_who_may_see_security_settings_see_the_audit_trail() {
    let node = with_events(1);
    assert_eq!(node.send("GET", "/settee/audit", None, None).status, 401);
    for (user, roles, status) in [
        ("sec", "security_admin", 200),
        ("watcher", "ro_admin", 200),
        ("cluster", "cluster_admin", 403),
        ("owner", "bucket_admin[*]", 403),
        ("exporter", "external_stats_reader", 403),
    ] {
        let user = node.with_user(user, roles);
        assert_eq!(node.send("GET", "/settee/audit", Some(&user), None).status, status, "{roles}");
        let settings = node.send("GET", "/settings/audit", Some(&user), None).status;
        assert_eq!(settings, status, "{roles}: as of the settings");
        assert_eq!(node.send("POST", "/_settee/audit", Some(&user), Some("{}")).status, 401, "{roles}");
    }
    assert_eq!(node.send("POST", "/_settee/audit", ADMIN, Some("{}")).status, 401, "it is between nodes");
}

#[test]
fn hostile_questions_about_the_audit_trail_are_refused_or_cut() {
    let node = with_events(600);
    for query in [
        "limit=-1",
        "limit=0",
        "limit=x",
        "limit=99999999999999999999999",
        "before=x",
        "before=-1",
        "before=1-2",
        "before=0-zz-1",
        "before=0-0-99999999999999999999",
        "before=%FF%FE",
        "before=99999-end",
    ] {
        let told = node.get(&format!("/settee/audit?{query}"));
        assert_eq!(told.status, 400, "{query}: {}", told.body);
    }
    let long = "x".repeat(300);
    for name in ["user", "event"] {
        assert_eq!(node.get(&format!("/settee/audit?{name}={long}")).status, 400);
    }
    assert_eq!(times(&node.get("/settee/audit?limit=18446744073709551615").json()).len(), 500);
    // Places that no answer had: of a node that is none, and beyond the trail.
    assert_eq!(times(&node.get("/settee/audit?limit=1&before=77-end,9-0-5").json()), [599]);
    let beyond = format!("/settee/audit?limit=1&before=0-ffffffffffffffff-{}", u64::MAX);
    assert_eq!(node.get(&beyond).status, 200);
    // A trail that cannot be read is none that is empty.
    *node.node.trail.lock().unwrap() = None;
    let told = node.get("/settee/audit").json();
    assert_eq!(
        (told["events"].as_array().unwrap().len(), told["missingNodes"].as_array().unwrap().len()),
        (0, 1)
    );
    assert!(told["before"].is_string(), "{told}");
}
