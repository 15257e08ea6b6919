//! Everything of an open store: the set of segments, the writer at the log's end, and the locks between them.
//!
//! Lock order: compaction, manifest, sync, writer, segment set, a segment's index. Readers take only the last two, briefly:
//! they clone the set (an `Arc`) and read files without any lock. Segments in a reader's clone stay readable
//! whatever happens to the set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use base::{VbId, hash::disk_hash};
use parking_lot::{Mutex, RwLock};

use crate::{
    api::{Options, SpaceUse, StoreStats, VbState},
    counters::Counters,
    error::{StoreError, io_error},
    format::{UNIT, VBUCKETS, header::Origin, manifest::SegmentEntry},
    fs::{Fs, LockGuard},
    key_index::KeyIndexes,
    position::{AtomicPosition, Position},
    reserve::Reserve,
    segment::{Segment, file_name},
    synced::{High, SyncedHighs},
    writer::{self, Writer},
};

/// All segments by number.
pub(crate) type SegmentSet = BTreeMap<u32, Arc<Segment>>;

/// Everything of an open store.
pub(crate) struct Core {
    pub(crate) dir: PathBuf,
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) options: Options,
    /// Of [`disk_hash`]: random and the shard's own, so that clients cannot make keys collide. 0 in shards of versions before 5.
    pub(crate) seed: u64,
    pub(crate) counters: Arc<Counters>,
    pub(crate) set: RwLock<Arc<SegmentSet>>,
    /// By vBucket; records of other incarnations are dead.
    pub(crate) incarnations: Arc<[AtomicU32]>,
    pub(crate) writer: Mutex<Writer>,
    /// The first segment that this process has made; those before were recovered.
    pub(crate) first_made: u32,
    /// The end of what was committed.
    pub(crate) end: AtomicPosition,
    /// The end of what is synced.
    pub(crate) synced: AtomicPosition,
    /// The same by vBucket.
    pub(crate) synced_highs: SyncedHighs,
    /// What sync calls that have returned covered.
    pub(crate) acknowledged: AtomicPosition,
    /// What memory knows to be synced: acknowledged before the latest commit or sync began.
    published: AtomicPosition,
    pub(crate) sync_lock: Mutex<()>,
    pub(crate) compact_lock: Mutex<()>,
    /// How many wait for compaction's lock, and for no step of it to go on.
    pub(crate) compaction_awaited: AtomicUsize,
    /// Held while the manifest is replaced, by one after the other.
    pub(crate) manifest_lock: Mutex<()>,
    /// For deletions and metadata.
    pub(crate) reserve: Reserve,
    pub(crate) compaction_reserve: Reserve,
    /// The manifest lags behind the segments.
    pub(crate) manifest_due: AtomicBool,
    /// Recovery found no space for a manifest: nothing may follow the recovered log before there is one.
    pub(crate) unsettled: AtomicBool,
    /// Segments that are missing, or in which nothing can be checked: while there are any, absence cannot be proved.
    lost: Mutex<Vec<SegmentEntry>>,
    /// The newest segment that a manifest lists with records.
    pub(crate) listed: AtomicU32,
    /// Names of files that tell of segments which no manifest lists.
    pub(crate) notes: Mutex<Vec<String>>,
    /// Segments that were removed while somebody still read them.
    retired: Mutex<Vec<Weak<Segment>>>,
    /// Grows with every change of the set.
    pub(crate) generation: AtomicU64,
    /// Finds keys in sealed segments.
    pub(crate) keys: KeyIndexes,
    /// How many segments have been removed since open.
    pub(crate) removed: AtomicU64,
    /// Some vBucket was reset since compaction last looked for wholly dead segments.
    pub(crate) resets: AtomicBool,
    _lock: Box<dyn LockGuard>,
}

impl Core {
    pub(crate) fn new(
        (dir, fs, options, seed): (&Path, Arc<dyn Fs>, Options, u64),
        counters: Arc<Counters>,
        set: SegmentSet,
        incarnations: &BTreeMap<VbId, u32>,
        writer: Writer,
        lock: Box<dyn LockGuard>,
    ) -> Self {
        let incarnation = |vb| AtomicU32::new(incarnations.get(&VbId(vb)).copied().unwrap_or(0));
        let recovered = || {
            let position = AtomicPosition::default();
            position.advance(writer.end);
            position
        };
        let mut highs = vec![High::default(); VBUCKETS];
        for (vb, state) in writer.states() {
            let incarnation = incarnations.get(&vb).copied().unwrap_or(0);
            if let Some(high) = highs.get_mut(usize::from(vb.get())) {
                *high = High::of(incarnation, state);
            }
        }
        Self {
            synced_highs: SyncedHighs::new(highs),
            retired: Mutex::new(Vec::new()),
            reserve: Reserve::for_deletions(dir, fs.clone(), &options),
            compaction_reserve: Reserve::for_compaction(dir, fs.clone(), &options),
            dir: dir.to_owned(),
            fs,
            options,
            seed,
            counters,
            set: RwLock::new(Arc::new(set)),
            incarnations: (0..VBUCKETS as u16).map(incarnation).collect(),
            first_made: writer.next_segment,
            end: recovered(),
            synced: recovered(),
            acknowledged: recovered(),
            published: recovered(),
            writer: Mutex::new(writer),
            sync_lock: Mutex::new(()),
            compact_lock: Mutex::new(()),
            compaction_awaited: AtomicUsize::new(0),
            manifest_lock: Mutex::new(()),
            manifest_due: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
            lost: Mutex::default(),
            listed: AtomicU32::new(0),
            notes: Mutex::default(),
            generation: AtomicU64::new(0),
            keys: KeyIndexes::default(),
            removed: AtomicU64::new(0),
            resets: AtomicBool::new(true),
            _lock: lock,
        }
    }

