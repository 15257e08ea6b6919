//! Drives [`Participant`]: gives it time, messages and proposals. Carries its batches to the disk, its messages to the
//! other nodes and its commits to [`crate::control`].
//!
//! | thread | does | never |
//! |---|---|---|
//! | consensus | ticks, steps and takes turns | waits for the disk, the network or a bucket |
//! | consensus-log | writes batches, synced | |
//! | metadata | carries out commits, in order (in `control`) | |
//!
//! A slow disk delays what relies on it, a slow bucket delays what is carried out, and neither delays a heartbeat. A node
//! that is its own cluster has nobody to send heartbeats to: its consensus thread sleeps until something comes in.

use std::{
    collections::BTreeSet,
    io, mem,
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
    ClusterError, Command, Metadata,
    consensus::{
        Batch, Consensus, Epoch, LogError, LogStore, Member, Proposal, ProposalId, ProposeError, StateMarks,
        StepError,
    },
};
use dataplane::{account::Accounted, lease};
use node::{LogWriter, NextWrite, Offer, Participant, Sentence, Survivor, Verdict, Write, WriteEnded};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    setup::identity::ThisNode,
    talk::{
        named,
        peers::{Judged, Peers},
    },
    threads::spawn::spawn,
};

/// Messages that may wait to be stepped; what is beyond is dropped, as by a network.
const MESSAGES_WAITING: usize = 1024;
/// How long a stopping leader waits for somebody to take over.
const HAND_OVER: Duration = Duration::from_secs(1);
/// Why a node goes on with nothing that holds data which it was given by nodes that were lost.
const UNKNOWN: &str = "nodes that were failed over since had this node take data, and their cluster, which was formed anew without them, \
                       knows nothing of it; it keeps what it has until it is reset (POST /controller/hardResetNode)";

/// How long the word of a node of another group is remembered. Nodes of two groups greet one another every few seconds at least.
const ELSEWHERE_MILLIS: u64 = 20_000;

/// What goes into the consensus thread.
enum Event {
    /// From that member, where that is known.
    Message(Option<NodeId>, Vec<u8>),
    /// By whom, what, and in which term it was decided, if it was.
    Propose(Option<NodeId>, Box<Proposal>, Option<u64>, oneshot::Sender<Result<(), ProposeError>>),
    /// Asks whether this node leads, of a majority.
    Confirm(oneshot::Sender<Confirmed>),
    /// Asks for everything that was agreed on before to be carried out here.
    Read(oneshot::Sender<()>),
    /// Is on the disk.
    Written(Write),
    /// The log takes nothing any more, for that reason.
    LogLost(String),
    /// The answer says whether somebody was asked to take over.
    HandOver(Sender<bool>),
    /// Joins another cluster with that first batch.
    Become(Batch, oneshot::Sender<Result<(), ClusterError>>),
    /// Asks how this member stands.
    Survivor(oneshot::Sender<Survivor>),
    /// This node is about to have somebody form the group anew.
    Offer(Offer),
    /// Forms the group anew.
    Reform(Box<Reform>, oneshot::Sender<Result<(), ClusterError>>),
    /// This node's metadata differ from those of most nodes since that change.
    Diverged(u64),
    /// What another node says of this one, which had that number in the cluster of that uuid.
    Judged((NodeId, String), Option<Epoch>, Verdict),
    /// Makes this node new, whatever it belongs to.
    Reset(oneshot::Sender<Result<(), LogError>>),
    Stop,
}

/// A group to be formed anew, and what it begins with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reform {
    pub(crate) epoch: Epoch,
    /// See [`Offer::ticket`]; absent from what an older version says.
    #[serde(default)]
    pub(crate) ticket: Option<u64>,
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

/// What is to be carried out, and who waits for that.
pub(crate) type Applied = node::Applied<oneshot::Sender<()>>;

