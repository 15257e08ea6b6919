//! Durable writes between their prepare and what becomes of it.
//!
//! A durable write that has to wait makes a *prepare*: an item with a seqno of its own, queued like any mutation, but not
//! put into the table: readers go on seeing what is there, and other writers of the key are told that a write is in
//! progress. When enough copies hold the prepare ([`crate::vbucket::chains`]), this one synced if the level asks for it, it is
//! *committed*: the version enters the table, under the next seqno and the prepare's CAS, as an ordinary mutation. If its
//! time is up first it is *aborted*: an abort is queued instead, and nobody ever sees the version. Which of the two it is
//! gets decided once, by the active, under the vBucket's lock, by whoever comes first; and whether somebody still waits for
//! the answer makes no difference. Prepares are committed in their own order. Before another node takes over none begins any
//! more, so that those there are end here ([`Bucket::drain`]).
//!
//! A replica holds the prepares that it is told of until it is told what became of them. When it becomes the active, those
//! that are open may have been acknowledged: they need a majority again, and are never aborted. Until they have
//! one their keys cannot be read ([`Prepares::is_doubtful`]): clients may have been told that they are written. The same goes for
//! those that a restart finds; where one copy is a majority, they are committed before anything is served. So a write that
//! was answered as ambiguous can still appear then.
//!
//! The end of a collection ends what is in progress in it, on every copy alike: at the event that tells of it, which is never
//! left out of what a copy is told ([`VBucket::close_prepares_in`]). What else there is of a dropped collection, prepares and
//! aborts too, may be left out from then on, and whoever becomes the active may never have heard of them.
//!
//! A prepare that a restart cannot read is neither: its key is unreadable until it is written again
//! ([`Prepares::is_damaged`]).

use std::{collections::BTreeMap, ops::Bound};

use base::{
    Cas, CollectionId, DocKey, HashedKey, NodeId, Now, Seqno, Status, VbId, VbRole, bucket::DurabilityLevel,
};
use storage::{KvStore, Locator, Marks, RecordKind, StoreError};

use crate::{
    api::{
        doc::Mutated,
        notify::{Refusal, Waiter},
    },
    bucket::{Bucket, Slot},
    memory::{
        item::{ItemMeta, ItemPtr, ItemRef, NewItem},
        item_kind::{item_meta, kind_of, set_kind},
        key_map::KeyMap,
    },
    shard::{Env, Shard, aftermath::Aftermath},
    vbucket::{Current, VBucket, Version, system_events::collection_of_key},
};

/// How long a durable write may take when nobody says (kv_engine's default).
const TIMEOUT_MILLIS: u64 = 30_000;
/// Commits per lock hold.
const COMMIT_ITEMS: usize = 64;
/// Aborts per lock hold.
const ABORT_ITEMS: usize = 256;
/// Outcomes that nobody has asked for are kept this long, once there are more than so many; and never more than the most.
/// Who asks for one that is forgotten is told that it is ambiguous.
const OUTCOME_MILLIS: u64 = 60_000;
const OUTCOMES_KEPT: usize = 256;
const OUTCOMES_MAX: usize = 16_384;

/// One durable write that is in progress.
#[derive(Debug)]
pub(crate) struct Prepare {
    item: ItemPtr,
    seqno: Seqno,
    level: DurabilityLevel,
    /// Nobody has been the active but this node since it was made: it may be aborted.
    is_own: bool,
    /// When its time is up, in monotonic milliseconds.
    deadline: u64,
    waiter: Option<Waiter>,
    /// Its key's document had been evicted and is lost to damage on disk: given up once this is committed.
    replaces_lost: bool,
}

impl Prepare {
    /// One that others may have acknowledged, and that nobody waits for here.
    fn new(item: ItemPtr, seqno: Seqno, level: DurabilityLevel) -> Self {
        Self { item, seqno, level, is_own: false, deadline: u64::MAX, waiter: None, replaces_lost: false }
    }
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a version of its key, with this seqno.
    Committed(Seqno),
    /// It is none; or this copy was not told what it became.
    Aborted,
}

/// A vBucket's durable writes in progress, and what those before them became.
#[derive(Debug, Default)]
pub(crate) struct Prepares {
    open: KeyMap<Prepare>,
    /// Those by their seqno: the hash of the key.
    order: BTreeMap<Seqno, u64>,
    /// By the prepare's seqno, with the time; until whoever made it has asked.
    outcomes: BTreeMap<Seqno, (Outcome, u64)>,
    /// From here on there may be prepares that cannot be read: what is completed is not told beyond it.
    damaged_from: Option<Seqno>,
}

