//! The agent: what has been done about each plan, what is left to do, and what to wish for and to report.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Deref,
    sync::Arc,
};

use base::{BucketUuid, NodeId, Now, Status, VbId, VbRole, bucket::BucketKind};
use cluster::{
    BucketInfo, Membership, Metadata, NodeInfo, Recovery, TERMS_LEAP, VbPhase, VbPlan,
    orchestrator::DRAIN_PATIENCE_MS,
    report::{BucketReport, VbReport},
};
use engine::Activation;
use replication::consumer::StreamWish;

use crate::{
    copies::{Copies, Copy},
    duty::{self, Duty, duty},
};

/// Changes of one bucket's copies in one call, but for those that are brought into service together: what has been done has to be
/// reported.
const CHANGES_MAX: usize = 64;
/// Copies of a bucket that are looked at in one call for whether they are whole.
const LOOKS: usize = 32;

/// The buckets of this node, and the streams that it has.
pub trait Buckets {
    /// A hold on one bucket.
    type Bucket: Deref<Target: Copies + Sized>;

    /// The copies of a bucket; `None` until it is open.
    fn copies(&self, bucket: &BucketUuid) -> Option<Self::Bucket>;

    /// The term of the stream by which a copy follows another node's, when one is open.
    fn following(&self, bucket: &BucketUuid, vb: VbId) -> Option<u64>;

    /// Whether a copy is to take over, and an index that queries wait for is not close behind it yet.
    fn is_indexing(&self, _bucket: &BucketUuid, _vb: VbId) -> bool {
        false
    }
}

/// What a call did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// There is more to do that need not wait.
    pub more: bool,
    /// Something was refused; it is tried again with the next call.
    pub failed: Option<Status>,
    /// [`Agent::wishes`] says something new.
    pub wishes_changed: bool,
}

/// The streams of one bucket that this node wants from one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Of which bucket.
    pub bucket: BucketUuid,
    /// From whom.
    pub peer: NodeId,
    /// By vBucket.
    pub streams: Vec<StreamWish>,
}

/// See the module. One per node.
#[derive(Clone, Debug, Default, Hash)]
pub struct Agent {
    /// The uuid of this node in the cluster's list.
    this_node: String,
    buckets: BTreeMap<BucketUuid, BucketPlans>,
    /// Whether metadata have been seen before: buckets that appear later are new, those before were there at the last
    /// stop.
    has_begun: bool,
    wishes_changed: bool,
    /// See [`Agent::applied`].
    applied: u64,
}

impl Agent {
    /// The agent of the node with that uuid.
    #[must_use]
    pub fn new(this_node: String) -> Self {
        Self { this_node, ..Self::default() }
    }

    /// Does some of what `metadata` asks for and has not been done. To be called whenever metadata or buckets have
    /// changed, again while there is [`Step::more`], and now and then for what was refused.
    ///
    /// The metadata must not be older than what this node has acted upon before, in this life or an earlier one. Only
    /// when it has caught up with its cluster may it drop what others have, or serve.
    pub fn step(&mut self, metadata: &Metadata, buckets: &impl Buckets, now: Now) -> Step {
        let mut step = Step::default();
        let Some(this) = metadata.node(&self.this_node) else {
            end_service(metadata, buckets, &mut step);
            return step;
        };
        let was_there = !mem::replace(&mut self.has_begun, true);
        self.follow(metadata, this, was_there);
        let mut may_still_serve = false;
        for (uuid, plans) in &mut self.buckets {
            if let Some(copies) = buckets.copies(uuid) {
                self.wishes_changed |= plans.forget_another_life(&*copies, &mut step);
                self.wishes_changed |= plans.carry_out(&*copies, &mut step, now);
                plans.leave(&*copies, &mut step, now);
                plans.look_for_parts(&*copies);
                may_still_serve |= plans.has_to_stop();
            }
        }
        if !may_still_serve {
            self.applied = metadata.version;
        }
        step.wishes_changed = mem::take(&mut self.wishes_changed);
        step
    }

