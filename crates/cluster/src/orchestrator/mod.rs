//! What the leader does: it compares what shall be (the metadata) with what is (the nodes' reports), and proposes the
//! next commands.
//!
//! Nothing that matters is kept here. The next leader begins with an empty orchestrator and goes on, because every
//! decision follows from metadata and reports alone. It remembers what measures time: silence, rates, what was tried
//! in vain a moment ago. Anything else that it remembers is asked again, as how far the active copy had got when a
//! chain changed. Proposals may be lost or made twice.
//!
//! `now_ms` is Unix milliseconds of a clock that does not jump.

mod auto;
mod budget;
pub mod divergence;
mod farewell;
#[cfg(test)]
mod fixture;
mod heard;
mod lag;
mod progress;
pub mod report;
mod vb;

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId};

pub use heard::Health;
pub use progress::{Documents, NodeProgress, RebalanceProgress};
pub use vb::DRAIN_PATIENCE_MS;

use self::{
    budget::Budget,
    farewell::Floors,
    heard::Heard,
    lag::Lags,
    progress::{Pauses, Tracker},
    vb::Scene,
};
use crate::{
    changes::{
        Command,
        moves::{VbChange, VbStep},
    },
    metadata::{
        BucketInfo, Metadata, NodeInfo,
        topology::{VbPhase, VbPlan},
    },
    orchestrator::{divergence::Divergence, report::NodeReport},
};

/// How long a vBucket is left alone after a handover of it was given up: each try costs its clients a pause. Where one of both ends
/// has been started anew since, that may well have been why, and the next try is a first one.
const COOLING_MS: u64 = 30_000;
/// How long nodes that leave stay after everything has left them: requests that were sent by the map before are still told
/// where to go.
const FAREWELL_MS: u64 = 3_000;

/// The leader's view of the cluster. One per leadership.
#[derive(Debug, Default)]
pub struct Orchestrator {
    heard: Heard,
    notes: Notes,
    lags: Lags,
    tracker: Tracker,
    divergence: Divergence,
    /// Handovers that were given up, as long as they are wanted still, or are not to be tried again yet.
    given_up: BTreeMap<(BucketUuid, VbId), GivenUp>,
    /// Since when everything is where the rebalance under way wants it.
    at_target_since_ms: Option<u64>,
    /// Whose copy of which bucket a graceful failover waits for, as of the last step.
    unwell: Option<(NodeId, BucketUuid)>,
    /// What has to be on disk before that ends.
    floors: Floors,
}

/// What is remembered of vBuckets that are on their way.
type Notes = BTreeMap<BucketUuid, BTreeMap<VbId, Note>>;

/// What is remembered of a vBucket for the time of one term, or of one handover in it.
#[derive(Clone, Copy, Debug)]
struct Note {
    term: u64,
    /// A handover begins in the term of what came before it.
    handover: Option<Ends>,
    /// When it was first seen like this.
    since_ms: u64,
    /// How long a handover may take.
    patience_ms: u64,
    /// What the active copy had when it was first heard of in this term, while two chains count.
    floor: Option<Seqno>,
}

/// Both ends of a handover, each with the life in which its node had the bucket open, as heard when the handover was first
/// seen. A leader that had just begun had heard nothing.
type Ends = [(NodeId, Option<u64>); 2];

/// Handovers of a vBucket that were given up.
#[derive(Debug)]
struct GivenUp {
    /// How many, one after the other.
    times: u32,
    /// The term that the last one was in; the next one is in a later one.
    term: u64,
    /// How long the vBucket is left alone.
    until_ms: u64,
    /// Of the last one.
    ends: Option<Ends>,
}

impl GivenUp {
    /// Whether it tells something of the next try still.
    fn counts(&self, meta: &Metadata, bucket: &BucketUuid, vb: VbId, heard: &Heard, now_ms: u64) -> bool {
        let is_new = |&(node, before): &(NodeId, Option<u64>)| {
            before.is_some() && heard.life(node, bucket).is_some_and(|life| Some(life) != before)
        };
        let is_wanted = || {
            let (_, bucket) = meta.bucket_by_uuid(bucket)?;
            let at = usize::from(vb.get());
            let target = bucket.target.as_ref()?.get(at)?;
            Some(bucket.vbs.get(at)?.active() != target.first().copied())
        };
        !self.ends.iter().flatten().any(is_new) && (now_ms < self.until_ms || is_wanted() == Some(true))
    }
}

