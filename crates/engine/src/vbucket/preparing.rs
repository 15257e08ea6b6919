//! How durable writes of a vBucket begin and end: prepared, then committed or aborted. Under the vBucket's lock.

use base::{Cas, CollectionId, DocKey, HashedKey, Now, Seqno, Status, VbRole, bucket::DurabilityLevel};
use storage::{Marks, RecordKind};

use crate::{
    api::{doc::Mutated, notify::Refusal},
    memory::{
        item::{ItemMeta, ItemPtr, NewItem},
        item_kind::{kind_of, set_kind},
    },
    shard::{Env, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        prepares::{ABORT_ITEMS, Outcome, Prepare, TIMEOUT_MILLIS},
        version::{Current, Version},
    },
};

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
        let level = if self.chains.topology().to_disk { DurabilityLevel::PersistToMajority } else { level };
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
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<Mutated, Refusal> {
        if self.draining_since.is_some() {
            return Err(Status::NotMyVbucket.into());
        }
        if !self.pending.open.has_room_for(key) {
            return Err(Status::SyncWriteInProgress.into());
        }
        let cas = self.next_cas(env, version.cas, deferred)?;
        let is_deletion = new.as_ref().is_deleted();
        let kind = if is_deletion { RecordKind::PreparedDeletion } else { RecordKind::Prepare };
        set_kind(&mut new, kind(level));
        new.set_cas(cas);
        new.set_rev(version.rev);
        let seqno = self.high_seqno.next();
        self.prepare_at(env, key, new, seqno, deferred)?;
        let deadline = env.now.mono_millis.saturating_add(TIMEOUT_MILLIS);
        env.shard.gate.note_deadline(deadline);
        if let Some(prepare) = self.pending.open.get_mut(key.hash, key.key.encoded()) {
            (prepare.deadline, prepare.is_own) = (deadline, true);
        }
        self.locks.release(key.hash, key.key.encoded());
        if level.needs_disk() {
            deferred.flush_durable();
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
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<(), Status> {
        if !self.pending.open.has_room_for(key) {
            return Err(Status::SyncWriteInProgress);
        }
        let level = kind_of(new.as_ref()).prepare_level().unwrap_or(DurabilityLevel::None);
        let item = self.queue_apart(env, new, seqno, deferred);
        self.marks.prepared = seqno;
        let prepare = Prepare::new(item, seqno, level);
        self.pending.insert(key, prepare);
        Ok(())
    }

    /// Gives a prepare or abort its place in the order without putting it into the table. The reference is the caller's.
    pub(crate) fn queue_apart<'e>(
        &mut self,
        env: &Env<'e>,
        mut new: NewItem<'e>,
        seqno: Seqno,
        deferred: &mut DeferredEffects<'_>,
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
            self.report_dirty(env, turned_dirty, item.bytes() as u64, deferred);
        }
        self.wake_readers(deferred);
        held
    }

    /// The next prepares that may be committed, at most so many: their seqnos and references to them.
    pub(crate) fn ready_prepares(&self, env: &Env<'_>, count: usize) -> Vec<(Seqno, ItemPtr)> {
        if self.role != VbRole::Active || self.pending.order.is_empty() {
            return Vec::new();
        }
        let (reached, synced) = (self.chains.reached(), self.synced_whole());
        let is_ready = |seqno: Seqno| {
            let needs_disk = self.pending.at(seqno).is_some_and(|prepare| prepare.level.needs_disk());
            seqno <= reached && (!needs_disk || seqno <= synced)
        };
        let ready = self.pending.order.keys().copied().take_while(|&seqno| is_ready(seqno)).take(count);
        ready.map_while(|seqno| Some((seqno, self.pending.hold(env, seqno)?))).collect()
    }

    /// Commits a prepare, if it is still in progress; `new` is the version it becomes. Whether it did.
    ///
    /// # Errors
    /// When there is no memory for it in the table, and [`Refusal::Fetch`] while only the disk knows what it replaces.
    /// Then it goes on being in progress.
    pub(crate) fn commit<'e>(
        &mut self,
        env: &Env<'e>,
        prepared: Seqno,
        new: NewItem<'e>,
        deferred: &mut DeferredEffects<'_>,
    ) -> Result<bool, Refusal> {
        let Some(prepare) = self.pending.at(prepared) else { return Ok(false) };
        let replaces_lost = prepare.replaces_lost;
        let key: Box<[u8]> = new.as_ref().key().into();
        let key = HashedKey::new(DocKey::trusted(&key));
        // What could not be read when the prepare was made may have been read since.
        let is_lost = replaces_lost && self.table.find(key.hash, key.key.encoded()).is_none();
        let (old, is_lost) = if is_lost { (None, true) } else { self.replaced_by_decree(key)? };
        let seqno = self.publish(env, key, old.as_ref(), new, deferred)?;
        if is_lost {
            self.give_up_lost(key);
        }
        self.checkpoint.note_commit(prepared);
        self.complete(prepared, Outcome::Committed(seqno), env.now, deferred);
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
    pub(crate) fn abort(
        &mut self,
        env: &Env<'_>,
        prepared: Seqno,
        deferred: &mut DeferredEffects<'_>,
    ) -> bool {
        let Some(prepare) = self.pending.at(prepared) else { return true };
        let item = env.shard.item(&prepare.item);
        let meta = ItemMeta { vb: self.id, cas: item.cas(), rev: item.rev(), ..ItemMeta::default() };
        let value = prepared.get().to_le_bytes();
        let Some(mut new) = NewItem::new(&env.shard.arena, &meta, item.key(), &value) else { return false };
        set_kind(&mut new, RecordKind::Abort);
        self.abort_at(env, prepared, new, self.high_seqno.next(), deferred);
        true
    }

    /// Queues an abort at its place in the order. Of a prepare that is not here there is nothing else to do.
    pub(crate) fn abort_at<'e>(
        &mut self,
        env: &Env<'e>,
        prepared: Seqno,
        new: NewItem<'e>,
        seqno: Seqno,
        deferred: &mut DeferredEffects<'_>,
    ) {
        if let Some(prepare) = self.pending.at(prepared) {
            let item = env.shard.item(&prepare.item);
            // What is not written yet need not be any more.
            item.set_stale(item.is_dirty());
        }
        let held = self.queue_apart(env, new, seqno, deferred);
        deferred.release(held);
        // A copy that was told from disk may have nothing but the abort. Without this mark it would take the abort for visible
        // (see `recorded`).
        self.marks.prepared = self.marks.prepared.max(prepared);
        self.complete(prepared, Outcome::Aborted, env.now, deferred);
    }

    /// What a version of a key that has come from the active says of its open prepare. In a snapshot from disk the version
    /// need not be what the prepare became, but may have come after it. Then the prepare may have been aborted as well. A
    /// commit keeps the CAS.
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
        deferred: &mut DeferredEffects<'_>,
    ) {
        let open = self.pending.open.get(key.hash, key.key.encoded()).map(|prepare| prepare.seqno);
        open.into_iter().for_each(|seqno| self.complete(seqno, outcome, now, deferred));
    }

    /// Of prepares up to here whatever was committed is known: the rest was aborted.
    pub(crate) fn close_prepares_up_to(
        &mut self,
        completed: Seqno,
        now: Now,
        deferred: &mut DeferredEffects<'_>,
    ) {
        let open: Vec<Seqno> = self.pending.order.range(..=completed).map(|entry| *entry.0).collect();
        open.into_iter().for_each(|seqno| self.complete(seqno, Outcome::Aborted, now, deferred));
        self.marks.prepared = self.marks.prepared.max(completed);
        self.marks.completed = self.marks.completed.max(completed);
    }

    /// A collection has ended, and what is in progress in it with it. Each copy does this where the event comes in its order
    /// of mutations, and is told of no other abort.
    pub(crate) fn close_prepares_in(
        &mut self,
        env: &Env<'_>,
        collection: CollectionId,
        deferred: &mut DeferredEffects<'_>,
    ) {
        let is_in = |seqno: &Seqno| {
            self.pending.key_of(env, *seqno).is_some_and(|key| key.collection() == collection)
        };
        let open: Vec<Seqno> = self.pending.order.keys().copied().filter(is_in).collect();
        open.into_iter().for_each(|seqno| self.complete(seqno, Outcome::Aborted, env.now, deferred));
    }

    pub(crate) fn complete(
        &mut self,
        prepared: Seqno,
        outcome: Outcome,
        now: Now,
        deferred: &mut DeferredEffects<'_>,
    ) {
        if let Some(prepare) = self.pending.close(prepared, outcome, now) {
            deferred.release(prepare.item);
            prepare.waiter.into_iter().for_each(|waiter| deferred.wake(waiter));
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
    pub(crate) fn abort_if(
        &mut self,
        env: &Env<'_>,
        is_over: &dyn Fn(u64) -> bool,
        deferred: &mut DeferredEffects<'_>,
    ) -> (usize, Option<u64>) {
        if self.role != VbRole::Active {
            return (0, None);
        }
        let over = self.pending.open.values().filter(|p| p.is_own && is_over(p.deadline)).map(|p| p.seqno);
        let over: Vec<Seqno> = over.take(ABORT_ITEMS).collect();
        let aborted = over.into_iter().filter(|&seqno| self.abort(env, seqno, deferred)).count();
        let own = self.pending.open.values().filter(|prepare| prepare.is_own);
        (aborted, own.map(|prepare| prepare.deadline).min())
    }

    /// Marks as they are recorded: not at all before the first durable write.
    pub(crate) fn recorded(&self, marks: Marks) -> Marks {
        if self.marks.prepared == Seqno(0) { Marks::default() } else { marks }
    }
}
