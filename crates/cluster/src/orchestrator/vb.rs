//! What is to be done about one vBucket next. It is at most one step, which follows from its plan, its target and what nodes say of
//! their copies.
//!
//! # How long nobody serves a vBucket
//!
//! SDKs give a plain operation two and a half seconds by default. Where an operation is sent on ("not my vBucket") they wait 1, 10,
//! 50, 100, 500 and then 1000 ms. So the last tries that count are 661 and 1661 ms after the first. By the latter somebody has to
//! serve, the next active copy or the former one again, and the client has to know who. What that goes by, from when the former one
//! is to hand over:
//!
//! | At most | What takes it |
//! |---|---|
//! | 1000 ms | [`HANDOVER_PATIENCE_MS`]: the former one hears of it, drains, is sealed and says so; the others get the rest and say so. Plain operations wait from the seal on only; durable writes wait while it drains too, and are given 10 s by SDKs |
//! | 50 ms | the leader finds that the time is up (`daemon::copies::orchestration`); of reports it hears at once |
//! | two commits | the outcome is agreed on, behind one other command that is under way |
//! | a commit and a sync of the shard | the flusher lets a copy that is to serve go first, and that begins a branch of the history |
//! | 0 ms | a client of the former node learns with its answer which node serves now |
//! | 200 ms | another client is told (`daemon::buckets::maps`), at the same time as the new one begins to serve |
//!
//! That leaves some 600 ms for what depends on disks and network. A handover that is given up costs as much, so the vBucket is left
//! alone for long afterwards. If it took too long all the same, each next try is given twice the time. Clients may notice that one,
//! but a rebalance has to end.

use std::cmp::Reverse;

use base::{NodeId, Seqno, VbId, VbRole, bucket::BucketKind};

use super::{
    Note,
    budget::{self, Budget, HandoverLimit},
    heard::Heard,
    lag::Behind,
};
use crate::{
    changes::moves::{VbStep, answers_needed},
    metadata::{
        BucketInfo, Metadata,
        level::GIVEN_UP_RECOVERED,
        topology::{Recovery, VbPhase, VbPlan},
    },
    orchestrator::report::VbReport,
};

/// Mutations that a copy may be behind when it is to count: what it takes to send them is what durable writes wait for.
const CLOSE_BEHIND: u64 = 2_000;
/// Milliseconds that copies may be behind when the active role is to go to one of them: a client of the vBucket waits for
/// that.
const PROMPT_MS: u64 = 150;
/// How long copies are given to get there, before the role goes there all the same: links may be no faster.
const PROMPT_PATIENCE_MS: u64 = 15_000;
/// How long an active copy that is to hand over waits for the durable writes that are in progress. It takes no others,
/// and seals all the same when the time is up. It leaves as much again of [`HANDOVER_PATIENCE_MS`].
pub const DRAIN_PATIENCE_MS: u64 = 500;
/// How long a handover may take, from when it is agreed on until the next active copy is known to have everything. See the
/// module.
const HANDOVER_PATIENCE_MS: u64 = 1_000;
const _: () = assert!(2 * DRAIN_PATIENCE_MS <= HANDOVER_PATIENCE_MS);
/// The same where the copies are known to be further behind, as it could never go there otherwise; and where it was tried often.
const SLOW_HANDOVER_PATIENCE_MS: u64 = 5_000;
/// How long a node is given to be in want of memory or disk no longer, before active roles go there all the same.
const PRESSED_PATIENCE_MS: u64 = 30_000;
/// How long the indexes of a copy are given to come close behind it, before the role goes there all the same. It is so long, or this part
/// of the time that the rebalance has taken, whichever is longer. Copies that wait hold up no others, so a rebalance that takes
/// longer than a few seconds takes a quarter longer at most.
const INDEX_PATIENCE_MS: u64 = 2_000;
const INDEX_PATIENCE_PART: u64 = 5;
/// How long an active copy is given to be confirmed after an unclean stop, before its chain is asked.
const CONFIRM_PATIENCE_MS: u64 = 300;
/// The same right after an election.
const ELECTED_PATIENCE_MS: u64 = 5_000;
/// How long an election waits for nodes that are there and say nothing of their copies. Such a node opens the bucket, or cannot
/// carry out what was agreed on. What has to be known is waited for however long it takes; this is for what may be known beyond
/// that.
const ANSWER_PATIENCE_MS: u64 = 10_000;

