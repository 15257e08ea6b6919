//! From checkpoint to disk. One call of [`Bucket::flush`] for a shard:
//!
//! 1. empties the copies that are to begin anew or to go ([`Bucket::reset_copies`]), and raises the shard's CAS ceiling when the
//!    clock comes near it;
//! 2. returns, unless somebody waits for persistence, the oldest dirty mutation is old enough or there are many;
//! 3. takes the checkpoint of every dirty vBucket *whole*, with the vBucket's state. So of two versions of a key only
//!    the newer one is written. It commits in groups and reads the items without any lock: they are immutable and stay
//!    in the checkpoint until published. Of a checkpoint that is too large for one part it takes a prefix. Of every key
//!    in the prefix it takes the last version, superseded or not. So the disk always has everything up to one seqno;
//! 4. syncs once what was written by then. It stops writing earlier where clients wait for a thread that waits for the
//!    flusher's lock ([`crate::shard::Gate::ask_for_way`]);
//! 5. publishes, vBucket by vBucket under its lock. Items become clean and get their locator. Tombstones leave the
//!    table, and entries that no cursor needs leave the checkpoint. The persisted seqno rises, and waiters are woken.
//!    Durable writes that were prepared are committed; the next batch writes the commits.
//!
//! When the disk is full, parts that found no room count as not taken and are tried again later. Parts of vBuckets with
//! deletions are tried at once, one by one. The store keeps a reserve for parts that make more obsolete than they add.
//! (A deletion behind an unwritten document of the same vBucket cannot go before it.) Any other failure poisons the
//! shard: everything stays in memory and readable, nothing is written any more.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Now, VbId, hash::key_hash};
use storage::{KvStore, Locator, Marks, Record, RecordKind, RecordMeta, StoreError, VbBatch, VbState};

use crate::{
    api::{
        notify::Work,
        pressure::Pool,
        stats::{FlushFailure, FlushReport},
    },
    bucket::Bucket,
    memory::{
        item::{ItemLoan, ItemPtr, ItemRef},
        item_kind::kind_of,
        key_map::repeated_later,
    },
    pressure::room::FLUSH_BYTES,
    shard::{Dirty, Shard, ceiling, failures::failure_of},
    vbucket::{VBucket, prepares, system_events::is_system_key},
};

/// Bytes per commit.
const COMMIT_BYTES: u64 = 8 << 20;
/// A sync is of about so many commits, where that makes them no smaller than this: between two of them the flusher can be
/// interrupted.
const COMMITS_PER_SYNC: u64 = 4;
const COMMIT_BYTES_MIN: u64 = 1 << 20;
/// What an item takes in the lists of a batch until it is synced: loan, hash, locator.
const LISTED_BYTES: usize = size_of::<ItemLoan>() + size_of::<u64>() + size_of::<Locator>();
/// What it takes beyond that while it is being written: the record, and its locator once more.
const RECORD_BYTES: usize = size_of::<Record<'_>>() + size_of::<Locator>();
/// What the one and what the other may come to, of a bucket's memory and over all its shards: one part in so many. Lists come
/// on top of what mutations were let in up to, and of small documents they are more than the documents.
const LISTS_SHARE: u64 = 64;
/// However small the bucket is: for some thousand items.
const LISTS_BYTES_MIN: u64 = 128 << 10;
/// After a flush that wrote at least this many bytes, the shard learns how much memory the store's indexes take by now.
/// After smaller flushes the figure stays as it was; statistics bring it up to date in any case.
const ACCOUNT_BYTES: u64 = 1 << 20;
/// Upper bound for the items of one part, where lists may be so long. As many can be counted while the vBucket's lock is held for
/// about a millisecond.
const PART_ITEMS_MAX: usize = 16 * 1024;
/// Items looked at per lock hold: of more it is found out afterwards which are superseded, by their keys.
const LOOK_ITEMS_MAX: usize = 2048;
/// Items published per lock hold.
const PUBLISH_ITEMS: usize = 256;

/// How much is taken from checkpoints at once.
#[derive(Clone, Copy, Debug)]
struct BatchBounds {
    /// Per sync.
    sync_bytes: u64,
    sync_items: usize,
    /// Per commit; a part goes beyond by no more than as much again.
    commit_bytes: u64,
    commit_items: usize,
}

