//! A running node: the parts that `daemon` puts together, driven by one thread and a clock that is told. What decides
//! anything is the product's. What is here only carries things from one part to the next, as the daemon's threads do,
//! and takes as long.

mod at_any_price;
mod indexes;
mod leaving;
mod old_log;
mod proposing;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
};

use base::{BucketUuid, Cas, Datatype, DocKey, HashedKey, NodeId, Now, Status, VbId, VbRole};
use cluster::{
    Command, Lease, Metadata, NodeReport,
    consensus::{
        Batch, Consensus, Epoch, LogError, Member, Outcome, Proposal, ProposalId, Version, epoch_of,
    },
};
use engine::{Bucket, Delete, DocView, Durable, Expiry, Mutated, Refusal, Store, Waiter};
use fastrand::Rng;
use service::Lifecycle;
use settee_node::{
    Applied, Leadership, LogWriter, MetadataState, NextWrite, Participant, Proposals, Proposing,
    REOPEN_MILLIS, Reconciler, Reporter, Start, Taken, WriteEnded, stands_still,
};

use self::at_any_price::AtAnyPrice;
pub(crate) use self::leaving::Leaving;
use self::view::View;
use crate::{
    clients::KeyPlace,
    connection::REQUESTS,
    journal::Journal,
    link::Link,
    machine::Shelf,
    network::{Letter, Message, Network, Place},
    open_bucket::{Disks, OpenBucket},
    operation::{Answer, Ended, Operation, Request, Token, decode_value, encode_value, flags_of},
    parts,
};

/// How long a durable write may take.
const DURABLE_MILLIS: u64 = 2_500;
/// How long documents live that are touched: longer than any clock jumps.
const LONG_SECS: u32 = 20 * 24 * 3_600;
const LOCK_SECS: u32 = 1;

/// Parts of a process that may stand still while the others go on: threads of their own in a server.
pub(crate) const PARTS: usize = 4;
const AGREEMENT: usize = 0;
const CARRYING_OUT: usize = 1;
const RECONCILER: usize = 2;
const LEADING: usize = 3;

/// What a process sees of the world in a step.
pub(crate) struct Outside<'a> {
    /// By the world's clock.
    pub(crate) at: u64,
    /// By the machine's.
    pub(crate) now: Now,
    /// By the machine's clock that goes on while the machine is suspended.
    pub(crate) lease_now: u64,
    pub(crate) rng: &'a mut Rng,
    pub(crate) network: &'a mut Network,
    pub(crate) journal: &'a mut Journal,
    pub(crate) disk_works: bool,
    /// The log of the metadata can be written.
    pub(crate) log_works: bool,
    /// Changes of the metadata that were applied here.
    pub(crate) applied: Vec<Arc<Metadata>>,
    /// What was handed to a leader.
    pub(crate) proposed: Vec<Proposal>,
}

impl Outside<'_> {
    pub(crate) fn send(&mut self, from: NodeId, to: Place, message: Message) {
        self.network.send(self.rng, self.at, Letter { from: Some(from), to, message });
    }
}

/// A proposal of this process that has not ended.
struct Proposed {
    proposing: Proposing,
    /// The term whose orchestrator has decided it. That one looks again once it has ended.
    decided_in: Option<u64>,
}

/// A report that waits.
struct Waiting {
    report: Box<NodeReport>,
    /// By this node's clock.
    came: u64,
}

/// A request that waits.
struct Parked {
    request: Request,
    stage: Stage,
    is_ready: bool,
}

enum Stage {
    /// For its document.
    Fetch,
    /// For its level, until then.
    Durable(Mutated, u64),
}