pub(super) struct Scene<'a> {
    pub(super) meta: &'a Metadata,
    pub(super) heard: &'a Heard,
    pub(super) bucket: &'a BucketInfo,
    pub(super) vb: VbId,
    pub(super) plan: &'a VbPlan,
    pub(super) target: Option<&'a [NodeId]>,
    pub(super) note: Option<&'a Note>,
    /// How far those are behind to whom the active role is to go, once their copies are whole.
    pub(super) behind: Option<Behind>,
    /// While nodes leave gracefully: how far the active copy had got when its durable writes began to go to disk, once it has said so.
    pub(super) floor: Option<Seqno>,
    /// For how long this leader has seen the rebalance go on.
    pub(super) moving_ms: u64,
    /// Whether a handover was given up not long ago.
    pub(super) is_cooling: bool,
    pub(super) now_ms: u64,
}

/// Whether everything is where it shall be.
pub(super) fn is_there(plan: &VbPlan, target: Option<&[NodeId]>) -> bool {
    plan.is_quiet() && target.is_none_or(|target| target == plan.chain)
}

/// Whether copies follow so closely that next to nobody notices when one of them becomes the active one.
fn is_prompt(behind: Behind) -> bool {
    behind.millis.is_some_and(|millis| millis <= PROMPT_MS)
}

/// How long a handover to copies that are so far behind may take, after so many that were given up. A new leader does not
/// know how far that is, and the vBucket may have been sealed for long. So the handover is given no more time than if the
/// copies were close.
pub(super) fn patience_ms(behind: Option<Behind>, given_up: u32) -> u64 {
    if behind.is_some_and(|behind| !is_prompt(behind)) {
        return SLOW_HANDOVER_PATIENCE_MS;
    }
    let doubled =
        1_u64.checked_shl(given_up).map_or(u64::MAX, |times| HANDOVER_PATIENCE_MS.saturating_mul(times));
    doubled.min(SLOW_HANDOVER_PATIENCE_MS)
}

/// Whether a copy serves clients by that plan.
pub(super) fn leads(copy: &VbReport, plan: &VbPlan) -> bool {
    copy.term == plan.term && copy.role == VbRole::Active && !copy.unconfirmed
}

