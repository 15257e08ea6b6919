//! What the node that leads does for all of them: it hears their reports and says what to propose next
//! ([`cluster::orchestrator`]).
//!
//! This knowledge is lost with the leadership, and nearly all of it where this process was held up for long. The next
//! leader, or this one going on, finds the rest of the plan in the metadata. It counts every node's silence anew. Times
//! are milliseconds of a clock that does not jump.

use std::{
    collections::BTreeMap,
    mem::{Discriminant, discriminant},
};

use base::NodeId;
use cluster::{Command, Metadata, NodeReport, Orchestrator, orchestrator::Health};

/// A node is not called silent before it has had so long to report.
const FIRST_REPORT_MILLIS: u64 = 3_000;
/// Between two looks when nobody reports anything.
const IDLE_MILLIS: u64 = 250;
/// The same while vBuckets move: of one that nobody serves it is seen at once that its time is up.
const MOVING_MILLIS: u64 = 50;
/// Between two looks at least.
const LOOKS_APART_MILLIS: u64 = 10;
/// A leader that has not looked for so long cannot tell which nodes were silent.
const HELD_UP_MILLIS: u64 = 1_000;

/// See the module. One per node, at work on the leader only.
#[derive(Debug, Default)]
pub struct Leadership {
    /// Raft's term that this node leads in. What is known belongs to that term. Another node may have led since an earlier one, and
    /// have let nodes serve that this one has not heard since.
    term: Option<u64>,
    /// Present while this node leads.
    orchestrator: Option<Orchestrator>,
    looked_at: u64,
    /// When this node last looked, whether it led or not.
    tried_at: Option<u64>,
    /// Something happened since that may ask for more.
    has_news: bool,
    /// Since when which nodes could have reported.
    awaited: BTreeMap<NodeId, u64>,
    /// Kinds of commands that were proposed in this term and have not ended.
    in_flight: Vec<Discriminant<Command>>,
}

/// What the leader makes of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// It says something that the last one did not.
    pub is_news: bool,
    /// So long may the node's actives serve from when it was sent; `None` where no lease is needed, or none granted.
    pub lease_millis: Option<u64>,
    /// The node's metadata differ from those of most nodes since that change: it is to take part in nothing any more
    /// ([`Participant::fence`](crate::Participant::fence)).
    pub diverged: Option<u64>,
}

impl Leadership {
    /// For how many milliseconds nothing is to be looked at, unless something happens meanwhile ([`Leadership::take`],
    /// [`Leadership::ended`]).
    #[must_use]
    pub fn rests_for(&self, metadata: &Metadata, now: u64) -> u64 {
        let Some(at) = self.tried_at else { return 0 };
        let pause = match metadata.rebalance {
            _ if self.has_news => LOOKS_APART_MILLIS,
            Some(_) => MOVING_MILLIS,
            None => IDLE_MILLIS,
        };
        (at + pause).saturating_sub(now)
    }

