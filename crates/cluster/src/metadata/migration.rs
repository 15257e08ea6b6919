//! Reads metadata that earlier versions wrote.
//!
//! Format 1 knew one node, which had every vBucket: what later formats say about members and chains follows from that.

use serde_json::{Map, Value, json};

use crate::metadata::topology::{FIRST_GROUP, SERVER_GROUP};

/// Metadata of format 1 as format 2 has it.
pub(crate) fn from_format_1(mut metadata: Value) -> Value {
    let Some(fields) = metadata.as_object_mut() else { return metadata };
    let nodes = fields.get_mut("nodes").and_then(Value::as_array_mut);
    let nodes = nodes.map_or(0, |nodes| {
        nodes
            .iter_mut()
            .filter_map(Value::as_object_mut)
            .enumerate()
            .for_each(|(id, node)| add_membership(node, id));
        nodes.len()
    });
    let buckets = fields.get_mut("buckets").and_then(Value::as_object_mut);
    buckets.into_iter().flatten().filter_map(|(_, bucket)| bucket.as_object_mut()).for_each(add_plans);
    let absent = [
        ("secret", json!("")),
        ("next_node", nodes.into()),
        ("server_groups", json!([{ "uuid": FIRST_GROUP, "name": SERVER_GROUP }])),
        ("rebalance", Value::Null),
        ("last_rebalance", Value::Null),
        ("auto_failover", json!(crate::metadata::topology::AutoFailover::default())),
    ];
    fields.extend(absent.map(|(name, value)| (name.to_owned(), value)));
    metadata
}

fn add_membership(node: &mut Map<String, Value>, id: usize) {
    node.insert("id".into(), id.into());
    node.insert("membership".into(), json!(crate::metadata::topology::Membership::Active));
    node.insert("group".into(), FIRST_GROUP.into());
}

fn add_plans(bucket: &mut Map<String, Value>) {
    let has_plans = bucket.get("kind") != Some(&json!(base::bucket::BucketKind::Memcached));
    let vbuckets = bucket.get("vbuckets").and_then(Value::as_u64).filter(|_| has_plans).unwrap_or(0);
    // What does not fit is refused when the value is read as metadata; it must not take memory before.
    let vbuckets = vbuckets.min(u64::from(base::limits::VBUCKETS_MAX));
    let plan = json!(crate::metadata::topology::VbPlan::settled(vec![base::NodeId(0)], 1));
    bucket.insert("vbs".into(), (0..vbuckets).map(|_| plan.clone()).collect());
}