impl Prepares {
    /// Whether a durable write of the key is in progress.
    #[inline]
    pub(crate) fn contains(&self, key: HashedKey<'_>) -> bool {
        self.open.get(key.hash, key.key.encoded()).is_some()
    }

    /// Whether a durable write of the key is in progress that another node may have committed, and answered: what the key
    /// says is not known before it is committed here.
    #[inline]
    pub(crate) fn is_doubtful(&self, key: HashedKey<'_>) -> bool {
        self.open.get(key.hash, key.key.encoded()).is_some_and(|prepare| !prepare.is_own)
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Bytes of the structure itself.
    pub(crate) fn bytes(&self) -> usize {
        let order = self.order.len() * size_of::<(Seqno, u64)>();
        self.open.bytes() + order + self.outcomes.len() * size_of::<(Seqno, (Outcome, u64))>()
    }

    /// The first that is still in progress.
    fn first(&self) -> Option<Seqno> {
        self.order.first_key_value().map(|entry| *entry.0)
    }

    /// Whether there is one that cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged_from.is_some()
    }

    /// Up to which seqno at most every prepare can be read.
    pub(crate) fn readable(&self) -> Seqno {
        self.damaged_from.map_or(Seqno(u64::MAX), |from| Seqno(from.get().saturating_sub(1)))
    }

    /// A reference to one that is in progress.
    pub(crate) fn hold(&self, env: &Env<'_>, seqno: Seqno) -> Option<ItemPtr> {
        env.shard.item(&self.at(seqno)?.item).hold()
    }

    /// The key of one that is in progress.
    pub(crate) fn key_of<'a>(&'a self, env: &Env<'a>, seqno: Seqno) -> Option<DocKey<'a>> {
        Some(DocKey::trusted(env.shard.item(&self.at(seqno)?.item).key()))
    }

    /// All that are in progress, in no particular order.
    pub(crate) fn items(&self) -> impl Iterator<Item = &ItemPtr> {
        self.open.values().map(|prepare| &prepare.item)
    }

    /// If one of a level is in progress above a seqno: the seqno before the first such. Whether those before it are still
    /// in progress makes no difference: completed ones are held as well.
    pub(crate) fn held_before(&self, level: DurabilityLevel, above: Seqno) -> Option<Seqno> {
        let mut later = self.order.range((Bound::Excluded(above), Bound::Unbounded)).map(|entry| *entry.0);
        let first = later.find(|&seqno| self.at(seqno).is_some_and(|prepare| prepare.level == level))?;
        Some(Seqno(first.get().saturating_sub(1)))
    }

    /// Another node may have acknowledged any of them, or will.
    pub(crate) fn disown(&mut self) {
        let seqnos: Vec<_> = self.order.values().copied().collect();
        for hash in seqnos {
            if let Some(prepare) = self.open.by_hash_mut(hash) {
                prepare.is_own = false;
            }
        }
    }

    /// Takes out who waits for them.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waiter> {
        let hashes: Vec<_> = self.order.values().copied().collect();
        let waiter = |hash| self.open.by_hash_mut(hash)?.waiter.take();
        hashes.into_iter().filter_map(waiter).collect()
    }

    fn at(&self, seqno: Seqno) -> Option<&Prepare> {
        self.open.by_hash(*self.order.get(&seqno)?)
    }

    fn insert(&mut self, key: HashedKey<'_>, prepare: Prepare) {
        self.order.insert(prepare.seqno, key.hash);
        // There is room for it: asked before.
        let _ = self.open.insert(key, prepare);
    }

    /// The write in progress of a key is going to replace a document that is lost.
    pub(crate) fn replaces_lost(&mut self, key: HashedKey<'_>) {
        if let Some(prepare) = self.open.get_mut(key.hash, key.key.encoded()) {
            prepare.replaces_lost = true;
        }
    }

    /// Takes one out: it has become something.
    fn close(&mut self, seqno: Seqno, outcome: Outcome, now: Now) -> Option<Prepare> {
        let hash = self.order.remove(&seqno)?;
        // From the oldest on: their number is not to be paid for by each that comes.
        while self.outcomes.len() >= OUTCOMES_KEPT
            && let Some(oldest) = self.outcomes.first_entry()
        {
            let is_recent = now.mono_millis < oldest.get().1.saturating_add(OUTCOME_MILLIS);
            if is_recent && self.outcomes.len() < OUTCOMES_MAX {
                break;
            }
            self.outcomes.pop_first();
        }
        self.outcomes.insert(seqno, (outcome, now.mono_millis));
        self.open.remove_by_hash(hash)
    }

    /// Forgets everything. Returns what to release and whom to wake.
    pub(crate) fn clear(&mut self) -> Vec<(ItemPtr, Option<Waiter>)> {
        self.order.clear();
        self.outcomes.clear();
        self.damaged_from = None;
        self.open.extract(|_| true).into_iter().map(|prepare| (prepare.item, prepare.waiter)).collect()
    }
}

