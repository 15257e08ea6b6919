//! Nodes as REST shows them. The C++ core aborts its process when `hostname`, `otpNode`, `version`, `os` or `status`
//! is missing from a node. Java waits until every `status` is `healthy`.

use axum::http::StatusCode;
use cluster::{Membership, NodeInfo, Recovery, config};
use serde_json::{Value, json};

use super::storage_totals::{add_quotas, storage_totals};
use crate::{
    node::versions::{PRODUCT_VERSION, SETTEE_VERSION},
    request::Call,
};
use http::reply::{self, Outcome, json_ok};

use stats::SystemStats;

/// Version 7.6 as `clusterCompatibility` encodes it.
const COMPATIBILITY: u32 = 7 * 0x1_0000 + 6;

pub(super) fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    if let ["nodes", "self", "xdcrSSLPorts"] = path {
        return xdcr_ports(call);
    }
    match path {
        ["nodeStatuses"] => statuses(call),
        ["nodes", which] => match find(call, which) {
            Some(node) => Ok(json_ok(&full(call, node))),
            None => Ok(reply::with_status(StatusCode::NOT_FOUND, &json!("Node is unknown to this cluster."))),
        },
        _ => Ok(reply::not_found()),
    }
}

/// The node a path names: `self`, its address or its internal name.
pub(super) fn find<'a>(call: &'a Call, which: &str) -> Option<&'a NodeInfo> {
    let this = call.api.control.this_node();
    let mut nodes = call.meta.nodes.iter();
    nodes
        .find(|node| (which == "self" && node.uuid == this) || which == hostname(call, node))
        .or_else(|| by_otp(call, which))
}

/// The node with that internal name. The short form will do while it fits one node only.
pub(super) fn by_otp<'a>(call: &'a Call, name: &str) -> Option<&'a NodeInfo> {
    let nodes = &call.meta.nodes;
    let exact = nodes.iter().find(|node| otp_with_port(node) == name || otp_node(call, node) == name);
    exact.or_else(|| {
        let mut fitting = nodes.iter().filter(|node| otp_short(node) == name);
        fitting.next().filter(|_| fitting.next().is_none())
    })
}

/// Erlang's name for the node, by which tools tell nodes apart: with the port where several share a host.
pub(super) fn otp_node(call: &Call, node: &NodeInfo) -> String {
    let shared = call.meta.nodes.iter().any(|other| other.uuid != node.uuid && other.host == node.host);
    if shared { otp_with_port(node) } else { otp_short(node) }
}

fn otp_short(node: &NodeInfo) -> String {
    let host = if node.host.is_empty() { "127.0.0.1" } else { &node.host };
    format!("ns_1@{host}")
}

fn otp_with_port(node: &NodeInfo) -> String {
    format!("{}:{}", otp_short(node), node.ports.mgmt)
}

/// Address and REST port of a node.
pub(super) fn hostname(call: &Call, node: &NodeInfo) -> String {
    format!("{}:{}", call.host_of(node), node.ports.mgmt)
}

/// Every node there is, whatever its membership.
pub(super) fn list(call: &Call) -> Vec<Value> {
    call.meta.nodes.iter().map(|node| view(call, node, None)).collect()
}

/// The nodes of a bucket, in the order of its configuration; their status is that of the bucket on them.
pub(super) fn of_bucket<'a>(call: &'a Call, bucket: &'a str) -> impl Iterator<Item = (&'a NodeInfo, Value)> {
    config::shown_nodes(&call.meta).into_iter().map(move |node| (node, view(call, node, Some(bucket))))
}

