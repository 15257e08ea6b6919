//! Members, disks, network and faults, all drawn from one seed.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    sync::Arc,
};

use base::NodeId;
use fastrand::Rng;
use settee_cluster::{
    Command, Metadata, NodeInfo, Ports,
    consensus::{
        Batch, Consensus, LogStore as _, Member, MemoryLog, ProposalId, Turn, VOTERS_MAX, found, join,
    },
};

use crate::checks::{Checks, setting};

/// What goes wrong: probabilities in a thousandth per step, of messages in a hundredth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) crash: u32,
    pub(crate) cut: u32,
    pub(crate) drop: u32,
    pub(crate) repeat: u32,
    pub(crate) slow_disk: bool,
    pub(crate) delay: u64,
}

impl Faults {
    pub(crate) const NONE: Self = Self { crash: 0, cut: 0, drop: 0, repeat: 0, slow_disk: false, delay: 0 };
    pub(crate) const ALL: Self = Self { crash: 15, cut: 15, drop: 5, repeat: 3, slow_disk: true, delay: 8 };
}

struct Node {
    id: NodeId,
    disk: MemoryLog,
    /// `None` while it is down.
    running: Option<Running>,
}

struct Running {
    group: Consensus,
    /// Turns whose batches are not written yet.
    unwritten: Vec<(Vec<Batch>, u64)>,
    applied: (u64, u64),
    /// Proposed here, not known to be applied.
    waiting: BTreeMap<ProposalId, Command>,
}

struct Letter {
    at: u64,
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

/// See the module.
pub(crate) struct Simulation {
    rng: Rng,
    faults: Faults,
    now: u64,
    nodes: Vec<Node>,
    letters: Vec<Letter>,
    /// Directions in which nothing arrives, and until when.
    cuts: BTreeMap<(NodeId, NodeId), u64>,
    pub(crate) checks: Checks,
    pub(crate) proposals_per_step: u32,
    proposed: u64,
    writes: u64,
    snapshots: u64,
}

impl Simulation {
    /// The first node founds a group whose metadata names all of them; the others know that they belong to it.
    pub(crate) fn new(seed: u64, nodes: u16, faults: Faults) -> Self {
        let mut metadata = Metadata::new("cluster".into(), 256);
        metadata.next_node = nodes;
        metadata.nodes = (0..nodes).map(|id| info(NodeId(id))).collect();
        let metadata = Arc::new(metadata);
        let all = (0..nodes).map(NodeId);
        let nodes = all.map(|id| {
            let member = member(id);
            let first = if id == NodeId(0) { found(&member, &metadata) } else { join(&member) };
            let mut disk = MemoryLog::default();
            disk.write(&[first.unwrap()]).unwrap();
            Node { id, disk, running: None }
        });
        let mut simulation = Self {
            rng: Rng::with_seed(seed),
            faults,
            now: 0,
            nodes: nodes.collect(),
            letters: Vec::new(),
            cuts: BTreeMap::new(),
            checks: Checks::default(),
            proposals_per_step: 1,
            proposed: 0,
            writes: 0,
            snapshots: 0,
        };
        (0..simulation.nodes.len()).for_each(|node| simulation.start(node));
        simulation
    }

    /// A tenth of a second: faults, ticks, proposals, and what comes of them.
    pub(crate) fn step(&mut self) {
        self.now += 1;
        self.go_wrong();
        for _ in 0..self.proposals_per_step {
            if self.rng.u32(0..4) == 0 {
                self.propose();
            }
        }
        for node in 0..self.nodes.len() {
            // Clocks do not run at the same speed.
            if self.faults.delay == 0 || self.rng.u32(0..20) > 0 {
                self.with_group(node, Consensus::tick);
            }
        }
        self.propose_again();
        self.settle();
    }

    /// Lets everything happen that needs no time.
    pub(crate) fn run_without_ticks(&mut self) {
        self.settle();
    }

    pub(crate) fn start(&mut self, node: usize) {
        let seed = self.rng.u64(..);
        let node = &mut self.nodes[node];
        let group = Consensus::open(&node.disk.load().unwrap(), seed).unwrap();
        let applied = (0, group.metadata().version);
        node.running = Some(Running { group, unwritten: Vec::new(), applied, waiting: BTreeMap::new() });
    }