/// See the module.
pub(crate) struct Process {
    pub(crate) boot: u64,
    id: NodeId,
    uuid: String,
    part: Participant<Waiting, ()>,
    log: LogWriter,
    /// Its log may lack what it has confirmed.
    has_old_log: bool,
    /// What is to be carried out.
    to_carry_out: Option<Applied<()>>,
    /// Everything was carried out that was agreed on before this start.
    pub(crate) caught_up: bool,
    /// The life of its group that it was carried out in.
    life: u64,
    /// As carried out.
    pub(crate) metadata: Arc<Metadata>,
    proposals: Proposals<Option<Proposed>>,
    at_any_price: Option<AtAnyPrice>,
    pub(crate) leaving: Leaving,
    pub(crate) buckets: BTreeMap<BucketUuid, OpenBucket>,
    reconciler: Reconciler,
    lease: Lease,
    pub(crate) links: BTreeMap<(BucketUuid, NodeId), Link>,
    leadership: Leadership,
    /// It did when last looked at.
    led: bool,
    report: Option<NodeReport>,
    reporter: Reporter,
    requests: BTreeMap<u64, Parked>,
    /// What indexes were told of copies.
    lifecycle: Lifecycle,
    /// Parts do nothing until then.
    pub(crate) stalled_until: [u64; PARTS],
    /// Messages of other members that have not been taken.
    mail: VecDeque<(NodeId, Vec<u8>)>,
    /// When what is due next.
    look_at: u64,
    reopen_at: u64,
}

impl Process {
    /// Of a version that understands metadata up to `level`.
    ///
    /// # Errors
    /// Where the log of the metadata is damaged.
    pub(crate) fn start(
        member: &Member,
        level: u32,
        shelf: &mut Shelf,
        boot: u64,
        now: Now,
    ) -> Result<Self, LogError> {
        let version = Version { highest: level, ..Version::THIS };
        let group = Consensus::open_as(&shelf.log.load()?, boot, version).unwrap();
        let metadata = Arc::clone(group.metadata());
        let ms = now.mono_millis;
        let mut process = Self {
            boot,
            id: member.node,
            uuid: member.uuid.clone(),
            log: LogWriter::default(),
            has_old_log: shelf.log.is_old,
            to_carry_out: None,
            caught_up: group.has_caught_up(),
            life: 0,
            part: Participant::new(group, boot, ms),
            metadata,
            proposals: Proposals::new(boot),
            at_any_price: None,
            leaving: Leaving::default(),
            buckets: BTreeMap::new(),
            reconciler: Reconciler::new(Start { boot, at: now.wall_nanos }),
            lease: Lease::default(),
            links: BTreeMap::new(),
            leadership: Leadership::default(),
            led: false,
            report: None,
            reporter: Reporter::default(),
            requests: BTreeMap::new(),
            lifecycle: Lifecycle::default(),
            stalled_until: [0; PARTS],
            mail: VecDeque::new(),
            look_at: ms,
            reopen_at: ms,
        };
        process.reconcile(shelf, now);
        Ok(process)
    }

    /// Ends it; what the log of the metadata has not been given yet.
    pub(crate) fn end(mut self, is_clean: bool, is_disk_bad: bool, now: Now) -> Vec<Vec<Batch>> {
        self.buckets.values_mut().for_each(|bucket| bucket.indexing.end(is_clean));
        for bucket in self.buckets.values().filter(|_| is_clean) {
            let closed = bucket.engine.close(now);
            assert!(closed.is_ok() || is_disk_bad, "everything can be written: {closed:?}");
        }
        self.log.into_unwritten().into_iter().map(|write| write.batches).collect()
    }

    /// Does what is due; who else was woken meanwhile.
    pub(crate) fn run(&mut self, shelf: &mut Shelf, outside: &mut Outside<'_>) -> Vec<Waiter> {
        let now = outside.now;
        let ms = now.mono_millis;
        if self.does(AGREEMENT, ms) {
            self.agree(shelf, outside);
        }
        // What was agreed on is carried out by a thread of its own.
        if self.does(CARRYING_OUT, ms) && outside.rng.u8(0..4) > 0 {
            self.carry_out(shelf, outside);
        }
        if ms >= self.reopen_at && self.does(CARRYING_OUT, ms) {
            self.reopen_at = ms + REOPEN_MILLIS;
            if self.buckets.len() < self.metadata.buckets.len() {
                self.reconcile(shelf, now);
            }
        }
        if ms >= self.look_at && self.does(RECONCILER, ms) {
            self.look_at = ms + self.look(now, outside.lease_now);
        }
        let woken = self.work(shelf, outside);
        let rests_for = self.leadership.rests_for(&self.metadata, outside.lease_now);
        if rests_for == 0 && self.does(LEADING, ms) {
            self.lead(outside);
        }
        self.send_report(outside);
        woken
    }