    /// Takes note of what shall be. Costs nothing for buckets whose plans are the same as before.
    fn follow(&mut self, metadata: &Metadata, this: &NodeInfo, was_there: bool) {
        let infos = || metadata.buckets.values().filter(|bucket| bucket.kind != BucketKind::Memcached);
        let before = self.buckets.len();
        self.buckets.retain(|uuid, _| infos().any(|info| info.uuid == *uuid));
        self.wishes_changed |= self.buckets.len() != before;
        let keeps = this.membership == Membership::InactiveFailed && this.recovery != Some(Recovery::Full)
            || this.recovery == Some(Recovery::Delta);
        for info in infos() {
            let new = || BucketPlans::new(was_there, info.kind == BucketKind::Ephemeral);
            let plans = self.buckets.entry(info.uuid.clone()).or_insert_with(new);
            plans.follow(info, this.id, keeps, metadata);
        }
    }

    /// Every stream that this node wants now, by bucket and peer.
    #[must_use]
    pub fn wishes(&self) -> Vec<Wish> {
        let wishes = self.buckets.iter().flat_map(|(uuid, plans)| {
            let bucket = uuid.clone();
            plans.streams().into_iter().map(move |(peer, streams)| Wish {
                bucket: bucket.clone(),
                peer,
                streams,
            })
        });
        wishes.collect()
    }

    /// [`Metadata::version`] that this node acts by: nothing is served any more that somebody else has by it.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The group was formed anew. Versions of its metadata are not those of the group before: this node has acted by none of them yet.
    ///
    /// A start of the process forgets that this was called. Its copies have no terms then. One that was killed does not count, and neither
    /// does one that may have lacked something before a clean stop. So what a node has of another life counts in one case only. Two
    /// groups were formed anew of the same one, and the node is stopped cleanly between this call and the next step.
    pub fn begin_again(&mut self) {
        self.applied = 0;
        for plans in self.buckets.values_mut() {
            plans.unlooked = (0..plans.plans.len()).map(|at| VbId(at as u16)).collect();
        }
    }

    /// Whether anything is not plainly settled: then [`Agent::report`] changes without metadata changing.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.buckets.values().any(BucketPlans::is_busy)
    }

    /// What the leader should know of a bucket's copies: those that are not plainly settled. Figures about the bucket as
    /// a whole are left out.
    #[must_use]
    pub fn report(&self, buckets: &impl Buckets) -> Vec<BucketReport> {
        let report = |(uuid, plans): (&BucketUuid, &BucketPlans)| {
            let copies = buckets.copies(uuid);
            let vbs = copies.as_deref().map(|copies| plans.report(copies, (uuid, buckets)));
            BucketReport {
                uuid: uuid.clone(),
                ready: copies.is_some(),
                vbs: vbs.unwrap_or_default(),
                items: 0,
                bytes: 0,
                weights: Vec::new(),
                cut_off: BTreeMap::new(),
                pressure: Default::default(),
                latency: None,
            }
        };
        self.buckets.iter().map(report).collect()
    }
}

/// This node belongs to the cluster no more, and may not have heard of what came before that. So others may serve what it serves. What it holds
/// stays until it begins anew.
fn end_service(metadata: &Metadata, buckets: &impl Buckets, step: &mut Step) {
    let infos = metadata.buckets.values().filter(|bucket| bucket.kind != BucketKind::Memcached);
    for (info, copies) in infos.filter_map(|info| Some((info, buckets.copies(&info.uuid)?))) {
        for (vb, plan) in info.vbs.iter().enumerate().map(|(at, plan)| (VbId(at as u16), plan)) {
            let copy = copies.copy(vb);
            if matches!(copy.role, VbRole::Active | VbRole::Sealed)
                && let Err(status) = copies.make_dead(vb, plan.term.max(copy.term))
            {
                step.failed = Some(status);
            }
        }
    }
}

