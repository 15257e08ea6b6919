//! The level of the metadata: what every member of the cluster understands of changes, of their formats, and of how they are carried
//! out.
//!
//! A node says the highest level that it understands when it joins, and in every report. The leader raises the cluster's level once
//! every member has said so. A change that needs more than the cluster's level is refused before it is proposed, and by every node
//! alike should it be proposed all the same. The level never sinks, so a node that understands less takes no part any more.
//!
//! Invariants: nothing above the cluster's level is in its log, but for the change that raises it; how a change is carried out depends
//! on nothing but the change and the metadata, the level among them.
//!
//! | level | since then |
//! |---|---|
//! | 0 | versions that say nothing of levels |
//! | 1 | automatic failover is armed by the version of its settings ([`Command::ArmAutoFailoverSince`]); nodes have alternate addresses |
//! | 2 | a proposal says which of its proposer's have not ended ([`crate::consensus::Place`]), and how they ended is remembered by that |
//! | 3 | nodes tell hashes of what they have agreed on ([`crate::divergence`]) |
//! | 4 | a rebalance that recovers a node serves what it holds of vBuckets that are given up meanwhile; nodes tell what they hold of those |
//! | 5 | nodes have keys of their own ([`crate::auth::NodeKey`]); a node without one is not added |
//! | 6 | buckets have design documents ([`crate::design_documents`]) |
//! | 7 | what nodes held when they were failed over is remembered until it is decided which node serves it. That holds through any number of failovers and stopped recoveries. A copy that is being built is no other copy. The next failover of a node waits for an earlier lease of it |
//! | 8 | buckets have objectives ([`crate::objectives`]) |
//! | 9 | a failover while a chain changes has the remaining nodes of the chain before asked as well. A flush ends no election. Where no node has a vBucket, every recovered node is asked, also if more nodes held it than it is to have copies |
//! | 10 | a node that was failed over gracefully is remembered until the copies that are left are known to hold what it holds |
//!
//! A new version that carries out a known change in another way, an order of nodes among ties for instance, takes the next level
//! and keeps the former way below it.

use base::NodeId;

use crate::{ClusterError, Command, Metadata, NodeInfo, members::refused};

/// The highest level that this version understands; that of every cluster that it founds.
pub const LEVEL: u32 = 10;
/// From here on automatic failover is armed by the version of its settings.
pub(crate) const ARMED_BY_VERSION: u32 = 1;
/// From here on proposals have a [`crate::consensus::Place`].
pub(crate) const PROPOSALS_PLACED: u32 = 2;
/// From here on nodes tell hashes of their state.
pub(crate) const STATES_TOLD: u32 = 3;
/// From here on a rebalance that recovers a node serves what it holds of vBuckets that are given up meanwhile.
pub(crate) const GIVEN_UP_RECOVERED: u32 = 4;
/// From here on nodes have keys of their own.
pub(crate) const NODE_KEYS: u32 = 5;
/// From here on buckets have design documents.
const DESIGN_DOCUMENTS: u32 = 6;
/// From here on a second failover, and a recovery that is stopped, forget nothing that is still needed.
pub(crate) const FAILOVERS_REMEMBERED: u32 = 7;
/// From here on buckets have objectives.
pub(crate) const OBJECTIVES: u32 = 8;
/// From here on all that are left and may know more are asked: of the chain before one that changes, and of those that held what nobody
/// has. No flush ends an election.
pub(crate) const LIVING_ASKED: u32 = 9;
/// From here on nodes that were failed over gracefully are remembered until the others are known to hold what these hold.
pub(crate) const LEAVERS_KEPT: u32 = 10;
/// From here on nodes have alternate addresses.
const ALTERNATE_ADDRESSES: u32 = 1;

impl Command {
    /// The lowest level of a cluster that may agree on this.
    #[must_use]
    pub const fn level(&self) -> u32 {
        match self {
            Self::ArmAutoFailoverSince { .. } => ARMED_BY_VERSION,
            Self::SetAlternateAddress { .. } => ALTERNATE_ADDRESSES,
            Self::SetNodeKey { .. }
            | Self::RetireAuthority
            | Self::AddNode(NodeInfo { key: Some(_), .. })
            | Self::SetNode(NodeInfo { key: Some(_), .. }) => NODE_KEYS,
            Self::ChangeDesignDocument(_) => DESIGN_DOCUMENTS,
            Self::ChangeObjective(_) => OBJECTIVES,
            _ => 0,
        }
    }
}

impl Metadata {
    /// Whether every member understands a command.
    ///
    /// # Errors
    /// What to do where some do not.
    pub fn admits(&self, command: &Command) -> Result<(), ClusterError> {
        let (needed, level) = (command.level(), self.level);
        if needed <= level {
            return Ok(());
        }
        Err(refused(format!(
            "This change needs metadata of level {needed}, and the cluster is at level {level}. Start every node of the cluster with \
             the newer version, or remove the nodes that cannot be, and try again."
        )))
    }

    /// Whether every member understands proposals that have a [`crate::consensus::Place`].
    #[must_use]
    pub fn places_proposals(&self) -> bool {
        self.level >= PROPOSALS_PLACED
    }

