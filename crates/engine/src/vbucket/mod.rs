//! One vBucket: its hash table, its order of mutations, and the keys in an unusual state. Everything here happens under
//! the vBucket's lock and touches nothing but memory.
//!
//! Seqnos, in the order they reach: `purge_seqno` <= `persisted_seqno` <= `high_seqno` (memory-only vBuckets persist
//! nothing and stay at 0). The table holds the newest version of every document. A tombstone stays in it until it is
//! synced (and until warm-up is over, or for good where there is no disk). What a key that is not in the table means
//! depends: nothing there, once warm; ask the disk, before.

pub(crate) mod chains;
pub(crate) mod checkpoint;
pub(crate) mod cold_keys;
pub(crate) mod cold_set;
pub(crate) mod collections;
mod copy;
pub(crate) mod copy_rules;
pub(crate) mod counts;
pub(crate) mod disk_answers;
pub(crate) mod durability;
mod events;
pub(crate) mod failover_table;
pub(crate) mod following;
mod full_eviction;
pub(crate) mod hlc;
pub(crate) mod locks;
pub(crate) mod lookups;
mod overheads;
pub(crate) mod prepares;
mod preparing;
pub(crate) mod slot;
pub(crate) mod snapshots;
pub mod system_events;
pub(crate) mod version;
pub(crate) mod warming;

use base::{Datatype, HashedKey, ManifestUid, Seqno, Status, VbId, VbRole, VbUuid, bucket::DurabilityLevel};
use storage::{Marks, VbState};

use crate::{
    api::{
        doc::Mutated,
        notify::{Refusal, Waiter},
        stats::VbOps,
    },
    json::subdoc::xattr::{Blob, Builder},
    memory::{
        defragmenter::{Relocated, SparseSlot},
        hash_table::HashTable,
        item::{ItemId, ItemMeta, ItemRef, NewItem},
        item_kind::mark_expired,
    },
    pressure::pools::Overheads,
    shard::{Dirty, Env, REPORT_BYTES, Shard, deferred::DeferredEffects},
    vbucket::{
        chains::Chains,
        checkpoint::Checkpoint,
        cold_set::ColdSet,
        counts::{Counts, Weight},
        disk_answers::{DiskAnswer, DiskAnswers, Loss},
        failover_table::FailoverTable,
        following::Following,
        hlc::Hlc,
        locks::Locks,
        lookups::Lookups,
        prepares::Prepares,
        snapshots::Snapshots,
        system_events::{Events, is_system_key},
        version::{Current, FREQUENCY_INITIAL, Found, Version, is_due},
        warming::Warming,
    },
};

/// See the module header.
pub(crate) struct VBucket {
    pub(crate) id: VbId,
    /// What clients and other nodes are to it. Changed by [`crate::replica::roles`] only, as is the term.
    pub(crate) role: VbRole,
    pub(crate) term: u64,
    /// Of an active that is about to be sealed: since when it takes no durable writes any more, in monotonic milliseconds.
    pub(crate) draining_since: Option<u64>,
    /// It was found after a stop that was not clean: others may have more of its history.
    pub(crate) is_unconfirmed: bool,
    /// It may have lost what it has acknowledged. It stands for election, but does not count in one, until it has
    /// caught up with an active copy or is the active.
    pub(crate) may_lack: bool,
    /// Of an active: who has to hold its durable writes.
    pub(crate) chains: Chains,
    /// What it is as a copy of another node's.
    pub(crate) following: Following,
    /// Position among the vBuckets of its shard.
    pub(crate) index_in_shard: usize,
    pub(crate) table: HashTable,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) hlc: Hlc,
    pub(crate) high_seqno: Seqno,
    pub(crate) persisted_seqno: Seqno,
    pub(crate) purge_seqno: Seqno,
    pub(crate) max_deleted_rev: u64,
    pub(crate) failover: FailoverTable,
    /// Nobody but this node has ever heard of its branch, and this one has not been the active on it. The disk knows no branch then.
    pub(crate) is_unheard: bool,
    /// The manifest this vBucket has been brought up to.
    pub(crate) manifest_uid: ManifestUid,
    pub(crate) events: Events,
    /// Grows whenever the contents are dropped: what was read from disk before is void.
    pub(crate) incarnation: u32,
    /// Documents that are on disk only.
    pub(crate) cold: ColdSet,
    /// No document that left for the disk since it was last looked expires before this (Unix seconds).
    pub(crate) cold_next_expiry: u32,
    /// When they may be looked through for what has expired, in monotonic milliseconds.
    pub(crate) cold_pass_after: u64,
    pub(crate) lookups: Lookups,
    /// Walks through the table that are to see every document: none leaves meanwhile.
    pub(crate) gathers: u32,
    pub(crate) locks: Locks,
    /// Durable writes in progress.
    pub(crate) pending: Prepares,
    /// How far durable writes are, and what of that is synced. Unlike what is recorded, always says what is visible.
    pub(crate) marks: Marks,
    pub(crate) persisted_marks: Marks,
    pub(crate) disk_answers: DiskAnswers,
    /// Present until every document on disk is known to the table.
    pub(crate) warming: Option<Box<Warming>>,
    pub(crate) counts: Counts,
    pub(crate) ops: VbOps,
    /// No document expires before this (Unix seconds).
    pub(crate) next_expiry: u32,
    pub(crate) persistence_waiters: Vec<(Seqno, Waiter)>,
    /// When those of them were last asked who wait for what does not exist yet, in monotonic milliseconds.
    pub(crate) waiters_swept_at: u64,
    /// What the pools know of.
    pub(crate) accounted: Overheads,
    /// Dirty bytes not told to the shard yet, and what was told since the checkpoint was last taken.
    unreported_bytes: u64,
    reported: Dirty,
}

