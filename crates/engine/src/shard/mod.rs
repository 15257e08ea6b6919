//! What the vBuckets of one shard share: an arena, a store, the flusher's and fetcher's queues, and the gate. The gate
//! tells writers whether the disk still takes what they bring.
//!
//! Everything a writer looks at here is an atomic that background threads store to and writers load. Writers themselves
//! touch shared lines only when a vBucket turns dirty or has gathered enough bytes to be worth reporting.

mod alarm;
pub(crate) mod ceiling;
pub(crate) mod cold_expiry;
pub(crate) mod cold_trim;
pub(crate) mod deferred;
pub(crate) mod failures;
pub(crate) mod fetch_queue;
pub(crate) mod reset;
pub(crate) mod search;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use base::{Cas, Now, Status, VbId, bucket::BucketKind};
use parking_lot::Mutex;
use storage::{KvStore, Record, SpaceUse, StoreStats};

use crate::{
    api::pressure::{DiskRefusals, Pool},
    memory::{
        arena::Arena,
        defragmenter::Defragmenter,
        item::{ItemLoan, ItemPtr, ItemRef},
    },
    pressure::pools::Pools,
    shard::{
        alarm::Alarm, cold_expiry::ColdExpiry, cold_trim::ColdTrim, fetch_queue::FetchQueue, reset::Reset,
    },
};

/// Bytes a vBucket gathers before it tells its shard.
pub(crate) const REPORT_BYTES: u64 = 16 << 10;
/// What a record takes on disk beside key and value, for progress.
const RECORD_BYTES: u64 = 48;

/// The last write found the disk full.
const FULL: u8 = 1;
/// There is less space on the disk than is to be left.
const LOW: u8 = 2;

/// See the module header.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) arena: Arc<Arena>,
    /// None for memory-only buckets.
    pub(crate) store: Option<Arc<dyn KvStore>>,
    pub(crate) gate: Gate,
    pub(crate) flusher: Mutex<Flusher>,
    /// Copies whose contents are to go. Entered under the vBucket's lock.
    pub(crate) to_reset: Mutex<BTreeMap<VbId, Reset>>,
    pub(crate) fetches: Mutex<FetchQueue>,
    pub(crate) cold_expiry: Mutex<ColdExpiry>,
    pub(crate) cold_trim: Mutex<ColdTrim>,
    pub(crate) defragmenter: Mutex<Defragmenter>,
    /// Every document on disk is known to the tables.
    pub(crate) warm: AtomicBool,
    /// Warm-up reads all of the store, and compaction tells it what it moves meanwhile ([`crate::background::warmup`]).
    pub(crate) takes_in: AtomicBool,
    /// There was no memory for something that was told so.
    pub(crate) has_missed: AtomicBool,
    /// Records read by warm-up so far.
    pub(crate) warmed_items: AtomicU64,
    /// Bytes of those, about as they lie on disk.
    pub(crate) warmed_bytes: AtomicU64,
    /// Of the keys that were used most before the last stop, those that warm-up has looked up.
    pub(crate) warmed_hot: AtomicU64,
    pub(crate) counters: Counters,
    /// What holds memory beside the arena.
    pub(crate) pools: Pools,
    /// The vBucket whose state carries the CAS ceiling of the shard.
    pub(crate) marker_vb: VbId,
}

/// What background work has done; off the hot path.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) persisted: AtomicU64,
    /// Bytes that have left the queues for the disk, superseded versions included.
    pub(crate) drained_bytes: AtomicU64,
    pub(crate) commit_failures: AtomicU64,
    pub(crate) fetch_errors: AtomicU64,
    pub(crate) backfill_errors: AtomicU64,
    /// Cursors that were too far behind.
    pub(crate) cursors_dropped: AtomicU64,
    /// Memory of the store, as last told to the pools.
    pub(crate) index_bytes: AtomicU64,
    pub(crate) writing_bytes: AtomicU64,
}

impl Shard {
    /// An item that one of this shard's vBuckets or queues holds a reference to.
    #[inline]
    pub(crate) fn item<'a>(&'a self, held: &'a ItemPtr) -> ItemRef<'a> {
        // SAFETY: items of a shard's vBuckets are made in its arena and nowhere else, and references never cross shards.
        unsafe { held.get(&self.arena) }
    }

