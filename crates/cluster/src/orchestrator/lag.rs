//! How far copies are behind an active one, in time: how long they take to get what it had.
//!
//! How many mutations that is says nothing of it. What a link is given waits behind everything that it was given before, also
//! behind copies that are being made. A vBucket that is sealed is served by nobody until its successor has the last of
//! it. Time is measured by reports, which come late as well: what comes out is what a handover would have to wait for.

use std::{cmp::Reverse, collections::BTreeMap};

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole};

use super::{heard::Heard, vb::leads};
use crate::{
    metadata::{BucketInfo, Metadata, topology::VbPlan},
    orchestrator::report::VbReport,
};

/// A measurement is good for so long.
const GOOD_MS: u64 = 1_000;
/// Waiting for so long tells something, though it is not over.
const LONG_MS: u64 = 150;

/// How far copies lag, of every vBucket whose active role is to go to another node, once the copies that it waits for are
/// whole. Also the links that their last mutations take.
#[derive(Debug, Default)]
pub(super) struct Lags {
    vbs: BTreeMap<BucketUuid, BTreeMap<VbId, OfTerm>>,
    links: BTreeMap<(NodeId, NodeId), Link>,
    looked_ms: u64,
}

/// Streams belong to a term, and begin anew with the next.
#[derive(Debug)]
struct OfTerm {
    term: u64,
    lag: Lag,
    link: (NodeId, NodeId),
    /// Whether the copies are known to be whole that are waited for. They were once, and nobody has said otherwise since. Reports
    /// of nodes that are overloaded come late, and those are the ones that are not waited for for ever.
    is_known: bool,
}

/// From an active copy's node to the one that shall be: how far each vBucket is behind that tells something, in order. One to
/// which nothing is written tells nothing, and its next mutation waits as long as those of the others.
#[derive(Debug, Default)]
struct Link(Vec<u64>);

/// What a handover would wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// Milliseconds, as far as they are known.
    pub(super) millis: Option<u64>,
    /// For how long it has been looked at.
    pub(super) watched_ms: u64,
}

impl Lags {
    /// Takes note of what has been heard.
    pub(super) fn look(&mut self, meta: &Metadata, heard: &Heard, now_ms: u64) {
        let mut before = std::mem::take(self).vbs;
        self.looked_ms = now_ms;
        for bucket in meta.buckets.values() {
            let Some(targets) = &bucket.target else { continue };
            let mut known = before.remove(&bucket.uuid).unwrap_or_default();
            let mut looked = BTreeMap::new();
            for (at, (plan, target)) in bucket.vbs.iter().zip(targets.iter()).enumerate() {
                let (Some(active), Some(&next)) = (plan.active(), target.first()) else { continue };
                let vb = VbId(at as u16);
                let copies = Copies { heard, bucket, vb, plan, now_ms };
                if !plan.awaits_handover(target) || plan.building.iter().any(|&node| copies.is_partial(node))
                {
                    continue;
                }
                let is_known = plan.building.iter().all(|&node| copies.is_whole(node));
                let (term, link) = (plan.term, (active, next));
                let same = known.remove(&vb).filter(|of| of.term == term && of.link == link);
                let new = || is_known.then(|| OfTerm { term, lag: Lag::unknown(now_ms), link, is_known });
                let Some(mut of) = same.or_else(new) else { continue };
                of.is_known = is_known;
                of.lag.look(copies.held(target).filter(|_| is_known), now_ms);
                self.links.entry(link).or_default().0.extend(of.lag.telling(now_ms));
                looked.insert(vb, of);
            }
            self.vbs.insert(bucket.uuid.clone(), looked);
        }
        self.links.values_mut().for_each(|link| link.0.sort_unstable());
    }

    /// When it was looked last.
    pub(super) fn looked_ms(&self) -> u64 {
        self.looked_ms
    }

    pub(super) fn of(&self, bucket: &BucketUuid, vb: VbId, now_ms: u64) -> Option<Behind> {
        let of = self.vbs.get(bucket)?.get(&vb).filter(|of| of.is_known)?;
        let link = self.links.get(&of.link)?;
        let millis = of.lag.millis(now_ms).map(|own| own.max(link.millis()));
        Some(Behind { millis, watched_ms: of.lag.watched_ms(now_ms) })
    }
}

impl Link {
    /// How long a mutation takes: the median of what is known. So a mutation that is read from disk, or a report that is late, does
    /// not speak for all.
    fn millis(&self) -> u64 {
        self.0.get(self.0.len().saturating_sub(1) / 2).copied().unwrap_or(0)
    }
}

