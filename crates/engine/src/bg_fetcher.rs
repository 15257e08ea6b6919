//! Brings from disk what a request did not find in memory. The request is parked; one read serves all who wait for a key.
//!
//! What is read is only as good as the moment it is installed in: a value is put into the table if the version there is
//! still the one whose value it is; a version found during warm-up, if the table still cannot tell by itself; a
//! tombstone (or absence) is noted if none can have come and gone since the read began. Whatever does not fit is
//! dropped, and the woken request, executed again, asks again. A stale locator leads to a lookup by key, and a record
//! that cannot be read is an error that the request answers: never "not found".

use std::collections::{HashMap, VecDeque, hash_map::Entry};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Now, Seqno, Status, VbId};
use storage::{KvStore, Locator, OwnedRecord, StoreError};

use crate::{
    aftermath::Aftermath,
    bucket::{Bucket, Slot},
    disk_answers::DiskAnswer,
    doc::DocMeta,
    item::NewItem,
    notify::{Waiter, Work},
    shard::{Env, Shard},
    vbucket::VBucket,
    warmup,
};

/// Keys queued per shard, and requests waiting for them.
const KEYS_MAX: usize = 10_000;
const WAITERS_MAX: usize = 100_000;

/// A key to be read.
type FetchKey = (VbId, u64, Box<[u8]>);

/// A shard's keys to be read, oldest first.
#[derive(Debug, Default)]
pub(crate) struct FetchQueue {
    order: VecDeque<FetchKey>,
    waiting: HashMap<FetchKey, Vec<Waiter>, BuildHasherDefault<DefaultHasher>>,
    waiters: usize,
}

impl FetchQueue {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds a key and whoever waits for it; whether the queue was empty, `None` when it is full.
    fn push(&mut self, key: FetchKey, waiter: Option<Waiter>) -> Option<bool> {
        let was_empty = self.order.is_empty();
        let is_full = self.order.len() >= KEYS_MAX;
        if self.waiters >= WAITERS_MAX {
            return None;
        }
        match self.waiting.entry(key) {
            Entry::Occupied(mut waiting) => waiting.get_mut().extend(waiter),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(vacant) => {
                self.order.push_back(vacant.key().clone());
                vacant.insert(waiter.into_iter().collect());
            }
        }
        self.waiters += usize::from(waiter.is_some());
        Some(was_empty)
    }

    fn pop(&mut self) -> Option<(FetchKey, Vec<Waiter>)> {
        let key = self.order.pop_front()?;
        let waiters = self.waiting.remove(&key).unwrap_or_default();
        self.waiters -= waiters.len();
        Some((key, waiters))
    }
}

/// What has to be read for a key, and what memory was like when that was decided.
#[derive(Clone, Copy, Debug)]
struct Plan {
    incarnation: u32,
    tombstones_dropped: u64,
    want: Want,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    /// Memory has everything by now.
    Nothing,
    /// The value of this version.
    Value(Seqno, Locator),
    /// Whatever the newest version is.
    Version,
}

impl Bucket {
    /// Asks for a key to be brought from disk after [`crate::Refusal::Fetch`]. One read serves every waiter of a key.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many are queued already.
    pub fn fetch(&self, vb: VbId, key: HashedKey<'_>, waiter: Waiter) -> Result<(), Status> {
        self.enqueue_fetch(vb, key, Some(waiter))
    }

    /// As [`Bucket::fetch`], for background work that is going to look again.
    pub(crate) fn enqueue_fetch(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        waiter: Option<Waiter>,
    ) -> Result<(), Status> {
        let (_, shard) = self.slot(vb)?;
        if shard.store.is_none() {
            return Err(Status::Internal);
        }
        let pushed = shard.fetches.lock().push((vb, key.hash, key.key.encoded().into()), waiter);
        let was_empty = pushed.ok_or(Status::TemporaryFailure)?;
        if was_empty {
            self.notifier.work(Work::Fetch(shard.index));
        }
        Ok(())
    }

    /// Reads up to `max` queued keys of a shard from disk and wakes their waiters; returns how many. Call until it
    /// returns 0; several threads may.
    pub fn run_fetches(&self, shard: usize, max: usize, now: Now) -> usize {
        let Some(shard) = self.shards.get(shard) else { return 0 };
        let Some(store) = &shard.store else { return 0 };
        for done in 0..max {
            let Some(((vb, hash, key), waiters)) = shard.fetches.lock().pop() else { return done };
            let key = HashedKey { key: DocKey::trusted(&key), hash };
            if let Ok((slot, _)) = self.slot(vb) {
                let env = Env { shard, kind: self.options.kind, now };
                self.fetch_one(slot, &env, &**store, vb, key, waiters.len());
            }
            for waiter in waiters {
                self.notifier.wake(waiter);
            }
        }
        max
    }

