//! The narrow interface between a bucket in memory and its shard on disk.
//!
//! The engine's flusher calls `commit` and `sync`, its fetchers `get_at` and `lookup`, its warm-up `scan`, its feeds
//! `backfill`, its housekeeping `compact`. Every call takes `&self`, may block on the disk, and is safe from any thread. Calls
//! of `get_at`, `lookup`, `scan` and backfills never wait for a commit's sync or for compaction.

use base::{Cas, Datatype, ManifestUid, Seqno, VbId, VbUuid, bucket::DurabilityLevel};

use crate::error::StoreError;

/// Where a record lies on disk, as this shard understands it. Meaningful only to the store that gave it, and only
/// until that store is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Locator(pub u64);

impl Locator {
    /// Nowhere, or unknown.
    pub const NONE: Locator = Locator(0);

    /// Whether this names no place.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// What a record says about its key.
///
/// Prepares and aborts are apart from the rest. The prepares and aborts of a key are versions in an order of their own,
/// which no look-up of the key sees. Neither order makes a record of the other obsolete. A prepare is committed by an
/// ordinary record of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// The key has this value.
    Document,
    /// The key was deleted (a tombstone; may carry system xattrs as its value).
    Deletion,
    /// The key was deleted because it had expired (a tombstone).
    Expiration,
    /// The key is going to have this value, if the durable write is completed.
    Prepare(DurabilityLevel),
    /// The key is going to be deleted, if the durable deletion is completed.
    PreparedDeletion(DurabilityLevel),
    /// The key's last prepare will never be completed.
    Abort,
}

impl RecordKind {
    /// Whether the key does not exist as of this record.
    #[inline]
    #[must_use]
    pub const fn is_tombstone(self) -> bool {
        matches!(self, Self::Deletion | Self::Expiration)
    }

    /// Whether it is about a durable write that is not, or was not, completed: see [`RecordKind`].
    #[inline]
    #[must_use]
    pub const fn is_prepared(self) -> bool {
        matches!(self, Self::Prepare(_) | Self::PreparedDeletion(_) | Self::Abort)
    }

    /// The level of a prepare.
    #[inline]
    #[must_use]
    pub const fn prepare_level(self) -> Option<DurabilityLevel> {
        match self {
            Self::Prepare(level) | Self::PreparedDeletion(level) => Some(level),
            _ => None,
        }
    }

    /// Whether it is there to make room: what a full disk keeps its reserve for.
    #[inline]
    #[must_use]
    pub const fn frees_space(self) -> bool {
        !matches!(self, Self::Document | Self::Prepare(_))
    }
}

/// Everything about one version of a document but its key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// Document or tombstone.
    pub kind: RecordKind,
    /// Place in the vBucket's order. At most 48 bits.
    pub seqno: Seqno,
    /// CAS of this version.
    pub cas: Cas,
    /// Revision number of the document.
    pub rev: u64,
    /// The client's flags.
    pub flags: u32,
    /// Absolute Unix seconds, 0 never. For tombstones: when the document was deleted.
    pub expiry: u32,
    /// Datatype bits of the value.
    pub datatype: Datatype,
}

/// One version of a document, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Everything but key and value.
    pub meta: RecordMeta,
    /// The encoded key (collection prefix included).
    pub key: &'a [u8],
    /// [`base::hash::key_hash`] of `key`. The disk has a hash of its own, which nobody else sees.
    pub hash: u64,
    /// The value as stored. Empty in scans that asked for no values.
    pub value: &'a [u8],
    /// Where the version lies that this one makes obsolete; [`Locator::NONE`] if unknown. Only accounting: it tells
    /// compaction where dead bytes are. Always none in records that come from the disk.
    pub replaces: Locator,
}

/// One version of a document, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Everything but key and value.
    pub meta: RecordMeta,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The value as stored.
    pub value: Vec<u8>,
    /// Where it was read.
    pub locator: Locator,
}

/// How far a vBucket's durable writes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The last prepare. All up to here are synced when the batch is.
    pub prepared: Seqno,
    /// Every prepare up to here is completed: committed or aborted.
    pub completed: Seqno,
    /// The last mutation that is neither a prepare nor an abort.
    pub visible: Seqno,
}

