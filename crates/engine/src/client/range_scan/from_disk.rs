//! Creating a scan of a vBucket of which memory does not know every key: from the disk alone, as of one synced seqno.
//!
//! First everything that had happened when the scan was asked for has to be synced. Then one backfill tells the newest
//! version of every key with its place, and pins keep those places readable.

use base::{Now, Seqno, Status};
use storage::{Backfill, BackfillOptions, KvStore, RecordKind, StoreError};

use super::creation;
use crate::{
    bucket::Bucket,
    history::scan::{Document, Entry, Reading, Scan, Selected},
    shard::Shard,
    vbucket::version::is_due,
};

/// Read per step.
const STEP_BYTES: usize = 1 << 20;

impl Bucket {
    /// Reads on; whether everything has been read, `None` while the disk is not that far.
    pub(super) fn read_some(
        &self,
        scan: &Scan,
        reading: &mut Reading,
        now: Now,
    ) -> Result<Option<bool>, Status> {
        let (slot, shard) = self.slot(scan.vb)?;
        let Some(store) = &shard.store else { return Err(Status::NotSupported) };
        if reading.backfill.is_none() {
            let mut deferred = self.deferred(shard);
            let v = slot.vb.lock();
            if v.persisted_seqno < reading.until {
                shard.gate.admits_deletes()?;
                deferred.flush();
                return Ok(None);
            }
            drop(v);
            reading.backfill = Some(open(scan, &**store)?);
        }
        let Some(backfill) = &mut reading.backfill else { return Err(Status::Internal) };
        let (keys, found) = (&mut reading.keys, &mut reading.found);
        let more = backfill.next_located(STEP_BYTES, &mut |record, locator| {
            let is_shown = record.meta.kind == RecordKind::Document
                && !is_due(record.meta.expiry, now)
                && scan.wants(record.key);
            if is_shown {
                let entry = Entry { key_end: 0, seqno: record.meta.seqno, locator };
                found.push(Document { start: keys.len(), length: record.key.len() as u8, entry });
                keys.extend_from_slice(record.key);
            }
        });
        let more = more.map_err(|error| status_of(&error))?;
        if !more {
            reading.backfill = None;
        }
        if !self.range_scans.account(scan, reading.bytes(), self.scan_bytes_max()) {
            return Err(Status::Busy);
        }
        Ok(Some(!more))
    }

    /// From what was read to what is shown.
    pub(super) fn select_read(&self, scan: &Scan, mut reading: Reading) -> Result<(), Status> {
        let mut found = std::mem::take(&mut reading.found);
        if found.is_empty() {
            return Err(Status::KeyNotFound);
        }
        let hash_of = |document: &Document| base::hash::key_hash(reading.key(document));
        creation::sample(&scan.options.selection, &mut found, hash_of);
        found.sort_unstable_by(|a, b| reading.key(a).cmp(reading.key(b)));
        let mut selected = Selected::default();
        for document in &found {
            selected.keys.extend_from_slice(reading.key(document));
            selected.entries.push(Entry { key_end: selected.keys.len(), ..document.entry });
        }
        drop((found, reading));
        let (_, shard): (_, &Shard) = self.slot(scan.vb)?;
        self.conclude(scan, shard, selected)
    }
}

/// A backfill of the vBucket, every place of which is pinned.
fn open(scan: &Scan, store: &dyn KvStore) -> Result<Box<dyn Backfill>, Status> {
    let options = BackfillOptions { unordered: true, keys_only: true, ..BackfillOptions::default() };
    let mut pins = scan.pins.lock();
    loop {
        pins.cover(store);
        let backfill = store.backfill(scan.vb, Seqno(0), options).map_err(|error| status_of(&error))?;
        // Had compaction moved something in between, its new place would not be pinned.
        if pins.are_current(store) {
            return Ok(backfill);
        }
    }
}

fn status_of(error: &StoreError) -> Status {
    match error {
        StoreError::Reset => Status::NotMyVbucket,
        StoreError::Io { .. } | StoreError::Stale => Status::TemporaryFailure,
        _ => Status::Internal,
    }
}