/// How far a durable mutation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// It has reached its level and is visible: answer with this, whose seqno is the version's.
    Committed(Mutated),
    /// The waiter has been noted and will be woken.
    Parked,
}

impl VBucket {
    /// What a durable write has to wait for before it is seen; nothing where this copy alone, in memory, is a majority.
    ///
    /// # Errors
    /// `DurabilityImpossible` when there are too few copies.
    #[inline]
    pub(crate) fn level_to_wait_for(
        &self,
        asked: Option<DurabilityLevel>,
    ) -> Result<Option<DurabilityLevel>, Status> {
        let Some(level) = asked else { return Ok(None) };
        if !self.chains.is_majority_possible() {
            return Err(Status::DurabilityImpossible);
        }
        Ok((level.needs_disk() || !self.chains.is_only_copy()).then_some(level))
    }

    /// Queues a durable write that is to wait. The key has been found free of others.
    ///
    /// # Errors
    /// As [`VBucket::put`], and `NotMyVbucket` while those in progress are to end before another node takes over.
    pub(crate) fn prepare<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        mut new: NewItem<'e>,
        (version, level): (Version, DurabilityLevel),
        after: &mut Aftermath<'_>,
    ) -> Result<Mutated, Refusal> {
        if self.draining_since.is_some() {
            return Err(Status::NotMyVbucket.into());
        }
        if !self.pending.open.has_room_for(key) {
            return Err(Status::SyncWriteInProgress.into());
        }
        let cas = self.next_cas(env, version.cas, after)?;
        let is_deletion = new.as_ref().is_deleted();
        let kind = if is_deletion { RecordKind::PreparedDeletion } else { RecordKind::Prepare };
        set_kind(&mut new, kind(level));
        new.set_cas(cas);
        new.set_rev(version.rev);
        let seqno = self.high_seqno.next();
        self.prepare_at(env, key, new, seqno, after)?;
        let deadline = env.now.mono_millis.saturating_add(TIMEOUT_MILLIS);
        env.shard.gate.note_deadline(deadline);
        if let Some(prepare) = self.pending.open.get_mut(key.hash, key.key.encoded()) {
            (prepare.deadline, prepare.is_own) = (deadline, true);
        }
        self.locks.release(key.hash, key.key.encoded());
        if level.needs_disk() {
            after.flush_durable();
        }
        Ok(Mutated { cas, seqno, vb_uuid: self.failover.uuid(), wait: true })
    }

    /// Queues a prepare at its place in the order. Another node may have acknowledged it, as far as is known here.
    ///
    /// # Errors
    /// `SyncWriteInProgress` when it cannot be held beside the others. Nothing has changed then.
    pub(crate) fn prepare_at<'e>(
        &mut self,
        env: &Env<'e>,
        key: HashedKey<'_>,
        new: NewItem<'e>,
        seqno: Seqno,
        after: &mut Aftermath<'_>,
    ) -> Result<(), Status> {
        if !self.pending.open.has_room_for(key) {
            return Err(Status::SyncWriteInProgress);
        }
        let level = kind_of(new.as_ref()).prepare_level().unwrap_or(DurabilityLevel::None);
        let item = self.queue_apart(env, new, seqno, after);
        self.marks.prepared = seqno;
        let prepare = Prepare::new(item, seqno, level);
        self.pending.insert(key, prepare);
        Ok(())
    }

    /// Gives a prepare or abort its place in the order without putting it into the table. The reference is the caller's.
    fn queue_apart<'e>(
        &mut self,
        env: &Env<'e>,
        mut new: NewItem<'e>,
        seqno: Seqno,
        after: &mut Aftermath<'_>,
    ) -> ItemPtr {
        new.set_seqno(seqno);
        new.set_dirty(env.is_persistent());
        let held = ItemPtr::from_handle(new.publish());
        let item = env.shard.item(&held);
        let turned_dirty = self.checkpoint.is_clean();
        if env.is_persistent() || self.checkpoint.is_followed() {
            let queued = self.checkpoint.push(item, env.is_persistent());
            debug_assert!(queued, "a version nobody has seen has references to spare");
        }
        self.high_seqno = seqno;
        if env.is_persistent() {
            self.report_dirty(env, turned_dirty, item.bytes() as u64, after);
        }
        self.wake_readers(after);
        held
    }

    /// The next prepares that may be committed, at most so many: their seqnos and references to them.
    fn ready_prepares(&self, env: &Env<'_>, count: usize) -> Vec<(Seqno, ItemPtr)> {
        if self.role != VbRole::Active || self.pending.order.is_empty() {
            return Vec::new();
        }
        let reached = self.chains.reached();
        let is_ready = |seqno: Seqno| {
            let needs_disk = self.pending.at(seqno).is_some_and(|prepare| prepare.level.needs_disk());
            seqno <= reached && (!needs_disk || seqno <= self.persisted_seqno)
        };
        let ready = self.pending.order.keys().copied().take_while(|&seqno| is_ready(seqno)).take(count);
        ready.map_while(|seqno| Some((seqno, self.pending.hold(env, seqno)?))).collect()
    }

    /// Commits a prepare, if it is still in progress; `new` is the version it becomes. Whether it did.
    ///
    /// # Errors
    /// When there is no memory for it in the table, and [`Refusal::Fetch`] while only the disk knows what it replaces: it
    /// goes on being in progress.
    fn commit<'e>(
        &mut self,
        env: &Env<'e>,
        prepared: Seqno,
        new: NewItem<'e>,
        after: &mut Aftermath<'_>,
    ) -> Result<bool, Refusal> {
        let Some(prepare) = self.pending.at(prepared) else { return Ok(false) };
        let replaces_lost = prepare.replaces_lost;
        let key: Box<[u8]> = new.as_ref().key().into();
        let key = HashedKey::new(DocKey::trusted(&key));
        let (old, is_lost) = if replaces_lost { (None, true) } else { self.replaced_by_decree(key)? };
        let seqno = self.publish(env, key, old.as_ref(), new, after)?;
        if is_lost {
            self.give_up_lost(key);
        }
        self.checkpoint.note_commit(prepared);
        self.complete(prepared, Outcome::Committed(seqno), env.now, after);
        Ok(true)
    }

    /// The version of a key that one replaces which is beyond question; or that there was one, lost to damage.
    ///
    /// # Errors
    /// [`Refusal::Fetch`] when it may be on disk only: it is counted as long as nobody knows.
    pub(crate) fn replaced_by_decree(
        &mut self,
        key: HashedKey<'_>,
    ) -> Result<(Option<Current>, bool), Refusal> {
        if let Some(found) = self.table.find(key.hash, key.key.encoded()) {
            return Ok((Some(Current::of(found)), false));
        }
        match self.settle_absent(key) {
            Ok(_) => Ok((None, false)),
            Err(Refusal::Status(_)) => Ok((None, true)),
            Err(Refusal::Fetch) => Err(Refusal::Fetch),
        }
    }

    /// Aborts a prepare that is in progress. False when there is no memory for saying so.
    fn abort(&mut self, env: &Env<'_>, prepared: Seqno, after: &mut Aftermath<'_>) -> bool {
        let Some(prepare) = self.pending.at(prepared) else { return true };
        let item = env.shard.item(&prepare.item);
        let meta = ItemMeta { vb: self.id, cas: item.cas(), rev: item.rev(), ..ItemMeta::default() };
        let value = prepared.get().to_le_bytes();
        let Some(mut new) = NewItem::new(&env.shard.arena, &meta, item.key(), &value) else { return false };
        set_kind(&mut new, RecordKind::Abort);
        self.abort_at(env, prepared, new, self.high_seqno.next(), after);
        true
    }

    /// Queues an abort at its place in the order. Of a prepare that is not here there is nothing else to do.
    pub(crate) fn abort_at<'e>(
        &mut self,
        env: &Env<'e>,
        prepared: Seqno,
        new: NewItem<'e>,
        seqno: Seqno,
        after: &mut Aftermath<'_>,
    ) {
        if let Some(prepare) = self.pending.at(prepared) {
            let item = env.shard.item(&prepare.item);
            // What is not written yet need not be any more.
            item.set_stale(item.is_dirty());
        }
        let held = self.queue_apart(env, new, seqno, after);
        after.release(held);
        self.complete(prepared, Outcome::Aborted, env.now, after);
    }

    /// What a version of a key that has come from the active says of its open prepare. In a snapshot from disk it need not be
    /// what that became, but may have come after it: then that may have been aborted as well. A commit keeps the CAS.
    pub(crate) fn outcome_by(&self, env: &Env<'_>, key: HashedKey<'_>, version: (Seqno, Cas)) -> Outcome {
        let prepare = self.pending.open.get(key.hash, key.key.encoded());
        match prepare.map(|prepare| env.shard.item(&prepare.item).cas()) {
            Some(cas) if cas == version.1 => Outcome::Committed(version.0),
            _ => Outcome::Aborted,
        }
    }

    /// What a key's open prepare became is known, if it has one.
    pub(crate) fn close_prepare_of(
        &mut self,
        key: HashedKey<'_>,
        outcome: Outcome,
        now: Now,
        after: &mut Aftermath<'_>,
    ) {
        let open = self.pending.open.get(key.hash, key.key.encoded()).map(|prepare| prepare.seqno);
        open.into_iter().for_each(|seqno| self.complete(seqno, outcome, now, after));
    }

    /// Of prepares up to here whatever was committed is known: the rest was aborted.
    pub(crate) fn close_prepares_up_to(&mut self, completed: Seqno, now: Now, after: &mut Aftermath<'_>) {
        let open: Vec<Seqno> = self.pending.order.range(..=completed).map(|entry| *entry.0).collect();
        open.into_iter().for_each(|seqno| self.complete(seqno, Outcome::Aborted, now, after));
        self.marks.prepared = self.marks.prepared.max(completed);
        self.marks.completed = self.marks.completed.max(completed);
    }

    /// A collection has ended, and what is in progress in it with it. Each copy does this where the event comes in its order
    /// of mutations, and is told of no other abort.
    pub(crate) fn close_prepares_in(
        &mut self,
        env: &Env<'_>,
        collection: CollectionId,
        after: &mut Aftermath<'_>,
    ) {
        let is_in = |seqno: &Seqno| {
            self.pending.key_of(env, *seqno).is_some_and(|key| key.collection() == collection)
        };
        let open: Vec<Seqno> = self.pending.order.keys().copied().filter(is_in).collect();
        open.into_iter().for_each(|seqno| self.complete(seqno, Outcome::Aborted, env.now, after));
    }

    fn complete(&mut self, prepared: Seqno, outcome: Outcome, now: Now, after: &mut Aftermath<'_>) {
        if let Some(prepare) = self.pending.close(prepared, outcome, now) {
            after.release(prepare.item);
            prepare.waiter.into_iter().for_each(|waiter| after.wake(waiter));
        }
        match self.pending.first() {
            None => self.marks.completed = self.marks.prepared,
            Some(first) if first > prepared => self.marks.completed = self.marks.completed.max(prepared),
            Some(_) => {}
        }
        if let Some(from) = self.pending.damaged_from {
            self.marks.completed = self.marks.completed.min(Seqno(from.get() - 1));
        }
    }

    /// Aborts some of what `is_over`, given the deadline. Returns how many, and the next deadline of the rest.
    fn abort_if(
        &mut self,
        env: &Env<'_>,
        is_over: &dyn Fn(u64) -> bool,
        after: &mut Aftermath<'_>,
    ) -> (usize, Option<u64>) {
        if self.role != VbRole::Active {
            return (0, None);
        }
        let over = self.pending.open.values().filter(|p| p.is_own && is_over(p.deadline)).map(|p| p.seqno);
        let over: Vec<Seqno> = over.take(ABORT_ITEMS).collect();
        let aborted = over.into_iter().filter(|&seqno| self.abort(env, seqno, after)).count();
        let own = self.pending.open.values().filter(|prepare| prepare.is_own);
        (aborted, own.map(|prepare| prepare.deadline).min())
    }

    /// Marks as they are recorded: not at all before the first durable write.
    pub(crate) fn recorded(&self, marks: Marks) -> Marks {
        if self.marks.prepared == Seqno(0) { Marks::default() } else { marks }
    }
}

