//! Where other nodes' data services are.

use std::fmt;

use base::NodeId;
use cluster::{Metadata, NodeInfo};

/// Where another node's data service is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// The node.
    pub node: NodeId,
    /// Its host name or address.
    pub host: String,
    /// Its port for the binary protocol.
    pub kv_port: u16,
    /// Whether that is the port for TLS.
    pub tls: bool,
}

/// What the log calls the node.
impl fmt::Display for PeerAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{} ({})", self.host, self.kv_port, self.node.get())
    }
}

impl PeerAddress {
    /// Where documents come from that this node has.
    #[must_use]
    pub fn of(node: &NodeInfo, metadata: &Metadata) -> Self {
        let tls = metadata.encrypts_data_to(node);
        let kv_port = if tls { node.ports.kv_tls } else { node.ports.kv };
        Self { node: node.id, host: node.host.clone(), kv_port, tls }
    }
}
