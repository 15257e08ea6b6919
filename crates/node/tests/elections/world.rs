//! A few nodes, one vBucket, and what becomes of them. Metadata, orchestrator and agents are the real ones. Timers are
//! as bad as they can be. When the leader looks, all of them have run out, so that nothing is safe only because a node
//! waits a while. Where nodes serve under leases, none has run out, so that nothing is safe only because leases have.

use std::{
    cell::RefCell,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use base::{BucketUuid, NodeId, Now, Seqno, VbRole, bucket::BucketKind};
use cluster::{
    BucketParams, Command, FailOver, Membership, Metadata, NodeInfo, NodeReport, Orchestrator, Ports,
    Recovery, StartGracefulFailover, StartRebalance, VbPlan,
};
use engine::Chains;
use settee_node::Agent;

use super::{
    canon::order,
    copy::{CopyState, OnDisk, Open, Shelf},
    events::Event,
};

/// Longer than any timer of the leader's.
const LONG_MS: u64 = 60_000;
/// Shorter than any.
const SOON_MS: u64 = 50;
/// Numbers of nodes, of versions and of terms are told apart by their size, for [`super::canon`].
pub(crate) const FIRST_NODE: u16 = 10;
/// See [`FIRST_NODE`]; beyond what a branch's name has bits.
pub(crate) const FIRST_VERSION: u64 = 1 << 50;

/// Whether a node is there for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    Up,
    /// It neither hears nor is heard. It may serve clients, or do nothing: that it is paused is nothing else.
    Cut,
    /// It has left the cluster, and knows.
    Left,
}

/// Whether a node may serve what is active on it, as far as it knows. The lease itself is a number with a rule of its own
/// ([`cluster::Lease`]); what counts here is whether it has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leash {
    /// It needs no lease. Whether it has been away for long.
    Loose { is_stale: bool },
    /// It has a lease.
    Held,
    /// It needs one, and has none.
    RunOut,
}

/// A node that is heard, reports and serves, and applies nothing newer than these metadata.
#[derive(Clone, Debug)]
pub(crate) struct Stuck {
    pub(crate) meta: Arc<Metadata>,
    /// It says so in its reports.
    pub(crate) says: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) agent: Agent,
    pub(crate) held: CopyState,
    pub(crate) link: Link,
    pub(crate) leash: Leash,
    pub(crate) stuck: Option<Stuck>,
    /// It has been stuck, and did not say so.
    pub(crate) was_mute: bool,
    /// An operator has decided that what it has is not needed.
    pub(crate) is_failed: bool,
    /// It was failed over gracefully, and no active copy has shown since that it has all that this node has.
    pub(crate) has_left: bool,
}

impl Node {
    /// Whether it acts by the newest metadata.
    pub(crate) fn hears(&self) -> bool {
        self.link == Link::Up && self.stuck.is_none()
    }
}

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) copies: u8,
    /// Nodes that hold nothing at first.
    pub(crate) spares: u8,
    pub(crate) kind: BucketKind,
    pub(crate) writes: usize,
    pub(crate) faults: usize,
    /// Of settings and members.
    pub(crate) changes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) bounds: Bounds,
    pub(crate) meta: Arc<Metadata>,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) writes: u8,
    pub(crate) faults: usize,
    pub(crate) changes: usize,
    /// Faults that took what some node had in memory or on disk, or by which an operator did without it; two stand for more.
    pub(crate) losses: usize,
    /// By bits: writes that were acknowledged, and which of them as durable.
    pub(crate) acknowledged: u64,
    pub(crate) durable: u64,
    /// Writes that began when durable ones went to disk with a majority, whatever their level asked for.
    pub(crate) to_disk: u64,
    /// Durable writes that only a lost disk, and nodes that were leaving gracefully, had of three copies or more.
    pub(crate) excused: u64,
    /// The leader has proposed that a graceful failover ends, and that is not agreed on yet.
    pub(crate) is_ending: bool,
    /// Copies do not say that they may have lost something: a fault that has to be found.
    pub(crate) hides_losses: bool,
    /// Durable writes do not go to disk while a node leaves gracefully: another one.
    pub(crate) stays_in_memory: bool,
    /// Names for branches.
    branches: u64,
}

