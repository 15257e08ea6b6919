//! The configurations clients route by: one JSON object for the cluster, one per bucket.
//!
//! The literal `$HOST` stands for "the address you used to reach this node". It is used for a single node whose configured
//! host is a loopback name: that name says nothing about how clients reach the node. Any other host is named, as Couchbase
//! does; where there are several nodes each is, since `$HOST` would mean all of them.

use base::{NodeId, bucket::BucketKind};
use serde_json::{Map, Value, json};

use crate::metadata::{BucketInfo, Metadata, NodeInfo, telemetry::TELEMETRY_PATH, topology::Membership};

/// What a bucket of several vBuckets can do, as clients test for it. Advertise only what works: each of these switches
/// client behaviour. To be added with the feature: `xdcrCheckpointing`, `couchapi` (views, persistent buckets only),
/// `nonDedupedHistory`, `querySystemCollection`.
pub const BUCKET_CAPABILITIES: &[&str] = &[
    "collections",
    "durableWrite",
    "tombstonedUserXAttrs",
    "preserveExpiry",
    "subdoc.ReplaceBodyWithXattr",
    "subdoc.DocumentMacroSupport",
    "subdoc.ReviveDocument",
    "subdoc.ReplicaRead",
    "subdoc.BinaryXattr",
    "subdoc.AccessDeleted",
    "cbhello",
    "touch",
    "cccp",
    "xattr",
    "nodesExt",
    "dcp",
    "dcp.IgnorePurgedTombstones",
    // The last: for persistent buckets only.
    "rangeScan",
];

/// The same of a bucket that lives in memory.
const EPHEMERAL_BUCKET_CAPABILITIES: &[&str] = match BUCKET_CAPABILITIES.split_last() {
    Some((_, others)) => others,
    None => &[],
};

/// What a cache-only bucket can do.
pub const CACHE_BUCKET_CAPABILITIES: &[&str] = &["cbhello", "nodesExt"];

/// The capabilities of that kind of bucket.
#[must_use]
pub const fn bucket_capabilities(kind: BucketKind) -> &'static [&'static str] {
    match kind {
        BucketKind::Couchbase => BUCKET_CAPABILITIES,
        BucketKind::Ephemeral => EPHEMERAL_BUCKET_CAPABILITIES,
        BucketKind::Memcached => CACHE_BUCKET_CAPABILITIES,
    }
}

/// The bucket type as configurations and REST show it.
#[must_use]
pub const fn bucket_type(kind: BucketKind) -> &'static str {
    match kind {
        BucketKind::Couchbase => "membase",
        BucketKind::Ephemeral => "ephemeral",
        BucketKind::Memcached => "memcached",
    }
}

/// How clients find the node of a key.
#[must_use]
pub const fn node_locator(kind: BucketKind) -> &'static str {
    match kind {
        BucketKind::Couchbase | BucketKind::Ephemeral => "vbucket",
        BucketKind::Memcached => "ketama",
    }
}

/// The configuration of the cluster, for connections without a bucket. `this_node` is the uuid of the node that
/// answers.
#[must_use]
pub fn cluster_config(meta: &Metadata, this_node: &str) -> String {
    Value::Object(common(meta, this_node)).to_string()
}

/// The configuration of a bucket; `None` when there is no such bucket.
#[must_use]
pub fn bucket_config(meta: &Metadata, bucket: &str, this_node: &str) -> Option<String> {
    let info = meta.buckets.get(bucket)?;
    let mut config = common(meta, this_node);
    let nodes: Vec<Value> =
        shown_nodes(meta).iter().map(|node| terse_node(meta, node, bucket, info)).collect();
    config.extend(bucket_identity(bucket, info));
    config.insert("nodes".into(), nodes.into());
    if let Some(map) = vbucket_server_map(meta, info, |node| host_in_url(meta, node)) {
        config.insert("vBucketServerMap".into(), map);
    }
    Some(Value::Object(config).to_string())
}