/// A bucket: its plans as last seen, and what has been done about them.
#[derive(Clone, Debug, Default, Hash)]
struct BucketPlans {
    plans: Arc<Vec<VbPlan>>,
    /// Where they shall come to, as last seen.
    targets: Option<Arc<Vec<Vec<NodeId>>>>,
    /// Nodes that others are to do without, as last seen.
    leaving_nodes: Vec<NodeId>,
    /// Those of them beside which durable writes go to disk.
    synced_beside: Vec<NodeId>,
    /// How many copies there are to be.
    copies: u8,
    /// What this node has outside of chains is kept.
    keeps: bool,
    node: NodeId,
    /// What was done last for each vBucket, and for which term.
    done: Vec<Option<(u64, Duty)>>,
    /// vBuckets for which something is to be done.
    todo: BTreeSet<VbId>,
    /// Copies that are none any more, serve nobody, and may hold something yet.
    leaving: BTreeSet<VbId>,
    /// vBuckets that the leader waits to hear of.
    unsettled: BTreeSet<VbId>,
    /// Copies that may have lost what others have: they are not served unless an election says so.
    unconfirmed: BTreeSet<VbId>,
    /// Copies that count and are parts only, begun anew: the leader is about to count on them, and should know.
    parts: BTreeSet<VbId>,
    /// Where the next look for those begins.
    next_look: usize,
    /// It was there at the last stop. So a copy of which nothing is known has lost all it had, which the engine cannot
    /// tell from one that is new.
    was_there: bool,
    /// Nothing of it survives a stop.
    is_volatile: bool,
    /// Where the next call begins.
    next: VbId,
    /// Copies that may have terms of another life of the group.
    unlooked: BTreeSet<VbId>,
    /// Copies that had: until they have caught up, the names of their branches say nothing in this life.
    strangers: BTreeSet<VbId>,
}

/// Whether a copy may have got that term in the life of the group from which the plan's was formed anew.
fn is_of_life_before(term: u64, plan: &VbPlan) -> bool {
    term.saturating_add(TERMS_LEAP) <= plan.term
}

/// A change to be made.
struct Change {
    vb: VbId,
    term: u64,
    duty: Duty,
}

/// The changes of one call.
#[derive(Default)]
struct Changes {
    /// In any number: they wait for the disk, all of a shard together.
    to_lead: Vec<Change>,
    others: Vec<Change>,
}

impl BucketPlans {
    fn new(was_there: bool, is_volatile: bool) -> Self {
        Self { was_there, is_volatile, ..Self::default() }
    }

    /// Takes note of the plans; compares them only when they are others than before.
    fn follow(&mut self, info: &BucketInfo, node: NodeId, keeps: bool, metadata: &Metadata) {
        let (leaving, synced_beside) = (metadata.leaving_gracefully(), metadata.synced_beside(info.kind));
        let copies = info.replicas.saturating_add(1);
        let targets = (self.targets.as_ref().map(Arc::as_ptr), info.target.as_ref().map(Arc::as_ptr));
        let is_same = (self.copies, self.keeps, self.node) == (copies, keeps, node)
            && targets.0 == targets.1
            && (&*self.leaving_nodes, &*self.synced_beside) == (leaving, synced_beside);
        if is_same && Arc::ptr_eq(&self.plans, &info.vbs) {
            return;
        }
        self.targets.clone_from(&info.target);
        leaving.clone_into(&mut self.leaving_nodes);
        synced_beside.clone_into(&mut self.synced_beside);
        let before = mem::replace(&mut self.plans, Arc::clone(&info.vbs));
        (self.copies, self.keeps, self.node) = (copies, keeps, node);
        self.done.resize(self.plans.len(), None);
        for (index, plan) in self.plans.iter().enumerate() {
            if is_same && before.get(index) == Some(plan) {
                continue;
            }
            let vb = VbId(index as u16);
            let shall = (plan.term, duty(plan, node, keeps, copies).beside(plan, synced_beside));
            if self.done.get(index).and_then(Option::as_ref) == Some(&shall) {
                self.todo.remove(&vb);
            } else {
                self.todo.insert(vb);
                if !matches!(shall.1, Duty::Follow(_)) {
                    self.leaving.remove(&vb);
                }
            }
            let target = self.targets.as_ref().and_then(|targets| targets.get(index)).map(Vec::as_slice);
            let is_wanted = target.is_some_and(|target| plan.is_lost_to(target) && target.contains(&node));
            // It holds what there was when it left in good order, and an election asks it whether that was anything.
            let is_asked = plan.kept.contains(&node) && matches!(plan.phase, VbPhase::Electing { .. });
            if is_wanted || is_asked || (plan.is_watched(target, leaving) && duty::is_part(plan, node)) {
                self.unsettled.insert(vb);
            } else {
                self.unsettled.remove(&vb);
            }
        }
    }