/// One vBucket's checkpoint on its way to disk.
struct Part {
    vb: VbId,
    incarnation: u32,
    state: VbState,
    /// In seqno order, none stale when taken.
    items: Vec<ItemLoan>,
    hashes: Vec<u64>,
    bytes: u64,
    /// Bytes taken, what is not written because it was superseded included.
    taken_bytes: u64,
    reported: Dirty,
    /// Filled by the commit, one per item.
    locators: Vec<Locator>,
}

impl Part {
    /// Of how many parts, from the front, a store has given all the locators. Of those without records none tells.
    fn committed(group: &[Part], locators: usize) -> usize {
        let (mut committed, mut records) = (0, 0);
        for (number, part) in group.iter().enumerate() {
            records += part.items.len();
            if records > locators {
                break;
            }
            if !part.items.is_empty() {
                committed = number + 1;
            }
        }
        committed
    }

    fn has_deletions(&self, shard: &Shard) -> bool {
        self.items.iter().any(|&item| kind_of(shard.lent(item)).frees_space())
    }
}

impl Bucket {
    /// Durable writes in a shard since its last [`Bucket::flush`] began: the group of the next one.
    #[must_use]
    pub fn durable_waiting(&self, shard: usize) -> usize {
        self.shards.get(shard).map_or(0, |shard| shard.gate.durable())
    }

    /// Puts the next flush of a shard off until so many durable writes wait for it. Then the engine asks for it with
    /// [`Work::Flush`]. Nothing else asks for a flush until the caller takes this back with 0. A caller that puts it
    /// off must not do so for long.
    pub fn gather_durable(&self, shard: usize, expected: usize) {
        if let Some(shard) = self.shards.get(shard) {
            shard.gate.gather(expected);
        }
    }

    /// Writes dirty documents of a shard. Syncs when a client waits for persistence or the oldest unsynced mutation is
    /// older than [`FlushReport::SYNC_WITHIN_MILLIS`]. Publishes what became durable, and wakes the requests that
    /// waited for it.
    pub fn flush(&self, shard: usize, now: Now) -> FlushReport {
        self.flush_shard(shard, now, false)
    }

    /// Whether somebody waits for a flush of a shard.
    #[must_use]
    pub fn is_flush_wanted(&self, shard: usize) -> bool {
        self.shards.get(shard).is_some_and(|shard| shard.gate.is_flush_wanted())
    }

    /// Whether the flusher of a shard may sleep: nothing waits to be written. The first mutation then ends its sleep
    /// ([`Work::Flush`]). It must be called again after a second all the same, to keep the CAS ceiling ahead of the clock.
    #[must_use]
    pub fn doze(&self, shard: usize) -> bool {
        self.shards.get(shard).is_none_or(|shard| shard.gate.doze())
    }

    /// After [`Bucket::doze`].
    pub fn end_doze(&self, shard: usize) {
        if let Some(shard) = self.shards.get(shard) {
            shard.gate.wake_up();
        }
    }

    pub(crate) fn flush_shard(&self, index: usize, now: Now, force: bool) -> FlushReport {
        let Some(shard) = self.shards.get(index) else { return FlushReport::default() };
        let Some(store) = &shard.store else { return FlushReport::default() };
        shard.gate.set_busy(Some(now));
        let report = self.flush_store(shard, &**store, now, force);
        shard.gate.set_busy(None);
        report
    }

    fn flush_store(&self, shard: &Shard, store: &dyn KvStore, now: Now, force: bool) -> FlushReport {
        let mut report = FlushReport::default();
        let flusher = shard.flusher.lock();
        if shard.gate.is_poisoned() {
            // Not necessarily by a flush.
            self.wake_persistence_waiters(shard, now);
            report.failed = Some(FlushFailure::Poisoned);
            return report;
        }
        let asked = shard.gate.begin_flush();
        // Where the disk refuses, the caller asks again; a broken one is told of by what is written below, or by the next
        // flush.
        let _ = self.reset_copies(shard, &flusher, now);
        if let Err(failure) = self.keep_ceiling_ahead(shard, store, now) {
            report.failed = Some(failure);
            if failure == FlushFailure::Poisoned {
                self.wake_persistence_waiters(shard, now);
                return report;
            }
        }
        let waited = shard.gate.dirty_for_millis(now);
        if waited.is_none() && report.failed.is_none() {
            // Nothing waits for space (any more): whether there is some the next write will tell.
            shard.gate.set_full(false);
        }
        let is_due = waited.is_some_and(|millis| millis >= FlushReport::SYNC_WITHIN_MILLIS)
            || shard.gate.dirty_bytes() >= FLUSH_BYTES;
        if !(asked || is_due || force) {
            report.unsynced = waited.is_some();
            return report;
        }
        self.write(shard, store, now, &mut report);
        if report.failed == Some(FlushFailure::Poisoned) {
            self.wake_persistence_waiters(shard, now);
        }
        report.unsynced = shard.gate.dirty_for_millis(now).is_some();
        report.more |= report.failed.is_none() && shard.gate.is_flush_wanted();
        report
    }

