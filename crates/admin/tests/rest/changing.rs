//! Changes at two nodes at the same time: what was acknowledged is kept, at either node, and what was not meant is left alone.

use base::{BucketUuid, NodeId};
use cluster::{BucketParams, Command, FailOver, StartRebalance};
use serde_json::{Value, json};
use settee_admin::InboxFile;

use crate::node::{ADMIN, TestNode};

const SILENCES: &str = "settee/alerts/silences";

/// The other node has the cluster agree on its own change, while a request at this one is under way.
fn meanwhile(test: &TestNode, path: &str, value: Value) {
    let put = Command::PutSetting { path: path.into(), value };
    test.node.meanwhile.lock().unwrap().push(put);
}

fn silence(alert: &str) -> Value {
    json!({ "alert": alert, "until_secs": 4_000_000_000_u64, "by": "other" })
}

fn alerts(test: &TestNode) -> Vec<String> {
    let listed = test.get("/settee/alerts/silences").json();
    let mut alerts: Vec<_> = listed["silences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["alert"].as_str().unwrap().into())
        .collect();
    alerts.sort();
    alerts
}

#[test]
fn silences_that_two_nodes_take_at_the_same_time_are_both_kept() {
    let test = TestNode::initialized();
    meanwhile(&test, SILENCES, json!({ "a": silence("node_down") }));
    let added = test.post("/settee/alerts/silences", "alert=disk_low&minutes=5");
    assert_eq!(added.status, 200, "{}", added.body);
    assert_eq!(alerts(&test), ["disk_low", "node_down"]);
    // One is removed while the other node adds another.
    let both = test.node.metadata_now().settings[SILENCES].clone();
    let mut three = both.clone();
    three["b"] = silence("writes_paced");
    meanwhile(&test, SILENCES, three);
    assert_eq!(test.send("DELETE", "/settee/alerts/silences/a", ADMIN, None).status, 200);
    assert_eq!(alerts(&test), ["disk_low", "writes_paced"]);
    // The other node has removed it already.
    meanwhile(&test, SILENCES, both);
    assert_eq!(test.send("DELETE", "/settee/alerts/silences/b", ADMIN, None).status, 404);
}

#[test]
fn authorities_that_two_nodes_load_at_the_same_time_are_both_trusted() {
    let test = TestNode::initialized();
    let [one, other] = ["one", "other"].map(crate::certificates::authority);
    let inbox = |pem: &str| {
        let file = InboxFile { path: "/data/inbox/CA/ca.pem".into(), pem: pem.into() };
        *test.node.certificates.inbox.lock().unwrap() = vec![file];
    };
    let load = || test.send("POST", "/node/controller/loadTrustedCAs", ADMIN, None).status;
    inbox(&other);
    assert_eq!(load(), 200);
    let by_the_other = test.node.metadata_now().settings["trustedCAs"].clone();
    test.node.apply(&Command::PutSetting { path: "trustedCAs".into(), value: Value::Null }).unwrap();
    meanwhile(&test, "trustedCAs", by_the_other.clone());
    inbox(&one);
    assert_eq!(load(), 200);
    let trusted = || test.node.metadata_now().trusted_cas();
    let mut pems: Vec<_> = trusted().into_iter().map(|ca| ca.pem).collect();
    pems.sort();
    let mut expected = vec![one, other];
    expected.sort();
    assert_eq!(pems, expected);
    // One is deleted while the other node forgets the other one.
    let mut ids = trusted().into_iter().map(|ca| ca.id);
    let (first, second) = (ids.next().unwrap(), ids.next().unwrap());
    let kept = trusted().into_iter().filter(|ca| ca.id == second).collect();
    meanwhile(&test, "trustedCAs", test.node.metadata_now().with_trusted_cas(kept, Vec::new()));
    let path = format!("/pools/default/trustedCAs/{second}");
    assert_eq!(test.send("DELETE", &path, ADMIN, None).status, 204);
    assert_eq!(trusted(), [], "{first} was deleted at the other node");
}

#[test]
fn forms_that_two_nodes_lay_over_an_object_at_the_same_time_both_count() {
    let test = TestNode::initialized();
    meanwhile(&test, "settee/probe", json!({ "buckets": "all", "writes": false, "periodSecs": 7 }));
    let put = test.send("PUT", "/settee/probe", ADMIN, Some("writes=true"));
    assert_eq!(put.status, 200, "{}", put.body);
    let settings = test.get("/settee/probe").json()["settings"].clone();
    assert_eq!((&settings["writes"], &settings["periodSecs"]), (&json!(true), &json!(7)), "{settings}");

    meanwhile(&test, "autoReprovision", json!({ "maxNodes": 7 }));
    assert_eq!(test.post("/settings/autoReprovision", "enabled=false").status, 200);
    let stored = &test.node.metadata_now().settings["autoReprovision"];
    assert_eq!(*stored, json!({ "enabled": false, "maxNodes": 7 }));
}

/// Members of the version before know no revisions: requests at one node take turns all the same.
#[test]
fn requests_at_one_node_take_turns() {
    let test = TestNode::initialized();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    let added = test.post("/settee/alerts/silences", "alert=disk_low&minutes=5");
                    assert_eq!(added.status, 200, "{}", added.body);
                }
            });
        }
    });
    assert_eq!(alerts(&test).len(), 32);
}