impl VBucket {
    pub(crate) fn new(id: VbId, index_in_shard: usize, shard: &Shard, vbuckets: u16, uuid: VbUuid) -> Self {
        Self {
            id,
            role: VbRole::Active,
            term: 0,
            draining_since: None,
            is_unconfirmed: false,
            may_lack: false,
            chains: Chains::alone(1),
            following: Following::default(),
            index_in_shard,
            table: HashTable::new(shard.arena.clone()),
            checkpoint: Checkpoint::default(),
            hlc: Hlc::default(),
            high_seqno: Seqno(0),
            persisted_seqno: Seqno(0),
            purge_seqno: Seqno(0),
            max_deleted_rev: 0,
            failover: FailoverTable::new(uuid),
            is_unheard: true,
            manifest_uid: ManifestUid(0),
            events: Events::default(),
            incarnation: 0,
            cold: ColdSet::new(vbuckets),
            cold_next_expiry: u32::MAX,
            cold_pass_after: 0,
            lookups: Lookups::default(),
            gathers: 0,
            locks: Locks::default(),
            pending: Prepares::default(),
            marks: Marks::default(),
            persisted_marks: Marks::default(),
            disk_answers: DiskAnswers::default(),
            warming: None,
            counts: Counts::default(),
            ops: VbOps::default(),
            next_expiry: u32::MAX,
            persistence_waiters: Vec::new(),
            waiters_swept_at: 0,
            accounted: Overheads::default(),
            unreported_bytes: 0,
            reported: Dirty::default(),
        }
    }

    /// What travels to disk with a batch. The CAS recorded is the clock's; the shard's ceiling goes with one vBucket.
    pub(crate) fn state(&self) -> VbState {
        self.state_at(self.high_seqno, self.marks)
    }

    /// The state as of a seqno that may not be the last one, with the marks as of there.
    pub(crate) fn state_at(&self, high_seqno: Seqno, marks: Marks) -> VbState {
        VbState {
            high_seqno,
            purge_seqno: self.purge_seqno,
            max_cas: self.hlc.last(),
            max_deleted_rev: self.max_deleted_rev,
            failover_log: if self.is_unheard { Vec::new() } else { self.failover.log().to_vec() },
            manifest_uid: self.events.told_up_to(high_seqno),
            marks: self.recorded(marks),
            snapshot: self.following.snapshots.around(high_seqno),
            is_partial: self.following.is_partial || self.following.snapshots.is_in_first(high_seqno),
        }
    }

    /// The state as of what is synced, for a caller that records it without a batch.
    pub(crate) fn synced_state(&self) -> VbState {
        self.state_at(self.persisted_seqno, self.persisted_marks)
    }

