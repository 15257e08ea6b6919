//! A cluster of fake nodes around real metadata and a real orchestrator, in virtual time.
//!
//! Metadata is one list of states, as consensus makes it: the leader hears a majority and appends; others come to know
//! later. What must hold is checked after each step. These are the states' invariants, and at most one serving copy per
//! vBucket while leases are asked for. Also, a new active has every write that a majority acknowledged on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{BucketUuid, NodeId, VbId, VbRole};
use settee_cluster::{
    BucketInfo, BucketParams, Command, FailOver, Membership, Metadata, NodeInfo, Orchestrator, Ports,
    Pressure, Recovery, StartGracefulFailover, StartRebalance, VbPhase, VbPlan, invariants,
};

use crate::{
    fake_node::{Copy, CopyId, FakeNode},
    rng::Rng,
};

pub(crate) const TICK_MS: u64 = 50;
/// Nodes report when they have something to say, which is all the time.
const REPORT_MS: u64 = 100;
pub(crate) const ELECTION_MS: u64 = 1_000;

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) rng: Rng,
    pub(crate) states: Vec<Arc<Metadata>>,
    pub(crate) nodes: BTreeMap<NodeId, FakeNode>,
    /// The pairs of nodes that cannot send to one another.
    cuts: BTreeSet<(NodeId, NodeId)>,
    leader: Option<(NodeId, Orchestrator)>,
    leaderless_since_ms: u64,
    proposals: Vec<(u64, Command)>,
    acknowledged: BTreeMap<CopyId, Vec<u64>>,
    /// What is acknowledged of a copy in an earlier term is no promise: somebody has taken the risk that it is lost.
    risked_before: BTreeMap<CopyId, u64>,
    /// What was done to the metadata, and when: for the search into a failure.
    history: Vec<(u64, String)>,
    next_write: u64,
    names: u64,
    /// How many writes there are per tick and active copy, one in so many.
    pub(crate) write_one_in: u64,
    /// To which vBuckets nothing is written, whatever there is.
    pub(crate) is_idle: fn(VbId) -> bool,
    /// Copies that were begun from nothing.
    pub(crate) copies_begun: u64,
    /// Writes that a copy takes per tick, at most.
    pub(crate) speed: u64,
    /// Whether nodes dawdle and messages get lost.
    pub(crate) is_rough: bool,
    /// How long it takes to agree on something, if the leader waits for that before it looks again.
    pub(crate) commit_ms: Option<u64>,
}

impl World {
    pub(crate) fn new(seed: u64, nodes: u16) -> Self {
        let mut meta = Metadata::new("c".repeat(32), 100_000);
        meta.secret = "s".into();
        let mut world = Self {
            now_ms: 1_000_000,
            rng: Rng::new(seed),
            states: vec![Arc::new(meta)],
            nodes: BTreeMap::new(),
            cuts: BTreeSet::new(),
            leader: None,
            leaderless_since_ms: 0,
            proposals: Vec::new(),
            acknowledged: BTreeMap::new(),
            risked_before: BTreeMap::new(),
            history: Vec::new(),
            next_write: 0,
            names: 0,
            write_one_in: 8,
            is_idle: |_| false,
            copies_begun: 0,
            speed: 8,
            is_rough: true,
            commit_ms: None,
        };
        world.apply(&Command::SetNode(node_info(0))).unwrap();
        world.nodes.insert(NodeId(0), FakeNode::new(NodeId(0), node_info(0).uuid));
        for _ in 1..nodes {
            world.add_node();
        }
        world.start_rebalance(&[]);
        world.apply(&Command::FinishRebalance { id: world.rebalance_id(), now_ms: 0 }).unwrap();
        world
    }

    pub(crate) fn meta(&self) -> Arc<Metadata> {
        Arc::clone(self.states.last().unwrap())
    }

    fn rebalance_id(&self) -> String {
        self.meta().rebalance.as_ref().map_or(String::new(), |rebalance| rebalance.id.clone())
    }

