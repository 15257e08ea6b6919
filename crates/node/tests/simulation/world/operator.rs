//! What operators ask of the cluster, at any of its nodes. They wait for the answer where the next step needs it.

use std::sync::Arc;

use base::{BucketUuid, NodeId, bucket::BucketKind};
use cluster::{
    BucketInfo, BucketParams, Command, FailOver, Membership, Metadata, NodeInfo, Recovery,
    StartGracefulFailover, StartRebalance,
};

use super::{NODES_MIN, World, info};
use crate::{faults::NEVER, machine::Machine, process::Process};

/// As many vBuckets as a bucket has at least.
pub(super) const VBUCKETS: u16 = 16;
const BUCKETS_MAX: usize = 3;
/// Copies of a bucket beside the active one, at most.
const REPLICAS_MAX: u8 = 3;
/// Collections of a bucket, the default one included.
const COLLECTIONS_MAX: usize = 4;
/// A failover after so many seconds does not happen in the time of a run.
const NO_FAILOVER_SECS: u32 = 3_600;
/// Requests after which everybody has to take part, when nothing goes wrong any more.
const TRIES_MAX: usize = 10;
/// By then the leader has heard every node that runs. Nobody may be failed over any more.
const HEARD_MILLIS: u64 = 1_000;

impl World {
    /// Server groups, settings of automatic failover, and a first bucket. Where nobody is replaced, half of the worlds have
    /// nodes serve under leases all the same.
    pub(crate) fn set_up(&mut self, replicas: u8) {
        let has_groups = self.setting.groups > 1;
        if has_groups {
            self.make_groups();
        }
        // Long leases are a matter of their own: others may be failed over by hand meanwhile.
        let factor = if self.rng.bool() { 1 } else { 4 };
        let timeout_secs = self.faults.auto_failover_secs.map_or(NO_FAILOVER_SECS, |secs| secs * factor);
        let enabled = self.faults.auto_failover_secs.is_some() || self.rng.bool();
        let whole_groups = has_groups && self.rng.bool();
        self.propose(Command::SetAutoFailover { enabled, timeout_secs, max_count: 100, whole_groups });
        self.until("automatic failover as asked for", |world| {
            let settings = &world.newest().auto_failover;
            (settings.enabled, settings.timeout_secs) == (enabled, timeout_secs)
        });
        for kind in 0..self.setting.buckets_first {
            let name = self.create_bucket(kind, replicas);
            self.until("a bucket", |world| world.newest().buckets.contains_key(&name));
        }
        self.define_views();
    }

    /// One step's requests.
    pub(super) fn operate(&mut self) {
        let faults = self.faults;
        let newest = Arc::clone(self.newest());
        if self.happens(faults.failover) && self.may_lose_something() {
            self.fail_over(&newest);
        }
        self.fail_over_the_lost(&newest);
        self.part_with_the_wiped(&newest);
        if self.happens(faults.timeouts) {
            self.change_timeout();
        }
        if self.happens(faults.rebalance) {
            self.change_nodes(&newest);
        }
        // One that is let in by the present level must not be a member at the next.
        if self.is_about_to_rise(&newest)
            && newest.nodes.len() < self.setting.nodes_max
            && self.rng.u8(0..8) == 0
        {
            self.add_node(&newest);
        }
        if self.happens(faults.bucket) {
            self.change_buckets(&newest);
        }
        if self.happens(faults.flush) {
            self.flush(&newest);
        }
        if self.happens(faults.replicas) {
            self.change_replicas(&newest);
        }
        if self.happens(self.setting.collection) {
            self.change_collections(&newest);
        }
        if self.happens(self.setting.designs) {
            self.change_designs(&newest);
        }
        if self.happens(self.setting.regrouping) {
            self.assign_groups();
        }
    }

