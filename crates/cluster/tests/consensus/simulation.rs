//! Members, disks, network and faults, all drawn from one seed.

mod forged;
mod held_back;
mod reformed;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    sync::Arc,
};

use base::NodeId;
use fastrand::Rng;
use settee_cluster::{
    Command, Divergence, Membership, Metadata, NodeInfo, NodeReport, Ports,
    consensus::{
        Apply, Batch, Consensus, Epoch, LogStore as _, Member, MemoryLog, Place, Proposal, ProposalId,
        StepError, Turn, VOTERS_MAX, Version, epoch_of, found, join,
    },
    level::LEVEL,
};

use crate::checks::{Checks, setting};

pub(crate) use forged::Forged;

/// Most nodes at the same time: more than vote.
const NODES_MAX: usize = 9;

/// Steps from one read to the next, where anybody reads.
const READ_STEPS: u64 = 5;

/// What goes wrong: probabilities in a thousandth per step, of messages in a hundredth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) crash: u32,
    pub(crate) cut: u32,
    pub(crate) drop: u32,
    pub(crate) repeat: u32,
    pub(crate) slow_disk: bool,
    pub(crate) delay: u64,
    /// Nodes that are added or removed.
    pub(crate) members: u32,
}

impl Faults {
    pub(crate) const NONE: Self =
        Self { crash: 0, cut: 0, drop: 0, repeat: 0, slow_disk: false, delay: 0, members: 0 };
    pub(crate) const ALL: Self =
        Self { crash: 15, cut: 15, drop: 5, repeat: 3, slow_disk: true, delay: 8, members: 15 };
}

struct Node {
    id: NodeId,
    /// What its version makes of the log.
    version: Version,
    disk: MemoryLog,
    /// `None` while it is down.
    running: Option<Running>,
    /// Removed from the cluster, and told so: it never comes back.
    is_gone: bool,
}

struct Running {
    group: Consensus,
    /// Turns whose batches are not written yet; those of an earlier life have the number 0.
    unwritten: Vec<(Vec<Batch>, u64)>,
    applied: (u64, u64),
    /// Proposed here, not known to be applied.
    waiting: BTreeMap<ProposalId, Wanted>,
    /// Reads that have not ended, and what was acknowledged when they began.
    reads: Vec<(u64, BTreeSet<ProposalId>)>,
    /// Whether its disk takes nothing.
    is_stalled: bool,
}

/// A command that a member wants to be carried out.
#[derive(Clone)]
struct Wanted {
    command: Command,
    /// What the member knew when it wanted that first, where proposals say so.
    seen: Option<u64>,
}

impl Wanted {
    fn is_setting(&self) -> bool {
        matches!(self.command, Command::PutSetting { .. })
    }
}

struct Letter {
    at: u64,
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

impl Letter {
    fn is_foreign(&self, group: &Consensus) -> bool {
        epoch_of(&self.bytes) != Some(group.epoch())
    }
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
    /// Whether somebody reads now and then.
    pub(crate) is_read: bool,
    proposed: u64,
    writes: u64,
    snapshots: u64,
    /// The node that is sent nonsense.
    misled: Option<usize>,
    /// The nodes that lost a part of their log, and may find out.
    restored: Option<NodeId>,
    /// Whether a node was started with an older version again.
    goes_back: bool,
    /// Nodes that carry changes out in another way.
    odd: Vec<NodeId>,
    /// Of who leads, which nobody else asks.
    divergence: Divergence,
}

impl Simulation {
    /// The first node founds a group whose metadata names all of them; the others know that they belong to it.
    pub(crate) fn new(seed: u64, nodes: u16, faults: Faults) -> Self {
        Self::at_level(seed, nodes, faults, LEVEL)
    }

