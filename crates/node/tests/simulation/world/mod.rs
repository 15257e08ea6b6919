//! Machines, the network between them, clients, and what goes wrong: one thread, one clock, one seed.
//!
//! Here is how the world goes from one moment to the next. The module [`mishaps`] has what goes wrong in it, [`operator`]
//! what people ask of the cluster, and [`verdict`] how it is judged.

mod disks;
mod feeds;
mod indexes;
mod lost_majority;
mod marks;
mod mishaps;
mod operator;
mod scans;
mod tally;
mod verdict;
mod versions;

use std::{collections::BTreeMap, mem, sync::Arc};

use base::{BucketUuid, NodeId, Seqno, VbId};
use cluster::{
    Membership, Metadata, NodeInfo, Ports,
    consensus::{Batch, Epoch, Member, found, join},
};
use engine::Waiter;
use fastrand::Rng;

use crate::{
    clients::{Ask, Clients},
    connection::{Connection, REQUESTS, SUBSCRIBERS, Turn},
    faults::{Faults, NEVER},
    invariants::Invariants,
    journal::Journal,
    kinds::Kind,
    machine::{Clock, Machine, Shelf},
    network::{Letter, Message, Network},
    process::{Leaving, Outside, Process},
    setting::Setting,
};
use feeds::Watch;
use indexes::Indexes;
use lost_majority::Lost;
use mishaps::Mend;
use scans::Scans;
pub(crate) use tally::Tally;
use versions::Versions;

/// Time goes by in steps of so many milliseconds.
const STEP_MILLIS: u64 = 5;
/// Letters that came while a process was paused are read by it within so many milliseconds after it wakes, in any order.
/// What its timers have it do comes between.
const WAKING_MILLIS: u64 = 50;
const CLUSTER: &str = "cluster";
/// Tombstones that are kept for so long outlive every run.
const TOMBSTONES_STAY_SECS: u32 = 24 * 3_600;
/// Nodes that there are at least.
const NODES_MIN: u16 = 3;

type CopyId = (BucketUuid, VbId);

/// See the module.
pub(crate) struct World {
    rng: Rng,
    faults: Faults,
    setting: Setting,
    machines: BTreeMap<NodeId, Machine>,
    network: Network,
    /// Each is taken out while it is carried: in a box, so that little is moved.
    connections: BTreeMap<u64, Box<Connection>>,
    connections_made: u64,
    clients: Clients,
    invariants: Invariants,
    watch: Watch,
    scans: Scans,
    indexes: Indexes,
    versions: Versions,
    pub(crate) journal: Journal,
    /// A copy has lost something, or may have, and perhaps not all of it is there again.
    is_fragile: bool,
    /// Nodes that were failed over at a risk while they served without leases, and the version of the metadata that they have to know.
    /// Until then some of them may go on among themselves, and what they acknowledge is lost with them.
    strays: Vec<(NodeId, u64)>,
    /// What active copies had when all was otherwise well: term and last seqno.
    floors: Option<BTreeMap<CopyId, (u64, Seqno)>>,
    /// What will be mended, and when.
    mends: Vec<(u64, Mend)>,
    /// Nodes that were lost with the majority, and are to be failed over.
    lost: Option<Lost>,
    /// Things made so far: buckets, rebalances.
    made: u64,
    tally: Tally,
}

