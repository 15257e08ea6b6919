//! A shard's store as its bucket uses it: what each call of [`KvStore`] does with the state that [`Core`] holds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Seqno, VbId};

use crate::{
    api::{
        Backfill, BackfillOptions, CompactBudget, CompactReport, KvStore, Liveness, Locator, Options,
        OwnedRecord, Pin, Record, SpaceUse, StoreStats, VbBatch, VbState,
    },
    backfill::SegmentBackfill,
    compact,
    counters::count,
    error::StoreError,
    fs::Fs,
    hints,
    locator::Place,
    lookup,
    pin::{self, SegmentPin},
    read_many, recover,
    state::Core,
    writer::{self},
};

/// The segment log: [`KvStore`] over files.
pub struct SegmentLog {
    core: Core,
}

/// Opens the store in `dir`, which is created if need be.
///
/// # Errors
/// [`StoreError::Locked`] when another process has it, [`StoreError::Version`] and [`StoreError::Corrupt`] when the
/// manifest cannot be used, [`StoreError::Io`].
pub fn open(dir: &Path, fs: Arc<dyn Fs>, options: Options) -> Result<SegmentLog, StoreError> {
    recover::open(dir, fs, options).map(|core| SegmentLog { core })
}

impl Core {
    /// Sets aside what deletions and compaction need on a full disk. Returns whether it is: then the rest is for anybody.
    ///
    /// # Errors
    /// What the disk answers, unless that is that it is full.
    pub(crate) fn set_aside(&self) -> Result<bool, StoreError> {
        if self.compaction_reserve.is_released() {
            // A step that goes on is using what it was given, and takes it back when it ends. If none does, there may be room again,
            // which only a thread that asks notices.
            return self.compact_lock.try_lock().map_or(Ok(false), |_no_step| compact::take_back(self));
        }
        Ok(self.compaction_reserve.settle()? && self.reserve.restore()?)
    }