#[test]
fn a_request_about_a_bucket_leaves_the_next_one_of_that_name_alone() {
    let test = TestNode::initialized();
    let form = "name=b&ramQuotaMB=100&replicaNumber=0&flushEnabled=1";
    assert_eq!(test.post("/pools/default/buckets", form).status, 202);
    let other_makes = |uuid: &str| {
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid(uuid.into()), params };
        test.node.meanwhile.lock().unwrap().extend([Command::DeleteBucket { name: "b".into() }, create]);
    };
    let bucket = || test.node.metadata_now().buckets["b"].clone();
    other_makes("u2");
    let dropped = test.send("DELETE", "/pools/default/buckets/b", ADMIN, None);
    assert_eq!(dropped.status, 200, "the one that was meant is gone: {}", dropped.body);
    assert_eq!(bucket().uuid.0, "u2");
    other_makes("u3");
    assert_eq!(test.post("/pools/default/buckets/b", "ramQuotaMB=120").status, 404);
    assert_eq!((bucket().uuid.0, bucket().ram_quota_mb), ("u3".to_owned(), 100));
}

#[test]
fn settings_of_automatic_failover_that_a_request_does_not_name_stay() {
    let test = TestNode::initialized();
    let settings = || test.node.metadata_now().auto_failover.clone();
    let other = Command::SetAutoFailover {
        enabled: true,
        timeout_secs: settings().timeout_secs,
        max_count: 9,
        whole_groups: true,
    };
    test.node.meanwhile.lock().unwrap().push(other);
    assert_eq!(test.post("/settings/autoFailover", "enabled=true&timeout=40").status, 200);
    let now = settings();
    assert_eq!((now.timeout_secs, now.max_count, now.whole_groups), (40, 9, true));
}

#[test]
fn a_rebalance_that_began_meanwhile_is_not_stopped() {
    let test = TestNode::initialized();
    test.node.add_members(1);
    let start = |id: &str| {
        let keep = test.node.metadata_now().nodes.iter().map(|node| node.id).collect();
        Command::StartRebalance(StartRebalance { id: id.into(), keep, eject: Vec::new(), now_ms: 0 })
    };
    test.node.apply(&start("r1")).unwrap();
    let ended = Command::FinishRebalance { id: "r1".into(), now_ms: 1 };
    test.node.meanwhile.lock().unwrap().extend([ended, start("r2")]);
    assert_eq!(test.post("/controller/stopRebalance", "").status, 200);
    let under_way = test.node.metadata_now().rebalance.clone().unwrap();
    assert_eq!(under_way.id, "r2");
    assert_eq!(test.post("/controller/stopRebalance", "").status, 200);
    assert!(test.node.metadata_now().rebalance.is_none());
}

#[test]
fn nobody_is_told_that_a_node_comes_back_which_a_rebalance_removes() {
    let test = TestNode::initialized();
    test.node.add_members(2);
    let failed = FailOver { nodes: vec![NodeId(1)], allow_unsafe: false, auto: false };
    test.node.apply(&Command::FailOver(failed)).unwrap();
    let keep = vec![NodeId(0), NodeId(2)];
    let start = StartRebalance { id: "r".into(), keep, eject: vec![NodeId(1)], now_ms: 0 };
    let start = Command::StartRebalance(start);
    // The other node has it begin at the same time, or has had it begun before.
    test.node.meanwhile.lock().unwrap().push(start);
    for _ in 0..2 {
        for (path, form) in [("setRecoveryType", "&recoveryType=delta"), ("reAddNode", "")] {
            let asked = test.post(&format!("/controller/{path}"), &format!("otpNode=ns_1@127.99.0.2{form}"));
            assert_eq!(asked.status, 503, "{}", asked.body);
            assert!(asked.body.contains("Stop the rebalance"), "{}", asked.body);
        }
    }
    assert_eq!(test.post("/controller/stopRebalance", "").status, 200);
    let form = "otpNode=ns_1@127.99.0.2&recoveryType=delta";
    assert_eq!(test.post("/controller/setRecoveryType", form).status, 200);
}