    fn does(&self, part: usize, ms: u64) -> bool {
        ms >= self.stalled_until[part]
    }

    // ---- agreement ------------------------------------------------------------------------------------------------

    /// Another member says something.
    pub(crate) fn step(&mut self, from: NodeId, message: Vec<u8>, outside: &mut Outside<'_>) {
        if let Some(verdict) = self.judge(from, &message) {
            let named = (from, self.metadata.cluster_uuid.clone());
            return outside.send(self.id, Some(from), Message::Verdict(named, epoch_of(&message), verdict));
        }
        self.mail.push_back((from, message));
        if self.does(AGREEMENT, outside.now.mono_millis) {
            self.read_mail();
            self.take_turn(outside);
        }
    }

    fn read_mail(&mut self) {
        while let Some((from, message)) = self.mail.pop_front() {
            // Refused is what comes of a node that was removed, and some of what one says that was failed over.
            let done = self.part.step(Some(from), &message);
            self.stepped(done);
            let group = self.part.group();
            let is_removed = group.metadata().has_removed(self.id);
            let is_expected = self.log.is_lost() || self.has_old_log || is_removed;
            let broken = group.broken().filter(|_| !is_expected);
            assert_eq!(broken, None, "{}", self.id);
        }
    }

    fn agree(&mut self, shelf: &mut Shelf, outside: &mut Outside<'_>) {
        let ms = outside.now.mono_millis;
        if self.part.rests_for(ms) == Some(0) {
            self.part.tick(ms);
        }
        self.read_mail();
        self.propose_again(outside);
        self.go_on_at_any_price(outside);
        self.take_turn(outside);
        if self.part.is_leaving() {
            self.leave(outside);
        }
        self.write(shelf, outside);
    }

    fn take_turn(&mut self, outside: &mut Outside<'_>) {
        let more = self.part.turn().unwrap();
        let output = self.part.take_output();
        if let Some(confirmed) = output.confirmed {
            for waiting in confirmed.asked {
                self.hear(confirmed.term, &confirmed.agreed, waiting, outside);
            }
        }
        let leads = self.leads();
        if leads && !mem::replace(&mut self.led, leads) {
            outside.journal.note(format_args!("{} leads in term {}", self.id, self.raft_term()));
        }
        self.led = leads;
        for (to, bytes) in output.messages {
            outside.send(self.id, Some(to), Message::Consensus(bytes));
        }
        output.writes.into_iter().for_each(|write| self.log.add(write));
        output.became.iter().for_each(|(uuid, _)| self.became(uuid));
        for applied in output.applied {
            let states = applied.commits.iter().map(|commit| Arc::clone(&commit.metadata));
            outside.applied.extend(states.filter(Self::are_of_cluster));
            match &mut self.to_carry_out {
                Some(before) => before.extend(applied),
                none => *none = Some(applied),
            }
        }
        if more {
            self.take_turn(outside);
        }
    }

    fn write(&mut self, shelf: &mut Shelf, outside: &mut Outside<'_>) {
        let now = outside.lease_now;
        while let NextWrite::Batches(batches, _) = self.log.next(now) {
            if !outside.disk_works || !outside.log_works {
                return;
            }
            let outcome = shelf.log.write(batches, outside.rng);
            match self.log.ended(outcome, now) {
                Some(WriteEnded::Written(write)) => self.part.written(&write),
                Some(WriteEnded::Lost(reason)) => {
                    self.part.log_lost(&reason);
                    outside.journal.note(format_args!("{} takes no part any more: {reason}", self.id));
                }
                Some(WriteEnded::Again(_)) | None => {}
            }
            self.take_turn(outside);
        }
    }