    /// Becomes what was recovered from disk; of an active a new branch begins unless the last stop was clean. (Any other is
    /// told when one begins, or that it is to begin one.)
    pub(crate) fn recover(&mut self, state: &VbState, new_branch: VbUuid, was_clean: bool) {
        self.events = Events::recovered(state.manifest_uid, state.high_seqno, self.manifest_uid);
        self.high_seqno = state.high_seqno;
        self.persisted_seqno = state.high_seqno;
        self.marks = state.marks.or_all_visible(state.high_seqno);
        self.persisted_marks = self.marks;
        self.purge_seqno = state.purge_seqno;
        self.max_deleted_rev = state.max_deleted_rev;
        self.failover = FailoverTable::recovered(&state.failover_log, new_branch);
        let is_untold = state.failover_log.is_empty() && state.high_seqno == Seqno(0);
        self.is_unheard = is_untold && self.role != VbRole::Active;
        self.following.snapshots = Snapshots::recovered(state.snapshot);
        self.following.is_partial = state.is_partial;
        if self.role != VbRole::Active {
            self.failover.cut(state.high_seqno);
            // Empty or not: what was acknowledged by others may have been lost here to the last mutation. A copy of which nothing was
            // known has acknowledged nothing. A node that knows better says so ([`crate::Bucket::note_loss`]).
            let may_lack = !was_clean && !self.is_unheard;
            (self.is_unconfirmed, self.may_lack) = (may_lack, may_lack);
            return;
        }
        // Served at once: whatever it is, nothing else exists.
        self.following.restart(false);
        // Where the disk knew of no branch, this one has just begun. Two starts within one reading of the clock choose the same
        // uuid, but for its generation.
        if !was_clean && !state.failover_log.is_empty() {
            self.failover.begin(new_branch, 0, state.high_seqno);
        }
    }

    /// Empties the vBucket: a new history begins. Its clock goes on. Only for the holder of the shard's flusher. What is
    /// returned are the documents: to be dropped once the lock is released.
    pub(crate) fn reset(
        &mut self,
        shard: &Shard,
        uuid: VbUuid,
        deferred: &mut DeferredEffects<'_>,
    ) -> HashTable {
        let documents = self.table.take();
        shard.gate.subtract_dirty(self.take_reported());
        for (item, waiter) in self.pending.clear() {
            deferred.release(item);
            waiter.into_iter().for_each(|waiter| deferred.wake(waiter));
        }
        let (queued, readers) = self.checkpoint.clear();
        queued.into_iter().for_each(|item| deferred.release(item));
        readers.into_iter().for_each(|waiter| deferred.wake(waiter));
        self.persistence_waiters.drain(..).for_each(|entry| deferred.wake(entry.1));
        self.high_seqno = Seqno(0);
        self.persisted_seqno = Seqno(0);
        (self.marks, self.persisted_marks) = (Marks::default(), Marks::default());
        self.purge_seqno = Seqno(0);
        self.max_deleted_rev = 0;
        self.failover = FailoverTable::new(uuid);
        self.is_unheard = self.role != VbRole::Active;
        self.events = Events::default();
        self.incarnation += 1;
        self.following.restart(self.role != VbRole::Active);
        self.locks = Locks::default();
        self.disk_answers.clear();
        self.change_cold(shard, ColdSet::clear);
        self.cold_next_expiry = u32::MAX;
        self.warming = None;
        self.counts = Counts::default();
        self.next_expiry = u32::MAX;
        documents
    }

    /// Whether nothing is known of it: it was not found on disk, and has neither been fed nor served since.
    pub(crate) fn is_blank(&self) -> bool {
        self.facts().is_blank()
    }

    // ---- looking --------------------------------------------------------------------------------------------------

    /// The answer when memory cannot tell: what the disk said a moment ago if it could not be read, else a fetch.
    pub(crate) fn missing(&mut self, key: HashedKey<'_>) -> Refusal {
        match self.disk_answers.recall(key.hash, key.key.encoded()) {
            Some(DiskAnswer::Unreadable(..)) => Refusal::Status(Loss::STATUS),
            _ => Refusal::Fetch,
        }
    }

