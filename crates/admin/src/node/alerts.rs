//! What a node tells of alerts.

use cluster::NodeInfo;
use serde::{Deserialize, Serialize};

/// What alerts about a node call it.
#[must_use]
pub fn name_in_alerts(node: &NodeInfo) -> String {
    format!("{}:{}", node.host, node.ports.mgmt)
}

/// An alert that fires on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringAlert {
    /// Which.
    pub name: String,
    /// `warning` or `critical`.
    pub level: String,
    /// What it is about: a bucket, an objective, a node. Empty: the node that tells it.
    pub subject: String,
    /// What is to be told.
    pub text: String,
    /// Since when, in seconds since 1970.
    pub since_secs: u64,
}