impl Bucket {
    /// Whether a durable mutation ([`crate::Mutated::wait`]) has reached its level. Completion does not depend on
    /// anybody asking; whoever asks says until when it may take (in monotonic milliseconds), and is told once.
    ///
    /// # Errors
    /// `SyncWriteAmbiguous` when its time is up, or when it can no longer be known (shard poisoned, bucket flushed or
    /// closed; or this copy is none any more, and nobody tells it what becomes of what was in progress).
    pub fn complete_durable(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        mutated: &Mutated,
        waiter: Waiter,
        deadline: u64,
        now: Now,
    ) -> Result<Durable, Status> {
        let (slot, shard) = self.slot(vb)?;
        let env = Env { shard, kind: self.options.kind, now };
        let mut after = self.aftermath(shard);
        let mut v = slot.vb.lock();
        // On another branch since: that one may hold it as well.
        let is_known = v.failover.uuid() == mutated.vb_uuid
            || v.failover.end_of(mutated.vb_uuid).is_some_and(|end| mutated.seqno <= end);
        if !is_known {
            return Err(Status::SyncWriteAmbiguous);
        }
        let (may_abort, is_untold) = (v.role == VbRole::Active, v.role == VbRole::Dead);
        if let Some(prepare) = v.pending.open.get_mut(key.hash, key.key.encoded())
            && prepare.seqno == mutated.seqno
        {
            prepare.deadline = deadline;
            prepare.waiter = Some(waiter);
            let is_over = now.mono_millis >= deadline || shard.gate.is_poisoned() || is_untold;
            if is_over && !(may_abort && prepare.is_own) {
                // What becomes of it somebody else decides.
                prepare.waiter = None;
                return Err(Status::SyncWriteAmbiguous);
            }
            if !is_over || !v.abort(&env, mutated.seqno, &mut after) {
                shard.gate.note_deadline(deadline);
                return Ok(Durable::Parked);
            }
        }
        match v.pending.outcomes.remove(&mutated.seqno) {
            Some((Outcome::Committed(seqno), _)) => {
                Ok(Durable::Committed(Mutated { seqno, vb_uuid: v.failover.uuid(), wait: false, ..*mutated }))
            }
            Some((Outcome::Aborted, _)) | None => Err(Status::SyncWriteAmbiguous),
        }
    }