    /// After how long nodes are failed over changes, or whether they are at all.
    pub(super) fn change_timeout(&mut self) {
        let secs = self.faults.auto_failover_secs.unwrap_or(NO_FAILOVER_SECS);
        let (enabled, timeout_secs) = (self.rng.u8(0..4) > 0, secs * self.rng.u32(1..=4));
        self.propose(Command::SetAutoFailover { enabled, timeout_secs, max_count: 100, whole_groups: false });
        self.tally.timeouts_changed += 1;
    }

    fn make_groups(&mut self) {
        for number in 1..self.setting.groups {
            let uuid = group(number);
            let name = format!("group {number}");
            self.propose(Command::CreateServerGroup { uuid, name });
        }
        let groups = self.setting.groups;
        self.until("server groups", |world| world.newest().server_groups.len() == groups);
        self.assign_groups();
    }

    /// Puts every node into some group. Data follows with the next rebalance.
    fn assign_groups(&mut self) {
        let nodes: Vec<NodeId> = self.newest().nodes.iter().map(|node| node.id).collect();
        let groups = self.setting.groups;
        let assign = |node| (node, group(self.rng.usize(0..groups)));
        let assignments = nodes.into_iter().map(assign).collect();
        self.propose(Command::AssignServerGroups { assignments });
    }

    fn change_buckets(&mut self, newest: &Metadata) {
        if newest.buckets.len() < BUCKETS_MAX && self.rng.bool() {
            let kinds = self.setting.buckets.len();
            let kind = if kinds > 1 { self.rng.usize(0..kinds) } else { 0 };
            let replicas = self.rng.u8(1..=self.setting.replicas_max);
            self.create_bucket(kind, replicas);
            self.tally.buckets_changed += 1;
            return;
        }
        // One is to stay that is written at every level.
        let is_persistent = |info: &BucketInfo| info.kind == BucketKind::Couchbase;
        let may_go =
            |name: &String| newest.buckets.iter().any(|(other, info)| other != name && is_persistent(info));
        let names: Vec<_> = newest.buckets.keys().filter(|name| may_go(name)).collect();
        if let Some(name) = self.rng.choice(names) {
            self.propose(Command::DeleteBucket { name: name.clone() });
            self.tally.buckets_changed += 1;
        }
    }

    /// Documents go, all at once, and design documents stay.
    fn flush(&mut self, newest: &Metadata) {
        let Some(name) = self.rng.choice(newest.buckets.keys()) else { return };
        self.made += 1;
        let (name, uuid) = (name.clone(), BucketUuid(format!("{:032x}", self.made)));
        self.propose(Command::FlushBucket { name, uuid });
        self.tally.flushes += 1;
    }

    /// Has a bucket have another number of copies, as far as there is room for them. They come, or go, with the next rebalance; some
    /// have that start at once.
    fn change_replicas(&mut self, newest: &Metadata) {
        let Some((name, info)) = self.rng.choice(newest.buckets.iter().collect::<Vec<_>>()) else { return };
        let moves = self.faults.rebalance != NEVER;
        let room = newest.active_nodes().count().saturating_sub(1).min(usize::from(REPLICAS_MAX)) as u8;
        let numbers = if self.invariants.certainty.is_promised {
            // A majority of two copies is two, and so is one of three: durable writes are possible whatever moves meanwhile.
            1..=2
        } else {
            // Without another copy much less is promised: that is not to be what most runs are about.
            let least = if self.rng.u8(0..4) == 0 { 0 } else { 1 };
            least..=room.max(least)
        };
        // Where nobody brings more copies, durable writes would be impossible from then on.
        let has_majority = |replicas: &u8| {
            let copies = usize::from(*replicas) + 1;
            moves || info.vbs.iter().all(|plan| plan.chain.len() > copies / 2)
        };
        let Some(replicas) = self.rng.choice(numbers.filter(has_majority).collect::<Vec<_>>()) else {
            return;
        };
        let params = BucketParams { replicas: Some(replicas), ..BucketParams::default() };
        self.propose(Command::UpdateBucket { name: name.clone(), params });
        self.tally.replicas_changed += 1;
        if moves && self.rng.bool() && !self.recover_the_failed(newest) {
            self.start_rebalance(newest, &[]);
        }
    }