    /// What memory says about a key, expired documents having become tombstones.
    ///
    /// # Errors
    /// [`Refusal::Fetch`] while only the disk can tell; `SyncWriteReCommitInProgress` while nobody can.
    pub(crate) fn settle(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Found, Refusal> {
        if self.pending.may_be_visible(key) {
            return Err(Status::SyncWriteReCommitInProgress.into());
        }
        let found = self.table.find(key.hash, key.key.encoded()).map(Current::of);
        if !self.vouches_for(key, found.map(|current| current.meta.seqno)) {
            return Err(self.missing(key));
        }
        let Some(current) = found else { return self.settle_absent(key) };
        if current.meta.deleted {
            return Ok(Found::Gone(current));
        }
        if !is_due(current.meta.expiry, env.now) {
            return Ok(Found::Live(current));
        }
        if self.pending.contains(key) {
            return Ok(Found::Gone(current));
        }
        if !current.resident && current.meta.datatype.contains(Datatype::XATTR) {
            // What is to survive of it is on disk. The caller that needs that asks for it, once.
            return Ok(Found::Gone(current));
        }
        if self.delete_item(env, key, &current, true, None, deferred).is_err() {
            return Ok(Found::Gone(current));
        }
        self.ops.expired += 1;
        let tombstone = self.table.find(key.hash, key.key.encoded()).map(Current::of);
        Ok(tombstone.map_or(Found::Nothing, Found::Gone))
    }

    /// As [`VBucket::settle`], of a replica: nothing changes. What has expired is not there, and stays as it is until the
    /// active says that it is gone.
    ///
    /// # Errors
    /// [`Refusal::Fetch`] while only the disk can tell; `TemporaryFailure` when the copy is in the making and the document
    /// may be still to come.
    pub(crate) fn settle_replica(&mut self, env: &Env<'_>, key: HashedKey<'_>) -> Result<Found, Refusal> {
        let found = self.table.find(key.hash, key.key.encoded()).map(Current::of);
        if !self.vouches_for(key, found.map(|current| current.meta.seqno)) {
            return Err(self.missing(key));
        }
        let found = match found {
            None => self.settle_absent(key)?,
            Some(current) if current.meta.deleted || is_due(current.meta.expiry, env.now) => {
                Found::Gone(current)
            }
            Some(current) => Found::Live(current),
        };
        if found.live().is_none() && self.following.is_partial {
            return Err(Status::TemporaryFailure.into());
        }
        Ok(found)
    }

    /// As [`VBucket::settle`], for an operation that is going to change the key.
    ///
    /// # Errors
    /// `SyncWriteInProgress` while a durable write of it is.
    pub(crate) fn settle_for_write(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Found, Refusal> {
        if self.pending.contains(key) {
            return Err(Status::SyncWriteInProgress.into());
        }
        self.settle(env, key, deferred)
    }

    /// As [`VBucket::settle_for_write`], for a write that needs nothing of the version before it. A document lost to
    /// damage on disk gives way to it like one that is gone. Also returns whether such a document gave way that had
    /// been evicted, and so is still counted. A caller that has replaced it calls [`VBucket::give_up_lost`].
    pub(crate) fn settle_for_replacement(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<(Found, bool), Refusal> {
        if self.pending.contains(key) {
            return Err(Status::SyncWriteInProgress.into());
        }
        // Looked at first: a failure is told once to each who waited for it.
        let is_damaged = self.disk_answers.is_damaged(key.hash, key.key.encoded());
        if self.warming.is_some() {
            let found = self.table.find(key.hash, key.key.encoded()).map(Current::of);
            if !self.vouches_for(key, found.map(|current| current.meta.seqno)) {
                return match self.missing(key) {
                    // Should warm-up have found an older version, that one is in the table.
                    Refusal::Status(_) if is_damaged => {
                        let is_lost = found.is_none() && self.is_counted_as_evicted(key.hash);
                        Ok((found.map_or(Found::Nothing, Found::Gone), is_lost))
                    }
                    refusal => Err(refusal),
                };
            }
        }
        match self.settle(env, key, deferred) {
            Err(Refusal::Status(Loss::STATUS)) if is_damaged && self.warming.is_none() => {
                Ok((Found::Nothing, true))
            }
            settled => settled.map(|found| (found, false)),
        }
    }

    /// Whether a durable write in progress creates the key: an operation that needs a document finds none, rather than a
    /// write in progress. A document that is lost to damage is not in the table either, and is not taken for absent.
    pub(crate) fn is_unseen(&self, env: &Env<'_>, key: HashedKey<'_>) -> bool {
        let prepare = self.pending.open.get(key.hash, key.key.encoded());
        let seqno = self.table.find(key.hash, key.key.encoded()).map(|item| item.seqno());
        prepare.is_some_and(|prepare| prepare.is_own && !prepare.replaces_lost)
            && self.vouches_for(key, seqno)
            && self.shown(env, key).is_none()
    }

    /// The document that a reader is shown: nothing in place of what is gone. Call [`VBucket::settle`] first.
    pub(crate) fn shown<'a>(&'a self, env: &Env<'a>, key: HashedKey<'_>) -> Option<ItemRef<'a>> {
        let item = self.table.find(key.hash, key.key.encoded())?;
        (!item.is_deleted() && !is_due(item.expiry(), env.now)).then_some(item)
    }

    /// The CAS and lock rules for changing a live document.
    ///
    /// # Errors
    /// `Locked` without the lock's CAS, `KeyExists` with another CAS than the document's.
    pub(crate) fn check_cas(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        current: &Current,
        cas: base::Cas,
    ) -> Result<(), Refusal> {
        if let Some(lock) = self.locks.holder(key.hash, key.key.encoded(), env.now) {
            if cas == lock {
                return Ok(());
            }
            self.ops.lock_errors += 1;
            return Err(Status::Locked.into());
        }
        if cas != base::Cas::NONE && cas != current.meta.cas {
            self.ops.cas_mismatches += 1;
            return Err(Status::KeyExists.into());
        }
        Ok(())
    }

    /// The revision that the next version of a key gets.
    pub(crate) fn next_rev(&self, found: &Found) -> u64 {
        match found {
            Found::Live(current) => current.meta.rev + 1,
            Found::Gone(current) => current.meta.rev.max(self.max_deleted_rev) + 1,
            Found::Nothing => self.max_deleted_rev + 1,
        }
    }

    // ---- changing -------------------------------------------------------------------------------------------------

    /// Makes a mutation: a durable one is prepared, any other published.
    ///
    /// # Errors
    /// `TemporaryFailure` when the CAS ceiling is reached or the collection's beginning is not recorded yet, `NoMemory`
    /// when the table cannot grow. Nothing has changed then.
    pub(crate) fn put<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        old: Option<&Current>,
        mut new: NewItem<'e>,
        version: Version,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Mutated, Refusal> {
        if self.events.are_behind() && self.is_held_back(env, key.key.collection(), deferred) {
            return Err(Status::TemporaryFailure.into());
        }
        if let Some(level) = self.level_to_wait_for(version.durable)? {
            return self.prepare(env, key, new, (version, level), deferred);
        }
        let cas = self.next_cas(env, version.cas, deferred)?;
        new.set_cas(cas);
        new.set_rev(version.rev);
        let seqno = self.publish(env, key, old, new, deferred)?;
        Ok(Mutated { cas, seqno, vb_uuid: self.failover.uuid(), wait: false })
    }

    /// Publishes a new version that has its CAS and revision. Gives it its place in the order, puts it into table and
    /// checkpoint, and ends whatever was noted about the key.
    ///
    /// # Errors
    /// `NoMemory` when the table cannot grow. Nothing has changed then.
    #[inline]
    pub(crate) fn publish<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        old: Option<&Current>,
        new: NewItem<'e>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Seqno, Refusal> {
        self.publish_at(env, key, old, new, self.high_seqno.next(), deferred)
    }

