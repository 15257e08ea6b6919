//! What a store counts, and the list of damaged places it has found.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::error::StoreError;

/// Damaged places listed by name; more are only counted.
const CORRUPT_LISTED_MAX: usize = 1000;

/// Shared by everything that belongs to one store. All counters are statistics: relaxed, they order nothing.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) records_written: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) compaction_bytes_read: AtomicU64,
    pub(crate) compaction_bytes_written: AtomicU64,
    /// Bytes that compaction has given back, what it wrote for that taken off.
    pub(crate) reclaimed: AtomicU64,
    /// What the step in progress is as good as through with, and still lies on disk twice or dead.
    pub(crate) reclaiming: AtomicU64,
    pub(crate) manifest_writes: AtomicU64,
    pub(crate) records_read: AtomicU64,
    pub(crate) backfills: AtomicU64,
    pub(crate) pins: AtomicU64,
    pub(crate) backfill_records: AtomicU64,
    pub(crate) backfill_bytes: AtomicU64,
    /// Memory that the writer keeps for batches, as of the last.
    pub(crate) buffer_bytes: AtomicU64,
    corrupt: Mutex<BTreeSet<(String, u64)>>,
    corrupt_count: AtomicU64,
    poisoned: AtomicBool,
    /// Damage of a segment was seen that no manifest tells of yet.
    damage_due: AtomicBool,
}

impl Counters {
    /// Notes a damaged place (once) and makes the error that names it.
    pub(crate) fn corrupt(&self, file: &str, offset: u64, detail: &'static str) -> StoreError {
        let mut places = self.corrupt.lock();
        let place = (file.to_owned(), offset);
        if !places.contains(&place) && (self.corrupt_count.load(Relaxed) as usize) < CORRUPT_LISTED_MAX {
            places.insert(place);
            self.corrupt_count.fetch_add(1, Relaxed);
            tracing::error!(file, offset, detail, "corrupt data");
        } else if !places.contains(&(file.to_owned(), offset)) {
            self.corrupt_count.fetch_add(1, Relaxed);
        }
        StoreError::Corrupt { file: file.to_owned(), offset, detail }
    }

    pub(crate) fn corrupt_places(&self) -> (Vec<(String, u64)>, u64) {
        (self.corrupt.lock().iter().cloned().collect(), self.corrupt_count.load(Relaxed))
    }

    /// What is known of a segment's damage has changed: a manifest is due.
    pub(crate) fn note_damage(&self) {
        self.damage_due.store(true, Relaxed);
    }

    /// Whether there is damage that no manifest tells of yet.
    pub(crate) fn is_damage_due(&self) -> bool {
        self.damage_due.load(Relaxed)
    }

    /// A manifest is about to tell of all damage so far. Returns whether there is any that none tells of yet: if that one comes to
    /// nothing, it is to be noted again.
    pub(crate) fn take_damage(&self) -> bool {
        self.damage_due.swap(false, Relaxed)
    }

    /// Stops all writing: what the disk holds of the last writes is unknown.
    pub(crate) fn poison(&self, cause: &StoreError) {
        if !self.poisoned.swap(true, Relaxed) {
            tracing::error!(%cause, "shard poisoned: no more writes until restart");
        }
    }

    /// Stops all writing without a word.
    pub(crate) fn abandon(&self) {
        self.poisoned.store(true, Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Relaxed)
    }

    /// # Errors
    /// [`StoreError::Poisoned`] after [`Counters::poison`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_poisoned() { Err(StoreError::Poisoned) } else { Ok(()) }
    }
}

/// Adds to a statistic.
pub(crate) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}