    /// What is to be proposed now, without waiting for what was proposed before. [`Leadership::ended`] is to be called with each
    /// command when it has ended, in whatever way. `term`: this node leads in that one, and knows all that was agreed on before.
    pub fn look(&mut self, term: Option<u64>, metadata: &Metadata, now: u64) -> Vec<Command> {
        (self.tried_at, self.has_news) = (Some(now), false);
        if self.term != term {
            self.orchestrator = None;
            self.in_flight.clear();
            self.term = term;
        }
        if term.is_none() {
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
        let mut commands = self.orchestrator.get_or_insert_with(Orchestrator::new).step(metadata, now);
        // One that takes long must not keep others from being proposed, nor is it to be made over and over.
        commands.retain(|command| !self.in_flight.contains(&discriminant(command)));
        self.in_flight.extend(commands.iter().map(discriminant));
        commands
    }

    /// A command that was to be proposed in that term has been carried out (`is_done`), was refused, or was given up. A command that was
    /// carried out may ask for the next one. After any other the leader of that time looks again when its pause is over.
    pub fn ended(&mut self, term: u64, command: &Command, is_done: bool) {
        self.has_news |= is_done;
        // One of an earlier term may end late, when this term has proposed another of its kind.
        if self.term == Some(term) {
            self.in_flight.retain(|kind| *kind != discriminant(command));
        }
    }

    /// Takes a node's report that came at `came`, after a majority has confirmed that this node led in `term` when it had come
    /// ([`crate::Confirmations`]). `agreed` is what had been agreed on, as far as it is known here. `None` when nobody here listens in
    /// that term, or not to a node that is none of the cluster's.
    pub fn take(&mut self, term: u64, agreed: &Metadata, report: NodeReport, came: u64) -> Option<Taken> {
        if self.term != Some(term) {
            return None;
        }
        let orchestrator = self.orchestrator.as_mut()?;
        let (node, lease_millis) = (report.node, agreed.lease_for(&report));
        let is_news = orchestrator.last_report(node) != Some(&report);
        let is_ours = orchestrator.report(agreed, report, came);
        self.has_news |= is_ours && is_news;
        let diverged = orchestrator.divergence().fenced().get(&node).copied();
        let lease_millis = lease_millis.filter(|_| diverged.is_none());
        is_ours.then_some(Taken { is_news, lease_millis, diverged })
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
    use cluster::{
        NodeInfo, Ports, Rebalance, RebalanceKind,
        consensus::{Epoch, StateMark, StateMarks},
    };

    use super::*;
    use crate::fixture::report;

    fn node(id: u16) -> NodeInfo {
        let node = NodeInfo::first(id.to_string(), format!("10.0.0.{id}"), Ports::default());
        NodeInfo { id: NodeId(id), ..node }
    }

    /// Whether what a node reports is news, if anybody listens.
    fn take(leadership: &mut Leadership, metadata: &Metadata, report: NodeReport, now: u64) -> Option<bool> {
        leadership.take(2, metadata, report, now).map(|taken| taken.is_news)
    }

    #[test]
    fn only_a_leader_listens_and_one_that_was_held_up_begins_anew() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes.push(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let mut leadership = Leadership::default();
        assert_eq!(take(&mut leadership, &metadata, report(), 1), None);
        leadership.look(Some(2), &metadata, 10);
        assert_eq!(take(&mut leadership, &metadata, report(), 11), Some(true));
        assert_eq!(take(&mut leadership, &metadata, report(), 12), Some(false), "the same again");
        leadership.look(Some(2), &metadata, 1_000);
        assert_eq!(take(&mut leadership, &metadata, report(), 1_001), Some(false));
        leadership.look(Some(2), &metadata, 2_001);
        assert_eq!(take(&mut leadership, &metadata, report(), 2_002), Some(true), "it has forgotten all");
        assert!(!leadership.is_silent(NodeId(0), 5_000), "not yet");
        leadership.look(Some(2), &metadata, 3_000);
        assert!(leadership.is_silent(NodeId(0), 9_000));
        leadership.look(None, &metadata, 9_001);
        assert_eq!(take(&mut leadership, &metadata, report(), 9_002), None);
    }

    #[test]
    fn a_leader_looks_sooner_where_something_happened_or_moves() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes.push(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let mut leadership = Leadership::default();
        assert_eq!(leadership.rests_for(&metadata, 100), 0, "it has never looked");
        leadership.look(Some(2), &metadata, 100);
        assert_eq!(leadership.rests_for(&metadata, 100), IDLE_MILLIS);
        take(&mut leadership, &metadata, report(), 101);
        assert_eq!(leadership.rests_for(&metadata, 101), LOOKS_APART_MILLIS - 1);
        leadership.look(Some(2), &metadata, 110);
        take(&mut leadership, &metadata, report(), 111);
        assert_eq!(leadership.rests_for(&metadata, 111), IDLE_MILLIS - 1, "the same again is no news");
        let command = Command::SetClusterName("c".into());
        leadership.ended(2, &command, false);
        assert_eq!(leadership.rests_for(&metadata, 111), IDLE_MILLIS - 1, "it was refused");
        leadership.ended(2, &command, true);
        assert_eq!(leadership.rests_for(&metadata, 120), 0);
        leadership.look(None, &metadata, 120);
        let rebalance = Rebalance {
            id: "r".into(),
            kind: RebalanceKind::Rebalance,
            keep: vec![NodeId(0)],
            eject: Vec::new(),
            started_ms: 0,
            copies: 0,
        };
        metadata.rebalance = Some(rebalance);
        assert_eq!(leadership.rests_for(&metadata, 121), MOVING_MILLIS - 1);
    }

    #[test]
    fn a_stranger_is_not_listened_to() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes.push(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let mut leadership = Leadership::default();
        leadership.look(Some(2), &metadata, 10);
        take(&mut leadership, &metadata, report(), 11);
        let stranger = NodeReport { uuid: "what it was before it joined".into(), ..report() };
        assert_eq!(take(&mut leadership, &metadata, stranger, 12), None);
        leadership.look(Some(2), &metadata, 13);
        assert_eq!(
            take(&mut leadership, &metadata, report(), 14),
            Some(false),
            "what was said before still stands"
        );
    }

    #[test]
    fn what_was_heard_in_one_term_says_nothing_in_another() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes.push(NodeInfo::first("n".into(), "h".into(), Ports::default()));
        let mut leadership = Leadership::default();
        leadership.look(Some(2), &metadata, 10);
        assert_eq!(take(&mut leadership, &metadata, report(), 11), Some(true));
        // Somebody else led in between, though nobody here had looked.
        leadership.look(Some(4), &metadata, 12);
        assert_eq!(take(&mut leadership, &metadata, report(), 13), None, "it was asked in an earlier term");
        let taken = leadership.take(4, &metadata, report(), 14);
        assert_eq!(taken, Some(Taken { is_news: true, lease_millis: None, diverged: None }));
    }

    #[test]
    fn a_node_whose_metadata_differ_gets_no_lease_and_is_told_so() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = (0..3).map(node).collect();
        let mut leadership = Leadership::default();
        leadership.look(Some(2), &metadata, 10);
        let told = |id: u16, hash| NodeReport {
            node: NodeId(id),
            uuid: id.to_string(),
            state: Some(StateMarks { epoch: Epoch::default(), marks: vec![StateMark { index: 64, hash }] }),
            ..report()
        };
        let mut now = 11;
        let mut take = |leadership: &mut Leadership, report: NodeReport| {
            now += 1;
            leadership.take(2, &metadata, report, now).unwrap()
        };
        for (id, hash) in [(0, 1), (1, 1)] {
            let taken = take(&mut leadership, told(id, hash));
            assert!(taken.lease_millis.is_some() && taken.diverged.is_none());
        }
        let taken = take(&mut leadership, told(2, 5));
        assert_eq!((taken.lease_millis, taken.diverged), (None, Some(64)));
        // What it said comes back to another leader, and it counts as down there too.
        leadership.look(Some(4), &metadata, 20);
        let taken =
            leadership.take(4, &metadata, NodeReport { diverged: Some(64), ..told(2, 5) }, 21).unwrap();
        assert_eq!((taken.lease_millis, taken.diverged), (None, Some(64)));
        for now in (500..=5_500).step_by(500) {
            leadership.look(Some(4), &metadata, now);
        }
        assert!(leadership.is_silent(NodeId(2), 5_500));
    }

