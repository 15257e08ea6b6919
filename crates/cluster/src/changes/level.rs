//! What a change needs of the cluster's level ([`crate::metadata::level`]), and how the level rises.

use base::NodeId;
use serde_json::Value;

use crate::{
    changes::Command,
    metadata::{
        ClusterError, Metadata, NodeInfo,
        error::refused,
        level::{
            ADDED_ARE_NAMED, ALTERNATE_ADDRESSES, ARMED_BY_VERSION, DESIGN_DOCUMENTS, DESIGN_DOCUMENTS_OVER,
            MEANT_NAMED, NODE_KEYS, OBJECTIVES, PROPOSALS_PLACED, SETTINGS_REPLACED, STATES_TOLD,
            STATES_WITHOUT_WORDS, TELEMETRY,
        },
        telemetry::TELEMETRY_SETTING,
    },
};

impl Command {
    /// The lowest level of a cluster that may agree on this.
    #[must_use]
    pub fn level(&self) -> u32 {
        match self {
            Self::ArmAutoFailoverSince { .. } => ARMED_BY_VERSION,
            Self::SetAlternateAddress { .. } => ALTERNATE_ADDRESSES,
            Self::SetNodeKey { .. }
            | Self::RetireAuthority
            | Self::AddNode(NodeInfo { key: Some(_), .. })
            | Self::SetNode(NodeInfo { key: Some(_), .. }) => NODE_KEYS,
            Self::ChangeDesignDocument(change) if change.over.is_some() => DESIGN_DOCUMENTS_OVER,
            Self::ChangeDesignDocument(_) => DESIGN_DOCUMENTS,
            Self::ChangeObjective(_) => OBJECTIVES,
            Self::ReplaceSetting { .. } => SETTINGS_REPLACED,
            Self::ChangeBucket { .. }
            | Self::StopRebalance { id: Some(_), .. }
            | Self::ChangeAutoFailover(_) => MEANT_NAMED,
            Self::PutSetting { path, .. } if path == TELEMETRY_SETTING => TELEMETRY,
            // Older nodes would show the password.
            Self::PutSetting { path, value } if path == "alerts" && value.get("emailServer").is_some() => {
                TELEMETRY
            }
            // Older nodes would take a silence for one node as one for all.
            Self::PutSetting { path, value } if path == "settee/alerts/silences" && names_node(value) => {
                TELEMETRY
            }
            _ => 0,
        }
    }
}

/// Whether one of the silences is for one node.
fn names_node(silences: &Value) -> bool {
    let mut silences = silences.as_object().into_iter().flat_map(|kept| kept.values());
    silences.any(|silence| silence.get("node").is_some_and(|node| !node.is_null()))
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

    /// Whether hashes of states leave out the words of refusals. Every member has to leave them out from the same place of the log on.
    #[must_use]
    pub fn tells_states_without_words(&self) -> bool {
        self.level >= STATES_WITHOUT_WORDS
    }

    /// Whether an unsafe failover may name nodes that were only added.
    #[must_use]
    pub fn names_added_nodes(&self) -> bool {
        self.level >= ADDED_ARE_NAMED
    }

    /// Whether every member understands changes of design documents that say which revision they replace.
    #[must_use]
    pub fn knows_replaced_revisions(&self) -> bool {
        self.level >= DESIGN_DOCUMENTS_OVER
    }

    /// Whether every member understands three kinds of changes. One names its bucket by uuid, one its rebalance by id. One changes some settings
    /// of automatic failover, and leaves the others.
    #[must_use]
    pub fn names_what_is_meant(&self) -> bool {
        self.level >= MEANT_NAMED
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
    use serde_json::json;

    use super::*;
    use crate::metadata::{NodeInfo, Ports};

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
    fn settings_wait_for_nodes_that_would_show_a_password_or_take_them_for_more() {
        let put = |path: &str, value| Command::PutSetting { path: path.into(), value };
        let server = put("alerts", json!({ "enabled": true, "emailServer": { "pass": "p" } }));
        assert_eq!(server.level(), TELEMETRY);
        assert_eq!(put("alerts", json!({ "enabled": true })).level(), 0, "as older versions wrote it");
        let silence = |one| put("settee/alerts/silences", json!({ "other": {}, "id": one }));
        assert_eq!(silence(json!({ "alert": "a", "node": "n" })).level(), TELEMETRY);
        assert_eq!(silence(json!({ "alert": "a" })).level(), 0);
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
