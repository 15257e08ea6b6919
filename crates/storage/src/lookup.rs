//! Finding records without a locator: the newest version of a key, and everything there is.

use std::sync::Arc;

use base::{Seqno, VbId};

use crate::{
    api::{Locator, OwnedRecord, Record},
    error::StoreError,
    format::{DATA_START, frame::StoredRecord, header::Origin},
    frames::{Frames, Step},
    index::{Entry, fingerprint},
    key_index::{self, KeyIndex, LastBlock},
    segment::Segment,
    state::{Core, SegmentSet},
};

/// The version of `key` with the highest seqno in the vBucket's current incarnation.
pub(crate) fn newest(core: &Core, vb: VbId, key: &[u8]) -> Result<Option<OwnedRecord>, StoreError> {
    core.keys.count_lookup();
    let set = core.segments();
    let completed = core.synced_highs.of(vb).marks.completed;
    let mut knows_prepare = false;
    for (segment, entry) in Candidates::new(core, &set).of(vb, core.hash(key))? {
        if entry.is_prepared() {
            // What was prepared last may have been acknowledged: if it cannot be read, nobody knows the key's newest version.
            // Up to the mark its commit is on disk as well.
            knows_prepare |= entry.seqno() <= completed;
            if !knows_prepare {
                let is_of_key =
                    |record: StoredRecord<'_>| record.key == key && core.is_current(vb, record.incarnation);
                knows_prepare = segment.record_at(entry.offset(), entry.length_max(), is_of_key)?;
            }
            continue;
        }
        let offset = entry.offset();
        let found = segment.record_at(offset, entry.length_max(), |record| {
            let matches = record.key == key && record.vb == vb && core.is_current(vb, record.incarnation);
            matches.then(|| segment.own(offset, &record))
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    // "Unreadable" is never "absent": what was damaged beyond recognition may have been this key.
    if let Some(segment) = set.values().find(|segment| segment.is_incomplete()) {
        return Err(segment.corrupt(DATA_START, "records lost: absence cannot be proved"));
    }
    if core.is_incomplete() {
        return Err(core.counters.corrupt("segments", 0, "a segment is missing: absence cannot be proved"));
    }
    Ok(None)
}

/// Where anything about keys may lie. Asked for many keys, in the order of their fingerprints it costs least.
pub(crate) struct Candidates<'s> {
    core: &'s Core,
    set: &'s SegmentSet,
    index: Option<Arc<KeyIndex>>,
    last: LastBlock,
}

impl<'s> Candidates<'s> {
    pub(crate) fn new(core: &'s Core, set: &'s SegmentSet) -> Self {
        Self { core, set, index: core.keys.current(), last: LastBlock::default() }
    }

    /// Where versions of a key may lie, newest first; not where prepares and aborts do.
    pub(crate) fn versions_of(
        &mut self,
        vb: VbId,
        hash: u64,
    ) -> Result<Vec<(&'s Arc<Segment>, Entry)>, StoreError> {
        let mut found = self.of(vb, hash)?;
        found.retain(|(_, entry)| !entry.is_prepared());
        Ok(found)
    }

    /// For one key, newest first.
    fn of(&mut self, vb: VbId, hash: u64) -> Result<Vec<(&'s Arc<Segment>, Entry)>, StoreError> {
        let (print, set) = (fingerprint(hash), self.set);
        let mut found = Vec::new();
        if let Some(covering) = &self.index {
            let read = covering.find(print, &mut self.last, &mut |segment, entry| {
                // Not what compaction has moved: where that is now says another segment.
                let segment = set.get(&segment).filter(|segment| covering.covers(segment));
                found.extend(segment.map(|segment| (segment, entry)));
            });
            if let Err(cause) = read {
                self.core.keys.discard(self.core, covering, &cause);
                found.clear();
                self.index = None;
            }
        }
        for segment in key_index::uncovered(set, self.index.as_deref()) {
            found.extend(segment.find(print)?.into_iter().map(|entry| (segment, entry)));
        }
        found.retain(|(_, entry)| entry.vb() == vb);
        found.sort_unstable_by_key(|(_, entry)| std::cmp::Reverse(entry.seqno()));
        Ok(found)
    }
}

/// Visits every committed record; see the trait.
pub(crate) fn scan(
    core: &Core,
    vb: Option<VbId>,
    from: Seqno,
    values: bool,
    visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
) -> Result<(), StoreError> {
    scan_segments(core, core.segments().values().cloned(), vb, from, values, visit)
}

/// Visits what was there at open; see the trait.
pub(crate) fn scan_recovered(
    core: &Core,
    visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
) -> Result<(), StoreError> {
    // What compaction has made since may hold older records, too.
    let is_new = |segment: &Segment| segment.id >= core.first_made && segment.origin == Origin::Appended;
    let set = core.segments();
    let recovered: Vec<u32> =
        set.values().filter(|segment| !is_new(segment)).map(|segment| segment.id).collect();
    // Only a thread that reads one just now keeps it on the disk.
    drop(set);
    let left = recovered.into_iter().filter_map(|id| core.segment(id));
    scan_segments(core, left, None, Seqno(0), true, visit)
}

fn scan_segments(
    core: &Core,
    segments: impl Iterator<Item = Arc<Segment>>,
    vb: Option<VbId>,
    from: Seqno,
    values: bool,
    visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
) -> Result<(), StoreError> {
    for segment in segments {
        let ranges = match vb {
            Some(vb) if !has_since(&segment, vb, from)? => continue,
            Some(vb) => segment.runs(vb)?,
            None => vec![(DATA_START, segment.data_end())],
        };
        let mut frames = Frames::new(&segment, DATA_START, DATA_START, values);
        for (start, end) in ranges {
            frames.jump(start, end);
            if !scan_range(core, &segment, &mut frames, from, visit)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether a segment holds anything of a vBucket from a seqno on.
fn has_since(segment: &Segment, vb: VbId, from: Seqno) -> Result<bool, StoreError> {
    Ok(segment.summaries()?.iter().any(|summary| summary.vb == vb && summary.seqno_max >= from))
}

fn scan_range(
    core: &Core,
    segment: &Segment,
    frames: &mut Frames<'_>,
    from: Seqno,
    visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
) -> Result<bool, StoreError> {
    loop {
        match frames.step()? {
            Step::Record(offset, stored) => {
                if stored.meta.seqno < from || !core.is_current(stored.vb, stored.incarnation) {
                    continue;
                }
                let at = segment.locate(offset, stored.length);
                if !visit(stored.vb, &stored.to_record(), at) {
                    return Ok(false);
                }
            }
            Step::Unreadable(offset, _, detail) | Step::Damaged(offset, detail) => {
                // The index still knows what was here: lookups of it fail, others are not concerned.
                let _ = segment.corrupt(offset, detail);
                segment.quarantine();
            }
            Step::Commit(..) => {}
            Step::End => return Ok(true),
        }
    }
}
