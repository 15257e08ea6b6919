//! What a bucket reports: plain numbers, gathered on demand from per-vBucket counters. They have the names of
//! Couchbase's published statistics, so that the caller only has to print them.

use base::{Cas, CollectionId, Seqno, VbId, VbRole, VbUuid};
use storage::StoreStats;

use crate::api::pressure::{DiskRefusals, PacingStats, PoolBytes};

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
    /// Values in memory.
    pub value_bytes: u64,
    /// `vb_…_queue_fill` and `vb_…_queue_drain`: mutations queued for the disk, and those of them that are synced.
    pub queue_filled: u64,
    /// See `queue_filled`.
    pub queue_drained: u64,
    /// `vb_…_ops_…`: operations, since the vBuckets were opened.
    pub ops: VbOps,
}

impl RoleStats {
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

impl VbOps {
    /// Reads and writes of documents.
    pub(crate) fn uses(&self) -> u64 {
        self.get_hits + self.creates + self.updates
    }

    pub(crate) fn add(&mut self, other: &Self) {
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