    /// The same where every node runs a version that understands metadata up to that level, which they are at.
    pub(crate) fn at_level(seed: u64, nodes: u16, faults: Faults, level: u32) -> Self {
        let mut metadata = Metadata { level, ..Metadata::new("cluster".into(), 256) };
        metadata.next_node = nodes;
        metadata.nodes = (0..nodes).map(|id| info(NodeId(id))).collect();
        // Only who does not count may be removed; the first one stays whatever happens.
        let lasting = if faults.members == 0 { metadata.nodes.len() } else { 1 };
        metadata.nodes[..lasting].iter_mut().for_each(|node| node.membership = Membership::Active);
        let metadata = Arc::new(metadata);
        let all = (0..nodes).map(NodeId);
        let nodes = all.map(|id| {
            let member = Member { peers: metadata.nodes.clone(), ..member(id) };
            let first = if id == NodeId(0) { found(&member, &metadata) } else { join(&member) };
            let mut disk = MemoryLog::default();
            disk.write(&[first.unwrap()]).unwrap();
            Node {
                id,
                version: Version { highest: level, ..Version::THIS },
                disk,
                running: None,
                is_gone: false,
            }
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
            is_read: false,
            proposed: 0,
            writes: 0,
            snapshots: 0,
            misled: None,
            restored: None,
            goes_back: false,
            odd: Vec::new(),
            divergence: Divergence::default(),
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
                let at = self.rng.usize(0..self.nodes.len());
                self.propose_setting(at);
            }
        }
        if self.is_read && self.now.is_multiple_of(READ_STEPS) {
            self.read((self.now / READ_STEPS) as usize % self.nodes.len());
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

    /// A member wants to know everything that anybody was told to be done.
    pub(crate) fn read(&mut self, at: usize) {
        let Some(running) = &mut self.nodes[at].running else { return };
        let acknowledged = self.checks.so_far(running.group.epoch());
        running.reads.push((running.group.read(), acknowledged));
    }

    /// Lets everything happen that needs no time.
    pub(crate) fn run_without_ticks(&mut self) {
        self.settle();
    }

    pub(crate) fn start(&mut self, node: usize) {
        let seed = self.rng.u64(..);
        let node = &mut self.nodes[node];
        let group = Consensus::open_as(&node.disk.load().unwrap(), seed, node.version).unwrap();
        let applied = (0, group.metadata().version);
        node.running = Some(Running {
            group,
            unwritten: Vec::new(),
            applied,
            waiting: BTreeMap::new(),
            reads: Vec::new(),
            is_stalled: false,
        });
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

    /// The same, where nothing reached its disk of what was not written yet.
    pub(crate) fn stop_unwritten(&mut self, node: usize) {
        self.nodes[node].running = None;
    }

    /// The node is started again with another version.
    pub(crate) fn replace(&mut self, node: usize, level: u32) {
        self.stop(node);
        self.goes_back |= level < self.nodes[node].version.highest;
        self.nodes[node].version.highest = level;
        self.start(node);
    }

    /// The leader does what its orchestrator would. It raises the level once every node has said that it understands more. It arms
    /// automatic failover by its settings where that is understood.
    pub(crate) fn orchestrate(&mut self) {
        let Some(leader) = self.leader() else { return };
        let metadata = Arc::clone(self.node(leader).metadata());
        let said = |id: NodeId| {
            let node = self.nodes.iter().find(|node| node.id == id)?;
            node.running.as_ref().map(|_| node.version.highest)
        };
        let raise = metadata.next_level(said);
        let since = metadata.auto_failover.since;
        let settings = Command::SetAutoFailover {
            enabled: true,
            timeout_secs: 5 + self.now as u32 % 50,
            max_count: 1,
            whole_groups: false,
        };
        for command in
            [Some(Command::ArmAutoFailoverSince { since }), raise, Some(settings)].into_iter().flatten()
        {
            self.propose(leader, command);
        }
    }

    /// From now on the node is of a version that carries changes out in that way.
    pub(crate) fn make_odd(&mut self, node: usize, apply: Apply) {
        self.stop(node);
        self.nodes[node].version.apply = apply;
        self.odd.push(self.nodes[node].id);
        self.start(node);
    }

    /// Every node reports to the leader, which compares what they have made of the log and fences those that differ from most.
    pub(crate) fn compare(&mut self) {
        let Some(leader) = self.leader() else { return };
        let metadata = Arc::clone(self.node(leader).metadata());
        for node in &mut self.nodes {
            let Some(running) = &mut node.running else { continue };
            let report = report(&running.group, &metadata);
            self.divergence.take(&metadata, &report);
            if let Some(index) = self.divergence.fenced().get(&node.id) {
                running.group.fence(*index);
            }
        }
        self.settle();
    }

    /// What who leads knows of nodes that differ.
    pub(crate) fn divergence(&self) -> &Divergence {
        &self.divergence
    }

    /// The levels that running nodes know the metadata to be at, each once.
    pub(crate) fn levels(&self) -> Vec<u32> {
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let levels: BTreeSet<u32> = running.map(|running| running.group.metadata().level).collect();
        levels.into_iter().collect()
    }

    /// From now on the node's disk takes nothing.
    pub(crate) fn stall(&mut self, node: usize) {
        if let Some(running) = &mut self.nodes[node].running {
            running.is_stalled = true;
        }
    }

    /// From now on what the node is sent is spoiled on the way, and nobody listens to it any more.
    pub(crate) fn mislead(&mut self, node: usize) {
        self.misled = Some(node);
    }

    /// What is on the node's disk now.
    pub(crate) fn copy_of(&self, node: usize) -> MemoryLog {
        self.nodes[node].disk.clone()
    }

    /// The node starts again with what was on its disk once.
    pub(crate) fn restore(&mut self, node: usize, copy: MemoryLog) {
        self.stop(node);
        self.nodes[node].disk = copy;
        self.restored = Some(self.nodes[node].id);
        self.start(node);
    }

    /// A node that nobody has heard of yet is added by that one, and is the last one.
    pub(crate) fn add(&mut self, at: usize) {
        let id = NodeId(self.node(at).metadata().next_node);
        self.propose(at, Command::AddNode(info(id)));
    }

    /// Whether the node was told that it was removed, or is not known.
    pub(crate) fn is_gone(&self, node: usize) -> bool {
        self.nodes[node].is_gone
    }

    /// Everybody hears everybody again.
    pub(crate) fn heal_cuts(&mut self) {
        self.cuts.clear();
    }

    pub(crate) fn heal(&mut self) {
        self.faults = Faults::NONE;
        self.cuts.clear();
        for node in 0..self.nodes.len() {
            if self.nodes[node].running.is_none() && !self.nodes[node].is_gone {
                self.start(node);
            }
        }
    }

    /// Progress, agreement, completeness.
    pub(crate) fn check_after_healing(&mut self) {
        self.proposals_per_step = 0;
        (0..200).for_each(|_| self.step());
        let epoch = self.epoch();
        let before = self.checks.acknowledgements(epoch);
        self.proposals_per_step = 4;
        // A node that is drawn to propose may be gone, every time where many have come and gone.
        let first = self.nodes.iter().position(|node| !node.is_gone).unwrap();
        self.propose_setting(first);
        (0..50).for_each(|_| self.step());
        self.proposals_per_step = 0;
        (0..150).for_each(|_| self.step());
        assert!(self.checks.acknowledgements(epoch) > before, "no progress");
        let there: Vec<usize> = (0..self.nodes.len()).filter(|node| !self.nodes[*node].is_gone).collect();
        let first = Arc::clone(self.node(there[0]).metadata());
        self.checks.nothing_is_lost(epoch, &first);
        let all: BTreeSet<NodeId> = first.nodes.iter().map(|node| node.id).collect();
        let counted = first.nodes.iter().filter(|node| node.membership != Membership::InactiveFailed).count();
        assert_eq!(there.iter().map(|node| self.nodes[*node].id).collect::<BTreeSet<_>>(), all);
        for node in there {
            let group = self.node(node);
            assert_eq!(group.broken(), None);
            assert_eq!(group.epoch(), epoch, "node {node} belongs to another group");
            assert_eq!(group.metadata().as_ref(), first.as_ref(), "node {node} differs");
            assert!(group.has_caught_up(), "node {node} does not know that it has caught up");
            let (voters, learners) = group.members();
            assert_eq!(voters.len(), counted.min(VOTERS_MAX));
            assert_eq!(voters.union(&learners).copied().collect::<BTreeSet<_>>(), all);
        }
    }

    /// The latest one that anybody belongs to.
    pub(crate) fn epoch(&self) -> Epoch {
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        running.map(|running| running.group.epoch()).max().unwrap_or_default()
    }

    /// Has nobody of one side hear anybody of the other, from now on.
    pub(crate) fn separate(&mut self, side: &[usize]) {
        for a in 0..self.nodes.len() {
            for b in (0..self.nodes.len()).filter(|b| side.contains(&a) != side.contains(b)) {
                self.cuts.insert((self.nodes[a].id, self.nodes[b].id), u64::MAX);
            }
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

    /// The leader of the group in that life.
    pub(crate) fn leader_of(&self, epoch: Epoch) -> Option<usize> {
        let leads = |at: &usize| {
            let running = self.nodes[*at].running.as_ref();
            running.is_some_and(|running| running.group.leads() && running.group.epoch() == epoch)
        };
        self.indices().find(leads)
    }

    /// Every node that there has been.
    pub(crate) fn indices(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
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
            let is_down = self.nodes[node].running.is_none() && !self.nodes[node].is_gone;
            if is_down && self.faults.crash > 0 && self.rng.u32(0..30) == 0 {
                self.start(node);
            }
        }
        if self.rng.u32(0..1000) < self.faults.cut {
            self.cut();
        }
        if self.rng.u32(0..1000) < self.faults.members {
            self.change_members();
        }
    }

    /// Somebody has a node added or removed.
    fn change_members(&mut self) {
        let at = self.rng.usize(0..self.nodes.len());
        let Some(running) = &self.nodes[at].running else { return };
        let metadata = running.group.metadata();
        let known: Vec<NodeId> = metadata.nodes.iter().map(|node| node.id).collect();
        let command = if known.len() > 1 && self.rng.bool() {
            Command::RemoveNode { node: known[self.rng.usize(1..known.len())] }
        } else if known.len() < NODES_MAX {
            Command::AddNode(info(NodeId(metadata.next_node)))
        } else {
            return;
        };
        self.propose(at, command);
    }

    /// A node that was added starts; it knows that it belongs to the group.
    fn found_added(&mut self, metadata: &Metadata) {
        for node in &metadata.nodes {
            if self.nodes.iter().all(|known| known.id != node.id) {
                let mut disk = MemoryLog::default();
                disk.write(&[join(&Member { peers: metadata.nodes.clone(), ..member(node.id) }).unwrap()])
                    .unwrap();
                self.nodes.push(Node {
                    id: node.id,
                    version: Version::THIS,
                    disk,
                    running: None,
                    is_gone: false,
                });
                self.start(self.nodes.len() - 1);
            }
        }
    }

    /// The node belongs to the group no more.
    pub(crate) fn remove(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.iter_mut().find(|known| known.id == node) {
            node.is_gone = true;
            node.running = None;
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

    fn propose_setting(&mut self, at: usize) {
        let id = ProposalId { origin: u64::from(self.nodes[at].id.get()), number: self.proposed + 1 };
        self.propose(at, Command::PutSetting { path: setting(id), value: 1.into() });
    }

    /// Has the group agree on a command that a member wants, if it can.
    pub(crate) fn propose(&mut self, at: usize, command: Command) {
        let node = &mut self.nodes[at];
        let Some(running) = &mut node.running else { return };
        self.proposed += 1;
        let id = ProposalId { origin: u64::from(node.id.get()), number: self.proposed };
        let metadata = running.group.metadata();
        let seen = metadata.places_proposals().then_some(metadata.version);
        running.waiting.insert(id, Wanted { command, seen });
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
            let open = waiting.keys().next().map_or(0, |first| first.number);
            for (id, Wanted { command, seen }) in waiting {
                let place = seen.map(|seen| Place { open, seen });
                let _ = leader.group.propose(&Proposal { id, place, command });
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
        let id = self.nodes[at].id;
        let Some(running) = &mut self.nodes[at].running else { return false };
        let turn = running.group.turn();
        let (leads, term) = (running.group.leads(), running.group.term());
        if running.group.is_dismissed() {
            self.remove(id);
            return true;
        }
        let epoch = running.group.epoch();
        if leads && self.misled != Some(at) {
            self.checks.leads(epoch, term, id);
        }
        if turn.is_empty() {
            return false;
        }
        let successor = turn.successor.clone();
        self.carry_out(at, turn);
        if let Some(member) = successor {
            let first = self.node(at).rejoin(&member).unwrap();
            self.begin_again(at, &member, first);
        }
        true
    }

    fn carry_out(&mut self, at: usize, turn: Turn) {
        let node = &mut self.nodes[at];
        let Some(running) = &mut node.running else { return };
        if self.misled == Some(at) {
            running.unwritten.push((turn.batches, turn.number));
            return;
        }
        let is_odd = self.odd.contains(&node.id);
        // What it has made of the log is nobody's business but its own.
        for commit in turn.commits.iter().filter(|_| !is_odd) {
            let epoch = running.group.epoch();
            self.checks.applied(epoch, node.id, running.applied, commit);
            running.applied = (commit.index, commit.metadata.version);
            self.snapshots += u64::from(commit.is_snapshot);
            for (id, outcome) in &commit.outcomes {
                let waited_for = running.waiting.remove(id);
                if waited_for.is_some_and(|wanted| wanted.is_setting()) && outcome.is_ok() {
                    self.checks.acknowledged(epoch, *id);
                }
            }
        }
        for (_, acknowledged) in running.reads.extract_if(.., |(number, _)| Some(*number) <= turn.read) {
            if !is_odd {
                self.checks.read(running.group.metadata(), &acknowledged);
            }
        }
        if !turn.batches.is_empty() {
            running.unwritten.push((turn.batches, turn.number));
        }
        let from = node.id;
        if let Some(last) = turn.commits.last() {
            self.found_added(&last.metadata);
        }
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
        if running.unwritten.is_empty() || running.is_stalled || slow && self.rng.u32(0..4) > 0 {
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
            if let Some(misled) = self.misled.filter(|misled| self.nodes[*misled].id == letter.to) {
                self.deliver_spoiled(misled, &letter.bytes);
                continue;
            }
            let is_cut = self.cuts.contains_key(&(letter.from, letter.to));
            let to = self.nodes.iter_mut().find(|node| node.id == letter.to);
            let Some(to) = to.filter(|_| !is_cut) else { continue };
            let level = to.version.highest;
            let Some(running) = to.running.as_mut() else { continue };
            match running.group.step(Some(letter.from), &letter.bytes) {
                Ok(()) => {}
                // The answer comes back the way the message came.
                Err(StepError::SenderRemoved(sender) | StepError::SenderUnknown(sender))
                    if !self.cuts.contains_key(&(letter.to, letter.from)) =>
                {
                    self.remove(sender);
                }
                Err(StepError::SenderRemoved(_) | StepError::SenderUnknown(_)) => {}
                Err(StepError::SenderFailedOver(_) | StepError::FormedElsewhere(_)) => {}
                // Of another epoch.
                Err(StepError::Refused(_)) if letter.is_foreign(&running.group) => {}
                Err(_) if self.restored == Some(letter.to) && running.group.broken().is_some() => {}
                Err(_) if self.odd.contains(&letter.to) && running.group.broken().is_some() => {}
                Err(_) if self.goes_back && level < LEVEL && running.group.broken().is_some() => {}
                Err(error) => panic!("{error}"),
            }
        }
        any
    }
}

/// What a member says of itself, as far as that matters here.
fn report(group: &Consensus, metadata: &Metadata) -> NodeReport {
    let member = group.member();
    NodeReport {
        boot: 1,
        started: 1,
        number: 1,
        diverged: group.diverged(),
        state: Some(group.marks()),
        ..NodeReport::bare(
            member.node,
            metadata.node_by_id(member.node).map(|node| node.uuid.clone()).unwrap_or_default(),
            group.metadata().version,
        )
    }
}

fn info(id: NodeId) -> NodeInfo {
    let name = format!("node{}", id.get());
    let membership = Membership::InactiveAdded;
    NodeInfo { id, membership, ..NodeInfo::first(name.clone(), name, Ports::default()) }
}

fn member(id: NodeId) -> Member {
    Member {
        uuid: format!("node{}", id.get()),
        node: id,
        cluster_uuid: "cluster".into(),
        epoch: Epoch::default(),
        secret: "secret".into(),
        peers: Vec::new(),
        authority: None,
    }
}
