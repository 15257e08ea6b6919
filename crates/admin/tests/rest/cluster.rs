//! Forming a cluster: two nodes that are nothing but metadata, talking to each other over real sockets.

use std::sync::atomic::Ordering::Relaxed;

use ::http::AuditKind;
use base::NodeId;
use cluster::{
    Admin, Command, FailOver, Initialize, QuotaChange, Recovery, UserChange, UserDomain,
    auth::{Credentials, SALT_BYTES},
    level::LEVEL,
};

use crate::node::{ADMIN, NODE, TestNode};

/// The address of a node, as its administrator would name it.
fn address(node: &TestNode) -> String {
    format!("http://{}", node.address)
}

fn hosts(node: &TestNode) -> Vec<String> {
    let nodes = node.get("/pools/default").json()["nodes"].as_array().unwrap().clone();
    nodes.iter().map(|node| node["configuredHostname"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_is_added_by_the_cluster_it_joins() {
    let (first, second) = (TestNode::initialized(), TestNode::fresh_with_uuid("2222"));
    let form = format!("hostname={}&user=&password=&services=kv", address(&second));
    let added = first.post("/controller/addNode", &form);
    assert_eq!(added.status, 200, "{}", added.body);
    let otp = format!("ns_1@{}", second.address);
    assert_eq!(added.json()["otpNode"], otp.as_str(), "both share a host, so the port tells them apart");
    let both = [first.address.to_string(), second.address.to_string()];
    assert_eq!(hosts(&first), both);
    let joined = second.node.metadata_now();
    assert_eq!(joined.nodes.len(), 2, "it took the offer");
    assert_eq!(joined.nodes[1].id.get(), 1);

    let asked = |path: &str, tls| (path.to_owned(), tls);
    assert_eq!(
        *first.node.asked.lock().unwrap(),
        [asked("/_settee/introduce", false), asked("/_settee/join", true)],
        "what makes it a member is said under TLS, by whatever address it was named"
    );

    let again = first.post("/controller/addNode", &form);
    assert_eq!(again.status, 400, "{}", again.body);
}

#[test]
fn a_node_without_a_proper_uuid_is_not_taken() {
    for uuid in ["", "22 22", "../2222"] {
        let (first, second) = (TestNode::initialized(), TestNode::fresh_with_uuid(uuid));
        let form = format!("hostname={}&user=&password=&services=kv", address(&second));
        let refused = first.post("/controller/addNode", &form);
        assert_eq!(
            (refused.status, refused.body.contains("no proper uuid")),
            (400, true),
            "{}",
            refused.body
        );
    }
}

#[test]
fn a_node_that_has_a_cluster_of_several_is_not_taken() {
    let (first, second) = (TestNode::initialized(), TestNode::initialized_with_uuid("2222"));
    second.node.add_members(1);
    let form = format!("hostname={}&user=Administrator&password=password", address(&second));
    let refused = first.post("/controller/addNode", &form);
    assert_eq!(
        (refused.status, refused.body.contains("already part of cluster")),
        (400, true),
        "{}",
        refused.body
    );
    assert_eq!(hosts(&first).len(), 1);
}

#[test]
fn a_node_that_does_not_understand_the_clusters_metadata_is_not_taken() {
    let (first, second) = (TestNode::initialized(), TestNode::fresh_with_uuid("2222"));
    let nodes = vec![base::NodeId(0)];
    first.node.apply(&Command::RaiseLevel { level: LEVEL + 1, nodes }).unwrap();
    let form = format!("hostname={}&user=&password=&services=kv", address(&second));
    let refused = first.post("/controller/addNode", &form);
    let is_told = refused.body.contains("Start the node with the version that the other nodes run");
    assert_eq!((refused.status, is_told), (400, true), "{}", refused.body);
    assert_eq!(hosts(&first).len(), 1);
}

#[test]
fn a_wrong_login_on_the_new_node_leaves_everything_as_it_was() {
    let (first, second) = (TestNode::initialized(), TestNode::initialized_with_uuid("2222"));
    let form = format!("hostname={}&user=Administrator&password=wrong-one", address(&second));
    let refused = first.post("/controller/addNode", &form);
    assert_eq!(
        (refused.status, refused.body.contains("Authentication failed")),
        (400, true),
        "{}",
        refused.body
    );
    assert_eq!(hosts(&first).len(), 1);
    assert_eq!(second.node.metadata_now().nodes.len(), 1);
}

#[test]
fn a_node_that_cannot_be_reached_is_not_added() {
    let first = TestNode::initialized();
    let nobody = TestNode::fresh().address;
    let refused = first.post("/controller/addNode", &format!("hostname={nobody}&user=a&password=password"));
    assert_eq!(
        (refused.status, refused.body.contains("Failed to reach node")),
        (400, true),
        "{}",
        refused.body
    );
    assert_eq!(hosts(&first).len(), 1);
}

#[test]
fn a_node_whose_adding_fails_half_way_is_no_member() {
    let (first, second) = (TestNode::initialized(), TestNode::fresh_with_uuid("2222"));
    first.node.is_left_in_doubt.store(true, Relaxed);
    let form = format!("hostname={}&user=&password=&services=kv", address(&second));
    let failed = first.post("/controller/addNode", &form);
    assert_eq!(failed.status, 500, "{}", failed.body);
    assert_eq!(hosts(&first).len(), 1, "the cluster has agreed on it, and nobody has told the node");
    assert_eq!(first.post("/controller/addNode", &form).status, 200, "it can be added again");
}

#[test]
fn a_node_asks_to_be_added_and_is_called_back() {
    let (first, second) = (TestNode::initialized(), TestNode::fresh_with_uuid("2222"));
    let form = format!("hostname={}&user=Administrator&password=password", address(&first));
    let joined = second.send("POST", "/node/controller/doJoinCluster", None, Some(&form));
    assert_eq!(joined.status, 200, "{}", joined.body);
    assert_eq!(hosts(&first).len(), 2);
    assert_eq!(second.node.metadata_now().nodes.len(), 2);
    let again = second.send("POST", "/node/controller/doJoinCluster", ADMIN, Some(&form));
    assert!([400, 401].contains(&again.status), "it is part of a cluster now: {}", again.body);
}

#[test]
fn a_change_is_judged_by_what_was_agreed_on_before_wherever_that_was() {
    let node = TestNode::initialized();
    node.node.add_members(2);
    let failed = FailOver { nodes: vec![NodeId(1)], allow_unsafe: false, auto: false };
    node.node.unheard.lock().unwrap().push(Command::FailOver(failed));
    let form = "otpNode=ns_1@127.99.0.2&recoveryType=full";
    // The request of a user who may not change anything asks no node.
    assert_eq!(node.send("POST", "/controller/setRecoveryType", None, Some(form)).status, 401);
    assert_eq!(node.get("/pools/default").status, 200);
    assert_eq!(node.node.unheard.lock().unwrap().len(), 1);
    let recovered = node.post("/controller/setRecoveryType", form);
    assert_eq!(recovered.status, 200, "{}", recovered.body);
    assert_eq!(node.node.metadata_now().nodes[1].recovery, Some(Recovery::Full));
}

#[test]
fn a_node_that_was_failed_over_shows_what_the_leader_says_of_others() {
    let node = TestNode::initialized();
    node.node.add_members(2);
    let failed = FailOver { nodes: vec![NodeId(0)], allow_unsafe: false, auto: false };
    node.node.apply(&Command::FailOver(failed)).unwrap();
    let shown = || -> Vec<String> {
        let nodes = node.get("/pools/default").json()["nodes"].as_array().unwrap().clone();
        nodes.iter().map(|node| node["status"].as_str().unwrap().to_owned()).collect()
    };
    // It may ask none of them for figures.
    assert_eq!(shown(), ["healthy", "healthy", "healthy"]);
    node.node.status.lock().unwrap().silent.insert(NodeId(2));
    assert_eq!(shown(), ["healthy", "healthy", "unhealthy"]);
    node.node.status.lock().unwrap().stale = true;
    assert_eq!(shown(), ["healthy", "unhealthy", "unhealthy"], "nobody says anything");
}

#[test]
fn the_sender_of_a_change_is_judged_by_what_was_agreed_on_before_too() {
    let node = TestNode::initialized();
    let form = Some("password=password&roles=cluster_admin");
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/first", ADMIN, form).status, 200);
    let change = |user: &str| node.send("POST", "/settings/stats", Some(user), Some("sendStats=false"));
    let hears = |command| node.node.unheard.lock().unwrap().push(command);
    let credentials = |password| Some(Credentials::new(password, [7; SALT_BYTES]));

    hears(Command::PutUser(UserChange {
        domain: UserDomain::Local,
        name: "second".into(),
        uuid: "2".into(),
        full_name: None,
        credentials: credentials("made elsewhere"),
        roles: Some(node.node.metadata_now().users["first"].roles.clone()),
        groups: None,
        locked: None,
        now_ms: 0,
    }));
    assert_eq!(node.send("GET", "/pools", Some("second:made elsewhere"), None).status, 401);
    assert_eq!(node.node.unheard.lock().unwrap().len(), 1, "a request that changes nothing asks no node");
    let changed = change("second:made elsewhere");
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert_eq!(change("second:wrong").status, 401);

    let admin = Admin { name: "Administrator".into(), credentials: credentials("new one").unwrap() };
    hears(Command::SetAdmin(admin));
    assert_eq!(change("Administrator:password").status, 401, "it was right when the request came");
    assert_eq!(change("Administrator:new one").status, 200);
    let failures = node.node.audited.lock().unwrap();
    let failures = failures.iter().filter(|event| event.kind == AuditKind::LoginFailure);
    assert_eq!(failures.count(), 3, "each once");
}

#[test]
fn what_is_meant_for_a_node_that_is_new_is_not_done_to_one_that_has_been_set_up_meanwhile() {
    let node = TestNode::fresh();
    let credentials = Credentials::new("password", [7; SALT_BYTES]);
    let admin = Admin { name: "Administrator".into(), credentials };
    let initialize = Initialize { admin, cluster_name: None, quotas: QuotaChange::default() };
    node.node.unheard.lock().unwrap().push(Command::Initialize(initialize));
    let answer = node.send("POST", "/settings/stats?uuid=another", None, Some("sendStats=false"));
    assert_eq!((answer.status, answer.body.contains("Cluster uuid")), (404, true), "{}", answer.body);
}

#[test]
fn only_nodes_of_the_cluster_hear_each_others_figures() {
    let node = TestNode::initialized();
    assert_eq!(node.send("POST", "/_settee/figures", None, Some("")).status, 401);
    assert_eq!(node.post("/_settee/figures", "").status, 401, "an administrator is no node");
    node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    let figures = node.send("POST", "/_settee/figures", Some("@settee:between-nodes"), Some(""));
    assert_eq!(figures.status, 200, "{}", figures.body);
    assert!(figures.json()["system"]["memory_total"].as_u64().unwrap() > 0);
    assert_eq!(node.get("/nodes/self").json()["nodeUUID"], NODE);
}

#[test]
fn only_nodes_of_the_cluster_ask_services_anything() {
    let node = TestNode::initialized();
    assert_eq!(node.send("POST", "/_settee/services/views", None, Some("")).status, 401);
    assert_eq!(node.post("/_settee/services/views", "").status, 401, "an administrator is no node");
    node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    let asked = node.send("POST", "/_settee/services/views", Some("@settee:between-nodes"), Some(""));
    assert_eq!((asked.status, asked.body.as_str()), (503, "no service views runs here"));
}

#[test]
fn a_node_is_reset_by_full_administrators_and_as_often_as_they_like() {
    let node = TestNode::initialized();
    node.node.add_members(1);
    let form = Some("password=password&roles=cluster_admin");
    assert_eq!(node.send("PUT", "/settings/rbac/users/local/keeper", ADMIN, form).status, 200);
    let reset = |user| node.send("POST", "/controller/hardResetNode", user, None).status;
    assert_eq!([reset(None), reset(Some("keeper:password"))], [401, 403]);
    assert_eq!(node.node.metadata_now().nodes.len(), 2);

    assert_eq!(reset(ADMIN), 200);
    assert_eq!(node.get("/pools").json()["pools"], serde_json::json!([]));
    assert_eq!(reset(None), 200);
}

#[test]
fn a_node_that_is_silent_is_shown_with_what_it_said_last_and_how_long_ago_that_was() {
    let (first, second) = crate::collecting::two();
    assert_eq!(first.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0").status, 202);
    let name = second.address.to_string();
    let shown = || {
        let nodes = first.get("/pools/default").json()["nodes"].as_array().unwrap().clone();
        nodes.into_iter().find(|node| node["configuredHostname"] == name.as_str()).unwrap()
    };
    let began = std::time::Instant::now();
    let fresh = shown();
    assert_eq!(fresh["settee"]["figuresAgeSecs"].as_u64(), None, "{fresh:#}");
    assert_eq!(fresh["memoryTotal"], 16_u64 << 30, "{fresh:#}");
    drop(second);
    loop {
        let old = shown();
        assert_eq!(old["memoryTotal"], 16_u64 << 30, "{old:#}");
        // Until then it could be one that is only slow.
        if old["status"] == "unhealthy" {
            assert!(old["settee"]["figuresAgeSecs"].as_u64().unwrap() >= 10, "{old:#}");
            break;
        }
        assert!(began.elapsed().as_secs() < 60, "{old:#}");
        std::thread::yield_now();
    }
}
