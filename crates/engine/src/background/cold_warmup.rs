//! Loading a shard whose bucket evicts keys: memory need not hold a word about every document.
//!
//! vBucket by vBucket the disk is asked for the newest version of every key. While memory has room the documents go
//! into the table, values included. Of the others the keys are gathered, sorted by hash, and *settled* a few per lock
//! hold. A key that the table has by then was written or fetched meanwhile; every other key becomes a cold key. Up to
//! the hash that has been settled the table and the cold keys are right. For hashes beyond it requests ask the disk, as
//! in any vBucket being loaded.
//!
//! An earlier attempt may have loaded part of the shard in the disk's order. The bucket kept all keys then, and the disk could not
//! be read to the end. What that left in the tables may be superseded, and nothing that is read here would tell. So it leaves first.
//!
//! Memory meanwhile: what a backfill takes, and the keys of one vBucket.
//!
//! A vBucket that cannot be read throughout is loaded like one of a bucket that keeps all keys ([`crate::background::warmup`]).

use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Seqno, VbId};
use storage::{BackfillOptions, KvStore, Locator, Record, RecordKind, StoreError};

use crate::{
    api::pressure::Pool,
    background::warmup,
    bucket::Bucket,
    memory::{hash_table::ScanPosition, item::ItemRef},
    shard::{Env, Shard},
    vbucket::{VBucket, system_events::is_system_key},
};

/// Bytes read between two looks at whether the bucket is being closed.
const STEP_BYTES: usize = 1 << 20;
/// Keys settled per lock hold.
const CHUNK: usize = 64;

/// Keys of one vBucket that are on disk and found no room.
#[derive(Default)]
struct Gathered {
    keys: Vec<u8>,
    entries: Vec<Entry>,
    /// System events, which are always loaded.
    events: Vec<Box<[u8]>>,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    seqno: Seqno,
    expiry: u32,
    /// Of the key among all keys.
    start: usize,
    length: u8,
}

impl Gathered {
    fn push(&mut self, record: &Record<'_>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(record.key);
        self.entries.push(Entry {
            hash: record.hash,
            seqno: record.meta.seqno,
            expiry: record.meta.expiry,
            start,
            length: record.key.len() as u8,
        });
    }

    fn key(&self, entry: &Entry) -> HashedKey<'_> {
        let end = entry.start + usize::from(entry.length);
        let key = self.keys.get(entry.start..end).unwrap_or_default();
        HashedKey { key: DocKey::trusted(key), hash: entry.hash }
    }

    fn memory_bytes(&self) -> u64 {
        (self.keys.capacity() + self.entries.capacity() * size_of::<Entry>()) as u64
    }
}

