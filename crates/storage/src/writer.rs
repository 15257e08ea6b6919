//! The log's end: takes vBuckets' parts, groups them into batches, rolls over to new segments.
//!
//! There is one writer per store, behind a mutex. It holds what commits change: the active segment, the numbers of
//! the next segment and batch, the vBuckets' states, and segments that await a sync.

use std::sync::{Arc, atomic::Ordering};

use base::{Seqno, VbId};

use crate::{
    api::{Locator, Record, VbBatch, VbState},
    appender::{Appender, Batch},
    counters::count,
    error::StoreError,
    format::{
        DATA_START, UNIT,
        frame::{self, FRAME_BYTES_MAX, SEQNO_MAX},
        header::{self, Header, Origin},
        manifest::VbEntry,
        padded,
    },
    locator::{Place, SEGMENT_BYTES_MAX, SEGMENTS_MAX},
    position::Position,
    segment::Segment,
    state::Core,
    synced::High,
};

/// A commit frame may grow by this while one part is added: its state with the longest failover log.
const PART_STATE_BYTES_MAX: u64 = 8 + 9 * 10 + 255 * 18;

/// By so much as well for each record: for what it replaces, and for itself if it is a prepare.
const DEATHS_BYTES_MAX: u64 = 2 * 8;

/// See the module.
pub(crate) struct Writer {
    active: Option<Appender>,
    batch: Batch,
    /// The size at which the active segment is sealed, as of this commit.
    segment_bytes: u64,
    pub(crate) next_segment: u32,
    pub(crate) next_batch: u64,
    /// Where the log ends.
    pub(crate) end: Position,
    /// By vBucket number.
    vbs: Vec<Option<VbState>>,
    /// Whose state has changed since the last sync began; each once.
    changed: Vec<VbId>,
    is_changed: Vec<bool>,
    /// Segments with bytes that no sync has covered, in order.
    pub(crate) unsynced: Vec<Arc<Segment>>,
    /// A segment's name is new since the last sync of the directory.
    pub(crate) new_names: bool,
}

impl Writer {
    pub(crate) fn new(end: Position, next_batch: u64, vbs: Vec<Option<VbState>>) -> Self {
        Self {
            active: None,
            batch: Batch::default(),
            segment_bytes: 0,
            next_segment: end.segment + 1,
            next_batch,
            end,
            is_changed: vec![false; vbs.len()],
            vbs,
            changed: Vec::new(),
            unsynced: Vec::new(),
            new_names: false,
        }
    }

    /// Every vBucket that has a state.
    pub(crate) fn states(&self) -> impl Iterator<Item = (VbId, &VbState)> {
        (0u16..).zip(&self.vbs).filter_map(|(vb, state)| Some((VbId(vb), state.as_ref()?)))
    }

    pub(crate) fn state_entries(&self, core: &Core) -> Vec<VbEntry> {
        self.states()
            .map(|(vb, state)| VbEntry { vb, incarnation: core.incarnation(vb), state: state.clone() })
            .collect()
    }