fn uuid(at: usize) -> String {
    format!("{at:032x}")
}

pub(crate) fn id(at: usize) -> NodeId {
    NodeId(FIRST_NODE + at as u16)
}

pub(crate) fn index(node: NodeId) -> usize {
    usize::from(node.get() - FIRST_NODE)
}

fn raw_hash(agent: &Agent) -> u64 {
    let mut hasher = DefaultHasher::new();
    agent.hash(&mut hasher);
    hasher.finish()
}

const NOW: Now = Now { wall_nanos: 1 << 60, mono_millis: 0 };

impl World {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let mut meta = Metadata::new("c".repeat(32), 100_000);
        (meta.version, meta.next_node) = (FIRST_VERSION, FIRST_NODE);
        let nodes = usize::from(bounds.copies + bounds.spares);
        for at in 0..nodes {
            if at == usize::from(bounds.copies) {
                balance(&mut meta);
            }
            let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
            let mut node = NodeInfo::first(uuid(at), format!("10.0.0.{at}"), ports);
            node.id = id(at);
            apply(&mut meta, &if at == 0 { Command::SetNode(node) } else { Command::AddNode(node) });
            meta.nodes[at].id = id(at);
        }
        if bounds.spares == 0 {
            balance(&mut meta);
        }
        let is_volatile = bounds.kind == BucketKind::Ephemeral;
        let node = |at| Node {
            agent: Agent::new(uuid(at)),
            held: CopyState::blank(is_volatile, at as u64 + 1),
            link: Link::Up,
            leash: Leash::Loose { is_stale: false },
            stuck: None,
            was_mute: false,
            is_failed: false,
            has_left: false,
        };
        let mut world = Self {
            bounds,
            meta: Arc::new(meta),
            nodes: (0..nodes).map(|at| Arc::new(node(at))).collect(),
            writes: 0,
            faults: 0,
            changes: 0,
            losses: 0,
            acknowledged: 0,
            durable: 0,
            to_disk: 0,
            excused: 0,
            is_ending: false,
            hides_losses: false,
            stays_in_memory: false,
            branches: 100,
        };
        world.act();
        let params = BucketParams {
            kind: Some(bounds.kind),
            ram_quota_mb: Some(100),
            replicas: Some(bounds.copies - 1),
            ..BucketParams::default()
        };
        let meta = Arc::make_mut(&mut world.meta);
        apply(meta, &Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params });
        let chain = (0..usize::from(bounds.copies)).map(id).collect();
        meta.buckets.get_mut("b").unwrap().vbs = vec![VbPlan::settled(chain, 1)].into();
        world.act();
        for to in 1..usize::from(bounds.copies) {
            world.feed(to, true);
        }
        world.act();
        world
    }

    pub(crate) fn plan(&self) -> &VbPlan {
        &self.meta.buckets["b"].vbs[0]
    }

    fn change(&mut self, command: &Command) -> bool {
        let Ok((meta, _)) = self.meta.apply(command) else { return false };
        self.meta = Arc::new(meta);
        true
    }

    fn branch(&mut self) -> u64 {
        self.branches += 1;
        self.branches
    }

    fn node(&mut self, at: usize) -> &mut Node {
        Arc::make_mut(&mut self.nodes[at])
    }

    /// Everybody who is there does what the newest metadata ask for that they know.
    pub(crate) fn act(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].link == Link::Up {
                self.act_at(at);
            }
        }
    }

    fn act_at(&mut self, at: usize) {
        let known = self.nodes[at].stuck.as_ref().map_or(&self.meta, |stuck| &stuck.meta);
        let (meta, branch) = (Arc::clone(known), self.branch());
        let is_volatile = self.bounds.kind == BucketKind::Ephemeral;
        let node = self.node(at);
        if meta.node(&uuid(at)).is_none() {
            (node.agent, node.link) = (Agent::new(uuid(at)), Link::Left);
            node.held = CopyState::blank(is_volatile, branch);
            return;
        }
        let needs_one = meta.lease_ms().is_some();
        if let Leash::Loose { is_stale } = node.leash
            && needs_one
        {
            // It serves on by the last report that was answered, unless that is long ago.
            node.leash = if is_stale { Leash::RunOut } else { Leash::Held };
        }
        let held = std::mem::replace(&mut node.held, CopyState::blank(is_volatile, branch));
        let mut shelf = Shelf { held: RefCell::new(held), branch };
        let mut before = (raw_hash(&node.agent), shelf.held.borrow().clone());
        for _ in 0..20 {
            let step = node.agent.step(&meta, &Open(&shelf), NOW);
            let after = (raw_hash(&node.agent), shelf.held.borrow().clone());
            if !step.more && after == before {
                break;
            }
            before = after;
        }
        node.held = shelf.held.get_mut().clone();
        if !needs_one && node.agent.applied() >= meta.version {
            node.leash = Leash::Loose { is_stale: false };
        }
    }

    fn report(&self, at: usize) -> NodeReport {
        let node = &self.nodes[at];
        let shelf = Shelf { held: RefCell::new(node.held.clone()), branch: 0 };
        let mut buckets = node.agent.report(&Open(&shelf));
        if self.hides_losses {
            buckets.iter_mut().flat_map(|bucket| &mut bucket.vbs).for_each(|copy| copy.may_lack = false);
        }
        let stands_still = node.stuck.as_ref().is_some_and(|stuck| stuck.says);
        let bare = NodeReport::bare(id(at), uuid(at), node.agent.applied());
        NodeReport { buckets, stands_still, ..bare }
    }

    /// The leader looks, which knows nothing but what it is told now, and everybody who is there does what it wants.
    pub(crate) fn lead(&mut self) {
        for at in 0..self.nodes.len() {
            let node = self.node(at);
            node.leash = match node.leash {
                _ if node.hears() => continue,
                // Unless it is granted another one.
                Leash::Held => Leash::RunOut,
                // Somebody answers what a node says that is stuck.
                Leash::Loose { .. } if node.link == Link::Up => continue,
                Leash::Loose { .. } => Leash::Loose { is_stale: true },
                Leash::RunOut => Leash::RunOut,
            };
        }
        self.lead_at([LONG_MS, 2 * LONG_MS], false);
    }

    /// The same right after it was elected, while no time has gone by. Or, with `has_heard`, right after it has heard those once more
    /// that are out of reach now.
    pub(crate) fn lead_soon(&mut self, has_heard: bool) {
        self.lead_at([LONG_MS, LONG_MS + SOON_MS], has_heard);
    }

    fn lead_at(&mut self, looks: [u64; 2], has_heard: bool) {
        for command in self.wanted(looks, has_heard) {
            self.carry_out(&command);
        }
        self.act();
    }

    /// A command of the leader's is agreed on.
    fn carry_out(&mut self, command: &Command) {
        let failed = |world: &Self| -> Vec<usize> {
            (0..world.nodes.len()).filter(|&at| world.has_failed(at)).collect()
        };
        let before = failed(self);
        let is_graceful = !self.meta.leaving_gracefully().is_empty();
        let counted = self.counting();
        self.change(command);
        if self.meta.rebalance.is_some() && !is_graceful && (1..counted).contains(&self.counting()) {
            // A node leaves by a rebalance, and no other one has taken its copy.
            self.losses += usize::from(self.counting() < usize::from(self.bounds.copies));
            self.losses = self.losses.min(2);
        }
        for at in failed(self).into_iter().filter(|at| !before.contains(at)) {
            if is_graceful && matches!(command, Command::FinishRebalance { .. }) {
                self.node(at).has_left = true;
            } else {
                // The leader has decided to do without a node.
                self.losses = 2.min(self.losses + 1);
            }
        }
    }

    /// Copies that count, in the chain or in the one before. An election counts as many as these chains had.
    fn counting(&self) -> usize {
        let plan = self.plan();
        let before = plan.counted().iter().filter(|node| !plan.chain.contains(node));
        plan.chain.len() + before.count()
    }

    /// A node that has left counts as a loss once another one serves all that it has: from then on nobody asks it.
    fn part_with_leavers(&mut self) {
        let log = self.serving().map(|serving| self.nodes[serving].held.log.clone());
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let is_served =
                log.as_ref().is_some_and(|log| node.held.log.iter().all(|write| log.contains(write)));
            if node.has_left && (is_served || node.link == Link::Left) {
                self.node(at).has_left = false;
                self.losses = 2.min(self.losses + 1);
            }
        }
    }

    /// What the leader proposes, which knows nothing but what it is told now.
    fn wanted(&mut self, looks: [u64; 2], has_heard: bool) -> Vec<Command> {
        let mut orchestrator = Orchestrator::new();
        let mut commands = Vec::new();
        for (look, now_ms) in looks.into_iter().enumerate() {
            for at in 0..self.nodes.len() {
                let link = self.nodes[at].link;
                if link == Link::Up || (link == Link::Cut && has_heard && look == 0) {
                    self.hear(&mut orchestrator, at, now_ms);
                }
            }
            commands = orchestrator.step(&self.meta, now_ms);
        }
        commands
    }

    /// The leader looks as in [`World::lead`], and proposes the end of a graceful failover if it is time for that.
    fn propose_end(&mut self) {
        let wanted = self.wanted([LONG_MS, 2 * LONG_MS], false);
        self.is_ending = wanted.iter().any(|command| matches!(command, Command::FinishRebalance { .. }));
    }

    /// The leader takes a report, and grants what goes with it.
    fn hear(&mut self, orchestrator: &mut Orchestrator, at: usize, now_ms: u64) {
        let report = self.report(at);
        let is_granted = self.meta.lease_for(&report).is_some();
        orchestrator.report(&self.meta, report, now_ms);
        if is_granted && self.nodes[at].link == Link::Up && self.nodes[at].leash == Leash::RunOut {
            self.node(at).leash = Leash::Held;
        }
    }

    /// Whom a node follows by what it was told, if that one feeds it.
    pub(crate) fn source(&self, to: usize) -> Option<usize> {
        let node = &self.nodes[to];
        let wish = node.agent.wishes().into_iter().next()?;
        let from = index(wish.peer);
        let active = &self.nodes[from];
        let both_up = node.link == Link::Up && active.link == Link::Up;
        let same = matches!(active.held.role, VbRole::Active | VbRole::Sealed)
            && active.held.term == node.held.term
            && node.held.role == VbRole::Replica;
        (both_up && same).then_some(from)
    }

    pub(crate) fn feed(&mut self, to: usize, all: bool) {
        if let Some(from) = self.source(to) {
            let (active, branch) = (self.nodes[from].clone(), self.branch());
            self.node(to).held.feed(&active.held, all, branch);
            // It says whether it is whole.
            self.act_at(to);
        }
    }

    /// Followers that would take a write of an active copy at once.
    pub(crate) fn followers(&self, at: usize) -> impl Iterator<Item = usize> {
        let active = &self.nodes[at].held;
        let keeps_up =
            move |id: &usize| self.source(*id) == Some(at) && self.nodes[*id].held.keeps_up(active);
        (0..self.nodes.len()).filter(keeps_up)
    }

    fn write(&mut self, at: usize, told: u8) {
        let number = self.writes;
        self.writes += 1;
        let holders: Vec<usize> =
            (0..self.nodes.len()).filter(|&id| id == at || told & 1 << id != 0).collect();
        for &id in &holders {
            self.node(id).held.log.push(number);
        }
        self.acknowledged |= 1 << number;
        let is_to_disk = self.nodes[at].held.topology.as_ref().is_some_and(|topology| topology.to_disk);
        self.to_disk |= u64::from(is_to_disk && !self.stays_in_memory) << number;
        self.durable |= self.acknowledgeable(at);
    }

    /// Writes that a majority has by what an active copy knows, as bits: prepared as durable ones they are acknowledged now.
    pub(crate) fn acknowledgeable(&self, at: usize) -> u64 {
        let active = &self.nodes[at].held;
        let Some(topology) = active.topology.as_ref().filter(|_| active.role == VbRole::Active) else {
            return 0;
        };
        let follows =
            |id: &usize| self.source(*id) == Some(at) && self.nodes[*id].held.following == Some(active.term);
        let reached = |has: &dyn Fn(&CopyState) -> usize| {
            let mut chains = Chains::new(topology.clone());
            for node in (0..self.nodes.len()).filter(follows) {
                chains.acknowledge(id(node), Seqno(has(&self.nodes[node].held) as u64));
            }
            usize::try_from(chains.reached().get()).unwrap_or(usize::MAX)
        };
        let in_memory = reached(&|held| held.whole_writes());
        let on_disk =
            reached(&|held| held.whole_writes().min(held.synced_writes())).min(active.synced_writes());
        let is_reached = |(at, write): &(usize, &u8)| {
            *at < if self.to_disk >> **write & 1 == 0 { in_memory } else { in_memory.min(on_disk) }
        };
        active.log.iter().enumerate().filter(is_reached).fold(0, |bits, (_, &write)| bits | 1 << write)
    }

    pub(crate) fn after(&self, event: Event) -> Self {
        let mut next = self.clone();
        next.faults += usize::from(event.is_fault());
        next.changes += usize::from(event.is_change());
        next.losses = 2.min(next.losses + usize::from(event.is_loss(self.bounds.kind)));
        match event {
            Event::Acknowledge(at) => next.durable |= next.acknowledgeable(at),
            Event::Write { at, told } => next.write(at, told),
            Event::Feed { to, all } => next.feed(to, all),
            Event::Sync(at) => next.node(at).held.sync(),
            Event::Lead => next.lead(),
            Event::LeadSoon { has_heard } => next.lead_soon(has_heard),
            Event::ProposeEnd => next.propose_end(),
            Event::AgreeOnEnd => {
                next.is_ending = false;
                next.carry_out(&Command::FinishRebalance { id: "r".into(), now_ms: 0 });
                next.act();
            }
            Event::Kill(at) | Event::Stop(at) | Event::LoseDisk(at) => {
                if event == Event::LoseDisk(at) || self.bounds.kind == BucketKind::Ephemeral {
                    next.excuse(at);
                }
                next.restart(at, event);
            }
            Event::Cut(at) => {
                // Once it is back it applies all that was agreed on.
                next.node(at).stuck = None;
                next.break_off(at);
            }
            Event::Stick { at, says } => next.stick(at, says),
            Event::Heal(at) => {
                next.node(at).stuck = None;
                next.act_at(at);
            }
            Event::Resume(at) => {
                next.node(at).link = Link::Up;
                next.act_at(at);
            }
            Event::FailOver(at) => {
                let command = FailOver { nodes: vec![id(at)], allow_unsafe: false, auto: false };
                if next.change(&Command::FailOver(command)) {
                    next.node(at).is_failed = true;
                    next.act();
                }
            }
            Event::ToggleAutomatic => next.toggle_automatic(),
            Event::Rebalance { .. } | Event::Recover { .. } => {
                next.meta = Arc::new(next.rebalanced(event));
                next.act();
            }
            Event::StopRebalance => {
                next.change(&Command::StopRebalance { id: None, now_ms: 0 });
                next.act();
            }
            Event::Graceful(at) => {
                let start = StartGracefulFailover { id: "r".into(), nodes: vec![id(at)], now_ms: 0 };
                next.change(&Command::StartGracefulFailover(start));
                next.act();
            }
        }
        next.part_with_leavers();
        next
    }

    fn stick(&mut self, at: usize, says: bool) {
        let meta = Arc::clone(&self.meta);
        let node = self.node(at);
        node.stuck = Some(Stuck { meta, says });
        node.was_mute |= !says;
    }

    fn toggle_automatic(&mut self) {
        let enabled = !self.meta.auto_failover.enabled;
        let (timeout_secs, max_count) = if enabled { (5, 3) } else { (30, 3) };
        self.change(&Command::SetAutoFailover { enabled, timeout_secs, max_count, whole_groups: false });
        self.act();
    }

    /// A copy is about to be lost as a whole. What only it and leaving nodes have is lost, if another copy is elected that is left.
    fn excuse(&mut self, at: usize) {
        let leaves = |at: usize| self.nodes[at].has_left || self.meta.leaving_gracefully().contains(&id(at));
        let is_left = |&other: &usize| {
            other != at
                && self.plan().nodes().contains(&id(other))
                && !leaves(other)
                && !self.has_failed(other)
        };
        let left: Vec<usize> = (0..self.nodes.len()).filter(is_left).collect();
        if !left.is_empty() && (0..self.nodes.len()).any(leaves) {
            let has = |write: u8| left.iter().any(|&other| self.nodes[other].held.has(write));
            self.excused |=
                (0..self.writes).filter(|&write| !has(write)).fold(0, |bits, write| bits | 1 << write);
        }
    }

    fn restart(&mut self, at: usize, event: Event) {
        let (branch, is_volatile) = (self.branch(), self.bounds.kind == BucketKind::Ephemeral);
        // While its role still says whose source it is.
        self.break_off(at);
        let node = self.node(at);
        match event {
            Event::LoseDisk(_) => node.held = CopyState::blank(is_volatile, branch),
            _ => node.held.restart(matches!(event, Event::Stop(_)), branch),
        }
        (node.agent, node.leash, node.stuck) = (Agent::new(uuid(at)), Leash::RunOut, None);
        self.node(at).link = Link::Up;
        self.act_at(at);
    }

    /// A node ends, and begins again with an old image of its disk, which was made after a clean stop.
    pub(crate) fn restore(&mut self, at: usize, image: &OnDisk) {
        let branch = self.branch();
        self.break_off(at);
        let node = self.node(at);
        node.held.disk = Some(image.clone());
        node.held.reopen(true, branch);
        (node.agent, node.leash, node.link) = (Agent::new(uuid(at)), Leash::RunOut, Link::Up);
        node.stuck = None;
        self.act_at(at);
    }

    /// The metadata once a rebalance has begun.
    pub(crate) fn rebalanced(&self, event: Event) -> Metadata {
        let mut meta = Metadata::clone(&self.meta);
        let (recovered, without, order) = match event {
            Event::Rebalance { without, order } => (None, without.map(id), order),
            Event::Recover { at, order } => (Some(id(at)), None, order),
            _ => return meta,
        };
        let order = self.arranged(usize::from(order));
        meta.nodes.sort_by_key(|node| order.iter().position(|&at| id(at) == node.id));
        let recovery = Some(Recovery::Delta);
        let recover = recovered.map(|node| Command::SetRecovery { node, recovery });
        let all = meta.nodes.iter().map(|node| node.id);
        let (eject, keep) = all.partition(|&node| without == Some(node));
        let start = Command::StartRebalance(StartRebalance { id: "r".into(), keep, eject, now_ms: 0 });
        for command in recover.into_iter().chain([start]) {
            if let Ok((next, _)) = meta.apply(&command) {
                meta = next;
            }
        }
        meta
    }

    /// All nodes in the order of that number, which does not depend on what they are called.
    fn arranged(&self, mut number: usize) -> Vec<usize> {
        let mut left = order(self);
        let places = (1..=left.len()).rev();
        places
            .map(|count| {
                let at = left.remove(number % count);
                number /= count;
                at
            })
            .collect()
    }

    /// Streams to and from a node are over.
    fn break_off(&mut self, at: usize) {
        for other in 0..self.nodes.len() {
            let is_end = other == at || self.source(other) == Some(at);
            if is_end && self.nodes[other].held.following.is_some() {
                let held = &mut self.node(other).held;
                (held.following, held.is_told_all) = (None, false);
            }
        }
        self.node(at).link = Link::Cut;
    }

    pub(crate) fn has_failed(&self, at: usize) -> bool {
        let known = self.meta.nodes.iter().find(|known| known.id == id(at));
        known.is_none_or(|known| known.membership == Membership::InactiveFailed)
    }
}

/// All nodes are active.
fn balance(meta: &mut Metadata) {
    let keep = meta.nodes.iter().map(|node| node.id).collect();
    let start = StartRebalance { id: "r".into(), keep, eject: vec![], now_ms: 0 };
    apply(meta, &Command::StartRebalance(start));
    apply(meta, &Command::FinishRebalance { id: "r".into(), now_ms: 0 });
}

fn apply(meta: &mut Metadata, command: &Command) {
    *meta = meta.apply(command).unwrap().0;
}
