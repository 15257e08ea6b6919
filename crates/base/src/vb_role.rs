//! What a node is to a vBucket.

use serde::{Deserialize, Serialize};

/// What a node is to a vBucket. Which role it takes is decided for the whole cluster; the engine obeys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VbRole {
    /// Serves nobody. What it holds stays until it is dropped or built upon.
    #[default]
    Dead,
    /// Follows the active copy.
    Replica,
    /// Serves clients and feeds replicas.
    Active,
    /// Was active and hands over: takes no operation any more, feeds go on to the end of what it has.
    Sealed,
}

impl VbRole {
    /// As statistics and tools show it. A sealed copy is `pending`'s counterpart in Couchbase: a dead one that still
    /// feeds.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Replica => "replica",
            Self::Dead | Self::Sealed => "dead",
        }
    }
}