    #[test]
    fn a_proposal_that_takes_long_keeps_nobody_from_being_failed_over() {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.nodes = (0..3).map(node).collect();
        metadata.auto_failover.timeout_secs = 5;
        let mut leadership = Leadership::default();
        let mut now = 0;
        let mut live = |leadership: &mut Leadership, metadata: &Metadata, nodes: &[u16], millis: u64| {
            let mut commands = Vec::new();
            for _ in 0..millis / 250 {
                now += 250;
                commands.extend(leadership.look(Some(2), metadata, now));
                for &id in nodes {
                    let report =
                        NodeReport { node: NodeId(id), uuid: id.to_string(), applied: 100, ..report() };
                    leadership.take(2, metadata, report, now);
                }
            }
            commands
        };
        // Nothing that is proposed ends.
        let arm = live(&mut leadership, &metadata, &[0, 1, 2], 1_000);
        assert_eq!(arm, [Command::ArmAutoFailoverSince { since: 0 }], "once");
        metadata.auto_failover.armed = true;
        let fail_over = live(&mut leadership, &metadata, &[0, 1], 8_000);
        let [Command::FailOver(fail_over)] = &fail_over[..] else { panic!("{fail_over:?}") };
        assert_eq!(fail_over.nodes, [NodeId(2)]);
        // It is proposed again once it is known that it has come to nothing.
        assert!(live(&mut leadership, &metadata, &[0, 1], 1_000).is_empty());
        leadership.ended(1, &Command::FailOver(fail_over.clone()), false);
        let again = live(&mut leadership, &metadata, &[0, 1], 1_000);
        assert!(again.is_empty(), "one of an earlier term has ended: {again:?}");
        leadership.ended(2, &Command::FailOver(fail_over.clone()), false);
        assert_eq!(live(&mut leadership, &metadata, &[0, 1], 1_000).len(), 1);
    }
}
