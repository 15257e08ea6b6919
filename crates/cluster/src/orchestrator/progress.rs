//! How far a rebalance has come, and when it will be done.
//!
//! What is left is counted in bytes per node that sends or takes them; how fast it goes is measured. A copy is there when it counts, and
//! before that it has to be on disk. What has been sent only waits in a queue, however fast it came, and is nearly all to be done still.
//! The node that has the most left to take, or to send, is the one that others wait for in the end. Where its pace is slower than that of
//! all, the truth lies between both. What the first seconds bring is no pace: queues and caches are empty then. How much there was in all
//! follows from the number of copies that were to move when it started.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId, bucket::BucketKind};

use super::heard::Heard;
use crate::{
    metadata::{BucketInfo, Metadata, NodeInfo, topology::VbPlan},
    orchestrator::report::Weight,
};

/// What a copy costs beside its bytes: the steps it takes, in bytes that could have been sent meanwhile.
const MOVE_COST: f64 = 256.0 * 1024.0;
/// The same of a handover of the active role: it waits for a seal, a sync and a report, whatever the bytes.
const HANDOVER_COST: f64 = MOVE_COST;
/// Shares of a copy's cost that are done once it has been sent and once it is on disk, where there is one. The rest is done when it counts
/// and nothing else has to any more.
const SENT_SHARE: f64 = 0.1;
const KEPT_SHARE: f64 = 0.85;
/// Pace is counted once so much of it has been done, and so long after it was first seen. Before that no copy has
/// arrived, and figures are still getting better known. Until queues and caches are full it also goes faster than it
/// will later.
const UNDER_WAY_SHARE: f64 = 0.005;
const UNDER_WAY_AFTER_MS: u64 = 4_000;
/// What pace is told from at least: copies come in bursts.
const WATCHED_MS: u64 = 2_000;
/// Without any progress for so long there is no honest guess.
const STALLED_AFTER_MS: u64 = 10_000;

/// How far a rebalance has come.
#[derive(Clone, Debug, PartialEq)]
pub struct RebalanceProgress {
    /// From 0 to 1.
    pub total: f64,
    /// By node that sends or takes something.
    pub nodes: BTreeMap<NodeId, NodeProgress>,
    /// Copies that count already, of those that were to move.
    pub moves_done: u64,
    /// Copies that were to move.
    pub moves_total: u64,
    /// Bytes that are still to be sent.
    pub bytes_left: u64,
    /// Seconds until it is done; `None` while nobody can know.
    pub eta_secs: Option<u64>,
    /// What it waits for, in words.
    pub waits_for: Option<String>,
}

/// How far one node has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeProgress {
    /// From 0 to 1.
    pub done: f64,
    /// Documents that it sends.
    pub outgoing: Documents,
    /// Documents that it takes.
    pub incoming: Documents,
}

/// Documents that travel, as far as nodes have said how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    /// In all.
    pub total: u64,
    /// Those that have arrived.
    pub done: u64,
}

