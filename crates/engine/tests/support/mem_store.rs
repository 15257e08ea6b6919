//! A store in memory: an append-only list of records, of which a crash keeps the synced part. Its compaction moves
//! records to other locators and lets the old ones go stale; writes can be made to fail.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use base::{Seqno, VbId, hash::key_hash};
use parking_lot::Mutex;
use storage::{
    Backfill, BackfillOptions, CompactBudget, CompactReport, KvStore, Liveness, Locator, Marks, OwnedRecord,
    Pin, Record, StoreError, StoreStats, VbBatch, VbState, Verdict,
};

#[derive(Clone, Default)]
struct Contents {
    /// By locator, which is never used twice.
    records: BTreeMap<u64, (VbId, OwnedRecord)>,
    states: BTreeMap<VbId, VbState>,
}

#[derive(Default)]
struct Inner {
    written: Contents,
    synced: Contents,
    next_locator: u64,
    full: bool,
    fail_sync: bool,
    poisoned: bool,
    unreadable: bool,
    unreachable: bool,
    resets: BTreeMap<VbId, u32>,
    /// Of the next scan: how many records can be read before the disk does not answer.
    readable_records: Option<usize>,
    hints: Option<Vec<u8>>,
    stats: StoreStats,
}

fn no_answer() -> StoreError {
    let source = std::io::Error::other("by order of a test");
    StoreError::Io { action: "read", file: "memory".into(), source }
}

/// Something to happen in the middle of a read.
type Interlude = Box<dyn FnOnce() + Send>;

/// See the module header.
#[derive(Default)]
pub(crate) struct MemStore {
    inner: Arc<Mutex<Inner>>,
    interlude: Mutex<Option<Interlude>>,
    before_commit: Mutex<Option<Interlude>>,
    after_reset: Mutex<Option<Interlude>>,
}

fn play(interlude: &Mutex<Option<Interlude>>) {
    let interlude = interlude.lock().take();
    if let Some(interlude) = interlude {
        interlude();
    }
}

impl MemStore {
    /// Forgets what was not synced.
    pub(crate) fn crash(&self) {
        let mut inner = self.inner.lock();
        inner.written = inner.synced.clone();
        (inner.poisoned, inner.fail_sync) = (false, false);
    }

    /// Whether commits find the disk full.
    pub(crate) fn set_full(&self, full: bool) {
        self.inner.lock().full = full;
    }

    /// The next sync fails.
    pub(crate) fn fail_sync(&self) {
        self.inner.lock().fail_sync = true;
    }

    /// Whether reads fail.
    pub(crate) fn set_unreadable(&self, unreadable: bool) {
        self.inner.lock().unreadable = unreadable;
    }

    /// Whether the disk does not answer.
    pub(crate) fn set_unreachable(&self, unreachable: bool) {
        self.inner.lock().unreachable = unreachable;
    }

    /// The next scan fails after so many records.
    pub(crate) fn end_next_scan_after(&self, records: usize) {
        self.inner.lock().readable_records = Some(records);
    }

    /// The next read (`get_at`, `lookup`, a record of `scan`, the beginning of a backfill) is followed by this before its caller sees the result.
    pub(crate) fn after_next_read(&self, interlude: impl FnOnce() + Send + 'static) {
        *self.interlude.lock() = Some(Box::new(interlude));
    }

    fn play_interlude(&self) {
        play(&self.interlude);
    }

    /// The next commit is preceded by this, when all that it writes has been taken from memory.
    pub(crate) fn before_next_commit(&self, interlude: impl FnOnce() + Send + 'static) {
        *self.before_commit.lock() = Some(Box::new(interlude));
    }

    /// The next reset of vBuckets is followed by this.
    pub(crate) fn after_next_reset(&self, interlude: impl FnOnce() + Send + 'static) {
        *self.after_reset.lock() = Some(Box::new(interlude));
    }

    /// Loses the newest version of a key, and does not know that it had one.
    pub(crate) fn lose_newest(&self, vb: VbId, key: &[u8]) {
        let mut inner = self.inner.lock();
        let (at, _) = inner.newest(vb, key).unwrap();
        inner.written.records.remove(&at);
        inner.synced.records.remove(&at);
    }