    /// Housekeeping: aborts durable writes whose time is up, whether anybody waits for them or not. Cheap while there are
    /// none.
    pub fn time_out_durable(&self, now: Now) {
        for shard in &self.shards {
            if !shard.gate.take_deadline(now) {
                continue;
            }
            let env = Env { shard, kind: self.options.kind, now };
            for vb in self.vbs_of(shard) {
                let Ok((slot, _)) = self.slot(vb) else { continue };
                // There may be some that were ready when memory was short.
                self.complete_prepares(slot, shard, now);
                let is_over = |deadline| now.mono_millis >= deadline;
                if let Some(next) = self.abort_all_that(slot, &env, &is_over) {
                    shard.gate.note_deadline(next);
                }
            }
        }
    }

    /// Nothing will be synced any more: what is in progress is aborted.
    pub(crate) fn abort_all(&self, slot: &Slot, shard: &Shard, now: Now) {
        // Where there is no memory for it, the flusher comes again.
        let _ = self.abort_all_that(slot, &Env { shard, kind: self.options.kind, now }, &|_| true);
    }

    /// Aborts what `is_over`, given the deadline, a few at a time. Returns the next deadline of the rest.
    fn abort_all_that(&self, slot: &Slot, env: &Env<'_>, is_over: &dyn Fn(u64) -> bool) -> Option<u64> {
        loop {
            let mut after = self.aftermath(env.shard);
            let (aborted, next) = slot.vb.lock().abort_if(env, is_over, &mut after);
            if aborted < ABORT_ITEMS {
                return next;
            }
        }
    }