    /// Nothing will be persisted any more: everybody who waits for it is to learn that, and durable writes in progress will
    /// not be completed.
    fn wake_persistence_waiters(&self, shard: &Shard, now: Now) {
        for vb in self.vbs_of(shard) {
            let Ok((slot, _)) = self.slot(vb) else { continue };
            {
                let mut deferred = self.deferred(shard);
                slot.vb.lock().persistence_waiters.drain(..).for_each(|entry| deferred.wake(entry.1));
            }
            self.abort_all(slot, shard, now);
        }
    }

    /// Syncs another CAS ceiling when the clock, or a CAS from elsewhere, comes near the present one, or begins or ceases to
    /// lead the clock.
    pub(crate) fn keep_ceiling_ahead(
        &self,
        shard: &Shard,
        store: &dyn KvStore,
        now: Now,
    ) -> Result<(), FlushFailure> {
        let is_due = || {
            let (foreign, present) = (shard.gate.wanted_ceiling(), shard.gate.ceiling_on_disk());
            ceiling::is_near(present, foreign, now)
                || ceiling::leads(foreign, now) != ceiling::is_of_a_leader(present)
        };
        if shard.gate.is_closed() || !is_due() {
            return Ok(());
        }
        // From here on none leads the clock that is not known below; see `Gate::takes_over`.
        shard.gate.set_ceiling(ceiling::without_leader(shard.gate.ceiling_on_disk()));
        let (foreign, present) = (shard.gate.wanted_ceiling(), shard.gate.ceiling_on_disk());
        let Ok((slot, _)) = self.slot(shard.marker_vb) else { return Ok(()) };
        // The rest of the state may not run ahead of what is on disk.
        let mut state = slot.vb.lock().synced_state();
        let raised = ceiling::above(state.max_cas, foreign, now, present);
        state.max_cas = raised;
        store.put_states(&[(shard.marker_vb, state)]).map_err(|error| failure_of(shard, &error))?;
        shard.gate.set_ceiling(raised);
        Ok(())
    }

    fn write(&self, shard: &Shard, store: &dyn KvStore, now: Now, report: &mut FlushReport) {
        let mut dirty = shard.gate.take_dirty().into_iter();
        let mut committed: Vec<Part> = Vec::new();
        let mut bytes = 0;
        let mut held = shard.pools.hold(Pool::Write, 0);
        let mut taken_items = 0;
        let bounds = self.batch_bounds();
        while bytes < bounds.sync_bytes && taken_items < bounds.sync_items {
            if !committed.is_empty() && shard.gate.is_in_the_way() {
                break;
            }
            let mut group = self.take_group(shard, &mut dirty, &bounds, now);
            if group.is_empty() {
                break;
            }
            let items = group.iter().map(|part| part.items.len()).sum::<usize>();
            taken_items += items;
            held.set((taken_items * LISTED_BYTES + items * RECORD_BYTES) as u64);
            let (found_room, written) = commit(shard, store, &mut group);
            if let Err(error) = written {
                let failure = failure_of(shard, &error);
                report.failed = Some(failure);
                if failure == FlushFailure::Poisoned {
                    self.untake(shard, group, now);
                    break;
                }
                let left = group.split_off(found_room);
                group.append(&mut self.commit_what_frees(shard, store, left, now));
            }
            held.set((taken_items * LISTED_BYTES) as u64);
            bytes += group.iter().map(|part| part.bytes).sum::<u64>();
            committed.append(&mut group);
        }
        if let Some(&next) = dirty.as_slice().first() {
            shard.gate.go_on_with(next);
        }
        for index in dirty {
            shard.gate.mark_dirty(index, now);
            report.more |= report.failed.is_none();
        }
        if committed.is_empty() {
            return;
        }
        if let Err(error) = store.sync() {
            report.failed = Some(failure_of(shard, &error));
            self.untake(shard, committed, now);
            return;
        }
        report.synced = true;
        if report.failed.is_none() {
            shard.gate.set_full(false);
        }
        for part in committed {
            report.items += part.items.len();
            report.bytes += part.bytes;
            shard.counters.drained_bytes.fetch_add(part.taken_bytes, Ordering::Relaxed);
            shard.counters.persisted.fetch_add(part.items.len() as u64, Ordering::Relaxed);
            report.durable += self.publish(shard, part, now);
        }
        if report.bytes >= ACCOUNT_BYTES {
            shard.account_store(&store.stats());
        }
        if self.is_paced() {
            self.notifier.work(Work::Pace);
        }
    }

