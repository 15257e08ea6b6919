//! Loading the documents of a shard after a start.
//!
//! The disk is read in whatever order is fastest, superseded versions and tombstones included. So until the end the
//! table may hold a version that is not the newest. Requests do not see that. While a vBucket is being loaded its table
//! is believed only about keys written since the start, and keys that were looked up individually. For all others a
//! request fetches. Tombstones stay in the table until the end, so that an older version of the key read later does not
//! come back. First come the documents that were used most before the stop ([`crate::background::hot_keys`]), looked up
//! one by one. Then values are loaded in the disk's order until memory reaches the low watermark, then metadata only.
//! What is written meanwhile is in the table already and not read again: warm-up ends even where writers are faster.
//!
//! Compaction goes on meanwhile ([`crate::background::compactor`]). When it takes a record out of the store that was not read here
//! yet, it has told the table of it. For that [`Shard::takes_in`] is set before warm-up looks what it has to read.
//!
//! A shard in which something could not be read stays like that after the end. What was lost may have been the newest
//! version of any key. So each key is looked up on disk once before the table is believed about it. A request for a
//! lost one is told that it is unreadable. It is told neither that the key is absent, nor an older version.

use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Now, VbId, VbRole, bucket::EvictionPolicy};
use storage::{Locator, OwnedRecord, Record, RecordKind, StoreError};

use crate::{
    bucket::Bucket,
    memory::{
        hash_table::ScanPosition,
        item::{ItemRef, NewItem},
        item_kind::{item_meta, mark_expired},
    },
    shard::{Env, Shard, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        system_events::{SystemEvent, is_system_key},
        version::FREQUENCY_INITIAL,
    },
};

/// How many records are read before memory is looked at again.
const MEMORY_CHECK_RECORDS: u64 = 256;
/// Documents looked at per lock hold at the end.
const CHUNK: usize = 256;

/// What became of a record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// The table has it now.
    Taken,
    /// It is nothing that the table has, or is superseded by what that has.
    Unwanted,
    /// There was no memory for it.
    NoRoom,
}

