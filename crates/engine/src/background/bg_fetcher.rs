//! Brings from disk what a request did not find in memory. The request is parked; one read serves all who wait for a key.
//!
//! The table may have changed since the read began, so what was read is judged when it is installed:
//! - A value enters the table if the version there is still the one that it belongs to.
//! - A version found during warm-up enters if the table still cannot tell by itself.
//! - A tombstone (or absence) is noted if no version can have come and gone since the read began.
//!
//! What does not fit is dropped. The woken request is executed again, and asks again. A stale locator leads to a lookup
//! by key. A record that cannot be read is an error that the request answers: never "not found".

use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Now, Seqno, Status, VbId, bucket::EvictionPolicy};
use storage::{KvStore, Locator, OwnedRecord, RecordKind, StoreError};

use crate::{
    api::{
        doc::DocMeta,
        notify::{Waiter, Work},
        pressure::Pool,
    },
    background::warmup,
    bucket::Bucket,
    memory::{
        item::{NewItem, item_bytes},
        item_kind::kept_flags,
    },
    shard::{
        Env, Shard,
        deferred::DeferredEffects,
        fetch_queue::{FetchKey, Finished, KEYS_MAX, Pushed},
    },
    vbucket::{
        VBucket,
        disk_answers::{DiskAnswer, Loss},
        system_events::is_system_key,
        version::is_due,
    },
};

/// Beyond so many queued keys nothing is asked for ahead of its time: what is waited for comes first.
const AHEAD_KEYS_MAX: usize = KEYS_MAX / 4;
/// What a queued key takes beside its bytes: twice the key's list entry, its place in the map, a waiter or two.
const QUEUED_KEY_BYTES: usize = 160;
/// What somebody takes who waits for a place.
const CROWD_BYTES: u64 = size_of::<Waiter>() as u64;

/// What became of asking for a fetch. Either way the request is woken, and to be executed again then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetching {
    /// The key is going to be read.
    Queued,
    /// Too many are: it is not asked for yet. Nothing more is to be read from the request's connection meanwhile, so that
    /// each has one request at most that waits for a place.
    Crowded,
}

/// What has to be read for a key, and what memory was like when that was decided.
#[derive(Clone, Copy, Debug)]
struct Plan {
    incarnation: u32,
    want: Want,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    /// Memory has everything by now.
    Nothing,
    /// The value of this version.
    Value(Seqno, Locator),
    /// Whatever the newest version is; what ends the look-up.
    Version(u32),
}

impl Bucket {
    /// Asks for a key to be brought from disk after [`crate::Refusal::Fetch`]. One read serves every waiter of a key. A read
    /// is never refused because many are waiting: it waits as well.
    ///
    /// # Errors
    /// For a vBucket that is not here, or has no disk.
    pub fn fetch(&self, vb: VbId, key: HashedKey<'_>, waiter: Waiter) -> Result<Fetching, Status> {
        self.enqueue_fetch(vb, key, Some(waiter))
    }

    /// Asks for a document that is going to be read soon, if it is on disk only: it may be there by then. A hint: where
    /// anything stands in the way nothing happens.
    pub fn fetch_ahead(&self, vb: VbId, key: HashedKey<'_>) {
        let Ok((slot, shard)) = self.slot(vb) else { return };
        if shard.store.is_none() || shard.queued_fetches() >= AHEAD_KEYS_MAX {
            return;
        }
        let is_cold = slot.vb.try_lock().is_some_and(|v| v.may_be_cold(key));
        if is_cold {
            // A full queue is as good a reason as any not to.
            let _ = self.enqueue_fetch(vb, key, None);
        }
    }

    /// As [`Bucket::fetch`], for background work that is going to look again, whatever the answer.
    pub(crate) fn enqueue_fetch(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        waiter: Option<Waiter>,
    ) -> Result<Fetching, Status> {
        let (_, shard) = self.slot(vb)?;
        if shard.store.is_none() {
            return Err(Status::Internal);
        }
        let (pushed, crowded_out) = {
            let mut queue = shard.fetches.lock();
            let before = queue.len();
            let pushed = queue.push((vb, key.hash, key.key.encoded().into()), waiter);
            if queue.len() > before {
                shard.pools.add(Pool::Fetch, queued_bytes(key.key.encoded()));
            }
            let crowded_out = queue.crowded_out();
            if pushed == Pushed::Crowded && waiter.is_some() && crowded_out.is_none() {
                shard.pools.add(Pool::Fetch, CROWD_BYTES);
            }
            (pushed, crowded_out)
        };
        if let Some(waiter) = crowded_out {
            self.notifier.wake(waiter);
        }
        match pushed {
            Pushed::First => self.notifier.work(Work::Fetch(shard.index)),
            Pushed::Behind => {}
            Pushed::Crowded => return Ok(Fetching::Crowded),
        }
        Ok(Fetching::Queued)
    }

