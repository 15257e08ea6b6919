//! Nodes of older versions, which are replaced by newer ones one after the other while other things go wrong.
//!
//! What tells versions apart here is the highest level of the metadata that they understand. An older version takes no part any
//! more once something is agreed on that it does not know. Where a process reads its messages, the simulation checks that this never
//! happens. This module checks it earlier. The level rises only where every member has a version that understands it, and nobody proposes
//! what some member does not understand.

use std::{collections::BTreeMap, sync::Arc};

use base::NodeId;
use cluster::{Command, Metadata, consensus::Proposal, level::LEVEL};
use fastrand::Rng;

use super::World;
use crate::{faults::Faults, machine::End};

/// The highest levels that nodes understand: of each that was ever offered to the cluster, as it is installed now.
#[derive(Debug, Default)]
pub(super) struct Versions {
    installed: BTreeMap<NodeId, u32>,
    pub(super) replaced: u64,
    pub(super) rises: u64,
}

impl Versions {
    /// The level that a cluster begins at, by the version that all of its nodes have.
    pub(super) fn at_first(seed: u64, faults: &Faults) -> u32 {
        if faults.has_versions() { (seed % u64::from(LEVEL)) as u32 } else { LEVEL }
    }

    pub(super) fn install(&mut self, node: NodeId, level: u32) {
        self.installed.insert(node, level);
    }

    /// What is installed on a node.
    pub(super) fn of(&self, node: NodeId) -> u32 {
        self.installed.get(&node).copied().unwrap_or(LEVEL)
    }

    /// A node is offered under a number. It stays what it is if it is offered again.
    pub(super) fn offer(&mut self, node: NodeId, rng: &mut Rng, metadata: &Metadata) {
        if metadata.level < LEVEL {
            self.installed.entry(node).or_insert_with(|| rng.u32(metadata.level..=LEVEL));
        }
    }

    /// The cluster has agreed on a change.
    pub(super) fn changed(&mut self, before: &Metadata, after: &Metadata) {
        assert!(after.level >= before.level, "the level sinks from {} to {}", before.level, after.level);
        if after.level > before.level {
            self.rises += 1;
        }
        if after.level > before.level || after.nodes.len() > before.nodes.len() {
            self.check(after, after.level, "the cluster's level");
        }
    }

    /// A node proposes something.
    pub(super) fn proposed(&self, newest: &Metadata, proposal: &Proposal) {
        let needed = match &proposal.command {
            Command::RaiseLevel { level, nodes } => {
                let older = nodes.iter().find(|node| self.of(**node) < *level);
                assert_eq!(older, None, "it does not understand level {level}, which is proposed");
                return;
            }
            command => command.level(),
        };
        self.check(newest, needed, "what is proposed");
        assert!(proposal.place.is_none() || newest.places_proposals(), "{proposal:?} has a place");
    }

    fn check(&self, metadata: &Metadata, needed: u32, what: &str) {
        for node in &metadata.nodes {
            let known = self.of(node.id);
            assert!(known >= needed, "{} understands level {known}, and {what} is {needed}", node.id);
        }
    }
}

impl World {
    /// Whether every member is there and understands more than the cluster's level.
    pub(super) fn is_about_to_rise(&self, metadata: &Metadata) -> bool {
        let is_there = |id| {
            let process = self.machines.get(&id).and_then(|machine| machine.process.as_ref());
            process.is_some_and(|process| process.caught_up)
        };
        let understands = |id| self.versions.of(id) > metadata.level && is_there(id);
        metadata.level < LEVEL && metadata.nodes.iter().all(|node| understands(node.id))
    }

    /// Ends a node, and starts it with a newer version.
    pub(super) fn replace_version(&mut self) {
        let older = self.ids().into_iter().filter(|id| self.versions.of(*id) < LEVEL);
        let Some(id) = self.rng.choice(older.collect::<Vec<_>>()) else { return };
        // A clean stop loses nothing, whatever others have lost.
        let ends = [End::Clean, End::Clean, End::Killed, End::PowerLoss];
        let end = if self.may_lose_something() { ends[self.rng.usize(0..ends.len())] } else { End::Clean };
        let level = self.rng.u32(self.versions.of(id) + 1..=LEVEL);
        let down = self.rng.u64(50..3_000);
        self.install(id, level, end, down);
    }

    fn install(&mut self, id: NodeId, level: u32, end: End, down: u64) {
        self.stop(id, end);
        self.journal.note(format_args!("{id} gets a version that understands level {level}"));
        self.versions.install(id, level);
        self.versions.replaced += 1;
        self.tally.newer_versions += 1;
        let starts_at = self.journal.now + down;
        let machine = self.machine(id);
        machine.starts_at = machine.starts_at.max(starts_at);
    }

    /// Every node gets the newest version, one after the other; then the cluster has to get its level.
    pub(super) fn bring_versions_up_to_date(&mut self) {
        let nodes: Vec<NodeId> = self.newest().nodes.iter().map(|node| node.id).collect();
        for id in nodes {
            if self.versions.of(id) < LEVEL && self.machines.contains_key(&id) {
                self.install(id, LEVEL, End::Clean, 100);
                self.until("quiet after a new version", Self::is_settled);
            }
        }
        self.until("the newest version's level", |world| world.newest().level == LEVEL);
    }

    /// What a step of a process has proposed.
    pub(super) fn check_proposed(&self, proposed: &[Proposal]) {
        let newest = Arc::clone(self.newest());
        proposed.iter().for_each(|proposal| self.versions.proposed(&newest, proposal));
    }
}