impl Bucket {
    /// Loads a shard's documents. True: not all of them have found room in memory. Then it is to be called again after a while, since
    /// the bucket may have got more room, or evict keys by then. One call may read the whole shard, so it wants a thread of
    /// its own. It holds no lock for long and ends early when the bucket is closed.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn warm_up(&self, shard: usize, now: Now) -> Result<bool, StoreError> {
        self.warm_up_pausing(shard, now, &|| ())
    }

    /// As [`Bucket::warm_up`]; `pause` is called every few hundred records, under no lock: it may make way for
    /// requests that wait for the disk ([`Bucket::fetches_waiting`]).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn warm_up_pausing(&self, shard: usize, now: Now, pause: &dyn Fn()) -> Result<bool, StoreError> {
        let Some(shard) = self.shards.get(shard) else { return Ok(false) };
        let Some(store) = &shard.store else { return Ok(false) };
        if shard.warm.load(Ordering::Acquire) {
            return Ok(false);
        }
        let env = Env { shard, kind: self.options.kind, now };
        // Of every shard: until then writes are refused there.
        for other in &self.shards {
            self.begin_collections(other, now)?;
        }
        let evicts_keys = || self.settings.eviction() == EvictionPolicy::FullEviction;
        if evicts_keys() {
            self.forget_unsettled(&env);
            self.load_hot_keys(&env, &**store, pause);
            return self.warm_up_cold(&env, &**store, pause).map(|()| false);
        }
        self.load_hot_keys(&env, &**store, pause);
        shard.has_missed.store(false, Ordering::Release);
        // Order matters: see [`Liveness::takes_in`](storage::Liveness::takes_in) of compaction's word on what is alive.
        shard.takes_in.store(true, Ordering::Release);
        let (_, low_watermark) = self.watermarks();
        let mut with_values = true;
        let (mut complete, mut is_switched) = (true, false);
        let mut count = 0_u64;
        store.scan_recovered(&mut |vb, record, locator| {
            if count.is_multiple_of(MEMORY_CHECK_RECORDS) {
                with_values = self.mem_used() < low_watermark;
                if !with_values {
                    // For the keys that are still to come; without this memory stands between the watermarks till the end.
                    self.call_pager();
                }
                shard.warmed_items.store(count, Ordering::Relaxed);
                pause();
                is_switched = evicts_keys();
            }
            count += 1;
            shard.note_read(record);
            complete &= self.load(&env, vb, record, locator, with_values);
            !shard.gate.is_closed() && !is_switched
        })?;
        shard.warmed_items.store(count, Ordering::Relaxed);
        if shard.gate.is_closed() {
            return Ok(false);
        }
        if is_switched {
            // By now memory need not hold them all.
            return self.warm_up_pausing(shard.index, now, pause);
        }
        if !complete || shard.has_missed.load(Ordering::Acquire) {
            return Ok(true);
        }
        let is_sound = store.stats().corrupt_count == 0;
        self.vbs_of(shard).for_each(|vb| self.finish_warm_up(&env, vb, is_sound));
        shard.takes_in.store(false, Ordering::Release);
        shard.warm.store(true, Ordering::Release);
        Ok(false)
    }

    /// Puts one record of the shard into its table, if that is where it belongs; false when there was no memory for it.
    pub(crate) fn load(
        &self,
        env: &Env<'_>,
        vb: VbId,
        record: &Record<'_>,
        locator: Locator,
        with_value: bool,
    ) -> bool {
        let Ok((slot, shard)) = self.slot(vb) else { return true };
        if shard.index != env.shard.index {
            return true;
        }
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        self.load_into(&mut v, env, record, locator, with_value, &mut deferred) != Loaded::NoRoom
    }

    /// Puts one record of a vBucket of the shard into its table, unless that knows better.
    pub(crate) fn load_into(
        &self,
        v: &mut VBucket,
        env: &Env<'_>,
        record: &Record<'_>,
        locator: Locator,
        with_value: bool,
        deferred: &mut DeferredEffects<'_>,
    ) -> Loaded {
        let key = HashedKey { key: DocKey::trusted(record.key), hash: record.hash };
        let is_wanted = v.warming.is_some()
            && !record.meta.kind.is_prepared()
            && !self.collections.load().is_dropped(key.key.collection());
        if !is_wanted {
            return Loaded::Unwanted;
        }
        // Also of keys that have been looked up meanwhile, of which a tombstone need not be in the table.
        v.counts.advance(key.key, record.meta.seqno);
        if v.warming.as_ref().is_some_and(|warming| warming.is_verified(key)) {
            return Loaded::Unwanted;
        }
        let found = v.table.find(key.hash, record.key).map(|item| (item.id(), item.seqno()));
        if found.is_some_and(|found| found.1 >= record.meta.seqno) {
            return Loaded::Unwanted;
        }
        let with_value = with_value || is_system_key(record.key);
        let item = item_of(env.shard, v.id, *record, locator, with_value)
            .or_else(|| item_of(env.shard, v.id, *record, locator, false));
        let installed = item.map(|item| v.install(env, key, found.map(|found| found.0), item, deferred));
        if matches!(installed, Some(Ok(()))) { Loaded::Taken } else { Loaded::NoRoom }
    }

    /// Every record of a vBucket has been seen: the table is the truth from here on, if the disk could be read
    /// throughout. Tombstones and system events that the disk has need no memory any more; events that are missing are
    /// recorded.
    pub(crate) fn finish_warm_up(&self, env: &Env<'_>, vb: VbId, is_sound: bool) {
        let Ok((slot, shard)) = self.slot(vb) else { return };
        let manifest_stays = self.manifest_changes.lock();
        let is_whole;
        loop {
            let owed = slot.vb.lock().events.owed();
            let events = self.events_in_table(vb);
            let mut deferred = self.deferred(shard);
            let mut v = slot.vb.lock();
            if v.warming.is_none() {
                return;
            }
            if v.events.owed() != owed {
                // Some were recorded meanwhile, perhaps behind the search.
                continue;
            }
            is_whole = is_sound && !v.pending.is_damaged();
            if is_whole {
                v.warming = None;
            } else if let Some(warming) = &mut v.warming {
                // Of no key the table tells: the disk knows which ones cannot be read.
                warming.is_counted = warming.settled == Some(u64::MAX);
                warming.settled = None;
            }
            if v.role == VbRole::Active {
                v.catch_up(env, &events, &self.manifest(), &mut deferred);
            }
            break;
        }
        drop(manifest_stays);
        if is_whole {
            self.drop_all_written(env, vb);
        }
    }

    /// The system events in a vBucket's table, looked for a few documents per lock hold.
    fn events_in_table(&self, vb: VbId) -> Vec<SystemEvent> {
        let mut events = Vec::new();
        let Ok((slot, _)) = self.slot(vb) else { return events };
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            position = slot.vb.lock().table.scan(from, CHUNK, &mut |item| {
                if is_system_key(item.key()) {
                    events.extend(SystemEvent::decode(item.value()));
                }
            });
        }
        events
    }

    /// Takes tombstones and system events that the disk has out of a table that is right about every key, a few per lock
    /// hold.
    fn drop_all_written(&self, env: &Env<'_>, vb: VbId) {
        let Ok((slot, shard)) = self.slot(vb) else { return };
        let mut position = Some(ScanPosition::default());
        while let Some(from) = position {
            let mut deferred = self.deferred(shard);
            let mut v = slot.vb.lock();
            let mut leaving = Vec::new();
            position = v.table.scan(from, CHUNK, &mut |item| {
                if (is_system_key(item.key()) || item.is_deleted()) && !item.is_dirty() {
                    leaving.push(item.id());
                }
            });
            for id in leaving {
                // SAFETY: the id comes from a scan of this table under the lock that is still held.
                let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
                if let Some(gone) = v.drop_written(HashedKey::new(DocKey::trusted(item.key())), item) {
                    deferred.release(gone);
                }
            }
        }
    }
}