impl Orchestrator {
    /// One that has heard of nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// This one after it was held up. It has to hear of everybody again, but not to try again what was given up a moment ago.
    #[must_use]
    pub fn begun_anew(self) -> Self {
        Self { given_up: self.given_up, divergence: self.divergence, ..Self::default() }
    }

    /// Takes note of what a node says about itself; returns whether it is one of the cluster's.
    pub fn report(&mut self, meta: &Metadata, report: NodeReport, now_ms: u64) -> bool {
        let is_ours = meta.reporter(&report).is_some();
        self.divergence.take(meta, &report);
        if is_ours {
            let has_diverged = self.divergence.fenced().contains_key(&report.node);
            let is_granted = !has_diverged && meta.lease_for(&report).is_some();
            // It cannot act by what is agreed on, as one whose disk stands still.
            let stands_still = report.stands_still || has_diverged;
            self.heard.take(NodeReport { stands_still, ..report }, is_granted, now_ms);
        }
        is_ours
    }

    /// What is known of nodes whose metadata differ.
    #[must_use]
    pub fn divergence(&self) -> &Divergence {
        &self.divergence
    }

    /// What to propose now. To be called whenever metadata have changed or reports have come, and now and then.
    pub fn step(&mut self, meta: &Metadata, now_ms: u64) -> Vec<Command> {
        self.heard.attend(meta, now_ms);
        self.take_notes(meta, now_ms);
        self.lags.look(meta, &self.heard, now_ms);
        self.tracker.observe(meta, &self.heard, now_ms);
        self.note_floors(meta);
        self.unwell = self.first_unwell(meta, now_ms).or_else(|| self.first_unsynced(meta, now_ms));
        let mut commands = Vec::new();
        self.given_up
            .retain(|(bucket, vb), given_up| given_up.counts(meta, bucket, *vb, &self.heard, now_ms));
        let changes = self.changes(meta, now_ms);
        for change in changes.iter().filter(|change| change.step == VbStep::CancelHandover) {
            self.give_up(change, now_ms);
        }
        if !changes.is_empty() {
            commands.push(Command::ChangeVbs(changes));
        }
        commands.extend(self.raise_level(meta, now_ms));
        commands.extend(self.retire_authority(meta, now_ms));
        commands.extend(self.automatic(meta, now_ms));
        commands.extend(self.finish(meta, now_ms));
        commands.extend(self.forget(meta, now_ms));
        commands
    }

    /// Takes note of a handover that is given up, once however often that has to be proposed.
    fn give_up(&mut self, change: &VbChange, now_ms: u64) {
        let ends = self.note(&change.bucket, change.vb).and_then(|note| note.handover);
        let key = (change.bucket.clone(), change.vb);
        let before = self.given_up.get(&key);
        let times = before.map_or(1, |before| before.times + u32::from(before.term != change.term));
        self.given_up.insert(key, GivenUp { times, term: change.term, until_ms: now_ms + COOLING_MS, ends });
    }

    /// The level that every node of the cluster understands, which is there and says so.
    fn raise_level(&self, meta: &Metadata, now_ms: u64) -> Option<Command> {
        let heard = |node| self.heard.report(node).filter(|_| self.heard.is_heard(node, now_ms));
        meta.next_level(|node| heard(node).map(|report| report.level))
    }

    /// Nobody needs an authority that knows every key, and every node does.
    fn retire_authority(&self, meta: &Metadata, now_ms: u64) -> Option<Command> {
        let is_told = |node: &NodeInfo| {
            let report = self.heard.report(node.id).filter(|_| self.heard.is_heard(node.id, now_ms));
            report.is_some_and(|report| report.applied >= meta.version)
        };
        let is_due = meta.authority.is_some() && meta.knows_nodes_by_keys() && meta.nodes.iter().all(is_told);
        is_due.then_some(Command::RetireAuthority)
    }