/// What anybody may know.
#[derive(Default)]
struct Status {
    /// Its number and one; 0 for nobody.
    leader: AtomicU32,
    /// The participant's life that the leader is of, or a later one: it is published before the leader.
    life: AtomicU64,
    /// Raft's term that this node leads in; 0 for none.
    leads_in: AtomicU64,
    /// Whether this node votes, applies and proposes.
    takes_part: AtomicBool,
    /// The members of the group.
    members: ArcSwap<BTreeSet<NodeId>>,
    /// Those of them that vote.
    voters: ArcSwap<BTreeSet<NodeId>>,
    /// The group's life.
    epoch: ArcSwap<Epoch>,
    /// Hashes of what was made of what was agreed on.
    marks: ArcSwap<StateMarks>,
    /// Since which change this node's metadata differ from those of most nodes; 0: they do not, as far as is known.
    diverged: AtomicU64,
    /// Why metadata cannot change now.
    trouble: Mutex<Option<String>>,
    /// A node that was failed over and has said that it belongs to a group of its own. With it the time when it said so last, by the
    /// clock of leases.
    elsewhere: Mutex<Option<(NodeId, u64)>>,
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
    pub(crate) fn on_verdict(&self) -> impl Fn(&Judged<'_>, Verdict) + Send + Sync + 'static {
        let sender = self.sender.clone();
        move |judged, verdict| {
            let Judged { node, cluster, epoch } = *judged;
            // An error means that the node stops.
            let _ = sender.send(Event::Judged((node, cluster.to_owned()), Some(epoch), verdict));
        }
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
            part: Participant::new(parts.group, parts.seed, 0),
            began: Instant::now(),
            life: 0,
            inbox: inbox.receiver,
            status: Arc::clone(&status),
            writes,
            peers: parts.peers,
            this_node: parts.this_node,
            fresh: parts.fresh,
            applied: parts.applied,
            memory: parts.memory,
            known: None,
            members: Default::default(),
            elsewhere: BTreeSet::new(),
        };
        driver.publish();
        let thread = spawn("consensus", move || driver.run())?;
        Ok(Arc::new(Self { inbox: inbox.sender, status, threads: Mutex::new(vec![thread, log]) }))
    }