    /// Ends a node as a failing machine does: of what was not written yet, any beginning is on its disk.
    pub(crate) fn stop(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let Some(running) = node.running.take() else { return };
        let survive = self.rng.usize(0..=running.unwritten.len());
        for (batches, _) in &running.unwritten[..survive] {
            node.disk.write(batches).unwrap();
        }
    }

    pub(crate) fn heal(&mut self) {
        self.faults = Faults::NONE;
        self.cuts.clear();
        for node in 0..self.nodes.len() {
            if self.nodes[node].running.is_none() {
                self.start(node);
            }
        }
    }

    /// Progress, agreement, completeness.
    pub(crate) fn check_after_healing(&mut self) {
        self.proposals_per_step = 0;
        (0..200).for_each(|_| self.step());
        let before = self.checks.acknowledgements();
        self.proposals_per_step = 4;
        (0..50).for_each(|_| self.step());
        self.proposals_per_step = 0;
        (0..150).for_each(|_| self.step());
        assert!(self.checks.acknowledgements() > before, "no progress");
        let first = Arc::clone(self.node(0).metadata());
        self.checks.nothing_is_lost(&first);
        let all: BTreeSet<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        for node in 0..self.nodes.len() {
            let group = self.node(node);
            assert_eq!(group.broken(), None);
            assert_eq!(group.metadata().as_ref(), first.as_ref(), "node {node} differs");
            assert!(group.has_caught_up(), "node {node} does not know that it has caught up");
            let (voters, learners) = group.members();
            assert_eq!(voters.len(), all.len().min(VOTERS_MAX));
            assert_eq!(voters.union(&learners).copied().collect::<BTreeSet<_>>(), all);
        }
    }

    pub(crate) fn node(&self, node: usize) -> &Consensus {
        &self.nodes[node].running.as_ref().unwrap().group
    }