    /// Writes and syncs so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.inner.lock().stats.syncs
    }
}

/// Everything as it was written when this was made.
struct MemPin(Contents, u64);

impl Pin for MemPin {
    fn get_at(&self, at: Locator) -> Result<OwnedRecord, StoreError> {
        self.0.records.get(&at.0).map(|record| record.1.clone()).ok_or(StoreError::Stale)
    }

    fn generation(&self) -> u64 {
        self.1
    }
}

/// A vBucket as it was synced when this was made.
struct MemBackfill {
    inner: Arc<Mutex<Inner>>,
    vb: VbId,
    resets: u32,
    state: VbState,
    records: VecDeque<OwnedRecord>,
}

impl Backfill for MemBackfill {
    fn end(&self) -> Seqno {
        self.state.high_seqno
    }

    fn purge_seqno(&self) -> Seqno {
        self.state.purge_seqno
    }

    fn marks(&self) -> Marks {
        self.state.marks
    }

    fn memory_bytes(&self) -> usize {
        self.records.iter().map(|record| record.key.len() + record.value.len()).sum()
    }

    fn next_located(
        &mut self,
        bytes_max: usize,
        visit: &mut dyn FnMut(&Record<'_>, Locator),
    ) -> Result<bool, StoreError> {
        {
            let inner = self.inner.lock();
            inner.readable()?;
            if inner.resets.get(&self.vb).copied().unwrap_or(0) != self.resets {
                return Err(StoreError::Reset);
            }
        }
        let mut bytes = 0;
        while bytes < bytes_max.max(1) {
            let Some(record) = self.records.pop_front() else { return Ok(false) };
            bytes += record.key.len() + record.value.len() + 1;
            let view = view(&record);
            visit(&view, record.locator);
        }
        Ok(true)
    }
}

impl Inner {
    fn writable(&self) -> Result<(), StoreError> {
        if self.poisoned {
            Err(StoreError::Poisoned)
        } else if self.full {
            Err(StoreError::NoSpace)
        } else {
            Ok(())
        }
    }

    fn readable(&self) -> Result<(), StoreError> {
        if self.unreachable {
            return Err(no_answer());
        }
        if self.unreadable {
            return Err(StoreError::Corrupt {
                file: "memory".into(),
                offset: 0,
                detail: "by order of a test",
            });
        }
        Ok(())
    }

    /// Raises what is known to be purged.
    fn purge(&mut self, vb: VbId, seqno: Seqno) {
        let (written, synced) = (self.written.states.get_mut(&vb), self.synced.states.get_mut(&vb));
        for state in written.into_iter().chain(synced) {
            state.purge_seqno = state.purge_seqno.max(seqno);
        }
    }

    fn newest(&self, vb: VbId, key: &[u8]) -> Option<(u64, OwnedRecord)> {
        let versions =
            self.written.records.iter().filter(|(_, record)| {
                record.0 == vb && record.1.key == key && !record.1.meta.kind.is_prepared()
            });
        versions.max_by_key(|(_, record)| record.1.meta.seqno).map(|(at, record)| (*at, record.1.clone()))
    }
}

impl KvStore for MemStore {
    fn vb_states(&self) -> Vec<(VbId, VbState)> {
        self.inner.lock().written.states.clone().into_iter().collect()
    }

