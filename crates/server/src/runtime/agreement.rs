//! Drives [`Consensus`]: gives it time, messages and proposals, and carries its batches to the disk, its messages to the
//! other nodes and its commits to [`super::control`].
//!
//! | thread | does | never |
//! |---|---|---|
//! | consensus | ticks, steps and takes turns | waits for the disk, the network or a bucket |
//! | consensus-log | writes batches, synced | |
//! | metadata | carries out commits, in order (in `control`) | |
//!
//! A slow disk delays what relies on it, a slow bucket delays what is carried out, and neither delays a heartbeat. A node
//! that is its own cluster has nobody to send heartbeats to: its consensus thread sleeps until something comes in.
//!
//! A node that joins, leaves or begins anew goes on by what it knew until what it begins with is on its disk, and acts on nothing
//! meanwhile: files that go because of it must not be missed by who it was, after a crash.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use base::NodeId;
use cluster::{
    ClusterError, Command, Membership, Metadata,
    consensus::{
        Batch, Commit, Consensus, Epoch, LogError, LogStore, Member, Position, ProposalId, ProposeError,
        Round, Stored, found, rejoin,
    },
};
use node::Confirmations;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{
    background::spawn,
    identity::ThisNode,
    peers::{Peers, Verdict},
};
use crate::{account::Accounted, lease};

/// Raft's unit of time.
const TICK: Duration = Duration::from_millis(100);
/// Messages that may wait to be stepped; what is beyond is dropped, as by a network.
const MESSAGES_WAITING: usize = 1024;
/// How long it rests after a write that found no space.
const WRITE_RETRY: Duration = Duration::from_millis(500);
/// How long a node that was removed goes on telling clients where to go.
const LINGER: Duration = Duration::from_secs(3);
/// How long a stopping leader waits for somebody to take over.
const HAND_OVER: Duration = Duration::from_secs(1);
/// Why a node goes on with nothing that holds data which it was given by nodes that were lost.
const UNKNOWN: &str = "nodes that were failed over since had this node take data, and their cluster, which was formed anew without them, \
                       knows nothing of it; it keeps what it has until it is reset (POST /controller/hardResetNode)";

/// What goes into the consensus thread.
enum Event {
    Message(Vec<u8>),
    Propose(ProposalId, Box<Command>, oneshot::Sender<Result<(), ProposeError>>),
    /// Asks whether this node leads, of a majority.
    Confirm(oneshot::Sender<Confirmed>),
    /// Asks for everything that was agreed on before to be carried out here.
    Read(oneshot::Sender<()>),
    /// Batches of that life up to that number are durable.
    Written(u64, u64),
    /// The log takes nothing any more, for that reason.
    LogLost(String),
    /// The answer says whether somebody was asked to take over.
    HandOver(Sender<bool>),
    /// Joins another cluster with that first batch.
    Become(Batch),
    /// Asks how far this member's log goes.
    Position(oneshot::Sender<Position>),
    /// Forms the group anew.
    Reform(Box<Reform>, oneshot::Sender<Result<(), ClusterError>>),
    /// What another node says of this one, which had that number in its cluster.
    Judged(NodeId, Verdict),
    /// Makes this node new, whatever it belongs to.
    Reset(oneshot::Sender<Result<(), LogError>>),
    Stop,
}

/// A group to be formed anew, and what it begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reform {
    pub(crate) epoch: Epoch,
    pub(crate) id: ProposalId,
    pub(crate) command: Command,
}

/// This node led after it was asked.
#[derive(Debug)]
pub(crate) struct Confirmed {
    /// In that term.
    pub(crate) term: u64,
    /// What had been agreed on, as far as it is known here; it may not have been carried out yet.
    pub(crate) agreed: Arc<Metadata>,
}

/// What is to be carried out.
pub(crate) struct Applied {
    /// In order.
    pub(crate) commits: Vec<Commit>,
    /// To be answered when that is done.
    pub(crate) reads: Vec<oneshot::Sender<()>>,
    /// Whether everything is here that was agreed on when this node started or joined.
    pub(crate) caught_up: bool,
}

/// Batches of one life of this node in a cluster.
struct Write {
    life: u64,
    number: u64,
    batches: Vec<Batch>,
}