    /// Nodes that have left, and have nothing to do with anything any more.
    fn forget(&self, meta: &Metadata, now_ms: u64) -> Option<Command> {
        let yielded =
            meta.departed.iter().filter(|gone| self.heard.has_yielded(gone.node, gone.excluded, now_ms));
        let gone: Vec<NodeId> = yielded.map(|gone| gone.node).collect();
        (!gone.is_empty()).then_some(Command::ForgetDeparted(gone))
    }

    fn finish(&mut self, meta: &Metadata, now_ms: u64) -> Option<Command> {
        let Some(rebalance) = meta.rebalance.as_ref().filter(|_| meta.is_at_target()) else {
            self.at_target_since_ms = None;
            return None;
        };
        let since_ms = *self.at_target_since_ms.get_or_insert(now_ms);
        let farewell_ms = if rebalance.eject.is_empty() { 0 } else { FAREWELL_MS };
        let is_over = now_ms.saturating_sub(since_ms) >= farewell_ms && self.unwell.is_none();
        is_over.then(|| Command::FinishRebalance { id: rebalance.id.clone(), now_ms })
    }

    /// Nodes that elections wait for, because they may be the only ones that know what was acknowledged. By bucket and node,
    /// it is how many vBuckets nobody serves meanwhile.
    #[must_use]
    pub fn awaited(&self, meta: &Metadata, now_ms: u64) -> BTreeMap<(String, NodeId), u32> {
        let mut awaited = BTreeMap::new();
        for (name, bucket) in &meta.buckets {
            let plans = bucket.vbs.iter().enumerate();
            for (at, plan) in plans.filter(|(_, plan)| matches!(plan.phase, VbPhase::Electing { .. })) {
                let case = (bucket, VbId(at as u16), plan, None);
                for node in self.scene(meta, case, now_ms).missing_answers() {
                    // One that is there is about to answer.
                    if self.heard.is_silent(node, now_ms) {
                        *awaited.entry((name.clone(), node)).or_default() += 1;
                    }
                }
            }
        }
        awaited
    }

    /// Nodes that elections have waited for longer than leases take to run out: each was failed over, and may be serving yet. Such a node
    /// reports, and does not act by what was agreed on. By bucket and node, it is how many vBuckets nobody else serves meanwhile.
    #[must_use]
    pub fn unyielded(&self, meta: &Metadata, now_ms: u64) -> BTreeMap<(String, NodeId), u32> {
        let nodes: Vec<NodeId> = self.heard.unyielded(meta, now_ms).collect();
        let mut unyielded = BTreeMap::new();
        for (name, bucket) in meta.buckets.iter().filter(|_| !nodes.is_empty()) {
            let is_late = |(at, plan): &(usize, &VbPlan)| {
                self.scene(meta, (bucket, VbId(*at as u16), plan, None), now_ms).is_late()
            };
            let late = bucket.vbs.iter().enumerate().filter(is_late).count();
            if late > 0 {
                unyielded.extend(nodes.iter().map(|node| ((name.clone(), *node), late as u32)));
            }
        }
        unyielded
    }

    /// How a node is.
    #[must_use]
    pub fn health(&self, node: NodeId, now_ms: u64) -> Health {
        self.heard.health(node, now_ms)
    }

    /// The last report of a node.
    #[must_use]
    pub fn last_report(&self, node: NodeId) -> Option<&NodeReport> {
        self.heard.report(node)
    }

    /// How far the rebalance under way has come.
    #[must_use]
    pub fn progress(&self, meta: &Metadata, now_ms: u64) -> Option<RebalanceProgress> {
        self.tracker.progress(meta, &self.heard, self.unwell.as_ref(), self.pauses(meta, now_ms), now_ms)
    }

    /// What the rebalance under way waits for, whatever its pace.
    fn pauses(&self, meta: &Metadata, now_ms: u64) -> Pauses {
        let leaves = meta.rebalance.as_ref().is_some_and(|rebalance| !rebalance.eject.is_empty());
        let waited_ms = self.at_target_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        let retry_ms = self.given_up.values().map(|given_up| given_up.until_ms.saturating_sub(now_ms)).max();
        Pauses {
            retry_ms: retry_ms.unwrap_or(0),
            farewell_ms: if leaves { FAREWELL_MS.saturating_sub(waited_ms) } else { 0 },
        }
    }