    fn batch_bounds(&self) -> BatchBounds {
        let share = self.settings.usable_bytes() / LISTS_SHARE / self.shards().max(1) as u64;
        let lists_bytes = share.max(LISTS_BYTES_MIN) as usize;
        let sync_bytes = self.gatekeeper.sync_bytes();
        BatchBounds {
            sync_bytes,
            sync_items: lists_bytes / LISTED_BYTES,
            commit_bytes: (sync_bytes / COMMITS_PER_SYNC).clamp(COMMIT_BYTES_MIN, COMMIT_BYTES),
            commit_items: lists_bytes / RECORD_BYTES,
        }
    }

    /// The disk is full: commits those parts that free more space than they take, and gives the others back. Returns
    /// what was committed.
    fn commit_what_frees(&self, shard: &Shard, store: &dyn KvStore, group: Vec<Part>, now: Now) -> Vec<Part> {
        let (mut frees, others): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|part| part.has_deletions(shard));
        self.untake(shard, others, now);
        // What takes least first: of the space that is kept for them, all others may need some more.
        frees.sort_by_key(|part| part.bytes);
        let mut committed = Vec::new();
        for mut part in frees {
            match commit(shard, store, std::slice::from_mut(&mut part)).1 {
                Ok(()) => committed.push(part),
                Err(error) => {
                    if !matches!(error, StoreError::NoSpace) {
                        failure_of(shard, &error);
                    }
                    self.untake(shard, vec![part], now);
                }
            }
        }
        committed
    }

    /// Takes the checkpoints of the next dirty vBuckets, about as much as makes one commit.
    fn take_group(
        &self,
        shard: &Shard,
        dirty: &mut impl Iterator<Item = usize>,
        bounds: &BatchBounds,
        now: Now,
    ) -> Vec<Part> {
        let mut group: Vec<Part> = Vec::new();
        let (mut bytes, mut items) = (0, 0);
        while bytes < bounds.commit_bytes && items < bounds.commit_items {
            let Some(index) = dirty.next() else { break };
            let part = self.take_part(shard, index, bounds, now);
            bytes += part.bytes;
            items += part.items.len();
            group.push(part);
        }
        group
    }

    fn take_part(&self, shard: &Shard, index_in_shard: usize, bounds: &BatchBounds, now: Now) -> Part {
        let vb = VbId((index_in_shard * self.shards() + shard.index) as u16);
        let mut part = Part {
            vb,
            incarnation: 0,
            state: VbState::default(),
            items: Vec::new(),
            hashes: Vec::new(),
            bytes: 0,
            taken_bytes: 0,
            reported: Dirty::default(),
            locators: Vec::new(),
        };
        let Ok((slot, _)) = self.slot(vb) else { return part };
        let bytes_of = |item: &ItemPtr| shard.item(item).bytes() as u64;
        let (taken, stale) = self.holding(|| {
            let mut v = slot.vb.lock();
            part.incarnation = v.incarnation;
            part.state = v.state();
            part.reported = v.take_reported();
            let queued_bytes = v.checkpoint.dirty_bytes();
            let bytes_max = self.options.part_bytes_max.min(bounds.sync_bytes);
            let items_max = PART_ITEMS_MAX.min(bounds.commit_items);
            let taken = v.checkpoint.take(bytes_max, items_max, bytes_of);
            part.taken_bytes = queued_bytes - v.checkpoint.dirty_bytes();
            let is_whole = v.checkpoint.is_clean();
            if !is_whole {
                let gone = part.reported.split_above(v.checkpoint.dirty_bytes());
                v.return_reported(std::mem::replace(&mut part.reported, gone));
                let high_seqno = taken.last().map_or(v.persisted_seqno, |&last| shard.lent(last).seqno());
                part.state = v.state_at(high_seqno, marks_after(v.persisted_marks, shard, &taken));
                shard.gate.mark_dirty(index_in_shard, now);
                // The rest is due as well.
                shard.gate.want_flush();
            }
            // Under the lock, so that nothing turns stale between looking and the state it is written with. Of a prefix
            // also what is stale may be its key's last version; and many take longer than a lock is to be held.
            let asks_table = is_whole && taken.len() <= LOOK_ITEMS_MAX;
            let stale = asks_table.then(|| taken.iter().map(|&item| shard.lent(item).is_stale()).collect());
            (taken, stale.ok_or(v.chains.is_only_copy()))
        });
        let stale: Vec<bool> = stale.unwrap_or_else(|alone| superseded_within(shard, &taken, alone));
        part.state.max_cas = shard.recorded_cas(vb, part.state.max_cas, now);
        part.items.reserve_exact(taken.len());
        part.hashes.reserve_exact(taken.len());
        for (item, _) in taken.into_iter().zip(stale).filter(|(_, is_stale)| !is_stale) {
            let view = shard.lent(item);
            part.bytes += view.bytes() as u64;
            part.hashes.push(key_hash(view.key()));
            part.items.push(item);
        }
        part
    }

    /// Does what takes a vBucket's lock, and tells for how much processor time.
    fn holding<R>(&self, hold: impl FnOnce() -> R) -> R {
        let began = self.notifier.thread_nanos();
        let result = hold();
        self.notifier.held(self.notifier.thread_nanos().saturating_sub(began));
        result
    }

    /// What was taken and could not be written is still to be.
    fn untake(&self, shard: &Shard, parts: Vec<Part>, now: Now) {
        for part in parts {
            let Ok((slot, _)) = self.slot(part.vb) else { continue };
            let mut v = slot.vb.lock();
            v.checkpoint.untake();
            v.return_reported(part.reported);
            shard.gate.mark_dirty(v.index_in_shard, now);
        }
    }

    /// What a part holds is durable: tells the vBucket. Returns how many durable writes that completed.
    fn publish(&self, shard: &Shard, part: Part, now: Now) -> usize {
        shard.gate.subtract_dirty(part.reported);
        let Ok((slot, _)) = self.slot(part.vb) else { return 0 };
        let written: Vec<_> = part.hashes.iter().zip(&part.items).zip(&part.locators).collect();
        let mut gone = Vec::new();
        for chunk in written.chunks(PUBLISH_ITEMS) {
            self.holding(|| {
                let mut v = slot.vb.lock();
                if v.incarnation == part.incarnation {
                    for &((&hash, &item), &locator) in chunk {
                        gone.extend(settle_written(&mut v, shard.lent(item), hash, locator));
                    }
                }
            });
        }
        let mut passed = Vec::new();
        let mut deferred = self.deferred(shard);
        self.holding(|| {
            let mut v = slot.vb.lock();
            if v.incarnation == part.incarnation {
                let persisted = part.state.high_seqno;
                v.persisted_seqno = v.persisted_seqno.max(persisted);
                v.persisted_marks = v.persisted_marks.max(part.state.marks.or_all_visible(persisted));
                let synced = v.persisted_seqno;
                v.following.snapshots.synced(synced);
                if v.failover.log() == part.state.failover_log {
                    v.following.note_log_synced();
                }
                v.raise_high_prepared(true, &mut deferred);
                passed = v.checkpoint.published();
                v.persistence_waiters.extract_if(.., |entry| entry.0 <= persisted).for_each(|entry| {
                    deferred.wake(entry.1);
                });
                v.account(shard);
            }
        });
        gone.into_iter().chain(passed).for_each(|item| shard.release(item));
        self.complete_prepares(slot, shard, now)
    }
}