/// What anybody may know.
#[derive(Default)]
struct Status {
    /// Its number and one; 0 for nobody.
    leader: AtomicU32,
    /// Raft's term that this node leads in; 0 for none.
    leads_in: AtomicU64,
    /// Whether this node votes, applies and proposes.
    takes_part: AtomicBool,
    /// Who belongs to the group.
    members: ArcSwap<BTreeSet<NodeId>>,
    /// Those of them that vote.
    voters: ArcSwap<BTreeSet<NodeId>>,
    /// The group's life.
    epoch: ArcSwap<Epoch>,
    /// Why metadata cannot change now.
    trouble: Mutex<Option<String>>,
    /// Since when the disk has been at one write, by the clock of leases; 0 while it is at none.
    writing_since: AtomicU64,
    messages: AtomicUsize,
    /// Whether the node stops, and a disk that refuses is waited for no longer.
    stopping: AtomicBool,
}

/// The running consensus of this node.
pub(crate) struct Agreement {
    inbox: Sender<Event>,
    status: Arc<Status>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A way in before there is an [`Agreement`].
pub(crate) struct Inbox {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver }
    }

    /// What [`Peers`] calls when another node says that this one is none of its cluster's.
    pub(crate) fn on_verdict(&self) -> impl Fn(NodeId, Verdict) + Send + Sync + 'static {
        let sender = self.sender.clone();
        // An error means that the node stops.
        move |me, verdict| drop(sender.send(Event::Judged(me, verdict)))
    }
}

/// What a node consists of that belongs to no cluster: who it is, and its metadata.
pub(crate) type Fresh = Box<dyn Fn() -> Result<(Member, Metadata), LogError> + Send>;

/// What the consensus thread is made of.
pub(crate) struct Parts {
    pub(crate) group: Consensus,
    pub(crate) store: Box<dyn LogStore>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) this_node: Arc<ThisNode>,
    /// For elections' timeouts.
    pub(crate) seed: u64,
    /// For when this node is removed from its cluster.
    pub(crate) fresh: Fresh,
    pub(crate) applied: Sender<Applied>,
    /// Of the log.
    pub(crate) memory: Accounted,
}

impl Agreement {
    /// Starts the threads.
    pub(crate) fn start(inbox: Inbox, parts: Parts) -> io::Result<Arc<Self>> {
        let status = Arc::<Status>::default();
        let (writes, jobs) = mpsc::channel();
        let (written, troubled) = (inbox.sender.clone(), Arc::clone(&status));
        let store = parts.store;
        let log = spawn("consensus-log", move || write_all(store, &jobs, &written, &troubled))?;
        let mut driver = Driver {
            caught_up: parts.group.has_caught_up(),
            group: parts.group,
            inbox: inbox.receiver,
            status: Arc::clone(&status),
            writes,
            peers: parts.peers,
            this_node: parts.this_node,
            seed: parts.seed,
            fresh: parts.fresh,
            applied: parts.applied,
            memory: parts.memory,
            known: None,
            members: Default::default(),
            parts_at: None,
            life: 0,
            beginning: None,
            reads: VecDeque::new(),
            confirmations: Confirmations::default(),
            log_lost: None,
        };
        driver.publish();
        let thread = spawn("consensus", move || driver.run())?;
        Ok(Arc::new(Self { inbox: inbox.sender, status, threads: Mutex::new(vec![thread, log]) }))
    }