    /// A node that is left of some chain by a graceful failover and whose copy is not well, with the bucket.
    fn first_unwell(&self, meta: &Metadata, now_ms: u64) -> Option<(NodeId, BucketUuid)> {
        if meta.leaving_gracefully().is_empty() {
            return None;
        }
        meta.buckets.values().find_map(|bucket| {
            let unwell = |(at, plan): (usize, &VbPlan)| {
                let case = (bucket, VbId(at as u16), plan, None);
                self.scene(meta, case, now_ms).unwell()
            };
            Some((bucket.vbs.iter().enumerate().find_map(unwell)?, bucket.uuid.clone()))
        })
    }

    /// Keeps notes of what is on its way, and of nothing else.
    fn take_notes(&mut self, meta: &Metadata, now_ms: u64) {
        let mut notes = Notes::new();
        for bucket in meta.buckets.values() {
            let before = self.notes.remove(&bucket.uuid).unwrap_or_default();
            let unconfirmed = self.heard.unconfirmed(&bucket.uuid);
            let mut taken = BTreeMap::new();
            for (at, plan) in bucket.vbs.iter().enumerate() {
                let vb = VbId(at as u16);
                if plan.is_quiet() && !plan.active().is_some_and(|node| unconfirmed.contains(&(node, vb))) {
                    continue;
                }
                let active = plan.active().and_then(|node| self.heard.copy(node, &bucket.uuid, vb));
                let end = |node| (node, self.heard.life(node, &bucket.uuid));
                let handover = match (plan.active(), &plan.phase) {
                    (Some(from), VbPhase::Handover { to, .. }) => Some([end(from), end(*to)]),
                    _ => None,
                };
                let term = plan.term;
                let tries = self.given_up(&bucket.uuid, vb).map_or(0, |given_up| given_up.times);
                // As it was when it was proposed, which was at the last look.
                let behind = self.lags.of(&bucket.uuid, vb, self.lags.looked_ms());
                let patience_ms = vb::patience_ms(behind, tries);
                let new = Note { term, handover, since_ms: now_ms, patience_ms, floor: None };
                let same = |note: &Note| note.term == term && note.handover.is_some() == handover.is_some();
                let mut note = before.get(&vb).copied().filter(same).unwrap_or(new);
                if plan.joint.is_none() {
                    note.floor = None;
                } else if note.floor.is_none() {
                    note.floor = active.filter(|copy| vb::leads(copy, plan)).map(|copy| copy.high_seqno);
                }
                taken.insert(vb, note);
            }
            notes.insert(bucket.uuid.clone(), taken);
        }
        self.notes = notes;
    }

    fn changes(&self, meta: &Metadata, now_ms: u64) -> Vec<VbChange> {
        let mut budget = Budget::new(meta, &self.heard, now_ms);
        let mut changes = Vec::new();
        for case in self.in_order(meta) {
            let (bucket, vb, plan, _) = case;
            if let Some(step) = self.scene(meta, case, now_ms).next_step(&mut budget) {
                changes.push(VbChange { bucket: bucket.uuid.clone(), vb, term: plan.term, step });
            }
        }
        changes
    }