    /// A replica of a vBucket holds everything that was prepared up to a seqno, told in a stream of the active's term.
    ///
    /// # Errors
    /// `NotMyVbucket` when this node is not the active of that term.
    pub fn acknowledge(
        &self,
        vb: VbId,
        term: u64,
        node: NodeId,
        prepared: Seqno,
        now: Now,
    ) -> Result<(), Status> {
        let (slot, shard) = self.slot(vb)?;
        {
            let mut v = slot.vb.lock();
            // A sealed one commits no more; whoever takes over asks again.
            if !matches!(v.role, VbRole::Active | VbRole::Sealed) || v.term != term {
                return Err(Status::NotMyVbucket);
            }
            if !v.chains.acknowledge(node, prepared) || v.pending.order.is_empty() {
                return Ok(());
            }
        }
        self.complete_prepares(slot, shard, now);
        Ok(())
    }

    /// Commits the prepares of a vBucket that enough copies hold. Returns how many.
    pub(crate) fn complete_prepares(&self, slot: &Slot, shard: &Shard, now: Now) -> usize {
        let env = Env { shard, kind: self.options.kind, now };
        let mut committed = 0;
        loop {
            let (incarnation, prepares) = {
                let v = slot.vb.lock();
                (v.incarnation, v.ready_prepares(&env, COMMIT_ITEMS))
            };
            if prepares.is_empty() {
                return committed;
            }
            // The versions that they become are made without the lock: values may be large.
            let versions: Vec<_> =
                prepares.iter().map(|(seqno, held)| (*seqno, version_of(&env, shard.item(held)))).collect();
            let done = self.commit_versions(slot, &env, incarnation, versions);
            prepares.into_iter().for_each(|(_, held)| shard.release(held));
            committed += done;
            if done == 0 {
                // Short of memory: the housekeeper tries again.
                shard.gate.note_deadline(now.mono_millis);
                return committed;
            }
        }
    }