    /// Keys of a shard that wait to be read.
    #[must_use]
    pub fn fetches_waiting(&self, shard: usize) -> usize {
        self.shards.get(shard).map_or(0, Shard::queued_fetches)
    }

    /// Reads up to `max` queued keys of a shard from disk and wakes their waiters; returns how many. Call until it
    /// returns 0; several threads may, and each takes a share of what is queued.
    pub fn run_fetches(&self, shard: usize, max: usize, now: Now) -> usize {
        let Some(shard) = self.shards.get(shard) else { return 0 };
        let Some(store) = &shard.store else { return 0 };
        let env = Env { shard, kind: self.options.kind, now };
        let mut done = 0;
        while done < max {
            let (keys, more) = shard.fetches.lock().take(max - done);
            if keys.is_empty() {
                break;
            }
            if more {
                // Another thread that fetches for this shard need not wait until these are read.
                self.notifier.work(Work::Fetch(shard.index));
            }
            done += keys.len();
            self.fetch_batch(&env, &**store, &keys);
        }
        done
    }

    fn fetch_batch(&self, env: &Env<'_>, store: &dyn KvStore, keys: &[FetchKey]) {
        let mut looked_up = Vec::new();
        let (mut places, mut planned) = (Vec::new(), Vec::new());
        for key in keys {
            let Ok((slot, _)) = self.slot(key.0) else { continue };
            let plan = plan(&mut slot.vb.lock(), hashed(key));
            match plan.want {
                Want::Nothing => self.end_fetch(env, key),
                Want::Value(_, at) if !at.is_none() => {
                    places.push(at);
                    planned.push((key, plan));
                }
                Want::Value(..) | Want::Version(_) => looked_up.push((key, plan)),
            }
        }
        store.get_many(&places, &mut |number, read| {
            let Some(&(key, plan)) = planned.get(number) else { return };
            let read = match read {
                Ok(record) if is_wanted(&record, key, &plan) => Ok(Some(record)),
                Ok(_) | Err(StoreError::Stale) => store.lookup(key.0, &key.2),
                Err(error) => Err(error),
            };
            self.deliver(env, key, &plan, read);
        });
        for (key, plan) in looked_up {
            self.deliver(env, key, &plan, store.lookup(key.0, &key.2));
        }
    }

    /// Brings a key into memory that nobody waits for, with the frequency it had. What cannot be read stays on disk.
    pub(crate) fn bring(
        &self,
        env: &Env<'_>,
        store: &dyn KvStore,
        vb: VbId,
        key: HashedKey<'_>,
        frequency: u8,
    ) {
        let Ok((slot, _)) = self.slot(vb) else { return };
        let plan = plan(&mut slot.vb.lock(), key);
        let is_there = matches!(plan.want, Want::Nothing);
        let read = if is_there { Ok(None) } else { store.lookup(vb, key.key.encoded()) };
        let mut deferred = self.deferred(env.shard);
        let mut v = slot.vb.lock();
        let holds = !matches!(plan.want, Want::Version(ticket) if !v.lookups.end(ticket));
        if !is_there && holds && v.incarnation == plan.incarnation {
            // A request that needs the key learns from its own look-up why this one failed.
            let _ = self.install(&mut v, env, key, &plan, read, &mut deferred);
        }
        if let Some(item) = v.table.find(key.hash, key.key.encoded()).filter(|item| !item.is_deleted()) {
            item.set_frequency(item.frequency().max(frequency));
        }
    }

    /// Puts what was read where it belongs and wakes who waited.
    fn deliver(
        &self,
        env: &Env<'_>,
        key: &FetchKey,
        plan: &Plan,
        read: Result<Option<OwnedRecord>, StoreError>,
    ) {
        let bytes = read.as_ref().ok().and_then(Option::as_ref).map_or(0, |record| record.value.len());
        let _held = env.shard.pools.hold(Pool::Fetch, bytes as u64);
        if bytes > 0 {
            // Readers pass whatever the quota says; what comes for them pushes something else out at once.
            self.fits_reserve(env, bytes);
        }
        let waiters = env.shard.fetches.lock().waiters_of(key);
        if let Ok((slot, _)) = self.slot(key.0) {
            let mut deferred = self.deferred(env.shard);
            let mut v = slot.vb.lock();
            let holds = !matches!(plan.want, Want::Version(ticket) if !v.lookups.end(ticket));
            if holds && v.incarnation == plan.incarnation {
                let installed = self.install(&mut v, env, hashed(key), plan, read, &mut deferred);
                settle_fetch(&mut v, env, key, installed, waiters);
            }
        }
        self.end_fetch(env, key);
    }