    /// Who leads, as far as is known here.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leader = self.status.leader.load(Ordering::Acquire);
        leader.checked_sub(1).and_then(|id| u16::try_from(id).ok()).map(NodeId)
    }

    /// Whether this node leads.
    pub(crate) fn leads(&self) -> bool {
        self.leads_in().is_some()
    }

    /// The term that this node leads in, as far as it knows.
    pub(crate) fn leads_in(&self) -> Option<u64> {
        Some(self.status.leads_in.load(Ordering::Acquire)).filter(|term| *term > 0)
    }

    /// Whether a node belongs to the group, whatever the metadata says.
    pub(crate) fn has_member(&self, node: NodeId) -> bool {
        self.status.members.load().contains(&node)
    }

    /// Who votes, as far as is known here.
    pub(crate) fn voters(&self) -> Arc<BTreeSet<NodeId>> {
        self.status.voters.load_full()
    }

    /// The life of the group that this node belongs to.
    pub(crate) fn epoch(&self) -> Epoch {
        **self.status.epoch.load()
    }

    /// Whether this node still takes part in what the cluster agrees on. If not, [`Agreement::trouble`] says why.
    pub(crate) fn takes_part(&self) -> bool {
        self.status.takes_part.load(Ordering::Acquire)
    }

    /// Why metadata cannot change now, if that is known here.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.status.trouble.lock().clone()
    }

    /// Since when the disk has been at one write, by the clock of leases.
    pub(crate) fn writing_since(&self) -> Option<u64> {
        Some(self.status.writing_since.load(Ordering::Acquire)).filter(|since| *since > 0)
    }

    /// Takes a message of another node, unless too many wait.
    pub(crate) fn step(&self, message: Vec<u8>) {
        if self.status.messages.load(Ordering::Relaxed) < MESSAGES_WAITING {
            self.status.messages.fetch_add(1, Ordering::Relaxed);
            self.put(Event::Message(message));
        }
    }

    /// Proposes; the answer says whether it was taken, not how it ended.
    pub(crate) async fn propose(&self, id: ProposalId, command: Command) -> Result<(), ProposeError> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Propose(id, Box::new(command), answer));
        answered.await.unwrap_or(Err(ProposeError::Busy))
    }

    /// Waits until a majority has confirmed that this node led when this was called. `None` where it does not, or nobody says so in
    /// time.
    pub(crate) async fn confirm(&self, patience: Duration) -> Option<Confirmed> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Confirm(answer));
        tokio::time::timeout(patience, answered).await.ok()?.ok()
    }

    /// Waits until everything is carried out here that was agreed on anywhere before this was asked; whether that is so by
    /// now. It is not where nobody can say what was agreed on.
    pub(crate) async fn read(&self, patience: Duration) -> bool {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Read(answer));
        matches!(tokio::time::timeout(patience, answered).await, Ok(Ok(())))
    }

    /// How far this node's log goes; `None` when the node stops.
    pub(crate) async fn position(&self) -> Option<Position> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Position(answer));
        answered.await.ok()
    }

    /// Forms the group anew, of this node at first.
    pub(crate) async fn reform(&self, reform: Reform) -> Result<(), ClusterError> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Reform(Box::new(reform), answer));
        answered.await.unwrap_or_else(|_| Err(ClusterError::Failed("the node is stopping".into())))
    }

    /// Makes this node a member of another cluster; `first` is what its log begins with.
    pub(crate) fn become_member(&self, first: Batch) {
        self.put(Event::Become(first));
    }

    /// Makes this node its own cluster again, and new, if it still is that member.
    pub(crate) fn forget_cluster(&self, me: NodeId) {
        self.put(Event::Judged(me, Verdict::Removed));
    }

    /// Makes this node its own cluster again, and new, whatever it belongs to. To a cluster it belonged to it is lost, with its
    /// disk; nobody is told.
    pub(crate) async fn reset(&self) -> Result<(), ClusterError> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Reset(answer));
        let failed = |text: String| ClusterError::Failed(text);
        let reset = answered.await.map_err(|_| failed("the node is stopping".into()))?;
        reset.map_err(|error| failed(error.to_string()))
    }

    /// Lets somebody else lead, if there is somebody, and waits a moment for it.
    pub(crate) fn hand_over(&self) {
        let (answer, answered) = mpsc::channel();
        self.put(Event::HandOver(answer));
        let until = Instant::now() + HAND_OVER;
        let asked = answered.recv_timeout(HAND_OVER).unwrap_or(false);
        while asked && self.leads() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the threads, after what there was to write.
    pub(crate) fn stop(&self) {
        self.status.stopping.store(true, Ordering::Release);
        self.put(Event::Stop);
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }

    /// Has [`Agreement::stop`] wait for that thread as well, which ends when nothing can be applied any more.
    pub(crate) fn join_at_stop(&self, thread: JoinHandle<()>) {
        self.threads.lock().push(thread);
    }

    fn put(&self, event: Event) {
        // An error means that the node stops.
        let _ = self.inbox.send(event);
    }
}

