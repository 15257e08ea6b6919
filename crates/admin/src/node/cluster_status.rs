//! How the cluster is at the moment, as the node that leads it knows: who is heard of, and how far a rebalance has come.
//! What shall be is in [`cluster::Metadata`]; this is what is, and it is lost when nobody leads.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;
use serde::{Deserialize, Serialize};

/// How the cluster is. The default is that of a node on its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Whether this comes from before the last change of who leads, or nobody leads.
    pub stale: bool,
    /// The leader.
    pub leader: Option<NodeId>,
    /// Nodes that have not been heard of for so long that they do not count as healthy.
    pub silent: BTreeSet<NodeId>,
    /// Replicas that have not been kept up to date for long, though both nodes are there.
    #[serde(default)]
    pub cut_off: Vec<CutOff>,
    /// Nodes without which no active copy may be chosen.
    #[serde(default)]
    pub awaited: Vec<Awaited>,
    /// Nodes whose metadata differ from those of most nodes, and since which change. They take part in nothing.
    #[serde(default)]
    pub diverged: BTreeMap<NodeId, u64>,
    /// Nodes whose metadata differ from one another, where no majority agrees.
    #[serde(default)]
    pub undecided: BTreeMap<NodeId, u64>,
    /// How far the rebalance (or graceful failover) that runs has come.
    pub progress: Option<RebalanceView>,
}

/// A node that elections of a bucket wait for: it may be the only one that knows what was acknowledged, or may be serving yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The bucket, by name.
    pub bucket: String,
    /// The node that the election waits for.
    pub node: NodeId,
    /// How many vBuckets nobody serves meanwhile.
    pub vbs: u32,
    /// It was failed over, and nobody knows that it serves nothing any more.
    #[serde(default)]
    pub may_serve: bool,
}

/// Replicas of a bucket that cannot follow the copies they shall follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutOff {
    /// The bucket, by name.
    pub bucket: String,
    /// The nodes of the active copies.
    pub from: NodeId,
    /// The nodes of the replicas.
    pub to: NodeId,
    /// How many replicas.
    pub copies: u32,
}

/// How far a rebalance has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RebalanceView {
    /// All of it, from 0 to 1, weighted by what has to travel.
    pub done: f64,
    /// Changes of vBuckets that are complete.
    pub moves_done: u64,
    /// Changes of vBuckets in all.
    pub moves_total: u64,
    /// What is left will take so long at the present speed; absent while nothing can be said.
    pub eta_secs: Option<u64>,
    /// What it waits for, when it does not get on: a node that is not there, a bucket that needs its latency.
    pub waits_for: Option<String>,
    /// The bucket it is at, when there is one.
    pub bucket: Option<BucketAt>,
    /// What each node has to do with it.
    pub nodes: BTreeMap<NodeId, NodeShare>,
}

/// The bucket that a rebalance is at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketAt {
    /// Its name.
    pub name: String,
    /// Counted from one.
    pub number: u64,
    /// Of how many.
    pub count: u64,
}

/// What a node has to do with a rebalance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeShare {
    /// From 0 to 1.
    pub done: f64,
    /// Documents it gets: how many, and how many it has.
    pub incoming: (u64, u64),
    /// Documents it gives away: how many, and how many it has given.
    pub outgoing: (u64, u64),
}

/// Something that an administrator must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about, as that of an alert.
    pub subject: String,
    /// What is to be told.
    pub text: String,
}

impl Notice {
    /// Something that an administrator must know.
    #[must_use]
    pub fn new(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { subject: subject.into(), text: text.into() }
    }
}
