//! Housekeeping of documents that should be gone: past their expiry, or in a collection that was dropped. Where no disk
//! keeps tombstones, those past the purge interval go too. Where this node is not the active nothing expires: the active
//! tells what has.
//!
//! Walks vBucket by vBucket, a few documents per lock hold. It skips vBuckets in which nothing can be due: each knows a
//! time before which nothing expires. Documents that are asked for after their expiry do not wait for this; they go
//! when they are met. So there is no hurry, and two rules bound the cost. After a walk a vBucket rests, the longer the
//! larger it is, even if a document of it expires every second. While a shard has many tombstones to write, its
//! documents wait.

use base::{Datatype, DocKey, HashedKey, Now, Seqno, VbId, VbRole};

use crate::{
    api::{
        notify::Refusal,
        stats::{Budget, StepReport},
    },
    bucket::{Bucket, pagers::ExpiryPager},
    memory::{
        hash_table::ScanPosition,
        item::{ItemId, ItemRef},
    },
    pressure::room::FLUSH_BYTES,
    shard::{Env, deferred::DeferredEffects},
    vbucket::{VBucket, collections::CollectionTable, version::is_due},
};

/// Documents looked at per lock hold.
const CHUNK: usize = 64;
/// Buckets of a table that is growing or shrinking, and may not be changed soon, that are moved per lock hold.
const MOVED: usize = 1024;
/// Documents of a vBucket that is walked for expiry once per second; larger ones rest longer between walks.
const WALKED_PER_SEC: usize = 256;
/// No vBucket rests longer.
const REST_SECS_MAX: u32 = 600;
/// Dirty bytes of a shard above which nothing more expires there for now.
const DIRTY_BYTES_MAX: u64 = 4 * FLUSH_BYTES;
/// When to look again at an expired document that could not be read.
const UNREADABLE_RETRY_SECS: u32 = 60;
/// Tombstones a memory-only vBucket keeps whatever their age, beyond half as many as it has documents.
const TOMBSTONES_MIN: u64 = 256;

/// Why a document is to go.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Expired,
    CollectionDropped,
    TombstonePurged,
}

impl Bucket {
    /// Housekeeping: deletes expired documents and erases those of dropped collections.
    pub fn expire(&self, now: Now, budget: Budget) -> StepReport {
        let mut report = StepReport::default();
        let Some(mut pager) = self.expiry_pager.try_lock() else { return report };
        let collections = self.collections.load_full();
        pager.rests_until.resize(usize::from(self.vbuckets()), 0);
        let mut looked_at = 0;
        // A vBucket left half-way is finished first, and begun again at the end of the round.
        let vbs = usize::from(self.vbuckets()) + usize::from(pager.position.is_some());
        for _ in 0..vbs {
            let vb = VbId(pager.vb % self.vbuckets());
            if !self.expire_in(vb, &mut pager, &collections, now, budget, &mut looked_at, &mut report) {
                report.more = true;
                return report;
            }
            pager.vb = (vb.get() + 1) % self.vbuckets();
        }
        report
    }

    /// Walks one vBucket; false when the budget ended first.
    #[expect(clippy::too_many_arguments, reason = "the state of one walk, used once")]
    fn expire_in(
        &self,
        vb: VbId,
        pager: &mut ExpiryPager,
        collections: &CollectionTable,
        now: Now,
        budget: Budget,
        looked_at: &mut usize,
        report: &mut StepReport,
    ) -> bool {
        let Ok((slot, shard)) = self.slot(vb) else { return true };
        let env = Env { shard, kind: self.options.kind, now };
        let rests_until = pager.rests_until.get(usize::from(vb.get())).copied().unwrap_or(0);
        loop {
            if *looked_at >= budget.items {
                return false;
            }
            let mut deferred = self.deferred(shard);
            let mut v = slot.vb.lock();
            let from = match pager.position {
                Some(position) => position,
                None => {
                    v.locks.sweep(now);
                    if v.table.is_moving() {
                        v.table.move_on(MOVED);
                    }
                    if v.role == VbRole::Active && v.events.are_behind() {
                        v.record_owed(&env, &mut deferred);
                    }
                    if !needs_walk(&v, &env, collections, rests_until <= now.mono_millis) {
                        forget_ended(&mut v, &env, collections);
                        return true;
                    }
                    let dropped = v.counts.drop_evicted(|id| collections.is_dropped(id));
                    v.cold.note_surplus(dropped);
                    // What is still to come is met by the walk, or lowers this again.
                    v.next_expiry = u32::MAX;
                    ScanPosition::default()
                }
            };
            if env.is_persistent() && shard.gate.dirty_bytes() > DIRTY_BYTES_MAX {
                // What is left of this one is found by the next walk.
                v.next_expiry = v.next_expiry.min(now.unix_secs());
                pager.position = None;
                return true;
            }
            let mut wanted = Vec::new();
            let (next, seen, gone) =
                self.expire_chunk(&mut v, &env, collections, from, &mut deferred, &mut wanted);
            let documents = v.table.len();
            drop(v);
            for key in wanted {
                // A document that is not served is met again.
                let _ = self.enqueue_fetch(vb, HashedKey::new(DocKey::trusted(&key)), None);
            }
            *looked_at += seen;
            report.items += gone;
            pager.position = next;
            if next.is_none() {
                if let Some(until) = pager.rests_until.get_mut(usize::from(vb.get())) {
                    *until = now.mono_millis.saturating_add(u64::from(rest_secs(documents)) * 1_000);
                }
                return true;
            }
        }
    }