impl Bucket {
    /// Loads every vBucket of a shard; see the module header.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn warm_up_cold(
        &self,
        env: &Env<'_>,
        store: &dyn KvStore,
        pause: &dyn Fn(),
    ) -> Result<(), StoreError> {
        for vb in self.vbs_of(env.shard) {
            if env.shard.gate.is_closed() {
                return Ok(());
            }
            let Ok((slot, _)) = self.slot(vb) else { continue };
            if slot.vb.lock().warming.is_none() {
                continue;
            }
            let gathered = self.gather_cold(env, store, vb, pause).and_then(|gathered| {
                gathered.iter().try_for_each(|gathered| self.load_events(env, store, vb, gathered))?;
                Ok(gathered)
            });
            match gathered {
                Ok(Some(gathered)) => {
                    self.settle_gathered(env, vb, gathered);
                    self.finish_warm_up(env, vb, true);
                }
                Ok(None) => return Ok(()),
                Err(StoreError::Corrupt { .. }) => {
                    store.scan(Some(vb), Seqno(0), true, &mut |vb, record, locator| {
                        // What finds no room is looked up when it is asked for, as everything is where something was damaged.
                        self.load(env, vb, record, locator, false);
                        !env.shard.gate.is_closed()
                    })?;
                    self.finish_warm_up(env, vb, false);
                }
                Err(error) => return Err(error),
            }
        }
        env.shard.warm.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes out of a shard's tables what an earlier attempt has left there and a table is not believed about.
    pub(crate) fn forget_unsettled(&self, env: &Env<'_>) {
        // Order matters: compaction that takes a table's lock after this sees it, and puts nothing behind the search.
        env.shard.takes_in.store(false, Ordering::Release);
        for (slot, shard) in self.vbs_of(env.shard).filter_map(|vb| self.slot(vb).ok()) {
            let mut position = Some(ScanPosition::default());
            while let Some(from) = position {
                let mut deferred = self.deferred(shard);
                let mut v = slot.vb.lock();
                let mut leaving = Vec::new();
                position = v.table.scan(from, CHUNK, &mut |item| {
                    let key = HashedKey::new(DocKey::trusted(item.key()));
                    if !v.vouches_for(key, Some(item.seqno())) {
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

    /// Reads a vBucket's newest versions; `None` when the bucket is closed meanwhile.
    fn gather_cold(
        &self,
        env: &Env<'_>,
        store: &dyn KvStore,
        vb: VbId,
        pause: &dyn Fn(),
    ) -> Result<Option<Gathered>, StoreError> {
        let has_room = || self.mem_used() < self.watermarks().1;
        let options =
            BackfillOptions { unordered: true, keys_only: !has_room(), ..BackfillOptions::default() };
        let mut backfill = store.backfill(vb, Seqno(0), options)?;
        let mut gathered = Gathered::default();
        let mut held = env.shard.pools.hold(Pool::ColdIndex, 0);
        let mut more = true;
        while more {
            if env.shard.gate.is_closed() {
                return Ok(None);
            }
            pause();
            let with_values = !options.keys_only && has_room();
            more = backfill.next_located(STEP_BYTES, &mut |record, at| {
                env.shard.warmed_items.fetch_add(1, Ordering::Relaxed);
                env.shard.note_read(record);
                if !with_values || !self.load_live(env, vb, record, at) {
                    self.meet(vb, record, &mut gathered);
                }
            })?;
            held.set(gathered.memory_bytes() + backfill.memory_bytes() as u64);
        }
        gathered.entries.sort_unstable_by_key(|entry| entry.hash);
        Ok(Some(gathered))
    }

    /// Puts a document into the table; false when it is none, or there is no memory for it.
    fn load_live(&self, env: &Env<'_>, vb: VbId, record: &Record<'_>, at: Locator) -> bool {
        let is_document = record.meta.kind == RecordKind::Document && !is_system_key(record.key);
        is_document && self.load(env, vb, record, at, true)
    }

    /// Notes the newest version of a key on disk.
    fn meet(&self, vb: VbId, record: &Record<'_>, gathered: &mut Gathered) {
        if is_system_key(record.key) {
            gathered.events.push(record.key.into());
        } else if record.meta.kind == RecordKind::Document {
            gathered.push(record);
        } else if let Ok((slot, _)) = self.slot(vb) {
            // Tombstones that are on disk need no memory; the collection has moved on all the same.
            let mut v = slot.vb.lock();
            if v.warming.is_some() {
                v.counts.advance(DocKey::trusted(record.key), record.meta.seqno);
            }
        }
    }

    /// System events are in the table until it is known what they say.
    fn load_events(
        &self,
        env: &Env<'_>,
        store: &dyn KvStore,
        vb: VbId,
        gathered: &Gathered,
    ) -> Result<(), StoreError> {
        for key in &gathered.events {
            if let Some(found) = store.lookup(vb, key)? {
                let record = warmup::record_of(&found, base::hash::key_hash(key));
                self.load(env, vb, &record, found.locator, true);
            }
        }
        Ok(())
    }

    /// Makes cold keys of what the table does not have.
    fn settle_gathered(&self, env: &Env<'_>, vb: VbId, gathered: Gathered) {
        let _held = env.shard.pools.hold(Pool::ColdIndex, gathered.memory_bytes());
        let Ok((slot, shard)) = self.slot(vb) else { return };
        let mut rest = gathered.entries.as_slice();
        while let Some(first) = rest.first() {
            // Equal hashes are settled together.
            let last = rest.get(CHUNK - 1).map_or(u64::MAX, |entry| entry.hash);
            let (chunk, others) =
                rest.split_at(rest.partition_point(|entry| entry.hash <= last.max(first.hash)));
            rest = others;
            let mut v = slot.vb.lock();
            if v.warming.is_none() {
                // Emptied meanwhile: these are keys of the history before.
                return;
            }
            let collections = self.collections.load();
            for entry in chunk {
                let key = gathered.key(entry);
                if !collections.is_dropped(key.key.collection()) {
                    v.settle_cold(shard, key, entry.seqno, entry.expiry);
                }
            }
            if let Some(warming) = &mut v.warming {
                warming.settled = Some(last);
            }
        }
        if let Some(warming) = &mut slot.vb.lock().warming {
            warming.settled = Some(u64::MAX);
        }
    }
}

impl VBucket {
    /// A document that is on disk becomes a cold key, unless the table knows its key.
    fn settle_cold(&mut self, shard: &Shard, key: HashedKey<'_>, seqno: Seqno, expiry: u32) {
        if self.table.find(key.hash, key.key.encoded()).is_some() {
            return;
        }
        self.change_cold(shard, |cold| cold.insert(key.hash, seqno));
        self.counts.find_evicted(key.key, seqno);
        if expiry != 0 {
            self.cold_next_expiry = self.cold_next_expiry.min(expiry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use base::{CollectionId, Now, bucket::EvictionPolicy};
    use storage::{FaultFs, Options};

    use super::*;
    use crate::{BucketChange, BucketOptions, Notifier, Store, Waiter, Work, memory::arena::Purpose};

    struct Deaf;

    impl Notifier for Deaf {
        fn wake(&self, _: Waiter) {}
        fn work(&self, _: Work) {}
    }

    const DOCUMENTS: u64 = 100;
    const NOW: Now = Now { wall_nanos: 1_800_000_000 * 1_000_000_000, mono_millis: 0 };

    fn open(fs: &FaultFs, eviction: EvictionPolicy) -> Arc<Bucket> {
        let log = storage::open(Path::new("/cold"), Arc::new(fs.clone()), Options::default()).unwrap();
        let options = BucketOptions { vbuckets: 1, eviction, ..BucketOptions::new("cold", 64 << 20) };
        let stores = vec![Arc::new(log) as Arc<dyn KvStore>];
        Bucket::open(options, stores, Arc::default(), Arc::new(Deaf), NOW).unwrap()
    }

    fn flip_a_bit_of(fs: &FaultFs, bytes: &[u8]) {
        let mut names = storage::Fs::list(fs, Path::new("/cold")).unwrap();
        names.retain(|name| name.ends_with(".seg"));
        let is_hit = |name: &String| {
            let path = Path::new("/cold").join(name);
            let content = fs.contents(&path).unwrap();
            let at = content.windows(bytes.len()).position(|window| window == bytes);
            at.is_some_and(|at| fs.flip_bit(&path, at as u64, 3))
        };
        assert_eq!(names.iter().filter(|name| is_hit(name)).count(), 1);
    }

    /// No memory is left for anything.
    fn exhaust(shard: &Shard) {
        let mut bytes = 1 << 30;
        while bytes > 0 {
            while shard.arena.alloc(bytes, Purpose::Table).is_some() {}
            while shard.arena.alloc(bytes, Purpose::Item).is_some() {}
            bytes /= 2;
        }
    }

    /// A disk with so many documents.
    fn filled() -> FaultFs {
        let fs = FaultFs::new(3);
        let bucket = open(&fs, EvictionPolicy::FullEviction);
        for number in 0..DOCUMENTS {
            let (key, value) = (format!("\0key {number:04}"), format!("value {number:04}"));
            let key = HashedKey::new(DocKey::trusted(key.as_bytes()));
            bucket.store(VbId(0), key, &Store::set(value.as_bytes()), NOW).unwrap();
        }
        while bucket.flush(0, Now { mono_millis: 1_000, ..NOW }).unsynced {}
        drop(bucket);
        fs.crash();
        fs
    }

    fn switch(bucket: &Bucket) {
        let full = Some(EvictionPolicy::FullEviction);
        bucket.reconfigure(BucketChange { eviction: full, ..BucketChange::default() });
    }

    #[test]
    fn a_loading_that_finds_no_room_goes_on_once_the_bucket_evicts_keys() {
        let fs = filled();
        let bucket = open(&fs, EvictionPolicy::ValueOnly);
        exhaust(&bucket.shards[0]);
        assert!(bucket.warm_up(0, NOW).unwrap() && bucket.warm_up(0, NOW).unwrap());
        assert!(!bucket.is_warm(), "there is no room");
        switch(&bucket);
        assert!(!bucket.warm_up(0, NOW).unwrap() && bucket.is_warm());
        assert_eq!(bucket.stats().evicted, DOCUMENTS);
    }

    #[test]
    fn a_loading_takes_no_more_memory_from_when_on_the_bucket_evicts_keys() {
        let fs = filled();
        let bucket = open(&fs, EvictionPolicy::ValueOnly);
        bucket.reconfigure(BucketChange { quota_bytes: Some(0), ..BucketChange::default() });
        assert!(!bucket.warm_up_pausing(0, NOW, &|| switch(&bucket)).unwrap() && bucket.is_warm());
        assert_eq!(bucket.stats().evicted, DOCUMENTS);
    }

    #[test]
    fn what_finds_no_room_does_not_end_the_loading_of_a_damaged_vbucket() {
        let fs = filled();
        flip_a_bit_of(&fs, b"key 0040");
        let bucket = open(&fs, EvictionPolicy::FullEviction);
        exhaust(&bucket.shards[0]);
        while bucket.warm_up(0, NOW).unwrap() {}
        assert!(bucket.slot(VbId(0)).unwrap().0.vb.lock().warming.is_some(), "there is damage");
        assert_eq!(bucket.stats().non_resident, 0, "there is no room");
        assert_eq!(bucket.collection_seqno(VbId(0), CollectionId::DEFAULT), Ok(Seqno(DOCUMENTS)));
    }
}
