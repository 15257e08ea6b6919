//! A node's part in what its cluster agrees on. It takes in time, messages, questions and finished writes. It says what is to be
//! sent, written, answered and carried out because of them.
//!
//! A node has one life after the other: it joins a cluster, is removed, is taken into a group that was formed anew.
//! Until the beginning of its new life is on its disk it goes on by its old knowledge, and acts on nothing. After a
//! crash the old life may go on, and must not miss files that went because of the new one.
//!
//! Invariants:
//! - What was written for an earlier life moves nothing in a later one.
//! - A question is answered at most once, and only in the life in which it was asked.
//! - After a write whose outcome nobody knows nothing is written any more ([`LogWriter`](crate::LogWriter)).
//!
//! Times are milliseconds of a clock that does not jump.

use std::{collections::VecDeque, mem, sync::Arc};

use base::NodeId;
use cluster::{
    ClusterError, Command, Metadata,
    consensus::{
        Batch, Commit, Consensus, Epoch, LogError, Member, Proposal, ProposalId, ProposeError, StepError,
        Stored, found,
    },
};

use crate::{Confirmations, Offer, Sentence, Survivor, Verdict, reforming::Offers};

/// Raft's unit of time.
const TICK_MILLIS: u64 = 100;
/// How long a node that was removed goes on telling clients where to go.
const LINGER_MILLIS: u64 = 3_000;

/// Batches of one life, to be written together.
#[derive(Clone, Debug)]
pub struct Write {
    life: u64,
    number: u64,
    /// What is written.
    pub batches: Vec<Batch>,
}

impl Write {
    /// The write of that number in that life; numbers grow.
    #[must_use]
    pub fn new(life: u64, number: u64, batches: Vec<Batch>) -> Self {
        Self { life, number, batches }
    }

    /// Life and number.
    #[must_use]
    pub fn place(&self) -> (u64, u64) {
        (self.life, self.number)
    }

    /// One write in place of several, in their order. Nothing when there are none.
    pub(crate) fn merged(writes: Vec<Self>) -> Option<Self> {
        let life = writes.last()?.life;
        let of_life = writes.iter().filter(|write| write.life == life);
        let number = of_life.map(|write| write.number).max().unwrap_or_default();
        let batches = writes.into_iter().flat_map(|write| write.batches).collect();
        Some(Self { life, number, batches })
    }
}

/// What is to be carried out. `R` is a question that waits for that.
#[derive(Debug)]
pub struct Applied<R> {
    /// In order.
    pub commits: Vec<Commit>,
    /// To be answered when that is done.
    pub reads: Vec<R>,
    /// The life that the last of these belong to: it differs from that of what another group has agreed on. What metadata say of that
    /// ([`Metadata::rev_epoch`]) may be the same in two groups, where both were formed anew of the same one.
    pub life: u64,
    /// Whether everything is here that was agreed on when this node started or joined. Not so once another node has said that the cluster has
    /// gone on without this one.
    pub caught_up: bool,
}

impl<R> Applied<R> {
    /// Both in one, where `later` comes right after this.
    pub fn extend(&mut self, later: Self) {
        self.commits.extend(later.commits);
        self.reads.extend(later.reads);
        self.life = later.life;
        self.caught_up = later.caught_up;
    }
}

/// This node led in that term after these had asked.
#[derive(Debug)]
pub struct Confirmed<A> {
    /// Raft's.
    pub term: u64,
    /// What had been agreed on, as far as it is known here; it may not have been carried out yet.
    pub agreed: Arc<Metadata>,
    /// Whose questions this answers.
    pub asked: Vec<A>,
}