    fn is_busy(&self) -> bool {
        [&self.todo, &self.unsettled, &self.unconfirmed].iter().any(|vbs| !vbs.is_empty())
    }

    /// Finds out of a few copies whether they are whole. Nothing else tells: a copy is begun anew by its stream.
    fn look_for_parts(&mut self, copies: &impl Copies) {
        let vbs = self.plans.len();
        for at in (self.next_look..self.next_look + LOOKS.min(vbs)).map(|at| at % vbs) {
            let vb = VbId(at as u16);
            self.look_for_part(vb, copies);
        }
        self.next_look = (self.next_look + LOOKS) % vbs.max(1);
    }

    fn look_for_part(&mut self, vb: VbId, copies: &impl Copies) {
        let copy = copies.copy(vb);
        let is_sound = copy.complete && !copy.may_lack;
        if !copy.may_lack {
            // It has caught up, or serves.
            self.strangers.remove(&vb);
        }
        if self.is_in_chain(vb) && matches!(self.duty_done(vb), Some(Duty::Follow(_))) && !is_sound {
            self.parts.insert(vb);
        } else {
            self.parts.remove(&vb);
        }
    }

    /// Has copies forget terms that are not this life's; whether wishes have changed. Terms leap where a group is
    /// formed anew, so those of the life before are earlier by that leap. But two groups that were formed anew of the
    /// same one leap alike. A node that has lived in one of them may be in the other one now. It would not obey an
    /// earlier term there, and would take an equal term for one that it has carried out. With a later term it would
    /// count in elections, and the branch that it began in the other life could pass for the later one.
    fn forget_another_life(&mut self, copies: &impl Copies, step: &mut Step) -> bool {
        let mut wishes_changed = false;
        for vb in mem::take(&mut self.unlooked) {
            let Some(plan) = self.plans.get(usize::from(vb.get())) else { continue };
            let copy = copies.copy(vb);
            if copy.term == 0 || is_of_life_before(copy.term, plan) {
                continue;
            }
            if let Err(status) = copies.forget_role(vb) {
                step.failed = Some(status);
                // This one only: the others may have terms of this life by the next call.
                self.unlooked.insert(vb);
                continue;
            }
            self.todo.insert(vb);
            self.leaving.remove(&vb);
            self.strangers.insert(vb);
            let done = self.done.get_mut(usize::from(vb.get())).and_then(Option::take);
            wishes_changed |= done.is_some_and(|done| matches!(done.1, Duty::Follow(_)));
        }
        wishes_changed
    }

    fn is_in_chain(&self, vb: VbId) -> bool {
        self.plans.get(usize::from(vb.get())).is_some_and(|plan| plan.chain.contains(&self.node))
    }

    /// Whether a copy is left that might serve what another node may serve by now. One that is to hand over is none:
    /// nobody takes its place before it has said that it is sealed.
    fn has_to_stop(&self) -> bool {
        let mut todo = self.todo.difference(&self.leaving);
        todo.any(|vb| self.duty_of(*vb).is_some_and(|(_, duty)| !matches!(duty, Duty::Lead(_) | Duty::Seal)))
    }

    /// What is asked of this node, and for which term.
    fn duty_of(&self, vb: VbId) -> Option<(u64, Duty)> {
        let plan = self.plans.get(usize::from(vb.get()))?;
        let duty = duty(plan, self.node, self.keeps, self.copies).beside(plan, &self.synced_beside);
        Some((plan.term, duty))
    }

    /// Does some of what is to be done; whether wishes have changed.
    fn carry_out(&mut self, copies: &impl Copies, step: &mut Step, now: Now) -> bool {
        if self.todo.is_empty() {
            return false;
        }
        let Changes { to_lead, others } = self.next_changes(step);
        let (left, mut wishes_changed) = (self.todo.len(), false);
        // A successor that waits for this node to stop goes first.
        for change in others {
            wishes_changed |= self.settle(change, copies, step, now);
        }
        if self.todo.len() < left && !to_lead.is_empty() {
            // And is told of it before the disk is waited for.
            step.more = true;
            return wishes_changed;
        }
        self.lead(to_lead, copies, step, now) || wishes_changed
    }

