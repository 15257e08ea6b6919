//! What orchestrators ask, without a login and under any name.

use std::sync::atomic::Ordering;

use base::NodeId;
use cluster::{Command, FailOver};
use serde_json::json;
use settee_admin::Obstacle;

use crate::node::TestNode;

#[test]
fn a_probe_needs_no_login_and_tells_live_from_ready() {
    let node = TestNode::fresh();
    let ask = |probe: &str| node.send("GET", &format!("/health/{probe}"), None, None);
    assert_eq!(ask("live").status, 200);
    let fresh = ask("ready");
    assert_eq!((fresh.status, &fresh.json()["initialized"]), (200, &json!(false)), "it can be set up");
    node.initialize();
    assert_eq!(ask("ready").json(), json!({ "ready": true, "initialized": true, "reasons": [] }));

    node.node.is_behind.store(true, Ordering::Relaxed);
    let behind = ask("ready");
    assert_eq!(behind.status, 503);
    assert!(behind.body.contains("caught up"), "{}", behind.body);
    assert_eq!(ask("live").status, 200);
    node.node.is_behind.store(false, Ordering::Relaxed);

    for (obstacle, words) in [
        (Obstacle::NoLease, "lost touch"),
        (Obstacle::MetadataLog, "metadata"),
        (Obstacle::Disk, "documents"),
    ] {
        *node.node.obstacles.lock().unwrap() = vec![obstacle];
        let kept = ask("ready");
        assert_eq!(kept.status, 503, "{obstacle:?}");
        assert!(kept.body.contains(words), "{obstacle:?}: {}", kept.body);
    }
    node.node.obstacles.lock().unwrap().clear();
    assert_eq!(ask("ready").status, 200);

    node.post("/pools/default/buckets", "name=closed&ramQuota=100&replicaNumber=0");
    let closed = ask("ready");
    assert_eq!((closed.status, &closed.json()["ready"]), (503, &json!(false)));
    assert!(closed.body.contains("1 of 1 buckets") && !closed.body.contains("closed"), "{}", closed.body);
}

#[test]
fn a_wrong_login_or_another_method_is_no_matter() {
    let node = TestNode::initialized();
    assert_eq!(node.send("GET", "/health/ready", Some("nobody:wrong"), None).status, 200);
    assert_ne!(node.send("POST", "/health/ready", None, Some("")).status, 200);
}

#[test]
fn a_node_that_is_no_active_member_gets_no_clients() {
    let node = TestNode::initialized();
    node.node.add_members(2);
    let ready = || node.send("GET", "/health/ready", None, None);
    assert_eq!(ready().status, 200);
    let failed = FailOver { nodes: vec![NodeId(0)], allow_unsafe: false, auto: false };
    node.node.apply(&Command::FailOver(failed)).unwrap();
    let told = ready();
    assert!(told.status == 503 && told.body.contains("no active member"), "{} {}", told.status, told.body);
    assert_eq!(node.send("GET", "/health/live", None, None).status, 200);
}