/// One version is synced. Returns the table's reference to it if it was a tombstone or system event, which may leave.
fn settle_written(v: &mut VBucket, item: ItemRef<'_>, hash: u64, locator: Locator) -> Option<ItemPtr> {
    if kind_of(item).is_prepared() {
        item.set_dirty(false);
        return None;
    }
    if item.is_stale() {
        // Superseded meanwhile: its place is what the newer version, still dirty, will make obsolete.
        if let Some(newer) = v.table.find(hash, item.key())
            && newer.is_dirty()
        {
            newer.set_locator(locator);
        }
        return None;
    }
    item.set_dirty(false);
    item.set_locator(locator);
    let may_leave = item.is_deleted() || is_system_key(item.key());
    if !may_leave || v.warming.is_some() {
        return None;
    }
    v.drop_written(HashedKey { key: DocKey::trusted(item.key()), hash }, item)
}

/// Writes parts. How many of them, from the front, are written, and why the others are not.
fn commit(shard: &Shard, store: &dyn KvStore, group: &mut [Part]) -> (usize, Result<(), StoreError>) {
    let mut locators = Vec::with_capacity(group.iter().map(|part| part.items.len()).sum());
    let written = {
        let records: Vec<Vec<Record<'_>>> = group
            .iter()
            .map(|part| {
                let items = part.items.iter().zip(&part.hashes);
                items.map(|(&item, &hash)| record_of(shard.lent(item), hash)).collect()
            })
            .collect();
        let batches: Vec<_> = group
            .iter()
            .zip(&records)
            .map(|(part, records)| VbBatch { vb: part.vb, state: &part.state, records })
            .collect();
        store.commit(&batches, &mut locators)
    };
    let committed = if written.is_ok() { group.len() } else { Part::committed(group, locators.len()) };
    let mut locators = locators.into_iter();
    for part in group.iter_mut().take(committed) {
        part.locators = locators.by_ref().take(part.items.len()).collect();
    }
    (committed, written)
}

