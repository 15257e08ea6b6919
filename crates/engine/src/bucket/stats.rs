//! Gathers what a bucket reports, on demand, from the counters of its vBuckets and shards.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::{CollectionId, Status, VbId, VbRole};

use crate::{
    api::{
        pressure::{DiskRefusals, Pool},
        stats::{BucketStats, RoleStats, VbInfo, WarmupState},
    },
    bucket::Bucket,
    pressure::room::Room,
    shard::Shard,
    vbucket::VBucket,
};

impl Bucket {
    /// Facts about one vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn vb_state(&self, vb: VbId) -> Result<VbInfo, Status> {
        let (slot, _) = self.slot(vb)?;
        let v = slot.vb.lock();
        Ok(VbInfo {
            vb,
            role: v.role,
            uuid: v.failover.uuid(),
            high_seqno: v.high_seqno,
            persisted_seqno: v.persisted_seqno,
            max_visible_seqno: v.marks.visible,
            high_prepared_seqno: v.persisted_marks.prepared,
            high_completed_seqno: v.marks.completed,
            prepares: v.pending.len() as u64,
            purge_seqno: v.purge_seqno,
            max_cas: v.hlc.last(),
            max_deleted_rev: v.max_deleted_rev,
            items: v.counts.items,
            non_resident: v.counts.non_resident,
            tombstones: v.counts.tombstones,
            queue_items: v.checkpoint.dirty_len(),
            queue_bytes: v.checkpoint.dirty_bytes(),
            table_bytes: v.table.bytes() as u64,
            item_bytes: v.counts.item_bytes,
            ops: v.ops,
        })
    }

    /// Facts about the bucket. Takes every vBucket's lock, one after the other.
    #[must_use]
    pub fn stats(&self) -> BucketStats {
        let (mem_high_wat, mem_low_wat) = self.watermarks();
        let mut stats = BucketStats {
            quota_bytes: self.settings.quota_bytes(),
            mem_high_wat,
            mem_low_wat,
            mem_limit: self.settings.room().limit,
            pacing: self.pacing_stats(),
            tmp_oom_errors: self.errors.temporary.load(Ordering::Relaxed),
            oom_errors: self.errors.out_of_memory.load(Ordering::Relaxed),
            cursor_bytes_max: self.cursor_bytes_max(),
            scan_bytes: self.range_scans.bytes(),
            ..BucketStats::default()
        };
        let mut collections = BTreeMap::new();
        for vb in 0..self.vbuckets() {
            let Ok((slot, shard)) = self.slot(VbId(vb)) else { continue };
            let mut v = slot.vb.lock();
            v.account(shard);
            stats.add_vbucket(&v, &mut collections);
        }
        for shard in &self.shards {
            stats.add_shard(shard);
        }
        let queued_bytes = stats.checkpoint_memory - stats.checkpoint_bytes;
        stats.pools = self.pool_bytes(stats.table_bytes, stats.kv_bytes, queued_bytes);
        stats.mem_used = stats.pools.sum();
        stats.mem_floor = self.mem_floor(&stats);
        stats.backfill_bytes = stats.pools.of(Pool::Replication);
        stats.collections = collections.into_iter().filter(|entry| entry.1 > 0).collect();
        stats.diskqueue_items = stats.queue_size + stats.unsynced_items;
        stats.curr_items = stats.active.items;
        stats.resident_percent = stats.active.resident_percent();
        stats
    }
}

impl BucketStats {
    /// The smallest quota with which mutations could be taken, given what has to stay in memory.
    #[must_use]
    pub fn quota_min(&self) -> u64 {
        Room::quota_for(self.mem_floor)
    }

