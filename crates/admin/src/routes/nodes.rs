//! Nodes as REST shows them. The C++ core aborts its process when `hostname`, `otpNode`, `version`, `os` or `status`
//! is missing from a node, and Java waits until every `status` is `healthy`.

use axum::http::StatusCode;
use cluster::{NodeInfo, auth::Privilege, config};
use serde_json::{Value, json};

use super::{PRODUCT_VERSION, SETTEE_VERSION, pools};
use crate::{
    call::Call,
    reply::{self, Outcome, json_ok},
};

/// Version 7.6 as `clusterCompatibility` encodes it.
const COMPATIBILITY: u32 = 7 * 0x1_0000 + 6;

pub(super) fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    if let ["nodes", "self", "xdcrSSLPorts"] = path {
        return xdcr_ports(call);
    }
    call.require(Privilege::ClusterRead, None)?;
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
    call.meta.nodes.iter().find(|node| {
        (which == "self" && node.uuid == this) || which == otp_node(node) || which == hostname(call, node)
    })
}

/// Erlang's name for the node, by which tools tell nodes apart.
pub(super) fn otp_node(node: &NodeInfo) -> String {
    let host = if node.host.is_empty() { "127.0.0.1" } else { &node.host };
    format!("ns_1@{host}")
}

/// Address and REST port of a node.
pub(super) fn hostname(call: &Call, node: &NodeInfo) -> String {
    format!("{}:{}", call.host_of(node), node.ports.mgmt)
}

/// Every node; with `bucket`, its status is that of the bucket on it.
pub(super) fn list(call: &Call, bucket: Option<&str>) -> Vec<Value> {
    call.meta.nodes.iter().map(|node| view(call, node, bucket)).collect()
}

fn status(call: &Call, bucket: Option<&str>) -> &'static str {
    let ready = |name: &str| call.api.control.bucket_is_ready(name);
    let healthy = match bucket {
        Some(name) => ready(name),
        None => call.meta.buckets.keys().all(|name| ready(name)),
    };
    if healthy { "healthy" } else { "warmup" }
}

/// One node.
pub(super) fn view(call: &Call, node: &NodeInfo, bucket: Option<&str>) -> Value {
    let system = call.api.control.system();
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
        "otpNode": otp_node(node),
        "nodeUUID": node.uuid,
        "status": status(call, bucket),
        "clusterMembership": "active",
        "recoveryType": "none",
        "version": PRODUCT_VERSION,
        "os": format!("{}-pc-{}-gnu", std::env::consts::ARCH, std::env::consts::OS),
        "clusterCompatibility": COMPATIBILITY,
        "services": node.services,
        "ports": shown_ports,
        "serverGroup": config::SERVER_GROUP,
        "addressFamily": if node.host.contains(':') { "inet6" } else { "inet" },
        "addressFamilyOnly": false,
        "nodeEncryption": false,
        "cpuCount": system.cpu_cores,
        "uptime": system.uptime_secs.to_string(),
        "memoryTotal": system.memory_total,
        "memoryFree": system.memory_free,
        "mcdMemoryReserved": call.meta.quotas.data_mb,
        "mcdMemoryAllocated": call.meta.quotas.data_mb,
        "interestingStats": interesting_stats(call),
        "systemStats": {
            "cpu_utilization_rate": system.cpu_utilization_percent, "cpu_cores_available": system.cpu_cores,
            "swap_total": system.swap_total, "swap_used": system.swap_used,
            "mem_total": system.memory_total, "mem_free": system.memory_free, "mem_limit": system.memory_total,
        },
        "replication": 0,
        "settee": { "version": SETTEE_VERSION },
    });
    if node.uuid == call.api.control.this_node() {
        view["thisNode"] = true.into();
    }
    view
}

fn interesting_stats(call: &Call) -> Value {
    let stats = call.meta.buckets.keys().filter_map(|name| call.api.control.bucket_stats(name));
    let mut totals = (0_u64, 0_u64, 0_u64, 0.0, 0_u64, 0_u64);
    for one in stats {
        totals.0 += one.items;
        totals.1 += one.mem_used;
        totals.2 += one.disk_used;
        totals.3 += one.ops_per_sec;
        totals.4 += one.get_hits;
        totals.5 += one.data_used;
    }
    json!({
        "curr_items": totals.0, "curr_items_tot": totals.0, "mem_used": totals.1,
        "couch_docs_actual_disk_size": totals.2, "couch_docs_data_size": totals.5, "ops": totals.3,
        "get_hits": totals.4, "vb_replica_curr_items": 0,
    })
}

/// `/nodes/self`: a node with its storage.
fn full(call: &Call, node: &NodeInfo) -> Value {
    let mut full = view(call, node, None);
    full["storageTotals"] = pools::storage_totals(call);
    full["memoryQuota"] = call.meta.quotas.data_mb.into();
    let quotas = [
        ("indexMemoryQuota", 512),
        ("ftsMemoryQuota", 512),
        ("cbasMemoryQuota", 1024),
        ("eventingMemoryQuota", 256),
    ];
    for (name, default) in quotas {
        full[name] = call.meta.quotas.others_mb.get(name).copied().unwrap_or(default).into();
    }
    full["storage"] = json!({ "ssd": [], "hdd": [] });
    full
}

fn statuses(call: &Call) -> Outcome {
    let mut all = serde_json::Map::new();
    for node in &call.meta.nodes {
        let one = json!({
            "status": status(call, None), "otpNode": otp_node(node), "nodeUUID": node.uuid,
            "gracefulFailoverPossible": false, "dataless": false, "replication": 0,
        });
        all.insert(hostname(call, node), one);
    }
    Ok(json_ok(&Value::Object(all)))
}

/// One group with every node in it: groups mean something once there are several nodes.
pub(super) fn server_groups(call: &Call) -> Outcome {
    call.require(Privilege::ClusterRead, None)?;
    Ok(json_ok(&json!({
        "uri": format!("/pools/default/serverGroups?rev={}", call.meta.rev),
        "groups": [{
            "name": config::SERVER_GROUP,
            "uri": "/pools/default/serverGroups/0",
            "addNodeURI": "/pools/default/serverGroups/0/addNode",
            "nodes": list(call, None),
        }],
    })))
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