/// The fields that name a bucket and say how to route to it, shared by terse and full forms.
#[must_use]
pub fn bucket_identity(name: &str, info: &BucketInfo) -> Map<String, Value> {
    let uuid = &info.uuid.0;
    let path = percent_encoded(name);
    let mut fields = Map::new();
    fields.insert("name".into(), name.into());
    fields.insert("uuid".into(), uuid.as_str().into());
    fields.insert("bucketType".into(), bucket_type(info.kind).into());
    fields.insert("nodeLocator".into(), node_locator(info.kind).into());
    fields.insert("uri".into(), format!("/pools/default/buckets/{path}?bucket_uuid={uuid}").into());
    fields.insert(
        "streamingUri".into(),
        format!("/pools/default/bucketsStreaming/{path}?bucket_uuid={uuid}").into(),
    );
    fields.insert("bucketCapabilitiesVer".into(), "".into());
    fields.insert("bucketCapabilities".into(), json!(bucket_capabilities(info.kind)));
    if info.kind != BucketKind::Memcached {
        let uid = format!("{:x}", info.manifest.uid.get());
        fields.insert("collectionsManifestUid".into(), uid.into());
    }
    fields
}

/// The nodes that clients hear of, in the order of every list of nodes and of the map's positions. They are the nodes
/// that count, and those that hold something that still counts.
#[must_use]
pub fn shown_nodes(meta: &Metadata) -> Vec<&NodeInfo> {
    let holds = |id: NodeId| {
        let mut plans = meta.buckets.values().flat_map(|bucket| bucket.vbs.iter());
        plans.any(|plan| plan.chain.contains(&id))
    };
    meta.nodes.iter().filter(|node| node.membership == Membership::Active || holds(node.id)).collect()
}

/// The vBucket map of a bucket, absent copies as -1; with the map to come while a rebalance runs. `None` for kinds that
/// have no vBuckets. `host` names a node in an address ([`host_in_url`] where `$HOST` will do).
#[must_use]
pub fn vbucket_server_map(
    meta: &Metadata,
    info: &BucketInfo,
    host: impl Fn(&NodeInfo) -> String,
) -> Option<Value> {
    if info.kind == BucketKind::Memcached {
        return None;
    }
    let nodes = shown_nodes(meta);
    let servers: Vec<String> = nodes.iter().map(|node| format!("{}:{}", host(node), node.ports.kv)).collect();
    let rows = |chains: &mut dyn Iterator<Item = &Vec<NodeId>>| -> Vec<Vec<i32>> {
        chains.map(|chain| positions(chain, &nodes, info.replicas)).collect()
    };
    let mut map = json!({
        "hashAlgorithm": "CRC", "numReplicas": info.replicas, "serverList": servers,
        "vBucketMap": rows(&mut info.vbs.iter().map(|plan| &plan.chain)),
    });
    if let Some(target) = &info.target {
        map["vBucketMapForward"] = json!(rows(&mut target.iter()));
    }
    Some(map)
}

/// A chain as clients read it: positions in the list of nodes, absent copies as -1.
fn positions(chain: &[NodeId], nodes: &[&NodeInfo], replicas: u8) -> Vec<i32> {
    let position = |&id: &NodeId| nodes.iter().position(|node| node.id == id).map_or(-1, |at| at as i32);
    let copies = chain.iter().map(position).chain(std::iter::repeat(-1));
    copies.take(1 + usize::from(replicas)).collect()
}

/// Where the views of a bucket are; old clients insist on the field.
#[must_use]
pub fn couch_api_base(node: &NodeInfo, host: &str, bucket: &str, info: &BucketInfo) -> String {
    let name = percent_encoded(bucket);
    format!("http://{host}:{}/{name}%2B{}", node.ports.capi, info.uuid.0)
}

/// A node's host where an address with a port is written: `$HOST` for one that is not named, IPv6 addresses in brackets.
#[must_use]
pub fn host_in_url(meta: &Metadata, node: &NodeInfo) -> String {
    match named_host(meta, node) {
        None => "$HOST".into(),
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host.to_owned(),
    }
}

