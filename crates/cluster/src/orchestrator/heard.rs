//! When each node was heard, and what it said last.

use std::collections::{BTreeMap, BTreeSet};

use base::{BucketUuid, NodeId, VbId};

use crate::{
    metadata::{
        Metadata,
        topology::{Exclusion, UNLEASED_MS},
    },
    orchestrator::report::{LatencyReport, NodeReport, Pressure, VbReport, Weight},
};

/// A node that has not been heard of for so long is not counted on for anything new.
const SILENT_AFTER_MS: u64 = 3_000;
/// Of a node that has said nothing for so long nothing is known: they report far more often, whatever there is to say.
const UNHEARD_MS: u64 = 700;
/// How long an earlier leader may go on to hear nodes, and to let them serve, after a new one has begun. By then it
/// finds that it has no majority any more.
const TAKEOVER_MS: u64 = 1_500;

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It reports, and its buckets are open.
    Healthy,
    /// It reports, and opens buckets.
    Warmup,
    /// It has not reported of late.
    Unhealthy,
}

#[derive(Debug, Default)]
pub(super) struct Heard {
    voices: BTreeMap<NodeId, Voice>,
    /// When this leader began to listen.
    since_ms: Option<u64>,
    /// Since when this leader has seen each active node as one. A node that has just become active may not have reported yet.
    active_since_ms: BTreeMap<NodeId, u64>,
    /// The version of the metadata since which leases are granted as they are now, and from when on this leader has granted them so.
    settings: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Voice {
    /// When it was last heard, and well.
    at_ms: u64,
    /// When a report came last that may be of an earlier life, from a node that is well. Nothing that it says counts, but the node is there.
    another_life_ms: u64,
    /// When it was last granted a lease, or may have been.
    granted_ms: u64,
    report: NodeReport,
    copies: BTreeMap<BucketUuid, BTreeMap<VbId, VbReport>>,
    weights: BTreeMap<BucketUuid, BTreeMap<VbId, Weight>>,
    /// Buckets that press those who write to them: how much, and since when without a break.
    pressed: BTreeMap<BucketUuid, (Pressure, u64)>,
}

impl Voice {
    /// Whether a report is older than the last one. Clocks may be set back between two lives of a node. So the life that
    /// seems to be the earlier is taken for the later once nothing has been heard of the other for a while. What was sent
    /// before a restart is not under way for so long.
    fn is_later_than(&self, report: &NodeReport, now_ms: u64) -> bool {
        let last = &self.report;
        if (&report.uuid, report.boot) == (&last.uuid, last.boot) {
            return report.number < last.number;
        }
        report.uuid == last.uuid
            && report.started < last.started
            && now_ms.saturating_sub(self.at_ms) < SILENT_AFTER_MS
    }
}

impl Heard {
    /// Takes note of a report, unless a later one has come before it; `is_granted`: its sender is granted a lease, in any case.
    pub(super) fn take(&mut self, report: NodeReport, is_granted: bool, now_ms: u64) {
        let unheard_ms = self.since_ms.map_or(now_ms, |since_ms| since_ms + TAKEOVER_MS);
        let is_late = |voice: &&mut Voice| voice.is_later_than(&report, now_ms);
        if let Some(voice) = self.voices.get_mut(&report.node).filter(is_late) {
            // Its answer may have been the later one all the same.
            voice.granted_ms = if is_granted { voice.granted_ms.max(now_ms) } else { voice.granted_ms };
            if report.boot != voice.report.boot && !report.stands_still {
                voice.another_life_ms = voice.another_life_ms.max(now_ms);
            }
            return;
        }
        let ready = || report.buckets.iter().filter(|bucket| bucket.ready);
        let copies = ready()
            .map(|bucket| (bucket.uuid.clone(), bucket.vbs.iter().map(|copy| (copy.vb, *copy)).collect()))
            .collect();
        let before = self.voices.remove(&report.node);
        // The times at which two reports came may be taken note of in another order.
        let (at_ms, granted_ms) = before.as_ref().map_or_else(
            || (if report.stands_still { unheard_ms } else { now_ms }, unheard_ms),
            |voice| (voice.at_ms, voice.granted_ms),
        );
        let at_ms = if report.stands_still { at_ms } else { at_ms.max(now_ms) };
        let granted_ms = if is_granted { granted_ms.max(now_ms) } else { granted_ms };
        let (mut weights, pressed_before) =
            before.map(|voice| (voice.weights, voice.pressed)).unwrap_or_default();
        let presses = ready().filter(|bucket| bucket.pressure > Pressure::None);
        let pressed = presses
            .map(|bucket| {
                let since_ms = pressed_before.get(&bucket.uuid).map_or(now_ms, |&(_, since_ms)| since_ms);
                (bucket.uuid.clone(), (bucket.pressure, since_ms))
            })
            .collect();
        // Sizes are not told every time; those told last will do.
        for bucket in ready().filter(|bucket| !bucket.weights.is_empty()) {
            weights.insert(bucket.uuid.clone(), bucket.weights.iter().copied().collect());
        }
        let another_life_ms = at_ms;
        self.voices.insert(
            report.node,
            Voice { at_ms, another_life_ms, granted_ms, report, copies, weights, pressed },
        );
    }