/// What a node does because of what it was told. `A` asks whether it leads, `R` for all that was agreed on.
#[derive(Debug)]
#[must_use]
pub struct Output<A, R> {
    /// For other members; any of them may be lost.
    pub messages: Vec<(NodeId, Vec<u8>)>,
    /// To be written in order.
    pub writes: Vec<Write>,
    /// To be answered.
    pub confirmed: Option<Confirmed<A>>,
    /// The node is that member from now on; comes before what is carried out.
    pub became: Option<(String, NodeId)>,
    /// To be carried out, in order.
    pub applied: Vec<Applied<R>>,
}

/// See the module.
pub struct Participant<A, R> {
    group: Consensus,
    /// For elections' timeouts.
    seed: u64,
    tick_at: u64,
    caught_up: bool,
    /// When this node, which was removed from its cluster, begins anew.
    leaves_at: Option<u64>,
    /// Another node has said in this life that this one is none of its cluster's.
    is_judged: bool,
    /// Counts clusters that this node belonged to.
    life: u64,
    /// What this life begins with, until that is on disk.
    beginning: Option<Commit>,
    /// The life that the node acts in: the one before as long as the beginning of this one is not on disk.
    acts_in: u64,
    /// Reads that are not due yet, and who waits for them.
    reads: VecDeque<(u64, R)>,
    confirmations: Confirmations<A>,
    /// Of groups to be formed anew.
    offers: Offers,
    /// Why nothing can be written any more.
    log_lost: Option<String>,
    output: Output<A, R>,
}

impl<A, R> Participant<A, R> {
    /// A node that goes on as a member of that group; `seed` differs from that of every other start.
    #[must_use]
    pub fn new(group: Consensus, seed: u64, now: u64) -> Self {
        Self {
            caught_up: group.has_caught_up(),
            group,
            seed,
            tick_at: now + TICK_MILLIS,
            leaves_at: None,
            is_judged: false,
            life: 0,
            beginning: None,
            acts_in: 0,
            reads: VecDeque::new(),
            confirmations: Confirmations::default(),
            offers: Offers::new(seed),
            log_lost: None,
            output: Output::new(),
        }
    }

    /// What this node knows of its group.
    #[must_use]
    pub fn group(&self) -> &Consensus {
        &self.group
    }

