//! Single statistics, as backup tools ask for them.

use serde_json::json;

use crate::node::TestNode;

#[test]
fn one_figure_of_a_bucket_is_told_node_by_node() {
    let node = TestNode::initialized();
    node.post("/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    let answer = node.get("/pools/default/buckets/b/stats/curr_items").json();
    let name = node.get("/nodes/self").json()["hostname"].as_str().unwrap().to_owned();
    assert_eq!(answer["nodeStats"], json!({ name: [7] }));
    assert_eq!((&answer["samplesCount"], &answer["isPersistent"]), (&json!(1), &json!(true)));
    assert_eq!(answer["timestamp"].as_array().unwrap().len(), 1);
    assert_eq!(node.get("/pools/default/buckets/b/stats/unheard_of").status, 404);
    assert_eq!(node.get("/pools/default/buckets/absent/stats/curr_items").status, 404);
}

#[test]
fn configurations_name_no_node_by_its_uuid() {
    let node = TestNode::initialized();
    let config = node.get("/pools/default/nodeServices").json();
    assert!(config["nodesExt"][0].get("nodeUUID").is_none(), "7.6.4 does not have it");
}
