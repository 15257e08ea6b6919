//! What compaction asks memory: is this record the newest synced version of its key, and where is it now?
//!
//! The answers are careful. A clean item in the table names the newest synced version. A dirty item only knows the
//! place of the synced version before it; anything else about that key is unknown. Tombstones are unknown too, and
//! documents of keys that may have been evicted. Then the store decides by its own index. Dropped collections are the
//! exception: every version of theirs is dead.
//!
//! While a vBucket is being loaded its table may hold a version that is not the newest, or none. Then the table is
//! believed only about older records than the one that it holds: those are dead. A record that is moved before it was
//! loaded enters the table with its new place. So warm-up need not read it a second time, and no file stays on the disk
//! for warm-up's sake. Tombstones are not purged before the end. Were warm-up to begin anew, older versions in the
//! table would have nothing to tell them that they are gone.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base::{DocKey, HashedKey, Now, VbId};
use parking_lot::Mutex;
use storage::{
    CompactBudget, CompactReport, KvStore, Liveness, Locator, Record, RecordKind, StoreError, Verdict,
};

use crate::{
    api::pressure::Pool, background::warmup::Loaded, bucket::Bucket, pressure::pools::PoolCharge, shard::Env,
    vbucket::system_events::is_system_key,
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

    /// One bounded step of compaction. After each slice of well below a millisecond's work it asks `pace` whether to go
    /// on. The answer may take as long as other threads are to be left alone. False gives the step up.
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
        let purge_before = now.unix_secs().saturating_sub(self.settings.purge_interval_secs());
        let is_warm = shard.warm.load(Ordering::Acquire);
        let budget = CompactBudget {
            purge_before: if is_warm { purge_before } else { 0 },
            memory_bytes_max: self.settings.usable_bytes() / MEMORY_SHARE,
            space_ratio,
            ..CompactBudget::default()
        };
        let memory = Mutex::new(shard.pools.hold(Pool::Write, 0));
        let env = Env { shard, kind: self.options.kind, now };
        let takes_in = AtomicBool::new(false);
        let report = store.compact(&Paced { bucket: self, env, store, memory, takes_in, pace }, budget)?;
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
    env: Env<'a>,
    store: &'a Arc<dyn KvStore>,
    /// What the store was answered.
    takes_in: AtomicBool,
    memory: Mutex<PoolCharge<'a>>,
    pace: &'a Pace<'a>,
}

impl Liveness for Paced<'_> {
    fn verdict(&self, vb: VbId, record: &Record<'_>, at: Locator) -> Verdict {
        self.bucket.verdict(vb, record, at)
    }

    fn takes_in(&self) -> bool {
        // The store asks this when the copies are part of it. Warm-up sets the flag before it looks what it has to read. So
        // either it has set the flag by now, or it is going to find the copies.
        let takes_in = self.env.shard.takes_in.load(Ordering::Acquire);
        self.takes_in.store(takes_in, Ordering::Relaxed);
        takes_in
    }

    fn relocate(&self, vb: VbId, record: &Record<'_>, from: Locator, to: Locator) -> bool {
        let Ok((slot, shard)) = self.bucket.slot(vb) else { return false };
        if shard.index != self.env.shard.index {
            return false;
        }
        let mut deferred = self.bucket.deferred(shard);
        let mut v = slot.vb.lock();
        if let Some(item) = v.table.find(record.hash, record.key) {
            let at = item.locator();
            let is_version = item.seqno() == record.meta.seqno;
            // What was loaded while it was being moved may have been found where it is no more.
            let is_lost = || is_version && !item.is_dirty() && !self.store.holds(at);
            if at == from && (is_version || item.is_dirty()) || is_lost() {
                item.set_locator(to);
                return true;
            }
        }
        // Asked again: warm-up may have begun anew meanwhile, to load newest versions only. Should it scan the store after all, it finds
        // the copies, which have been part of it since the store asked.
        let is_asked_for =
            self.takes_in.load(Ordering::Relaxed) && self.env.shard.takes_in.load(Ordering::Acquire);
        if v.warming.is_none() || !is_asked_for {
            return false;
        }
        let with_value = self.bucket.mem_used() < self.bucket.watermarks().1;
        match self.bucket.load_into(&mut v, &self.env, record, to, with_value, &mut deferred) {
            Loaded::Taken => true,
            Loaded::Unwanted => false,
            Loaded::NoRoom => {
                self.env.shard.has_missed.store(true, Ordering::Release);
                false
            }
        }
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
        let key = HashedKey::new(DocKey::trusted(record.key));
        let Some(item) = v.table.find(key.hash, record.key) else {
            // No table and no cold key: what is newer than this document is a tombstone, which left once it was synced.
            let is_gone = v.warming.is_none() && !v.cold.may_contain(key.hash);
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
            std::cmp::Ordering::Equal if v.vouches_for(key, Some(item.seqno())) => Verdict::Live,
            std::cmp::Ordering::Equal => Verdict::Unknown,
            std::cmp::Ordering::Greater => Verdict::Unknown,
        }
    }
}