impl Marks {
    /// These, or where there has never been a durable write: everything up to `high_seqno` visible.
    #[must_use]
    pub fn or_all_visible(self, high_seqno: Seqno) -> Self {
        if self == Self::default() { Self { visible: high_seqno, ..self } } else { self }
    }

    /// Of two states of one history the later.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            prepared: self.prepared.max(other.prepared),
            completed: self.completed.max(other.completed),
            visible: self.visible.max(other.visible),
        }
    }
}

/// Per-vBucket metadata that travels with each batch and is recovered at open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VbState {
    /// Seqno of the newest mutation in the batch.
    pub high_seqno: Seqno,
    /// Tombstones up to here may be missing. The store keeps the larger of this and its own knowledge.
    pub purge_seqno: Seqno,
    /// Ceiling above every CAS given out; a restart begins above it.
    pub max_cas: Cas,
    /// Highest revision of any tombstone.
    pub max_deleted_rev: u64,
    /// Branches of history, newest first, each with the seqno at which it began. At most 255 entries.
    pub failover_log: Vec<(VbUuid, Seqno)>,
    /// Version of the collections manifest the vBucket had seen.
    pub manifest_uid: ManifestUid,
    /// Durable writes, as of the last of the records. All zero where there has never been one: then everything is visible.
    pub marks: Marks,
    /// Set for a replica that has begun a snapshot and does not have all of it. Up to the first seqno its content is the
    /// vBucket as it was at that seqno. At the second it will be so again.
    pub snapshot: Option<(Seqno, Seqno)>,
    /// It is a copy in the making: not even the first snapshot is whole.
    pub is_partial: bool,
}

/// One vBucket's part of a batch: atomic.
#[derive(Clone, Copy, Debug)]
pub struct VbBatch<'a> {
    /// Whose records these are.
    pub vb: VbId,
    /// State as of the last of the records.
    pub state: &'a VbState,
    /// In seqno order; one version per key (and one prepare or abort).
    pub records: &'a [Record<'a>],
}

/// A compactor's question answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is the key's newest synced version: copy it and ask for [`Liveness::relocate`].
    Live,
    /// A newer version is synced: drop it.
    Dead,
    /// Memory does not know the key: the store decides by its own index, and keeps the record where that does not tell.
    Unknown,
}

/// What the engine knows about which versions are current. Called by [`KvStore::compact`] on its thread. About prepares
/// and aborts it is not asked: they go once [`Marks::completed`] has passed them.
pub trait Liveness: Sync {
    /// Is this the newest *synced* version of its key? [`Verdict::Dead`] only when a version with a higher seqno is
    /// known to be synced. A version that was synced and then overwritten in memory only is still alive. The record's
    /// value is empty.
    fn verdict(&self, vb: VbId, record: &Record<'_>, at: Locator) -> Verdict;

    /// Asked now and then while a step works, on its thread, with the memory it holds: the place to rest, so that nobody is
    /// disturbed. False gives the step up; nothing has changed then.
    fn go_on(&self, memory_bytes: u64) -> bool {
        let _ = memory_bytes;
        true
    }

    /// Whether memory takes in what [`Liveness::relocate`] tells it and it does not have: it is being loaded. Then records
    /// come with their values there.
    fn takes_in(&self) -> bool {
        false
    }

    /// The record now also lies at `to`, synced; make memory point there if it still points to `from` for this
    /// seqno, or take it in. Returns whether memory points there now. The record's value is empty unless memory
    /// [takes it in](Liveness::takes_in).
    fn relocate(&self, vb: VbId, record: &Record<'_>, from: Locator, to: Locator) -> bool;
}

/// How much one compaction step may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactBudget {
    /// Tombstones whose delete time (Unix seconds) is below this may go.
    pub purge_before: u32,
    /// Most bytes of input segments read in this step; one segment is always allowed.
    pub input_bytes_max: u64,
    /// Most bytes of memory, as far as is known beforehand, for the list of what is kept and the index of where it goes.
    /// One segment is always allowed.
    pub memory_bytes_max: u64,
    /// Compact only when bytes on disk exceed live bytes by this factor. A value of 1 or less compacts whatever
    /// has anything to gain (a user asked for it).
    pub space_ratio: f64,
}

impl Default for CompactBudget {
    fn default() -> Self {
        Self { purge_before: 0, input_bytes_max: 256 << 20, memory_bytes_max: u64::MAX, space_ratio: 1.5 }
    }
}

/// What one compaction step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Segments removed.
    pub segments_removed: u32,
    /// Bytes read from them.
    pub bytes_read: u64,
    /// Bytes written for what was kept.
    pub bytes_written: u64,
    /// Bytes the disk got back, net.
    pub bytes_freed: u64,
    /// Records copied.
    pub records_kept: u64,
    /// Records dropped, purged tombstones included.
    pub records_dropped: u64,
    /// Tombstones purged.
    pub tombstones_purged: u64,
    /// vBuckets whose purge seqno moved, with the new one (already synced).
    pub purged: Vec<(VbId, Seqno)>,
    /// Whether another step would find work.
    pub more: bool,
}