    /// An item that the flusher has taken from one of this shard's checkpoints and not published yet. Only for whoever
    /// holds the flusher's lock.
    #[inline]
    pub(crate) fn lent(&self, taken: ItemLoan) -> ItemRef<'_> {
        // SAFETY: as in `item`. A checkpoint keeps what was taken from it until the flusher publishes it, or the
        // contents are dropped. Dropping takes the flusher's lock.
        unsafe { taken.get(&self.arena) }
    }

    /// Warm-up has read a record.
    pub(crate) fn note_read(&self, record: &Record<'_>) {
        // One writer: a load and a store lose nothing.
        let bytes = RECORD_BYTES + record.key.len() as u64 + record.value.len() as u64;
        self.warmed_bytes.store(self.warmed_bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Tells the pools what memory the store takes.
    pub(crate) fn account_store(&self, store: &StoreStats) {
        let tell = |pool, told: &AtomicU64, bytes| {
            self.pools.exchange(pool, told.swap(bytes, Ordering::Relaxed), bytes);
        };
        tell(Pool::ColdIndex, &self.counters.index_bytes, store.index_bytes);
        tell(Pool::Write, &self.counters.writing_bytes, store.writing_bytes);
    }

    /// What of its files is dead; nothing of a memory-only bucket.
    pub(crate) fn space(&self) -> Option<SpaceUse> {
        self.store.as_ref().map(|store| store.space())
    }

    /// Gives a reference back.
    #[inline]
    pub(crate) fn release(&self, held: ItemPtr) {
        // SAFETY: as in `item`.
        unsafe { held.release(&self.arena) }
    }
}

/// The same while it is counted.
#[derive(Debug, Default)]
struct Refused {
    space: AtomicU64,
    broken: AtomicU64,
    ceiling: AtomicU64,
}

#[cold]
fn count_refusal(counter: &AtomicU64) -> Status {
    counter.fetch_add(1, Ordering::Relaxed);
    Status::TemporaryFailure
}

/// What writers ask before they begin, and tell when they are done.
#[derive(Debug)]
pub(crate) struct Gate {
    /// No CAS above this may be given out: it is what the disk knows.
    cas_ceiling: AtomicU64,
    /// A CAS somebody needs the ceiling to rise above.
    wanted_ceiling: AtomicU64,
    /// A write or sync has failed; nothing will be written any more.
    poisoned: AtomicBool,
    /// What the disk is short of: [`FULL`], [`LOW`].
    short: AtomicU8,
    refused: Refused,
    /// The bucket is being closed.
    closed: AtomicBool,
    /// When the flusher has to be told of something.
    alarm: Alarm,
    /// How many wait for the flusher's lock for the sake of those who wait to be served.
    asked_for_way: AtomicUsize,
    /// Since when the flusher has been at it, in monotonic milliseconds plus one; 0: it rests.
    busy_since: AtomicU64,
    /// When the time of a durable write in progress may be up, in monotonic milliseconds.
    next_deadline: AtomicU64,
    /// Arena bytes of dirty items, as far as reported.
    dirty_bytes: AtomicU64,
    /// Of those, what copies are being caught up with.
    history_bytes: AtomicU64,
    /// The vBucket (position in the shard) that the flusher takes first.
    first_vb: AtomicUsize,
}

impl Gate {
    /// For a shard of so many vBuckets; a memory-only one has no CAS ceiling.
    pub(crate) fn new(vbuckets: usize, ceiling: Cas) -> Self {
        Self {
            cas_ceiling: AtomicU64::new(ceiling.get()),
            wanted_ceiling: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            short: AtomicU8::new(0),
            refused: Refused::default(),
            closed: AtomicBool::new(false),
            alarm: Alarm::new(vbuckets),
            asked_for_way: AtomicUsize::new(0),
            busy_since: AtomicU64::new(0),
            next_deadline: AtomicU64::new(u64::MAX),
            dirty_bytes: AtomicU64::new(0),
            history_bytes: AtomicU64::new(0),
            first_vb: AtomicUsize::new(0),
        }
    }

    /// Whether mutations are accepted at all.
    #[inline]
    pub(crate) fn admits(&self) -> Result<(), Status> {
        self.admits_deletes()?;
        if self.is_short_of_space() { Err(count_refusal(&self.refused.space)) } else { Ok(()) }
    }

    /// Whether deletions are: a full disk does not stop them, it needs them.
    #[inline]
    pub(crate) fn admits_deletes(&self) -> Result<(), Status> {
        let refuses = self.poisoned.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed);
        if refuses { Err(count_refusal(&self.refused.broken)) } else { Ok(()) }
    }

    /// A CAS could not be given out, for the ceiling is not high enough.
    pub(crate) fn refuse_for_ceiling(&self) -> Status {
        count_refusal(&self.refused.ceiling)
    }

    /// How often something was refused because of the disk, by what was the matter with it.
    pub(crate) fn refused(&self) -> DiskRefusals {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Refused { space, broken, ceiling } = &self.refused;
        DiskRefusals { space: load(space), broken: load(broken), ceiling: load(ceiling) }
    }

    /// No CAS above this may be given out; none at all once the bucket is closed.
    #[inline]
    pub(crate) fn ceiling(&self) -> Cas {
        if self.is_closed() { Cas::NONE } else { self.ceiling_on_disk() }
    }

    /// The ceiling that is synced.
    pub(crate) fn ceiling_on_disk(&self) -> Cas {
        Cas(self.cas_ceiling.load(Ordering::SeqCst))
    }

    /// The ceiling is synced.
    pub(crate) fn set_ceiling(&self, to: Cas) {
        self.cas_ceiling.store(to.get(), Ordering::SeqCst);
    }

    /// Whether a given CAS may be taken over by a vBucket whose last one is `last`. If not, the flusher will see to that,
    /// once it is called.
    pub(crate) fn takes_over(&self, cas: Cas, last: Cas, now: Now) -> bool {
        let is_leading = cas > last && ceiling::leads(cas, now);
        if is_leading {
            // Before the ceiling is looked at: it stays one of a leader then, or is none already.
            self.want_ceiling(cas);
        }
        let ceiling = self.ceiling();
        let fits = cas <= ceiling && (!is_leading || ceiling::is_of_a_leader(ceiling));
        if !fits {
            self.want_ceiling(cas);
        }
        fits
    }

    /// Notes a CAS that the ceiling has to be above.
    pub(crate) fn want_ceiling(&self, above: Cas) {
        self.wanted_ceiling.fetch_max(above.get(), Ordering::SeqCst);
    }

    pub(crate) fn wanted_ceiling(&self) -> Cas {
        Cas(self.wanted_ceiling.load(Ordering::SeqCst))
    }

    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// The last write found the disk full, or did not.
    pub(crate) fn set_full(&self, full: bool) {
        self.set_short(FULL, full);
    }

    /// There is less space on the disk than is to be left, or not.
    pub(crate) fn set_low(&self, low: bool) {
        self.set_short(LOW, low);
    }

    fn set_short(&self, bit: u8, set: bool) {
        if set {
            self.short.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.short.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Whether the disk is full, or nearly so: mutations that grow are refused, and compaction takes what it can get.
    #[inline]
    pub(crate) fn is_short_of_space(&self) -> bool {
        self.short.load(Ordering::Relaxed) != 0
    }

    /// Whether that is because of the threshold alone.
    pub(crate) fn is_low(&self) -> bool {
        self.short.load(Ordering::Relaxed) & LOW != 0
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Asks for a flush; true when the flusher has to be told (nobody has yet, and it is not about to begin).
    pub(crate) fn want_flush(&self) -> bool {
        self.alarm.want_flush()
    }

    /// Whether a flush has been asked for and not begun.
    pub(crate) fn is_flush_wanted(&self) -> bool {
        self.alarm.is_flush_wanted()
    }

    /// The flusher begins: whether it was asked for.
    pub(crate) fn begin_flush(&self) -> bool {
        self.alarm.begin_flush()
    }

    /// Has the flusher write no more than it has to at once, for as long as the answer lives. A thread that clients wait for wants
    /// its lock.
    pub(crate) fn ask_for_way(&self) -> Way<'_> {
        self.asked_for_way.fetch_add(1, Ordering::Relaxed);
        Way(&self.asked_for_way)
    }

    /// Whether the flusher is in somebody's way.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.asked_for_way.load(Ordering::Relaxed) > 0
    }

    /// The flusher has begun to work, or is done.
    pub(crate) fn set_busy(&self, since: Option<Now>) {
        let since = since.map_or(0, |now| now.mono_millis.saturating_add(1));
        self.busy_since.store(since, Ordering::Relaxed);
    }

    /// How long the flusher has been at it.
    pub(crate) fn busy_for_millis(&self, now: Now) -> u64 {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => 0,
            since => (now.mono_millis + 1).saturating_sub(since),
        }
    }

    /// A durable write has been made; true when the flusher has waited for just that one.
    pub(crate) fn count_durable(&self) -> bool {
        self.alarm.count_durable()
    }

    /// How many have been made since the flusher began.
    pub(crate) fn durable(&self) -> usize {
        self.alarm.durable()
    }

    /// Whether the flusher waits for durable writes, and for how many since it began.
    pub(crate) fn gather(&self, expected: usize) {
        self.alarm.gather(expected);
    }

    /// The time of a durable write will be up then (monotonic milliseconds).
    pub(crate) fn note_deadline(&self, at: u64) {
        if at < self.next_deadline.load(Ordering::Relaxed) {
            self.next_deadline.fetch_min(at, Ordering::AcqRel);
        }
    }

    /// Whether a deadline has been reached. All are to be noted anew then.
    pub(crate) fn take_deadline(&self, now: Now) -> bool {
        now.mono_millis >= self.next_deadline.load(Ordering::Relaxed)
            && now.mono_millis >= self.next_deadline.swap(u64::MAX, Ordering::AcqRel)
    }

    /// A vBucket turned dirty; true when the flusher sleeps and has to be told.
    pub(crate) fn mark_dirty(&self, vb_in_shard: usize, now: Now) -> bool {
        self.alarm.mark_dirty(vb_in_shard, now.mono_millis)
    }

    /// The flusher is about to sleep until it is told of something dirty; false when there is something.
    pub(crate) fn doze(&self) -> bool {
        self.alarm.doze()
    }

    /// The flusher is awake, whatever woke it.
    pub(crate) fn wake_up(&self) {
        self.alarm.wake_up();
    }

    /// How long the oldest dirty mutation has waited; `None` when there is none.
    pub(crate) fn dirty_for_millis(&self, now: Now) -> Option<u64> {
        self.alarm.dirty_for_millis(now.mono_millis)
    }

    /// The flusher did not come as far as this vBucket. It is the first next time, so that none waits for ever behind
    /// those before it.
    pub(crate) fn go_on_with(&self, vb_in_shard: usize) {
        self.first_vb.store(vb_in_shard, Ordering::Relaxed);
    }

    /// The dirty vBuckets (positions in the shard) in the order of their turns, which count as clean from now on.
    pub(crate) fn take_dirty(&self) -> Vec<usize> {
        let mut dirty = self.alarm.take_dirty();
        let first = self.first_vb.load(Ordering::Relaxed);
        let earlier = dirty.partition_point(|&index| index < first);
        dirty.rotate_left(earlier);
        dirty
    }

    /// Adds to what is dirty; returns the sum of its bytes.
    pub(crate) fn add_dirty(&self, dirty: Dirty) -> u64 {
        if dirty.history > 0 {
            self.history_bytes.fetch_add(dirty.history, Ordering::Relaxed);
        }
        self.dirty_bytes.fetch_add(dirty.bytes, Ordering::Relaxed) + dirty.bytes
    }

    pub(crate) fn subtract_dirty(&self, dirty: Dirty) {
        if dirty.history > 0 {
            self.history_bytes.fetch_sub(dirty.history, Ordering::Relaxed);
        }
        self.dirty_bytes.fetch_sub(dirty.bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Of those, what copies are being caught up with ([`crate::replica`]).
    pub(crate) fn history_bytes(&self) -> u64 {
        self.history_bytes.load(Ordering::Relaxed)
    }
}

/// See [`Gate::ask_for_way`].
#[must_use]
pub(crate) struct Way<'a>(&'a AtomicUsize);

impl Drop for Way<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Arena bytes of dirty items that a shard is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// All of them.
    pub(crate) bytes: u64,
    /// Of those, what a copy is being caught up with.
    pub(crate) history: u64,
}

