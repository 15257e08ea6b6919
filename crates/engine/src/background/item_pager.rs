//! Makes room: takes values (or, in caches, documents) that are used least out of memory.
//!
//! Walks the vBuckets round and round, a few documents per lock hold, and remembers where it stopped. It gathers the
//! frequencies that it meets in a histogram of what could go. From that it derives how frequently a document may be
//! used and still go. So one lap frees about as much as has to be freed. In persistent buckets only what is clean,
//! which means synced, loses its value. Key, metadata and frequency stay with the place of the value on disk.
//!
//! Frequencies are aged by uses, not by laps. The measure is the number of a vBucket's documents in memory times
//! [`USES_PER_AGE`](crate::bucket::pagers::USES_PER_AGE). When the vBucket has been read that many times, what its documents have
//! counted is halved. One pass over everything may cause several laps of the pager. However many it causes, the pass adds one to
//! every document and ages few. What was in use before the pass is still the most frequent afterwards. A document whose value is on
//! disk only goes on ageing, and coming back it is what it was. Only what is hardly used at all loses a little with every lap: of
//! documents that are written and never read, the oldest go first.

use std::sync::atomic::Ordering;

use base::{
    DocKey, HashedKey, Now, VbId, VbRole,
    bucket::{BucketKind, EvictionPolicy},
};

use crate::{
    api::stats::{Budget, StepReport},
    bucket::{Bucket, pagers::ItemPager},
    memory::{
        hash_table::ScanPosition,
        item::{ItemId, ItemRef, NewItem},
    },
    shard::{Env, deferred::DeferredEffects},
    vbucket::{VBucket, system_events::is_system_key},
};

/// Documents looked at per lock hold.
const CHUNK: usize = 64;
/// How long memory may rest between the watermarks before the pager brings it below the low one.
const LINGER_MILLIS: u64 = 2_000;

/// What the pager may do in this bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    EjectValues,
    /// Out of the table altogether; the disk has it.
    EvictKeys,
    DropDocuments,
}

impl Bucket {
    /// Makes room when memory is above the high watermark, or has been above the low one for a while, down to the low one.
    /// One step looks at about `budget.items` documents, a few per lock hold. There is no more to do for now when all
    /// documents have been looked at and none could go.
    pub fn page(&self, now: Now, budget: Budget) -> StepReport {
        let mut report = StepReport::default();
        let Some(means) = self.means() else { return report };
        let Some(mut pager) = self.item_pager.try_lock() else { return report };
        let (high, low) = self.watermarks();
        // A little further, so that a few more documents do not have it called again at once.
        let goal = low - low / 64;
        let mut used = self.mem_used();
        if used <= low {
            pager.above_since = None;
        } else if !pager.is_active {
            let since = *pager.above_since.get_or_insert(now.mono_millis);
            if used > high || now.mono_millis.saturating_sub(since) >= LINGER_MILLIS {
                self.begin_paging(&mut pager);
            }
        }
        pager.is_active &= used > goal;
        let mut looked_at = 0;
        while pager.is_active && looked_at < budget.items && report.bytes < budget.bytes as u64 {
            pager.aim(used - goal);
            let (seen, freed_items) = self.page_chunk(&mut pager, means, now);
            // An empty vBucket is work as well.
            looked_at += seen.max(1);
            report.items += freed_items;
            let before = used;
            used = self.mem_used();
            report.bytes += before.saturating_sub(used);
            pager.is_active = used > goal;
            pager.fruitless = if freed_items == 0 { pager.fruitless + seen.max(1) as u64 } else { 0 };
            if pager.fruitless > pager.documents + u64::from(self.vbuckets()) {
                pager.fruitless = 0;
                pager.is_active = used > high;
                pager.above_since = Some(now.mono_millis);
                self.pager_called.store(pager.is_active, Ordering::Release);
                return report;
            }
        }
        self.pager_called.store(pager.is_active, Ordering::Release);
        report.more = pager.is_active;
        report
    }

    fn begin_paging(&self, pager: &mut ItemPager) {
        pager.is_active = true;
        pager.fruitless = 0;
        pager.aged_at.resize(usize::from(self.vbuckets()), 0);
        pager.documents = (0..self.vbuckets())
            .filter_map(|vb| self.slot(VbId(vb)).ok())
            .map(|(slot, _)| slot.vb.lock().table.len() as u64)
            .sum();
    }

