//! The bucket as its callers see it.

use std::sync::Arc;

use base::{Cas, CollectionId, HashedKey, Manifest, Now, Seqno, Status, VbId, VbUuid, bucket::BucketKind};
use storage::{CompactReport, KvStore, StoreError};

use crate::{
    BucketChange, BucketOptions, BucketStats, Budget, Counter, Delete, DocMeta, DocView, FlushReport,
    Mutated, Notifier, Observed, ObservedSeqno, OpenError, Refusal, StepReport, Store, VbInfo, Wait, Waiter,
    WithMeta,
};

/// One bucket on this node. Shared between the data-plane loops and the background threads.
pub struct Bucket {
    options: BucketOptions,
}

#[allow(unused_variables, reason = "interface landed ahead of its implementation")]
impl Bucket {
    /// Opens a bucket over its stores, one per shard; none for memory-only kinds.
    ///
    /// Returns quickly whatever the data set: documents are loaded by [`Bucket::warm_up`] and meanwhile fetched
    /// on demand.
    ///
    /// # Errors
    /// When an option is out of range or a store refuses the synced metadata that must precede serving.
    pub fn open(
        options: BucketOptions,
        stores: Vec<Arc<dyn KvStore>>,
        manifest: Arc<Manifest>,
        notifier: Arc<dyn Notifier>,
        now: Now,
    ) -> Result<Arc<Bucket>, OpenError> {
        unimplemented!()
    }

    /// The name it was opened with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The kind it was opened with.
    #[must_use]
    pub fn kind(&self) -> BucketKind {
        self.options.kind
    }