    /// The leader, as far as is known here.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leader = self.status.leader.load(Ordering::Acquire);
        leader.checked_sub(1).and_then(|id| u16::try_from(id).ok()).map(NodeId)
    }

    /// The life of the group that this node is a member of. It may not act in that one yet. A caller that has asked for the
    /// leader before gets the life of that leader, or a later one.
    pub(crate) fn life(&self) -> u64 {
        self.status.life.load(Ordering::Acquire)
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

    /// The voters, as far as is known here.
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

    /// Hashes of what this node has made of what was agreed on.
    pub(crate) fn marks(&self) -> Arc<StateMarks> {
        self.status.marks.load_full()
    }

    /// Since which change this node's metadata differ from those of most nodes, if they do.
    pub(crate) fn diverged(&self) -> Option<u64> {
        Some(self.status.diverged.load(Ordering::Acquire)).filter(|index| *index > 0)
    }

    /// The leader says that they do.
    pub(crate) fn has_diverged(&self, index: u64) {
        if self.diverged().is_none() {
            self.put(Event::Diverged(index));
        }
    }

    /// Why metadata cannot change now, if that is known here.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.status.trouble.lock().clone()
    }

    /// A node that was failed over and says that its group was formed anew, which this node does not believe. There are two groups then, until
    /// an administrator ends one.
    pub(crate) fn has_another_group(&self) -> Option<NodeId> {
        let since = lease::clock_millis().saturating_sub(ELSEWHERE_MILLIS);
        self.status.elsewhere.lock().filter(|(_, heard)| *heard >= since).map(|(node, _)| node)
    }

    /// Since when the disk has been at one write, by the clock of leases.
    pub(crate) fn writing_since(&self) -> Option<u64> {
        Some(self.status.writing_since.load(Ordering::Acquire)).filter(|since| *since > 0)
    }

    /// Takes a message of another node, unless too many wait: that of the member `from`, where that is known.
    pub(crate) fn step(&self, from: Option<NodeId>, message: Vec<u8>) {
        if self.status.messages.load(Ordering::Relaxed) < MESSAGES_WAITING {
            self.status.messages.fetch_add(1, Ordering::Relaxed);
            self.put(Event::Message(from, message));
        }
    }

    /// Proposes what the member `from` wants, where that is known; the answer says whether it was taken, not how it ended.
    pub(crate) async fn propose(&self, from: Option<NodeId>, proposal: Proposal) -> Result<(), ProposeError> {
        self.propose_in(from, proposal, None).await
    }

    /// The same for what this node has decided as the leader of that term. It is not taken in any other.
    pub(crate) async fn propose_in(
        &self,
        from: Option<NodeId>,
        proposal: Proposal,
        decided_in: Option<u64>,
    ) -> Result<(), ProposeError> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Propose(from, Box::new(proposal), decided_in, answer));
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

    /// How this node stands, for a survivor that asks or this node itself; `None` when the node stops.
    pub(crate) async fn survivor(&self) -> Option<Survivor> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Survivor(answer));
        answered.await.ok()
    }

    /// This node is about to have somebody form the group anew. To be said before: what is asked later is answered with that in mind.
    pub(crate) fn offer(&self, offer: Offer) {
        self.put(Event::Offer(offer));
    }

    /// Forms the group anew, of this node at first.
    pub(crate) async fn reform(&self, reform: Reform) -> Result<(), ClusterError> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Reform(Box::new(reform), answer));
        answered.await.unwrap_or_else(|_| Err(ClusterError::Failed("the node is stopping".into())))
    }

    /// Makes this node a member of another cluster; `first` is what its log begins with.
    pub(crate) async fn become_member(&self, first: Batch) -> Result<(), ClusterError> {
        let (answer, answered) = oneshot::channel();
        self.put(Event::Become(first, answer));
        answered.await.unwrap_or_else(|_| Err(ClusterError::Failed("the node is stopping".into())))
    }

    /// Makes this node its own cluster again, and new, if it still is that member of that cluster.
    pub(crate) fn forget_cluster(&self, me: NodeId, cluster: &str) {
        self.put(Event::Judged((me, cluster.to_owned()), None, Verdict::Removed));
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
    part: Participant<oneshot::Sender<Confirmed>, oneshot::Sender<()>>,
    /// What its time counts from.
    began: Instant,
    /// The life that clients were last told of.
    life: u64,
    inbox: Receiver<Event>,
    status: Arc<Status>,
    writes: Sender<Write>,
    peers: Arc<Peers>,
    this_node: Arc<ThisNode>,
    fresh: Fresh,
    applied: Sender<Applied>,
    memory: Accounted,
    /// As last told.
    known: Option<Arc<Metadata>>,
    members: (BTreeSet<NodeId>, BTreeSet<NodeId>),
    /// Nodes that say that they belong to another group, and the life in which this node has logged that.
    elsewhere: BTreeSet<(u64, NodeId)>,
}