    /// Counts the clusters, and the groups, that this node belonged to since it started.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.life
    }

    /// How long nothing has to be done if nothing is heard; `None` for ever. To be asked before every wait.
    pub fn rests_for(&mut self, now: u64) -> Option<u64> {
        if self.group.is_alone() {
            // A node that is its own cluster has nobody to be heard by, or to wait for.
            self.tick_at = now + TICK_MILLIS;
            return None;
        }
        Some(self.tick_at.saturating_sub(now))
    }

    /// Time has gone by.
    pub fn tick(&mut self, now: u64) {
        if now >= self.tick_at && !self.group.is_alone() {
            // After a pause of the whole process one tick is enough: others have waited as long.
            self.tick_at = (self.tick_at + TICK_MILLIS).max(now);
            self.group.tick();
        }
    }

    /// Another member says something: `from`, where that is known.
    ///
    /// # Errors
    /// When it is refused, which changes nothing.
    pub fn step(&mut self, from: Option<NodeId>, message: &[u8]) -> Result<(), StepError> {
        self.group.step(from, message)
    }

    /// Somebody takes this node for the leader: the member `from`, where that is known. What was carried out before counts as taken: its
    /// proposer has yet to hear of it.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn propose(&mut self, from: Option<NodeId>, proposal: &Proposal) -> Result<(), ProposeError> {
        if self.group.outcome(proposal.id).is_some() {
            return Ok(());
        }
        // One that leads proposes what the cluster needs, be it that it was failed over.
        let another = from.filter(|from| *from != self.group.member().node);
        let may_propose = |from| self.group.metadata().may_propose(from, &proposal.command).is_ok();
        if !another.is_none_or(may_propose) {
            return Err(ProposeError::FailedOver);
        }
        let is_own = from == Some(self.group.member().node);
        if !is_own && !self.group.metadata().leaves_keys(from, &proposal.command) {
            return Err(ProposeError::ForeignKey);
        }
        self.group.propose(proposal)
    }

    /// Somebody asks whether this node leads. `waits`: which of the others still do.
    pub fn confirm(&mut self, asks: A, waits: impl FnMut(&A) -> bool) {
        self.confirmations.retain(waits);
        self.confirmations.add(asks);
    }

    /// Somebody asks for all that was agreed on before. `waits`: which of the others still do.
    pub fn read(&mut self, asks: R, waits: impl Fn(&R) -> bool) {
        // There may be many while nobody leads.
        self.reads.retain(|(_, waiting)| waits(waiting));
        let number = self.group.read();
        self.reads.push_back((number, asks));
    }

    /// The leader says that this node's metadata differ from those of most nodes since that change: see [`Consensus::fence`]. What it
    /// knows is not what was agreed on, so it has not caught up any more.
    pub fn fence(&mut self, index: u64) {
        self.group.fence(index);
    }

    /// Has somebody else lead, if there is somebody.
    pub fn hand_over(&mut self) -> bool {
        self.group.hand_over().is_some()
    }

    /// A write is on the disk.
    pub fn written(&mut self, write: &Write) {
        if write.life != self.life {
            return;
        }
        // No crash brings back what this node was before: it is what it begins with.
        if let Some(beginning) = self.beginning.take() {
            let member = self.group.member();
            self.output.became = Some((member.uuid.clone(), member.node));
            self.acts_in = self.life;
            self.apply(vec![beginning], false);
        }
        self.group.written(write.number);
    }

    /// The log takes nothing any more, for that reason: this node takes no part in its group until it starts again.
    pub fn log_lost(&mut self, reason: &str) {
        let text = format!(
            "the log cannot be written ({reason}); this node takes no part in what its cluster agrees on until it starts again"
        );
        self.group.give_up(text.clone());
        self.log_lost = Some(text);
    }

    /// Does what is due; [`Participant::take_output`] says what that is. To be called after everything else, and as long as it says that
    /// there is more.
    ///
    /// # Errors
    /// When this node cannot join the group that was formed anew; it stays what it was.
    pub fn turn(&mut self) -> Result<bool, LogError> {
        self.confirmations.begin(&mut self.group);
        let turn = self.group.turn();
        let settled = self.confirmations.settle(turn.confirmed, &self.group);
        if let Some((term, asked)) = settled.confirmed {
            let agreed = Arc::clone(self.group.metadata());
            self.output.confirmed = Some(Confirmed { term, agreed, asked });
        }
        self.output.messages.extend(turn.messages);
        if !turn.batches.is_empty() {
            let write = Write::new(self.life, turn.number, turn.batches);
            self.output.writes.push(write);
        }
        let due = self.reads.iter().take_while(|(number, _)| Some(*number) <= turn.read).count();
        let caught_up = self.group.has_caught_up() && !self.is_behind();
        if !turn.commits.is_empty() || due > 0 || caught_up != self.caught_up {
            self.caught_up = caught_up;
            let reads = self.reads.drain(..due).map(|(_, waiting)| waiting).collect();
            let (commits, life) = (turn.commits, self.acts_in);
            self.output.applied.push(Applied { commits, reads, life, caught_up });
        }
        if let Some(successor) = turn.successor {
            let first = self.group.rejoin(&successor)?;
            self.begin_again(first)?;
        }
        Ok(self.confirmations.are_due())
    }

    /// What is to be done since this was called last. To be called after every [`Participant::turn`].
    pub fn take_output(&mut self) -> Output<A, R> {
        mem::replace(&mut self.output, Output::new())
    }

    /// Another node's verdict on this one, which had the number `me` in that cluster. `epoch` is the life of the group in which it was
    /// asked about one. What is said of an earlier life, or of another cluster, comes late: the number may be the same in both. Where this
    /// node is meant, it acts by nothing any more that it knew before.
    #[must_use]
    pub fn judged(
        &mut self,
        (me, cluster): (NodeId, &str),
        epoch: Option<Epoch>,
        verdict: Verdict,
    ) -> Option<Sentence> {
        let member = self.group.member();
        let is_of_this_life = epoch.is_none_or(|epoch| epoch == self.group.epoch());
        let is_it = me == member.node && cluster == member.cluster_uuid;
        let is_meant = is_it && is_of_this_life && !self.group.is_alone();
        let sentence = is_meant.then(|| verdict.sentence(self.group.metadata(), &member.uuid));
        self.is_judged |= sentence.is_some();
        sentence
    }

    /// Whether the cluster has gone on without this node, whose metadata do not say so. They may have it serve what another node serves by
    /// now. Where they say so, it stays long enough to tell clients where to go.
    fn is_behind(&self) -> bool {
        self.is_judged && self.group.metadata().node(&self.group.member().uuid).is_some()
    }

    /// This node belongs to its cluster no more, as its own group or another node says. Returns whether it is to begin anew by now. A
    /// node that has buckets stays as it is for a moment longer. So it can tell clients that have not heard of it where to go. One
    /// whose log takes nothing stays until it starts again.
    pub fn leaves(&mut self, now: u64) -> bool {
        let at = *self.leaves_at.get_or_insert(now + LINGER_MILLIS);
        (now >= at || self.group.metadata().buckets.is_empty()) && self.check_log().is_ok()
    }

    /// Whether this node can begin anew, or go on as another member.
    ///
    /// # Errors
    /// When the log takes nothing any more.
    pub fn check_log(&self) -> Result<(), LogError> {
        match &self.log_lost {
            Some(reason) => Err(LogError::Unreadable(reason.clone())),
            None => Ok(()),
        }
    }

    /// Whether this node is on its way out of its cluster.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaves_at.is_some() || self.group.is_dismissed()
    }

    /// How this node stands, as it tells a survivor that asks, or goes by when it asks itself. What it has told before counts for
    /// nothing from now on. `now` is by a clock that goes on while the machine is suspended.
    pub fn survivor(&mut self, now: u64) -> Survivor {
        let group = &self.group;
        let (epoch, position, leader) = (group.epoch(), group.position(), group.leader());
        self.offers.answer(Survivor { epoch, position, leader, ticket: None }, now)
    }

    /// This node is about to tell another one, or itself, to form the group anew. It offers that number to nobody else.
    pub fn offer(&mut self, offer: Offer) {
        self.offers.note(offer.epoch);
    }

    /// Makes what this node knows the beginning of a new group, by that command. `now` is by the clock of [`Participant::survivor`].
    ///
    /// # Errors
    /// When the offer comes late, the command is refused, or nothing can be written.
    pub fn reform(
        &mut self,
        offer: Offer,
        id: ProposalId,
        command: Command,
        now: u64,
    ) -> Result<(), ClusterError> {
        self.offers.admit(offer.ticket, now)?;
        let (_, first) = self.group.reform(offer.epoch, id, command)?;
        self.begin_again(first).map_err(|error| ClusterError::Failed(error.to_string()))
    }

    /// This node becomes a member of another cluster; `first` is what its log begins with.
    ///
    /// # Errors
    /// When it belongs to a cluster of several nodes by now, or has buckets, or nothing can be written: everything is as it was.
    pub fn join(&mut self, first: Batch) -> Result<(), ClusterError> {
        let (metadata, me) = (self.group.metadata(), self.group.member().node);
        let (voters, learners) = self.group.members();
        let is_alone = metadata.nodes.len() <= 1 && learners.is_empty() && voters.iter().eq([&me]);
        if !is_alone || !metadata.buckets.is_empty() {
            let text = "a node that has buckets, or belongs to a cluster, cannot join another one";
            return Err(ClusterError::Failed(text.into()));
        }
        self.begin_again(first).map_err(|error| ClusterError::Failed(error.to_string()))
    }

    /// This node becomes its own cluster, and new.
    ///
    /// # Errors
    /// When nothing can be written: everything is as it was.
    pub fn begin_anew(&mut self, member: &Member, metadata: Metadata) -> Result<(), LogError> {
        self.begin_again(found(member, &Arc::new(metadata))?)
    }

    /// Goes on as another member; `first` is what its log begins with.
    ///
    /// # Errors
    /// When nothing can begin with that: everything is as it was.
    pub fn begin_again(&mut self, first: Batch) -> Result<(), LogError> {
        self.check_log()?;
        let mut stored = Stored::default();
        stored.apply(&first);
        self.seed = self.seed.wrapping_add(1);
        self.group = Consensus::open_as(&stored, self.seed, self.group.version())?;
        self.life += 1;
        (self.leaves_at, self.is_judged) = (None, false);
        self.beginning = Some(self.group.so_far());
        // Written before everything that comes after it: what relies on that relies on this as well.
        self.output.writes.push(Write::new(self.life, 0, vec![first]));
        self.caught_up = false;
        // What another group had agreed on is not for this one to say.
        self.reads.clear();
        self.confirmations = Confirmations::default();
        self.apply(Vec::new(), false);
        Ok(())
    }

    fn apply(&mut self, commits: Vec<Commit>, caught_up: bool) {
        let life = self.acts_in;
        self.output.applied.push(Applied { commits, reads: Vec::new(), life, caught_up });
    }
}

