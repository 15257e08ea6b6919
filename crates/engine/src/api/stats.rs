//! What a bucket reports: plain numbers, gathered on demand from per-vBucket counters, named in the words of
//! Couchbase's published statistics so that the caller only has to print them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use base::{Cas, CollectionId, Seqno, Status, VbId, VbRole, VbUuid};
use storage::StoreStats;

use crate::{
    bucket::{Bucket, admission::PacingStats, quota::Room},
    pressure::pools::{Pool, PoolBytes},
    shard::{DiskRefusals, Shard},
    vbucket::VBucket,
};

/// How much one call of a step function may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Documents to look at.
    pub items: usize,
    /// Bytes to move or free.
    pub bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { items: 10_000, bytes: 16 << 20 }
    }
}

/// What a background step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Documents expired, ejected, moved or erased.
    pub items: usize,
    /// Bytes freed or moved.
    pub bytes: u64,
    /// There is more to do right now.
    pub more: bool,
    /// What could not be read.
    pub failures: usize,
}

/// What a flush did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushReport {
    /// Mutations written.
    pub items: usize,
    /// Key and value bytes written.
    pub bytes: u64,
    /// A sync was made.
    pub synced: bool,
    /// Durable writes that it completed.
    pub durable: usize,
    /// There is more to write right now.
    pub more: bool,
    /// Written but not yet synced: call again within [`FlushReport::SYNC_WITHIN_MILLIS`].
    pub unsynced: bool,
    /// The store refused; it is tried again with the next call (`NoSpace`), or never (`Poisoned`).
    pub failed: Option<FlushFailure>,
}

impl FlushReport {
    /// Unsynced batches are synced after at most this long.
    pub const SYNC_WITHIN_MILLIS: u64 = 100;
}

/// Why nothing could be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushFailure {
    /// The disk is full; mutations are kept in memory and tried again.
    NoSpace,
    /// The shard's files can no longer be trusted; nothing is written until the bucket is opened anew.
    Poisoned,
}

/// How far warm-up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmupState {
    /// Nothing to load, or loaded.
    #[default]
    Done,
    /// Reading documents; what is not in memory yet is fetched on demand.
    Loading,
}

/// One vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VbInfo {
    /// Which.
    pub vb: VbId,
    /// What this node is to it.
    pub role: VbRole,
    /// Its current branch.
    pub uuid: VbUuid,
    /// Last mutation applied.
    pub high_seqno: Seqno,
    /// Last mutation synced.
    pub persisted_seqno: Seqno,
    /// Last mutation that is neither a prepare nor an abort.
    pub max_visible_seqno: Seqno,
    /// Last prepare of a durable write that is synced.
    pub high_prepared_seqno: Seqno,
    /// Every prepare up to here is committed or aborted.
    pub high_completed_seqno: Seqno,
    /// Durable writes in progress.
    pub prepares: u64,
    /// Tombstones up to here may be gone.
    pub purge_seqno: Seqno,
    /// Highest CAS given out or seen.
    pub max_cas: Cas,
    /// Highest revision number of a tombstone.
    pub max_deleted_rev: u64,
    /// Documents.
    pub items: u64,
    /// Documents whose value is on disk only.
    pub non_resident: u64,
    /// Tombstones in memory.
    pub tombstones: u64,
    /// Mutations not written yet.
    pub queue_items: u64,
    /// Key and value bytes of those.
    pub queue_bytes: u64,
    /// Bytes of the table itself.
    pub table_bytes: u64,
    /// Arena bytes of its documents.
    pub item_bytes: u64,
    /// Operations since the bucket was opened.
    pub ops: VbOps,
}

/// Operation counters of a vBucket, and summed, of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VbOps {
    /// Reads that found a document.
    pub get_hits: u64,
    /// Reads that found none.
    pub get_misses: u64,
    /// Documents created.
    pub creates: u64,
    /// Documents changed.
    pub updates: u64,
    /// Documents deleted.
    pub deletes: u64,
    /// Documents expired.
    pub expired: u64,
    /// Values ejected from memory.
    pub ejects: u64,
    /// Documents dropped from memory-only buckets to make room.
    pub auto_deletes: u64,
    /// Values read back from disk.
    pub bg_fetched: u64,
    /// Locks refused or mutations refused because of one.
    pub lock_errors: u64,
    /// Mutations whose CAS did not match.
    pub cas_mismatches: u64,
}

/// The vBuckets in one role (`vb_active_*`, `vb_replica_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleStats {
    /// `vb_…_num`: how many there are.
    pub vbuckets: u64,
    /// `vb_…_curr_items`: their documents.
    pub items: u64,
    /// `vb_…_num_non_resident`: those whose values are on disk only.
    pub non_resident: u64,
    /// `vb_…_itm_memory`: documents with their headers.
    pub item_bytes: u64,
    /// `vb_…_ht_memory`: their hash tables.
    pub table_bytes: u64,
    /// `vb_…_queue_size`: mutations waiting to be written.
    pub queue_items: u64,
    /// `vb_…_queue_memory`: key and value bytes of those.
    pub queue_bytes: u64,
    /// `vb_…_sync_write_…`: durable writes in progress.
    pub prepares: u64,
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
    }

    /// Documents with their values in memory, in percent.
    #[must_use]
    pub fn resident_percent(&self) -> u64 {
        (self.items.saturating_sub(self.non_resident) * 100).checked_div(self.items).unwrap_or(100)
    }
}