    fn change_collections(&mut self, newest: &Metadata) {
        let Some((bucket, info)) = self.rng.choice(newest.buckets.iter().collect::<Vec<_>>()) else { return };
        let scope = "_default";
        let known = info.manifest.scope(scope).map(|scope| scope.collections.as_slice()).unwrap_or_default();
        if known.len() < COLLECTIONS_MAX && self.rng.bool() {
            self.made += 1;
            let collection = format!("c{}", self.made);
            let (bucket, scope) = (bucket.clone(), scope.to_owned());
            self.propose(Command::CreateCollection { bucket, scope, collection, max_ttl: 0 });
        } else if known.len() > 1 {
            let collection = known[self.rng.usize(1..known.len())].name.clone();
            let (bucket, scope) = (bucket.clone(), scope.to_owned());
            self.propose(Command::DropCollection { bucket, scope, collection });
        }
    }

    /// Of which kind: the number of one that exists in this setting.
    fn create_bucket(&mut self, kind: usize, replicas: u8) -> String {
        self.made += 1;
        let name = format!("b{}", self.made);
        let (kind, eviction) = self.setting.buckets[kind];
        let params = BucketParams {
            kind: Some(kind),
            eviction: Some(eviction),
            ram_quota_mb: Some(100),
            replicas: Some(replicas),
            vbuckets: Some(VBUCKETS),
            replica_index: self.replica_index(),
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
            0 | 1 if newest.nodes.len() < self.setting.nodes_max => self.add_node(newest),
            // What only a node has that was failed over would go with it.
            2 if active.len() > usize::from(NODES_MIN) && !is_anything_open(newest) => {
                if let Some(id) = self.rng.choice(active) {
                    self.start_rebalance(newest, &[id]);
                }
            }
            3 => self.propose(Command::StopRebalance { id: None, now_ms }),
            4 if self.faults.graceful_failover && active.len() > usize::from(NODES_MIN) => {
                if let Some(node) = self.rng.choice(active) {
                    let (id, nodes) = (self.name_rebalance(), vec![node]);
                    let start = StartGracefulFailover { id, nodes, now_ms };
                    self.propose(Command::StartGracefulFailover(start));
                }
            }
            _ => {
                if !self.recover_the_failed(newest) {
                    self.start_rebalance(newest, &[]);
                }
            }
        }
    }

    fn add_node(&mut self, newest: &Metadata) {
        let node = info(NodeId(newest.next_node));
        self.versions.offer(node.id, &mut self.rng, newest);
        let groups = self.setting.groups;
        let group = group(if groups > 1 { self.rng.usize(0..groups) } else { 0 });
        self.propose(Command::AddNode(NodeInfo { membership: Membership::InactiveAdded, group, ..node }));
    }

    fn name_rebalance(&mut self) -> String {
        self.made += 1;
        format!("r{}", self.made)
    }

    /// Nodes that were failed over come back with the next rebalance, with or without what they have. Whether that had to be
    /// said: a rebalance that starts before it is agreed on takes them out instead.
    fn recover_the_failed(&mut self, newest: &Metadata) -> bool {
        let failed = |node: &&NodeInfo| node.membership == Membership::InactiveFailed;
        let is_there = |node: &&NodeInfo| self.machines.get(&node.id).is_none_or(|machine| !machine.is_wiped);
        let unsaid = newest.nodes.iter().filter(failed).filter(|node| node.recovery.is_none());
        let unsaid = unsaid.filter(is_there);
        let unsaid: Vec<NodeId> = unsaid.map(|node| node.id).collect();
        for &node in &unsaid {
            let is_delta = self.rng.bool() || holds_what_is_open(newest, node);
            let recovery = Some(if is_delta { Recovery::Delta } else { Recovery::Full });
            self.propose(Command::SetRecovery { node, recovery });
        }
        !unsaid.is_empty()
    }

