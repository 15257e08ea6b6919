//! What the node that leads does for all of them: it hears their reports and says what to propose next
//! ([`cluster::orchestrator`]).
//!
//! What is known is lost with the leadership, and nearly all of it wherever this process was held up for long: who leads next, or
//! goes on, finds the rest of the plan in the metadata, and counts everybody's silence anew. Times are milliseconds of a clock that
//! does not jump.

use std::collections::BTreeMap;

use base::NodeId;
use cluster::{Command, Metadata, NodeReport, Orchestrator, orchestrator::Health};

/// A node is not called silent before it has had so long to report.
const FIRST_REPORT_MILLIS: u64 = 3_000;
/// Whoever has not looked for so long cannot tell who else was silent.
const HELD_UP_MILLIS: u64 = 1_000;

/// See the module. One per node, at work on the leader only.
#[derive(Debug, Default)]
pub struct Leadership {
    /// Present while this node leads.
    orchestrator: Option<Orchestrator>,
    looked_at: u64,
    /// Since when which nodes could have reported.
    awaited: BTreeMap<NodeId, u64>,
}

impl Leadership {
    /// What is to be proposed now. `leads`: this node does, and knows all that was agreed on before.
    pub fn look(&mut self, leads: bool, metadata: &Metadata, now: u64) -> Vec<Command> {
        if !leads {
            self.orchestrator = None;
            return Vec::new();
        }
        let is_held_up = now.saturating_sub(self.looked_at) > HELD_UP_MILLIS;
        if is_held_up {
            self.orchestrator = self.orchestrator.take().map(Orchestrator::begun_anew);
        }
        if is_held_up || self.orchestrator.is_none() {
            self.awaited.clear();
        }
        self.awaited.retain(|id, _| metadata.node_by_id(*id).is_some());
        for node in &metadata.nodes {
            self.awaited.entry(node.id).or_insert(now);
        }
        self.looked_at = now;
        self.orchestrator.get_or_insert_with(Orchestrator::new).step(metadata, now)
    }

    /// Takes a node's report: whether it says anything that the last one did not, or `None` when nobody here listens, or
    /// not to a node that is none of the cluster's.
    pub fn take(&mut self, metadata: &Metadata, report: NodeReport, now: u64) -> Option<bool> {
        let orchestrator = self.orchestrator.as_mut()?;
        let is_news = orchestrator.last_report(report.node) != Some(&report);
        orchestrator.report(metadata, report, now).then_some(is_news)
    }

    /// What knows the nodes, while this one leads.
    #[must_use]
    pub fn orchestrator(&self) -> Option<&Orchestrator> {
        self.orchestrator.as_ref()
    }

    /// Whether a node could have reported, and has not of late.
    #[must_use]
    pub fn is_silent(&self, node: NodeId, now: u64) -> bool {
        let is_new =
            self.awaited.get(&node).is_none_or(|since| now.saturating_sub(*since) < FIRST_REPORT_MILLIS);
        let unheard = |orchestrator: &Orchestrator| orchestrator.health(node, now) == Health::Unhealthy;
        !is_new && self.orchestrator.as_ref().is_some_and(unheard)
    }
}

#[cfg(test)]
mod tests {
    use cluster::{NodeInfo, Ports};

    use super::*;

    fn report() -> NodeReport {
        NodeReport {
            node: NodeId(0),
            uuid: "n".into(),
            boot: 1,
            applied: 0,
            data_quota: 0,
            data_used: 0,
            disk_total: 0,
            disk_free: 0,
            buckets: Vec::new(),
        }
    }

    #[test]
    fn only_a_leader_listens_and_one_that_was_held_up_begins_anew() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes.push(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let mut leadership = Leadership::default();
        assert_eq!(leadership.take(&metadata, report(), 1), None);
        leadership.look(true, &metadata, 10);
        assert_eq!(leadership.take(&metadata, report(), 11), Some(true));
        assert_eq!(leadership.take(&metadata, report(), 12), Some(false), "the same again");
        leadership.look(true, &metadata, 1_000);
        assert_eq!(leadership.take(&metadata, report(), 1_001), Some(false));
        leadership.look(true, &metadata, 2_001);
        assert_eq!(leadership.take(&metadata, report(), 2_002), Some(true), "it has forgotten all");
        assert!(!leadership.is_silent(NodeId(0), 5_000), "not yet");
        leadership.look(true, &metadata, 3_000);
        assert!(leadership.is_silent(NodeId(0), 9_000));
        leadership.look(false, &metadata, 9_001);
        assert_eq!(leadership.take(&metadata, report(), 9_002), None);
    }

    #[test]
    fn a_stranger_is_not_listened_to() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes.push(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let mut leadership = Leadership::default();
        leadership.look(true, &metadata, 10);
        leadership.take(&metadata, report(), 11);
        let stranger = NodeReport { uuid: "what it was before it joined".into(), ..report() };
        assert_eq!(leadership.take(&metadata, stranger, 12), None);
        leadership.look(true, &metadata, 13);
        assert_eq!(
            leadership.take(&metadata, report(), 14),
            Some(false),
            "what was said before still stands"
        );
    }
}