    /// As [`VBucket::publish`], at a place in the order that somebody else has given.
    ///
    /// # Errors
    /// Those of [`VBucket::publish`].
    pub(crate) fn publish_at<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        old: Option<&Current>,
        mut new: NewItem<'e>,
        seqno: Seqno,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Seqno, Refusal> {
        let rev = new.as_ref().rev();
        new.set_seqno(seqno);
        new.set_dirty(env.is_persistent());
        if let Some(old) = old {
            new.set_locator(old.meta.locator);
        }
        let (deleted, expiry) = (new.as_ref().is_deleted(), new.as_ref().expiry());
        if !deleted {
            let frequency = old.map_or(0, |old| if old.meta.deleted { 0 } else { old.frequency });
            new.set_frequency(frequency.max(FREQUENCY_INITIAL));
        }
        let weight = Weight::of(new.as_ref());
        let (replaced, item) = match old {
            Some(old) => {
                let Ok((replaced, item)) = self.table.replace(key.hash, old.id, new) else {
                    return Err(Status::Internal.into());
                };
                (Some(replaced), item)
            }
            None => match self.table.insert(key.hash, new) {
                Ok(item) => (None, item),
                Err(_) => return Err(Status::NoMemory.into()),
            },
        };
        let bytes = item.bytes() as u64;
        let turned_dirty = env.is_persistent() && self.checkpoint.is_clean();
        if env.is_persistent() || self.checkpoint.is_followed() {
            let held = self.checkpoint.push(item, env.is_persistent());
            debug_assert!(held, "a version nobody has seen has references to spare");
        }
        self.high_seqno = seqno;
        self.marks.visible = seqno;
        let old_weight = replaced.as_ref().map(|ptr| Weight::of(env.shard.item(ptr)));
        self.counts.exchange(key.key, old_weight, Some(weight));
        self.counts.advance(key.key, seqno);
        if deleted && !is_system_key(key.key.encoded()) {
            // Zero would say that there has never been a deletion.
            self.max_deleted_rev = self.max_deleted_rev.max(rev).max(1);
        }
        // Of a tombstone, where no disk takes it over, the time from which it may be forgotten.
        if expiry != 0 && (!deleted || !env.is_persistent()) {
            self.next_expiry = self.next_expiry.min(expiry);
        }
        if let Some(replaced) = &replaced {
            let old = env.shard.item(replaced);
            old.set_stale(old.is_dirty());
        }
        if let Some(replaced) = replaced {
            deferred.release(replaced);
        }
        self.locks.release(key.hash, key.key.encoded());
        self.disk_answers.forget(key.hash, key.key.encoded());
        if env.is_persistent() {
            self.report_dirty(env, turned_dirty, bytes, deferred);
        }
        self.wake_readers(deferred);
        Ok(seqno)
    }

