//! Talk with other nodes.

pub(crate) mod agreement;
pub(crate) mod http;
pub(crate) mod internal;
pub(crate) mod mail;
pub(crate) mod peers;
pub(crate) mod proposals;
pub(crate) mod questions;
pub(crate) mod reads;

use base::NodeId;
use cluster::Metadata;

/// What the log calls a node: the host and port by which its cluster knows it, and its number. Of a node that the cluster no
/// longer has, the number is left.
pub(crate) fn named(metadata: &Metadata, node: NodeId) -> String {
    let known = metadata.node_by_id(node);
    known.map_or_else(
        || node.get().to_string(),
        |known| format!("{}:{} ({})", known.host, known.ports.mgmt, node.get()),
    )
}

#[cfg(test)]
mod tests {
    use cluster::{NodeInfo, Ports};

    use super::*;

    #[test]
    fn the_log_names_nodes_by_their_hosts() {
        let mut metadata = Metadata::new("cluster".into(), 0);
        assert_eq!(named(&metadata, NodeId(3)), "3");
        let ports = Ports { mgmt: 8091, ..Ports::default() };
        let first = NodeInfo::first("4".into(), "db4.example".into(), ports);
        metadata.nodes.push(NodeInfo { id: NodeId(3), ..first });
        assert_eq!(named(&metadata, NodeId(3)), "db4.example:8091 (3)");
    }
}
