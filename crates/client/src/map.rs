//! The cluster map: which node serves which vBucket, read from the JSON of GET_CLUSTER_CONFIG or REST.

use crate::{ClientError, Result};
use base::{VbId, hash};
use serde_json::Value;

/// Where a bucket's vBuckets live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// Version: epoch first, then revision.
    pub version: (i64, i64),
    /// `host:port` of each node's data port, in the order the vBucket map numbers them.
    pub nodes: Vec<String>,
    /// `host:port` where views are asked for, of each node that answers there.
    pub views: Vec<String>,
    /// Per vBucket the number of the active node; `None` while nobody serves it.
    active: Vec<Option<u16>>,
}

impl ClusterMap {
    /// Reads a bucket's configuration. `host` is the address this client used, which stands for `$HOST` and for
    /// nodes without a name.
    ///
    /// # Errors
    /// The text is no JSON or has no vBucket map.
    pub fn parse(json: &[u8], host: &str) -> Result<ClusterMap> {
        let bad = |what: &str| ClientError::Protocol(format!("cluster configuration: {what}"));
        let config: Value = serde_json::from_slice(json).map_err(|e| bad(&e.to_string()))?;
        let nodes = nodes(&config, host).ok_or_else(|| bad("no node has a data port"))?;
        let views = in_bucket(&config).map(|ext| addresses(ext, "capi", host)).unwrap_or_default();
        let rows = config["vBucketServerMap"]["vBucketMap"].as_array();
        let rows = rows.filter(|rows| !rows.is_empty() && rows.len() <= 1 << 15);
        let active = rows.ok_or_else(|| bad("no vBucketMap (is this a memcached bucket?)"))?;
        let active = active
            .iter()
            .map(|row| {
                row[0].as_i64().and_then(|n| u16::try_from(n).ok()).filter(|&n| usize::from(n) < nodes.len())
            })
            .collect();
        let version = (config["revEpoch"].as_i64().unwrap_or(0), config["rev"].as_i64().unwrap_or(0));
        Ok(ClusterMap { version, nodes, views, active })
    }

    /// The map that the node at `address` has refused a request with ("not my vBucket"), if it gave one.
    #[must_use]
    pub fn of_refusal(value: &[u8], address: &str) -> Option<ClusterMap> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        ClusterMap::parse(value, host).ok()
    }

    /// How many vBuckets the bucket has.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.active.len() as u16
    }

    /// The vBucket of a logical key (without collection prefix).
    #[must_use]
    pub fn vbucket_of(&self, key: &[u8]) -> VbId {
        hash::vbucket_of(key, self.vbuckets())
    }

    /// The number of the node that serves a vBucket.
    #[must_use]
    pub fn active_node(&self, vb: VbId) -> Option<usize> {
        self.active.get(usize::from(vb.get())).copied().flatten().map(usize::from)
    }
}

/// Data addresses from `nodesExt`, limited to the bucket's own `nodes`; from the old `serverList` without it.
fn nodes(config: &Value, host: &str) -> Option<Vec<String>> {
    let nodes: Vec<String> = match in_bucket(config) {
        Some(ext) => addresses(ext, "kv", host),
        None => {
            let list = config["vBucketServerMap"]["serverList"].as_array()?;
            list.iter().filter_map(Value::as_str).map(|a| a.replace("$HOST", &with_host(host))).collect()
        }
    };
    (!nodes.is_empty()).then_some(nodes)
}

/// What `nodesExt` says of the bucket's own nodes.
fn in_bucket(config: &Value) -> Option<&[Value]> {
    let ext = config["nodesExt"].as_array()?;
    let count = config["nodes"].as_array().map_or(usize::MAX, Vec::len);
    Some(ext.get(..count).unwrap_or(ext))
}

/// A name with the brackets that a port behind it asks for.
fn with_host(name: &str) -> String {
    if name.contains(':') && !name.starts_with('[') { format!("[{name}]") } else { name.to_owned() }
}

/// Where nodes answer for a service, as far as they do.
fn addresses(nodes: &[Value], service: &str, host: &str) -> Vec<String> {
    let address = |node: &Value| {
        let port = node["services"][service].as_u64()?;
        let name = node["hostname"].as_str().filter(|name| *name != "$HOST").unwrap_or(host);
        Some(format!("{}:{port}", with_host(name)))
    };
    nodes.iter().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"rev":7,"revEpoch":1,"name":"default","nodeLocator":"vbucket",
        "nodes":[{"hostname":"$HOST:8091"},{"hostname":"10.0.0.2:8091"}],
        "nodesExt":[{"thisNode":true,"services":{"mgmt":8091,"kv":11210}},
                    {"hostname":"10.0.0.2","services":{"mgmt":8091,"kv":11310}},
                    {"hostname":"10.0.0.3","services":{"mgmt":8091}}],
        "vBucketServerMap":{"hashAlgorithm":"CRC","numReplicas":1,"serverList":["$HOST:11210","10.0.0.2:11310"],
                            "vBucketMap":[[0,1],[1,-1],[-1,-1],[7,0]]}}"#;

    #[test]
    fn keys_find_their_node() {
        let map = ClusterMap::parse(CONFIG.as_bytes(), "127.0.0.9").expect("a map");
        assert_eq!(map.version, (1, 7));
        assert_eq!(map.nodes, ["127.0.0.9:11210", "10.0.0.2:11310"]);
        assert_eq!(map.vbuckets(), 4);
        let active: Vec<Option<usize>> = (0..5).map(|vb| map.active_node(VbId(vb))).collect();
        assert_eq!(active, [Some(0), Some(1), None, None, None]);
        assert_eq!(map.vbucket_of(b"k1"), VbId(526 % 4));
    }

    #[test]
    fn old_configurations_name_nodes_in_the_server_list() {
        let json = r#"{"vBucketServerMap":{"serverList":["$HOST:11210"],"vBucketMap":[[0],[0]]}}"#;
        let map = ClusterMap::parse(json.as_bytes(), "::1").expect("a map");
        assert_eq!(map.nodes, ["[::1]:11210"]);
    }

    #[test]
    fn a_refusal_may_bring_a_map() {
        let map = ClusterMap::of_refusal(CONFIG.as_bytes(), "127.0.0.9:11210").expect("a map");
        assert_eq!(map.nodes[0], "127.0.0.9:11210");
        assert_eq!(ClusterMap::of_refusal(b"", "127.0.0.9:11210"), None);
    }

    #[test]
    fn what_cannot_route_is_refused() {
        for json in
            ["", "[]", "{}", r#"{"nodesExt":[{"services":{"kv":1}}],"vBucketServerMap":{"vBucketMap":[]}}"#]
        {
            assert!(ClusterMap::parse(json.as_bytes(), "h").is_err(), "{json}");
        }
    }
}