impl Driver {
    fn run(&mut self) {
        loop {
            let event = match self.part.rests_for(self.now()) {
                None => self.inbox.recv().ok(),
                Some(millis) => match self.inbox.recv_timeout(Duration::from_millis(millis)) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                },
            };
            let more = std::iter::from_fn(|| self.inbox.try_recv().ok());
            for event in event.into_iter().chain(more.collect::<Vec<_>>()) {
                if matches!(event, Event::Stop) {
                    return;
                }
                self.handle(event);
            }
            self.part.tick(self.now());
            while self.take_turn() {}
            if self.part.is_leaving() {
                self.leave();
                // What it begins anew with is written now: a node that is alone may hear of nothing for long.
                while self.take_turn() {}
            }
        }
    }

    /// Milliseconds since this thread began.
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message(from, message) => {
                self.status.messages.fetch_sub(1, Ordering::Relaxed);
                match self.part.step(from, &message) {
                    Ok(()) => {}
                    Err(StepError::FormedElsewhere(node)) => self.warn_of_another_group(node),
                    Err(StepError::Newer(text)) => self.admit(&text),
                    Err(error) => tracing::debug!(%error, "a message of another node was refused"),
                }
            }
            Event::Propose(from, proposal, decided_in, answer) => {
                let is_late = decided_in.is_some() && decided_in != self.part.group().leads_in();
                let taken = if is_late {
                    Err(ProposeError::NotLeader(None))
                } else {
                    self.part.propose(from, &proposal)
                };
                // The asking thread may be gone.
                let _ = answer.send(taken);
            }
            Event::Confirm(answer) => self.part.confirm(answer, |waiting| !waiting.is_closed()),
            Event::Read(answer) => self.part.read(answer, |waiting| !waiting.is_closed()),
            Event::Written(write) => self.part.written(&write),
            Event::LogLost(reason) => {
                self.part.log_lost(&reason);
                // Nobody is to hear of anything later from a node that still seems to take part.
                self.publish();
            }
            Event::HandOver(answer) => {
                // The asking thread may have given up.
                let _ = answer.send(self.part.hand_over());
            }
            Event::Become(first, answer) => {
                let joined = self.part.join(first);
                let joined =
                    joined.inspect_err(|error| tracing::error!(%error, "this node cannot join a cluster"));
                // The asking thread may have given up.
                let _ = answer.send(joined);
            }
            Event::Diverged(index) => {
                self.part.fence(index);
                self.publish();
            }
            Event::Survivor(answer) => {
                // The asking thread may have given up.
                let _ = answer.send(self.part.survivor(lease::clock_millis()));
            }
            Event::Offer(offer) => self.part.offer(offer),
            Event::Reform(reform, answer) => {
                let Reform { epoch, ticket, id, command } = *reform;
                let reformed = self.part.reform(Offer { epoch, ticket }, id, command, lease::clock_millis());
                if reformed.is_ok() {
                    tracing::warn!(?epoch, "this node forms the group anew that agrees on the metadata");
                }
                // As above.
                let _ = answer.send(reformed);
            }
            Event::Judged((me, cluster), epoch, verdict) => self.judged((me, &cluster), epoch, verdict),
            Event::Reset(answer) => {
                tracing::warn!("this node is reset; it forgets what it held");
                // The asking thread may have given up.
                let _ = answer.send(self.begin_anew());
            }
            Event::Stop => {}
        }
    }

    /// Another node says that of this one, which had that number in that cluster.
    fn judged(&mut self, as_which: (NodeId, &str), epoch: Option<Epoch>, verdict: Verdict) {
        match self.part.judged(as_which, epoch, verdict) {
            Some(Sentence::Leave) => self.leave(),
            Some(Sentence::Keep) => self.admit(UNKNOWN),
            None => {}
        }
    }

    /// Says, once for each node and life, that a node that was failed over belongs to a group of its own.
    fn warn_of_another_group(&mut self, node: NodeId) {
        *self.status.elsewhere.lock() = Some((node, lease::clock_millis()));
        if self.elsewhere.insert((self.part.life(), node)) {
            tracing::warn!(
                node = named(self.part.group().metadata(), node),
                "a node that was failed over says that its group was formed anew; nothing is done about that"
            );
        }
    }

    /// Whether there is more to do at once.
    fn take_turn(&mut self) -> bool {
        let more = self.part.turn();
        if self.life != self.part.life() {
            self.life = self.part.life();
            *self.status.trouble.lock() = None;
            *self.status.elsewhere.lock() = None;
        }
        self.publish();
        let output = self.part.take_output();
        if let Some(node::Confirmed { term, agreed, asked }) = output.confirmed {
            for answer in asked {
                // The asking thread may have given up.
                let _ = answer.send(Confirmed { term, agreed: Arc::clone(&agreed) });
            }
        }
        for (to, message) in output.messages {
            self.peers.send(to, message);
        }
        // An error, here and below, means that the node stops.
        output.writes.into_iter().for_each(|write| drop(self.writes.send(write)));
        if let Some((uuid, node)) = output.became {
            self.this_node.set(uuid, node);
        }
        output.applied.into_iter().for_each(|applied| drop(self.applied.send(applied)));
        more.unwrap_or_else(|error| {
            tracing::error!(%error, "this node cannot join the group that was formed anew");
            false
        })
    }

    fn publish(&mut self) {
        self.memory.set(self.part.group().memory_bytes());
        let group = self.part.group();
        let metadata = group.metadata();
        let is_known = self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, metadata));
        if let Some(known) = self.known.as_ref().filter(|known| known.level < metadata.level) {
            tracing::info!(from = known.level, to = metadata.level, "the level of the metadata has risen");
        }
        if !is_known || self.members != group.members() {
            let (voters, learners) = group.members();
            let members = voters.union(&learners).copied().collect();
            self.peers.know(group.member().node, metadata, &members);
            self.known = Some(Arc::clone(metadata));
        }
        self.status.life.store(self.part.life(), Ordering::Release);
        let leader = group.leader().map_or(0, |leader| u32::from(leader.get()) + 1);
        if self.status.leader.swap(leader, Ordering::AcqRel) != leader {
            let leader = group.leader().map(|leader| named(group.metadata(), leader));
            tracing::info!(leader, term = group.term(), "who leads");
        }
        self.status.leads_in.store(group.leads_in().unwrap_or(0), Ordering::Release);
        if **self.status.epoch.load() != group.epoch() {
            self.status.epoch.store(Arc::new(group.epoch()));
        }
        let members = group.members();
        if members != self.members {
            let names = |nodes: &BTreeSet<NodeId>| {
                nodes.iter().map(|node| named(group.metadata(), *node)).collect::<Vec<_>>()
            };
            tracing::info!(voters = ?names(&members.0), learners = ?names(&members.1), "who agrees on the metadata");
            self.status.members.store(Arc::new(members.0.union(&members.1).copied().collect()));
            self.status.voters.store(Arc::new(members.0.clone()));
            self.members = members;
        }
        let marks = group.marks();
        if **self.status.marks.load() != marks {
            self.status.marks.store(Arc::new(marks));
        }
        self.status.diverged.store(group.diverged().unwrap_or(0), Ordering::Release);
        self.status.takes_part.store(group.broken().is_none(), Ordering::Release);
        if let Some(broken) = group.broken() {
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

    /// This node belongs to its cluster no more.
    fn leave(&mut self) {
        if !self.part.leaves(self.now()) {
            return;
        }
        tracing::warn!("this node belongs to its cluster no more; it forgets what it held");
        if let Err(error) = self.begin_anew() {
            tracing::error!(%error, "this node cannot begin anew");
        }
    }

    /// This node becomes its own cluster again, and new.
    fn begin_anew(&mut self) -> Result<(), LogError> {
        // Its next identity has files of its own, which would be made in vain.
        self.part.check_log()?;
        let (member, metadata) = (self.fresh)()?;
        self.part.begin_anew(&member, metadata)
    }
}

