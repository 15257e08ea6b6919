//! Which segments to compact. Those with the largest dead share are chosen while the store as a whole holds too much
//! that is dead. Small ones are chosen before they become many.

use std::sync::{Arc, atomic::Ordering};

use super::{KEPT_BYTES, MANIFEST_SHARE};
use crate::{api::CompactBudget, format::UNIT, segment::Segment, state::Core};

/// So many segments far below the usual size are merged.
const SMALL_SEGMENTS_MAX: usize = 16;
/// Bytes of dead records tolerated in any store: below, cleaning is not worth the syncs.
const DEAD_BYTES_TOLERATED: u64 = 1 << 20;

struct Candidate {
    segment: Arc<Segment>,
    units: u64,
    live: u64,
}

/// Segments without any record of a current incarnation.
pub(super) fn wholly_dead(core: &Core) -> Vec<Arc<Segment>> {
    if !core.resets.swap(false, Ordering::Relaxed) {
        return Vec::new();
    }
    // A manifest written before a reset was accounted for may have brought the old counts back.
    core.recount_stale();
    let set = core.segments();
    let dead = |segment: &&Arc<Segment>| {
        let summaries = segment.summaries();
        // Records that were damaged beyond recognition may be of anybody.
        core.is_settled(segment)
            && !segment.is_incomplete()
            && summaries.is_ok_and(|all| all.iter().all(|part| !core.is_current(part.vb, part.incarnation)))
    };
    set.values().filter(dead).cloned().collect()
}

/// What this step compacts; nothing when the store is compact enough. There are so many bytes of `room` for what is copied.
pub(super) fn choose(core: &Core, budget: &CompactBudget, room: u64) -> Vec<Arc<Segment>> {
    let set = core.segments();
    let removed = core.removed.load(Ordering::Relaxed);
    let patience = if budget.space_ratio <= 1.0 { 0 } else { set.len() as u64 / 4 };
    let (mut used, mut alive) = (0, 0);
    let mut candidates = Vec::new();
    for segment in set.values() {
        let units = segment.data_end() / UNIT;
        let mut live = segment.live_units();
        // Old tombstones count as dead, but not again before much else was removed.
        let tried = segment.purge_tried.load(Ordering::Relaxed);
        if tried == u64::MAX || removed - tried > patience {
            live = live.saturating_sub(segment.tombstones().units_before(budget.purge_before));
        }
        used += units;
        alive += live;
        if core.is_settled(segment) && !segment.is_quarantined() {
            candidates.push(Candidate { segment: segment.clone(), units: segment.units(), live });
        }
    }
    let forced = budget.space_ratio <= 1.0;
    let tolerated = (alive as f64 * budget.space_ratio.max(1.0)) as u64 + DEAD_BYTES_TOLERATED / UNIT;
    if forced || used > tolerated {
        // Lowest live share first.
        candidates.sort_by(|a, b| (a.live * b.units.max(1)).cmp(&(b.live * a.units.max(1))));
        // A segment that is more alive than the store may be has too little to gain.
        let ratio = budget.space_ratio.max(1.0);
        candidates.retain(|candidate| (candidate.live as f64 * ratio) < candidate.units as f64);
        take(candidates, core, budget, room)
    } else {
        let small = core.segment_bytes() / 4 / UNIT;
        candidates.retain(|candidate| candidate.units < small);
        if candidates.len() < SMALL_SEGMENTS_MAX {
            return Vec::new();
        }
        take(candidates, core, budget, room)
    }
}

/// Space that compacting any one segment takes for a while, and the manifest afterwards.
pub(super) fn largest_output(core: &Core) -> u64 {
    let live = core.segments().values().map(|segment| segment.live_units()).max();
    live.map_or(0, |units| {
        let bytes = space_for(units);
        bytes + bytes / (MANIFEST_SHARE - 1)
    })
}

/// What so many units take when they are copied, their share of a footer included.
fn space_for(units: u64) -> u64 {
    let bytes = units * UNIT;
    bytes + bytes / 8
}

impl Candidate {
    /// Memory that its live records take while they are copied, were all of one size.
    fn memory_bytes(&self) -> u64 {
        (self.segment.records() * KEPT_BYTES).saturating_mul(self.live) / self.units.max(1)
    }
}

/// As many as the budget and the room allow and one output segment holds.
fn take(candidates: Vec<Candidate>, core: &Core, budget: &CompactBudget, room: u64) -> Vec<Arc<Segment>> {
    let (mut input, mut output, mut memory) = (0, 0, 0);
    let mut taken = Vec::new();
    for candidate in candidates.into_iter().filter(|candidate| space_for(candidate.live) <= room) {
        input += candidate.segment.data_end();
        output += candidate.live;
        memory += candidate.memory_bytes();
        let is_too_much = input > budget.input_bytes_max
            || memory > budget.memory_bytes_max
            || output * UNIT > core.segment_bytes()
            || space_for(output) > room;
        if is_too_much && !taken.is_empty() {
            break;
        }
        taken.push(candidate.segment);
    }
    taken
}