    fn commit(&self, batches: &[VbBatch<'_>], locators: &mut Vec<Locator>) -> Result<(), StoreError> {
        self.counters.check()?;
        self.publish();
        writer::validate(batches)?;
        let frees = writer::frees_space(batches);
        // As with any other file that cannot be made: nobody knows what the disk is up to.
        if !frees && !self.set_aside().inspect_err(|cause| self.counters.poison(cause))? {
            self.reserve.note_full(true);
            return Err(StoreError::NoSpace);
        }
        if self.unsettled.load(Ordering::Relaxed) {
            self.write_manifest(&[])?;
        }
        let mut writer = self.writer.lock();
        let (committed, first) = writer.append(self, batches, locators);
        if !matches!(first, Err(StoreError::NoSpace)) {
            if !frees && first.is_ok() {
                self.reserve.note_full(false);
            }
            return first;
        }
        self.reserve.note_full(true);
        let rest = batches.get(committed..).unwrap_or_default();
        if frees && writer::bytes(rest) <= self.reserve.bytes() && self.reserve.release() {
            return writer.append(self, rest, locators).1;
        }
        first
    }

    fn reset(&self, vbs: &[(VbId, VbState)]) -> Result<(), StoreError> {
        self.counters.check()?;
        check_states(vbs)?;
        // A compaction in between would copy what is dead by then, and say of tombstones that they were purged. Nobody holds this
        // lock while waiting for a commit, so it is safe to wait for.
        self.compaction_awaited.fetch_add(1, Ordering::Relaxed);
        let _no_compaction = self.compact_lock.lock();
        self.compaction_awaited.fetch_sub(1, Ordering::Relaxed);
        // Order matters: memory learns of it when it is on disk. Otherwise a thread that reads meanwhile, to load the bucket for
        // instance, would pass over documents. If there is no space for the manifest, these documents are still there.
        self.replace_manifest(&[], vbs)?;
        self.recount_stale();
        self.resets.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn check_states(states: &[(VbId, VbState)]) -> Result<(), StoreError> {
    let parts: Vec<_> = states.iter().map(|(vb, state)| VbBatch { vb: *vb, state, records: &[] }).collect();
    writer::validate(&parts)
}

impl KvStore for SegmentLog {
    fn vb_states(&self) -> Vec<(VbId, VbState)> {
        self.core.writer.lock().states().map(|(vb, state)| (vb, state.clone())).collect()
    }

    fn commit(&self, batches: &[VbBatch<'_>], locators: &mut Vec<Locator>) -> Result<(), StoreError> {
        locators.clear();
        let result = self.core.commit(batches, locators);
        match result {
            Ok(()) => count(&self.core.counters.commits, 1),
            // Some may have found room.
            Err(StoreError::NoSpace) => {}
            Err(_) => locators.clear(),
        }
        result
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.core.sync()
    }

    fn put_states(&self, states: &[(VbId, VbState)]) -> Result<(), StoreError> {
        self.core.counters.check()?;
        check_states(states)?;
        let mut writer = self.core.writer.lock();
        for (vb, state) in states {
            writer.set_state(*vb, state, false);
        }
        drop(writer);
        self.core.write_manifest(&[])
    }

    fn put_hints(&self, hints: &[u8]) -> Result<(), StoreError> {
        hints::put(&self.core, hints)
    }

    fn hints(&self) -> Option<Vec<u8>> {
        hints::read(&self.core)
    }

    fn reset_vbs(&self, vbs: &[(VbId, VbState)]) -> Result<(), StoreError> {
        self.core.reset(vbs)
    }

    fn get_at(&self, at: Locator) -> Result<OwnedRecord, StoreError> {
        let place = Place::unpack(at);
        let segment = self.core.segment(place.segment);
        pin::read(segment.as_ref(), place, &self.core.incarnations)
    }

    fn holds(&self, at: Locator) -> bool {
        self.core.set.read().contains_key(&Place::unpack(at).segment)
    }

    fn get_many(&self, places: &[Locator], visit: &mut dyn FnMut(usize, Result<OwnedRecord, StoreError>)) {
        read_many::read(&self.core, places, visit);
    }

    fn lookup(&self, vb: VbId, key: &[u8]) -> Result<Option<OwnedRecord>, StoreError> {
        lookup::newest(&self.core, vb, key)
    }

    fn scan(
        &self,
        vb: Option<VbId>,
        from: Seqno,
        values: bool,
        visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
    ) -> Result<(), StoreError> {
        lookup::scan(&self.core, vb, from, values, visit)
    }

    fn scan_recovered(
        &self,
        visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
    ) -> Result<(), StoreError> {
        lookup::scan_recovered(&self.core, visit)
    }

    fn generation(&self) -> u64 {
        // Pairs with the release of the thread that changes the set: a thread that sees a locator that came with a change sees its
        // generation.
        self.core.generation.load(Ordering::Acquire)
    }

    fn pin(&self) -> Box<dyn Pin> {
        Box::new(SegmentPin::new(&self.core))
    }

    fn backfill(
        &self,
        vb: VbId,
        from: Seqno,
        options: BackfillOptions,
    ) -> Result<Box<dyn Backfill>, StoreError> {
        let backfill = SegmentBackfill::new(&self.core, vb, from, options)?;
        Ok(Box::new(backfill))
    }

    fn compact(&self, liveness: &dyn Liveness, budget: CompactBudget) -> Result<CompactReport, StoreError> {
        compact::step(&self.core, liveness, budget)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.core.counters.check()?;
        // Without space for a footer the next open scans the segment instead.
        match self.core.writer.lock().seal(&self.core) {
            Ok(()) | Err(StoreError::NoSpace) => {}
            Err(cause) => return Err(cause),
        }
        let end = self.core.end.load();
        self.core.write_manifest(&[])?;
        self.core.acknowledged.advance(end);
        Ok(())
    }

    fn stats(&self) -> StoreStats {
        self.core.stats()
    }

    fn space(&self) -> SpaceUse {
        self.core.space()
    }
}

impl SegmentLog {
    /// Lets go without writing anything more, as a crash would: the next open recovers.
    pub fn abandon(self) {
        self.core.counters.abandon();
    }
}

impl Drop for SegmentLog {
    fn drop(&mut self) {
        if !self.core.counters.is_poisoned()
            && let Err(error) = self.close()
        {
            tracing::warn!(%error, "store dropped without a clean end; the next open recovers it");
        }
    }
}