/// Writes what comes in, as [`LogWriter`] says. Where there is no space, that is waited for until the node stops.
fn write_all(mut store: Box<dyn LogStore>, jobs: &Receiver<Write>, written: &Sender<Event>, status: &Status) {
    let clock = || lease::clock_millis().max(1);
    let mut writer = LogWriter::default();
    let mut has_waited = false;
    loop {
        // All that waits is written together.
        std::iter::from_fn(|| jobs.try_recv().ok()).for_each(|write| writer.add(write));
        let outcome = match writer.next(clock()) {
            NextWrite::Nothing => match jobs.recv() {
                Ok(write) => {
                    writer.add(write);
                    continue;
                }
                Err(_) => return,
            },
            NextWrite::Rest(_) if status.stopping.load(Ordering::Acquire) => return,
            NextWrite::Rest(millis) => {
                std::thread::sleep(Duration::from_millis(millis));
                continue;
            }
            NextWrite::Batches(batches, since) => {
                status.writing_since.store(since, Ordering::Release);
                store.write(batches)
            }
        };
        let ended = writer.ended(outcome, clock());
        status.writing_since.store(writer.writing_since().unwrap_or(0), Ordering::Release);
        let event = match ended {
            Some(WriteEnded::Written(write)) => Event::Written(write),
            Some(WriteEnded::Lost(reason)) => Event::LogLost(reason),
            Some(WriteEnded::Again(trouble)) => {
                tracing::error!(trouble, "the metadata cannot be written");
                *status.trouble.lock() = Some(trouble);
                has_waited = true;
                continue;
            }
            None => continue,
        };
        if matches!(event, Event::Written(_)) && mem::take(&mut has_waited) {
            *status.trouble.lock() = None;
        }
        // An error means that the node stops.
        let _ = written.send(event);
    }
}

#[cfg(test)]
mod tests;