    fn commit_versions(
        &self,
        slot: &Slot,
        env: &Env<'_>,
        incarnation: u32,
        versions: Vec<(Seqno, Option<NewItem<'_>>)>,
    ) -> usize {
        let collections = self.collections.load();
        // Taken over with a copy whose document is on disk only: it is brought first, and stays while this is in progress.
        let mut wanted: Option<Box<[u8]>> = None;
        let mut after = self.aftermath(env.shard);
        let mut v = slot.vb.lock();
        let vb = v.id;
        if v.incarnation != incarnation || v.role != VbRole::Active {
            // Emptied meanwhile: what has these seqnos now are other writes. Or not the active's any more.
            return 0;
        }
        let mut done = 0;
        for (prepared, version) in versions {
            // In their own order: without room for one, none behind it is committed either.
            let Some(version) = version else { break };
            // It has synced for a collection that is no more.
            let is_dropped = collections.is_dropped(DocKey::trusted(version.as_ref().key()).collection());
            let completed = if is_dropped {
                v.abort(env, prepared, &mut after)
            } else {
                let committed = v.commit(env, prepared, version, &mut after);
                if committed == Err(Refusal::Fetch) {
                    wanted = v.pending.at(prepared).map(|prepare| env.shard.item(&prepare.item).key().into());
                }
                committed.is_ok()
            };
            if !completed {
                break;
            }
            done += 1;
        }
        drop(v);
        if let Some(key) = wanted {
            // The housekeeper tries again in any case.
            let _ = self.enqueue_fetch(vb, HashedKey::new(DocKey::trusted(&key)), None);
        }
        done
    }

    /// Finds what a crash left prepared in a shard. Where this copy alone is served it is committed at once.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn recover_prepares(&self, shard: &Shard) -> Result<(), StoreError> {
        let Some(store) = &shard.store else { return Ok(()) };
        for vb in self.vbs_of(shard) {
            let Ok((slot, _)) = self.slot(vb) else { continue };
            let marks = slot.vb.lock().marks;
            if marks.prepared > marks.completed {
                self.recover_prepares_of(slot, shard, &**store, vb, marks)?;
            }
            let mut v = slot.vb.lock();
            // Of what lies beyond the start of an open snapshot nobody knows how its prepares stand; and what cannot be read
            // is not held.
            let open = v.following.snapshots.open().map(|open| open.start);
            let readable = v.pending.damaged_from.map(|from| Seqno(from.get() - 1));
            let prepared = v.marks.prepared;
            let held = [open, readable].into_iter().flatten().fold(prepared, Seqno::min);
            v.following.recovered(held);
        }
        Ok(())
    }