    fn add_vbucket(&mut self, v: &VBucket, collections: &mut BTreeMap<CollectionId, u64>) {
        match v.role {
            VbRole::Active | VbRole::Sealed => &mut self.active,
            VbRole::Replica => &mut self.replica,
            VbRole::Dead => &mut self.dead,
        }
        .add_vbucket(v);
        self.curr_temp_items += v.table.len() as u64;
        self.non_resident += v.counts.non_resident;
        self.evicted += v.counts.evicted;
        self.kv_bytes += v.counts.item_bytes;
        self.value_bytes += v.counts.value_bytes;
        self.table_bytes += v.table.bytes() as u64;
        self.checkpoint_bytes += v.checkpoint.overhead_bytes();
        self.checkpoint_memory += v.checkpoint.overhead_bytes() + v.checkpoint.bytes();
        self.cursor_bytes += v.checkpoint.cursor_bytes();
        self.cursors += v.checkpoint.cursors() as u64;
        self.checkpoint_items_removed += v.checkpoint.removed();
        self.queue_size += v.checkpoint.dirty_len();
        self.unsynced_items += v.checkpoint.in_flight();
        self.diskqueue_bytes += v.checkpoint.pending_bytes();
        let (filled, drained) = v.checkpoint.filled_and_drained();
        self.diskqueue_fill += filled;
        self.diskqueue_drain += drained;
        self.ops.add(&v.ops);
        for count in v.counts.collections().filter(|_| v.feeds()) {
            *collections.entry(count.id).or_default() += count.items;
        }
    }

    fn add_warm_up(&mut self, shard: &Shard) {
        let items = shard.warmed_items.load(Ordering::Relaxed);
        let bytes = shard.warmed_bytes.load(Ordering::Relaxed);
        self.warmup_bytes += bytes;
        let is_warm = shard.warm.load(Ordering::Relaxed);
        let on_disk =
            shard.store.as_ref().filter(|_| !is_warm).map_or(bytes, |store| store.stats().bytes_used);
        let estimate = u128::from(items) * u128::from(on_disk.max(bytes)) / u128::from(bytes.max(1));
        self.warmup_items_estimated += u64::try_from(estimate).unwrap_or(u64::MAX).max(items);
    }

    fn add_shard(&mut self, shard: &Shard) {
        self.arena_used += shard.arena.used_bytes() as u64;
        self.arena_committed += shard.arena.committed_bytes() as u64;
        self.total_persisted += shard.counters.persisted.load(Ordering::Relaxed);
        self.commit_failures += shard.counters.commit_failures.load(Ordering::Relaxed);
        self.cursors_dropped += shard.counters.cursors_dropped.load(Ordering::Relaxed);
        self.backfill_errors += shard.counters.backfill_errors.load(Ordering::Relaxed);
        self.bg_errors += shard.counters.fetch_errors.load(Ordering::Relaxed);
        self.bg_queue += shard.queued_fetches() as u64;
        self.poisoned |= shard.gate.is_poisoned();
        let DiskRefusals { space, broken, ceiling } = shard.gate.refused();
        self.disk_refusals.space += space;
        self.disk_refusals.broken += broken;
        self.disk_refusals.ceiling += ceiling;
        self.add_warm_up(shard);
        self.warmup_hot += shard.warmed_hot.load(Ordering::Relaxed);
        self.warmup_items += shard.warmed_items.load(Ordering::Relaxed);
        if !shard.warm.load(Ordering::Relaxed) {
            self.warmup = WarmupState::Loading;
        }
        if let Some(store) = &shard.store {
            let store = store.stats();
            shard.account_store(&store);
            self.disk_bytes += store.bytes_on_disk;
            self.disk_used_bytes += store.bytes_used;
            self.disk_live_bytes += store.bytes_live;
            self.corrupt_records += store.corrupt_count;
            self.disk_full |= store.full;
            self.poisoned |= store.poisoned;
            self.stores.push(store);
        }
    }
}

impl RoleStats {
    fn add_vbucket(&mut self, v: &VBucket) {
        self.vbuckets += 1;
        self.items += v.counts.items;
        self.non_resident += v.counts.non_resident;
        self.item_bytes += v.counts.item_bytes;
        self.table_bytes += v.table.bytes() as u64;
        self.queue_items += v.checkpoint.dirty_len();
        self.queue_bytes += v.checkpoint.dirty_bytes();
        self.prepares += v.pending.len() as u64;
        self.value_bytes += v.counts.value_bytes;
        let (filled, drained) = v.checkpoint.filled_and_drained();
        self.queue_filled += filled;
        self.queue_drained += drained;
        self.ops.add(&v.ops);
    }
}
