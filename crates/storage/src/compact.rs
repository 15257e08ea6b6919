//! Compaction: copies what is alive out of segments that are mostly dead, one bounded step at a time.
//!
//! 1. Segments without a record of a current incarnation go unread.
//! 2. Otherwise victims are chosen (`victims`).
//! 3. First pass: each victim is streamed, every record judged by its head and key. What is kept is remembered by place, in a
//!    few dozen bytes each. Where memory cannot tell, the index on disk is asked about all of them (`supersession`).
//! 4. Old tombstones are dropped from that list when no other record can be an older version of their key.
//! 5. Second pass: what is kept is checked and copied into new segments, sorted by vBucket, then seqno; they are
//!    sealed and synced.
//! 6. The outputs join the set and every kept record is relocated.
//! 7. A manifest without the inputs, and with the purge seqnos, is synced.
//! 8. Then the inputs leave the set and lose their names.
//!
//! A thread that stands back at the disk ([`crate::stand_back`]) does so for all of it but what happens under locks that commits and
//! syncs take.
//!
//! A step works in slices (`effort`) and may be given up between two of them. One that is, or fails, before 6 removes its
//! outputs and leaves no trace. Only synced segments are read. A damaged
//! victim is quarantined: nobody knows what was lost in it. Readers that still hold an input keep it readable.

mod effort;
mod judge;
mod output;
mod supersession;
mod victims;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use base::{Seqno, VbId};

pub(crate) use self::effort::Effort;
use crate::{
    api::{CompactBudget, CompactReport, Liveness},
    counters::count,
    error::StoreError,
    format::{UNIT, padded},
    fs::in_line,
    key_index,
    segment::Segment,
    state::Core,
    window::Extent,
};

/// The share of compaction's reserve that is left for the manifests without which its inputs cannot go: one in so many.
const MANIFEST_SHARE: u64 = 8;

/// A record that will be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) vb: VbId,
    pub(crate) seqno: Seqno,
    /// The disk's, of the key.
    pub(crate) hash: u64,
    /// Number of the victim in the step.
    pub(crate) victim: u32,
    pub(crate) length: u32,
    pub(crate) offset: u64,
    /// Memory said that it is alive, and where it is.
    pub(crate) live: bool,
    /// Memory cannot tell whether it is: the index is still to be asked.
    pub(crate) maybe_superseded: bool,
    /// A tombstone that is old enough to go.
    pub(crate) purgeable: bool,
}

/// What a record that is kept takes in memory: in the list, and in the index of the segment that it is copied to. The spare
/// room of either is left out.
const KEPT_BYTES: u64 = size_of::<Kept>() as u64 + 32;

/// Memory that a list of what is kept takes.
fn memory_of(kept: &Vec<Kept>) -> u64 {
    (kept.capacity() * size_of::<Kept>()) as u64
}

/// Adds to a list of what is kept, which is large and grows by less than its own size.
fn keep(kept: &mut Vec<Kept>, record: Kept) {
    if kept.len() == kept.capacity() {
        kept.reserve_exact(kept.len() / 4 + 1024);
    }
    kept.push(record);
}

impl Kept {
    fn extent(&self) -> Extent {
        Extent { offset: self.offset, length: u64::from(self.length) }
    }
}

/// One bounded step; see the module.
pub(crate) fn step(
    core: &Core,
    liveness: &dyn Liveness,
    budget: CompactBudget,
) -> Result<CompactReport, StoreError> {
    let _guard = core.compact_lock.lock();
    core.counters.check()?;
    let outcome = clean(core, liveness, &budget);
    key_index::maintain(core, &mut Effort::new(core, liveness));
    in_line(|| {
        if take_back(core).inspect_err(|cause| core.counters.poison(cause))? {
            core.reserve.note_full(false);
            core.compaction_reserve.grow(victims::largest_output(core));
        }
        Ok::<(), StoreError>(())
    })?;
    if core.counters.is_damage_due() {
        // What was seen to be damaged is not forgotten by a restart.
        in_line(|| core.write_manifest(&[]))?;
    }
    match outcome {
        Err(StoreError::Stopped) => Ok(CompactReport { more: true, ..CompactReport::default() }),
        outcome => outcome,
    }
}

/// Sets aside again what was given up on a full disk, while no step goes on. Returns whether all of it is: then there is room for
/// anybody.
///
/// # Errors
/// What the disk answers, unless that is that it is full.
pub(crate) fn take_back(core: &Core) -> Result<bool, StoreError> {
    // Order matters. A step has freed again what it took from its reserve, and the next step needs that. Only the gain
    // beyond it is for deletions, and only what is left then is for everything else.
    Ok(core.compaction_reserve.claim_what_is(victims::largest_output(core))? && core.reserve.restore()?)
}