impl Scene<'_> {
    pub(super) fn next_step(&self, budget: &mut Budget) -> Option<VbStep> {
        if let VbPhase::Electing { among } = &self.plan.phase {
            return self.elect(among);
        }
        let Some(&active) = self.plan.chain.first() else { return self.revive() };
        if self.stays_unconfirmed(active) {
            let alone = self.plan.is_alone();
            return match self.plan.phase {
                // Nobody could say better: once it need not hand over it confirms itself.
                VbPhase::Handover { .. } if alone => Some(VbStep::CancelHandover),
                _ if alone => None,
                _ => Some(VbStep::StartElection),
            };
        }
        match &self.plan.phase {
            VbPhase::Handover { to, after } => self.hand_over(active, *to, after),
            _ if self.plan.joint.is_some() => self.has_caught_up().then_some(VbStep::DropJoint),
            _ => match self.target {
                Some(target) => self.approach(active, target, budget),
                // Nobody wants these copies any more.
                None => (!self.plan.building.is_empty()).then(|| VbStep::Build(Vec::new())),
            },
        }
    }

    /// A copy's report of the plan's own term.
    fn copy(&self, node: NodeId) -> Option<&VbReport> {
        self.any_copy(node).filter(|copy| copy.term == self.plan.term)
    }

    fn any_copy(&self, node: NodeId) -> Option<&VbReport> {
        self.heard.copy(node, &self.bucket.uuid, self.vb)
    }

    fn waited_ms(&self) -> u64 {
        self.note.map_or(0, |note| self.now_ms.saturating_sub(note.since_ms))
    }

    /// Whether the active copy has been opened after an unclean stop, and does not serve before others have been asked.
    fn stays_unconfirmed(&self, active: NodeId) -> bool {
        let just_elected = self.plan.kept.is_empty() && self.plan.joint.as_deref() == Some(&[active][..]);
        let patience = if just_elected { ELECTED_PATIENCE_MS } else { CONFIRM_PATIENCE_MS };
        self.any_copy(active).is_some_and(|copy| copy.unconfirmed && copy.role != VbRole::Active)
            && self.waited_ms() >= patience
    }

    /// The most advanced complete copy, once all who may have it, and enough of those who count, have said what they
    /// have.
    fn elect(&self, among: &[NodeId]) -> Option<VbStep> {
        if !self.is_fenced() {
            return None;
        }
        let answers: Vec<(NodeId, &VbReport)> =
            among.iter().filter_map(|&node| Some((node, self.copy(node)?))).collect();
        let answered = |node: NodeId| answers.iter().any(|(other, _)| *other == node);
        let is_awaited =
            |node: NodeId| !self.heard.is_silent(node, self.now_ms) && self.waited_ms() < ANSWER_PATIENCE_MS;
        if among.iter().any(|&node| !answered(node) && is_awaited(node)) || !self.missing_answers().is_empty()
        {
            return None;
        }
        let counted = self.plan.counted();
        let place =
            |node: NodeId| self.plan.chain.iter().position(|&other| other == node).unwrap_or(usize::MAX);
        let complete = answers.iter().filter(|(_, copy)| copy.complete);
        // A copy that is being built may be what an earlier life of the node has left: it is a last resort.
        let counts = |node: NodeId| place(node) != usize::MAX || counted.contains(&node);
        // Of two branches the later one has what was acknowledged before it began, however far the other one went on.
        let best = complete.max_by_key(|(node, copy)| {
            let generation = copy.vb_uuid.generation();
            (counts(*node), generation, copy.held, copy.high_seqno, Reverse(place(*node)))
        });
        match best {
            // Such a node may say that there was nothing to lose.
            Some(_)
                if self.is_empty_beside_leavers(&answers)
                    && self.plan.kept.iter().any(|&node| self.copy(node).is_none() && is_awaited(node)) =>
            {
                None
            }
            // What is left of it has been lost, and what a node holds that has left is served once that is recovered.
            Some(_) if self.is_empty_beside_leavers(&answers) => Some(VbStep::Elect(Vec::new())),
            Some(&(winner, _)) => {
                let others = self.plan.chain.iter().copied().filter(|&node| node != winner);
                Some(VbStep::Elect([winner].into_iter().chain(others).collect()))
            }
            // The bucket was emptied when nothing was left but copies that were being built: none is complete, and nobody has
            // anything that others lack.
            None if counted.is_empty() && !answers.is_empty() => {
                answers.first().map(|(node, _)| VbStep::Elect(vec![*node]))
            }
            // A complete copy may be among those that are silent.
            None if answers.len() < among.len() => None,
            None => Some(VbStep::Elect(Vec::new())),
        }
    }

    /// Whether all that answered may have lost everything, while a node that was failed over gracefully holds what there was. It has not
    /// been removed since, and nobody has said that it comes back without that. Nor has it said in this term that it holds nothing.
    fn is_empty_beside_leavers(&self, answers: &[(NodeId, &VbReport)]) -> bool {
        // It is empty and on no branch that an active copy has begun. A copy that was never written looks the same after a crash.
        let has_lost_all =
            |copy: &VbReport| copy.may_lack && copy.high_seqno == Seqno(0) && copy.vb_uuid.generation() == 0;
        let holds = |&node: &NodeId| {
            let info = self.meta.node_by_id(node);
            let has_nothing = self
                .copy(node)
                .is_some_and(|copy| copy.complete && !copy.may_lack && copy.high_seqno == Seqno(0));
            self.held_before(node)
                && !has_nothing
                && info.is_some_and(|info| info.recovery != Some(Recovery::Full))
        };
        self.plan.kept.iter().any(holds)
            && answers.iter().all(|(_, copy)| has_lost_all(copy) || !copy.complete)
    }

    /// Whether a node held the vBucket when it was failed over.
    fn held_before(&self, node: NodeId) -> bool {
        self.bucket.former.get(&node).is_some_and(|vbs| vbs.contains(&self.vb.get()))
    }

    /// Nodes that an election waits for, however long that takes, because something that was acknowledged may be known to them
    /// only. A copy that was begun anew, or has lost what it had in memory, answers for nothing: it is as if it had failed.
    /// So where others are silent that may have all they ever acknowledged, these are waited for. They come back, or an
    /// administrator fails them over and accepts that writes may be lost. Empty when there is no election, or none waits.
    pub(super) fn missing_answers(&self) -> Vec<NodeId> {
        let VbPhase::Electing { among } = &self.plan.phase else { return Vec::new() };
        let counts = |node: NodeId| self.copy(node).is_some_and(|copy| copy.complete && !copy.may_lack);
        let is_open = |node: NodeId| among.contains(&node) && self.copy(node).is_none();
        let missing = |asked: &[NodeId]| -> Vec<NodeId> {
            let answers = asked.iter().filter(|&&node| among.contains(&node) && counts(node)).count();
            let open = asked.iter().copied().filter(|&node| is_open(node));
            if answers < answers_needed(asked.len()) { open.collect() } else { Vec::new() }
        };
        let mut nodes = missing(self.plan.counted());
        // The former active has what nobody else was told. While it is away nobody takes its place unless it is failed over.
        let former = self.plan.chain.iter().copied().take(1);
        nodes.extend(former.filter(|&node| is_open(node) && self.heard.is_silent(node, self.now_ms)));
        nodes.extend(self.plan.witnesses().map(|asked| missing(&asked)).unwrap_or_default());
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Whether nobody who was failed over can be serving any more. A node that is coming back since is no exception, nor is
    /// a node that has left. Plans do not tell which node has served last. A node may have taken over with a chain that did not
    /// count yet; once it is gone, no plan names it.
    fn is_fenced(&self) -> bool {
        self.heard.unyielded(self.meta, self.now_ms).next().is_none()
    }

    /// Whether an election has taken longer than what is waited for a little while only.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.plan.phase, VbPhase::Electing { .. }) && self.waited_ms() >= ANSWER_PATIENCE_MS
    }

    fn hand_over(&self, active: NodeId, to: NodeId, after: &[NodeId]) -> Option<VbStep> {
        let sealed_at =
            self.copy(active).filter(|copy| copy.role == VbRole::Sealed).map(|copy| copy.high_seqno);
        if let Some(sealed_at) = sealed_at {
            let has_all = |node: &&NodeId| self.has(**node, sealed_at);
            let majority = after.len() / 2 + 1;
            if self.has(to, sealed_at) && after.iter().filter(has_all).count() >= majority {
                return Some(VbStep::FinishHandover);
            }
        }
        // A copy that does not serve, after a restart most likely, has to before it can be sealed.
        let serves_nobody =
            self.any_copy(active).is_some_and(|copy| matches!(copy.role, VbRole::Dead | VbRole::Replica));
        let hopeless = serves_nobody
            || self.heard.is_silent(to, self.now_ms)
            || self.note.is_some_and(|note| self.waited_ms() >= note.patience_ms);
        hopeless.then_some(VbStep::CancelHandover)
    }

    /// Whether a copy holds everything of the active one's history up to `seqno`.
    fn has(&self, node: NodeId, seqno: Seqno) -> bool {
        self.copy(node).is_some_and(|copy| {
            let is_one = matches!(copy.role, VbRole::Active | VbRole::Sealed)
                || (copy.role == VbRole::Replica && copy.following);
            is_one && copy.complete && copy.high_seqno >= seqno
        })
    }

    /// Whether the chain holds what the one before it held, on disk in a bucket with a disk. Enough of its members have
    /// to hold it that no election can miss it: all new ones, and the others that can be asked.
    fn has_caught_up(&self) -> bool {
        let Some(floor) = self.note.and_then(|note| note.floor) else { return false };
        let on_disk = self.bucket.kind == BucketKind::Couchbase;
        let has = |node: NodeId| if on_disk { self.has_on_disk(node, floor) } else { self.has(node, floor) };
        let counted = self.plan.counted();
        let chain = &self.plan.chain;
        let must = |node: &&NodeId| !counted.contains(node) || !self.heard.is_silent(**node, self.now_ms);
        let enough = chain.iter().filter(|&&node| has(node)).count() > chain.len() / 2;
        // After an election all but the winner look new, though they were there before. So a silent one may be waited for
        // until a failover takes it out.
        enough && chain.iter().filter(must).all(|&node| has(node))
    }

    /// The next step from a quiet plan to its target: copies first, then the chain, then the active role.
    fn approach(&self, active: NodeId, target: &[NodeId], budget: &mut Budget) -> Option<VbStep> {
        let chain = &self.plan.chain;
        let &leader = target.first()?;
        let missing: Vec<NodeId> = target.iter().copied().filter(|node| !chain.contains(node)).collect();
        if missing != self.plan.building {
            return self.may_build(active, &missing, budget).then_some(VbStep::Build(missing));
        }
        if target == chain {
            return None;
        }
        let leads = self.copy(active).is_some_and(|copy| copy.role == VbRole::Active);
        // Nothing is said of plans that are quiet: that they are is what was said last.
        if !(leads || self.plan.building.is_empty())
            || !missing.iter().all(|&node| self.is_close(active, node))
        {
            return None;
        }
        if leader == active {
            return budget.admit_change(active).then(|| VbStep::SetChain(target.to_vec()));
        }
        let heard = |node| self.heard.is_heard(node, self.now_ms);
        let can = !self.is_cooling && heard(active) && heard(leader) && self.unwell().is_none();
        let can = can && !self.awaits_index(leader);
        let limit = self.handover_limit(active, leader).filter(|_| can)?.min(self.pace()?);
        budget.admit_handover(active, leader, limit).then(|| VbStep::StartHandover(target.to_vec()))
    }

    /// How active roles may go from one node to another. They go freely to where writers fare no worse, so leaving a node that
    /// is overloaded waits for nothing. A node that is pressed harder, perhaps by the copies that it is getting, is waited for,
    /// but not for ever. It may not get any better before they are there.
    fn handover_limit(&self, from: NodeId, to: NodeId) -> Option<HandoverLimit> {
        let pressure = |node| self.heard.pressure(node, &self.bucket.uuid, self.now_ms);
        let ((there, pressed_ms), (here, _)) = (pressure(to), pressure(from));
        if there <= here {
            return Some(HandoverLimit::Freely);
        }
        (pressed_ms >= PRESSED_PATIENCE_MS).then_some(HandoverLimit::OneByOne)
    }

    /// Whether queries would wait for indexes of the copy if it took over now, and these are worth waiting for.
    fn awaits_index(&self, leader: NodeId) -> bool {
        let patience_ms = INDEX_PATIENCE_MS.max(self.moving_ms / INDEX_PATIENCE_PART);
        let is_patient = self.behind.is_some_and(|behind| behind.watched_ms < patience_ms);
        is_patient && self.copy(leader).is_some_and(|copy| copy.indexing)
    }

    /// How the role may go by how far the copies are behind.
    fn pace(&self) -> Option<HandoverLimit> {
        let behind = self.behind?;
        if is_prompt(behind) {
            return Some(HandoverLimit::Freely);
        }
        (behind.watched_ms >= PROMPT_PATIENCE_MS).then_some(HandoverLimit::OneByOne)
    }

    /// Whether copies may begin to travel: to nodes that are there to take them, as far as there is room for more.
    fn may_build(&self, active: NodeId, missing: &[NodeId], budget: &mut Budget) -> bool {
        let building = &self.plan.building;
        let new: Vec<NodeId> = missing.iter().copied().filter(|node| !building.contains(node)).collect();
        let heard = |&node: &NodeId| self.heard.is_heard(node, self.now_ms);
        let bytes = budget::weight(self.heard, active, &self.bucket.uuid, self.vb);
        new.is_empty() || (heard(&active) && new.iter().all(heard) && budget.admit_build(active, &new, bytes))
    }

    /// Whether a copy is complete and follows the active one closely.
    fn is_close(&self, active: NodeId, node: NodeId) -> bool {
        let Some(leading) = self.copy(active) else { return false };
        self.has(node, Seqno(leading.high_seqno.get().saturating_sub(CLOSE_BEHIND)))
    }

    /// Where nodes of the chain are being failed over gracefully: one of the remaining nodes whose copy is not well.
    /// Before all of their copies are well, the active role goes to none of them, and the leaving nodes are not failed
    /// over. Durable writes have a majority with the leaving nodes now; with a copy that is away or far behind instead
    /// they would time out. An active copy that is away could not be failed over any more, if no other copy were sure
    /// to have what it had.
    ///
    /// That is no wait for ever: a node that is away comes back, or is failed over, and is in no chain then. Where nobody is left there is
    /// nobody to wait for.
    pub(super) fn unwell(&self) -> Option<NodeId> {
        let leaving = self.meta.leaving_gracefully();
        let active = self.plan.active()?;
        let (gone, left): (Vec<NodeId>, Vec<NodeId>) =
            self.plan.chain.iter().partition(|node| leaving.contains(node));
        let goes_by_disks = !self.meta.synced_beside(self.bucket.kind).is_empty();
        // A disk that takes nothing would hold up durable writes for ever, once the role is there.
        let is_ready = |node| self.is_well(active, node) && (!goes_by_disks || self.is_synced(node));
        left.into_iter().find(|&node| !gone.is_empty() && !is_ready(node))
    }

    /// Where nodes of the chain are `leaving`: one of the others which may lack something on disk. What counts is what was there when
    /// durable writes began to go to disks.
    pub(super) fn unsynced(&self, leaving: &[NodeId]) -> Option<NodeId> {
        let (gone, left): (Vec<NodeId>, Vec<NodeId>) =
            self.plan.chain.iter().partition(|node| leaving.contains(node));
        left.into_iter().find(|&node| !gone.is_empty() && !self.is_synced(node))
    }

    fn is_synced(&self, node: NodeId) -> bool {
        self.floor.is_some_and(|floor| self.has_on_disk(node, floor))
    }

    /// Whether a copy holds everything of the active one's history up to `seqno` on disk.
    fn has_on_disk(&self, node: NodeId, seqno: Seqno) -> bool {
        self.has(node, seqno) && self.copy(node).is_some_and(|copy| copy.persisted >= seqno)
    }

    /// Whether a copy is what it shall be: the active one serves, and the others follow it closely.
    fn is_well(&self, active: NodeId, node: NodeId) -> bool {
        let does_its_part = || match node == active {
            true => self.copy(node).is_some_and(|copy| leads(copy, self.plan)),
            false => self.is_close(active, node),
        };
        self.heard.is_current(node, self.now_ms) && does_its_part()
    }

    /// Somebody serves a vBucket that nobody has: one of the target, if somebody wants it served at all. It is one that held the vBucket
    /// when it was failed over, if there is any. Of these it is the one that has the most, as in an election. So such a node is waited
    /// for: it comes back, or is failed over again.
    fn revive(&self) -> Option<VbStep> {
        let target = self.target?;
        let held = |node: NodeId| self.held_before(node);
        // Nodes of earlier versions say nothing of copies that are in no chain.
        let tells = |node| self.heard.report(node).is_none_or(|said| said.level >= GIVEN_UP_RECOVERED);
        let is_there = |node| {
            self.heard.is_heard(node, self.now_ms)
                && !self.heard.is_unopened(node, &self.bucket.uuid, self.now_ms)
        };
        let is_open =
            |&node: &NodeId| self.any_copy(node).is_none() && tells(node) && (held(node) || is_there(node));
        if target.iter().any(is_open) {
            return None;
        }
        let place = |node: NodeId| target.iter().position(|&other| other == node);
        let best = target.iter().copied().max_by_key(|&node| {
            let copy = self.any_copy(node).filter(|copy| copy.complete);
            let has = copy.map(|copy| (copy.vb_uuid.generation(), copy.held, copy.high_seqno));
            (held(node), has, Reverse(place(node)))
        });
        best.map(VbStep::Revive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handover_is_given_little_time_unless_it_cannot_do_with_that() {
        let behind = |millis| Some(Behind { millis, watched_ms: PROMPT_PATIENCE_MS });
        let prompt = behind(Some(PROMPT_MS));
        assert_eq!(patience_ms(prompt, 0), HANDOVER_PATIENCE_MS);
        assert_eq!(patience_ms(None, 0), HANDOVER_PATIENCE_MS, "a new leader");
        for slow in [behind(Some(PROMPT_MS + 1)), behind(None)] {
            assert_eq!(patience_ms(slow, 0), SLOW_HANDOVER_PATIENCE_MS);
        }
        let tries = [1, 2, 3, 64].map(|times| patience_ms(prompt, times));
        assert_eq!(tries, [2_000, 4_000, SLOW_HANDOVER_PATIENCE_MS, SLOW_HANDOVER_PATIENCE_MS]);
    }
}