    fn expire_chunk(
        &self,
        v: &mut VBucket,
        env: &Env<'_>,
        collections: &CollectionTable,
        from: ScanPosition,
        deferred: &mut DeferredEffects<'_>,
        wanted: &mut Vec<Box<[u8]>>,
    ) -> (Option<ScanPosition>, usize, usize) {
        let interval = self.settings.purge_interval_secs();
        let serves = v.role == VbRole::Active;
        let too_many = v.counts.tombstones > TOMBSTONES_MIN.max(v.counts.items / 2);
        let mut seen = 0;
        let mut due: Vec<(ItemId, Reason)> = Vec::new();
        let mut next_expiry = u32::MAX;
        let next = v.table.scan(from, CHUNK, &mut |item| {
            seen += 1;
            if item.is_deleted() {
                if env.is_persistent() {
                    return;
                }
                let until = item.expiry().saturating_add(interval);
                if too_many || is_due(until, env.now) {
                    due.push((item.id(), Reason::TombstonePurged));
                } else {
                    next_expiry = next_expiry.min(until);
                }
            } else if collections.is_dropped(DocKey::trusted(item.key()).collection()) {
                due.push((item.id(), Reason::CollectionDropped));
            } else if serves && is_due(item.expiry(), env.now) {
                due.push((item.id(), Reason::Expired));
            } else if item.expiry() != 0 {
                next_expiry = next_expiry.min(item.expiry());
            }
        });
        v.next_expiry = v.next_expiry.min(next_expiry);
        let mut gone = 0;
        for (id, reason) in due {
            gone += usize::from(remove(v, env, id, reason, deferred, wanted));
        }
        (next, seen, gone)
    }
}

/// How long a vBucket with so many documents rests after a walk.
fn rest_secs(documents: usize) -> u32 {
    u32::try_from(documents / WALKED_PER_SEC).unwrap_or(u32::MAX).min(REST_SECS_MAX)
}

/// Forgets scopes and collections that have ended.
fn forget_ended(v: &mut VBucket, env: &Env<'_>, collections: &CollectionTable) {
    // Those whose end is not told yet are what a new active copy goes by to tell it.
    if env.keeps_tombstones() && v.events.told() < collections.uid() {
        return;
    }
    v.counts.retain_collections(|id| !collections.is_dropped(id));
    // The default scope has no events.
    if v.counts.scopes().len() >= collections.manifest().scopes.len() {
        v.counts.retain_scopes(|id| !collections.is_scope_dropped(id));
    }
}

fn needs_walk(v: &VBucket, env: &Env<'_>, collections: &CollectionTable, is_rested: bool) -> bool {
    // Where there is no disk, tombstones are forgotten by their time, everywhere.
    let expires = (v.role == VbRole::Active || !env.is_persistent()) && is_due(v.next_expiry, env.now);
    is_rested && expires
        || v.counts.collections().any(|count| count.items > 0 && collections.is_dropped(count.id))
        || (!env.is_persistent() && v.counts.tombstones > TOMBSTONES_MIN.max(v.counts.items / 2))
}

/// Removes a document or tombstone; `wanted` is told of a value that has to be in memory first.
fn remove(
    v: &mut VBucket,
    env: &Env<'_>,
    id: ItemId,
    reason: Reason,
    deferred: &mut DeferredEffects<'_>,
    wanted: &mut Vec<Box<[u8]>>,
) -> bool {
    // SAFETY: the id comes from a scan of this table under the lock that is still held. Removing one item leaves the
    // others where they are.
    let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
    let (key, seqno, expiry): (Box<[u8]>, Seqno, u32) = (item.key().into(), item.seqno(), item.expiry());
    let key = HashedKey::new(DocKey::trusted(&key));
    match reason {
        Reason::Expired => {
            // Turns it into a tombstone, unless its turn has not come: a durable write is in progress, or only the disk
            // knows.
            let gone = !v.pending.contains(key)
                && v.settle(env, key, deferred).is_ok_and(|found| found.live().is_none());
            let Some(left) = v.table.find(key.hash, key.key.encoded()).filter(|item| !item.is_deleted())
            else {
                return gone;
            };
            // The system attributes among what is on disk are to survive.
            let is_on_disk = !left.is_resident() && left.datatype().contains(Datatype::XATTR);
            let again = match is_on_disk.then(|| v.missing(key)) {
                // It has been tried: at once the outcome would be the same.
                Some(Refusal::Status(_)) => env.now.unix_secs().saturating_add(UNREADABLE_RETRY_SECS),
                Some(Refusal::Fetch) => {
                    wanted.push(key.key.encoded().into());
                    expiry
                }
                None => expiry,
            };
            v.next_expiry = v.next_expiry.min(again);
            false
        }
        Reason::CollectionDropped => {
            v.evict(env, key, id, deferred);
            true
        }
        Reason::TombstonePurged => {
            v.purge_seqno = v.purge_seqno.max(seqno);
            v.evict(env, key, id, deferred);
            true
        }
    }
}
