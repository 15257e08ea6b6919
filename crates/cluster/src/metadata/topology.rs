//! What each node holds: nodes as members, server groups, and for each vBucket the plan of its copies.
//!
//! A plan says what shall be; nodes make it so and report. Words: the *chain* of a vBucket is the nodes whose copies
//! count, the active one first. The *term* grows whenever who may be active, or which chain counts, changes; what was
//! said under an older term is void.
//!
//! Invariants: a chain names no node twice and only nodes there are; nobody is both
//! in a chain and building; terms never go back.

use base::NodeId;
use serde::{Deserialize, Serialize};

/// What a new cluster's first server group is called.
pub const SERVER_GROUP: &str = "Group 1";
/// For so long a leader waits for a node that was failed over and served without a lease. A node that has said nothing
/// until then most likely is not there. One that is there says within a round of messages that it knows.
pub(crate) const UNLEASED_MS: u64 = 1_000;
/// The server group of a new cluster's first node, as Couchbase names it.
pub const FIRST_GROUP: &str = "0";

/// Whether a node counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Membership {
    /// Holds data, or may.
    #[default]
    Active,
    /// Added, and waits for a rebalance.
    InactiveAdded,
    /// Failed over: holds nothing that counts until it is recovered, and leaves with the next rebalance otherwise.
    InactiveFailed,
}

/// How a node that was failed over comes back with the next rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Recovery {
    /// From nothing.
    Full,
    /// From what it holds, as far as that is part of the history.
    Delta,
}

/// How a node was failed over: what has to be so before others may take its place, and before it may serve again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Exclusion {
    /// Version of the metadata since then: a node that acts by that one knows.
    pub version: u64,
    /// How long the node could serve then without being heard; absent where nobody needed a lease.
    pub lease_ms: Option<u64>,
    /// Whether it is certain that the node served by leases then. Where it did, it serves no longer than for the last lease that it
    /// was granted. That holds even if it goes on to report, and cannot do what the metadata ask for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leased: bool,
}

/// A node that was failed over and has left the cluster since. It may still be serving, until it hears of that or its lease
/// has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Departed {
    /// The number that it had.
    pub node: NodeId,
    /// How it was failed over.
    pub excluded: Exclusion,
}

/// A node that was removed, as those know it that have yet to let it go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parted {
    /// The number that it had.
    pub node: NodeId,
    /// The uuid that it had.
    pub uuid: String,
    /// Its public key.
    pub key: String,
}

/// Nodes that are likely to fail together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerGroup {
    /// Never changes.
    pub uuid: String,
    /// Shown to people, and unique.
    pub name: String,
}

/// What shall be of one vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VbPlan {
    /// Nodes whose copies count, the active one first. Empty: nobody has it.
    pub chain: Vec<NodeId>,
    /// The chain before the last change, until the new one is known to hold what it held: durable writes need a majority
    /// of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<Vec<NodeId>>,
    /// Nodes that counted and were failed over, named for the record beside `joint`. The active copy may crash before
    /// the others are known to hold what it held. Then only one of the others may have what these nodes had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<NodeId>,
    /// Those of them that were failed over gracefully. They hold all that was acknowledged then. So no copy that has lost everything
    /// is served in their place before the others are known to hold it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<NodeId>,
    /// Nodes that are getting a copy that does not count yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub building: Vec<NodeId>,
    /// Whether the active role is on its way somewhere.
    #[serde(default, skip_serializing_if = "VbPhase::is_settled")]
    pub phase: VbPhase,
    /// Grows with every change of who may be active and of which chain counts.
    pub term: u64,
}

/// Whether the active role of a vBucket is on its way somewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VbPhase {
    /// The first of the chain is active.
    #[default]
    Settled,
    /// The first of the chain seals its copy and feeds the others to its end; then `to` takes over.
    #[allow(missing_docs, reason = "said beside them")]
    Handover {
        to: NodeId,
        /// The chain then; begins with `to`.
        after: Vec<NodeId>,
    },
    /// Nobody is active: these nodes stop following and report, and the most advanced complete copy among them becomes
    /// the active one.
    #[allow(missing_docs, reason = "said above")]
    Electing { among: Vec<NodeId> },
}

impl VbPhase {
    /// Whether the first of the chain is simply active.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        *self == Self::Settled
    }
}

impl VbPlan {
    /// A plan of a chain with nothing on its way.
    #[must_use]
    pub fn settled(chain: Vec<NodeId>, term: u64) -> Self {
        Self { chain, term, ..Self::default() }
    }