    /// How many vBuckets it has.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.options.vbuckets
    }

    /// How many shards its steps come in.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.options.shards
    }

    /// Changes settings of the running bucket.
    pub fn reconfigure(&self, change: BucketChange) {
        unimplemented!()
    }

    /// Follows the collections manifest. Documents of collections that are gone become invisible at once and are
    /// erased by [`Bucket::expire`].
    pub fn set_manifest(&self, manifest: Arc<Manifest>) {
        unimplemented!()
    }

    /// The collections manifest in force.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        unimplemented!()
    }

    /// Empties the bucket: every vBucket starts a new history under a new uuid.
    ///
    /// # Errors
    /// `TemporaryFailure` when a store could not record it; nothing was dropped then that the store still has.
    pub fn flush_all(&self, now: Now) -> Result<(), Status> {
        unimplemented!()
    }

    /// Brings the table line of a key towards the processor. Never faults; an unknown vBucket is ignored.
    #[inline]
    pub fn prefetch(&self, vb: VbId, hash: u64) {}

    /// Second wave, once [`Bucket::prefetch`] has had time: the header of the item with a matching tag.
    #[inline]
    pub fn prefetch_item(&self, vb: VbId, hash: u64) {}

    /// Reads a document. `read` runs under the vBucket's lock.
    ///
    /// # Errors
    /// `KeyNotFound`, `UnknownCollection`, `NotMyVbucket`; [`Refusal::Fetch`] when it is not in memory.
    pub fn get<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        unimplemented!()
    }

    /// SET, ADD, REPLACE, APPEND, PREPEND.
    ///
    /// # Errors
    /// Per [`crate::StoreMode`]; `KeyExists` on another CAS, `KeyNotFound` on a CAS for nothing, `Locked`,
    /// `TooBig`, `SyncWriteInProgress`, `TemporaryFailure` when there is no room, and the durability statuses.
    pub fn store(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        store: &Store<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        unimplemented!()
    }

    /// DELETE.
    ///
    /// # Errors
    /// `KeyNotFound`, `KeyExists` on another CAS, `Locked`, `SyncWriteInProgress`, the durability statuses.
    pub fn delete(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        delete: &Delete,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        unimplemented!()
    }

    /// INCREMENT and DECREMENT; returns the new number.
    ///
    /// # Errors
    /// As [`Bucket::store`], and `DeltaBadValue` when the document is not a decimal number.
    pub fn counter(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        counter: &Counter,
        now: Now,
    ) -> Result<(u64, Mutated), Refusal> {
        unimplemented!()
    }

    /// TOUCH and get-and-touch: gives the document a new expiry.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn touch<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        expiry_wire: u32,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<(R, Mutated), Refusal> {
        unimplemented!()
    }

    /// GETL: locks a document for `secs` (0 or more than the maximum: the default). The view's CAS is the lock's.
    ///
    /// # Errors
    /// `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn lock<R>(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        secs: u32,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        unimplemented!()
    }

    /// UNLOCK.
    ///
    /// # Errors
    /// `KeyNotFound`, `NotLocked`, `Locked` when the CAS is not the lock's.
    pub fn unlock(&self, vb: VbId, key: HashedKey<'_>, cas: Cas, now: Now) -> Result<(), Refusal> {
        unimplemented!()
    }

    /// GET_META: metadata of a document or tombstone.
    ///
    /// # Errors
    /// `KeyNotFound` when there is neither.
    pub fn meta(&self, vb: VbId, key: HashedKey<'_>, now: Now) -> Result<DocMeta, Refusal> {
        unimplemented!()
    }

    /// `SET_WITH_META`, `ADD_WITH_META`.
    ///
    /// # Errors
    /// `KeyExists` when the local version wins or the CAS differs, `KeyNotFound` on a CAS for nothing, `Locked`,
    /// `Invalid` on options that contradict each other or the bucket.
    pub fn set_with_meta(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        with_meta: &WithMeta<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        unimplemented!()
    }

    /// `DELETE_WITH_META`.
    ///
    /// # Errors
    /// As [`Bucket::set_with_meta`].
    pub fn delete_with_meta(
        &self,
        vb: VbId,
        key: HashedKey<'_>,
        with_meta: &WithMeta<'_>,
        now: Now,
    ) -> Result<Mutated, Refusal> {
        unimplemented!()
    }

    /// `GET_RANDOM`: some document of the collection that is in memory; `pick` is the caller's dice.
    ///
    /// # Errors
    /// `KeyNotFound` when none was found.
    pub fn random<R>(
        &self,
        collection: CollectionId,
        pick: u64,
        now: Now,
        read: impl FnOnce(&DocView<'_>) -> R,
    ) -> Result<R, Refusal> {
        unimplemented!()
    }

    /// OBSERVE for one key.
    ///
    /// # Errors
    /// `NotMyVbucket`, `UnknownCollection`; absence is a state, not an error.
    pub fn observe(&self, vb: VbId, key: HashedKey<'_>, now: Now) -> Result<Observed, Refusal> {
        unimplemented!()
    }

    /// `OBSERVE_SEQNO`.
    ///
    /// # Errors
    /// `KeyNotFound` when the uuid is none of this vBucket's.
    pub fn observe_seqno(&self, vb: VbId, uuid: VbUuid) -> Result<ObservedSeqno, Refusal> {
        unimplemented!()
    }

    /// `SEQNO_PERSISTENCE`: whether everything up to `seqno` is synced. A parked waiter is woken when it is, or
    /// when that has become impossible; call again to learn which.
    ///
    /// # Errors
    /// `NotMyVbucket`; `NotSupported` for memory-only buckets; `TemporaryFailure` when the shard cannot write.
    pub fn wait_persisted(&self, vb: VbId, seqno: Seqno, waiter: Waiter) -> Result<Wait, Status> {
        unimplemented!()
    }

    /// Whether a durable mutation ([`Mutated::wait`]) has reached its level. Completion does not depend on anybody
    /// asking.
    ///
    /// # Errors
    /// `SyncWriteAmbiguous` when that can no longer be known (shard poisoned, bucket flushed).
    pub fn complete_durable(&self, vb: VbId, mutated: &Mutated, waiter: Waiter) -> Result<Wait, Status> {
        unimplemented!()
    }

    /// Asks for a key to be brought from disk after [`Refusal::Fetch`]. One read serves every waiter of a key.
    ///
    /// # Errors
    /// `TemporaryFailure` when too many are queued already.
    pub fn fetch(&self, vb: VbId, key: HashedKey<'_>, waiter: Waiter) -> Result<(), Status> {
        unimplemented!()
    }

    /// High seqno of every vBucket; with a collection, the last seqno at which that collection changed.
    #[must_use]
    pub fn seqnos(&self, collection: Option<CollectionId>) -> Vec<(VbId, Seqno)> {
        unimplemented!()
    }

    /// Branches of a vBucket's history with the seqno each began at, newest first.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn failover_log(&self, vb: VbId) -> Result<Vec<(VbUuid, Seqno)>, Status> {
        unimplemented!()
    }

    /// Facts about one vBucket.
    ///
    /// # Errors
    /// `NotMyVbucket`.
    pub fn vb_state(&self, vb: VbId) -> Result<VbInfo, Status> {
        unimplemented!()
    }

    /// Facts about the bucket. Takes every vBucket's lock, one after the other.
    #[must_use]
    pub fn stats(&self) -> BucketStats {
        unimplemented!()
    }

    /// Writes dirty documents of a shard; syncs when someone waits for persistence or the oldest unsynced batch is
    /// older than [`FlushReport::SYNC_WITHIN_MILLIS`]; publishes what became durable and wakes who waited for it.
    pub fn flush(&self, shard: usize, now: Now) -> FlushReport {
        unimplemented!()
    }

    /// Stops accepting mutations, writes and syncs everything, and records that the bucket was closed cleanly (the
    /// next open then needs no new branch of history). False when something could not be written.
    pub fn close(&self, now: Now) -> bool {
        unimplemented!()
    }

    /// Reads up to `max` queued keys of a shard from disk and wakes their waiters; returns how many.
    pub fn run_fetches(&self, shard: usize, max: usize, now: Now) -> usize {
        unimplemented!()
    }

    /// Loads a shard's documents; true while there is more. One call may read the whole shard, so it wants a thread
    /// of its own; it holds no lock for long and ends early when the bucket is closed.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn warm_up(&self, shard: usize, now: Now) -> Result<bool, StoreError> {
        unimplemented!()
    }

    /// Whether every shard has been loaded.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        unimplemented!()
    }

    /// Housekeeping: deletes expired documents and erases those of dropped collections.
    pub fn expire(&self, now: Now, budget: Budget) -> StepReport {
        unimplemented!()
    }

    /// Makes room when memory is above the high watermark, down to the low one.
    pub fn page(&self, now: Now, budget: Budget) -> StepReport {
        unimplemented!()
    }

    /// Moves documents out of sparsely used slabs so that these can be given back.
    pub fn defragment(&self, budget: Budget) -> StepReport {
        unimplemented!()
    }

    /// One bounded step of compaction.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn compact(&self, shard: usize, now: Now) -> Result<CompactReport, StoreError> {
        unimplemented!()
    }
}