    /// Whether a document came of it.
    fn install(
        &self,
        v: &mut VBucket,
        env: &Env<'_>,
        key: HashedKey<'_>,
        plan: &Plan,
        read: Result<Option<OwnedRecord>, StoreError>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<bool, Status> {
        let record = read.map_err(|error| status_of(&error))?;
        match (plan.want, record) {
            (Want::Value(seqno, _), Some(record)) => install_value(v, env, key, seqno, &record, deferred),
            // The version is in the table and on disk, and the disk does not find it.
            (Want::Value(..), None) => Err(Status::Internal),
            (_, record) => {
                // Asked under the lock: the counts of dropped collections are changed under it.
                let collections = self.collections.load();
                let exists =
                    |record: &OwnedRecord| !collections.is_dropped(DocKey::trusted(&record.key).collection());
                let record = record.filter(exists);
                if record.as_ref().is_some_and(|record| self.is_kept_out(v, env, key, record)) {
                    return Err(Status::TemporaryFailure);
                }
                install_version(v, env, key, record.as_ref(), deferred)
            }
        }
    }

    /// Whether a document has to stay on disk for want of memory. Where a bucket keeps all keys, one that it had evicted before would
    /// not leave again. What has expired is about to.
    fn is_kept_out(&self, v: &VBucket, env: &Env<'_>, key: HashedKey<'_>, record: &OwnedRecord) -> bool {
        self.settings.eviction() == EvictionPolicy::ValueOnly
            && v.cold.may_contain(key.hash)
            && is_document(record)
            && !is_due(record.meta.expiry, env.now)
            && v.table.find(key.hash, key.key.encoded()).is_none()
            && !self.fits_overdraft_now(item_bytes(key.key, record.value.len()))
    }

    fn end_fetch(&self, env: &Env<'_>, key: &FetchKey) {
        let Finished { waiters, admitted } = env.shard.fetches.lock().finish(key);
        let crowd_bytes = admitted.len() as u64 * CROWD_BYTES;
        env.shard.pools.sub(Pool::Fetch, queued_bytes(&key.2) + crowd_bytes);
        waiters.into_iter().chain(admitted).for_each(|waiter| self.notifier.wake(waiter));
    }
}

/// Counts what became of a fetch, and notes a failure for those who wait.
fn settle_fetch(
    v: &mut VBucket,
    env: &Env<'_>,
    key: &FetchKey,
    installed: Result<bool, Status>,
    waiters: usize,
) {
    match installed {
        Ok(has_come) => v.ops.bg_fetched += u64::from(has_come),
        Err(status) => {
            env.shard.counters.fetch_errors.fetch_add(1, Ordering::Relaxed);
            let loss = if status == Status::Internal { Loss::Damaged } else { Loss::ForNow };
            v.disk_answers.note(key.1, &key.2, DiskAnswer::Unreadable(loss, waiters as u32));
            if v.cold.may_contain(key.1) {
                // It may have been fetched because it has expired: then it is to be found again.
                v.cold_next_expiry = v.cold_next_expiry.min(env.now.unix_secs());
            }
        }
    }
}

fn queued_bytes(key: &[u8]) -> u64 {
    (2 * key.len() + QUEUED_KEY_BYTES) as u64
}

fn hashed(key: &FetchKey) -> HashedKey<'_> {
    HashedKey { key: DocKey::trusted(&key.2), hash: key.1 }
}

fn is_wanted(record: &OwnedRecord, key: &FetchKey, plan: &Plan) -> bool {
    matches!(plan.want, Want::Value(seqno, _) if record.meta.seqno == seqno) && *record.key == *key.2
}