    /// The node that serves clients, or will once it has taken over; `None` while it is elected and where nobody has
    /// the vBucket.
    #[must_use]
    pub fn active(&self) -> Option<NodeId> {
        match self.phase {
            VbPhase::Electing { .. } => None,
            VbPhase::Settled | VbPhase::Handover { .. } => self.chain.first().copied(),
        }
    }

    /// Whether nothing is on its way: no phase, nothing building, one chain.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.phase.is_settled() && self.building.is_empty() && self.joint.is_none()
    }

    /// Whether the next step to a target is that its first node becomes the active one: there are copies everywhere, or in the
    /// making.
    #[must_use]
    pub fn awaits_handover(&self, target: &[NodeId]) -> bool {
        let has = |node: &NodeId| self.chain.contains(node) || self.building.contains(node);
        self.phase.is_settled()
            && self.joint.is_none()
            && self.active().is_some()
            && target.first().is_some_and(|&first| self.active() != Some(first))
            && target.iter().all(has)
    }

    /// Whether nobody has the vBucket, and these nodes are to: what they have left of it is to be told.
    #[must_use]
    pub fn is_lost_to(&self, target: &[NodeId]) -> bool {
        self.chain.is_empty() && self.phase.is_settled() && !target.is_empty()
    }

    /// Whether the leader has to know the state of every copy. It has to where a copy is on its way or the active role
    /// is to be handed over. It has to where no node has the vBucket and one is to get it. It has to where copies are
    /// on nodes that are `leaving` gracefully, because the other copies are to do without them.
    #[must_use]
    pub fn is_watched(&self, target: Option<&[NodeId]>, leaving: &[NodeId]) -> bool {
        !self.is_quiet()
            || target.is_some_and(|target| self.awaits_handover(target) || self.is_lost_to(target))
            || self.chain.iter().any(|node| leaving.contains(node))
    }

    /// Every node that has something of the vBucket, or is about to: in chain order, each once.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut all = self.chain.clone();
        let among: &[NodeId] = match &self.phase {
            VbPhase::Settled => &[],
            VbPhase::Handover { after, .. } => after,
            VbPhase::Electing { among } => among,
        };
        for &node in self.joint.iter().flatten().chain(&self.building).chain(among) {
            if !all.contains(&node) {
                all.push(node);
            }
        }
        all
    }
}

/// A change of the map that is under way: what every leader strives for until it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebalance {
    /// Names this one in answers and logs.
    pub id: String,
    /// What it is called.
    pub kind: RebalanceKind,
    /// Nodes that hold data afterwards.
    pub keep: Vec<NodeId>,
    /// Nodes that leave afterwards: the cluster, or the map of those that count where it is a graceful failover.
    pub eject: Vec<NodeId>,
    /// Unix milliseconds.
    pub started_ms: u64,
    /// Copies that nodes had to get when it started.
    pub copies: u64,
}

/// What moves vBuckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RebalanceKind {
    /// To the balanced map over the nodes kept.
    Rebalance,
    /// Active roles away from nodes that are failed over once they have none.
    GracefulFailover,
}

/// How the last change of the map ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceOutcome {
    /// As in [`Rebalance`].
    pub id: String,
    /// As in [`Rebalance`].
    pub kind: RebalanceKind,
    /// Unix milliseconds.
    pub started_ms: u64,
    /// Unix milliseconds.
    pub ended_ms: u64,
    /// How it ended.
    pub result: RebalanceResult,
}

/// How a change of the map ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RebalanceResult {
    /// The map is the one aimed at.
    Completed,
    /// Somebody stopped it.
    Stopped,
    /// It could not go on; the text says why.
    Failed(String),
}

/// Settings and memory of automatic failover.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AutoFailover {
    /// Whether it happens at all.
    pub enabled: bool,
    /// How long a node has to be silent.
    pub timeout_secs: u32,
    /// How many times it may happen before somebody resets the count.
    pub max_count: u32,
    /// How many times it has happened since.
    pub count: u32,
    /// Whether all nodes of a server group may be failed over at once.
    pub whole_groups: bool,
    /// Whether every active node has said that it knows of these settings, so that none serves without a lease where it
    /// needs one. Until then nobody is failed over automatically.
    pub armed: bool,
    /// The version of the metadata since which leases are asked for as they are now.
    pub since: u64,
    /// The longest lease that may have been granted by settings from before `since`, where it is longer than those of now. It is kept
    /// until every active node has said that it knows better, or has been silent for as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_lease_ms: Option<u64>,
    /// Whether every active node serves by leases: all have said so once, and leases have been asked for ever since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_leased: bool,
}

impl Default for AutoFailover {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout_secs: 30,
            max_count: 1,
            count: 0,
            whole_groups: false,
            armed: false,
            since: 0,
            earlier_lease_ms: None,
            is_leased: false,
        }
    }
}