    fn scene<'a>(&'a self, meta: &'a Metadata, case: Case<'a>, now_ms: u64) -> Scene<'a> {
        let (bucket, vb, plan, target) = case;
        let (note, behind) = (self.note(&bucket.uuid, vb), self.lags.of(&bucket.uuid, vb, now_ms));
        let is_cooling = self.given_up(&bucket.uuid, vb).is_some_and(|given_up| now_ms < given_up.until_ms);
        let heard = &self.heard;
        let moving_ms = self.tracker.moving_ms(now_ms);
        let floor = self.floors.of(&bucket.uuid, vb, plan);
        Scene { meta, heard, bucket, vb, plan, target, note, behind, floor, moving_ms, is_cooling, now_ms }
    }

    fn given_up(&self, bucket: &BucketUuid, vb: VbId) -> Option<&GivenUp> {
        // Hardly ever is there any.
        if self.given_up.is_empty() { None } else { self.given_up.get(&(bucket.clone(), vb)) }
    }

    fn note(&self, bucket: &BucketUuid, vb: VbId) -> Option<&Note> {
        self.notes.get(bucket)?.get(&vb)
    }

    /// Every vBucket for which something may have to be done. Those with the fewest copies come first. Of these, the order lets all
    /// nodes which send or take copies come to their end together. The rest of a rebalance would wait for one that is left over.
    fn in_order<'a>(&self, meta: &'a Metadata) -> Vec<Case<'a>> {
        let mut all = Vec::new();
        for bucket in meta.buckets.values() {
            for (at, plan) in bucket.vbs.iter().enumerate() {
                let vb = VbId(at as u16);
                let target = bucket.target.as_ref().and_then(|target| target.get(at)).map(Vec::as_slice);
                if !vb::is_there(plan, target) || self.note(&bucket.uuid, vb).is_some() {
                    all.push((bucket, vb, plan, target));
                }
            }
        }
        let turns = turns(&all);
        let mut all: Vec<_> = all.into_iter().zip(turns).collect();
        all.sort_by_key(|((_, vb, plan, _), turn)| (plan.chain.len(), *turn, *vb));
        all.into_iter().map(|(case, _)| case).collect()
    }
}

/// When it is each one's turn, in millionths: the place of its copies among all that a node has left to send, or to take. The latest of
/// these decides.
fn turns(cases: &[Case<'_>]) -> Vec<u64> {
    let mut left: BTreeMap<End, u64> = BTreeMap::new();
    let mut place = |end| {
        let before = left.entry(end).or_default();
        *before += 1;
        (end, *before - 1)
    };
    let places: Vec<Vec<(End, u64)>> =
        cases.iter().map(|case| ends(case).map(&mut place).collect()).collect();
    let share = |&(end, before): &(End, u64)| before * 1_000_000 / left.get(&end).map_or(1, |all| *all);
    places.iter().map(|places| places.iter().map(share).max().unwrap_or_default()).collect()
}

/// A node that a copy comes from, or goes to. A copy is counted apart where the active role moves as well, because that takes longer.
/// Were all of these the first, what is seen of the pace would say nothing about the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    From { node: NodeId, hands_over: bool },
    To { node: NodeId, hands_over: bool },
}

/// Of all copies of a vBucket that do not count yet.
fn ends<'a>(&(_, _, plan, target): &Case<'a>) -> impl Iterator<Item = End> + use<'a> {
    let active = plan.chain.first().copied();
    let hands_over = target.is_some_and(|target| target.first().copied() != active);
    let missing = target.into_iter().flatten().filter(|node| !plan.chain.contains(node));
    missing.flat_map(move |&node| {
        let from = active.map(|node| End::From { node, hands_over });
        from.into_iter().chain([End::To { node, hands_over }])
    })
}

/// A vBucket with its plan and what a rebalance wants of it.
type Case<'a> = (&'a BucketInfo, VbId, &'a VbPlan, Option<&'a [NodeId]>);

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: NodeId = NodeId(0);
    const ONE: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    /// The order of vBuckets that are all where one node is, and are to be where these say.
    fn order(targets: &[&[NodeId]]) -> Vec<u16> {
        let mut meta = fixture::one_moves();
        let bucket = meta.buckets.get_mut("b").unwrap();
        bucket.vbs = vec![VbPlan::settled(vec![FROM], 1); targets.len()].into();
        bucket.target = Some(targets.iter().map(|target| target.to_vec()).collect::<Vec<_>>().into());
        Orchestrator::new().in_order(&meta).iter().map(|case| case.1.get()).collect()
    }

    #[test]
    fn nobody_is_left_over_to_whom_fewer_copies_go() {
        assert_eq!(order(&[&[ONE], &[ONE], &[ONE], &[ONE], &[OTHER], &[OTHER]]), [0, 1, 2, 4, 3, 5]);
    }

    #[test]
    fn active_roles_do_not_all_move_first() {
        let [moves, stays] = [&[ONE, FROM][..], &[FROM, ONE]];
        assert_eq!(order(&[moves, moves, stays, stays, stays, stays]), [0, 2, 3, 1, 4, 5]);
    }
}