    /// There is something new in the checkpoint.
    #[inline]
    pub(crate) fn wake_readers(&mut self, deferred: &mut DeferredEffects<'_>) {
        if self.checkpoint.is_followed() {
            self.checkpoint.wake_readers().for_each(|waiter| deferred.wake(waiter));
        }
    }

    /// The CAS of the next mutation or lock: the given one or the clock's.
    ///
    /// # Errors
    /// `TemporaryFailure` when it lies above the ceiling; the flusher is asked to raise that.
    pub(crate) fn next_cas(
        &mut self,
        env: &Env<'_>,
        given: Option<base::Cas>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<base::Cas, Refusal> {
        let cas = match given {
            Some(cas) if env.shard.gate.takes_over(cas, self.hlc.last(), env.now) => {
                self.hlc.witness(cas);
                Some(cas)
            }
            Some(_) => None,
            None => self.hlc.tick(env.now, env.shard.gate.ceiling()),
        };
        cas.ok_or_else(|| {
            deferred.flush();
            env.shard.gate.refuse_for_ceiling().into()
        })
    }

    pub(crate) fn report_dirty(
        &mut self,
        env: &Env<'_>,
        turned_dirty: bool,
        bytes: u64,
        deferred: &mut DeferredEffects<'_>,
    ) {
        if turned_dirty {
            deferred.rouse(env.shard.gate.mark_dirty(self.index_in_shard, env.now));
        }
        self.unreported_bytes += bytes;
        if self.unreported_bytes >= REPORT_BYTES {
            let bytes = std::mem::take(&mut self.unreported_bytes);
            let dirty = Dirty { bytes, history: if self.is_catching_up() { bytes } else { 0 } };
            let sum = env.shard.gate.add_dirty(dirty);
            self.reported.add(dirty);
            self.account(env.shard);
            if sum >= crate::pressure::room::FLUSH_BYTES {
                deferred.flush();
            }
        }
    }

    /// What was reported as dirty since the last call; what was not reported is forgotten with it.
    pub(crate) fn take_reported(&mut self) -> Dirty {
        self.unreported_bytes = 0;
        std::mem::take(&mut self.reported)
    }

    /// Counts as reported again what was taken and could not be written.
    pub(crate) fn return_reported(&mut self, dirty: Dirty) {
        self.reported.add(dirty);
    }

    /// Replaces a document by a tombstone, or by nothing where none are kept. System attributes stay with the tombstone.
    ///
    /// # Errors
    /// As [`VBucket::put`]; [`Refusal::Fetch`] when there may be attributes to keep that are not in memory.
    pub(crate) fn delete_item(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        old: &Current,
        expired: bool,
        durable: Option<DurabilityLevel>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Mutated, Refusal> {
        let rev = old.meta.rev + 1;
        if !env.keeps_tombstones() {
            let cas = self.next_cas(env, None, deferred)?;
            self.high_seqno = self.high_seqno.next();
            self.max_deleted_rev = self.max_deleted_rev.max(rev);
            self.counts.advance(key.key, self.high_seqno);
            self.evict(env, key, old.id, deferred);
            return Ok(Mutated { cas, seqno: self.high_seqno, vb_uuid: self.failover.uuid(), wait: false });
        }
        let kept = self.system_xattrs(key, old)?;
        let meta = ItemMeta {
            vb: self.id,
            expiry: env.now.unix_secs().max(1),
            datatype: if kept.is_empty() { Datatype::RAW } else { Datatype::XATTR },
            deleted: true,
            ..ItemMeta::default()
        };
        let mut tombstone =
            NewItem::new(&env.shard.arena, &meta, key.key.encoded(), &kept).ok_or(Status::NoMemory)?;
        mark_expired(&mut tombstone, expired);
        self.put(env, key, Some(old), tombstone, Version { cas: None, rev, durable }, deferred)
    }

    /// The section of extended attributes that survives a document. (Values with attributes are never compressed.)
    pub(crate) fn system_xattrs(&mut self, key: HashedKey<'_>, old: &Current) -> Result<Vec<u8>, Refusal> {
        if !old.meta.datatype.contains(Datatype::XATTR) {
            return Ok(Vec::new());
        }
        if !old.resident {
            return Err(self.missing(key));
        }
        let item = self.table.find(key.hash, key.key.encoded()).ok_or(Status::Internal)?;
        // A document whose attributes are damaged can be deleted all the same.
        let blob = Blob::split(item.value()).map_or(Blob::EMPTY, |(blob, _)| blob);
        let mut kept = Builder::from_blob(&blob);
        kept.keep_system();
        Ok(kept.finish())
    }

    /// Takes a version out of the table, leaving nothing in its place: no mutation, nothing for the disk.
    pub(crate) fn evict(
        &mut self,
        env: &Env<'_>,
        key: HashedKey<'_>,
        id: ItemId,
        deferred: &mut DeferredEffects<'_>,
    ) {
        let Some(taken) = self.table.remove(key.hash, id) else { return };
        let item = env.shard.item(&taken);
        self.counts.exchange(key.key, Some(Weight::of(item)), None);
        // If the checkpoint has it too: whatever replaces nothing is not to be written either.
        item.set_stale(item.is_dirty());
        self.lookups.departed(key.hash);
        self.locks.release(key.hash, key.key.encoded());
        deferred.release(taken);
    }

    /// Moves an item out of a sparse slab if nobody holds it but the table and the checkpoint.
    pub(crate) fn relocate(&mut self, from: &SparseSlot<'_>, shard: &Shard) -> Relocated {
        let may_be_queued = from.look().filter(|found| found.references > 1 || found.is_stale);
        let queued = may_be_queued.and_then(|found| {
            self.checkpoint.entry_of(found.seqno, from.id(), |entry| shard.item(entry).seqno())
        });
        self.table.relocate(from, queued)
    }

    /// Puts a version that the disk has (or that lost its value to it) into the table. No mutation.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn install<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        old: Option<ItemId>,
        new: NewItem<'e>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<(), Status> {
        let weight = Weight::of(new.as_ref());
        let (seqno, expiry, deleted) =
            (new.as_ref().seqno(), new.as_ref().expiry(), new.as_ref().is_deleted());
        let replaced = match old {
            Some(id) => {
                let Ok((replaced, _)) = self.table.replace(key.hash, id, new) else {
                    return Err(Status::Internal);
                };
                Some(replaced)
            }
            None => match self.table.insert(key.hash, new) {
                Ok(_) => None,
                Err(_) => return Err(Status::NoMemory),
            },
        };
        let old_weight = replaced.as_ref().map(|ptr| Weight::of(env.shard.item(ptr)));
        self.counts.exchange(key.key, old_weight, Some(weight));
        self.counts.advance(key.key, seqno);
        if !deleted && expiry != 0 {
            self.next_expiry = self.next_expiry.min(expiry);
        }
        if let Some(replaced) = replaced {
            deferred.release(replaced);
        }
        Ok(())
    }
}