/// What was read from disk, as a record.
pub(crate) fn record_of(read: &OwnedRecord, hash: u64) -> Record<'_> {
    Record { meta: read.meta, key: &read.key, hash, value: &read.value, replaces: Locator::NONE }
}

/// A clean item for a record on disk.
pub(crate) fn item_of<'a>(
    shard: &'a Shard,
    vb: VbId,
    record: Record<'_>,
    locator: Locator,
    with_value: bool,
) -> Option<NewItem<'a>> {
    let deleted = record.meta.kind.is_tombstone();
    let meta = item_meta(vb, &record.meta, locator);
    // A document that fits without its value gets none: header, key, and the value on disk.
    let mut item = if with_value || deleted || record.value.is_empty() {
        NewItem::new(&shard.arena, &meta, record.key, record.value)?
    } else {
        NewItem::without_value(&shard.arena, &meta, record.key, record.value.len())?
    };
    if deleted {
        mark_expired(&mut item, record.meta.kind == RecordKind::Expiration);
    } else {
        item.set_frequency(FREQUENCY_INITIAL);
    }
    Some(item)
}

impl VBucket {
    /// Takes a synced tombstone or system event out of the table; returns the table's reference to it.
    pub(crate) fn drop_written(
        &mut self,
        key: HashedKey<'_>,
        item: ItemRef<'_>,
    ) -> Option<crate::memory::item::ItemPtr> {
        let taken = self.table.remove(key.hash, item.id())?;
        self.counts.exchange(key.key, Some(crate::vbucket::counts::Weight::of(item)), None);
        self.lookups.departed(key.hash);
        Some(taken)
    }
}