    /// Forgets who is nobody's business any more, and when there was nobody before, begins to listen.
    pub(super) fn attend(&mut self, meta: &Metadata, now_ms: u64) {
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let settings = meta.auto_failover.since;
        if self.settings.is_none_or(|(version, _)| version != settings) {
            // An earlier leader may have granted others until a moment after this one began.
            self.settings = Some((settings, now_ms.max(since_ms + TAKEOVER_MS)));
        }
        self.active_since_ms.retain(|&id, _| meta.active_nodes().any(|node| node.id == id));
        for node in meta.active_nodes() {
            self.active_since_ms.entry(node.id).or_insert(now_ms);
        }
        let has_departed = |node: NodeId| meta.departed.iter().any(|gone| gone.node == node);
        self.voices.retain(|&node, voice| meta.reporter(&voice.report).is_some() || has_departed(node));
    }

    /// Whether a node that was failed over serves nothing any more. It has said that it knows, or it has been silent for longer than it
    /// could serve unheard when it was failed over. The leases that it was granted count, whatever it says: it may be there, and unable
    /// to act by newer metadata. Where it may have served without any, its silence counts as well.
    pub(super) fn has_yielded(&self, node: NodeId, excluded: Exclusion, now_ms: u64) -> bool {
        let knows = self.report(node).is_some_and(|said| said.applied >= excluded.version);
        let unleased_ms = self.unleased_ms(node, now_ms);
        let waited_ms = match excluded.is_leased {
            true => unleased_ms,
            // One that stands still counts as silent, and may have been granted a lease since.
            false => unleased_ms.min(self.silence_ms(node, now_ms)),
        };
        knows || waited_ms >= excluded.lease_ms.unwrap_or(UNLEASED_MS)
    }

    /// Nodes that were failed over, whether or not they have come back or left since, and may be serving yet.
    pub(super) fn unyielded(&self, meta: &Metadata, now_ms: u64) -> impl Iterator<Item = NodeId> {
        let here = meta.nodes.iter().filter_map(|node| Some((node.id, node.excluded?)));
        let gone = meta.departed.iter().map(|gone| (gone.node, gone.excluded));
        let may_serve =
            move |&(node, excluded): &(NodeId, Exclusion)| !self.has_yielded(node, excluded, now_ms);
        here.chain(gone).filter(may_serve).map(|(node, _)| node)
    }

    pub(super) fn report(&self, node: NodeId) -> Option<&NodeReport> {
        self.voices.get(&node).map(|voice| &voice.report)
    }

    /// Whether a node that can be counted on has not opened a bucket: nothing is known of its copies.
    pub(super) fn is_unopened(&self, node: NodeId, bucket: &BucketUuid, now_ms: u64) -> bool {
        self.is_heard(node, now_ms) && self.life(node, bucket).is_none()
    }

    /// Which life of a node has that bucket open.
    pub(super) fn life(&self, node: NodeId, bucket: &BucketUuid) -> Option<u64> {
        let voice = self.voices.get(&node).filter(|voice| voice.copies.contains_key(bucket))?;
        Some(voice.report.boot)
    }

    pub(super) fn copy(&self, node: NodeId, bucket: &BucketUuid, vb: VbId) -> Option<&VbReport> {
        self.voices.get(&node)?.copies.get(bucket)?.get(&vb)
    }

    /// Copies of a bucket that have been opened after an unclean stop and are not confirmed yet.
    pub(super) fn unconfirmed(&self, bucket: &BucketUuid) -> BTreeSet<(NodeId, VbId)> {
        let copies = self.voices.iter().filter_map(|(&node, voice)| Some((node, voice.copies.get(bucket)?)));
        let unconfirmed = copies.flat_map(|(node, copies)| {
            copies.values().filter(|copy| copy.unconfirmed).map(move |copy| (node, copy.vb))
        });
        unconfirmed.collect()
    }

