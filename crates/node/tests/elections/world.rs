//! A few nodes, one vBucket, and what may happen to them. Metadata, orchestrator and agents are the real ones. Timers are as bad
//! as they can be: whenever the leader looks, all of them have run out, so that nothing is safe because somebody waits a while.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use base::{
    BucketUuid, NodeId, Now, VbRole,
    bucket::{BucketKind, DurabilityLevel},
};
use cluster::{
    BucketParams, Command, FailOver, Membership, Metadata, NodeInfo, NodeReport, Orchestrator, Ports,
    StartRebalance, VbPhase, VbPlan,
};
use settee_node::Agent;

use super::copy::{Held, Open, Shelf, is_majority};

/// Longer than any timer of the leader's.
const LONG_MS: u64 = 60_000;

/// Whether a node is there for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Link {
    Up,
    /// It does nothing.
    Paused,
    /// It serves clients, and neither hears nor is heard.
    Cut,
}

#[derive(Clone, Debug)]
struct Node {
    agent: Agent,
    held: Held,
    link: Link,
    /// An operator has decided that what it has is not needed.
    is_failed: bool,
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Node `at` takes a write, which the followers in `told` (bits) get at once.
    Write {
        at: usize,
        level: DurabilityLevel,
        told: u8,
    },
    Feed {
        to: usize,
        all: bool,
    },
    Sync(usize),
    /// The leader looks, and what it wants is done by whoever is there.
    Lead,
    Kill(usize),
    Stop(usize),
    LoseDisk(usize),
    Pause(usize),
    Cut(usize),
    Resume(usize),
    FailOver(usize),
}

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) copies: u8,
    pub(crate) kind: BucketKind,
    pub(crate) writes: usize,
    pub(crate) faults: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    bounds: Bounds,
    meta: Metadata,
    nodes: Vec<Node>,
    writes: u8,
    faults: usize,
    /// With whether that was said of a durable write.
    acknowledged: BTreeSet<(u8, bool)>,
}

fn uuid(id: usize) -> String {
    format!("{id:032x}")
}

const NOW: Now = Now { wall_nanos: 1 << 60, mono_millis: 0 };

