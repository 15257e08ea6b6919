//! What vouches for nodes that have no keys of their own.

use serde::{Deserialize, Serialize};

/// What vouches for the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its certificate, as PEM.
    pub certificate: String,
    /// Its key, as PEM: a process that has it can pass for a node.
    pub key: String,
}