    /// Sets a vBucket's state; what the log knows better stays unless the contents are dropped.
    #[expect(
        clippy::indexing_slicing,
        reason = "both lists have a place for each vBucket of the store, and a `VbId` of the store is below their number"
    )]
    pub(crate) fn set_state(&mut self, vb: VbId, state: &VbState, dropped: bool) {
        let index = usize::from(vb.get());
        if self.vbs.len() <= index {
            self.vbs.resize(index + 1, None);
            self.is_changed.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.is_changed[index], true) {
            self.changed.push(vb);
        }
        let slot = self.vbs[index].get_or_insert_default();
        let known = std::mem::replace(slot, state.clone());
        if !dropped {
            take_over(slot, &known);
        }
    }

    /// The highest seqnos of the vBuckets that have changed since this was last asked.
    #[expect(clippy::indexing_slicing, reason = "both lists have a place for each vBucket of the store")]
    pub(crate) fn take_changed(&mut self, core: &Core) -> Vec<(VbId, High)> {
        let changed = std::mem::take(&mut self.changed);
        let high = |vb: VbId| {
            let index = usize::from(vb.get());
            self.is_changed[index] = false;
            let none = VbState::default();
            (vb, High::of(core.incarnation(vb), self.vbs[index].as_ref().unwrap_or(&none)))
        };
        changed.into_iter().map(high).collect()
    }

    /// Tombstones of a vBucket up to here may be missing.
    pub(crate) fn purge_seqno(&self, vb: VbId) -> Seqno {
        let state = self.vbs.get(usize::from(vb.get())).and_then(Option::as_ref);
        state.map_or(Seqno(0), |state| state.purge_seqno)
    }

    /// Raises a vBucket's purge seqno.
    pub(crate) fn purge(&mut self, vb: VbId, seqno: Seqno) {
        if let Some(Some(state)) = self.vbs.get_mut(usize::from(vb.get())) {
            state.purge_seqno = state.purge_seqno.max(seqno);
        }
    }

    /// The segment that takes the next batch.
    pub(crate) fn active_id(&self) -> Option<u32> {
        self.active.as_ref().map(|active| active.segment.id)
    }

    /// Appends parts, in as few batches as segments allow, and adds the locators of those that are committed. Returns how many
    /// are, from the front, and why not the others.
    pub(crate) fn append(
        &mut self,
        core: &Core,
        batches: &[VbBatch<'_>],
        locators: &mut Vec<Locator>,
    ) -> (usize, Result<(), StoreError>) {
        let (before, mut committed) = (locators.len(), 0);
        let result = self.append_parts(core, batches, locators, &mut committed);
        let records = batches.iter().take(committed).map(|part| part.records.len()).sum::<usize>();
        locators.truncate(before + records);
        if let Err(cause) = &result {
            // There is no active segment where a new one could not be begun.
            let abandoned = self.active.as_mut().map_or(Ok(()), Appender::abandon);
            // Without space the batch is given up; any other failure leaves the file in an unknown state.
            if !matches!(cause, StoreError::NoSpace | StoreError::Invalid(_)) || abandoned.is_err() {
                core.counters.poison(cause);
            }
        }
        (committed, result)
    }

    #[expect(clippy::indexing_slicing, reason = "`committed` counts batches of the same list")]
    fn append_parts(
        &mut self,
        core: &Core,
        batches: &[VbBatch<'_>],
        locators: &mut Vec<Locator>,
        committed: &mut usize,
    ) -> Result<(), StoreError> {
        self.segment_bytes = core.segment_bytes();
        if let Some(active) = &self.active {
            self.batch.begin(&active.segment);
        }
        for (number, part) in batches.iter().enumerate() {
            let bytes = part_bytes(part);
            if self.must_roll(bytes) {
                self.finish(core, &batches[*committed..number])?;
                *committed = number;
                self.roll(core)?;
            }
            self.append_part(core, part, locators)?;
        }
        self.finish(core, &batches[*committed..])?;
        *committed = batches.len();
        Ok(())
    }

    fn must_roll(&self, bytes: u64) -> bool {
        let Some(active) = &self.active else { return true };
        let used = active.segment.data_end() + self.batch.bytes();
        // An empty segment takes a part of any size: validated to fit.
        let empty = active.segment.data_end() == DATA_START && self.batch.is_empty();
        (used + bytes > self.segment_bytes && !empty) || self.batch.parts() == u16::MAX
    }

    fn append_part(
        &mut self,
        core: &Core,
        part: &VbBatch<'_>,
        locators: &mut Vec<Locator>,
    ) -> Result<(), StoreError> {
        let Some(active) = &mut self.active else { return Err(StoreError::Invalid("no active segment")) };
        let incarnation = core.incarnation(part.vb);
        let branch = part.state.failover_log.first().map_or(0, |entry| entry.0.get());
        for record in part.records {
            let (offset, length) = self.batch.push(
                active,
                (part.vb, incarnation, branch),
                &record.meta,
                (core.hash(record.key), record.key),
                record.value,
            )?;
            locators.push(active.segment.locate(offset, length));
            if record.meta.kind.is_prepared() {
                // Soon completed, and obsolete then: counted so from the beginning.
                self.batch.count_dead(active.segment.id, length.div_ceil(UNIT as u32));
            }
            if !record.replaces.is_none() {
                let replaced = Place::unpack(record.replaces);
                self.batch.count_dead(replaced.segment, replaced.units);
            }
        }
        let mut state = part.state.clone();
        if let Some(Some(known)) = self.vbs.get(usize::from(part.vb.get())) {
            take_over(&mut state, known);
        }
        self.batch.end_part(part.vb, incarnation, part.records.len() as u32, &state);
        Ok(())
    }

    /// Commits the open batch, whose parts are `parts`.
    fn finish(&mut self, core: &Core, parts: &[VbBatch<'_>]) -> Result<(), StoreError> {
        let Some(active) = self.active.as_mut().filter(|_| !self.batch.is_empty()) else { return Ok(()) };
        let (synced, records) = (core.synced.load(), self.batch.records() as u64);
        let bytes = self.batch.finish(active, self.next_batch, synced)?;
        self.next_batch += 1;
        self.end = Position { segment: active.segment.id, offset: active.segment.data_end() };
        core.end.advance(self.end);
        count(&core.counters.bytes_written, bytes);
        count(&core.counters.records_written, records);
        core.counters.buffer_bytes.store(self.batch.memory_bytes(), Ordering::Relaxed);
        core.count_dead(self.batch.deaths());
        self.note_unsynced();
        for part in parts {
            self.set_state(part.vb, part.state, false);
        }
        Ok(())
    }

    fn note_unsynced(&mut self) {
        if let Some(active) = &self.active
            && self.unsynced.last().is_none_or(|last| last.id != active.segment.id)
        {
            self.unsynced.push(active.segment.clone());
        }
    }

    /// Tells a later recovery that everything up to `synced` was synced: losses before it are damage, not a
    /// torn tail. Best effort.
    pub(crate) fn mark_synced(&mut self, core: &Core, synced: Position) {
        let Some(active) = &mut self.active else { return };
        self.batch.begin(&active.segment);
        let end = active.segment.data_end();
        if end + self.batch.bytes() > SEGMENT_BYTES_MAX {
            return;
        }
        match self.batch.finish(active, self.next_batch, synced) {
            Ok(_) => {
                self.next_batch += 1;
                // Not where the last batch ended, if that lies in the segment before.
                self.end = Position { segment: active.segment.id, offset: active.segment.data_end() };
                self.note_unsynced();
            }
            Err(cause) => {
                let abandoned = active.abandon();
                if !matches!(cause, StoreError::NoSpace) || abandoned.is_err() {
                    core.counters.poison(&cause);
                }
            }
        }
    }

    /// Seals the active segment, if any, and starts a new one.
    fn roll(&mut self, core: &Core) -> Result<(), StoreError> {
        match self.seal(core) {
            // The reserve is for what follows, and a footer may be larger: the index stays in memory.
            Err(StoreError::NoSpace) => {
                if let Some(active) = self.active.take() {
                    active.segment.set_sealed_in_memory();
                }
            }
            result => result?,
        }
        let segment = core.create_segment(self.next_segment, Origin::Appended)?;
        let header = Header {
            shard: core.options.shard,
            segment: segment.id,
            origin: Origin::Appended,
            salt: segment.salt,
            previous: self.end,
            synced: core.synced.load(),
            first_batch: self.next_batch,
        };
        let segment = Arc::new(segment);
        let appender = match Appender::new(segment.clone(), &header::encode(&header), self.segment_bytes) {
            Ok(appender) => appender,
            Err(cause) => {
                core.remove_file(&segment.name);
                return Err(cause);
            }
        };
        self.next_segment += 1;
        self.new_names = true;
        core.insert_segment(segment);
        self.batch.begin(&appender.segment);
        self.active = Some(appender);
        Ok(())
    }

    /// Seals the active segment, if any: its index moves to the disk.
    pub(crate) fn seal(&mut self, core: &Core) -> Result<(), StoreError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        match active.seal(self.next_batch) {
            Ok(bytes) => {
                count(&core.counters.bytes_written, bytes);
                self.note_unsynced();
                self.active = None;
                Ok(())
            }
            Err(cause) => {
                let abandoned = active.abandon();
                if !matches!(cause, StoreError::NoSpace) || abandoned.is_err() {
                    core.counters.poison(&cause);
                }
                Err(cause)
            }
        }
    }
}

/// Keeps in `state` what only rises within an incarnation. The log may know better than the caller: of a commit that
/// failed, parts may have been kept, and compaction purges.
fn take_over(state: &mut VbState, known: &VbState) {
    state.high_seqno = state.high_seqno.max(known.high_seqno);
    state.purge_seqno = state.purge_seqno.max(known.purge_seqno);
    state.max_deleted_rev = state.max_deleted_rev.max(known.max_deleted_rev);
    state.marks = state.marks.max(known.marks);
}

/// What a part needs in a segment, its share of the commit frame included.
fn part_bytes(part: &VbBatch<'_>) -> u64 {
    let records: u64 = part
        .records
        .iter()
        .map(|record| padded(frame::record_length(record.key, record.value)) + DEATHS_BYTES_MAX)
        .sum();
    records + PART_STATE_BYTES_MAX
}

/// What batches need on disk, at most.
pub(crate) fn bytes(batches: &[VbBatch<'_>]) -> u64 {
    batches.iter().map(part_bytes).sum()
}

/// Whether batches leave more for compaction to reclaim than they take: deletions, or more that becomes obsolete than is
/// added. A full disk is healed by such.
pub(crate) fn frees_space(batches: &[VbBatch<'_>]) -> bool {
    let records = || batches.iter().flat_map(|part| part.records);
    if records().all(|record| record.meta.kind.frees_space()) {
        return true;
    }
    let replaced = |record: &Record<'_>| u64::from(Place::unpack(record.replaces).units) * UNIT;
    let obsolete: u64 = records().filter(|record| !record.replaces.is_none()).map(replaced).sum();
    let added: u64 = records().map(|record| padded(frame::record_length(record.key, record.value))).sum();
    // What becomes obsolete is known by its class of size only.
    obsolete > added + added / 8
}

/// Checks what the format cannot hold.
///
/// # Errors
/// [`StoreError::Invalid`].
pub(crate) fn validate(batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
    for part in batches {
        if usize::from(part.vb.get()) >= crate::format::VBUCKETS {
            return Err(StoreError::Invalid("no such vBucket"));
        }
        if part.state.failover_log.len() > 255 {
            return Err(StoreError::Invalid("more than 255 failover log entries"));
        }
        if part_bytes(part) > SEGMENT_BYTES_MAX - DATA_START - 4096 {
            return Err(StoreError::Invalid("one vBucket's part exceeds a segment"));
        }
        for record in part.records {
            if record.key.len() > 255
                || record.meta.seqno.get() > SEQNO_MAX
                || frame::record_length(record.key, record.value) > u64::from(FRAME_BYTES_MAX)
            {
                return Err(StoreError::Invalid("a key, seqno or document beyond the format's limits"));
            }
        }
    }
    Ok(())
}

/// Whether segment numbers are about to run out.
pub(crate) fn is_exhausted(next_segment: u32) -> bool {
    next_segment >= SEGMENTS_MAX
}
