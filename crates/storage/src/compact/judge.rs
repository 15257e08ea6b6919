//! The first pass: what of a victim is kept, as far as memory can tell. And which old tombstones need not be.

use std::{collections::BTreeMap, sync::Arc};

use base::{Seqno, VbId};

use super::{Kept, effort::Effort, keep, memory_of};
use crate::{
    api::Verdict,
    error::StoreError,
    format::{DATA_START, frame::StoredRecord},
    frames::{Frames, Step},
    index::fingerprint,
    segment::Segment,
    state::Core,
};

/// Streams a victim and appends what is kept; returns how many records it had.
///
/// # Errors
/// [`StoreError::Corrupt`] when the victim is damaged: it is quarantined and must stay.
pub(super) fn judge(
    core: &Core,
    victim: &Segment,
    number: u32,
    effort: &mut Effort<'_>,
    purge_before: u32,
    kept: &mut Vec<Kept>,
) -> Result<u64, StoreError> {
    // Values of what is dead do not matter; those of what is kept are checked by the second pass.
    let mut frames = Frames::new(victim, DATA_START, victim.data_end(), false);
    let mut seen = 0;
    loop {
        match frames.step()? {
            Step::Record(offset, stored) => {
                seen += 1;
                effort.spend(u64::from(stored.length), || memory_of(kept))?;
                if !core.is_current(stored.vb, stored.incarnation) {
                    continue;
                }
                if stored.meta.kind.is_prepared() {
                    if let Some(prepared) = judge_prepared(core, &stored, number, offset) {
                        keep(kept, prepared);
                    }
                    continue;
                }
                let record = stored.to_record();
                let at = victim.locate(offset, stored.length);
                let live = match effort.liveness.verdict(stored.vb, &record, at) {
                    Verdict::Live => true,
                    Verdict::Dead => continue,
                    Verdict::Unknown => false,
                };
                let purgeable = record.meta.kind.is_tombstone() && record.meta.expiry < purge_before;
                let judged = Kept {
                    vb: stored.vb,
                    seqno: record.meta.seqno,
                    hash: core.hash(stored.key),
                    victim: number,
                    length: stored.length,
                    offset,
                    live,
                    maybe_superseded: !live,
                    purgeable,
                };
                keep(kept, judged);
            }
            Step::Unreadable(offset, _, detail) | Step::Damaged(offset, detail) => {
                victim.quarantine();
                return Err(victim.corrupt(offset, detail));
            }
            Step::Commit(..) => {}
            Step::End => return Ok(seen),
        }
    }
}

/// A prepare or abort that may still say something. Of a prepare up to the mark `completed` it is known what became
/// of it. An abort up to the mark is about such a prepare.
fn judge_prepared(core: &Core, stored: &StoredRecord<'_>, victim: u32, offset: u64) -> Option<Kept> {
    let synced = core.synced_highs.of(stored.vb);
    let is_completed =
        synced.incarnation == stored.incarnation && stored.meta.seqno <= synced.marks.completed;
    (!is_completed).then(|| Kept {
        vb: stored.vb,
        seqno: stored.meta.seqno,
        hash: core.hash(stored.key),
        victim,
        length: stored.length,
        offset,
        live: false,
        maybe_superseded: false,
        purgeable: false,
    })
}

/// Removes old tombstones from `kept` whose key no other record can still hold an older version of. Returns them.
pub(super) fn purge(
    core: &Core,
    inputs: &[Arc<Segment>],
    kept: &mut Vec<Kept>,
) -> Result<Vec<(VbId, Seqno)>, StoreError> {
    if !kept.iter().any(|record| record.purgeable) {
        return Ok(Vec::new());
    }
    let mut oldest: BTreeMap<(VbId, u64), Seqno> = BTreeMap::new();
    for record in kept.iter() {
        let seqno = oldest.entry((record.vb, record.hash)).or_insert(record.seqno);
        *seqno = record.seqno.min(*seqno);
    }
    let set = core.segments();
    let others: Vec<&Arc<Segment>> =
        set.values().filter(|segment| !inputs.iter().any(|input| input.id == segment.id)).collect();
    // What cannot be read may hold an older version of anything.
    let uncertain = core.is_incomplete() || others.iter().any(|segment| segment.is_incomplete());
    let mut purged = Vec::new();
    let mut failure = None;
    kept.retain(|record| {
        if !record.purgeable || uncertain || oldest.get(&(record.vb, record.hash)) != Some(&record.seqno) {
            return true;
        }
        match may_hold_older(&others, record) {
            Ok(false) => {
                purged.push((record.vb, record.seqno));
                false
            }
            Ok(true) => true,
            Err(cause) => {
                failure = Some(cause);
                true
            }
        }
    });
    purged.sort_unstable();
    failure.map_or(Ok(purged), Err)
}

/// By fingerprint alone: a chance match only keeps a tombstone longer than needed.
fn may_hold_older(others: &[&Arc<Segment>], record: &Kept) -> Result<bool, StoreError> {
    for segment in others {
        let entries = segment.find(fingerprint(record.hash))?;
        if entries.iter().any(|entry| entry.vb() == record.vb && entry.seqno() < record.seqno) {
            return Ok(true);
        }
    }
    Ok(false)
}