fn plan(v: &mut VBucket, key: HashedKey<'_>) -> Plan {
    let found = v.table.find(key.hash, key.key.encoded());
    let vouched = v.vouches_for(key, found.map(|item| item.seqno()));
    let want = match found {
        _ if !vouched => None,
        Some(item) if !item.is_resident() && !item.is_deleted() => {
            Some(Want::Value(item.seqno(), item.locator()))
        }
        Some(_) => Some(Want::Nothing),
        None if v.is_being_loaded(key.hash) && !v.cold.may_contain(key.hash) => Some(Want::Nothing),
        None => None,
    };
    let want = want.unwrap_or_else(|| Want::Version(v.lookups.begin(key.hash)));
    Plan { incarnation: v.incarnation, want }
}

/// Gives a version in the table its value back.
fn install_value(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    seqno: Seqno,
    record: &OwnedRecord,
    deferred: &mut DeferredEffects<'_>,
) -> Result<bool, Status> {
    let Some(item) = v.table.find(key.hash, key.key.encoded()) else { return Ok(false) };
    if item.is_resident() || item.seqno() != seqno {
        return Ok(false);
    }
    if record.meta.seqno != seqno || record.value.len() != item.value_len() {
        return Err(Status::Internal);
    }
    let (id, frequency) = (item.id(), item.frequency());
    let mut whole = NewItem::new(&env.shard.arena, &item.meta(), key.key.encoded(), &record.value)
        .ok_or(Status::TemporaryFailure)?;
    // What it was before its value was ejected: one use makes nothing hot.
    whole.set_frequency(frequency);
    v.install(env, key, Some(id), whole, deferred).map(|()| true)
}

/// The newest version on disk, or its absence, is known. Whether a document came of it.
fn install_version(
    v: &mut VBucket,
    env: &Env<'_>,
    key: HashedKey<'_>,
    record: Option<&OwnedRecord>,
    deferred: &mut DeferredEffects<'_>,
) -> Result<bool, Status> {
    let found = v.table.find(key.hash, key.key.encoded()).map(|item| (item.id(), item.seqno()));
    let vb = v.id;
    let item_of = |record: &OwnedRecord| {
        warmup::item_of(env.shard, vb, warmup::record_of(record, key.hash), record.locator, true)
    };
    if v.is_being_loaded(key.hash) && !v.vouches_for(key, found.map(|found| found.1)) {
        match (record, found) {
            (None, None) => {}
            // Warm-up has seen a version that the lookup did not find.
            (None, Some(_)) => return Err(Status::Internal),
            (Some(record), None) if is_document(record) && v.is_counted_as_evicted(key.hash) => {
                let item = item_of(record).ok_or(Status::TemporaryFailure)?;
                v.come_back(env, key, item)?;
            }
            (Some(record), _) => {
                let item = item_of(record).ok_or(Status::TemporaryFailure)?;
                v.install(env, key, found.map(|found| found.0), item, deferred)?;
            }
        }
        if let Some(warming) = &mut v.warming {
            warming.verify(key);
        }
        if record.is_none() && v.cold.may_contain(key.hash) {
            // The table has nothing, and another key's short hash says that there may be something.
            v.disk_answers.note(key.hash, key.key.encoded(), DiskAnswer::Absent);
        }
        return Ok(record.is_some());
    }
    if found.is_some() || v.is_being_loaded(key.hash) && !v.cold.may_contain(key.hash) {
        return Ok(false);
    }
    let answer = match record {
        None => DiskAnswer::Absent,
        Some(record) if record.meta.kind.is_tombstone() => {
            let meta = DocMeta {
                deleted: true,
                flags: kept_flags(record.meta.kind, record.meta.flags),
                expiry: record.meta.expiry,
                rev: record.meta.rev,
                cas: record.meta.cas,
                seqno: record.meta.seqno,
                datatype: record.meta.datatype,
            };
            DiskAnswer::Tombstone(meta, (*record.value).into())
        }
        Some(record) if is_document(record) && v.cold.may_contain(key.hash) => {
            let item = item_of(record).ok_or(Status::TemporaryFailure)?;
            v.come_back(env, key, item)?;
            return Ok(true);
        }
        // Every document on disk is in the table or among the cold keys, but system events.
        Some(_) => DiskAnswer::Absent,
    };
    v.disk_answers.note(key.hash, key.key.encoded(), answer);
    Ok(false)
}

fn is_document(record: &OwnedRecord) -> bool {
    record.meta.kind == RecordKind::Document && !is_system_key(&record.key)
}

/// What became of a record that could not be read: `Internal` says that it is damaged.
fn status_of(error: &StoreError) -> Status {
    match error {
        StoreError::Io { .. } | StoreError::Stale => Status::TemporaryFailure,
        _ => Status::Internal,
    }
}