impl World {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let mut meta = Metadata::new("c".repeat(32), 100_000);
        let apply = |meta: &mut Metadata, command: &Command| *meta = meta.apply(command).unwrap().0;
        for id in 0..usize::from(bounds.copies) {
            let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
            let mut node = NodeInfo::first(uuid(id), format!("10.0.0.{id}"), ports);
            node.id = NodeId(id as u16);
            apply(&mut meta, &if id == 0 { Command::SetNode(node) } else { Command::AddNode(node) });
        }
        let keep = meta.nodes.iter().map(|node| node.id).collect();
        let start = StartRebalance { id: "r".into(), keep, eject: vec![], now_ms: 0 };
        apply(&mut meta, &Command::StartRebalance(start));
        apply(&mut meta, &Command::FinishRebalance { id: "r".into(), now_ms: 0 });
        let nodes = (0..usize::from(bounds.copies))
            .map(|id| Node {
                agent: Agent::new(uuid(id)),
                held: Held::blank(bounds.kind == BucketKind::Ephemeral),
                link: Link::Up,
                is_failed: false,
            })
            .collect();
        let mut world = Self { bounds, meta, nodes, writes: 0, faults: 0, acknowledged: BTreeSet::new() };
        world.act();
        let params = BucketParams {
            kind: Some(bounds.kind),
            ram_quota_mb: Some(100),
            replicas: Some(bounds.copies - 1),
            ..BucketParams::default()
        };
        apply(
            &mut world.meta,
            &Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params },
        );
        let chain = (0..u16::from(bounds.copies)).map(NodeId).collect();
        world.meta.buckets.get_mut("b").unwrap().vbs = vec![VbPlan::settled(chain, 1)].into();
        world.act();
        for to in 1..usize::from(bounds.copies) {
            world.feed(to, true);
        }
        world
    }

    pub(crate) fn plan(&self) -> &VbPlan {
        &self.meta.buckets["b"].vbs[0]
    }

    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let nodes: Vec<_> = self.nodes.iter().map(|node| (&node.held, node.link, node.is_failed)).collect();
        // What an agent remembers follows from its copy and the plan, but for what it has not done yet.
        let agents: Vec<_> = self.nodes.iter().map(|node| format!("{:?}", node.agent)).collect();
        format!("{:?} {nodes:?} {:?} {}", self.plan(), self.acknowledged, self.writes).hash(&mut hasher);
        (agents, self.faults).hash(&mut hasher);
        hasher.finish()
    }

    /// Everybody who is there does what the newest metadata ask for.
    fn act(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.link == Link::Up) {
            let shelf = Shelf(RefCell::new(std::mem::take(&mut node.held)));
            for _ in 0..20 {
                let _ = node.agent.step(&self.meta, &Open(&shelf), NOW);
            }
            node.held = shelf.0.into_inner();
        }
    }

    fn report(&self, id: usize) -> NodeReport {
        let node = &self.nodes[id];
        let shelf = Shelf(RefCell::new(node.held.clone()));
        NodeReport {
            node: NodeId(id as u16),
            uuid: uuid(id),
            boot: 0,
            started: 0,
            number: 0,
            applied: node.agent.applied(),
            level: cluster::level::LEVEL,
            stands_still: false,
            data_quota: 0,
            data_used: 0,
            disk_total: 0,
            disk_free: 0,
            buckets: node.agent.report(&Open(&shelf)),
        }
    }

    fn lead(&mut self) {
        let mut orchestrator = Orchestrator::new();
        let mut commands = Vec::new();
        for now_ms in [LONG_MS, 2 * LONG_MS] {
            for id in (0..self.nodes.len()).filter(|&id| self.nodes[id].link == Link::Up) {
                orchestrator.report(&self.meta, self.report(id), now_ms);
            }
            commands = orchestrator.step(&self.meta, now_ms);
        }
        for command in commands {
            self.meta = self.meta.apply(&command).unwrap().0;
        }
        self.act();
    }

    /// Whom a node follows by what it was told, if that one feeds it.
    fn source(&self, to: usize) -> Option<usize> {
        let node = &self.nodes[to];
        let wish = node.agent.wishes().into_iter().next()?;
        let from = usize::from(wish.peer.get());
        let active = &self.nodes[from];
        let both_up = node.link == Link::Up && active.link == Link::Up;
        let same = active.held.role == VbRole::Active
            && active.held.term == node.held.term
            && node.held.role == VbRole::Replica;
        (both_up && same).then_some(from)
    }

    fn feed(&mut self, to: usize, all: bool) {
        if let Some(from) = self.source(to) {
            let active = self.nodes[from].held.clone();
            self.nodes[to].held.feed(&active, all);
        }
    }

    fn write(&mut self, at: usize, level: DurabilityLevel, told: u8) {
        let before = self.nodes[at].held.clone();
        let number = self.writes;
        self.writes += 1;
        let mut holders = vec![at];
        for id in 0..self.nodes.len() {
            let takes = told & 1 << id != 0 && self.source(id) == Some(at);
            if takes && self.nodes[id].held.keeps_up(&before) {
                holders.push(id);
            }
        }
        for &id in &holders {
            self.nodes[id].held.log.push(number);
            if level == DurabilityLevel::PersistToMajority {
                self.nodes[id].held.sync();
            }
        }
        let holds = |node: NodeId| holders.contains(&usize::from(node.get()));
        let is_held = before.topology.as_ref().is_some_and(|topology| is_majority(topology, &holds));
        if level == DurabilityLevel::None || is_held {
            self.acknowledged.insert((number, level != DurabilityLevel::None));
        }
    }

    /// Everything that may happen next.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Lead];
        let is_persistent = self.bounds.kind == BucketKind::Couchbase;
        for (id, node) in self.nodes.iter().enumerate() {
            let is_fed = self.source(id).is_some();
            events
                .extend([true, false].into_iter().filter(|_| is_fed).map(|all| Event::Feed { to: id, all }));
            if is_persistent && node.link == Link::Up {
                events.push(Event::Sync(id));
            }
            if usize::from(self.writes) < self.bounds.writes
                && node.held.role == VbRole::Active
                && node.link != Link::Paused
            {
                let levels =
                    [DurabilityLevel::None, DurabilityLevel::Majority, DurabilityLevel::PersistToMajority];
                for level in levels.into_iter().take(if is_persistent { 3 } else { 2 }) {
                    events.extend((0..1 << self.nodes.len()).map(|told| Event::Write {
                        at: id,
                        level,
                        told,
                    }));
                }
            }
            if node.link != Link::Up {
                events.push(Event::Resume(id));
            }
            if self.faults < self.bounds.faults {
                events.extend([Event::Kill(id), Event::Stop(id)]);
                events.extend(is_persistent.then_some(Event::LoseDisk(id)));
                if node.link == Link::Up {
                    events.extend([Event::Pause(id), Event::Cut(id)]);
                }
                if !node.is_failed {
                    events.push(Event::FailOver(id));
                }
            }
        }
        events
    }

    pub(crate) fn after(&self, event: Event) -> Self {
        let mut next = self.clone();
        next.faults += usize::from(is_fault(event));
        match event {
            Event::Write { at, level, told } => next.write(at, level, told),
            Event::Feed { to, all } => next.feed(to, all),
            Event::Sync(id) => next.nodes[id].held.sync(),
            Event::Lead => next.lead(),
            Event::Kill(id) | Event::Stop(id) | Event::LoseDisk(id) => {
                let is_volatile = next.bounds.kind == BucketKind::Ephemeral;
                let node = &mut next.nodes[id];
                match event {
                    Event::LoseDisk(_) => node.held = Held::blank(is_volatile),
                    _ => node.held.restart(matches!(event, Event::Stop(_))),
                }
                node.agent = Agent::new(uuid(id));
                node.link = Link::Up;
                // Streams to and from it are over.
                next.nodes.iter_mut().for_each(|node| node.held.following = None);
                next.act();
            }
            Event::Pause(id) => next.break_off(id, Link::Paused),
            Event::Cut(id) => next.break_off(id, Link::Cut),
            Event::Resume(id) => {
                next.nodes[id].link = Link::Up;
                next.act();
            }
            Event::FailOver(id) => {
                let nodes = vec![NodeId(id as u16)];
                let command = Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false });
                if let Ok((meta, _)) = next.meta.apply(&command) {
                    next.meta = meta;
                    next.nodes[id].is_failed = true;
                    next.act();
                }
            }
        }
        next
    }

    fn break_off(&mut self, id: usize, link: Link) {
        self.nodes[id].link = link;
        self.nodes[id].held.following = None;
    }

    /// The node that serves by the plan, and knows it.
    fn serving(&self) -> Option<usize> {
        let at = usize::from(self.plan().active()?.get());
        let held = &self.nodes[at].held;
        (held.role == VbRole::Active && held.term == self.plan().term).then_some(at)
    }

    /// Whether a copy has a write that nobody has decided to do without.
    fn is_held(&self, write: u8) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.any(|(id, node)| {
            let counts = !node.is_failed && !self.has_failed(NodeId(id as u16));
            counts && !node.held.partial && node.held.log.contains(&write)
        })
    }

    fn has_failed(&self, node: NodeId) -> bool {
        let mut nodes = self.meta.nodes.iter();
        nodes.any(|known| known.id == node && known.membership == Membership::InactiveFailed)
    }

    /// Nobody has the vBucket any more, and an operator has to say whether what is left will do.
    fn is_given_up(&self) -> bool {
        self.plan().chain.is_empty() && self.plan().phase == VbPhase::Settled
    }

    fn has_whole_copy(&self) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.any(|(id, node)| !self.has_failed(NodeId(id as u16)) && !node.held.partial)
    }

    /// What is wrong with this state, which came of another one.
    pub(crate) fn fault(&self, before: &Self) -> Option<String> {
        let terms: Vec<u64> = self.active_terms(false).collect();
        if terms.iter().enumerate().any(|(at, term)| terms[..at].contains(term)) {
            return Some("two are active in one term".into());
        }
        if self.active_terms(true).count() > 1 {
            return Some("two serve that hear the leader".into());
        }
        if self.is_given_up() && !before.is_given_up() && self.has_whole_copy() {
            return Some("it is given up, though there is a whole copy".into());
        }
        // Automatic failover never gives up a durable write: somebody else has it just then.
        let is_step = self.faults == before.faults;
        let given_up = |(write, is_durable): &&(u8, bool)| {
            is_step && *is_durable && before.is_held(*write) && !self.is_held(*write)
        };
        if let Some((write, _)) = self.acknowledged.iter().find(given_up) {
            return Some(format!("the durable write {write} is with nobody any more"));
        }
        let at = self.serving()?;
        let log = &self.nodes[at].held.log;
        // A fault may take the last copy of a write with it; nothing else may, and no copy that has it is passed over.
        let is_lost =
            |(write, _): &&(u8, bool)| !log.contains(write) && before.is_held(*write) && self.is_held(*write);
        let lost = self.acknowledged.iter().find(is_lost)?;
        Some(format!("the acknowledged write {lost:?} is passed over or destroyed by node {at}"))
    }

    fn active_terms(&self, hears: bool) -> impl Iterator<Item = u64> {
        let active = self
            .nodes
            .iter()
            .filter(move |node| node.held.role == VbRole::Active && (!hears || node.link == Link::Up));
        active.map(|node| node.held.term)
    }

    /// What is wrong once everybody is back and nothing happens any more.
    pub(crate) fn fault_after_quiet(&self) -> Option<String> {
        let mut world = self.clone();
        world.faults = world.bounds.faults;
        for node in &mut world.nodes {
            node.link = Link::Up;
        }
        world.act();
        for _ in 0..12 {
            let before = world.clone();
            world.lead();
            if let Some(fault) = world.fault(&before) {
                return Some(fault);
            }
            for id in 0..world.nodes.len() {
                world.feed(id, true);
                world.nodes[id].held.sync();
            }
        }
        match world.serving() {
            Some(_) => None,
            None if world.is_given_up() => None,
            None => Some(format!("nobody serves in the end: {:?}", world.plan())),
        }
    }
}

fn is_fault(event: Event) -> bool {
    matches!(
        event,
        Event::Kill(_)
            | Event::Stop(_)
            | Event::LoseDisk(_)
            | Event::Pause(_)
            | Event::Cut(_)
            | Event::FailOver(_)
    )
}