    /// Appends to the list of states what a command makes of the last one; a refusal is an answer too.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<(), String> {
        let before = self.meta();
        let promised: BTreeSet<CopyId> = self.acknowledged.keys().cloned().collect();
        if let Command::FailOver(failing) = command
            && before.unsafe_without(&failing.nodes).is_some()
        {
            assert!(!failing.auto || before.apply(command).is_err(), "an automatic failover loses something");
            // Somebody has taken the risk: nothing is promised of these vBuckets any more.
            self.acknowledged.clear();
        }
        if let Command::FailOver(failing) = command
            && !failing.auto
        {
            self.forget_what_only_the_failing_may_have(&before, &failing.nodes);
        }
        let (after, _) = before.apply(command).map_err(|error| error.to_string())?;
        let checked = invariants::check(&after).and_then(|()| invariants::check_change(&before, &after));
        checked.unwrap_or_else(|text| panic!("after {command:?}: {text}"));
        self.states.push(Arc::new(after));
        // A node that was failed over may acknowledge more until it hears of that.
        for copy in promised.into_iter().filter(|copy| !self.acknowledged.contains_key(copy)) {
            let term = self.newest_term(&copy);
            self.risked_before.insert(copy, term);
        }
        self.history.push((self.now_ms, format!("{command:?}")));
        Ok(())
    }

    /// An operator who fails nodes over is not asked whether the copies that are left are whole.
    fn forget_what_only_the_failing_may_have(&mut self, meta: &Metadata, failing: &[NodeId]) {
        let nodes = &self.nodes;
        self.acknowledged.retain(|copy, _| {
            let Some((_, bucket)) = meta.bucket_by_uuid(&copy.0) else { return false };
            let plan = &bucket.vbs[usize::from(copy.1.get())];
            let is_part = |node: &NodeId| {
                let held = nodes.get(node).and_then(|node| node.copies.get(copy));
                held.is_none_or(|held| !held.complete)
            };
            let loses_one = plan.nodes().iter().any(|node| failing.contains(node));
            !loses_one || !plan.counted().iter().any(|node| !failing.contains(node) && is_part(node))
        });
    }

    pub(crate) fn add_node(&mut self) -> NodeId {
        let id = NodeId(self.meta().next_node);
        self.apply(&Command::AddNode(node_info(id.get()))).unwrap();
        let mut node = FakeNode::new(id, node_info(id.get()).uuid);
        node.acts_from = self.states.len() - 1;
        self.nodes.insert(id, node);
        id
    }

    pub(crate) fn create_bucket(&mut self, vbuckets: u16, replicas: u8) -> Result<(), String> {
        self.names += 1;
        let name = format!("b{}", self.names);
        let params = BucketParams {
            ram_quota_mb: Some(100),
            replicas: Some(replicas),
            vbuckets: Some(vbuckets),
            ..BucketParams::default()
        };
        self.apply(&Command::CreateBucket { uuid: BucketUuid(format!("u-{name}")), name, params })
    }

    /// Starts a rebalance over all nodes but those; failed nodes come back if that was asked for.
    pub(crate) fn start_rebalance(&mut self, eject: &[NodeId]) -> bool {
        self.names += 1;
        let all: Vec<NodeId> = self.meta().nodes.iter().map(|node| node.id).collect();
        let keep = all.iter().copied().filter(|node| !eject.contains(node)).collect();
        let (id, now_ms) = (format!("r{}", self.names), self.now_ms);
        self.apply(&Command::StartRebalance(StartRebalance { id, keep, eject: eject.to_vec(), now_ms }))
            .is_ok()
    }

    pub(crate) fn fail_over_gracefully(&mut self, node: NodeId) -> bool {
        let (id, now_ms) = (format!("g{}", self.now_ms), self.now_ms);
        let start = StartGracefulFailover { id, nodes: vec![node], now_ms };
        self.apply(&Command::StartGracefulFailover(start)).is_ok()
    }

    fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        !self.cuts.contains(&(from, to))
    }

    fn talk(&self, one: NodeId, other: NodeId) -> bool {
        self.reaches(one, other) && self.reaches(other, one)
    }

    pub(crate) fn tick(&mut self) {
        self.now_ms += TICK_MS;
        self.lead();
        self.learn_and_act();
        self.replicate();
        self.write();
        self.report();
        self.orchestrate();
        self.check_serving();
    }

    /// Sees to it that somebody leads who hears a majority; a new leader knows nothing but metadata.
    fn lead(&mut self) {
        let members: Vec<NodeId> = self.meta().nodes.iter().map(|node| node.id).collect();
        let can = |world: &Self, id: NodeId| {
            let running = |id: NodeId| world.nodes.get(&id).is_some_and(|node| node.is_running(world.now_ms));
            let heard = members.iter().filter(|&&other| running(other) && world.talk(id, other)).count();
            members.contains(&id) && running(id) && heard * 2 > members.len()
        };
        if self.leader.as_ref().is_some_and(|(id, _)| can(self, *id)) {
            return;
        }
        if self.leader.take().is_some() {
            self.leaderless_since_ms = self.now_ms;
            self.proposals.clear();
        }
        if self.now_ms >= self.leaderless_since_ms + ELECTION_MS {
            let able: Vec<NodeId> = members.iter().copied().filter(|&id| can(self, id)).collect();
            let chosen = self.rng.pick(&able).copied();
            self.leader = chosen.map(|id| (id, Orchestrator::new()));
        }
    }

    pub(crate) fn change_leader(&mut self) {
        self.leader = None;
        self.proposals.clear();
        self.leaderless_since_ms = self.now_ms;
    }

    /// The leader has not been able to look for so long that it does not know who is there.
    pub(crate) fn hold_leader_up(&mut self) {
        self.leader = self.leader.take().map(|(id, orchestrator)| (id, orchestrator.begun_anew()));
    }

    fn learn_and_act(&mut self) {
        let last = self.states.len() - 1;
        let leader = self.leader.as_ref().map(|(id, _)| *id);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            let hears = leader.is_some_and(|leader| self.talk(leader, id));
            let dawdles = self.is_rough && self.rng.one_in(3);
            let partly = self.rng.below(4) as usize;
            let now_ms = self.now_ms;
            let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_running(now_ms) && !dawdles)
            else {
                continue;
            };
            if hears {
                let far = if self.is_rough { last.min(node.applied + 1 + partly * 8) } else { last };
                node.applied = node.applied.max(far);
            }
            let before: BTreeSet<CopyId> = node.copies.keys().cloned().collect();
            node.act(&self.states[node.applied]);
            self.copies_begun += node
                .copies
                .iter()
                .filter(|(copy, held)| !before.contains(*copy) && held.role == VbRole::Replica)
                .count() as u64;
            let active: Vec<(CopyId, Vec<u64>)> = node
                .copies
                .iter()
                .filter(|(_, copy)| copy.role == VbRole::Active)
                .map(|(id, copy)| (id.clone(), copy.log.clone()))
                .collect();
            for (copy, log) in active {
                if let Some(acknowledged) = self.acknowledged.get(&copy)
                    && self.states[self.nodes[&id].applied].bucket_by_uuid(&copy.0).is_some_and(
                        |(_, bucket)| bucket.vbs[usize::from(copy.1.get())].term == self.newest_term(&copy),
                    )
                {
                    let plan = self.plan(&copy);
                    assert!(
                        log.starts_with(acknowledged),
                        "{copy:?} on {id} lost acknowledged writes: {log:?} {acknowledged:?} {plan:?}"
                    );
                }
            }
        }
        // A node that was removed goes on by what it knows, until it hears of that.
        let meta = self.meta();
        let has_heard = |node: &FakeNode| !node.up || self.states[node.applied].node_by_id(node.id).is_none();
        let left = self.nodes.values().filter(|node| meta.node_by_id(node.id).is_none() && has_heard(node));
        let gone: Vec<NodeId> = left.map(|node| node.id).collect();
        for id in gone {
            self.nodes.remove(&id);
        }
    }

    fn newest_term(&self, copy: &CopyId) -> u64 {
        self.plan(copy).map_or(0, |plan| plan.term)
    }

    fn plan(&self, copy: &CopyId) -> Option<VbPlan> {
        let meta = self.meta();
        meta.bucket_by_uuid(&copy.0).map(|(_, bucket)| bucket.vbs[usize::from(copy.1.get())].clone())
    }

    fn replicate(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            if !self.nodes[&id].is_running(self.now_ms) {
                continue;
            }
            let meta = Arc::clone(&self.states[self.nodes[&id].applied]);
            let mut copies = std::mem::take(&mut self.nodes.get_mut(&id).unwrap().copies);
            for (copy, held) in &mut copies {
                let most = self.rng.below(self.speed * 2) as usize;
                let syncs = self.rng.one_in(3);
                match self.source(&meta, id, copy, held) {
                    Some(source) => held.follow(source, most),
                    None => held.following = false,
                }
                if syncs {
                    held.synced = held.log.len();
                }
            }
            self.nodes.get_mut(&id).unwrap().copies = copies;
        }
    }

    /// The copy that a replica follows, if it can be reached and is of the same term.
    fn source(&self, meta: &Metadata, id: NodeId, copy: &CopyId, held: &Copy) -> Option<&Copy> {
        if held.role != VbRole::Replica {
            return None;
        }
        let (_, bucket) = meta.bucket_by_uuid(&copy.0)?;
        let active = bucket.vbs[usize::from(copy.1.get())].active()?;
        let node =
            self.nodes.get(&active).filter(|node| node.is_running(self.now_ms) && self.talk(active, id))?;
        let feeds =
            |copy: &&Copy| matches!(copy.role, VbRole::Active | VbRole::Sealed) && copy.term == held.term;
        node.copies.get(copy).filter(feeds)
    }

    /// Whether a copy that is active answers clients.
    fn serves(&self, node: &FakeNode) -> bool {
        let needs_lease = self.states[node.applied].needs_leases();
        node.is_running(self.now_ms) && (!needs_lease || node.lease_until_ms > self.now_ms)
    }

    fn write(&mut self) {
        let serving: Vec<NodeId> =
            self.nodes.values().filter(|node| self.serves(node)).map(|node| node.id).collect();
        for id in serving {
            let active: Vec<CopyId> = self.nodes[&id]
                .copies
                .iter()
                .filter(|(_, copy)| copy.role == VbRole::Active)
                .map(|(copy, _)| copy.clone())
                .collect();
            for copy in active {
                let writes = self.rng.one_in(self.write_one_in) && !(self.is_idle)(copy.1);
                self.next_write += 1;
                if let Some(held) = self.nodes.get_mut(&id).and_then(|node| node.copies.get_mut(&copy))
                    && writes
                {
                    held.log.push(self.next_write);
                }
                self.acknowledge(id, &copy);
            }
        }
    }

    /// Notes what a majority of every chain that counts has on disk, by the plan that the active one acts by.
    fn acknowledge(&mut self, id: NodeId, copy: &CopyId) {
        let meta = &self.states[self.nodes[&id].applied];
        let Some((_, bucket)) = meta.bucket_by_uuid(&copy.0) else { return };
        let plan = &bucket.vbs[usize::from(copy.1.get())];
        let active = &self.nodes[&id].copies[copy];
        let is_promise = self.risked_before.get(copy).is_none_or(|term| active.term >= *term);
        if plan.term != active.term || plan.active() != Some(id) || !is_promise {
            return;
        }
        let synced = |member: &NodeId| {
            if *member == id {
                return active.synced;
            }
            let node =
                self.nodes.get(member).filter(|node| node.is_running(self.now_ms) && self.talk(id, *member));
            let held = node.and_then(|node| node.copies.get(copy));
            held.filter(|held| held.term == active.term && held.following).map_or(0, |held| held.synced)
        };
        let of_chain = |chain: &Vec<NodeId>| {
            let mut all: Vec<usize> = chain.iter().map(synced).collect();
            all.sort_unstable_by(|one, other| other.cmp(one));
            let majority = bucket.copies().max(chain.len()) / 2 + 1;
            all.get(majority - 1).copied().unwrap_or(0)
        };
        let joint = plan.joint.as_ref().filter(|joint| **joint != [id]);
        let until = joint.map_or(usize::MAX, of_chain).min(of_chain(&plan.chain)).min(active.log.len());
        let acknowledged = self.acknowledged.entry(copy.clone()).or_default();
        if until > acknowledged.len() {
            *acknowledged = active.log[..until].to_vec();
        }
    }

    fn report(&mut self) {
        if !self.now_ms.is_multiple_of(REPORT_MS) {
            return;
        }
        let Some(leader) = self.leader.as_ref().map(|(id, _)| *id) else { return };
        let reporting: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|node| node.is_running(self.now_ms) && self.reaches(node.id, leader))
            .map(|node| node.id)
            .collect();
        for id in reporting {
            if self.is_rough && self.rng.one_in(10) {
                continue;
            }
            let node = &self.nodes[&id];
            let report = node.report(&self.states[node.applied]);
            let meta = self.meta();
            let (lease_ms, answered) = (meta.lease_for(&report), self.reaches(leader, id));
            if let Some((_, orchestrator)) = &mut self.leader {
                orchestrator.report(&meta, report, self.now_ms);
            }
            if let Some(lease_ms) = lease_ms
                && answered
            {
                self.nodes.get_mut(&id).unwrap().lease_until_ms = self.now_ms + lease_ms;
            }
        }
    }

    fn orchestrate(&mut self) {
        let now_ms = self.now_ms;
        let due: Vec<Command> = {
            let (due, later) =
                std::mem::take(&mut self.proposals).into_iter().partition(|(at, _)| *at <= now_ms);
            self.proposals = later;
            let due: Vec<(u64, Command)> = due;
            due.into_iter().map(|(_, command)| command).collect()
        };
        for command in due {
            // A proposal that comes late, or twice, is refused or changes nothing.
            drop(self.apply(&command));
        }
        let meta = self.meta();
        let Some((_, orchestrator)) = &mut self.leader else { return };
        if self.commit_ms.is_some() && !self.proposals.is_empty() {
            return;
        }
        for command in orchestrator.step(&meta, now_ms) {
            let held_up_ms = if self.is_rough { self.rng.below(4) * TICK_MS } else { 0 };
            let delay = self.commit_ms.unwrap_or(held_up_ms);
            self.proposals.push((now_ms + delay, command));
        }
    }

    /// Nobody serves beside somebody of a later term by metadata that ask for leases, and have for a while.
    fn check_serving(&self) {
        let is_bound = |node: &FakeNode| {
            let known = &self.states[..=node.applied];
            known.iter().rev().take(200).all(|state| state.needs_leases())
        };
        let mut serving: BTreeMap<CopyId, (u64, NodeId)> = BTreeMap::new();
        for node in self.nodes.values().filter(|node| self.serves(node)) {
            for (copy, held) in node.copies.iter().filter(|(_, copy)| copy.role == VbRole::Active) {
                let Some(other) = serving.insert(copy.clone(), (held.term, node.id)) else { continue };
                let earlier = other.min((held.term, node.id)).1;
                assert!(
                    !is_bound(&self.nodes[&earlier]),
                    "{copy:?} is served by {other:?} and {}: {:?}",
                    node.id,
                    self.plan(copy)
                );
            }
        }
    }

    /// Something happens to the cluster.
    pub(crate) fn disturb(&mut self) {
        let meta = self.meta();
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let id = *self.rng.pick(&ids).unwrap();
        match self.rng.below(17) {
            0 | 1 => {
                let clean = self.rng.one_in(3);
                self.nodes.get_mut(&id).unwrap().stop(clean);
            }
            2..=4 => self.restart_all(),
            5 => self.nodes.get_mut(&id).unwrap().paused_until_ms = self.now_ms + self.rng.below(12_000),
            6 => {
                let one_way = self.rng.one_in(2);
                for &other in ids.iter().filter(|&&other| other != id) {
                    self.cuts.insert((id, other));
                    if !one_way {
                        self.cuts.insert((other, id));
                    }
                }
            }
            7 | 8 => self.cuts.clear(),
            9 => self.change_leader(),
            10 if ids.len() < 12 => drop(self.add_node()),
            11 => {
                let eject: Vec<NodeId> =
                    if self.rng.one_in(2) && meta.nodes.len() > 2 { vec![id] } else { Vec::new() };
                self.recover_some();
                self.start_rebalance(&eject);
            }
            12 => drop(self.apply(&Command::StopRebalance { id: None, now_ms: self.now_ms })),
            13 => {
                if self.rng.one_in(2) {
                    let by_hand = FailOver { nodes: vec![id], allow_unsafe: false, auto: false };
                    drop(self.apply(&Command::FailOver(by_hand)));
                } else {
                    self.fail_over_gracefully(id);
                }
                if self.rng.one_in(3) {
                    drop(self.apply(&Command::RemoveNode { node: id }));
                }
            }
            14 if meta.buckets.len() < 4 => {
                let replicas = self.rng.below(4) as u8;
                drop(self.create_bucket(16, replicas));
            }
            14 => {
                let names: Vec<String> = meta.buckets.keys().cloned().collect();
                let name = self.rng.pick(&names).unwrap().clone();
                drop(self.apply(&Command::DeleteBucket { name }));
            }
            15 => {
                let levels = [Pressure::None, Pressure::Pacing, Pressure::Refusing];
                self.nodes.get_mut(&id).unwrap().pressure = levels[self.rng.below(3) as usize];
            }
            _ => {
                let names: Vec<String> = meta.buckets.keys().cloned().collect();
                if let Some(name) = self.rng.pick(&names).cloned() {
                    let replicas = Some(self.rng.below(4) as u8);
                    let params = BucketParams { replicas, ..BucketParams::default() };
                    drop(self.apply(&Command::UpdateBucket { name, params }));
                }
            }
        }
    }

    fn recover_some(&mut self) {
        let failed: Vec<NodeId> = self
            .meta()
            .nodes
            .iter()
            .filter(|node| node.membership == Membership::InactiveFailed)
            .map(|node| node.id)
            .collect();
        for node in failed {
            let recovery = [Some(Recovery::Full), Some(Recovery::Delta), None][self.rng.below(3) as usize];
            drop(self.apply(&Command::SetRecovery { node, recovery }));
        }
    }

    pub(crate) fn restart_all(&mut self) {
        let last = self.states.len() - 1;
        for node in self.nodes.values_mut().filter(|node| !node.up) {
            node.up = true;
            node.acts_from = last;
        }
    }

    /// Every node runs and hears every other.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.restart_all();
        self.nodes.values_mut().for_each(|node| node.paused_until_ms = 0);
    }

    /// Runs for so long.
    pub(crate) fn run(&mut self, ms: u64) {
        (0..ms / TICK_MS).for_each(|_| self.tick());
    }

    /// Runs until it has come to that, as it must within `most_ms`.
    pub(crate) fn tick_until(&mut self, most_ms: u64, is_so: impl Fn(&Self) -> bool) {
        let until = self.now_ms + most_ms;
        while !is_so(self) {
            assert!(self.now_ms < until, "it does not come to that");
            self.tick();
        }
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.leader.as_ref().map(|(id, _)| *id)
    }

    /// Runs until nothing is on its way, as it must within `most_ms`.
    pub(crate) fn settle(&mut self, most_ms: u64) {
        let until = self.now_ms + most_ms;
        while !self.is_settled() {
            self.tick();
            if self.now_ms >= until {
                let meta = self.meta();
                let now_ms = self.now_ms;
                let proposes = self.leader.as_mut().map(|(_, orchestrator)| orchestrator.step(&meta, now_ms));
                let last = &self.history[self.history.len().saturating_sub(12)..];
                panic!(
                    "does not come to an end at {now_ms}: {}\nproposes {proposes:?} after {last:#?}",
                    self.what_is_left()
                );
            }
        }
    }

    fn is_settled(&self) -> bool {
        let meta = self.meta();
        let quiet = |bucket: &BucketInfo| bucket.vbs.iter().all(VbPlan::is_quiet);
        meta.rebalance.is_none() && self.proposals.is_empty() && meta.buckets.values().all(quiet)
    }

    fn what_is_left(&self) -> String {
        let meta = self.meta();
        let mut text = format!("rebalance {:?}\n", meta.rebalance);
        for (name, bucket) in &meta.buckets {
            for (at, plan) in bucket.vbs.iter().enumerate() {
                let target = bucket.target.as_ref().map(|target| target[at].clone());
                if !plan.is_quiet() || target.as_ref().is_some_and(|target| *target != plan.chain) {
                    text += &format!("{name}/{at}: {plan:?} wants {target:?}\n");
                    for node in self.nodes.values() {
                        if let Some(copy) = node.copies.get(&(bucket.uuid.clone(), VbId(at as u16))) {
                            text += &format!(
                                "  node {} (applied {}/{}): {:?} len {} {}\n",
                                node.id,
                                node.applied,
                                self.states.len() - 1,
                                copy.role,
                                copy.log.len(),
                                format_args!(
                                    "term {} synced {} complete {} unconfirmed {} following {}",
                                    copy.term, copy.synced, copy.complete, copy.unconfirmed, copy.following
                                )
                            );
                        }
                    }
                    break;
                }
            }
        }
        text + &format!("leader {:?}", self.leader())
    }

    /// After quiet every vBucket has all its copies, and they are the same.
    pub(crate) fn check_copies(&self) {
        let meta = self.meta();
        let holding = meta.active_nodes().count();
        for (name, bucket) in &meta.buckets {
            for (at, plan) in bucket.vbs.iter().enumerate() {
                assert_eq!(plan.chain.len(), bucket.copies().min(holding), "{name}/{at}: {plan:?}");
                let copy = (bucket.uuid.clone(), VbId(at as u16));
                let log = |node: &NodeId| self.nodes[node].copies.get(&copy).map(|held| held.log.clone());
                let active = log(&plan.chain[0]);
                assert!(active.is_some(), "{name}/{at}: nothing on {:?}", plan.chain[0]);
                assert!(
                    plan.chain.iter().all(|node| log(node) == active),
                    "{name}/{at}: copies differ: {plan:?}"
                );
            }
        }
    }

    /// vBuckets that a node is active for, and those that it is about to be.
    pub(crate) fn active_on(&self, node: NodeId) -> (usize, usize) {
        let meta = self.meta();
        let plans = || meta.buckets.values().flat_map(|bucket| bucket.vbs.iter());
        let is_coming = |plan: &&VbPlan| matches!(plan.phase, VbPhase::Handover { to, .. } if to == node);
        (plans().filter(|plan| plan.active() == Some(node)).count(), plans().filter(is_coming).count())
    }

    /// vBuckets that are being handed over to a node.
    pub(crate) fn on_their_way_to(&self, node: NodeId) -> BTreeSet<CopyId> {
        let meta = self.meta();
        let is_coming = |plan: &VbPlan| matches!(plan.phase, VbPhase::Handover { to, .. } if to == node);
        let of = |bucket: &BucketInfo| -> Vec<CopyId> {
            let coming = (0..).zip(bucket.vbs.iter()).filter(|(_, plan)| is_coming(plan));
            coming.map(|(vb, _)| (bucket.uuid.clone(), VbId(vb))).collect()
        };
        meta.buckets.values().flat_map(of).collect()
    }

    /// The node that is to serve a vBucket.
    pub(crate) fn active_of(&self, copy: &CopyId) -> Option<NodeId> {
        self.plan(copy)?.active()
    }

    pub(crate) fn progress(&self) -> Option<settee_cluster::RebalanceProgress> {
        let (_, orchestrator) = self.leader.as_ref()?;
        orchestrator.progress(&self.meta(), self.now_ms)
    }
}

fn node_info(id: u16) -> NodeInfo {
    let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
    let mut node = NodeInfo::first(format!("{id:032x}"), format!("10.0.0.{id}"), ports);
    node.id = NodeId(id);
    node
}
