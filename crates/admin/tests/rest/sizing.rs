//! Rebalances onto nodes that are too small.

use cluster::Command;

use crate::{http::Response, node::TestNode};

const MIB: u64 = 1024 * 1024;

/// A bucket of which each node has 250 MiB that have to be in memory, and as much on disk.
fn create_heavy(test: &TestNode, quota_mb: u64) {
    create_heavy_with(test, quota_mb, 0);
}

fn create_heavy_with(test: &TestNode, quota_mb: u64, replicas: u8) {
    let form = format!("name=heavy&ramQuotaMB={quota_mb}&replicaNumber={replicas}");
    let created = test.post("/pools/default/buckets", &form);
    assert_eq!(created.status, 202, "{}", created.body);
}

/// Starts a rebalance of all nodes there are but for those at these places.
fn rebalance(test: &TestNode, without: &[usize], more: &str) -> Response {
    let pool = test.get("/pools/default").json();
    let nodes = pool["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().map(|node| node["otpNode"].as_str().unwrap()).collect();
    let ejected: Vec<&str> = without.iter().map(|&at| names[at]).collect();
    let form = format!("knownNodes={}&ejectedNodes={}{more}", names.join(","), ejected.join(","));
    test.post("/controller/rebalance", &form)
}

#[test]
fn nodes_are_not_taken_away_from_what_has_to_stay_in_memory_unless_that_is_meant() {
    let test = TestNode::initialized();
    test.node.add_members(3);
    create_heavy(&test, 450);

    let refused = rebalance(&test, &[1, 2], "");
    assert_eq!(refused.status, 400, "{}", refused.body);
    let arithmetic = "what has to stay in memory, 250 MiB on each of 4 nodes now, comes to 500 MiB on each of 2 nodes \
                      (copies of each document: 1). With headroom that needs a quota of 659 MiB on each; its quota there is 450 MiB.";
    assert!(refused.body.contains("heavy") && refused.body.contains(arithmetic), "{}", refused.body);
    assert!(refused.body.contains("allowUnderProvisioned=true"), "{}", refused.body);
    assert_eq!(rebalance(&test, &[1, 2], "&allowUnderProvisioned=false").status, 400);
    assert!(test.node.metadata_now().rebalance.is_none());

    let forced = rebalance(&test, &[1, 2], "&allowUnderProvisioned=true");
    assert_eq!(forced.status, 200, "{}", forced.body);
    assert!(forced.json()["rebalance_id"].is_string(), "{}", forced.body);
    assert_eq!(test.node.metadata_now().rebalance.as_ref().unwrap().eject.len(), 2);
    assert_eq!(test.post("/controller/stopRebalance", "").status, 200);

    // A third of what one node has fits beside what the others have.
    let fitting = rebalance(&test, &[1], "");
    assert_eq!(fitting.status, 200, "{}", fitting.body);
}

#[test]
fn a_cluster_that_is_too_full_may_keep_its_size_and_grow_but_not_copy_more() {
    let test = TestNode::initialized();
    test.node.add_members(3);
    create_heavy(&test, 400);
    let cut = test.post("/pools/default/buckets/heavy?ignore_warnings=1", "ramQuotaMB=200");
    assert_eq!(cut.status, 200, "{}", cut.body);
    let same = rebalance(&test, &[], "");
    assert_eq!(same.status, 200, "{}", same.body);
    assert_eq!(test.post("/controller/stopRebalance", "").status, 200);

    let more = "replicaNumber=1&allowUnderProvisioned=true";
    assert_eq!(test.post("/pools/default/buckets/heavy", more).status, 200);
    let doubled = rebalance(&test, &[], "");
    assert_eq!(doubled.status, 400, "{}", doubled.body);
    assert!(doubled.body.contains("comes to 500 MiB on each of 4 nodes"), "{}", doubled.body);
}

#[test]
fn a_bucket_is_not_given_copies_or_a_quota_that_it_has_no_room_for_unless_that_is_meant() {
    let test = TestNode::initialized();
    test.node.add_members(3);
    create_heavy(&test, 400);
    let edit = |form: &str| test.post("/pools/default/buckets/heavy", form);
    let refused = |form: &str, field: &str, arithmetic: &str| {
        let answer = edit(form);
        assert_eq!(answer.status, 400, "{form}: {}", answer.body);
        let text = answer.json()["errors"][field].as_str().unwrap_or_default().to_owned();
        assert!(
            text.contains(arithmetic) && text.contains("allowUnderProvisioned=true"),
            "{form}: {}",
            answer.body
        );
    };
    // 250 MiB on each node need 330 MiB of quota, and twice as much 659 MiB.
    let copies = "comes to 500 MiB on each of 4 nodes (copies of each document: 2). With headroom that needs a quota of 659 MiB \
                  on each; its quota there is 400 MiB.";
    refused("replicaNumber=1", "replicaNumber", copies);
    let cut = "comes to 250 MiB on each of 4 nodes (copies of each document: 1). With headroom that needs a quota of 330 MiB on \
               each; its quota there is 329 MiB.";
    refused("ramQuotaMB=329", "ramQuotaMB", cut);
    assert_eq!(test.post("/pools/default/buckets/heavy?just_validate=1", "ramQuotaMB=329").status, 400);
    assert_eq!(edit("ramQuotaMB=330").status, 200);
    refused("replicaNumber=1&ramQuotaMB=658", "replicaNumber", "its quota there is 658 MiB.");
    assert_eq!(edit("replicaNumber=1&ramQuotaMB=659").status, 200, "both at once");
    assert_eq!(edit("ramQuotaMB=200&allowUnderProvisioned=true").status, 200);
    assert_eq!(edit("ramQuotaMB=220").status, 200, "less of a want");
    assert_eq!(edit("replicaNumber=2").status, 400);
    assert_eq!(edit("replicaNumber=2&allowUnderProvisioned=true").status, 200);
    assert_eq!(test.node.metadata_now().buckets["heavy"].replicas, 2);
}

/// Readers would bring keys back that do not leave memory again.
#[test]
fn a_bucket_that_evicts_keys_is_not_made_to_keep_more_than_it_has_room_for_unless_that_is_meant() {
    let test = TestNode::initialized();
    let create = |name: &str, quota_mb: u64| {
        let form = format!("name={name}&ramQuotaMB={quota_mb}&replicaNumber=0&evictionPolicy=fullEviction");
        let created = test.post("/pools/default/buckets", &form);
        assert_eq!(created.status, 202, "{}", created.body);
    };
    create("keys", 200);
    create("few", 100);
    let edit = |form: &str| test.post("/pools/default/buckets/keys", form);
    let refused = |form: &str, quota: &str| {
        let answer = edit(form);
        assert_eq!(answer.status, 400, "{form}: {}", answer.body);
        let text = answer.json()["errors"]["evictionPolicy"].as_str().unwrap_or_default().to_owned();
        // 69 bytes for each of 4 Mi documents.
        let arithmetic = format!("need a quota of 364 MiB on each of 1 nodes; its quota there is {quota}");
        assert!(text.contains(&arithmetic) && text.contains("allowUnderProvisioned=true"), "{text}");
    };
    refused("evictionPolicy=valueOnly", "200 MiB.");
    refused("evictionPolicy=valueOnly&ramQuotaMB=363", "363 MiB.");
    assert_eq!(edit("evictionPolicy=fullEviction&flushEnabled=1").status, 200, "it is so already");
    let few = test.post("/pools/default/buckets/few", "evictionPolicy=valueOnly");
    assert_eq!(few.status, 200, "{}", few.body);
    let forced = edit("evictionPolicy=valueOnly&allowUnderProvisioned=true");
    assert_eq!(forced.status, 200, "{}", forced.body);
    assert_eq!(edit("evictionPolicy=valueOnly").status, 200, "it is so already");
    assert_eq!(edit("evictionPolicy=fullEviction").status, 200);
    assert_eq!(edit("evictionPolicy=valueOnly&ramQuotaMB=364").status, 200, "both at once");
}

#[test]
fn a_bucket_without_data_is_made_and_changed_at_will() {
    let test = TestNode::initialized();
    test.node.add_members(3);
    assert_eq!(test.post("/pools/default/buckets", "name=light&ramQuotaMB=100&replicaNumber=0").status, 202);
    for form in ["replicaNumber=3", "ramQuotaMB=200", "ramQuotaMB=100"] {
        let answer = test.post("/pools/default/buckets/light", form);
        assert_eq!(answer.status, 200, "{form}: {}", answer.body);
    }
}

#[test]
fn a_node_hands_over_only_to_nodes_with_room_for_all_copies_unless_that_is_meant() {
    let test = TestNode::initialized();
    test.node.add_members(3);
    create_heavy_with(&test, 400, 1);
    let pool = test.get("/pools/default").json();
    let form = format!("otpNode={}", pool["nodes"][1]["otpNode"].as_str().unwrap());
    let refused = test.post("/controller/startGracefulFailover", &form);
    assert_eq!(refused.status, 400, "{}", refused.body);
    let arithmetic = "what has to stay in memory, 250 MiB on each of 4 nodes now, comes to 334 MiB on each of 3 nodes (copies of each \
                      document: 2). With headroom that needs a quota of 440 MiB on each; its quota there is 400 MiB.";
    assert!(refused.body.contains(arithmetic), "{}", refused.body);
    assert!(test.node.metadata_now().rebalance.is_none());
    let forced =
        test.post("/controller/startGracefulFailover", &format!("{form}&allowUnderProvisioned=true"));
    assert_eq!(forced.status, 200, "{}", forced.body);
    assert_eq!(test.post("/controller/stopRebalance", "").status, 200);
    // One that is gone is failed over whatever is left.
    let hard = test.post("/controller/failOver", &form);
    assert_eq!(hard.status, 200, "{}", hard.body);
}

/// One of two nodes is to be replaced by one whose disk has so much room.
fn replace_by(free_mib: u64, more: &str) -> Response {
    let (first, new) = (TestNode::initialized(), TestNode::fresh_with_uuid("2222"));
    first.node.add_members(1);
    create_heavy(&first, 400);
    let added =
        first.post("/controller/addNode", &format!("hostname=http://{}&user=&password=", new.address));
    assert_eq!(added.status, 200, "{}", added.body);
    for node in [&first, &new] {
        node.node.apply(&Command::SetSecret("between-nodes".into())).unwrap();
    }
    *new.node.disk.lock().unwrap() = (1000 * MIB, (1000 - free_mib) * MIB);
    rebalance(&first, &[1], more)
}

#[test]
fn a_node_is_not_replaced_by_one_whose_disk_has_no_room_for_what_it_would_get() {
    let small = replace_by(249, "");
    assert_eq!(small.status, 400, "{}", small.body);
    let arithmetic = "Disk: each of 2 nodes gets 250 MiB of documents; 127.0.0.1 has 249 MiB for them.";
    assert!(small.body.contains(arithmetic), "{}", small.body);
    for (free_mib, more) in [(250, ""), (249, "&allowUnderProvisioned=true")] {
        let started = replace_by(free_mib, more);
        assert_eq!(started.status, 200, "{free_mib}: {}", started.body);
    }
}