impl Dirty {
    pub(crate) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.history += other.history;
    }

    /// Takes out what is above so many bytes.
    pub(crate) fn split_above(&mut self, bytes: u64) -> Self {
        let stays = Self { bytes: self.bytes.min(bytes), history: self.history.min(bytes) };
        let above = Self { bytes: self.bytes - stays.bytes, history: self.history - stays.history };
        *self = stays;
        above
    }
}

/// What an operation on a vBucket needs to know of its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct Env<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) kind: BucketKind,
    pub(crate) now: Now,
}

impl Env<'_> {
    #[inline]
    pub(crate) fn is_persistent(&self) -> bool {
        self.shard.store.is_some()
    }

    /// A cache forgets what it deletes; everything else remembers that it did.
    #[inline]
    pub(crate) fn keeps_tombstones(&self) -> bool {
        self.kind != BucketKind::Memcached
    }
}

/// Which shard a vBucket belongs to and its place there.
pub(crate) const fn place_of(vb: VbId, shards: usize) -> (usize, usize) {
    (vb.get() as usize % shards, vb.get() as usize / shards)
}

/// Held by the thread that writes a shard: the right to take from its checkpoints, and to drop what they hold.
#[derive(Debug, Default)]
pub(crate) struct Flusher;

impl Shard {
    /// The CAS to record with a vBucket's state: the one vBucket of the shard that carries the ceiling keeps carrying it,
    /// as of now.
    pub(crate) fn recorded_cas(&self, vb: VbId, own: Cas, now: Now) -> Cas {
        if vb != self.marker_vb {
            return own;
        }
        let present = self.gate.ceiling_on_disk();
        ceiling::above(own, self.gate.wanted_ceiling(), now, present)
    }
}

impl Shard {
    /// Keys waiting to be read.
    pub(crate) fn queued_fetches(&self) -> usize {
        self.fetches.lock().len()
    }
}