/// Says by its kind and its key whether a record's value is read.
pub type ValueRule = fn(RecordKind, &[u8]) -> bool;

/// What a backfill leaves out or does not care about.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackfillOptions {
    /// Records may come in any order: the files are read from front to back.
    pub unordered: bool,
    /// Values are empty and unchecked, but for those that [`BackfillOptions::values_of`] names.
    pub keys_only: bool,
    /// Of keys alone: the records that come with their values all the same.
    pub values_of: Option<ValueRule>,
    /// Also the newest prepare or abort of each key that has no newer version, beside the version that it has.
    pub prepares: bool,
}

/// One vBucket as of one seqno, read in steps; see [`KvStore::backfill`]. Whatever the store does meanwhile, nothing
/// that it needs goes away; dropping it lets go. It may outlive the store.
pub trait Backfill: Send {
    /// The seqno as of which it shows the vBucket: the highest that was synced when it was made.
    fn end(&self) -> Seqno;

    /// Tombstones up to here may be missing.
    fn purge_seqno(&self) -> Seqno;

    /// Durable writes as of the end.
    fn marks(&self) -> Marks;

    /// Memory held now. At most the sum of:
    /// - 24 bytes per record of the vBucket, superseded ones included. It is twice that while the list of them grows.
    /// - 8 MiB, or less where less is asked for at a time.
    /// - One document.
    fn memory_bytes(&self) -> usize;

    /// Reads on for about `bytes_max` bytes and visits records; false when there are no more. It may visit none and
    /// return true: before the first record all keys are looked at, to find each one's newest version.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] and [`StoreError::Io`] when a record is unreadable, or may be among what was lost:
    /// what came before it in order was complete. [`StoreError::Reset`] when the vBucket's contents were dropped. A
    /// backfill that has failed goes on failing.
    fn next(&mut self, bytes_max: usize, visit: &mut dyn FnMut(&Record<'_>)) -> Result<bool, StoreError> {
        self.next_located(bytes_max, &mut |record, _| visit(record))
    }

    /// As [`Backfill::next`]; `visit` is also told where each record lies.
    ///
    /// # Errors
    /// As [`Backfill::next`].
    fn next_located(
        &mut self,
        bytes_max: usize,
        visit: &mut dyn FnMut(&Record<'_>, Locator),
    ) -> Result<bool, StoreError>;
}

/// The records that a store had at one moment, kept readable. It may outlive the store.
pub trait Pin: Send + Sync {
    /// As [`KvStore::get_at`]; stale only when the locator was not valid when the pin was made, or the vBucket has been
    /// reset.
    ///
    /// # Errors
    /// As [`KvStore::get_at`].
    fn get_at(&self, at: Locator) -> Result<OwnedRecord, StoreError>;

    /// [`KvStore::generation`] when it was made.
    fn generation(&self) -> u64;
}

/// Counters and sizes of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes allocated on disk for segments (preallocation included), metadata and reserve.
    pub bytes_on_disk: u64,
    /// Bytes of segments in use, without preallocation.
    pub bytes_used: u64,
    /// Bytes of records that are the newest version of their key, as far as accounting knows.
    pub bytes_live: u64,
    /// Segment files, the active one included.
    pub segments: u32,
    /// Calls of `commit` that wrote.
    pub commits: u64,
    /// Records written by `commit`.
    pub records_written: u64,
    /// Syncs of segment files for `sync` (one may serve many callers).
    pub syncs: u64,
    /// Bytes written for `commit`, segment footers included.
    pub bytes_written: u64,
    /// Bytes read by compaction.
    pub compaction_bytes_read: u64,
    /// Bytes written by compaction.
    pub compaction_bytes_written: u64,
    /// Times the manifest was replaced.
    pub manifest_writes: u64,
    /// Records read by `get_at` and `lookup`.
    pub records_read: u64,
    /// Backfills that exist.
    pub backfills: u64,
    /// Pins that exist.
    pub pins: u64,
    /// Records that backfills delivered.
    pub backfill_records: u64,
    /// Bytes of those records.
    pub backfill_bytes: u64,
    /// Bytes of segments that compaction has removed and somebody still reads: the disk gets them back later. They
    /// are part of `bytes_on_disk`.
    pub bytes_pinned: u64,
    /// Damaged places found so far: file name and offset. Bounded; see `corrupt_count`.
    pub corrupt: Vec<(String, u64)>,
    /// How many damaged places were found, listed or not.
    pub corrupt_count: u64,
    /// Memory that finding keys takes: what is loaded of the indexes of sealed segments.
    pub index_bytes: u64,
    /// Memory for writing: the buffer of batches, and the indexes that segments are to be sealed with.
    pub writing_bytes: u64,
    /// Whether a write or sync error stopped all writing.
    pub poisoned: bool,
    /// Whether the last write was refused for want of space.
    pub full: bool,
}

/// How much of a store is dead, and what compaction makes of that. Nothing where nothing can be reclaimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceUse {
    /// Bytes of segments that compaction may get at, without what its step in progress is as good as through with.
    pub used: u64,
    /// Bytes of those that are the newest version of their key, as far as accounting knows.
    pub live: u64,
    /// Bytes at which a segment is sealed; what is not is nothing for compaction.
    pub segment_bytes: u64,
    /// Bytes that compaction has given back, ever, the share of its step in progress included.
    pub reclaimed: u64,
}