fn clean(core: &Core, liveness: &dyn Liveness, budget: &CompactBudget) -> Result<CompactReport, StoreError> {
    let mut report = CompactReport::default();
    let dead = victims::wholly_dead(core);
    if !dead.is_empty() {
        retire(core, &dead, &mut report).inspect_err(|_| core.resets.store(true, Ordering::Relaxed))?;
    }
    let inputs = victims::choose(core, budget, u64::MAX);
    if !inputs.is_empty() {
        match compact(core, &inputs, liveness, budget, &mut report) {
            Err(StoreError::NoSpace) if core.compaction_reserve.release() => {
                let room = core.compaction_reserve.bytes();
                let inputs = victims::choose(core, budget, room - room / MANIFEST_SHARE);
                if inputs.is_empty() {
                    return Err(StoreError::NoSpace);
                }
                unless_damaged(compact(core, &inputs, liveness, budget, &mut report))?;
            }
            outcome => unless_damaged(outcome)?,
        }
        report.more = !victims::choose(core, budget, u64::MAX).is_empty();
    }
    Ok(report)
}

/// The damage is noted and the victim quarantined: the next step chooses others.
fn unless_damaged(outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(StoreError::Corrupt { .. }) => Ok(()),
        outcome => outcome,
    }
}

fn compact(
    core: &Core,
    inputs: &[Arc<Segment>],
    liveness: &dyn Liveness,
    budget: &CompactBudget,
    report: &mut CompactReport,
) -> Result<(), StoreError> {
    let mut kept = Vec::new();
    let mut effort = Effort::new(core, liveness);
    effort.expect(inputs);
    let (mut seen, mut bytes_read) = (0, 0);
    for (number, victim) in inputs.iter().enumerate() {
        seen += judge::judge(core, victim, number as u32, &mut effort, budget.purge_before, &mut kept)?;
        bytes_read += victim.data_end();
    }
    supersession::settle(core, inputs, &mut kept, &mut effort)?;
    let purged = judge::purge(core, inputs, &mut kept)?;
    kept.sort_unstable_by_key(|record| (record.vb, record.seqno, !record.live));
    // A step that failed late, or a commit that was repeated, leaves copies of one version.
    kept.dedup_by_key(|record| (record.vb, record.seqno, record.hash));
    count(&core.counters.compaction_bytes_read, bytes_read);
    let outputs = output::write(core, inputs, &kept, &mut effort).inspect_err(|cause| {
        if matches!(cause, StoreError::NoSpace) {
            recount(inputs, &kept);
        }
    })?;
    let written: u64 = outputs.iter().map(|output| output.data_end()).sum();
    count(&core.counters.compaction_bytes_written, written);
    let removed = core.removed.load(Ordering::Relaxed);
    for output in &outputs {
        // A tombstone that could not go now may go once other segments have been removed.
        output.purge_tried.store(removed, Ordering::Relaxed);
        core.insert_segment(output.clone());
    }
    effort.double(written);
    output::relocate(inputs, &outputs, &kept, &mut effort)?;
    let highest: BTreeMap<VbId, Seqno> = purged.iter().copied().collect();
    {
        let mut writer = core.writer.lock();
        highest.iter().for_each(|(vb, seqno)| writer.purge(*vb, *seqno));
    }
    retire(core, inputs, report)?;
    effort.finish(inputs.iter().map(|input| input.data_end()).sum::<u64>().saturating_sub(written));
    report.bytes_read += bytes_read;
    report.bytes_written += written;
    report.bytes_freed = report.bytes_freed.saturating_sub(written);
    report.records_kept += kept.len() as u64;
    report.records_dropped += seen - kept.len() as u64;
    report.tombstones_purged += purged.len() as u64;
    report.purged.extend(highest);
    Ok(())
}

/// There was no space for what is alive in victims. Perhaps they were thought to have less of it: the counts also include
/// changes that a crash has lost. Now it is known, and the next choice goes by it.
fn recount(inputs: &[Arc<Segment>], kept: &[Kept]) {
    let mut live = vec![0; inputs.len()];
    for record in kept {
        if let Some(units) = live.get_mut(record.victim as usize) {
            *units += padded(u64::from(record.length)) / UNIT;
        }
    }
    inputs.iter().zip(live).for_each(|(victim, units)| victim.set_units(victim.units(), units));
}

/// Takes segments out of the store: first a synced manifest without them, with it the set, then the files.
fn retire(core: &Core, segments: &[Arc<Segment>], report: &mut CompactReport) -> Result<(), StoreError> {
    let ids: Vec<u32> = segments.iter().map(|segment| segment.id).collect();
    // Order matters: a file must not go while a manifest that survives a crash still needs it. Its locks are those of whoever
    // syncs or sets states.
    let write = || in_line(|| core.write_manifest(&ids));
    match write() {
        // What is going to be freed is more.
        Err(StoreError::NoSpace) if core.compaction_reserve.release() => write()?,
        written => written?,
    }
    for segment in segments {
        core.remove_file(&segment.name);
        report.segments_removed += 1;
        report.bytes_freed += segment.units() * UNIT;
    }
    Ok(())
}
