//! What operators ask of the cluster, at any of its nodes.

use std::sync::Arc;

use base::{BucketUuid, NodeId};
use cluster::{
    BucketInfo, BucketParams, Command, FailOver, Membership, Metadata, NodeInfo, Recovery,
    StartGracefulFailover, StartRebalance,
};

use super::{World, info};
use crate::{machine::Machine, process::Process};

/// As many vBuckets as a bucket has at least.
const VBUCKETS: u16 = 16;
/// Nodes that there are at most, and that stay at least.
const NODES_MAX: usize = 6;
const NODES_MIN: usize = 3;
const BUCKETS_MAX: usize = 3;
/// A failover after so many seconds does not happen in the time of a run.
const NO_FAILOVER_SECS: u32 = 3_600;
/// Rebalances after which everybody has to take part, when nothing goes wrong any more.
const TRIES_MAX: usize = 5;

impl World {
    /// Settings of automatic failover, and a first bucket. Where nobody is replaced, half of the worlds have nodes serve under
    /// leases all the same.
    pub(crate) fn set_up(&mut self, replicas: u8) {
        // Long leases are a matter of their own: others may be failed over by hand meanwhile.
        let factor = if self.rng.bool() { 1 } else { 4 };
        let timeout_secs = self.faults.auto_failover_secs.map_or(NO_FAILOVER_SECS, |secs| secs * factor);
        let enabled = self.faults.auto_failover_secs.is_some() || self.rng.bool();
        let set = Command::SetAutoFailover { enabled, timeout_secs, max_count: 100, whole_groups: false };
        self.propose(set);
        self.until("automatic failover as asked for", |world| {
            let settings = &world.newest().auto_failover;
            (settings.enabled, settings.timeout_secs) == (enabled, timeout_secs)
        });
        let name = self.create_bucket(replicas);
        self.until("a bucket", |world| world.newest().buckets.contains_key(&name));
    }

    /// One step's requests.
    pub(super) fn operate(&mut self) {
        let faults = self.faults;
        let newest = Arc::clone(self.newest());
        if self.happens(faults.failover) && self.may_lose_something() {
            self.fail_over(&newest);
        }
        if self.happens(faults.rebalance) {
            self.change_nodes(&newest);
        }
        if self.happens(faults.bucket) {
            if newest.buckets.len() < BUCKETS_MAX && self.rng.bool() {
                let replicas = self.rng.u8(1..=2);
                self.create_bucket(replicas);
            } else if newest.buckets.len() > 1
                && let Some(name) = self.rng.choice(newest.buckets.keys().collect::<Vec<_>>())
            {
                self.propose(Command::DeleteBucket { name: name.clone() });
            }
        }
    }

    fn create_bucket(&mut self, replicas: u8) -> String {
        self.made += 1;
        let name = format!("b{}", self.made);
        let params = BucketParams {
            ram_quota_mb: Some(100),
            replicas: Some(replicas),
            vbuckets: Some(VBUCKETS),
            ..BucketParams::default()
        };
        let uuid = BucketUuid(format!("{:032x}", self.made));
        self.propose(Command::CreateBucket { name: name.clone(), uuid, params });
        name
    }

    /// Fails a node over by hand, whether it runs or not, where nothing is lost by that.
    fn fail_over(&mut self, newest: &Metadata) {
        let mut active: Vec<NodeId> = newest.active_nodes().map(|node| node.id).collect();
        // Rather one that others cannot hear.
        let unheard = active.iter().copied().filter(|id| self.network.is_unheard(*id));
        let unheard: Vec<NodeId> = unheard.collect();
        if !unheard.is_empty() && self.rng.u8(0..4) > 0 {
            active = unheard;
        }
        let Some(id) = self.rng.choice(active) else { return };
        let nodes = vec![id];
        if newest.unsafe_without(&nodes).is_none() {
            self.propose(Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false }));
        }
    }

    fn change_nodes(&mut self, newest: &Metadata) {
        let active: Vec<NodeId> = newest.active_nodes().map(|node| node.id).collect();
        let now_ms = self.journal.now;
        match self.rng.u8(0..8) {
            0 | 1 if newest.nodes.len() < NODES_MAX => {
                let node = info(NodeId(newest.next_node));
                self.propose(Command::AddNode(NodeInfo { membership: Membership::InactiveAdded, ..node }));
            }
            2 if active.len() > NODES_MIN => {
                if let Some(id) = self.rng.choice(active) {
                    self.start_rebalance(newest, &[id]);
                }
            }
            3 => self.propose(Command::StopRebalance { now_ms }),
            4 if active.len() > NODES_MIN => {
                if let Some(node) = self.rng.choice(active) {
                    let (id, nodes) = (self.name_rebalance(), vec![node]);
                    let start = StartGracefulFailover { id, nodes, now_ms };
                    self.propose(Command::StartGracefulFailover(start));
                }
            }
            _ => {
                self.recover_the_failed(newest);
                self.start_rebalance(newest, &[]);
            }
        }
    }

    fn name_rebalance(&mut self) -> String {
        self.made += 1;
        format!("r{}", self.made)
    }

    /// Nodes that were failed over come back with the next rebalance, with or without what they have.
    fn recover_the_failed(&mut self, newest: &Metadata) {
        for node in newest.nodes.iter().filter(|node| node.membership == Membership::InactiveFailed) {
            let recovery = Some(if self.rng.bool() { Recovery::Delta } else { Recovery::Full });
            self.propose(Command::SetRecovery { node: node.id, recovery });
        }
    }

    fn start_rebalance(&mut self, newest: &Metadata, eject: &[NodeId]) -> String {
        let id = self.name_rebalance();
        let keep = newest.nodes.iter().map(|node| node.id).filter(|id| !eject.contains(id)).collect();
        let start = StartRebalance { id: id.clone(), keep, eject: eject.to_vec(), now_ms: self.journal.now };
        self.propose(Command::StartRebalance(start));
        self.tally.rebalances += 1;
        id
    }

    /// Has everybody take part, and every copy be there. Rebalances that were asked for before may come first.
    pub(super) fn bring_everybody_in(&mut self) {
        for _ in 0..TRIES_MAX {
            self.until("an end of all that was asked for", |world| {
                world.is_settled() && !world.processes().any(Process::has_proposed)
            });
            if self.is_everybody_in() {
                return;
            }
            let newest = Arc::clone(self.newest());
            self.recover_the_failed(&newest);
            self.start_rebalance(&newest, &[]);
        }
        panic!("rebalances end, and not everybody takes part: {:#?}", self.newest());
    }

    fn is_everybody_in(&self) -> bool {
        let newest = self.newest();
        let active = newest.active_nodes().count();
        let lacks = |bucket: &BucketInfo| {
            bucket.vbs.iter().any(|plan| plan.chain.len() != bucket.copies().min(active))
        };
        active == newest.nodes.len() && !newest.buckets.values().any(lacks)
    }

    /// Asks some node to have the cluster agree on something.
    fn propose(&mut self, command: Command) {
        let at = self.journal.now;
        let running = self.machines.values().filter(|machine| machine.process.is_some());
        let running: Vec<NodeId> = running.map(Machine::id).collect();
        let Some(id) = self.rng.choice(running) else { return };
        let machine = self.machine(id);
        let ms = machine.clock.now(at).mono_millis;
        if let Some(process) = &mut machine.process {
            process.propose(command, false, ms);
        }
    }
}