/// One shard's documents on disk.
pub trait KvStore: Send + Sync {
    /// Every vBucket the store knows, as recovered at open.
    fn vb_states(&self) -> Vec<(VbId, VbState)>;

    /// Appends batches: written, readable, not yet synced. `locators` is cleared and filled in record order over
    /// all batches. Each vBucket's part is kept whole or not at all.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`]: there was room for some of the parts at most, from the front. `locators` has theirs: they are
    /// written, and what they replace counts as obsolete. The others may be retried. (So may those with them, but then there are
    /// two copies, and what they replace is counted twice.) [`StoreError::Poisoned`], [`StoreError::Io`]: nothing will be
    /// written any more, and no locator is returned.
    fn commit(&self, batches: &[VbBatch<'_>], locators: &mut Vec<Locator>) -> Result<(), StoreError>;

    /// Everything committed before the call is durable after it. One sync serves all who wait.
    ///
    /// The committing thread must have given memory the locators of what a sync covered before it calls `commit` or
    /// `sync` again. From then on compaction takes [`Liveness::verdict`]'s word for those records.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] when the disk cannot even take the name of a file that tells of a new segment. Nothing is acknowledged
    /// then, and another call may find room. Any other failure poisons the store; nobody retries such a sync.
    fn sync(&self) -> Result<(), StoreError>;

    /// Replaces vBuckets' metadata, synced before this returns.
    ///
    /// # Errors
    /// As `commit`.
    fn put_states(&self, states: &[(VbId, VbState)]) -> Result<(), StoreError>;

    /// Keeps bytes beside the records, in place of those kept before: something that is good to have after a restart and
    /// may be lost.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], [`StoreError::Io`]; neither says anything about the records.
    fn put_hints(&self, hints: &[u8]) -> Result<(), StoreError>;

    /// What was last kept; none when it is lost or damaged.
    fn hints(&self) -> Option<Vec<u8>>;

    /// Drops the vBuckets' contents (a new incarnation begins) and sets their state, synced before this returns.
    ///
    /// # Errors
    /// As `commit`.
    fn reset_vbs(&self, vbs: &[(VbId, VbState)]) -> Result<(), StoreError>;

    /// The record at a locator, its checksum verified.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when compaction has removed the segment: look the key up again.
    fn get_at(&self, at: Locator) -> Result<OwnedRecord, StoreError>;

    /// Whether what lies at a locator has not been taken out by compaction.
    fn holds(&self, _at: Locator) -> bool {
        true
    }

    /// As [`KvStore::get_at`] for many places at once, in the order that suits the disk: `visit` is called once for each
    /// place, with its number.
    fn get_many(&self, places: &[Locator], visit: &mut dyn FnMut(usize, Result<OwnedRecord, StoreError>)) {
        places.iter().enumerate().for_each(|(number, &at)| visit(number, self.get_at(at)));
    }

    /// The newest version of a key, tombstones included, prepares not; `None` only when there is none.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] or [`StoreError::Io`] when a segment that may hold the newest version is unreadable.
    /// Also when a newer prepare of the key is unreadable and not known to be completed: what became of it is unknown.
    fn lookup(&self, vb: VbId, key: &[u8]) -> Result<Option<OwnedRecord>, StoreError>;

    /// Visits every committed record with seqno >= `from` of the shard or of one vBucket, superseded ones included,
    /// in no particular order, until `visit` returns false. Without `values` they are empty and unchecked. Damaged records are skipped, counted and named in
    /// the statistics.
    ///
    /// # Errors
    /// [`StoreError::Io`] when a file cannot be read.
    fn scan(
        &self,
        vb: Option<VbId>,
        from: Seqno,
        values: bool,
        visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
    ) -> Result<(), StoreError>;

    /// Visits, as [`KvStore::scan`] of the shard does, with values, what was committed before the store was opened. Of what has
    /// been committed since it may leave out anything, so that it ends however fast the log grows meanwhile. And of what
    /// compaction moves while it visits it may leave out both copies: that has been told by [`Liveness::relocate`]. So nothing
    /// is kept on the disk for its sake.
    ///
    /// # Errors
    /// Those of [`KvStore::scan`].
    fn scan_recovered(
        &self,
        visit: &mut dyn FnMut(VbId, &Record<'_>, Locator) -> bool,
    ) -> Result<(), StoreError> {
        self.scan(None, Seqno(0), true, visit)
    }

    /// Changes whenever a pin made now would keep other records than one made before. A thread reads a document's locator from
    /// memory, under whatever lock keeps [`Liveness::relocate`] away from it. If it finds the generation of a pin
    /// here before letting go of the lock, it can read the record through that pin.
    fn generation(&self) -> u64;

    /// Keeps every record readable that a locator names now. Reads nothing.
    fn pin(&self) -> Box<dyn Pin>;

    /// Begins to read one vBucket as of its highest synced seqno. It visits the newest version of every key whose
    /// newest version is above `from`, tombstones included. Each key comes once, in seqno order. What is committed or
    /// synced later is not in it. Making one reads nothing.
    ///
    /// The end is the store's to choose: of a key that has a newer synced version compaction drops the older one.
    ///
    /// # Errors
    /// [`StoreError::Reset`] while the vBucket is being reset.
    fn backfill(
        &self,
        vb: VbId,
        from: Seqno,
        options: BackfillOptions,
    ) -> Result<Box<dyn Backfill>, StoreError>;

    /// One bounded step of compaction. Steps never run concurrently; a second caller waits.
    ///
    /// # Errors
    /// As `commit`; the inputs stay in place when a step fails.
    fn compact(&self, liveness: &dyn Liveness, budget: CompactBudget) -> Result<CompactReport, StoreError>;

    /// Syncs and seals what is open, so that the next open reads footers only. The store stays usable.
    ///
    /// # Errors
    /// As `sync`.
    fn close(&self) -> Result<(), StoreError>;

    /// Counters and sizes.
    fn stats(&self) -> StoreStats;

    /// What is dead; cheap enough to be asked every few milliseconds.
    fn space(&self) -> SpaceUse {
        SpaceUse::default()
    }
}

/// How a store is laid out. Changing these between opens is harmless.
#[derive(Clone, Debug)]
pub struct Options {
    /// Written into every file; another shard's files are refused.
    pub shard: u32,
    /// Segments of a large store have about this size, of small ones less (so that dead space stays a small part).
    pub segment_bytes: u64,
    /// Lower bound of the above.
    pub segment_bytes_min: u64,
    /// Disk space kept for deletions and metadata when everything else is full; as much and more, as segments grow, is
    /// kept for compaction. 0 keeps none.
    pub reserve_bytes: u64,
    /// Sealed segments that answer look-ups by themselves, at least, before one index is made over them.
    pub index_segments_min: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shard: 0,
            segment_bytes: 128 << 20,
            segment_bytes_min: 4 << 20,
            reserve_bytes: 4 << 20,
            index_segments_min: 8,
        }
    }
}