struct Driver {
    group: Consensus,
    inbox: Receiver<Event>,
    status: Arc<Status>,
    writes: Sender<Write>,
    peers: Arc<Peers>,
    this_node: Arc<ThisNode>,
    seed: u64,
    fresh: Fresh,
    applied: Sender<Applied>,
    memory: Accounted,
    caught_up: bool,
    /// As last told.
    known: Option<Arc<Metadata>>,
    members: (BTreeSet<NodeId>, BTreeSet<NodeId>),
    /// When this node, which was removed from its cluster, begins anew.
    parts_at: Option<Instant>,
    /// Counts clusters that this node belonged to: what was written for an earlier one is of no interest.
    life: u64,
    /// What this life begins with, until that is on disk.
    beginning: Option<Commit>,
    /// Reads that are not due yet, and who waits for them.
    reads: VecDeque<(u64, oneshot::Sender<()>)>,
    /// Who waits to hear that this node leads.
    confirmations: Confirmations<oneshot::Sender<Confirmed>>,
    /// Why nothing can be written any more.
    log_lost: Option<String>,
}

impl Driver {
    fn run(&mut self) {
        let mut next = Instant::now() + TICK;
        loop {
            let event = if self.group.is_alone() {
                next = Instant::now() + TICK;
                self.inbox.recv().ok()
            } else {
                match self.inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            };
            let more = std::iter::from_fn(|| self.inbox.try_recv().ok());
            for event in event.into_iter().chain(more.collect::<Vec<_>>()) {
                if matches!(event, Event::Stop) {
                    return;
                }
                self.handle(event);
            }
            if self.parts_at.is_some() {
                self.part();
            }
            let now = Instant::now();
            if now >= next && !self.group.is_alone() {
                // After a pause of the whole process one tick is enough: others have waited as long.
                next = (next + TICK).max(now);
                self.group.tick();
            }
            self.take_turn();
            while self.confirmations.are_due() {
                self.take_turn();
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message(message) => {
                self.status.messages.fetch_sub(1, Ordering::Relaxed);
                if let Err(error) = self.group.step(&message) {
                    tracing::debug!(%error, "a message of another node was refused");
                }
            }
            Event::Propose(id, command, answer) => {
                let taken = match self.group.outcome(id) {
                    // Carried out before; who proposes it again has yet to hear of it.
                    Some(_) => Ok(()),
                    None => self.group.propose(id, *command),
                };
                // Whoever asked may be gone.
                let _ = answer.send(taken);
            }
            Event::Confirm(answer) => {
                self.confirmations.retain(|waiting| !waiting.is_closed());
                self.confirmations.add(answer);
            }
            Event::Read(answer) => {
                // Whoever has given up is not answered, and there may be many while nobody leads.
                self.reads.retain(|(_, waiting)| !waiting.is_closed());
                let number = self.group.read();
                self.reads.push_back((number, answer));
            }
            Event::Written(life, number) => {
                if life == self.life {
                    self.begin();
                    self.group.written(number);
                }
            }
            Event::LogLost(reason) => {
                let text = format!(
                    "the log cannot be written ({reason}); this node takes no part in what its cluster agrees on until it \
                     starts again"
                );
                self.group.give_up(text.clone());
                self.log_lost = Some(text);
                // Nobody is to hear of anything later from a node that still seems to take part.
                self.publish();
            }
            Event::HandOver(answer) => {
                // Whoever asked may have given up.
                let _ = answer.send(self.group.hand_over().is_some());
            }
            Event::Become(first) => {
                if let Err(error) = self.begin_again(first) {
                    tracing::error!(%error, "this node cannot join a cluster");
                }
            }
            Event::Position(answer) => {
                // Whoever asked may have given up.
                let _ = answer.send(self.group.position());
            }
            Event::Reform(reform, answer) => {
                // As above.
                let _ = answer.send(self.reform(*reform));
            }
            // What is said of an earlier life comes late.
            Event::Judged(me, verdict) if me == self.group.member().node && !self.group.is_alone() => {
                self.accept(verdict);
            }
            Event::Judged(..) => {}
            Event::Reset(answer) => {
                tracing::warn!("this node is reset; it forgets what it held");
                // Whoever asked may have given up.
                let _ = answer.send(self.begin_anew());
            }
            Event::Stop => {}
        }
    }

    fn take_turn(&mut self) {
        self.confirmations.begin(&mut self.group);
        let turn = self.group.turn();
        self.publish();
        self.confirm(turn.confirmed);
        for (to, message) in turn.messages {
            self.peers.send(to, message);
        }
        if !turn.batches.is_empty() {
            let write = Write { life: self.life, number: turn.number, batches: turn.batches };
            // An error means that the node stops.
            let _ = self.writes.send(write);
        }
        let caught_up = self.group.has_caught_up();
        let reads = self.due_reads(turn.read);
        if !turn.commits.is_empty() || !reads.is_empty() || caught_up != self.caught_up {
            self.caught_up = caught_up;
            let _ = self.applied.send(Applied { commits: turn.commits, reads, caught_up });
        }
        if let Some(successor) = turn.successor {
            self.rejoin(&successor);
        }
        if self.group.is_dismissed() {
            self.part();
        }
    }

    /// Tells those who wait that this node leads, if a majority has confirmed it. Who is refused hears nothing more.
    fn confirm(&mut self, confirmed: Option<Round>) {
        if let Some((term, waiting)) = self.confirmations.settle(confirmed, &self.group).confirmed {
            for answer in waiting {
                // Whoever asked may have given up.
                let _ = answer.send(Confirmed { term, agreed: Arc::clone(self.group.metadata()) });
            }
        }
    }

    /// Whoever waits for reads up to that number.
    fn due_reads(&mut self, read: Option<u64>) -> Vec<oneshot::Sender<()>> {
        let due = self.reads.iter().take_while(|(number, _)| Some(*number) <= read).count();
        self.reads.drain(..due).map(|(_, waiting)| waiting).collect()
    }

    /// Makes what this node knows the beginning of a new group.
    fn reform(&mut self, reform: Reform) -> Result<(), ClusterError> {
        let Reform { epoch, id, command } = reform;
        let (_, first) = self.group.reform(epoch, id, command)?;
        tracing::warn!(?epoch, "this node forms the group anew that agrees on the metadata");
        self.begin_again(first).map_err(|error| ClusterError::Failed(error.to_string()))
    }

    /// The group was formed anew by others: this node is one of it again, and keeps what it holds until it is told more.
    fn rejoin(&mut self, member: &Member) {
        tracing::warn!(epoch = ?member.epoch, "the group was formed anew; what this node knew of its own is void");
        let begun = rejoin(member, self.group.metadata()).and_then(|first| self.begin_again(first));
        if let Err(error) = begun {
            tracing::error!(%error, "this node cannot join the group that was formed anew");
        }
    }

    fn publish(&mut self) {
        self.memory.set(self.group.memory_bytes());
        let metadata = self.group.metadata();
        let is_known = self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, metadata));
        if !is_known || self.members != self.group.members() {
            let (voters, learners) = self.group.members();
            let members = voters.union(&learners).copied().collect();
            self.peers.know(self.group.member().node, metadata, &members);
            self.known = Some(Arc::clone(metadata));
        }
        let leader = self.group.leader().map_or(0, |leader| u32::from(leader.get()) + 1);
        if self.status.leader.swap(leader, Ordering::AcqRel) != leader {
            tracing::info!(leader = leader.checked_sub(1), term = self.group.term(), "who leads");
        }
        self.status.leads_in.store(self.group.leads_in().unwrap_or(0), Ordering::Release);
        if **self.status.epoch.load() != self.group.epoch() {
            self.status.epoch.store(Arc::new(self.group.epoch()));
        }
        let members = self.group.members();
        if members != self.members {
            let ids = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| node.get()).collect::<Vec<_>>();
            tracing::info!(voters = ?ids(&members.0), learners = ?ids(&members.1), "who agrees on the metadata");
            self.status.members.store(Arc::new(members.0.union(&members.1).copied().collect()));
            self.status.voters.store(Arc::new(members.0.clone()));
            self.members = members;
        }
        self.status.takes_part.store(self.group.broken().is_none(), Ordering::Release);
        if let Some(broken) = self.group.broken() {
            self.admit(broken);
        }
    }

    /// Says, once, why the metadata cannot change any more.
    fn admit(&self, text: &str) {
        let mut trouble = self.status.trouble.lock();
        if trouble.as_deref() != Some(text) {
            tracing::error!("the metadata cannot change any more: {text}");
            *trouble = Some(text.to_owned());
        }
    }

    /// Another node says that this one is none of its cluster's.
    fn accept(&mut self, verdict: Verdict) {
        let me = self.group.metadata().node(&self.group.member().uuid);
        let holds_nothing = me.is_some_and(|me| me.membership == Membership::InactiveAdded);
        match verdict {
            Verdict::Removed => self.part(),
            Verdict::Unknown if holds_nothing => self.part(),
            // Nobody has decided that this is to go, and nobody else may have it.
            Verdict::Unknown => self.admit(UNKNOWN),
        }
    }

    /// This node belongs to its cluster no more. One that has buckets stays as it is for a moment longer: clients that
    /// have not heard of it are told where to go instead of losing their connection.
    fn part(&mut self) {
        let now = Instant::now();
        let at = *self.parts_at.get_or_insert(now + LINGER);
        if now >= at || self.group.metadata().buckets.is_empty() {
            self.leave();
        }
    }

    fn leave(&mut self) {
        tracing::warn!("this node belongs to its cluster no more; it forgets what it held");
        if let Err(error) = self.begin_anew() {
            tracing::error!(%error, "this node cannot begin anew");
        }
    }

    /// This node becomes its own cluster again, and new.
    fn begin_anew(&mut self) -> Result<(), LogError> {
        let (member, metadata) = (self.fresh)()?;
        let first = found(&member, &Arc::new(metadata))?;
        self.begin_again(first)
    }

    /// Goes on as another member; `first` is what its log begins with.
    ///
    /// # Errors
    /// When nothing can begin with that: everything is as it was.
    fn begin_again(&mut self, first: Batch) -> Result<(), LogError> {
        if let Some(reason) = &self.log_lost {
            return Err(LogError::Unreadable(reason.clone()));
        }
        let mut stored = Stored::default();
        stored.apply(&first);
        self.seed = self.seed.wrapping_add(1);
        self.group = Consensus::open(&stored, self.seed)?;
        self.life += 1;
        self.parts_at = None;
        self.beginning = Some(self.group.so_far());
        // Written before everything that comes after it: what relies on that relies on this as well.
        let _ = self.writes.send(Write { life: self.life, number: 0, batches: vec![first] });
        self.caught_up = false;
        // What another group had agreed on is not for this one to say.
        self.reads.clear();
        self.confirmations = Confirmations::default();
        let _ = self.applied.send(Applied { commits: Vec::new(), reads: Vec::new(), caught_up: false });
        *self.status.trouble.lock() = None;
        Ok(())
    }

    /// No crash brings back what this node was before: it is what it begins with.
    fn begin(&mut self) {
        let Some(beginning) = self.beginning.take() else { return };
        let member = self.group.member();
        self.this_node.set(member.uuid.clone(), member.node);
        let _ = self.applied.send(Applied { commits: vec![beginning], reads: Vec::new(), caught_up: false });
    }
}