    /// Whether every member has, or is about to have, a key of its own.
    #[must_use]
    pub fn has_node_keys(&self) -> bool {
        self.level >= NODE_KEYS
    }

    /// Whether every member understands hashes of states.
    #[must_use]
    pub fn tells_states(&self) -> bool {
        self.level >= STATES_TOLD
    }

    /// Whether a node that understands metadata up to `level` may join.
    ///
    /// # Errors
    /// What to do where it may not.
    pub fn admits_level(&self, level: u32) -> Result<(), ClusterError> {
        check(self.level, level)
    }

    /// What raises the level, if every member has said that it understands more: `said` is the highest level that a node does.
    #[must_use]
    pub fn next_level(&self, said: impl Fn(NodeId) -> Option<u32>) -> Option<Command> {
        let all = self.nodes.iter().map(|node| said(node.id)).collect::<Option<Vec<_>>>()?;
        let level = all.into_iter().min().filter(|level| *level > self.level)?;
        Some(Command::RaiseLevel { level, nodes: self.nodes.iter().map(|node| node.id).collect() })
    }

    /// Whether the level rises, once `nodes` have said that they understand `level`. Versions below that level ask this as well: the
    /// answer stays what it is.
    pub(crate) fn may_raise(&self, level: u32, nodes: &[NodeId]) -> Result<(), ClusterError> {
        if level <= self.level {
            return Err(refused("The metadata are at that level."));
        }
        if self.nodes.iter().any(|node| !nodes.contains(&node.id)) {
            return Err(refused("Another node was added at the same time."));
        }
        Ok(())
    }

    /// `nodes` have said that they understand `level`.
    pub(crate) fn raise_level(&mut self, level: u32, nodes: &[NodeId]) -> Result<(), ClusterError> {
        self.may_raise(level, nodes)?;
        self.level = level;
        // One that is about to be added was let in by the level before. It has to be looked at again, and is, under another number.
        self.next_node = self.next_node.saturating_add(1);
        Ok(())
    }
}

/// Whether a node that understands metadata up to `own` may take part where they are at `level`.
///
/// # Errors
/// What to do where it may not.
pub fn check(level: u32, own: u32) -> Result<(), ClusterError> {
    if level <= own {
        return Ok(());
    }
    Err(refused(format!(
        "The cluster's metadata are at level {level}, and the node understands them up to level {own}. Start the node with the \
         version that the other nodes run, or a later one, and try again."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeInfo, Ports};

    fn of_two() -> Metadata {
        let node = |id: u16| {
            let first = NodeInfo::first(format!("n{id}"), format!("h{id}"), Ports::default());
            NodeInfo { id: NodeId(id), ..first }
        };
        let commands = [Command::SetNode(node(0)), Command::AddNode(node(1))];
        let founded = Metadata { level: 0, ..Metadata::new("c".into(), 256) };
        commands.iter().fold(founded, |state, command| state.apply(command).unwrap().0)
    }

    #[test]
    fn the_level_is_what_every_member_understands() {
        let state = of_two();
        let raise = |levels: [Option<u32>; 2]| state.next_level(|node| levels[usize::from(node.get())]);
        assert_eq!(raise([Some(1), None]), None, "one has said nothing");
        assert_eq!(raise([Some(1), Some(0)]), None);
        let nodes = vec![NodeId(0), NodeId(1)];
        assert_eq!(raise([Some(3), Some(2)]), Some(Command::RaiseLevel { level: 2, nodes: nodes.clone() }));
        let raised = state.apply(&Command::RaiseLevel { level: 1, nodes: nodes.clone() }).unwrap().0;
        assert_eq!(raised.level, 1);
        assert!(raised.apply(&Command::RaiseLevel { level: 1, nodes }).is_err(), "it never sinks");
    }

    #[test]
    fn a_node_that_is_added_while_the_level_rises_is_looked_at_again() {
        let state = of_two();
        let raise = Command::RaiseLevel { level: 1, nodes: vec![NodeId(0), NodeId(1)] };
        let add = Command::AddNode(NodeInfo {
            id: NodeId(2),
            ..NodeInfo::first("n2".into(), "h2".into(), Ports::default())
        });
        let added = state.apply(&add).unwrap().0;
        assert!(added.apply(&raise).is_err(), "nobody has asked the third");
        let raised = state.apply(&raise).unwrap().0;
        assert!(raised.apply(&add).is_err(), "it was let in by the level before");
        assert!(raised.admits_level(0).unwrap_err().to_string().contains("Start the node with"));
        assert!(raised.admits_level(1).is_ok());
    }

    #[test]
    fn a_command_above_the_level_is_refused() {
        let state = of_two();
        let above = Command::ArmAutoFailoverSince { since: state.auto_failover.since };
        let text = state.apply(&above).unwrap_err().to_string();
        assert!(text.contains("level 1") && text.contains("Start every node"), "{text}");
        let elsewhere = Command::SetAlternateAddress { node: NodeId(0), address: None };
        assert!(state.apply(&elsewhere).is_err(), "older nodes do not know it");
        let raised = Metadata { level: 1, ..state };
        assert!(raised.apply(&elsewhere).is_ok());
        assert!(raised.apply(&above).is_ok());
    }
}