    fn carry_out(&mut self, shelf: &mut Shelf, outside: &mut Outside<'_>) {
        let Some(Applied { commits, life, caught_up, .. }) = self.to_carry_out.take() else { return };
        if mem::replace(&mut self.life, life) != life {
            // What it says was done in the earlier life.
            self.report = None;
        }
        if let Some(last) = commits.last() {
            self.metadata = Arc::clone(&last.metadata);
            self.reconcile(shelf, outside.now);
            for (id, outcome) in commits.into_iter().flat_map(|commit| commit.outcomes) {
                self.proposal_ended(id, &outcome, outside);
            }
            self.look_at = 0;
        }
        self.caught_up = caught_up;
    }

    fn proposal_ended(&mut self, id: ProposalId, outcome: &Outcome, outside: &mut Outside<'_>) {
        let Some(Some(proposed)) = self.proposals.ended(id) else { return };
        let command = proposed.proposing.command();
        let name = command_name(command);
        if let Some(term) = proposed.decided_in {
            self.leadership.ended(term, command, outcome.is_ok());
        }
        match outcome {
            Ok(_) => outside.journal.note(format_args!("{name}")),
            // The node that leads then looks again.
            Err(error) => outside.journal.note(format_args!("{name} is refused: {error}")),
        }
    }

    /// Opens, changes and drops buckets until they are what the metadata say. Those for which a disk has no space wait.
    fn reconcile(&mut self, shelf: &mut Shelf, now: Now) {
        let metadata = Arc::clone(&self.metadata);
        let is_gone = |uuid: &BucketUuid| metadata.bucket_by_uuid(uuid).is_none();
        for (_, open) in self.buckets.extract_if(.., |uuid, _| is_gone(uuid)) {
            open.engine.begin_close();
        }
        for (name, info) in &metadata.buckets {
            if let Some(open) = self.buckets.get(&info.uuid) {
                open.change(info, now);
                continue;
            }
            let seed = self.boot ^ self.buckets.len() as u64;
            match OpenBucket::open((name.as_str(), info), (&metadata, &self.uuid), shelf, seed, now) {
                Ok(open) => drop(self.buckets.insert(info.uuid.clone(), open)),
                Err(error) => assert!(shelf.is_full || shelf.is_bad(), "{name}: {error}"),
            }
        }
    }

    // ---- copies ---------------------------------------------------------------------------------------------------

    /// Does some of what the metadata ask for; after how many milliseconds to look again.
    fn look(&mut self, now: Now, lease_now: u64) -> u64 {
        let metadata = Arc::clone(&self.metadata);
        let needed_one = self.is_leased();
        let view = View { buckets: &self.buckets, links: &self.links };
        let who = (self.uuid.as_str(), self.life, self.caught_up);
        let step = self.reconciler.look(who, &metadata, (&self.lease, lease_now), &view, now);
        if self.caught_up {
            if needed_one && !self.is_leased() {
                self.check_that_it_has_stopped(&metadata);
            }
            self.wish(&metadata);
            let report = self.make_report(&metadata, lease_now);
            if report != self.report {
                self.report = report;
                self.reporter.note_news();
            }
        }
        self.reconciler.pause_millis(step).unwrap_or(0)
    }

    /// What is wanted from whom.
    fn wish(&mut self, metadata: &Metadata) {
        let mut wanted = BTreeMap::new();
        for wish in self.reconciler.agent().wishes() {
            let is_open = self.buckets.contains_key(&wish.bucket);
            if is_open && metadata.node_by_id(wish.peer).is_some() {
                wanted.insert((wish.bucket, wish.peer), wish.streams);
            }
        }
        self.links.retain(|key, _| wanted.contains_key(key));
        for (key, streams) in wanted {
            let link = self.links.entry(key).or_default();
            if link.streams != streams {
                (link.streams, link.has_news) = (streams, true);
            }
        }
    }

    /// A connection says what is being followed by it.
    pub(crate) fn follows(&mut self, key: &(BucketUuid, NodeId), changes: Vec<(VbId, Option<u64>)>) {
        let Some(link) = self.links.get_mut(key) else { return };
        for (vb, term) in changes {
            if let Some(term) = term {
                link.terms.insert(vb, term);
            } else {
                link.terms.remove(&vb);
            }
            self.look_at = 0;
        }
    }