/// Writes what comes in, all that waits at once. What finds no space is written again until it fits; any other failure ends
/// the writing, since nobody knows what of it is on the disk.
fn write_all(mut store: Box<dyn LogStore>, jobs: &Receiver<Write>, written: &Sender<Event>, status: &Status) {
    while let Ok(first) = jobs.recv() {
        let waiting: Vec<Write> =
            std::iter::once(first).chain(std::iter::from_fn(|| jobs.try_recv().ok())).collect();
        let (life, number) = waiting.last().map_or((0, 0), |last| (last.life, last.number));
        let number = waiting
            .iter()
            .filter(|write| write.life == life)
            .fold(number, |most, write| most.max(write.number));
        let batches: Vec<Batch> = waiting.into_iter().flat_map(|write| write.batches).collect();
        status.writing_since.store(lease::clock_millis().max(1), Ordering::Release);
        let outcome = write_or_wait(&mut *store, &batches, status);
        status.writing_since.store(0, Ordering::Release);
        match outcome {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                // An error means that the node stops.
                let _ = written.send(Event::LogLost(error.to_string()));
                return;
            }
        }
        // As above.
        let _ = written.send(Event::Written(life, number));
    }
}

/// Writes, and waits for space where there is none; whether it was written before the node stopped.
fn write_or_wait(store: &mut dyn LogStore, batches: &[Batch], status: &Status) -> Result<bool, LogError> {
    let mut has_waited = false;
    loop {
        match store.write(batches) {
            Ok(()) => break,
            Err(error @ LogError::NoSpace { .. }) => {
                tracing::error!(%error, "the metadata cannot be written");
                *status.trouble.lock() = Some(error.to_string());
                has_waited = true;
            }
            Err(error) => return Err(error),
        }
        if status.stopping.load(Ordering::Acquire) {
            return Ok(false);
        }
        std::thread::sleep(WRITE_RETRY);
    }
    if has_waited {
        *status.trouble.lock() = None;
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