    fn recover_prepares_of(
        &self,
        slot: &Slot,
        shard: &Shard,
        store: &dyn KvStore,
        vb: VbId,
        marks: Marks,
    ) -> Result<(), StoreError> {
        let damages = || store.stats().corrupt_count;
        let from = marks.completed.next();
        let damaged_before = damages();
        let open = open_prepares(store, vb, from)?;
        // What the scan has passed over may have been a prepare.
        let mut damaged_from = (damages() > damaged_before).then_some(from);
        for (kind, seqno, at) in open {
            let record = match store.get_at(at) {
                Ok(record) => record,
                Err(StoreError::Corrupt { .. }) => {
                    damaged_from = damaged_from.or(Some(seqno));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let key = HashedKey::new(DocKey::trusted(&record.key));
            let meta = item_meta(vb, &record.meta, Locator::NONE);
            let mut new = NewItem::new(&shard.arena, &meta, &record.key, &record.value)
                .ok_or(StoreError::Invalid("no memory for what was prepared"))?;
            set_kind(&mut new, kind);
            let item = ItemPtr::from_handle(new.publish());
            let level = kind.prepare_level().unwrap_or(DurabilityLevel::None);
            let mut v = slot.vb.lock();
            let prepare = Prepare::new(item, seqno, level);
            v.pending.insert(key, prepare);
        }
        let mut v = slot.vb.lock();
        v.pending.damaged_from = damaged_from;
        if v.pending.order.is_empty() && damaged_from.is_none() {
            v.marks.completed = v.marks.prepared;
        }
        Ok(())
    }
}

/// The prepares from a seqno on that nothing came after, not even the end of their collection, in order: what they are and
/// where. Only keys of prepares are held in memory, since any number of ordinary writes may lie between them.
fn open_prepares(
    store: &dyn KvStore,
    vb: VbId,
    from: Seqno,
) -> Result<Vec<(RecordKind, Seqno, Locator)>, StoreError> {
    let mut newest: BTreeMap<Box<[u8]>, (Seqno, RecordKind, Locator)> = BTreeMap::new();
    store.scan(Some(vb), from, false, &mut |_, record, at| {
        if record.meta.kind.prepare_level().is_some() {
            let found = (record.meta.seqno, record.meta.kind, at);
            let known = newest.entry(record.key.into()).or_insert(found);
            if known.0 < found.0 {
                *known = found;
            }
        }
        true
    })?;
    if newest.is_empty() {
        return Ok(Vec::new());
    }
    store.scan(Some(vb), from, false, &mut |_, record, _| {
        if let Some(ended) = collection_of_key(record.key)
            && record.meta.kind.is_tombstone()
        {
            let outlived = record.meta.seqno;
            newest.retain(|key, found| found.0 > outlived || DocKey::trusted(key).collection() != ended);
        }
        if newest.get(record.key).is_some_and(|prepare| prepare.0 < record.meta.seqno) {
            newest.remove(record.key);
        }
        !newest.is_empty()
    })?;
    let mut open: Vec<_> = newest.into_values().collect();
    open.sort_unstable_by_key(|found| found.0);
    Ok(open.into_iter().map(|(seqno, kind, at)| (kind, seqno, at)).collect())
}

/// The version that a prepare becomes; `None` when there is no memory for it.
pub(crate) fn version_of<'e>(env: &Env<'e>, prepare: ItemRef<'_>) -> Option<NewItem<'e>> {
    let meta = ItemMeta { locator: Locator::NONE, ..prepare.meta() };
    let mut new = NewItem::new(&env.shard.arena, &meta, prepare.key(), prepare.value())?;
    set_kind(&mut new, becomes(kind_of(prepare)));
    Some(new)
}

/// What a key's version is once this is committed.
fn becomes(prepare: RecordKind) -> RecordKind {
    match prepare {
        RecordKind::PreparedDeletion(_) => RecordKind::Deletion,
        _ => RecordKind::Document,
    }
}

/// The prepare that an abort is about.
pub(crate) fn aborted(value: &[u8]) -> Seqno {
    Seqno(value.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_names_its_prepare() {
        assert_eq!(aborted(&77_u64.to_le_bytes()), Seqno(77));
        assert_eq!(aborted(b"short"), Seqno(0));
    }

    #[test]
    fn outcomes_that_nobody_asks_for_do_not_pile_up() {
        let mut prepares = Prepares::default();
        for n in 0..10 * OUTCOMES_KEPT as u64 {
            let now = Now { wall_nanos: 0, mono_millis: n * 1000 };
            prepares.outcomes.insert(Seqno(n), (Outcome::Aborted, now.mono_millis));
            prepares.order.insert(Seqno(n), n);
            prepares.close(Seqno(n), Outcome::Aborted, now);
            let kept = prepares.outcomes.len();
            assert!(kept <= OUTCOMES_KEPT + 1, "{kept}");
        }
    }

    #[test]
    fn nor_do_those_of_clients_that_never_stay_for_the_answer() {
        let mut prepares = Prepares::default();
        let now = Now { wall_nanos: 0, mono_millis: 1 };
        for n in 0..2 * OUTCOMES_MAX as u64 {
            prepares.order.insert(Seqno(n), n);
            prepares.close(Seqno(n), Outcome::Aborted, now);
        }
        assert_eq!(prepares.outcomes.len(), OUTCOMES_MAX);
        assert!(prepares.outcomes.contains_key(&Seqno(2 * OUTCOMES_MAX as u64 - 1)), "the newest stay");
    }
}