/// `unhealthy`: nobody hears of it, or it takes part in nothing since its metadata differ. `warmup`: a bucket (the one asked for) does not serve there yet.
///
/// A node that was failed over hears no figures of others. It knows of them what the leader says.
pub(super) fn status(call: &Call, node: &NodeInfo, bucket: Option<&str>) -> &'static str {
    let this = call.api.control.this_node();
    let is_this = node.uuid == this;
    let figures = call.figures.node(node.id);
    if call.status.diverged.contains_key(&node.id) {
        return "unhealthy";
    }
    if !is_this && call.status.silent.contains(&node.id) {
        return "unhealthy";
    }
    if !is_this && figures.is_none() {
        let hears_leader_alone = call.meta.node(&this).is_some_and(NodeInfo::is_failed_over);
        return if hears_leader_alone && !call.status.stale { "healthy" } else { "unhealthy" };
    }
    let ready = |name: &str| figures.is_some_and(|figures| figures.ready.contains(name));
    let holds_data = node.membership == Membership::Active;
    let serves = match bucket {
        Some(name) => ready(name),
        None => !holds_data || call.meta.buckets.keys().all(|name| ready(name)),
    };
    if serves { "healthy" } else { "warmup" }
}

pub(super) fn membership(node: &NodeInfo) -> &'static str {
    match (node.membership, node.recovery) {
        (Membership::Active, _) => "active",
        // A node that was failed over and shall come back waits for the rebalance like one that was added.
        (Membership::InactiveAdded, _) | (Membership::InactiveFailed, Some(_)) => "inactiveAdded",
        (Membership::InactiveFailed, None) => "inactiveFailed",
    }
}

fn recovery_type(node: &NodeInfo) -> &'static str {
    match node.recovery {
        None => "none",
        Some(Recovery::Full) => "full",
        Some(Recovery::Delta) => "delta",
    }
}

/// One node; with `bucket`, its status is that of the bucket on it.
pub(super) fn view(call: &Call, node: &NodeInfo, bucket: Option<&str>) -> Value {
    let (last, age) = call.figures.last(node.id).unzip();
    let system = last.map(|figures| figures.system).unwrap_or_default();
    let ports = &node.ports;
    let mut shown_ports = json!({ "direct": ports.kv, "proxy": ports.memcached });
    for (name, port) in [("httpsMgmt", ports.mgmt_tls), ("httpsCAPI", ports.capi_tls)] {
        if port != 0 {
            shown_ports[name] = port.into();
        }
    }
    let host = if node.host.contains(':') { format!("[{}]", node.host) } else { node.host.clone() };
    let mut view = json!({
        "hostname": hostname(call, node),
        "configuredHostname": format!("{host}:{}", ports.mgmt),
        "otpNode": otp_node(call, node),
        "nodeUUID": node.uuid,
        "status": status(call, node, bucket),
        "clusterMembership": membership(node),
        "recoveryType": recovery_type(node),
        "version": PRODUCT_VERSION,
        "os": format!("{}-pc-{}-gnu", std::env::consts::ARCH, std::env::consts::OS),
        "clusterCompatibility": COMPATIBILITY,
        "services": node.services,
        "ports": shown_ports,
        "serverGroup": group_name(call, node),
        "addressFamily": if node.host.contains(':') { "inet6" } else { "inet" },
        "addressFamilyOnly": false,
        "nodeEncryption": node.encrypted,
        "cpuCount": system.cpu_cores,
        "uptime": system.uptime_secs.to_string(),
        "memoryTotal": system.memory_total,
        "memoryFree": system.memory_free,
        "mcdMemoryReserved": call.meta.quotas.data_mb,
        "mcdMemoryAllocated": call.meta.quotas.data_mb,
        "interestingStats": interesting_stats(call, node),
        "systemStats": system_stats(&system),
        "replication": replication(call, node),
        "settee": {
            "version": SETTEE_VERSION, "id": node.id.get(), "leads": call.status.leader == Some(node.id),
            "memory": system.memory,
        },
    });
    if let Some(age) = age.flatten() {
        view["settee"]["figuresAgeSecs"] = age.as_secs().into();
    }
    if let Some(addresses) = config::alternate_addresses(node) {
        view["alternateAddresses"] = addresses;
    }
    if node.uuid == call.api.control.this_node() {
        view["thisNode"] = true.into();
    }
    view
}

pub(super) fn group_name<'a>(call: &'a Call, node: &NodeInfo) -> &'a str {
    call.meta.server_group(&node.group).map_or("", |group| group.name.as_str())
}