    /// What to do in this call.
    fn next_changes(&mut self, step: &mut Step) -> Changes {
        let mut changes = Changes::default();
        let mut seen = 0;
        let mut last = None;
        // From where the last call ended: what is refused again and again must not stand before the rest.
        for &vb in self.todo.range(self.next..).chain(self.todo.range(..self.next)) {
            let Some((term, duty)) = self.duty_of(vb) else { continue };
            let list = match duty {
                Duty::Lead(_) => &mut changes.to_lead,
                _ => &mut changes.others,
            };
            list.push(Change { vb, term, duty });
            (seen, last) = (seen + 1, Some(vb));
            if changes.others.len() == CHANGES_MAX {
                break;
            }
        }
        step.more |= seen < self.todo.len();
        self.next = last.map_or(self.next, |vb| VbId(vb.get() + 1));
        changes
    }

    /// Has a copy stop, or follow; whether that changed what this node wishes for.
    fn settle(&mut self, change: Change, copies: &impl Copies, step: &mut Step, now: Now) -> bool {
        let (vb, term) = (change.vb, change.term);
        let outcome = match change.duty {
            Duty::Seal if self.holds_back(vb, copies) => return false,
            // It serves nobody, after a restart most likely: there is nothing to seal. The leader hears of it and has it
            // serve first.
            Duty::Seal if copies.copy(vb).role == VbRole::Dead => return false,
            // What is to go has gone before a copy is made anew.
            Duty::Follow(_) if self.leaving.contains(&vb) => return false,
            Duty::Lead(_) | Duty::Seal => match copies.drain(vb, term, now) {
                // The next look finds whether they have ended.
                Ok(Some(millis)) if millis < DRAIN_PATIENCE_MS => return false,
                Ok(_) => copies.seal(vb, term),
                Err(status) => Err(status),
            },
            Duty::Follow(_) | Duty::Stand if self.is_lost(vb, &copies.copy(vb)) => {
                copies.note_loss(vb).and_then(|()| copies.make_replica(vb, term))
            }
            Duty::Follow(_) | Duty::Stand => copies.make_replica(vb, term),
            // Others may ask what it held when it left.
            Duty::Keep if self.is_lost(vb, &copies.copy(vb)) => {
                copies.note_loss(vb).and_then(|()| copies.make_dead(vb, term))
            }
            // As it was opened, most likely.
            Duty::Leave if copies.copy(vb).role == VbRole::Dead => Ok(()),
            Duty::Keep | Duty::Leave => copies.make_dead(vb, term),
        };
        match outcome {
            Ok(()) => {
                let wishes_changed = self.finish(change);
                // The leader should know at once, not only when its turn comes to be looked at.
                self.look_for_part(vb, copies);
                wishes_changed
            }
            Err(status) => {
                step.failed = Some(status);
                false
            }
        }
    }

    /// Brings copies into service, all of a call together; whether that changed what this node wishes for.
    fn lead(&mut self, changes: Vec<Change>, copies: &impl Copies, step: &mut Step, now: Now) -> bool {
        let (mut to_activate, mut finished) = (Vec::new(), Vec::new());
        for change in changes {
            let Change { vb, term, duty: Duty::Lead(topology) } = &change else { continue };
            if self.holds_back(*vb, copies) {
                continue;
            }
            let activation = Activation { vb: *vb, term: *term, topology: topology.clone() };
            if copies.copy(*vb).role != VbRole::Active {
                to_activate.push(activation);
            } else if let Err(status) = copies.set_topology(&activation, now) {
                step.failed = Some(status);
                continue;
            }
            finished.push(change);
        }
        for (vb, outcome) in copies.activate(&to_activate, now) {
            if let Err(status) = outcome {
                step.failed = Some(status);
                finished.retain(|change| change.vb != vb);
            }
        }
        self.finish_all(finished)
    }

    /// Has go what is left of copies that are none any more, and forgets those of which nothing is.
    fn leave(&mut self, copies: &impl Copies, step: &mut Step, now: Now) {
        self.leaving.retain(|&vb| {
            if copies.copy(vb).has_contents
                && let Err(status) = copies.drop_contents(vb, now)
            {
                step.failed = Some(status);
            }
            copies.copy(vb).has_contents
        });
    }