/// One bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketStats {
    /// `curr_items`: documents of vBuckets that this node is the active of.
    pub curr_items: u64,
    /// vBuckets that this node is the active of, those that it hands over among them.
    pub active: RoleStats,
    /// vBuckets that this node has a replica of.
    pub replica: RoleStats,
    /// vBuckets that this node is nothing to.
    pub dead: RoleStats,
    /// Documents and tombstones in memory, superseded versions waiting for the disk included.
    pub curr_temp_items: u64,
    /// `mem_used`: every byte the bucket holds.
    pub mem_used: u64,
    /// Whose those are.
    pub pools: PoolBytes,
    /// What is done about it.
    pub pacing: PacingStats,
    /// `ep_kv_size`: documents with their headers.
    pub kv_bytes: u64,
    /// `ep_value_size`: their values.
    pub value_bytes: u64,
    /// Hash tables.
    pub table_bytes: u64,
    /// Checkpoint queues, without what they hold.
    pub checkpoint_bytes: u64,
    /// `ep_checkpoint_memory`: documents in checkpoints, with their headers, and the queues.
    pub checkpoint_memory: u64,
    /// Of those documents, what is there for feeds only.
    pub cursor_bytes: u64,
    /// What may be there for feeds only.
    pub cursor_bytes_max: u64,
    /// Cursors of feeds.
    pub cursors: u64,
    /// `ep_cursors_dropped`: cursors that were so slow that their feeds went on from disk.
    pub cursors_dropped: u64,
    /// `ep_items_rm_from_checkpoints`: mutations that every cursor has passed.
    pub checkpoint_items_removed: u64,
    /// Bytes that feeds hold for reading from disk, and have read ahead.
    pub backfill_bytes: u64,
    /// Bytes that range scans hold.
    pub scan_bytes: u64,
    /// Feeds that could not be read from disk.
    pub backfill_errors: u64,
    /// Memory taken from the operating system for documents.
    pub arena_committed: u64,
    /// Of that, what documents and tables take; the rest is holes that others can fill.
    pub arena_used: u64,
    /// `ep_max_size`.
    pub quota_bytes: u64,
    /// `ep_mem_high_wat`.
    pub mem_high_wat: u64,
    /// `ep_mem_low_wat`.
    pub mem_low_wat: u64,
    /// Above this mutations that grow memory are refused.
    pub mem_limit: u64,
    /// What stays in memory whatever the pager does.
    pub mem_floor: u64,
    /// `ep_queue_size`: mutations waiting to be written.
    pub queue_size: u64,
    /// `ep_flusher_todo`: mutations written, waiting for their sync.
    pub unsynced_items: u64,
    /// `ep_diskqueue_items`: both.
    pub diskqueue_items: u64,
    /// Key and value bytes of those.
    pub diskqueue_bytes: u64,
    /// `ep_diskqueue_fill`: mutations that have been queued since the bucket was opened.
    pub diskqueue_fill: u64,
    /// `ep_diskqueue_drain`: those of them that have been synced.
    pub diskqueue_drain: u64,
    /// `ep_total_persisted`.
    pub total_persisted: u64,
    /// `vb_active_perc_mem_resident`: documents with their values in memory, in percent of `curr_items`.
    pub resident_percent: u64,
    /// `ep_num_non_resident`, whatever the role.
    pub non_resident: u64,
    /// Of those, documents of which memory has not even the key.
    pub evicted: u64,
    /// `ep_tmp_oom_errors`: mutations answered with temporary failure for want of memory.
    pub tmp_oom_errors: u64,
    /// `ep_oom_errors`: mutations that could not be allocated at all.
    pub oom_errors: u64,
    /// Requests answered with temporary failure because of the disk.
    pub disk_refusals: DiskRefusals,
    /// `ep_bg_fetched`: values read back from disk.
    pub bg_fetched: u64,
    /// Keys waiting for a fetch.
    pub bg_queue: u64,
    /// Fetches that found an unreadable record.
    pub bg_errors: u64,
    /// `ep_flusher_state` and `ep_item_commit_failed`: commits that failed.
    pub commit_failures: u64,
    /// Some shard no longer writes.
    pub poisoned: bool,
    /// `ep_warmup_state`.
    pub warmup: WarmupState,
    /// `ep_warmup_value_count`: documents loaded so far.
    pub warmup_items: u64,
    /// `ep_warmup_estimated_value_count`: how many there will be, from how much of the disk was read for those.
    pub warmup_items_estimated: u64,
    /// Bytes read by warm-up.
    pub warmup_bytes: u64,
    /// Of the keys that were used most before the last stop, those that warm-up has looked up.
    pub warmup_hot: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of segments in use, without what is preallocated.
    pub disk_used_bytes: u64,
    /// Bytes on disk that are the newest version of something.
    pub disk_live_bytes: u64,
    /// Damaged places found on disk.
    pub corrupt_records: u64,
    /// The last write found the disk full.
    pub disk_full: bool,
    /// What each shard's store says.
    pub stores: Vec<StoreStats>,
    /// Summed operation counters.
    pub ops: VbOps,
    /// Documents per collection, ascending by id.
    pub collections: Vec<(CollectionId, u64)>,
}

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
        stats.bg_fetched = stats.ops.bg_fetched;
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

impl VbOps {
    /// Reads and writes of documents.
    pub(crate) fn uses(&self) -> u64 {
        self.get_hits + self.creates + self.updates
    }

    fn add(&mut self, other: &Self) {
        self.get_hits += other.get_hits;
        self.get_misses += other.get_misses;
        self.creates += other.creates;
        self.updates += other.updates;
        self.deletes += other.deletes;
        self.expired += other.expired;
        self.ejects += other.ejects;
        self.auto_deletes += other.auto_deletes;
        self.bg_fetched += other.bg_fetched;
        self.lock_errors += other.lock_errors;
        self.cas_mismatches += other.cas_mismatches;
    }
}