impl World {
    /// The first node founds a cluster that consists of all of them.
    pub(crate) fn new(seed: u64, kind: &Kind) -> Self {
        let (faults, setting) = (kind.faults, kind.setting);
        let nodes = NODES_MIN + (seed % u64::from(setting.more_nodes + 1)) as u16;
        let mut rng = Rng::with_seed(seed);
        let level = Versions::at_first(seed, &faults);
        let mut metadata = Metadata { level, ..Metadata::new(CLUSTER.into(), 1_024) };
        metadata.next_node = nodes;
        metadata.nodes = (0..nodes).map(|id| info(NodeId(id))).collect();
        let metadata = Arc::new(metadata);
        let machines = (0..nodes).map(NodeId).map(|id| {
            let member = member(id);
            let first = if id == NodeId(0) { found(&member, &metadata) } else { join(&member) };
            let clock = clock(&mut rng);
            (id, Machine::new(member, clock, shelf(&mut rng, &setting, first.unwrap())))
        });
        let machines = machines.collect();
        let mut network = Network::new();
        (network.loss, network.repeats) = (faults.loss, faults.loss);
        (network.delay_max, network.breaks) = (faults.delay_max, faults.broken_link);
        let mut world = Self {
            rng,
            faults,
            setting,
            machines,
            network,
            connections: BTreeMap::new(),
            connections_made: 0,
            clients: Clients::new(setting),
            invariants: Invariants::default(),
            watch: Watch::new(seed),
            scans: Scans::new(seed),
            indexes: Indexes::new(seed),
            versions: Versions::default(),
            journal: Journal::new(),
            is_fragile: false,
            strays: Vec::new(),
            floors: None,
            mends: Vec::new(),
            lost: None,
            made: 0,
            tally: Tally::default(),
        };
        world.invariants.certainty.is_promised = faults.are_none();
        world.invariants.tombstones_go = setting.purge_secs < TOMBSTONES_STAY_SECS;
        let promised = faults.promise().level;
        world.invariants.resolution.is_promised = promised == base::bucket::DurabilityLevel::None;
        world.invariants.states.applied(&metadata);
        for id in (0..nodes).map(NodeId) {
            world.versions.install(id, level);
            world.start(id);
        }
        world
    }

    // ---- a step ---------------------------------------------------------------------------------------------------