fn record_of(item: ItemRef<'_>, hash: u64) -> Record<'_> {
    let meta = RecordMeta {
        kind: kind_of(item),
        seqno: item.seqno(),
        cas: item.cas(),
        rev: item.rev(),
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
    };
    Record { meta, key: item.key(), hash, value: item.value(), replaces: item.locator() }
}

/// Which entries of a checkpoint, or its prefix, are not to be written. Of a key that is every version but the last one
/// there, superseded or not. It is also every prepare whose abort is in it, or, without another copy, anywhere. (Where
/// there are others they may hold and commit a prepare, which a copy that has only the prefix after a crash must not
/// lack. An only copy would commit what its clients were told had failed.)
fn superseded_within(shard: &Shard, taken: &[ItemLoan], alone: bool) -> Vec<bool> {
    let is_version = |item: ItemRef<'_>| !kind_of(item).is_prepared();
    let aborts =
        taken.iter().map(|&item| shard.lent(item)).filter(|&item| kind_of(item) == RecordKind::Abort);
    let aborted: BTreeSet<_> = aborts.map(|abort| prepares::aborted(abort.value())).collect();
    let versions = taken.iter().map(|&item| shard.lent(item)).filter(|&item| is_version(item));
    let mut repeated = repeated_later(versions.map(ItemRef::key)).into_iter();
    let is_superseded = |item: ItemRef<'_>| match is_version(item) {
        true => repeated.next() == Some(true),
        false => item.is_stale() && (alone || aborted.contains(&item.seqno())),
    };
    taken.iter().map(|&item| shard.lent(item)).map(is_superseded).collect()
}

/// How far durable writes are when a checkpoint's prefix is written.
fn marks_after(before: Marks, shard: &Shard, taken: &[ItemLoan]) -> Marks {
    taken.iter().fold(before, |mut marks, &item| {
        let item = shard.lent(item);
        match kind_of(item) {
            RecordKind::Prepare(_) | RecordKind::PreparedDeletion(_) => marks.prepared = item.seqno(),
            // Its prepare may have left no trace of its own.
            RecordKind::Abort => marks.prepared = marks.prepared.max(prepares::aborted(item.value())),
            _ => marks.visible = item.seqno(),
        }
        marks
    })
}