    fn commit(&self, batches: &[VbBatch<'_>], locators: &mut Vec<Locator>) -> Result<(), StoreError> {
        play(&self.before_commit);
        let mut inner = self.inner.lock();
        inner.writable()?;
        locators.clear();
        for batch in batches {
            let mut last = Seqno(0);
            for record in batch.records {
                assert!(record.meta.seqno > last, "records come in seqno order");
                assert!(record.meta.seqno <= batch.state.high_seqno);
                assert_eq!(record.hash, key_hash(record.key));
                last = record.meta.seqno;
                inner.next_locator += 1;
                let locator = Locator(inner.next_locator);
                let owned = OwnedRecord {
                    meta: record.meta,
                    key: record.key.to_vec(),
                    value: record.value.to_vec(),
                    locator,
                };
                inner.written.records.insert(locator.0, (batch.vb, owned));
                locators.push(locator);
            }
            let purged = inner.written.states.get(&batch.vb).map_or(Seqno(0), |known| known.purge_seqno);
            inner.written.states.insert(batch.vb, batch.state.clone());
            inner.purge(batch.vb, purged);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        if inner.fail_sync {
            inner.poisoned = true;
        }
        if inner.poisoned {
            return Err(StoreError::Poisoned);
        }
        inner.stats.syncs += 1;
        inner.synced = inner.written.clone();
        Ok(())
    }

    fn put_hints(&self, hints: &[u8]) -> Result<(), StoreError> {
        self.inner.lock().hints = Some(hints.to_vec());
        Ok(())
    }

    fn hints(&self) -> Option<Vec<u8>> {
        self.inner.lock().hints.clone()
    }

    fn put_states(&self, states: &[(VbId, VbState)]) -> Result<(), StoreError> {
        let mut inner = self.inner.lock();
        // Metadata fits into the reserve of a full disk.
        if inner.poisoned {
            return Err(StoreError::Poisoned);
        }
        for (vb, state) in states {
            inner.written.states.insert(*vb, state.clone());
        }
        // Metadata is synced with everything before it.
        inner.synced = inner.written.clone();
        inner.stats.syncs += 1;
        Ok(())
    }

    fn reset_vbs(&self, vbs: &[(VbId, VbState)]) -> Result<(), StoreError> {
        self.inner.lock().writable()?;
        let mut inner = self.inner.lock();
        for (vb, _) in vbs {
            *inner.resets.entry(*vb).or_default() += 1;
            inner.written.records.retain(|_, record| record.0 != *vb);
            inner.synced.records.retain(|_, record| record.0 != *vb);
        }
        drop(inner);
        self.put_states(vbs)?;
        play(&self.after_reset);
        Ok(())
    }

    fn get_at(&self, at: Locator) -> Result<OwnedRecord, StoreError> {
        let read = {
            let inner = self.inner.lock();
            inner.readable()?;
            inner.written.records.get(&at.0).map(|record| record.1.clone()).ok_or(StoreError::Stale)
        };
        self.play_interlude();
        read
    }

    fn lookup(&self, vb: VbId, key: &[u8]) -> Result<Option<OwnedRecord>, StoreError> {
        let read = {
            let inner = self.inner.lock();
            inner.readable()?;
            inner.newest(vb, key).map(|found| found.1)
        };
        self.play_interlude();
        Ok(read)
    }

    fn scan(
        &self,
        vb: Option<VbId>,
        from: Seqno,
        values: bool,
        visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
    ) -> Result<(), StoreError> {
        let records: Vec<_> = self.inner.lock().written.records.values().cloned().collect();
        // In an order that is neither that of the seqnos nor its reverse.
        let mut order: Vec<usize> = (0..records.len()).collect();
        order.sort_by_key(|index| key_hash(&index.to_le_bytes()));
        let readable = self.inner.lock().readable_records.take();
        for (read, (of, record)) in order.into_iter().filter_map(|index| records.get(index)).enumerate() {
            if readable.is_some_and(|readable| read >= readable) {
                return Err(no_answer());
            }
            if vb.is_some_and(|vb| vb != *of) || record.meta.seqno < from {
                continue;
            }
            self.play_interlude();
            let value = if values { &record.value[..] } else { &[] };
            let view = Record { value, ..view(record) };
            if !visit(*of, &view, record.locator) {
                break;
            }
        }
        Ok(())
    }

    fn pin(&self) -> Box<dyn Pin> {
        let inner = self.inner.lock();
        Box::new(MemPin(inner.written.clone(), inner.next_locator))
    }

    fn generation(&self) -> u64 {
        self.inner.lock().next_locator
    }

    fn backfill(
        &self,
        vb: VbId,
        from: Seqno,
        options: BackfillOptions,
    ) -> Result<Box<dyn Backfill>, StoreError> {
        let inner = self.inner.lock();
        inner.readable()?;
        let mut newest = BTreeMap::new();
        for (_, record) in inner.synced.records.values().filter(|(of, _)| *of == vb) {
            let space = record.meta.kind.is_prepared();
            let slot = newest.entry((record.key.clone(), space)).or_insert_with(|| record.clone());
            if slot.meta.seqno < record.meta.seqno {
                *slot = record.clone();
            }
        }
        let version_of = |key: &Vec<u8>| newest.get(&(key.clone(), false)).map(|version| version.meta.seqno);
        let is_open = |prepared: &OwnedRecord| version_of(&prepared.key) < Some(prepared.meta.seqno);
        let mut records: Vec<OwnedRecord> = newest
            .values()
            .filter(|record| record.meta.seqno > from)
            .filter(|record| !record.meta.kind.is_prepared() || options.prepares && is_open(record))
            .cloned()
            .collect();
        // Out of order means out of order.
        records.sort_by_key(|r| if options.unordered { key_hash(&r.key) } else { r.meta.seqno.get() });
        if options.keys_only {
            let needs = options.values_of.unwrap_or(|_, _| false);
            let bare = records.iter_mut().filter(|record| !needs(record.meta.kind, &record.key));
            bare.for_each(|record| record.value = Vec::new());
        }
        let state = inner.synced.states.get(&vb).cloned().unwrap_or_default();
        let resets = inner.resets.get(&vb).copied().unwrap_or(0);
        drop(inner);
        self.play_interlude();
        let inner = self.inner.clone();
        Ok(Box::new(MemBackfill { inner, vb, resets, state, records: records.into() }))
    }

    fn compact(&self, liveness: &dyn Liveness, budget: CompactBudget) -> Result<CompactReport, StoreError> {
        self.inner.lock().writable()?;
        let mut report = CompactReport::default();
        let candidates: Vec<_> = self.inner.lock().synced.records.clone().into_iter().collect();
        for (at, (vb, record)) in candidates {
            if record.meta.kind.is_prepared() {
                let mut inner = self.inner.lock();
                let marks = inner.synced.states.get(&vb).map_or(Marks::default(), |state| state.marks);
                if record.meta.seqno <= marks.completed {
                    inner.written.records.remove(&at);
                    inner.synced.records.remove(&at);
                    report.records_dropped += 1;
                }
                continue;
            }
            let view = view(&record);
            let verdict = liveness.verdict(vb, &view, Locator(at));
            let mut inner = self.inner.lock();
            let newest = inner.newest(vb, &record.key).map(|found| found.0);
            let synced_versions = inner.synced.records.values();
            let newest_synced = synced_versions
                .filter(|other| {
                    other.0 == vb && other.1.key == record.key && !other.1.meta.kind.is_prepared()
                })
                .map(|other| other.1.meta.seqno)
                .max();
            let dead = match verdict {
                Verdict::Live => {
                    assert_eq!(newest_synced, Some(record.meta.seqno), "live means newest synced version");
                    false
                }
                Verdict::Dead => true,
                Verdict::Unknown => newest_synced > Some(record.meta.seqno),
            };
            let others =
                inner.written.records.values().filter(|other| other.0 == vb && other.1.key == record.key);
            let purged = !dead
                && record.meta.kind.is_tombstone()
                && record.meta.expiry < budget.purge_before
                && newest == Some(at)
                && others.count() == 1;
            inner.written.records.remove(&at);
            inner.synced.records.remove(&at);
            if dead || purged {
                report.records_dropped += 1;
                if purged {
                    report.tombstones_purged += 1;
                    report.purged.push((vb, record.meta.seqno));
                    inner.purge(vb, record.meta.seqno);
                }
                continue;
            }
            inner.next_locator += 1;
            let to = inner.next_locator;
            let moved = OwnedRecord { locator: Locator(to), ..record.clone() };
            inner.written.records.insert(to, (vb, moved.clone()));
            inner.synced.records.insert(to, (vb, moved));
            report.records_kept += 1;
            drop(inner);
            liveness.relocate(vb, &view, Locator(at), Locator(to));
        }
        Ok(report)
    }

    fn close(&self) -> Result<(), StoreError> {
        self.sync()
    }

    fn stats(&self) -> StoreStats {
        let inner = self.inner.lock();
        StoreStats { poisoned: inner.poisoned, full: inner.full, ..inner.stats.clone() }
    }
}

fn view(record: &OwnedRecord) -> Record<'_> {
    Record {
        meta: record.meta,
        key: &record.key,
        hash: key_hash(&record.key),
        value: &record.value,
        replaces: Locator::NONE,
    }
}