    /// The leader of the highest term.
    pub(crate) fn leader(&self) -> Option<usize> {
        let running =
            self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.running.as_ref()?)));
        let leaders = running.filter(|(_, running)| running.group.leads());
        leaders.max_by_key(|(_, running)| running.group.term()).map(|(at, _)| at)
    }

    pub(crate) fn hand_over(&mut self, node: usize) -> Option<NodeId> {
        let heir = self.with_group(node, Consensus::hand_over).flatten();
        self.settle();
        heir
    }

    /// Stands for everything that happened.
    pub(crate) fn trace(&self) -> u64 {
        self.checks.trace.finish()
    }

    /// Writes to all disks.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Snapshots that members took from another one.
    pub(crate) fn snapshots_installed(&self) -> u64 {
        self.snapshots
    }

    fn with_group<T>(&mut self, node: usize, act: impl FnOnce(&mut Consensus) -> T) -> Option<T> {
        self.nodes[node].running.as_mut().map(|running| act(&mut running.group))
    }

    fn go_wrong(&mut self) {
        let now = self.now;
        self.cuts.retain(|_, until| *until > now);
        if self.rng.u32(0..1000) < self.faults.crash {
            let node = self.rng.usize(0..self.nodes.len());
            self.stop(node);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].running.is_none() && self.faults.crash > 0 && self.rng.u32(0..30) == 0 {
                self.start(node);
            }
        }
        if self.rng.u32(0..1000) < self.faults.cut {
            self.cut();
        }
    }

    /// Separates some from the others, in both directions or one, for a while.
    fn cut(&mut self) {
        let until = self.now + self.rng.u64(5..120);
        let side: Vec<bool> = self.nodes.iter().map(|_| self.rng.bool()).collect();
        let one_way = self.rng.bool();
        for (a, from) in self.nodes.iter().enumerate() {
            for (b, to) in self.nodes.iter().enumerate() {
                if side[a] != side[b] && (!one_way || side[a]) {
                    self.cuts.insert((from.id, to.id), until);
                }
            }
        }
    }

    fn propose(&mut self) {
        let at = self.rng.usize(0..self.nodes.len());
        let node = &mut self.nodes[at];
        let Some(running) = &mut node.running else { return };
        self.proposed += 1;
        let id = ProposalId { origin: u64::from(node.id.get()), number: self.proposed };
        let command = Command::PutSetting { path: setting(id), value: self.proposed.into() };
        running.waiting.insert(id, command);
    }

    /// Everybody proposes what he waits for, now and then, wherever he believes the leader to be.
    fn propose_again(&mut self) {
        for at in 0..self.nodes.len() {
            if self.now % 5 != at as u64 % 5 {
                continue;
            }
            let Some(running) = &self.nodes[at].running else { continue };
            let Some(leader) = running.group.leader() else { continue };
            let me = self.nodes[at].id;
            if self.cuts.contains_key(&(me, leader)) {
                continue;
            }
            let waiting = running.waiting.clone();
            let Some(leader) = self.nodes.iter_mut().find(|node| node.id == leader) else { continue };
            let Some(leader) = &mut leader.running else { continue };
            for (id, command) in waiting {
                let _ = leader.group.propose(id, command);
            }
        }
    }

    /// Takes turns, writes and delivers until nothing is left that could happen now.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for node in 0..self.nodes.len() {
                quiet &= !self.take_turn(node);
                quiet &= !self.write(node);
            }
            quiet &= !self.deliver();
            if quiet {
                break;
            }
        }
    }

    fn take_turn(&mut self, at: usize) -> bool {
        let Some(running) = &mut self.nodes[at].running else { return false };
        let turn = running.group.turn();
        let (leads, term) = (running.group.leads(), running.group.term());
        let id = self.nodes[at].id;
        if leads {
            self.checks.leads(term, id);
        }
        if turn.is_empty() {
            return false;
        }
        self.carry_out(at, turn);
        true
    }

    fn carry_out(&mut self, at: usize, turn: Turn) {
        let node = &mut self.nodes[at];
        let Some(running) = &mut node.running else { return };
        for commit in &turn.commits {
            self.checks.applied(node.id, running.applied, commit);
            running.applied = (commit.index, commit.metadata.version);
            self.snapshots += u64::from(commit.outcomes.len() != 1);
            for (id, outcome) in &commit.outcomes {
                if running.waiting.remove(id).is_some() && outcome.is_ok() {
                    self.checks.acknowledged(*id);
                }
            }
        }
        if !turn.batches.is_empty() {
            running.unwritten.push((turn.batches, turn.number));
        }
        let from = node.id;
        for (to, bytes) in turn.messages {
            let copies = 1 + u32::from(self.rng.u32(0..100) < self.faults.repeat);
            for _ in 0..copies {
                if self.rng.u32(0..100) < self.faults.drop {
                    continue;
                }
                let at = self.now + self.rng.u64(0..=self.faults.delay);
                self.letters.push(Letter { at, from, to, bytes: bytes.clone() });
            }
        }
    }

    fn write(&mut self, at: usize) -> bool {
        let slow = self.faults.slow_disk;
        let node = &mut self.nodes[at];
        let Some(running) = &mut node.running else { return false };
        if running.unwritten.is_empty() || slow && self.rng.u32(0..4) > 0 {
            return false;
        }
        let (batches, number) = running.unwritten.remove(0);
        node.disk.write(&batches).unwrap();
        running.group.written(number);
        self.writes += 1;
        true
    }

    fn deliver(&mut self) -> bool {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.letters).into_iter().partition(|letter| letter.at <= now);
        self.letters = later;
        let due: Vec<Letter> = due;
        let any = !due.is_empty();
        for letter in due {
            let is_cut = self.cuts.contains_key(&(letter.from, letter.to));
            let to = self.nodes.iter_mut().find(|node| node.id == letter.to);
            let Some(running) = to.and_then(|node| node.running.as_mut()).filter(|_| !is_cut) else {
                continue;
            };
            running.group.step(&letter.bytes).unwrap();
        }
        any
    }
}

fn info(id: NodeId) -> NodeInfo {
    NodeInfo { id, ..NodeInfo::first(format!("node{}", id.get()), "127.0.0.1".into(), Ports::default()) }
}

fn member(id: NodeId) -> Member {
    Member {
        uuid: format!("node{}", id.get()),
        node: id,
        cluster_uuid: "cluster".into(),
        secret: "secret".into(),
        peers: Vec::new(),
    }
}