impl<A, R> Output<A, R> {
    fn new() -> Self {
        Self { messages: Vec::new(), writes: Vec::new(), confirmed: None, became: None, applied: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use cluster::{NodeInfo, Ports};

    use super::*;

    fn member(cluster: &str, node: u16) -> Member {
        let (uuid, secret) = ("n".to_owned(), "s".to_owned());
        let (cluster_uuid, epoch) = (cluster.to_owned(), Epoch::default());
        Member { uuid, node: NodeId(node), cluster_uuid, epoch, secret, peers: nodes(), authority: None }
    }

    fn nodes() -> Vec<NodeInfo> {
        let first = NodeInfo::first("other".into(), "h".into(), Ports::default());
        let me = NodeInfo { id: NodeId(1), uuid: "n".into(), host: "h1".into(), ..first.clone() };
        vec![first, me]
    }

    fn part(first: &Batch) -> Participant<(), ()> {
        let mut stored = Stored::default();
        stored.apply(first);
        Participant::new(Consensus::open(&stored, 1).unwrap(), 1, 0)
    }

    #[test]
    fn a_node_leaves_no_cluster_because_of_what_is_said_of_its_number_in_another_one() {
        let mut part = part(&cluster::consensus::join(&member("c", 1)).unwrap());
        let mut judged = |me, cluster, epoch| part.judged((NodeId(me), cluster), epoch, Verdict::Removed);
        let life = Some(Epoch::default());
        assert_eq!((judged(1, "d", life), judged(1, "d", None)), (None, None));
        assert_eq!((judged(2, "c", life), judged(1, "c", Some(Epoch { number: 1, lot: 1 }))), (None, None));
        assert_eq!(judged(1, "c", life), Some(Sentence::Leave));
        assert_eq!(judged(1, "c", None), Some(Sentence::Leave));
    }

    /// Whether it has caught up, if it says something new about that.
    fn settle(part: &mut Participant<(), ()>) -> Option<bool> {
        let mut told = None;
        for _ in 0..4 {
            part.turn().unwrap();
            let Output { writes, applied, .. } = part.take_output();
            writes.iter().for_each(|write| part.written(write));
            told = applied.last().map_or(told, |last| Some(last.caught_up));
        }
        told
    }

    /// It was paused, failed over and removed. By what it knows it serves, and a node that needs no lease would go on.
    #[test]
    fn a_node_that_hears_that_others_have_gone_on_without_it_acts_by_what_it_knows_no_more() {
        let without = nodes().into_iter().map(|node| NodeInfo { uuid: format!("{} too", node.uuid), ..node });
        let without: Vec<NodeInfo> = without.collect();
        for (verdict, known) in
            [(Verdict::Removed, nodes()), (Verdict::Unknown, nodes()), (Verdict::Removed, without)]
        {
            let is_named = known.iter().any(|node| node.uuid == "n");
            let mut metadata = Metadata::new("c".into(), 16);
            metadata.nodes = known;
            let first = found(&member("c", 1), &Arc::new(metadata)).unwrap();
            let mut part = part(&first);
            assert_eq!(settle(&mut part), Some(true));
            assert!(part.judged((NodeId(1), "c"), None, verdict).is_some());
            // Where it knows that it is none of them, it tells clients where to go.
            assert_eq!(settle(&mut part), is_named.then_some(false), "{verdict:?}");
            part.begin_again(first).unwrap();
            assert_eq!(settle(&mut part), Some(true), "in another life");
        }
    }

    #[test]
    fn a_node_joins_another_cluster_only_while_it_is_alone_and_has_no_buckets() {
        let mut metadata = Metadata::new("c".into(), 16);
        metadata.nodes = vec![NodeInfo::first("n".into(), "h".into(), Ports::default())];
        let alone = Member { peers: Vec::new(), ..member("c", 0) };
        let elsewhere = cluster::consensus::join(&member("d", 1)).unwrap();
        let joined = |first: &Batch| {
            let mut part = part(first);
            let joined = part.join(elsewhere.clone());
            assert_eq!(part.group().member().cluster_uuid == "d", joined.is_ok());
            joined.is_ok()
        };
        assert!(joined(&found(&alone, &Arc::new(metadata.clone())).unwrap()));
        assert!(!joined(&cluster::consensus::join(&member("c", 1)).unwrap()), "another join was faster");
        metadata.nodes = nodes();
        assert!(!joined(&found(&alone, &Arc::new(metadata)).unwrap()), "a node was added");
    }

    /// What two nodes make of one group that has lost its majority tells the same [`Metadata::rev_epoch`]. A third one may be taken into
    /// both, one after the other.
    #[test]
    fn what_is_applied_tells_lives_apart_whose_metadata_do_not() {
        let mut metadata = Metadata::new("c".into(), 16);
        metadata.nodes = vec![NodeInfo::first("n".into(), "h".into(), Ports::default())];
        let metadata = Arc::new(metadata);
        let first = |lot: Option<u64>| {
            let (uuid, cluster_uuid, secret) = ("n".to_owned(), "c".to_owned(), "s".to_owned());
            let epoch = lot.map_or_else(Epoch::default, |lot| Epoch::default().next(lot));
            let member = Member {
                uuid,
                node: NodeId(0),
                cluster_uuid,
                epoch,
                secret,
                peers: Vec::new(),
                authority: None,
            };
            found(&member, &metadata).unwrap()
        };
        let mut stored = Stored::default();
        stored.apply(&first(None));
        let mut part = Participant::<(), ()>::new(Consensus::open(&stored, 1).unwrap(), 1, 0);
        for life in 1..=2 {
            part.begin_again(first(Some(life))).unwrap();
            let Output { writes, applied, .. } = part.take_output();
            assert!(!applied.is_empty() && applied.iter().all(|applied| applied.life == life - 1));
            writes.iter().for_each(|write| part.written(write));
            part.turn().unwrap();
            let applied = part.take_output().applied;
            let told: Vec<_> = applied.iter().map(|applied| applied.life).collect();
            assert!(told.iter().all(|told| *told == life), "{told:?}");
            assert_eq!(applied[0].commits[0].metadata.rev_epoch, metadata.rev_epoch);
        }
    }
}