impl Documents {
    fn of(all: f64, left: f64) -> Self {
        let total = all.max(left);
        Self { total: total.round() as u64, done: (total - left).round() as u64 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Tracker {
    tracked: Option<Tracked>,
    /// What each vBucket was last said to be: a copy that has just become active has not said so yet.
    weights: Weights,
}

type Weights = BTreeMap<BucketUuid, BTreeMap<VbId, Weight>>;

#[derive(Debug)]
struct Tracked {
    id: String,
    began_ms: u64,
    /// The most that there was.
    first: Left,
    /// What pace is counted from, and since when.
    under_way: Option<(Left, u64)>,
    now: Left,
    /// When something last got less.
    moved_ms: u64,
}

/// What is left to do.
#[derive(Clone, Debug, Default)]
struct Left {
    cost: f64,
    bytes: f64,
    /// That do not count yet.
    copies: u64,
    /// The same, and those that count beside what counted before.
    unfinished: u64,
    nodes: BTreeMap<NodeId, NodeLeft>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NodeLeft {
    cost: f64,
    /// Of it, copies that it takes.
    taking: f64,
    /// Of it, copies that it sends.
    sending: f64,
    /// Documents.
    outgoing: f64,
    /// Documents.
    incoming: f64,
}

impl Tracker {
    pub(super) fn observe(&mut self, meta: &Metadata, heard: &Heard, now_ms: u64) {
        let Some(rebalance) = &meta.rebalance else {
            *self = Self::default();
            return;
        };
        self.weigh(meta, heard);
        let now = self.left(meta, heard);
        match self.tracked.as_mut().filter(|tracked| tracked.id == rebalance.id) {
            Some(tracked) => tracked.take(now, now_ms),
            None => {
                let (id, first) = (rebalance.id.clone(), now.clone());
                let (began_ms, moved_ms) = (now_ms, now_ms);
                self.tracked = Some(Tracked { id, began_ms, first, under_way: None, now, moved_ms });
            }
        }
    }

    /// For how long this leader has seen the rebalance go on that does.
    pub(super) fn moving_ms(&self, now_ms: u64) -> u64 {
        self.tracked.as_ref().map_or(0, |tracked| now_ms.saturating_sub(tracked.began_ms))
    }

    /// `unwell`: whose copy of which bucket a graceful failover waits for. `pauses`: what it waits for whatever its pace.
    pub(super) fn progress(
        &self,
        meta: &Metadata,
        heard: &Heard,
        unwell: Option<&(NodeId, BucketUuid)>,
        pauses: Pauses,
        now_ms: u64,
    ) -> Option<RebalanceProgress> {
        let rebalance = meta.rebalance.as_ref()?;
        let tracked = self.tracked.as_ref().filter(|tracked| tracked.id == rebalance.id)?;
        let moves_total = rebalance.copies.max(tracked.now.copies);
        // What there was before this leader came is taken to have been like what it found.
        let scale = match tracked.first.unfinished {
            0 => 1.0,
            unfinished => moves_total.max(unfinished) as f64 / unfinished as f64,
        };
        let of = |left: &Left, node| left.nodes.get(node).copied().unwrap_or_default();
        let part = tracked.first.nodes.keys().chain(tracked.now.nodes.keys());
        let nodes = part.map(|node| {
            let (first, left) = (of(&tracked.first, node), of(&tracked.now, node));
            let progress = NodeProgress {
                done: share_done(left.cost, first.cost * scale),
                outgoing: Documents::of(first.outgoing * scale, left.outgoing),
                incoming: Documents::of(first.incoming * scale, left.incoming),
            };
            (*node, progress)
        });
        let moved = share_done(tracked.now.cost, tracked.first.cost * scale);
        Some(RebalanceProgress {
            total: moved * (1.0 - tracked.share_of_farewell(pauses)),
            nodes: nodes.collect(),
            moves_done: moves_total - tracked.now.copies,
            moves_total,
            bytes_left: tracked.now.bytes as u64,
            eta_secs: tracked.eta_ms(pauses, now_ms).map(|ms| (ms / 1000.0).round() as u64),
            waits_for: waits_for(meta, heard, unwell, now_ms)
                .or_else(|| tracked.waits_to_retry(pauses, now_ms)),
        })
    }

    fn weigh(&mut self, meta: &Metadata, heard: &Heard) {
        for (bucket, vb, plan, _) in unfinished(meta) {
            let told = plan.chain.first().and_then(|&active| heard.weight(active, &bucket.uuid, vb));
            if let Some(weight) = told {
                self.weights.entry(bucket.uuid.clone()).or_default().insert(vb, weight);
            }
        }
    }

    fn left(&self, meta: &Metadata, heard: &Heard) -> Left {
        let mut all = Left::default();
        for (bucket, vb, plan, target) in unfinished(meta) {
            let known = self.weights.get(&bucket.uuid).and_then(|weights| weights.get(&vb));
            all.add(bucket, vb, plan, target, known.copied().unwrap_or_default(), heard);
        }
        all
    }
}

/// Every vBucket that is not where a rebalance wants it.
fn unfinished(meta: &Metadata) -> impl Iterator<Item = (&BucketInfo, VbId, &VbPlan, &[NodeId])> {
    let aimed = meta.buckets.values().filter_map(|bucket| Some((bucket, bucket.target.as_deref()?)));
    aimed.flat_map(|(bucket, targets)| {
        let plans = bucket.vbs.iter().zip(targets).enumerate();
        let unfinished = plans.filter(|(_, (plan, target))| plan.chain != **target || !plan.is_quiet());
        unfinished.map(move |(at, (plan, target))| (bucket, VbId(at as u16), plan, target.as_slice()))
    })
}

/// Milliseconds that a rebalance takes whatever its pace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    /// Until what was given up is tried again.
    pub(super) retry_ms: u64,
    /// From when all is done until it is over.
    pub(super) farewell_ms: u64,
}

fn share_done(left: f64, all: f64) -> f64 {
    if all <= 0.0 { 1.0 } else { (1.0 - left / all).clamp(0.0, 1.0) }
}

impl Tracked {
    fn take(&mut self, now: Left, now_ms: u64) {
        if now.cost < self.now.cost {
            self.moved_ms = now_ms;
        }
        if now.cost > self.first.cost {
            // More has become known, or more has to be done: what was measured says nothing about it.
            (self.first, self.under_way) = (now.clone(), None);
        }
        let is_under_way = now.cost < self.first.cost * (1.0 - UNDER_WAY_SHARE)
            && now_ms.saturating_sub(self.began_ms) >= UNDER_WAY_AFTER_MS;
        if self.under_way.is_none() && is_under_way {
            self.under_way = Some((now.clone(), now_ms));
        }
        self.now = now;
    }

    fn eta_ms(&self, pauses: Pauses, now_ms: u64) -> Option<f64> {
        if now_ms.saturating_sub(self.moved_ms) >= STALLED_AFTER_MS {
            return None;
        }
        let need_ms = match self.now.cost > 0.0 {
            true => self.need_ms(self.watched(now_ms)?, now_ms)?,
            false => 0.0,
        };
        Some(need_ms.max(pauses.retry_ms as f64) + pauses.farewell_ms as f64)
    }

    /// Where nothing else goes on: what was given up, and is left alone for a while.
    fn waits_to_retry(&self, pauses: Pauses, now_ms: u64) -> Option<String> {
        let stands_still = now_ms.saturating_sub(self.moved_ms) >= WATCHED_MS;
        let secs = pauses.retry_ms.div_ceil(1_000);
        (stands_still && secs > 0).then(|| {
            format!(
                "a vBucket whose active role could not be handed over in time: it is tried again in {secs} s"
            )
        })
    }

    /// What pace is counted from, once it can be told.
    fn watched(&self, until_ms: u64) -> Option<(&Left, u64)> {
        let (first, since_ms) = self.under_way.as_ref()?;
        (until_ms.saturating_sub(*since_ms) >= WATCHED_MS).then_some((first, *since_ms))
    }

    /// How long the rest takes at the pace between two times. It is half way between what all that is left takes and, where that is
    /// longer, what the busiest node takes. That node has the most left to take, or to send. The rest waits for that one in the end; but
    /// it goes faster where others are done before.
    fn need_ms(&self, (first, since_ms): (&Left, u64), until_ms: u64) -> Option<f64> {
        let elapsed_ms = until_ms.saturating_sub(since_ms) as f64;
        let need = |left: f64, first: f64| (first > left).then(|| left * elapsed_ms / (first - left));
        let last = |share: fn(&NodeLeft) -> f64| {
            let most =
                self.now.nodes.iter().max_by(|(_, one), (_, other)| share(one).total_cmp(&share(other)));
            most.and_then(|(node, left)| need(share(left), first.nodes.get(node).map_or(0.0, share)))
        };
        let all = need(self.now.cost, first.cost)?;
        let ends = [last(|left| left.taking), last(|left| left.sending)];
        Some((all + ends.into_iter().flatten().fold(all, f64::max)) / 2.0)
    }

    /// Of all the time that it takes, what is spent on waiting when everything has been moved. As of when something was last done:
    /// progress stands still while the rebalance does.
    fn share_of_farewell(&self, pauses: Pauses) -> f64 {
        let farewell_ms = pauses.farewell_ms as f64;
        let since = self.watched(self.moved_ms).unwrap_or((&self.first, self.began_ms));
        let need_ms = self.need_ms(since, self.moved_ms).unwrap_or(0.0);
        let moving_ms = (self.moved_ms - self.began_ms) as f64 + need_ms;
        if farewell_ms > 0.0 { farewell_ms / (moving_ms + farewell_ms) } else { 0.0 }
    }
}

impl Left {
    /// Adds what is left to do for one vBucket.
    fn add(
        &mut self,
        bucket: &BucketInfo,
        vb: VbId,
        plan: &VbPlan,
        target: &[NodeId],
        weight: Weight,
        heard: &Heard,
    ) {
        let Some(&active) = plan.chain.first() else { return };
        let source = *plan.counted().first().unwrap_or(&active);
        let cost = weight.bytes as f64 + MOVE_COST;
        let seqnos = |node: NodeId| {
            let copy = heard.copy(node, &bucket.uuid, vb);
            copy.map_or(Default::default(), |copy| (copy.high_seqno, copy.synced.unwrap_or(copy.persisted)))
        };
        let (all, _) = seqnos(active);
        let share = |seqno: Seqno| match all.get() {
            0 => 0.0,
            all => (seqno.get() as f64 / all as f64).min(1.0),
        };
        for &node in target.iter().filter(|node| !plan.counted().contains(node)) {
            let (high, persisted) = match plan.chain.contains(&node) || plan.building.contains(&node) {
                true => seqnos(node),
                // What it may have said is of an earlier copy.
                false => Default::default(),
            };
            let sent = share(high);
            let kept = if bucket.kind == BucketKind::Couchbase { share(persisted) } else { sent };
            let left = cost * (1.0 - SENT_SHARE * sent - KEPT_SHARE * kept);
            (self.cost, self.unfinished) = (self.cost + left, self.unfinished + 1);
            let from = self.node(source);
            (from.cost, from.sending) = (from.cost + left, from.sending + left);
            let to = self.node(node);
            (to.cost, to.taking) = (to.cost + left, to.taking + left);
            if !plan.chain.contains(&node) {
                self.copies += 1;
                self.bytes += weight.bytes as f64 * (1.0 - sent);
                let documents = weight.items as f64 * (1.0 - sent);
                self.node(source).outgoing += documents;
                self.node(node).incoming += documents;
            }
        }
        if target.first() != Some(&active) || !plan.phase.is_settled() {
            self.cost += HANDOVER_COST;
            for node in target.first().into_iter().chain([&active]) {
                self.node(*node).cost += HANDOVER_COST;
            }
        }
    }

    fn node(&mut self, node: NodeId) -> &mut NodeLeft {
        self.nodes.entry(node).or_default()
    }
}

fn waits_for(
    meta: &Metadata,
    heard: &Heard,
    unwell: Option<&(NodeId, BucketUuid)>,
    now_ms: u64,
) -> Option<String> {
    let named = |node: &NodeInfo| format!("node {}:{}", node.host, node.ports.mgmt);
    let silent = |node: &&NodeInfo| heard.is_silent(node.id, now_ms) && meta.holds_copies(node.id);
    if let Some(node) = meta.nodes.iter().find(silent) {
        return Some(format!("{} has not been heard of", named(node)));
    }
    let pressed =
        meta.buckets.iter().find_map(|(name, bucket)| Some((name, pressed(bucket, heard, now_ms)?)));
    if let Some((bucket, node)) = pressed {
        let node = meta.node_by_id(node)?;
        return Some(format!("{} slows down those who write to bucket \"{bucket}\"", named(node)));
    }
    if let Some((node, uuid)) = unwell {
        let (node, (bucket, _)) = (meta.node_by_id(*node)?, meta.bucket_by_uuid(uuid)?);
        return Some(format!("{} has to catch up with its copies of bucket \"{bucket}\"", named(node)));
    }
    meta.nodes.iter().find_map(|node| {
        let (uuid, latency) = heard.missed_objective(node.id)?;
        let (bucket, _) = meta.buckets.iter().find(|(_, bucket)| bucket.uuid == *uuid)?;
        Some(format!(
            "one copy at a time: on {} operations on bucket \"{bucket}\" take {} us (p99), its objective is {}",
            named(node),
            latency.p99_us,
            latency.objective_us
        ))
    })
}

/// A node that active roles have to go to, and where writers fare worse than where those are.
fn pressed(bucket: &BucketInfo, heard: &Heard, now_ms: u64) -> Option<NodeId> {
    let pressure = |node: NodeId| heard.pressure(node, &bucket.uuid, now_ms).0;
    let aims = bucket.vbs.iter().zip(bucket.target.iter().flat_map(|target| target.iter()));
    aims.filter_map(|(plan, target)| Some((plan.active()?, *target.first()?)))
        .find(|&(active, leader)| pressure(leader) > pressure(active))
        .map(|(_, leader)| leader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        metadata::topology::{Rebalance, RebalanceKind},
        orchestrator::fixture::{NEW, OLD, Said, one_moves, say},
    };

    /// So large that all else is next to nothing.
    const WEIGHT: Weight = Weight { bytes: 100_000_000_000, items: 1_000 };

    /// What a rebalance tells in the end. `said` is what was sent and what is on disk of a thousand mutations, two seconds after one
    /// another.
    fn progress_after(said: &[(u64, u64)], pauses: Pauses) -> RebalanceProgress {
        let (mut meta, mut heard, mut tracker) = (one_moves(), Heard::default(), Tracker::default());
        meta.rebalance = Some(Rebalance {
            id: "r".into(),
            kind: RebalanceKind::Rebalance,
            keep: vec![NEW],
            eject: vec![OLD],
            started_ms: 0,
            copies: 1,
        });
        let mut now_ms = 0;
        for &(seqno, persisted) in said {
            now_ms += 2_000;
            let active = Said { seqno: 1_000, persisted: 1_000, complete: true, weight: Some(WEIGHT) };
            say(&mut heard, OLD, active, now_ms);
            say(&mut heard, NEW, Said { seqno, persisted, ..Said::default() }, now_ms);
            tracker.observe(&meta, &heard, now_ms);
        }
        tracker.progress(&meta, &heard, None, pauses, now_ms).unwrap()
    }

    /// Share and seconds of that.
    fn told(said: &[(u64, u64)], pauses: Pauses) -> (f64, Option<u64>) {
        let progress = progress_after(said, pauses);
        ((progress.total * 1_000.0).round() / 1_000.0, progress.eta_secs)
    }

    #[test]
    fn what_was_sent_and_is_not_on_disk_is_nearly_all_to_be_done_still() {
        assert_eq!(told(&[(0, 0)], Pauses::default()), (0.0, None), "nobody knows how fast it will be");
        assert_eq!(told(&[(0, 0), (1_000, 0)], Pauses::default()).0, 0.1);
        assert_eq!(told(&[(0, 0), (1_000, 0), (1_000, 200)], Pauses::default()).0, 0.27);
        assert_eq!(told(&[(0, 0), (1_000, 1_000)], Pauses::default()).0, 0.95);
    }

    #[test]
    fn pace_counts_from_when_the_first_of_it_was_seen_to_be_done() {
        let late = [(0, 0), (0, 0), (0, 0), (0, 0), (100, 100), (200, 200)];
        assert_eq!(told(&late, Pauses::default()), (0.19, Some(17)), "at a tenth of a copy in two seconds");
    }

    #[test]
    fn what_the_first_seconds_bring_is_no_pace() {
        let early = [(0, 0), (500, 500), (600, 600)];
        assert_eq!(told(&early, Pauses::default()), (0.57, None));
        assert_eq!(told(&[&early[..], &[(700, 700)]].concat(), Pauses::default()), (0.665, Some(7)));
    }

    #[test]
    fn what_it_waits_for_whatever_its_pace_is_told_too() {
        let said = [(0, 0), (0, 0), (1_000, 0), (1_000, 200)];
        assert_eq!(told(&said, Pauses { retry_ms: 0, farewell_ms: 3_000 }).1, Some(12));
        assert_eq!(told(&said, Pauses { retry_ms: 30_000, farewell_ms: 3_000 }).1, Some(33));
    }

    #[test]
    fn a_handover_that_is_tried_again_later_is_named_once_nothing_else_goes_on() {
        let moving = [(0, 0), (0, 0), (1_000, 0), (1_000, 200)];
        let stuck = [&moving[..], &[(1_000, 200); 2]].concat();
        let pauses = Pauses { retry_ms: 26_100, farewell_ms: 0 };
        assert_eq!(progress_after(&moving, pauses).waits_for, None);
        let told = progress_after(&stuck, pauses).waits_for.unwrap();
        assert!(told.contains("handed over") && told.ends_with("tried again in 27 s"), "{told}");
        assert_eq!(progress_after(&stuck, Pauses::default()).waits_for, None);
    }

    #[test]
    fn what_is_spent_on_waiting_at_the_end_is_a_part_of_the_whole() {
        // Six seconds are over, and more than eleven to come, of which it waits for three.
        let said = [(0, 0), (0, 0), (1_000, 0), (1_000, 200)];
        let pauses = Pauses { retry_ms: 0, farewell_ms: 3_000 };
        assert_eq!(told(&said, pauses).0, 0.224);
        let stuck = [&said[..], &[(1_000, 200); 20]].concat();
        assert_eq!(told(&stuck, pauses).0, 0.224, "it stands still while the rebalance does");
    }

    #[test]
    fn nobody_knows_where_nothing_has_been_done_for_long() {
        let stuck: Vec<(u64, u64)> =
            [(0, 0), (0, 0), (400, 400), (500, 500)].into_iter().chain([(500, 500); 10]).collect();
        assert_eq!(told(&stuck, Pauses::default()), (0.475, None));
        assert_ne!(told(&stuck[..8], Pauses::default()).1, None, "nothing for eight seconds");
    }
}