    /// The hash by which the shard's indexes find a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        disk_hash(key, self.seed)
    }

    /// The segments as of now.
    pub(crate) fn segments(&self) -> Arc<SegmentSet> {
        self.set.read().clone()
    }

    /// Recovery found these segments missing.
    pub(crate) fn set_lost(&self, lost: Vec<SegmentEntry>) {
        *self.lost.lock() = lost;
    }

    /// The segments that are missing.
    pub(crate) fn lost(&self) -> Vec<SegmentEntry> {
        self.lost.lock().clone()
    }

    /// Whether segments are missing: then absence cannot be proved.
    pub(crate) fn is_incomplete(&self) -> bool {
        !self.lost.lock().is_empty()
    }

    /// Everything that was lost, in these segments or with them, belonged to contents that are dropped now and no manifest lists
    /// them any more.
    pub(crate) fn give_up(&self, ids: &[u32]) {
        self.lost.lock().retain(|entry| !ids.contains(&entry.id));
        self.remove_segments(ids);
        ids.iter().for_each(|id| self.remove_if_there(&file_name(*id)));
    }

    /// The committing thread is back: memory knows the locators of everything that its syncs have covered.
    pub(crate) fn publish(&self) {
        self.published.advance(self.acknowledged.load());
    }

    /// Whether a segment is final, on the disk for good, and known to be so by memory: what compaction may replace.
    /// (Were a record synced without memory's knowledge, memory would take it for obsolete.)
    pub(crate) fn is_settled(&self, segment: &Segment) -> bool {
        // Outputs of compaction are synced before they join the set.
        let end = Position { segment: segment.id, offset: segment.data_end() };
        segment.is_sealed() && (segment.origin == Origin::Compacted || end <= self.published.load())
    }

    /// Whether a segment is final and on the disk for good: a crash takes nothing of it.
    pub(crate) fn is_synced(&self, segment: &Segment) -> bool {
        let end = Position { segment: segment.id, offset: segment.data_end() };
        segment.is_sealed() && (segment.origin == Origin::Compacted || end <= self.synced.load())
    }

    pub(crate) fn insert_segment(&self, segment: Arc<Segment>) {
        let mut set = self.set.write();
        Arc::make_mut(&mut *set).insert(segment.id, segment);
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn remove_segments(&self, ids: &[u32]) {
        let mut set = self.set.write();
        let set = Arc::make_mut(&mut *set);
        let mut retired = self.retired.lock();
        retired.retain(|segment| segment.strong_count() > 0);
        for id in ids {
            retired.extend(set.remove(id).as_ref().map(Arc::downgrade));
            self.removed.fetch_add(1, Ordering::Relaxed);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// One of the segments as of now.
    pub(crate) fn segment(&self, id: u32) -> Option<Arc<Segment>> {
        self.set.read().get(&id).cloned()
    }

    /// The segments as of now with their generation.
    pub(crate) fn generation_of_segments(&self) -> (u64, Arc<SegmentSet>) {
        let set = self.set.read();
        // Under the lock: it changes with the set.
        (self.generation.load(Ordering::Relaxed), set.clone())
    }

    pub(crate) fn incarnation(&self, vb: VbId) -> u32 {
        // Pairs with the release in `reset`: a thread that sees the new incarnation sees what was set before it.
        self.incarnations.get(usize::from(vb.get())).map_or(0, |number| number.load(Ordering::Acquire))
    }

    /// Whether records of that incarnation still count.
    pub(crate) fn is_current(&self, vb: VbId, incarnation: u32) -> bool {
        self.incarnation(vb) == incarnation
    }

    /// The size at which the active segment is sealed.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.sealed_at(self.set.read().values().map(|segment| segment.live_units() * UNIT).sum())
    }

    /// The same where so much is live: a sixteenth of it, within bounds.
    fn sealed_at(&self, live: u64) -> u64 {
        let (min, max) = (self.options.segment_bytes_min, self.options.segment_bytes);
        (live / 16).clamp(min.min(max), max)
    }

    /// Accounts for obsolete records.
    pub(crate) fn count_dead(&self, deaths: &[(u32, u32)]) {
        if deaths.is_empty() {
            return;
        }
        let set = self.set.read();
        for (id, units) in deaths {
            if let Some(segment) = set.get(id) {
                segment.count_dead(u64::from(*units));
            }
        }
    }

    /// Makes a segment file. Its name is not durable before the directory is synced.
    pub(crate) fn create_segment(&self, id: u32, origin: Origin) -> Result<Segment, StoreError> {
        if writer::is_exhausted(id) {
            return Err(StoreError::Invalid("segment numbers are used up"));
        }
        let name = file_name(id);
        let file =
            self.fs.create(&self.dir.join(&name)).map_err(|source| io_error("create", &name, source))?;
        Ok(Segment::new(id, origin, (self.fs.random() as u32, self.seed), file, self.counters.clone()))
    }

    /// Removes a file that nothing refers to any more. Failing is harmless: the next open tries again.
    pub(crate) fn remove_file(&self, name: &str) {
        if let Err(error) = self.fs.remove(&self.dir.join(name)) {
            tracing::warn!(file = name, %error, "could not remove a file");
        }
    }

    /// As [`Core::remove_file`], of a file that need not be there.
    pub(crate) fn remove_if_there(&self, name: &str) {
        if self.fs.open(&self.dir.join(name)).is_ok() {
            self.remove_file(name);
        }
    }

    /// The manifest says that these vBuckets are empty, with these states: now memory does.
    pub(crate) fn begin_incarnations(&self, vbs: &[(VbId, VbState)]) {
        // A sync that began before tells of the incarnation before, and is over now.
        let _no_sync = self.sync_lock.lock();
        let mut writer = self.writer.lock();
        for (vb, state) in vbs {
            let incarnation = self.incarnation(*vb) + 1;
            writer.set_state(*vb, state, true);
            self.synced_highs.advance(&[(*vb, High::of(incarnation, state))]);
            self.set_incarnation(*vb, incarnation);
        }
    }

    fn set_incarnation(&self, vb: VbId, incarnation: u32) {
        if let Some(number) = self.incarnations.get(usize::from(vb.get())) {
            // Pairs with the acquire in `incarnation`.
            number.store(incarnation, Ordering::Release);
        }
    }

    /// Recounts live bytes of segments that hold records of ended incarnations: an estimate, since it is not known
    /// which of them were alive.
    pub(crate) fn recount_stale(&self) {
        for segment in self.segments().values() {
            let Ok(summaries) = segment.summaries() else { continue };
            let stale: u64 = summaries
                .iter()
                .filter(|summary| !self.is_current(summary.vb, summary.incarnation))
                .map(|summary| u64::from(summary.units))
                .sum();
            let units = segment.units();
            segment.set_units(units, segment.live_units().min(units.saturating_sub(stale)));
        }
    }

    pub(crate) fn space(&self) -> SpaceUse {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let reclaiming = load(&self.counters.reclaiming);
        let set = self.segments();
        // Of what is quarantined nothing is going to be reclaimed.
        let within_reach = || set.values().filter(|segment| !segment.is_quarantined());
        let live = within_reach().map(|segment| segment.live_units() * UNIT).sum();
        SpaceUse {
            used: within_reach().map(|segment| segment.data_end()).sum::<u64>().saturating_sub(reclaiming),
            live,
            segment_bytes: self.sealed_at(live),
            reclaimed: load(&self.counters.reclaimed) + reclaiming,
        }
    }

    pub(crate) fn stats(&self) -> StoreStats {
        let set = self.segments();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (corrupt, corrupt_count) = self.counters.corrupt_places();
        let allocated: u64 = set.values().map(|segment| load(&segment.file_bytes)).sum();
        let pinned = self.retired.lock().iter().filter_map(Weak::upgrade).map(|s| load(&s.file_bytes)).sum();
        StoreStats {
            bytes_on_disk: self.keys.file_bytes()
                + allocated
                + pinned
                + self.reserve.held_bytes()
                + self.compaction_reserve.held_bytes(),
            bytes_pinned: pinned,
            backfills: load(&self.counters.backfills),
            pins: load(&self.counters.pins),
            backfill_records: load(&self.counters.backfill_records),
            backfill_bytes: load(&self.counters.backfill_bytes),
            index_bytes: self.keys.memory_bytes(&set),
            writing_bytes: load(&self.counters.buffer_bytes)
                + set.values().map(|segment| segment.footer_to_be_bytes()).sum::<u64>(),
            bytes_used: set.values().map(|segment| segment.data_end()).sum(),
            bytes_live: set.values().map(|segment| segment.live_units() * UNIT).sum(),
            segments: set.len() as u32,
            commits: load(&self.counters.commits),
            records_written: load(&self.counters.records_written),
            syncs: load(&self.counters.syncs),
            bytes_written: load(&self.counters.bytes_written),
            compaction_bytes_read: load(&self.counters.compaction_bytes_read),
            compaction_bytes_written: load(&self.counters.compaction_bytes_written),
            manifest_writes: load(&self.counters.manifest_writes),
            records_read: load(&self.counters.records_read),
            corrupt,
            corrupt_count,
            poisoned: self.counters.is_poisoned(),
            full: self.reserve.is_full(),
        }
    }
}