fn system_stats(system: &SystemStats) -> Value {
    json!({
        "cpu_utilization_rate": system.cpu_utilization_percent, "cpu_cores_available": system.cpu_cores,
        "swap_total": system.swap_total, "swap_used": system.swap_used,
        "mem_total": system.memory_total, "mem_free": system.memory_free, "mem_limit": system.memory_total,
    })
}

fn interesting_stats(call: &Call, node: &NodeInfo) -> Value {
    let sum = call.figures.last(node.id).map(|(figures, _)| figures.sum()).unwrap_or_default();
    json!({
        "curr_items": sum.items, "curr_items_tot": sum.items + sum.replica_items, "mem_used": sum.mem_used,
        "couch_docs_actual_disk_size": sum.disk_used, "couch_docs_data_size": sum.data_used,
        "couch_views_actual_disk_size": sum.views_disk_used, "couch_views_data_size": sum.views_data_used,
        "ops": sum.ops_per_sec, "cmd_get": sum.gets_per_sec, "get_hits": sum.get_hits_per_sec,
        "ep_bg_fetched": sum.disk_fetches_per_sec, "vb_active_num_non_resident": sum.non_resident,
        "vb_replica_curr_items": sum.replica_items,
        // There are no spatial views, as in every version that clients still meet.
        "couch_spatial_data_size": 0, "couch_spatial_disk_size": 0,
    })
}

/// The share of a node's active vBuckets that have all the replicas asked for: what tools look at before they fail a node
/// over. One whose replica has not been fed for long counts as having none. 0 where nothing has replicas.
#[allow(clippy::cast_precision_loss, reason = "a share")]
fn replication(call: &Call, node: &NodeInfo) -> f64 {
    let (mut copied, mut all) = (0_u64, 0_u64);
    for bucket in call.meta.buckets.values().filter(|bucket| bucket.replicas > 0) {
        let here = bucket.vbs.iter().filter(|plan| plan.active() == Some(node.id));
        for plan in here {
            all += 1;
            copied += u64::from(plan.chain.len() > usize::from(bucket.replicas));
        }
    }
    let cut_off = call.status.cut_off.iter().filter(|cut| cut.from == node.id);
    let fed = copied.saturating_sub(cut_off.map(|cut| u64::from(cut.copies)).sum());
    if all > 0 { fed as f64 / all as f64 } else { 0.0 }
}

/// Whether everything the node is active for has a copy elsewhere, so that it can hand over.
pub(super) fn can_fail_over_gracefully(call: &Call, node: &NodeInfo) -> bool {
    let plans = call.meta.buckets.values().flat_map(|bucket| bucket.vbs.iter());
    plans.filter(|plan| plan.active() == Some(node.id)).all(|plan| plan.chain.len() > 1)
}

/// `/nodes/self`: a node with its storage.
fn full(call: &Call, node: &NodeInfo) -> Value {
    let mut full = view(call, node, None);
    full["storageTotals"] = storage_totals(call, Some(node.id));
    add_quotas(call, &mut full);
    full["storage"] = json!({ "ssd": [], "hdd": [] });
    full
}

fn statuses(call: &Call) -> Outcome {
    let several = call.meta.nodes.len() > 1;
    let mut all = serde_json::Map::new();
    for node in &call.meta.nodes {
        let one = json!({
            "status": status(call, node, None), "otpNode": otp_node(call, node), "nodeUUID": node.uuid,
            "gracefulFailoverPossible": several && can_fail_over_gracefully(call, node), "dataless": false,
            "replication": replication(call, node),
        });
        all.insert(hostname(call, node), one);
    }
    Ok(json_ok(&Value::Object(all)))
}

/// Public in Couchbase: a replicating cluster asks before it can log in.
fn xdcr_ports(call: &Call) -> Outcome {
    let this = call.api.control.this_node();
    let ports = call.meta.node(&this).map(|node| &node.ports);
    Ok(json_ok(&json!({
        "httpsMgmt": ports.map_or(0, |ports| ports.mgmt_tls),
        "httpsCAPI": ports.map_or(0, |ports| ports.capi_tls),
    })))
}