/// What has been said of one vBucket's copies.
struct Copies<'a> {
    heard: &'a Heard,
    bucket: &'a BucketInfo,
    vb: VbId,
    plan: &'a VbPlan,
    now_ms: u64,
}

impl Copies<'_> {
    fn of(&self, node: NodeId) -> Option<&VbReport> {
        let copy = self.heard.copy(node, &self.bucket.uuid, self.vb);
        copy.filter(|copy| self.heard.is_current(node, self.now_ms) && copy.term == self.plan.term)
    }

    fn is_whole(&self, node: NodeId) -> bool {
        self.of(node).is_some_and(|copy| copy.complete)
    }

    fn is_partial(&self, node: NodeId) -> bool {
        self.of(node).is_some_and(|copy| !copy.complete)
    }

    /// What the active copy has, and what of it the copies have that a handover waits for. Those are the next active copy,
    /// and as many others as make a majority.
    fn held(&self, target: &[NodeId]) -> Option<(Seqno, Seqno)> {
        let active = self.plan.active()?;
        let leading = self.of(active).filter(|copy| leads(copy, self.plan))?.high_seqno;
        let follows = |copy: &&VbReport| copy.role == VbRole::Replica && copy.following && copy.complete;
        let of = |node: NodeId| match node == active {
            true => Some(leading),
            false => self.of(node).filter(follows).map(|copy| copy.high_seqno),
        };
        let next = of(*target.first()?)?;
        let mut all: Vec<Seqno> = target.iter().filter_map(|&node| of(node)).collect();
        all.sort_unstable_by_key(|&seqno| Reverse(seqno));
        let majority = *all.get(target.len() / 2)?;
        Some((leading, next.min(majority)))
    }
}

/// Of the copies of one vBucket, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lag {
    /// When it was first looked at.
    since_ms: u64,
    /// What the active one had then that not all others have yet.
    awaited: Option<(Seqno, u64)>,
    /// How long the others took the last time, and when that was.
    took: Option<(u64, u64)>,
}

impl Lag {
    /// Nothing is known yet.
    const fn unknown(now_ms: u64) -> Self {
        Self { since_ms: now_ms, awaited: None, took: None }
    }

    /// Takes note of what the active one has by now, and of what all others have; nothing is known while somebody is missing.
    fn look(&mut self, held: Option<(Seqno, Seqno)>, now_ms: u64) {
        let Some((active, others)) = held else {
            (self.awaited, self.took) = (None, None);
            return;
        };
        if let Some((seqno, at_ms)) = self.awaited
            && others >= seqno
        {
            (self.awaited, self.took) = (None, Some((now_ms.saturating_sub(at_ms), now_ms)));
        }
        if self.awaited.is_none() && others < active {
            self.awaited = Some((active, now_ms));
        }
        let is_old = self.took.is_none_or(|(_, at_ms)| now_ms.saturating_sub(at_ms) >= GOOD_MS);
        if self.awaited.is_none() && is_old {
            // Nothing is written to it, or hardly anything.
            self.took = Some((0, now_ms));
        }
    }

    /// How far the others are behind, in milliseconds; `None` before that has been measured.
    fn millis(&self, now_ms: u64) -> Option<u64> {
        let (took, _) = self.took?;
        Some(took.max(self.awaited_ms(now_ms)))
    }

    fn awaited_ms(&self, now_ms: u64) -> u64 {
        self.awaited.map_or(0, |(_, at_ms)| now_ms.saturating_sub(at_ms))
    }

    /// The same, where there is something that tells: a measurement of late that was one, or a long wait.
    fn telling(&self, now_ms: u64) -> Option<u64> {
        let was_measured =
            self.took.is_some_and(|(took, at_ms)| took > 0 && now_ms.saturating_sub(at_ms) < GOOD_MS);
        let awaited_ms = self.awaited_ms(now_ms);
        let millis = self.took.filter(|_| was_measured).map_or(0, |(took, _)| took).max(awaited_ms);
        (was_measured || awaited_ms >= LONG_MS).then_some(millis)
    }

    /// For how long it has been looked at.
    fn watched_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orchestrator::fixture::{BUCKET, NEW, OLD, Said, VB, one_moves, say};

