//! Durable writes of a bucket: who is told how they ended, when they are committed or aborted, what a crash left of them.
//! What a vBucket knows of its own is in [`crate::vbucket::prepares`].

use std::collections::BTreeMap;

use base::{
    DocKey, HashedKey, NodeId, Now, Seqno, Status, VbId, VbRole,
    bucket::{BucketKind, DurabilityLevel},
};
use storage::{KvStore, Locator, Marks, RecordKind, StoreError};

use crate::{
    api::{
        doc::{Durable, Mutated},
        notify::{Refusal, Waiter},
    },
    bucket::Bucket,
    memory::{
        item::{ItemPtr, NewItem},
        item_kind::{item_meta, set_kind},
    },
    shard::{Env, Shard},
    vbucket::{
        chains::Chains,
        prepares::{ABORT_ITEMS, COMMIT_ITEMS, Outcome, Prepare, version_of},
        slot::Slot,
        system_events::collection_of_key,
    },
};

impl Bucket {
    /// How many copies a majority is counted of, where nobody has told whose copies those are.
    pub(crate) fn set_copies(&self, replicas: u8) {
        let copies = if self.options.kind == BucketKind::Memcached { 1 } else { replicas.saturating_add(1) };
        for vb in (0..self.vbuckets()).map(VbId) {
            let Ok((slot, _)) = self.slot(vb) else { continue };
            let mut v = slot.vb.lock();
            if v.chains.is_untold() {
                v.chains = Chains::alone(copies);
            }
        }
    }

    /// Whether a durable mutation ([`crate::Mutated::wait`]) has reached its level. Completion does not depend on
    /// anybody asking. A client that asks says until when it may take (in monotonic milliseconds), and is told once.
    ///
    /// # Errors
    /// `SyncWriteAmbiguous` when its time is up, or when it can no longer be known (shard poisoned, bucket flushed or
    /// closed). Or this copy is none any more, and nobody tells it what becomes of what was in progress.
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
        let mut deferred = self.deferred(shard);
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
            if !is_over || !v.abort(&env, mutated.seqno, &mut deferred) {
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
            let mut deferred = self.deferred(env.shard);
            let (aborted, next) = slot.vb.lock().abort_if(env, is_over, &mut deferred);
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
            // A sealed one commits no more; the next active asks again.
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
        let mut deferred = self.deferred(env.shard);
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
                v.abort(env, prepared, &mut deferred)
            } else {
                let committed = v.commit(env, prepared, version, &mut deferred);
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
        let from = marks.completed.next();
        let open = open_prepares(store, vb, from)?;
        // What the scan has passed over may have been a prepare. It counts no place that was known before, from an earlier start or since
        // the log was opened.
        let mut damaged_from = (store.stats().corrupt_count > 0).then_some(from);
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