    pub(super) fn start_rebalance(&mut self, newest: &Metadata, eject: &[NodeId]) -> String {
        let id = self.name_rebalance();
        let keep = newest.nodes.iter().map(|node| node.id).filter(|id| !eject.contains(id)).collect();
        let start = StartRebalance { id: id.clone(), keep, eject: eject.to_vec(), now_ms: self.journal.now };
        self.propose(Command::StartRebalance(start));
        self.tally.rebalances += 1;
        id
    }

    /// Has everybody take part, as many as it takes, and every copy be there, also of a bucket to write to. Rebalances that were
    /// asked for before may come first.
    pub(super) fn bring_everybody_in(&mut self) {
        for _ in 0..TRIES_MAX {
            self.until("an end of all that was asked for", |world| {
                world.is_settled() && !world.processes().any(Process::has_proposed)
            });
            if self.is_everybody_in() && self.has_persistent_bucket() {
                // A node that has just started may be failed over yet for the time that it was away.
                let until = self.journal.now + HEARD_MILLIS;
                while self.journal.now < until {
                    self.step();
                }
                if self.is_settled() && self.is_everybody_in() && self.has_persistent_bucket() {
                    return;
                }
                continue;
            }
            let newest = Arc::clone(self.newest());
            if !self.has_persistent_bucket() {
                self.create_bucket(0, 1);
            } else if newest.nodes.len() < usize::from(NODES_MIN) {
                self.add_node(&newest);
            } else if !self.recover_the_failed(&newest) {
                self.start_rebalance(&newest, &[]);
            }
        }
        panic!("rebalances end, and not everybody takes part: {:#?}", self.newest());
    }

    /// Whether there is a bucket that is written at every level. Two that were asked for at once may have been the last two.
    fn has_persistent_bucket(&self) -> bool {
        self.newest().buckets.values().any(|info| info.kind == BucketKind::Couchbase)
    }

    fn is_everybody_in(&self) -> bool {
        let newest = self.newest();
        let active = newest.active_nodes().count();
        let lacks = |bucket: &BucketInfo| {
            bucket.vbs.iter().any(|plan| plan.chain.len() != bucket.copies().min(active))
        };
        let are_enough = active == newest.nodes.len() && active >= usize::from(NODES_MIN);
        are_enough && !newest.buckets.values().any(lacks)
    }

    /// Asks some node to have the cluster agree on something, and not one that would refuse.
    pub(super) fn propose(&mut self, command: Command) {
        let (at, newest) = (self.journal.now, Arc::clone(self.newest()));
        let running = self.machines.values().filter(|machine| machine.process.is_some());
        let running = running.map(Machine::id).filter(|id| newest.may_propose(*id, &command).is_ok());
        let Some(id) = self.rng.choice(running.collect::<Vec<_>>()) else { return };
        let machine = self.machine(id);
        let ms = machine.clock.now(at).mono_millis;
        if let Some(process) = &mut machine.process {
            let _ = process.propose(command, None, ms);
        }
    }
}

/// Whether a node was failed over with something that nobody serves, or that the one that is to serve it may have lost.
fn holds_what_is_open(newest: &Metadata, node: NodeId) -> bool {
    let is_open = |info: &BucketInfo, vb: &u16| {
        let plan = &info.vbs[usize::from(*vb)];
        plan.active().is_none() || plan.kept.contains(&node)
    };
    let held =
        |info: &BucketInfo| info.former.get(&node).is_some_and(|vbs| vbs.iter().any(|vb| is_open(info, vb)));
    newest.buckets.values().any(held)
}

/// Whether some node was.
fn is_anything_open(newest: &Metadata) -> bool {
    newest.nodes.iter().any(|node| holds_what_is_open(newest, node.id))
}

/// The uuid of a server group; that of the one that there always is has number 0.
fn group(number: usize) -> String {
    number.to_string()
}