    fn fetch_one(
        &self,
        slot: &Slot,
        env: &Env<'_>,
        store: &dyn KvStore,
        vb: VbId,
        key: HashedKey<'_>,
        waiters: usize,
    ) {
        let plan = plan(&slot.vb.lock(), key);
        let read = match plan.want {
            Want::Nothing => return,
            Want::Value(seqno, locator) => read_value(store, vb, key, seqno, locator),
            Want::Version => store.lookup(vb, key.hash, key.key.encoded()),
        };
        let mut after = self.aftermath(env.shard);
        let mut v = slot.vb.lock();
        if v.incarnation != plan.incarnation {
            return;
        }
        let installed = match (plan.want, read) {
            (Want::Value(seqno, _), Ok(Some(record))) => {
                install_value(&mut v, env, key, seqno, &record, &mut after)
            }
            // The version is in the table and on disk, and the disk does not find it.
            (Want::Value(..), Ok(None)) => Err(Status::Internal),
            (_, Ok(record)) => install_version(&mut v, env, key, &plan, record.as_ref(), &mut after),
            (_, Err(error)) => Err(status_of(&error)),
        };
        match installed {
            Ok(()) => {
                if matches!(plan.want, Want::Value(..)) {
                    v.ops.bg_fetched += 1;
                }
            }
            Err(status) => {
                env.shard.counters.fetch_errors.fetch_add(1, Ordering::Relaxed);
                let answer = DiskAnswer::Unreadable(status, waiters as u32);
                v.disk_answers.note(key.hash, key.key.encoded(), answer);
            }
        }
    }
}

fn plan(v: &VBucket, key: HashedKey<'_>) -> Plan {
    let found = v.table.find(key.hash, key.key.encoded());
    let vouched = v.vouches_for(key.hash, found.map(|item| item.seqno()));
    let want = match found {
        _ if !vouched => Want::Version,
        Some(item) if !item.is_resident() && !item.is_deleted() => Want::Value(item.seqno(), item.locator()),
        Some(_) => Want::Nothing,
        None if v.warming.is_some() => Want::Nothing,
        None => Want::Version,
    };
    Plan { incarnation: v.incarnation, tombstones_dropped: v.tombstones_dropped, want }
}

/// The record of a version whose place was known a moment ago.
fn read_value(
    store: &dyn KvStore,
    vb: VbId,
    key: HashedKey<'_>,
    seqno: Seqno,
    locator: Locator,
) -> Result<Option<OwnedRecord>, StoreError> {
    if !locator.is_none() {
        match store.get_at(locator) {
            Ok(record) if record.meta.seqno == seqno && *record.key == *key.key.encoded() => {
                return Ok(Some(record));
            }
            Ok(_) | Err(StoreError::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    store.lookup(vb, key.hash, key.key.encoded())
}

/// Gives a version in the table its value back.
fn install_value(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    seqno: Seqno,
    record: &OwnedRecord,
    after: &mut Aftermath<'_>,
) -> Result<(), Status> {
    let Some(item) = v.table.find(key.hash, key.key.encoded()) else { return Ok(()) };
    if item.is_resident() || item.seqno() != seqno {
        return Ok(());
    }
    if record.meta.seqno != seqno || record.value.len() != item.value_len() {
        return Err(Status::Internal);
    }
    let (id, frequency) = (item.id(), item.frequency());
    let mut whole = NewItem::new(&env.shard.arena, &item.meta(), key.key.encoded(), &record.value)
        .ok_or(Status::TemporaryFailure)?;
    // What it was before its value was ejected: one use makes nothing hot.
    whole.set_frequency(frequency);
    v.install(env, key, Some(id), whole, after)
}

/// The newest version on disk, or its absence, is known.
fn install_version(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    plan: &Plan,
    record: Option<&OwnedRecord>,
    after: &mut Aftermath<'_>,
) -> Result<(), Status> {
    let found = v.table.find(key.hash, key.key.encoded()).map(|item| (item.id(), item.seqno()));
    if v.warming.is_some() {
        if v.vouches_for(key.hash, found.map(|found| found.1)) {
            return Ok(());
        }
        match (record, found) {
            (None, None) => {}
            // Warm-up has seen a version that the lookup did not find.
            (None, Some(_)) => return Err(Status::Internal),
            (Some(record), _) => {
                let item = warmup::item_of(env.shard, v.id, record_view(record, key), record.locator, true)
                    .ok_or(Status::TemporaryFailure)?;
                v.install(env, key, found.map(|found| found.0), item, after)?;
            }
        }
        if let Some(warming) = &mut v.warming {
            warming.verify(key.hash);
        }
        return Ok(());
    }
    if found.is_some() || v.tombstones_dropped != plan.tombstones_dropped {
        return Ok(());
    }
    let answer = match record {
        None => DiskAnswer::Absent,
        Some(record) if record.meta.kind.is_tombstone() => {
            let meta = DocMeta {
                deleted: true,
                flags: record.meta.flags,
                expiry: record.meta.expiry,
                rev: record.meta.rev,
                cas: record.meta.cas,
                seqno: record.meta.seqno,
                datatype: record.meta.datatype,
            };
            DiskAnswer::Tombstone(meta, (*record.value).into())
        }
        // Every document on disk is in the table, but those of collections that are gone.
        Some(_) => DiskAnswer::Absent,
    };
    v.disk_answers.note(key.hash, key.key.encoded(), answer);
    Ok(())
}

fn record_view<'a>(record: &'a OwnedRecord, key: HashedKey<'_>) -> storage::Record<'a> {
    storage::Record {
        meta: record.meta,
        key: &record.key,
        hash: key.hash,
        value: &record.value,
        replaces: Locator::NONE,
    }
}

/// What a request is answered whose record could not be read.
fn status_of(error: &StoreError) -> Status {
    match error {
        StoreError::Io { .. } | StoreError::Stale => Status::TemporaryFailure,
        _ => Status::Internal,
    }
}

impl Shard {
    /// Keys waiting to be read.
    pub(crate) fn queued_fetches(&self) -> usize {
        self.fetches.lock().len()
    }
}