    fn finish_all(&mut self, changes: Vec<Change>) -> bool {
        let mut wishes_changed = false;
        for change in changes {
            wishes_changed |= self.finish(change);
        }
        wishes_changed
    }

    /// Whether a copy that is to serve, or to hand over, must not: it may have lost what others of its chain have. It
    /// waits until the leader, who is told, has had the copies compared.
    fn holds_back(&mut self, vb: VbId, copies: &impl Copies) -> bool {
        let is_alone = self.plans.get(usize::from(vb.get())).is_none_or(VbPlan::is_alone);
        let copy = copies.copy(vb);
        if is_alone || !(self.is_lost(vb, &copy) || copy.unconfirmed) {
            return false;
        }
        self.todo.remove(&vb);
        self.unconfirmed.insert(vb);
        true
    }

    /// Whether a copy that nothing has been asked of yet has lost all that it had at the last stop.
    fn is_lost(&self, vb: VbId, copy: &Copy) -> bool {
        let is_untouched = self.duty_done(vb).is_none() && copy.role == VbRole::Dead;
        self.was_there && is_untouched && (self.is_volatile || copy.blank)
    }

    fn duty_done(&self, vb: VbId) -> Option<&Duty> {
        self.done.get(usize::from(vb.get())).and_then(Option::as_ref).map(|done| &done.1)
    }

    /// Notes that a change has been made; whether it changed what this node wishes for.
    fn finish(&mut self, change: Change) -> bool {
        let Change { vb, term, duty } = change;
        self.todo.remove(&vb);
        self.unconfirmed.remove(&vb);
        if duty == Duty::Leave {
            self.leaving.insert(vb);
        }
        let Some(done) = self.done.get_mut(usize::from(vb.get())) else { return false };
        let is_stream = |duty: &Duty| matches!(duty, Duty::Follow(_));
        let has_changed = is_stream(&duty) || done.as_ref().is_some_and(|done| is_stream(&done.1));
        *done = Some((term, duty));
        has_changed
    }

    /// By peer, what is followed.
    fn streams(&self) -> BTreeMap<NodeId, Vec<StreamWish>> {
        let mut streams: BTreeMap<NodeId, Vec<StreamWish>> = BTreeMap::new();
        for (index, done) in self.done.iter().enumerate() {
            if let Some((term, Duty::Follow(peer))) = done {
                let wish = StreamWish { vb: VbId(index as u16), term: *term };
                streams.entry(*peer).or_default().push(wish);
            }
        }
        streams
    }

    fn report(&self, copies: &impl Copies, (uuid, buckets): (&BucketUuid, &impl Buckets)) -> Vec<VbReport> {
        let told = [&self.unsettled, &self.todo, &self.unconfirmed, &self.parts];
        let vbs: BTreeSet<VbId> = told.into_iter().flatten().copied().collect();
        let report = |vb: VbId| {
            // Before the copy: what a stream that is open has changed is told with it.
            let followed = buckets.following(uuid, vb);
            let copy = copies.copy(vb);
            let is_strange = copy.may_lack && self.strangers.contains(&vb);
            // The copy itself says so only once it is what it shall be. The leader may decide by this report before that.
            let is_lost = self.is_lost(vb, &copy);
            VbReport {
                vb,
                term: copy.term,
                role: copy.role,
                unconfirmed: copy.unconfirmed || is_lost || self.unconfirmed.contains(&vb),
                // Of copies of two lives the one that belongs to this life has what was acknowledged in it.
                vb_uuid: if is_strange { copy.vb_uuid.of_generation(0) } else { copy.vb_uuid },
                high_seqno: copy.high_seqno,
                held: copy.held,
                persisted: copy.persisted,
                synced: (copy.synced > copy.persisted).then_some(copy.synced),
                // One that is being made, and has not been fed yet, is none.
                complete: copy.complete && (self.is_in_chain(vb) || !copy.blank),
                may_lack: copy.may_lack || is_lost,
                to_disk: matches!(self.duty_done(vb), Some(Duty::Lead(topology)) if topology.to_disk),
                following: copy.role == VbRole::Replica && followed == Some(copy.term),
                indexing: copy.role == VbRole::Replica && buckets.is_indexing(uuid, vb),
            }
        };
        vbs.into_iter().map(report).collect()
    }
}
