//! What compaction asks memory: is this record the newest synced version of its key, and where is it now?
//!
//! The answers are careful. A clean item in the table names the newest synced version. A dirty one only knows the place of
//! the synced version before it, so anything else about that key is unknown, as are tombstones and the documents of keys
//! that may have been evicted: the store then decides by its own index. Dropped collections are the exception: every version of theirs is dead.

use base::{DocKey, Now, Seqno, VbId, hash::key_hash};
use parking_lot::Mutex;
use storage::{CompactBudget, CompactReport, Liveness, Locator, Record, RecordKind, StoreError, Verdict};

use crate::{
    bucket::Bucket,
    pools::{Held, Pool},
    system_events::is_system_key,
};

/// What is on disk may exceed what is alive by this much only, when the disk is short of space.
const SPACE_RATIO_WHEN_SHORT: f64 = 1.02;

/// What the lists of a step may take of the bucket's memory: one part in so many.
const MEMORY_SHARE: u64 = 32;

/// Asked between two slices of a step: rests, and says whether to go on.
pub type Pace<'a> = dyn Fn() -> bool + Sync + 'a;

impl Bucket {
    /// One bounded step of compaction, as fast as it can.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn compact(&self, shard: usize, now: Now) -> Result<CompactReport, StoreError> {
        self.compact_paced(shard, now, &|| true)
    }

    /// One bounded step of compaction, which asks `pace` whether to go on after each slice of well below a millisecond's
    /// work: the answer may take as long as others are to be left alone. False gives the step up.
    ///
    /// # Errors
    /// As [`Bucket::compact`].
    pub fn compact_paced(
        &self,
        shard: usize,
        now: Now,
        pace: &Pace<'_>,
    ) -> Result<CompactReport, StoreError> {
        let is_short = self.shards.get(shard).is_some_and(|shard| shard.gate.is_short_of_space());
        let ratio = if is_short { SPACE_RATIO_WHEN_SHORT } else { CompactBudget::default().space_ratio };
        self.compact_within(shard, now, ratio, pace)
    }

    /// As [`Bucket::compact`], for a user who asked for it: compacts whatever has anything to gain.
    ///
    /// # Errors
    /// As [`Bucket::compact`].
    pub fn compact_eagerly(&self, shard: usize, now: Now) -> Result<CompactReport, StoreError> {
        self.compact_eagerly_paced(shard, now, &|| true)
    }

    /// As [`Bucket::compact_eagerly`], with rests as [`Bucket::compact_paced`].
    ///
    /// # Errors
    /// As [`Bucket::compact`].
    pub fn compact_eagerly_paced(
        &self,
        shard: usize,
        now: Now,
        pace: &Pace<'_>,
    ) -> Result<CompactReport, StoreError> {
        self.compact_within(shard, now, 1.0, pace)
    }

    /// Whether compaction is to take what it can get, since the disk has no space for anything else.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        self.shards.iter().any(|shard| shard.gate.is_short_of_space())
    }

    fn compact_within(
        &self,
        shard: usize,
        now: Now,
        space_ratio: f64,
        pace: &Pace<'_>,
    ) -> Result<CompactReport, StoreError> {
        let Some(shard) = self.shards.get(shard) else { return Ok(CompactReport::default()) };
        let Some(store) = &shard.store else { return Ok(CompactReport::default()) };
        let budget = CompactBudget {
            purge_before: now.unix_secs().saturating_sub(self.settings.purge_interval_secs()),
            memory_bytes_max: self.settings.usable_bytes() / MEMORY_SHARE,
            space_ratio,
            ..CompactBudget::default()
        };
        let memory = Mutex::new(shard.pools.hold(Pool::Write, 0));
        let report = store.compact(&Paced { bucket: self, memory, pace }, budget)?;
        for &(vb, seqno) in &report.purged {
            if let Ok((slot, _)) = self.slot(vb) {
                let mut v = slot.vb.lock();
                v.purge_seqno = v.purge_seqno.max(seqno.min(v.persisted_seqno));
                v.disk_answers.clear();
            }
        }
        Ok(report)
    }
}

/// The bucket's word on what is alive, and somebody else's on when to rest.
struct Paced<'a> {
    bucket: &'a Bucket,
    memory: Mutex<Held<'a>>,
    pace: &'a Pace<'a>,
}

impl Liveness for Paced<'_> {
    fn verdict(&self, vb: VbId, record: &Record<'_>, at: Locator) -> Verdict {
        self.bucket.verdict(vb, record, at)
    }

    fn relocate(&self, vb: VbId, key: &[u8], hash: u64, seqno: Seqno, from: Locator, to: Locator) -> bool {
        self.bucket.relocate(vb, key, hash, seqno, from, to)
    }

    fn go_on(&self, memory_bytes: u64) -> bool {
        self.memory.lock().set(memory_bytes);
        (self.pace)()
    }
}

impl Bucket {
    fn verdict(&self, vb: VbId, record: &Record<'_>, at: Locator) -> Verdict {
        if self.collections.load().is_dropped(DocKey::trusted(record.key).collection()) {
            return Verdict::Dead;
        }
        let Ok((slot, _)) = self.slot(vb) else { return Verdict::Unknown };
        let v = slot.vb.lock();
        let hash = key_hash(record.key);
        let Some(item) = v.table.find(hash, record.key) else {
            // No table and no cold key: what is newer than this document is a tombstone, which left once it was synced.
            let is_gone = v.warming.is_none() && !v.cold.may_contain(hash);
            return if is_gone && record.meta.kind == RecordKind::Document && !is_system_key(record.key) {
                Verdict::Dead
            } else {
                Verdict::Unknown
            };
        };
        if item.is_dirty() {
            return if item.locator() == at { Verdict::Live } else { Verdict::Unknown };
        }
        match record.meta.seqno.cmp(&item.seqno()) {
            std::cmp::Ordering::Less => Verdict::Dead,
            std::cmp::Ordering::Equal => Verdict::Live,
            std::cmp::Ordering::Greater => Verdict::Unknown,
        }
    }

    fn relocate(&self, vb: VbId, key: &[u8], hash: u64, seqno: Seqno, from: Locator, to: Locator) -> bool {
        let Ok((slot, _)) = self.slot(vb) else { return false };
        let v = slot.vb.lock();
        let Some(item) = v.table.find(hash, key) else { return false };
        let is_current = item.locator() == from && (item.seqno() == seqno || item.is_dirty());
        if is_current {
            item.set_locator(to);
        }
        is_current
    }
}