/// A node's host, unless it means nothing elsewhere: wildcards never do, loopback names only to the other nodes on the
/// same machine. Other addresses of 127.0.0.0/8 are named: several nodes on one machine are told apart by them.
#[must_use]
pub fn named_host<'a>(meta: &Metadata, node: &'a NodeInfo) -> Option<&'a str> {
    let wildcard = ["0.0.0.0", "::", ""].contains(&node.host.as_str());
    let loopback = ["127.0.0.1", "::1", "localhost"].contains(&node.host.as_str());
    let single = meta.nodes.len() <= 1;
    let meaningless = wildcard || (loopback && single);
    (!meaningless).then_some(node.host.as_str())
}

/// `nodesExt[]`: what a node offers. A service is there for a client only because its key is.
#[must_use]
pub fn nodes_ext(meta: &Metadata, this_node: &str) -> Vec<Value> {
    shown_nodes(meta).iter().map(|node| node_ext(meta, node, this_node)).collect()
}

fn node_ext(meta: &Metadata, node: &NodeInfo, this_node: &str) -> Value {
    let ports = &node.ports;
    let mut services = Map::new();
    let offered = [
        ("mgmt", ports.mgmt),
        ("mgmtSSL", ports.mgmt_tls),
        ("kv", ports.kv),
        ("kvSSL", ports.kv_tls),
        ("capi", ports.capi),
        ("capiSSL", ports.capi_tls),
    ];
    for (key, port) in offered {
        if port != 0 {
            services.insert(key.into(), port.into());
        }
    }
    let mut fields = Map::new();
    fields.insert("services".into(), services.into());
    fields
        .insert("serverGroup".into(), meta.server_group(&node.group).map_or("", |group| &group.name).into());
    if node.uuid == this_node {
        fields.insert("thisNode".into(), true.into());
    }
    if let Some(host) = named_host(meta, node) {
        fields.insert("hostname".into(), host.into());
    }
    if let Some(addresses) = alternate_addresses(node) {
        fields.insert("alternateAddresses".into(), addresses);
    }
    if meta.app_telemetry().is_some() {
        // Both since Couchbase 8: SDKs name the node in what they tell.
        fields.insert("appTelemetryPath".into(), TELEMETRY_PATH.into());
        fields.insert("nodeUUID".into(), node.uuid.as_str().into());
    }
    Value::Object(fields)
}

/// `alternateAddresses` of a node. Without ports clients take the node's own ones.
#[must_use]
pub fn alternate_addresses(node: &NodeInfo) -> Option<Value> {
    let address = node.alternate.as_ref()?;
    let mut external = json!({ "hostname": address.hostname });
    let offered = ["mgmt", "mgmtSSL", "kv", "kvSSL", "capi", "capiSSL"];
    let ports: Map<String, Value> = address
        .ports
        .iter()
        .filter(|(name, _)| offered.contains(&name.as_str()))
        .map(|(name, port)| (name.clone(), (*port).into()))
        .collect();
    if !ports.is_empty() {
        external["ports"] = ports.into();
    }
    Some(json!({ "external": external }))
}

fn common(meta: &Metadata, this_node: &str) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("rev".into(), meta.rev.into());
    fields.insert("revEpoch".into(), meta.rev_epoch.into());
    fields.insert("nodesExt".into(), nodes_ext(meta, this_node).into());
    fields.insert("clusterCapabilitiesVer".into(), json!([1, 0]));
    fields.insert("clusterCapabilities".into(), json!({}));
    fields.insert("clusterUUID".into(), meta.cluster_uuid.as_str().into());
    fields.insert("clusterName".into(), meta.cluster_name.as_str().into());
    fields
}

fn terse_node(meta: &Metadata, node: &NodeInfo, bucket: &str, info: &BucketInfo) -> Value {
    let ports = json!({ "direct": node.ports.kv, "proxy": node.ports.memcached });
    let mut fields =
        json!({ "hostname": format!("{}:{}", host_in_url(meta, node), node.ports.mgmt), "ports": ports });
    if info.kind == BucketKind::Couchbase {
        fields["couchApiBase"] = couch_api_base(node, &host_in_url(meta, node), bucket, info).into();
    }
    fields
}

/// A bucket name inside a path: of the characters allowed in names only the percent sign is special.
fn percent_encoded(name: &str) -> String {
    name.replace('%', "%25")
}