    /// What copying a vBucket from that node would send, as far as it has said.
    pub(super) fn weight(&self, node: NodeId, bucket: &BucketUuid, vb: VbId) -> Option<Weight> {
        self.voices.get(&node)?.weights.get(bucket)?.get(&vb).copied()
    }

    /// How a bucket's writers fare on a node, and for how long it has not been well.
    pub(super) fn pressure(&self, node: NodeId, bucket: &BucketUuid, now_ms: u64) -> (Pressure, u64) {
        let pressed = self.voices.get(&node).and_then(|voice| voice.pressed.get(bucket));
        pressed.map_or_else(Default::default, |&(pressure, since_ms)| {
            (pressure, now_ms.saturating_sub(since_ms))
        })
    }

    /// A bucket whose operations on a node are slower than they shall be.
    pub(super) fn missed_objective(&self, node: NodeId) -> Option<(&BucketUuid, LatencyReport)> {
        let told =
            self.report(node)?.buckets.iter().filter_map(|bucket| Some((&bucket.uuid, bucket.latency?)));
        told.into_iter().find(|(_, latency)| latency.p99_us > latency.objective_us)
    }

    /// For how long leases have been granted by settings of that version, and no others.
    pub(super) fn granted_by_ms(&self, settings: u64, now_ms: u64) -> u64 {
        let since =
            self.settings.filter(|(version, _)| *version == settings).map_or(now_ms, |(_, since)| since);
        now_ms.saturating_sub(since)
    }

    /// How long a node has been granted no lease.
    pub(super) fn unleased_ms(&self, node: NodeId, now_ms: u64) -> u64 {
        let unheard = || self.since_ms.map(|since_ms| since_ms + TAKEOVER_MS);
        let since = self.voices.get(&node).map(|voice| voice.granted_ms).or_else(unheard).unwrap_or(now_ms);
        now_ms.saturating_sub(since)
    }

    /// How long nothing has been heard of a node, or nothing but that it stands still.
    pub(super) fn silence_ms(&self, node: NodeId, now_ms: u64) -> u64 {
        let unheard = || self.since_ms.map(|since_ms| since_ms + TAKEOVER_MS);
        let since = self.voices.get(&node).map(|voice| voice.at_ms).or_else(unheard).unwrap_or(now_ms);
        now_ms.saturating_sub(since)
    }

    /// The same for an active node, but not from before it was one: nothing was expected of it then. Nor from before a report that may
    /// be of an earlier life. A node whose clock was set back before it started is there before what it says counts.
    pub(super) fn missing_ms(&self, node: NodeId, now_ms: u64) -> u64 {
        let since = |at_ms: u64| now_ms.saturating_sub(at_ms);
        let active_ms = self.active_since_ms.get(&node).map_or(0, |since_ms| since(*since_ms));
        let another_ms = self.voices.get(&node).map_or(u64::MAX, |voice| since(voice.another_life_ms));
        self.silence_ms(node, now_ms).min(active_ms).min(another_ms)
    }

    /// Whether a node can be counted on. One that has never been heard of cannot.
    pub(super) fn is_heard(&self, node: NodeId, now_ms: u64) -> bool {
        self.voices.contains_key(&node) && self.silence_ms(node, now_ms) < SILENT_AFTER_MS
    }

    /// Whether what a node said last may be taken for what is.
    pub(super) fn is_current(&self, node: NodeId, now_ms: u64) -> bool {
        self.silence_ms(node, now_ms) < UNHEARD_MS
    }

    /// Whether a node has not been heard of for so long that one need not wait for it.
    pub(super) fn is_silent(&self, node: NodeId, now_ms: u64) -> bool {
        self.silence_ms(node, now_ms) >= SILENT_AFTER_MS
    }

    pub(super) fn health(&self, node: NodeId, now_ms: u64) -> Health {
        match self.report(node).filter(|_| self.is_heard(node, now_ms)) {
            None => Health::Unhealthy,
            Some(report) if report.buckets.iter().all(|bucket| bucket.ready) => Health::Healthy,
            Some(_) => Health::Warmup,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_is_taken_late_moves_no_lease_back() {
        let report = |number| NodeReport { number, ..NodeReport::bare(NodeId(1), "1".into(), 1) };
        let mut heard = Heard::default();
        for (number, came_ms) in [(6, 2_000), (5, 1_300), (7, 1_900)] {
            heard.take(report(number), true, came_ms);
            assert_eq!(heard.unleased_ms(NodeId(1), 2_000), 0, "report {number}");
            assert_eq!(heard.silence_ms(NodeId(1), 2_000), 0, "report {number}");
        }
    }
}