    #[test]
    fn patience_does_not_begin_anew_because_a_report_is_late() {
        let (meta, mut heard, mut lags) = (one_moves(), Heard::default(), Lags::default());
        let mut look = |new: Option<(u64, bool)>, now_ms| {
            let said = |(seqno, complete)| Said { seqno, complete, ..Said::default() };
            say(&mut heard, OLD, said((1_000 + now_ms, true)), now_ms);
            new.into_iter().for_each(|new| say(&mut heard, NEW, said(new), now_ms));
            lags.look(&meta, &heard, now_ms);
            lags.of(&BucketUuid(BUCKET.into()), VB, now_ms)
        };
        let watched = |behind: Option<Behind>| behind.map(|behind| behind.watched_ms);
        assert_eq!(look(Some((10, false)), 0), None, "it is not whole yet");
        assert_eq!(watched(look(Some((500, true)), 1_000)), Some(0));
        assert_eq!(watched(look(None, 1_300)), Some(300));
        assert_eq!(look(None, 5_000), None, "nothing is known");
        let back = look(Some((600, true)), 6_000);
        assert_eq!(back, Some(Behind { millis: None, watched_ms: 5_000 }), "what was measured is not");
        // One that has to be made again is given its time again.
        assert_eq!(look(Some((1, false)), 7_000), None);
        assert_eq!(watched(look(Some((700, true)), 8_000)), Some(0));
    }

    #[test]
    fn what_counts_is_how_long_it_took_to_get_what_was_there() {
        let mut lag = Lag::unknown(1_000);
        lag.look(Some((Seqno(500), Seqno(100))), 1_000);
        assert_eq!(lag.millis(1_050), None, "it has yet to be seen");
        lag.look(Some((Seqno(900), Seqno(499))), 1_200);
        assert_eq!(lag.millis(1_200), None);
        lag.look(Some((Seqno(1_000), Seqno(500))), 1_300);
        assert_eq!((lag.millis(1_300), lag.watched_ms(1_300)), (Some(300), 300));
        // It catches up: what it is behind now it was given a moment ago.
        lag.look(Some((Seqno(1_100), Seqno(1_000))), 1_320);
        assert_eq!(lag.millis(1_320), Some(20));
        // And falls behind again, which is seen before it is over.
        lag.look(Some((Seqno(1_200), Seqno(1_050))), 1_400);
        assert_eq!(lag.millis(1_400), Some(80));
        assert_eq!(lag.millis(2_000), Some(680));
        // Somebody is gone: whatever was measured of it is of no use.
        lag.look(None, 2_010);
        assert_eq!((lag.millis(2_010), lag.watched_ms(2_010)), (None, 1_010));
    }

    #[test]
    fn where_nothing_is_written_nothing_is_behind() {
        let mut lag = Lag::unknown(0);
        lag.look(Some((Seqno(7), Seqno(7))), 0);
        assert_eq!(lag.millis(250), Some(0));
        lag.look(Some((Seqno(8), Seqno(7))), 250);
        lag.look(Some((Seqno(8), Seqno(8))), 650);
        // The link was slow a moment ago, though there is nothing on it now.
        lag.look(Some((Seqno(8), Seqno(8))), 700);
        assert_eq!(lag.millis(700), Some(400));
        lag.look(Some((Seqno(8), Seqno(8))), 650 + GOOD_MS);
        assert_eq!(lag.millis(2_000), Some(0));
    }

    #[test]
    fn a_copy_that_waits_or_has_waited_tells_of_the_link() {
        let mut idle = Lag::unknown(0);
        idle.look(Some((Seqno(7), Seqno(7))), 0);
        assert_eq!((idle.millis(10), idle.telling(10)), (Some(0), None));
        let mut busy = Lag::unknown(0);
        busy.look(Some((Seqno(7), Seqno(5))), 0);
        assert_eq!((busy.telling(10), busy.telling(LONG_MS)), (None, Some(LONG_MS)));
        busy.look(Some((Seqno(9), Seqno(8))), 40);
        assert_eq!((busy.telling(41), busy.telling(600)), (Some(40), Some(560)));
    }

    #[test]
    fn one_that_is_far_behind_for_reasons_of_its_own_does_not_speak_for_a_link() {
        assert_eq!(Link::default().millis(), 0, "nothing is written to anybody");
        assert_eq!(Link(vec![9_000]).millis(), 9_000, "nobody knows better");
        assert_eq!(Link(vec![30, 9_000]).millis(), 30);
        assert_eq!(Link(vec![30, 40, 9_000]).millis(), 40);
    }
}