    fn means(&self) -> Option<Means> {
        match (self.options.kind, self.settings.eviction()) {
            (BucketKind::Couchbase, EvictionPolicy::FullEviction) => Some(Means::EvictKeys),
            (BucketKind::Couchbase, _) => Some(Means::EjectValues),
            (BucketKind::Memcached, _) | (BucketKind::Ephemeral, EvictionPolicy::NruEviction) => {
                Some(Means::DropDocuments)
            }
            (BucketKind::Ephemeral, _) => None,
        }
    }

    /// Looks at the next documents of the current vBucket; how many it saw and how many went.
    fn page_chunk(&self, pager: &mut ItemPager, means: Means, now: Now) -> (usize, usize) {
        let vb = VbId(pager.vb % self.vbuckets());
        let Ok((slot, shard)) = self.slot(vb) else { return (0, 0) };
        let env = Env { shard, kind: self.options.kind, now };
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        if pager.position == ScanPosition::default() {
            pager.begin_walk(&v);
        }
        let means = match means {
            // A replica holds what its active holds.
            Means::DropDocuments if v.role != VbRole::Active => {
                (pager.vb, pager.position) = ((vb.get() + 1) % self.vbuckets(), ScanPosition::default());
                return (1, 0);
            }
            Means::EvictKeys if !v.may_evict_keys() => Means::EjectValues,
            means => means,
        };
        let mut seen = 0;
        let mut victims: Vec<ItemId> = Vec::with_capacity(CHUNK);
        let next = v.table.scan(pager.position, CHUNK, &mut |item| {
            seen += 1;
            if item.is_deleted() {
                return;
            }
            let frequency = item.frequency();
            let may_go = may_go(item, means);
            pager.sample(frequency, if may_go { item.bytes() as u64 } else { 0 });
            if may_go && frequency <= pager.threshold {
                victims.push(item.id());
            } else {
                item.set_frequency(pager.aged(frequency));
            }
        });
        let mut gone = 0;
        for id in victims {
            let went = match means {
                Means::EjectValues => eject(&mut v, &env, id, &mut deferred),
                Means::EvictKeys => v.evict_to_disk(&env, id, &mut deferred),
                Means::DropDocuments => drop_document(&mut v, &env, id, &mut deferred),
            };
            gone += usize::from(went);
        }
        match next {
            Some(position) => pager.position = position,
            None => (pager.vb, pager.position) = ((vb.get() + 1) % self.vbuckets(), ScanPosition::default()),
        }
        (seen, gone)
    }
}

fn may_go(item: ItemRef<'_>, means: Means) -> bool {
    if is_system_key(item.key()) {
        return false;
    }
    match means {
        // Nor does it free anything while somebody else holds it.
        Means::EjectValues => {
            item.is_resident() && !item.is_dirty() && !item.value().is_empty() && item.references() == 1
        }
        Means::EvictKeys => !item.is_dirty() && item.references() == 1,
        Means::DropDocuments => true,
    }
}

/// Puts an item without a value in the place of a clean one.
fn eject(v: &mut VBucket, env: &Env<'_>, id: ItemId, deferred: &mut DeferredEffects<'_>) -> bool {
    // SAFETY: the id comes from a scan of this table under the lock that is still held.
    let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
    let key = HashedKey::new(DocKey::trusted(item.key()));
    let Some(mut empty) =
        NewItem::without_value(&env.shard.arena, &item.meta(), key.key.encoded(), item.value_len())
    else {
        return false;
    };
    empty.set_frequency(item.frequency());
    let ejected = v.install(env, key, Some(id), empty, deferred).is_ok();
    v.ops.ejects += u64::from(ejected);
    ejected
}

/// Deletes a document to make room.
fn drop_document(v: &mut VBucket, env: &Env<'_>, id: ItemId, deferred: &mut DeferredEffects<'_>) -> bool {
    // SAFETY: as in `eject`.
    let item = unsafe { ItemRef::new(&env.shard.arena, id.0) };
    let key: Box<[u8]> = item.key().into();
    let key = HashedKey::new(DocKey::trusted(&key));
    if v.locks.holder(key.hash, key.key.encoded(), env.now).is_some() {
        // The client that locked it is about to change it.
        return false;
    }
    let Ok(found) = v.settle_for_write(env, key, deferred) else { return false };
    let Some(current) = found.live() else { return true };
    let dropped = v.delete_item(env, key, current, false, None, deferred).is_ok();
    v.ops.auto_deletes += u64::from(dropped);
    dropped
}