    fn make_report(&self, metadata: &Metadata, lease_now: u64) -> Option<NodeReport> {
        let view = View { buckets: &self.buckets, links: &self.links };
        let stands_still = stands_still(self.log.writing_since(), lease_now);
        let mut report = self.reconciler.report(metadata, &view, stands_still)?;
        report.level = self.part.group().version().highest;
        for bucket in report.buckets.iter_mut().filter(|_| metadata.rebalance.is_some()) {
            if let Some(open) = self.buckets.get(&bucket.uuid) {
                bucket.weights = open.weights();
            }
        }
        Some(report)
    }

    fn send_report(&mut self, outside: &mut Outside<'_>) {
        let group = self.part.group();
        let metadata_state = || MetadataState { diverged: group.diverged(), state: Some(group.marks()) };
        let now = outside.lease_now;
        // A report of an earlier life is not for the leader of a later one.
        let newest = self.report.as_ref().filter(|_| self.life == self.part.life());
        let sent = self.reporter.next(newest, metadata_state, group.leader(), now);
        let Some((leader, report)) = sent else { return };
        if leader == self.id {
            return self.take_report(Box::new(report), outside);
        }
        outside.send(self.id, Some(leader), Message::Report(Box::new(report)));
    }

    /// The report of that number was answered.
    pub(crate) fn reported(&mut self, (boot, number): (u64, u64), taken: Option<Taken>, now: u64) {
        if boot != self.boot {
            return;
        }
        let Some(taken) = taken else { return self.reporter.given_up(number, now) };
        let diverged = self.reporter.answered(number, taken, &self.lease, now);
        assert_eq!(diverged, None, "{} runs the same version as all others", self.id);
    }

    /// What is active on this node, and at which terms.
    pub(crate) fn active(&self) -> Vec<(&BucketUuid, VbId, u64)> {
        let mut active = Vec::new();
        for (uuid, bucket) in &self.buckets {
            for vb in (0..bucket.engine.vbuckets()).map(VbId) {
                if let Ok((VbRole::Active, term)) = bucket.engine.vb_role(vb) {
                    active.push((uuid, vb, term));
                }
            }
        }
        active
    }

    /// A node that serves without a lease from now on has to know that what it serves is not somebody else's by now.
    fn check_that_it_has_stopped(&self, metadata: &Metadata) {
        for (uuid, vb, term) in self.active() {
            let plan = metadata.bucket_by_uuid(uuid).map(|(_, bucket)| &bucket.vbs[usize::from(vb.get())]);
            assert!(
                plan.is_none_or(|plan| plan.active() == Some(self.id)),
                "{} serves vBucket {vb:?} of term {term} without a lease, which is another's: {plan:?}",
                self.id
            );
        }
    }

    /// Whether what is active here is served at the moment.
    pub(crate) fn serves(&self, lease_now: u64) -> bool {
        !self.lease.has_run_out(|| lease_now)
    }

    /// Whether its actives serve under a lease.
    pub(crate) fn is_leased(&self) -> bool {
        self.lease.left_millis(0).is_some()
    }

    // ---- leadership -----------------------------------------------------------------------------------------------

    pub(crate) fn leads(&self) -> bool {
        self.part.group().leads()
    }

    /// The life of the group that this node belongs to.
    pub(crate) fn epoch(&self) -> Epoch {
        self.part.group().epoch()
    }

    pub(crate) fn raft_term(&self) -> u64 {
        self.part.group().term()
    }