    fn step(&mut self) {
        self.journal.now += STEP_MILLIS;
        let now = self.journal.now;
        self.mend_what_is_due();
        self.follow_membership();
        for id in self.ids() {
            if self.machines[&id].process.is_none() && self.machines[&id].starts_at <= now {
                self.start(id);
            }
        }
        while let Some(letter) = self.network.receive(now) {
            self.deliver(letter);
        }
        for id in self.ids() {
            self.run(id);
        }
        self.follow_old_images();
        self.follow_strays();
        self.note_damage();
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.carry(number));
        for id in self.ids() {
            self.dial(id);
        }
        self.ask();
        self.read_where_pinned();
        self.watch_feeds();
        self.scan();
        self.index();
        self.check();
    }

    fn ids(&self) -> Vec<NodeId> {
        self.machines.keys().copied().collect()
    }

    fn machine(&mut self, id: NodeId) -> &mut Machine {
        self.machines.get_mut(&id).expect("one of the machines")
    }

    /// Those that there are.
    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.machines.values().filter_map(|machine| machine.process.as_ref())
    }

    fn newest(&self) -> &Arc<Metadata> {
        self.invariants.states.newest()
    }

    /// Lets a process do something, if it runs.
    fn with<T>(
        &mut self,
        id: NodeId,
        act: impl FnOnce(&mut Process, &mut Shelf, &mut Outside<'_>) -> T,
    ) -> Option<T> {
        let at = self.journal.now;
        let machine = self.machines.get_mut(&id)?;
        let now = machine.clock.now(at);
        let disk_works = machine.slow_until <= at || self.rng.u8(0..50) == 0;
        let log_works = machine.log_hangs_until <= at;
        let process = machine.process.as_mut().filter(|_| machine.paused_until <= at)?;
        let mut outside = Outside {
            at,
            now,
            lease_now: machine.clock.lease_millis(at),
            rng: &mut self.rng,
            network: &mut self.network,
            journal: &mut self.journal,
            disk_works,
            log_works,
            applied: Vec::new(),
            proposed: Vec::new(),
        };
        let done = act(process, &mut machine.shelf, &mut outside);
        let (applied, proposed) = (mem::take(&mut outside.applied), mem::take(&mut outside.proposed));
        if process.is_of_cluster() && process.leads() {
            self.invariants.states.leads((process.epoch(), process.raft_term()), id);
        }
        self.check_proposed(&proposed);
        // A member that has heard nothing of its cluster yet begins with nothing when its group is formed anew.
        for state in applied.into_iter().filter(|state| state.next_node > 0) {
            let newest = Arc::clone(self.newest());
            if let Some(before) = self.invariants.states.applied(&state) {
                self.changed(&before, &state);
            }
            if state.rev_epoch > newest.rev_epoch {
                self.reformed(&newest, &state, id);
            }
        }
        Some(done)
    }

    /// The cluster has agreed on a change.
    fn changed(&mut self, before: &Metadata, after: &Metadata) {
        self.invariants.rebalances.changed(before, after);
        self.versions.changed(before, after);
        let failed = |state: &Metadata| -> Vec<NodeId> {
            let failed = state.nodes.iter().filter(|node| node.membership == Membership::InactiveFailed);
            failed.map(|node| node.id).collect()
        };
        let known = failed(before);
        let news: Vec<NodeId> = failed(after).into_iter().filter(|id| !known.contains(id)).collect();
        if news.is_empty() {
            return;
        }
        self.journal.note(format_args!("{news:?} are failed over"));
        self.tally.failovers += news.len() as u64;
        if self.faults.timeouts != NEVER && self.rng.bool() {
            // Somebody changes the settings before an election is over.
            let at = self.journal.now + self.rng.u64(0..1_500);
            self.mends.push((at, Mend::ChangeTimeout));
        }
        self.lost_something();
        if before.unsafe_without(&news).is_some() {
            self.risk_everything("somebody takes a risk");
            // Leases end before anybody else serves. Without them nothing stops these nodes but the news.
            let strays: Vec<NodeId> =
                known.into_iter().chain(news).filter(|id| self.serves_unleased(*id)).collect();
            self.strays.extend(strays.into_iter().map(|id| (id, after.version)));
        }
    }

    fn serves_unleased(&self, id: NodeId) -> bool {
        let process = self.machines.get(&id).and_then(|machine| machine.process.as_ref());
        process.is_some_and(|process| !process.is_leased())
    }

    /// Once the last stray knows, what strays acknowledged since is known to be at risk as well.
    fn follow_strays(&mut self) {
        let before = self.strays.len();
        let Self { strays, machines, .. } = self;
        strays.retain(|(id, version)| {
            let process = machines.get(id).and_then(|machine| machine.process.as_ref());
            process.is_some_and(|process| process.metadata.version < *version)
        });
        if before > 0 && self.strays.is_empty() {
            self.risk_everything("nodes that were failed over at a risk know that by now");
        }
    }

    /// Nothing is promised any more of what was written so far.
    fn risk_everything(&mut self, why: &str) {
        self.journal.note(format_args!("{why}"));
        self.clients.forget();
        self.invariants.histories.forget();
        self.invariants.never_back.forget();
        self.invariants.resolution.forget();
    }

    /// A copy is gone, or may be.
    fn lost_something(&mut self) {
        (self.is_fragile, self.floors) = (true, None);
    }

    /// Nodes that were added begin. Those that were removed are gone once they have heard that, and have begun anew.
    fn follow_membership(&mut self) {
        let newest = Arc::clone(self.newest());
        for node in &newest.nodes {
            if !self.machines.contains_key(&node.id) {
                // It is asked to join by the group that knows of it.
                let epoch = self.processes().map(Process::epoch).max().unwrap_or_default();
                let member = Member { peers: newest.nodes.clone(), epoch, ..member(node.id) };
                let first = join(&member).unwrap();
                let shelf = shelf(&mut self.rng, &self.setting, first);
                let clock = clock(&mut self.rng);
                self.machines.insert(node.id, Machine::new(member, clock, shelf));
                self.tally.joined += 1;
            }
        }
        for id in self.ids() {
            let machine = &self.machines[&id];
            let leaving = match machine.is_wiped && newest.node_by_id(id).is_none() {
                true => Leaving::Left,
                false => machine.process.as_ref().map(|process| process.leaving).unwrap_or_default(),
            };
            match leaving {
                Leaving::No | Leaving::Torn => {}
                Leaving::Kept => {
                    assert!(
                        newest.node_by_id(id).is_none(),
                        "nobody has heard of {id}, which belongs to the cluster"
                    );
                    // Somebody decides that what it holds is to go.
                    self.with(id, |process, _, outside| process.begin_anew(outside));
                }
                Leaving::Left => {
                    assert!(newest.node_by_id(id).is_none(), "{id} has left, and belongs to the cluster");
                    self.journal.note(format_args!("{id} is gone"));
                    self.connections.values_mut().for_each(|connection| connection.lose_end_of(id));
                    self.watch.lose(id);
                    self.scans.lose(id);
                    self.machines.remove(&id);
                    self.invariants.never_back.left(id);
                    self.tally.left += 1;
                }
            }
        }
    }

    fn run(&mut self, id: NodeId) {
        let woken = self.with(id, Process::run).unwrap_or_default();
        for waiter in woken.into_iter().filter(|waiter| waiter.worker != REQUESTS) {
            self.wake(waiter);
        }
    }

    fn wake(&mut self, waiter: Waiter) {
        if waiter.worker == SUBSCRIBERS {
            self.watch.wake(waiter);
        } else if let Some(connection) = self.connections.get_mut(&waiter.connection) {
            connection.wake(waiter);
        }
    }

    fn deliver(&mut self, letter: Letter) {
        let now = self.journal.now;
        let Some(to) = letter.to else {
            if let Message::Answer(answer) = letter.message {
                // What a node says that has not heard yet that its group was formed anew counts for nothing.
                if answer.rev_epoch < self.newest().rev_epoch {
                    return self.clients.void_answer(answer.id, &mut self.invariants);
                }
                let (rng, invariants) = (&mut self.rng, &mut self.invariants);
                let promise = self.faults.promise();
                self.clients.answered((answer.id, answer.ended), now, rng, invariants, promise);
            }
            return;
        };
        if let Some(machine) = self.machines.get(&to).filter(|machine| machine.paused_until > now) {
            // It waits where the operating system keeps it.
            let read_at = machine.paused_until + self.rng.u64(0..WAKING_MILLIS);
            self.network.put(read_at, letter);
            return;
        }
        self.with(to, |process, _, outside| match letter.message {
            Message::Consensus(bytes) => {
                letter.from.into_iter().for_each(|from| process.step(from, bytes.clone(), outside));
            }
            Message::Verdict((me, cluster), epoch, verdict) => {
                process.judged((me, &cluster), epoch, verdict, outside);
            }
            Message::Propose(proposal) => process.take_proposal(&proposal, letter.from, outside),
            Message::Proposed { id, taken } => process.handed(id, taken, outside.now.mono_millis),
            Message::Report(report) => process.take_report(report, outside),
            Message::Reported { of, taken } => process.reported(of, taken, outside.lease_now),
            Message::AskSurvivor => {
                let said = process.survivor(outside.lease_now);
                outside.send(to, letter.from, Message::Survivor(said));
            }
            Message::Survivor(said) => {
                letter.from.into_iter().for_each(|from| process.survivor_said(from, said, outside));
            }
            Message::Reform(offer, id, command) => process.reform(offer, id, *command, outside),
            Message::Request(request) => process.take_request(request, outside),
            Message::Answer(_) => {}
        });
    }

    fn ask(&mut self) {
        let now = self.journal.now;
        let machines = &self.machines;
        let newest = |rng: &mut Rng| {
            let running: Vec<_> = machines.values().filter_map(|machine| machine.process.as_ref()).collect();
            rng.choice(running).map(|process| Arc::clone(&process.metadata))
        };
        let asks = self.clients.step(now, &mut self.rng, &mut self.invariants, &newest);
        for Ask { to, request } in asks {
            if self.machines.get(&to).is_none_or(|machine| machine.process.is_none()) {
                self.clients.unreachable(request.id, now);
                continue;
            }
            let letter = Letter { from: None, to: Some(to), message: Message::Request(request) };
            self.network.send(&mut self.rng, now, letter);
        }
    }

    /// Readers that ask one node each, whatever maps say: they are told what that node believes that it serves. Where it serves by
    /// a lease, that has to be right.
    fn read_where_pinned(&mut self) {
        let at = self.journal.now;
        let ids = if self.clients.rest { Vec::new() } else { self.ids() };
        let life = self.newest().rev_epoch;
        for id in ids {
            let (clients, rng) = (&self.clients, &mut self.rng);
            let machine = self.machines.get_mut(&id).expect("one of the machines");
            let now = (machine.clock.now(at), machine.clock.lease_millis(at));
            let counts = |process: &&mut Process| process.is_leased() && process.metadata.rev_epoch == life;
            let Some(process) = machine.running(at).filter(counts) else { continue };
            let Some(place) = clients.any_key(&process.metadata, rng) else { continue };
            if let Some(value) = process.serve_read(&place, now) {
                self.tally.pinned_reads += 1;
                self.clients.note_found(vec![place.found(value)], &mut self.invariants);
            }
        }
    }

    // ---- connections ----------------------------------------------------------------------------------------------

    /// Nodes dial whom they want to follow.
    fn dial(&mut self, follower: NodeId) {
        let at = self.journal.now;
        let machine = self.machine(follower);
        let now = machine.clock.now(at);
        let Some(process) = machine.running(at) else { return };
        let wanted: Vec<_> = process
            .links
            .iter()
            .filter(|(_, link)| link.connection.is_none() && now.mono_millis >= link.dial_at)
            .map(|(key, _)| key.clone())
            .collect();
        for (bucket, followed) in wanted {
            self.connect(follower, followed, &bucket);
        }
    }

    fn connect(&mut self, follower: NodeId, followed: NodeId, bucket: &BucketUuid) {
        let at = self.journal.now;
        let is_cut = self.network.is_cut(follower, followed) || self.network.is_cut(followed, follower);
        let open = |world: &Self, id: NodeId| {
            let process = world.machines.get(&id)?.process.as_ref()?;
            process.bucket(bucket).map(|(name, engine)| (name.to_owned(), Arc::clone(engine)))
        };
        let ends = open(self, follower).zip(open(self, followed)).filter(|_| !is_cut);
        let arrives = at + self.network.delay(&mut self.rng, Some(follower), Some(followed));
        let now = self.machine(follower).clock.now(at);
        let number = self.connections_made + 1;
        let key = (bucket.clone(), followed);
        let machine = self.machine(follower);
        let Some(link) = machine.process.as_mut().and_then(|process| process.links.get_mut(&key)) else {
            return;
        };
        let Some(((name, replicas), (_, copies))) = ends else {
            link.lost(now.mono_millis);
            return;
        };
        link.connected(number, now.mono_millis);
        self.journal.note(format_args!("{follower} follows {followed} by connection {number}"));
        self.connections_made = number;
        // A second connection of a name closes the first.
        for other in self.connections.values_mut() {
            if (&other.key.0, other.follower, other.followed) == (bucket, follower, followed) {
                other.lose_end_of(followed);
            }
        }
        let turn = Turn { at, now, arrives, is_cut: false };
        let connection = Connection::open(
            (number, bucket, name.as_str()),
            (follower, &replicas),
            (followed, &copies),
            turn,
        );
        self.connections.insert(number, Box::new(connection));
    }

    /// Both ends of a connection do what is due.
    fn carry(&mut self, number: u64) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        let at = self.journal.now;
        self.carry_to_follower(number, &mut connection);
        self.carry_to_followed(&mut connection);
        if self.happens(self.network.breaks) {
            let node = if self.rng.bool() { connection.follower } else { connection.followed };
            self.journal.note(format_args!("{node} closes connection {number}"));
            self.tally.broken_links += 1;
            self.lose_end(number, &mut connection, node);
        }
        // An end that is alone notices, unless nothing gets through.
        let (follower, followed) = (connection.follower, connection.followed);
        let is_alone = connection.has_following() != connection.has_host();
        let is_cut = self.network.is_cut(follower, followed) || self.network.is_cut(followed, follower);
        if is_alone && !is_cut {
            let noticed_at = *connection.noticed_at.get_or_insert(at + self.rng.u64(0..1_000));
            if at >= noticed_at {
                self.lose_end(number, &mut connection, follower);
                self.lose_end(number, &mut connection, followed);
            }
        }
        if connection.has_following() || connection.has_host() {
            self.connections.insert(number, connection);
        }
    }

    /// Of the node at this end of a connection to another one.
    fn turn(&mut self, id: NodeId, other: NodeId, is_cut: bool) -> Option<Turn> {
        let at = self.journal.now;
        let arrives = at + self.network.delay(&mut self.rng, Some(id), Some(other));
        let now = self.machines.get(&id)?.clock.now(at);
        Some(Turn { at, now, arrives, is_cut })
    }

    fn carry_to_follower(&mut self, number: u64, connection: &mut Connection) {
        let (follower, followed) = (connection.follower, connection.followed);
        let is_cut = self.network.is_cut(followed, follower);
        let Some(turn) = self.turn(follower, followed, is_cut) else { return };
        let key = Arc::clone(&connection.key);
        let Some(process) = self.machine(follower).running(turn.at) else { return };
        let engine = process.bucket(&key.0).map(|(_, engine)| Arc::clone(engine));
        let link = process.links.get_mut(&*key).filter(|link| link.connection == Some(number));
        let Some(link) = link.filter(|_| engine.is_some_and(|engine| connection.feeds(&engine))) else {
            return self.lose_end(number, connection, follower);
        };
        let is_news = std::mem::take(&mut link.has_news);
        let goes_on = connection.follow(&link.streams, is_news, turn);
        let changes = connection.changes();
        process.follows(&key, changes);
        if !goes_on {
            self.lose_end(number, connection, follower);
        }
    }

    fn carry_to_followed(&mut self, connection: &mut Connection) {
        let (follower, followed) = (connection.follower, connection.followed);
        let is_cut = self.network.is_cut(follower, followed);
        let Some(turn) = self.turn(followed, follower, is_cut) else { return };
        let Some(process) = self.machine(followed).running(turn.at) else { return };
        if process.bucket(&connection.key.0).is_none() || !connection.be_followed(turn) {
            connection.lose_end_of(followed);
        }
    }

    /// An end is closed by its own node.
    fn lose_end(&mut self, number: u64, connection: &mut Connection, node: NodeId) {
        connection.lose_end_of(node);
        let Some(machine) = self.machines.get_mut(&node) else { return };
        let now = machine.clock.now(self.journal.now).mono_millis;
        let key = Arc::clone(&connection.key);
        if node == connection.follower
            && let Some(process) = &mut machine.process
            && let Some(link) = process.links.get_mut(&*key).filter(|link| link.connection == Some(number))
        {
            link.lost(now);
        }
    }
}

fn clock(rng: &mut Rng) -> Clock {
    Clock::new(rng.u64(0..1_000_000), rng.i64(-1_000..=1_000), rng.i64(-500..=500))
}

fn shelf(rng: &mut Rng, setting: &Setting, first: Batch) -> Shelf {
    Shelf::new(first, rng.usize(1..=2), setting, rng.u64(..))
}

fn info(id: NodeId) -> NodeInfo {
    let node = NodeInfo::first(uuid(id), format!("10.0.0.{}", id.get()), Ports::default());
    NodeInfo { id, ..node }
}

fn member(id: NodeId) -> Member {
    let (cluster_uuid, epoch, secret) = (CLUSTER.into(), Epoch::default(), "secret".into());
    Member { uuid: uuid(id), node: id, cluster_uuid, epoch, secret, peers: Vec::new(), authority: None }
}

fn uuid(id: NodeId) -> String {
    format!("{:032x}", id.get())
}