    /// Those that vote in the agreement, and those that learn, as far as is known here.
    pub(crate) fn members(&self) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        self.part.group().members()
    }

    /// Whether a node still takes part in the agreement, as far as is known here.
    pub(crate) fn has_member(&self, node: NodeId) -> bool {
        let (voters, learners) = self.members();
        voters.contains(&node) || learners.contains(&node)
    }

    fn lead(&mut self, outside: &Outside<'_>) {
        let ms = outside.now.mono_millis;
        let term = self.part.group().leads_in().filter(|_| self.caught_up);
        for command in self.leadership.look(term, &self.metadata, outside.lease_now) {
            let _ = self.propose(command, term, ms);
        }
    }

    /// A node reports.
    pub(crate) fn take_report(&mut self, report: Box<NodeReport>, outside: &mut Outside<'_>) {
        if self.leads() {
            self.part.confirm(Waiting { report, came: outside.lease_now }, |_| true);
        } else {
            self.answer_report(&report, None, outside);
        }
    }

    /// A report can be answered.
    fn hear(&mut self, term: u64, agreed: &Metadata, waiting: Waiting, outside: &mut Outside<'_>) {
        let Waiting { report, came } = waiting;
        let taken = self.leadership.take(term, agreed, NodeReport::clone(&report), came);
        self.answer_report(&report, taken, outside);
    }

    fn answer_report(&mut self, report: &NodeReport, taken: Option<Taken>, outside: &mut Outside<'_>) {
        let of = (report.boot, report.number);
        if report.node == self.id {
            return self.reported(of, taken, outside.lease_now);
        }
        outside.send(self.id, Some(report.node), Message::Reported { of, taken });
    }

    // ---- clients --------------------------------------------------------------------------------------------------

    /// What the threads of buckets do, and the requests that can go on.
    fn work(&mut self, shelf: &Shelf, outside: &mut Outside<'_>) -> Vec<Waiter> {
        let mut woken = Vec::new();
        let disks = Disks {
            work: outside.disk_works,
            are_full: shelf.is_full,
            are_failing: shelf.is_bad(),
            compactions: shelf.compactions,
        };
        for bucket in self.buckets.values_mut() {
            woken.extend(bucket.work(outside.rng, disks, outside.now));
        }
        let ms = outside.now.mono_millis;
        woken.retain(|waiter| {
            if waiter.worker == REQUESTS
                && let Some(parked) = self.requests.get_mut(&waiter.connection)
            {
                parked.is_ready = true;
            }
            waiter.worker != REQUESTS
        });
        let is_due = |parked: &Parked| match parked.stage {
            Stage::Fetch => parked.is_ready,
            Stage::Durable(_, deadline) => parked.is_ready || ms >= deadline,
        };
        let due: Vec<u64> = self.requests.iter().filter(|(_, p)| is_due(p)).map(|(id, _)| *id).collect();
        for id in due {
            let Some(parked) = self.requests.remove(&id) else { continue };
            match parked.stage {
                Stage::Fetch => self.take_request(parked.request, outside),
                Stage::Durable(mutated, deadline) => {
                    self.await_durability(parked.request, mutated, deadline, outside);
                }
            }
        }
        woken
    }

    /// What a reader is told that asks this node, whatever maps say; `None` where it refuses.
    pub(crate) fn serve_read(&self, place: &KeyPlace, (now, lease_now): (Now, u64)) -> Option<Option<u64>> {
        let open = self.buckets.get(&place.bucket).filter(|_| self.serves(lease_now))?;
        let is_active = open.engine.vb_role(place.vb).ok()?.0 == VbRole::Active;
        let found = is_active.then(|| open.read(place.vb, &place.key, now))?.ok()?;
        Some(found.map(|document| decode_value(&document.value)))
    }

    /// A client asks for something.
    pub(crate) fn take_request(&mut self, request: Request, outside: &mut Outside<'_>) {
        let now = outside.now;
        if !self.serves(outside.lease_now) {
            return self.answer(&request, Ended::Refused(Status::TemporaryFailure), outside);
        }
        let Some(bucket) = self.buckets.get(&request.bucket) else {
            return self.answer(&request, Ended::Refused(Status::NotMyVbucket), outside);
        };
        let engine = Arc::clone(&bucket.engine);
        let key = HashedKey::new(DocKey::trusted(&request.key));
        let leased = self.is_leased();
        let see = |view: &DocView<'_>| (decode_value(view.value), view.cas);
        let seen = |value: (u64, Cas)| Ok(Ended::Read { value: Some(value), leased });
        let done = match request.operation {
            Operation::Read => engine.get(request.vb, key, now, see).map(seen),
            Operation::Touch => {
                engine.touch(request.vb, key, LONG_SECS, now, see).map(|(value, _)| seen(value))
            }
            Operation::Lock => engine.lock(request.vb, key, LOCK_SECS, now, see).map(seen),
            Operation::Write { value, filler, level: durability, secs, over } => {
                let (flags, expiry) = (flags_of(value), Expiry::Wire(secs));
                let cas = over.map_or(Cas::NONE, |(_, cas)| cas);
                let value = encode_value(value, filler);
                let datatype = Datatype::JSON;
                let store = Store { durability, flags, expiry, cas, datatype, ..Store::set(&value) };
                engine.store(request.vb, key, &store, now).map(Err)
            }
            Operation::Part { part, value, filler, level } => {
                parts::change(&engine, (request.vb, key), (part, value, filler), level, now).map(Err)
            }
            Operation::Look => parts::look(&engine, (request.vb, key), now)
                .map(|(value, mark)| Ok(Ended::Looked { value, mark, leased })),
            Operation::Foreign { value, filler, deletes } => {
                parts::from_elsewhere(&engine, (request.vb, key), (value, filler, deletes), now).map(Err)
            }
            Operation::Remove { level: durability, .. } => {
                let delete = Delete { durability, ..Delete::default() };
                engine.delete(request.vb, key, &delete, now).map(Err)
            }
        };
        match done {
            Ok(Ok(ended)) => self.answer(&request, ended, outside),
            Ok(Err(mutated)) if mutated.wait => {
                self.await_durability(request, mutated, now.mono_millis + DURABLE_MILLIS, outside);
            }
            Ok(Err(mutated)) => self.answer(&request, written(&mutated), outside),
            Err(Refusal::Status(Status::KeyNotFound)) => {
                self.answer(&request, Ended::Read { value: None, leased }, outside);
            }
            Err(Refusal::Status(status)) => self.answer(&request, Ended::Refused(status), outside),
            Err(Refusal::Fetch) => match engine.fetch(request.vb, key, waiter_of(&request)) {
                Ok(_) => self.park(request, Stage::Fetch),
                Err(status) => self.answer(&request, Ended::Refused(status), outside),
            },
        }
    }

    fn await_durability(
        &mut self,
        request: Request,
        mutated: Mutated,
        deadline: u64,
        outside: &mut Outside<'_>,
    ) {
        // Connections to a bucket that is gone are closed.
        let Some(bucket) = self.buckets.get(&request.bucket) else { return };
        let now = outside.now;
        let key = HashedKey::new(DocKey::trusted(&request.key));
        let is_over = now.mono_millis >= deadline;
        let until = if is_over { 0 } else { deadline };
        let waiter = waiter_of(&request);
        match bucket.engine.complete_durable(request.vb, key, &mutated, waiter, until, now) {
            Ok(Durable::Committed(mutated)) => self.answer(&request, written(&mutated), outside),
            Ok(Durable::Parked) if !is_over => self.park(request, Stage::Durable(mutated, deadline)),
            Ok(Durable::Parked) | Err(_) => self.answer(&request, Ended::Ambiguous, outside),
        }
    }

    fn park(&mut self, request: Request, stage: Stage) {
        self.requests.insert(request.id, Parked { request, stage, is_ready: false });
    }

    fn answer(&self, request: &Request, ended: Ended, outside: &mut Outside<'_>) {
        outside.send(
            self.id,
            None,
            Message::Answer(Answer { id: request.id, ended, rev_epoch: self.metadata.rev_epoch }),
        );
    }

    /// The name of an open bucket.
    pub(crate) fn bucket(&self, uuid: &BucketUuid) -> Option<(&str, &Arc<Bucket>)> {
        self.buckets.get(uuid).map(|bucket| (bucket.name.as_str(), &bucket.engine))
    }
}

fn waiter_of(request: &Request) -> Waiter {
    Waiter { worker: REQUESTS, connection: request.id, ticket: 0 }
}

fn written(mutated: &Mutated) -> Ended {
    Ended::Written(Token { vb_uuid: mutated.vb_uuid, seqno: mutated.seqno })
}

/// What a command is called, for the journal.
fn command_name(command: &Command) -> String {
    let text = format!("{command:?}");
    let most = text.char_indices().nth(160).map_or(text.len(), |(at, _)| at);
    text[..most].to_owned()
}
