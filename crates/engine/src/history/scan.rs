//! One scan: what it shows, where it is, and who works on it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::{DocKey, Now, Seqno, Status, VbId, VbUuid};
use parking_lot::Mutex;
use storage::{Backfill, KvStore, Locator, OwnedRecord, Pin, StoreError};

use crate::{
    api::notify::Waiter,
    history::{
        gather::{Gather, GatherOptions},
        item::FeedItem,
        scans::{ScanId, ScanInfo, ScanOptions, ScanSelection},
    },
    memory::item::ItemId,
    vbucket::slot::Home,
};

/// See the module.
pub(crate) struct Scan {
    pub(crate) id: ScanId,
    pub(crate) vb: VbId,
    pub(crate) shard: usize,
    pub(crate) uuid: VbUuid,
    pub(crate) incarnation: u32,
    pub(crate) options: ScanOptions,
    pub(crate) created_millis: u64,
    /// What every encoded key of the collection begins with.
    prefix: Vec<u8>,
    /// Used by the backfill thread alone once it was begun.
    pub(crate) gathering: Mutex<Option<Gathering>>,
    /// Keep documents readable on disk. Used by the backfill thread alone, as well.
    pub(crate) pins: Mutex<Pins>,
    /// Known once it has been created.
    pub(crate) selected: OnceLock<Selected>,
    state: Mutex<State>,
    /// The backfill thread's queue has it.
    queued: AtomicBool,
    /// Memory it holds, as accounted for.
    bytes: AtomicU64,
    pub(crate) from_disk: AtomicU64,
}

/// Bytes of documents read ahead that a scan keeps while nobody reads it. There may be a thousand such scans, each for
/// minutes.
const IDLE_BYTES_MAX: usize = 32 << 10;

/// What changes while a scan is read.
struct State {
    phase: Phase,
    /// Is told when the phase changes, or something was fetched.
    waiter: Option<Waiter>,
    /// The next entry to be read.
    position: usize,
    fetched: Fetched,
}

/// Documents at hand for entries from a scan's position on, with those, rising.
pub(crate) type Fetched = VecDeque<(usize, FeedItem)>;

/// Leaves what comes next, up to the limit.
fn shorten(fetched: &mut Fetched) {
    let mut bytes = 0;
    let kept = fetched.iter().take_while(|(_, item)| {
        bytes += item.bytes();
        bytes <= IDLE_BYTES_MAX
    });
    let kept = kept.count();
    fetched.truncate(kept);
    fetched.shrink_to_fit();
}

/// Where a scan is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Creating,
    /// Nobody reads it.
    Idle,
    Continuing,
    Over(Status),
}

/// What a scan found, in key order.
#[derive(Default)]
pub(crate) struct Selected {
    /// Encoded keys, one after the other.
    pub(crate) keys: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// Versions that are not on disk, by entry.
    pub(crate) held: Vec<(usize, FeedItem)>,
}

/// A scan being created.
pub(crate) enum Gathering {
    /// From the table, which knows every key.
    Table(Gather, Places),
    Disk(Reading),
}

/// Where documents without a value in memory were on disk when they were gathered, and pinned.
pub(crate) type Places = HashMap<ItemId, Locator, BuildHasherDefault<DefaultHasher>>;

/// What keeps records readable, from one moment or several.
#[derive(Default)]
pub(crate) struct Pins(Vec<Box<dyn Pin>>);

impl Pins {
    /// Under the vBucket's lock: what locators in its table name now stays readable.
    pub(crate) fn cover(&mut self, store: &dyn KvStore) {
        if self.0.last().is_none_or(|pin| pin.generation() != store.generation()) {
            self.0.push(store.pin());
        }
    }

    /// Whether what the store keeps is what the last pin keeps.
    pub(crate) fn are_current(&self, store: &dyn KvStore) -> bool {
        self.0.last().is_some_and(|pin| pin.generation() == store.generation())
    }

    /// The first record at the locator that is the one.
    pub(crate) fn find(
        &self,
        at: Locator,
        is_it: impl Fn(&OwnedRecord) -> bool,
    ) -> Result<Option<OwnedRecord>, StoreError> {
        for pin in self.0.iter().rev() {
            match pin.get_at(at) {
                Ok(record) if is_it(&record) => return Ok(Some(record)),
                Ok(_) | Err(StoreError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// One document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Where its key ends.
    pub(crate) key_end: usize,
    pub(crate) seqno: Seqno,
    pub(crate) locator: Locator,
}

impl Selected {
    pub(crate) fn key(&self, index: usize) -> DocKey<'_> {
        let start = index.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(0, |e| e.key_end);
        let end = self.entries.get(index).map_or(start, |entry| entry.key_end);
        DocKey::trusted(self.keys.get(start..end).unwrap_or_default())
    }

    /// The version of an entry that is not on disk.
    pub(crate) fn held(&self, index: usize) -> Option<&FeedItem> {
        let at = self.held.binary_search_by_key(&index, |held| held.0).ok()?;
        self.held.get(at).map(|held| &held.1)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.keys.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + self.held.iter().map(|held| held.1.bytes()).sum::<usize>()
    }
}

impl Scan {
    pub(crate) fn new(
        id: ScanId,
        vb: VbId,
        shard: usize,
        (uuid, incarnation): (VbUuid, u32),
        options: ScanOptions,
        waiter: Waiter,
        now: Now,
    ) -> Self {
        let mut prefix = Vec::new();
        base::key::encode_leb128(options.collection.get(), &mut prefix);
        let state =
            State { phase: Phase::Creating, waiter: Some(waiter), position: 0, fetched: VecDeque::new() };
        Self {
            id,
            vb,
            shard,
            uuid,
            incarnation,
            options,
            created_millis: now.mono_millis,
            prefix,
            gathering: Mutex::new(None),
            pins: Mutex::default(),
            selected: OnceLock::new(),
            state: Mutex::new(state),
            queued: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            from_disk: AtomicU64::new(0),
        }
    }

    /// Places its cursor in the vBucket, or notes what has to be on disk before it is read.
    pub(crate) fn begin(&self, home: &Arc<dyn Home>) -> Result<(), Status> {
        let everything = GatherOptions { above: Seqno(0), tombstones: false, prepares: false };
        let gathering = match Gather::begin(home, self.vb, everything) {
            Ok(gather) => Gathering::Table(gather, Places::default()),
            Err(Status::NotSupported) => {
                let (slot, _) = home.at(self.vb)?;
                let until = slot.vb.lock().high_seqno;
                Gathering::Disk(Reading::new(until))
            }
            Err(status) => return Err(status),
        };
        *self.gathering.lock() = Some(gathering);
        Ok(())
    }

    /// Whether a document with that encoded key is to be shown, as far as its key tells.
    pub(crate) fn wants(&self, key: &[u8]) -> bool {
        let Some(logical) = key.strip_prefix(&*self.prefix) else { return false };
        let ScanSelection::Range(start, end) = &self.options.selection else { return true };
        let after_start = match start {
            Bound::Included(start) => *logical >= **start,
            Bound::Excluded(start) => *logical > **start,
            Bound::Unbounded => true,
        };
        after_start
            && match end {
                Bound::Included(end) => *logical <= **end,
                Bound::Excluded(end) => *logical < **end,
                Bound::Unbounded => true,
            }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// It has been created. Returns who waits for that.
    pub(crate) fn become_idle(&self) -> Option<Waiter> {
        let mut state = self.state.lock();
        if state.phase == Phase::Creating {
            state.phase = Phase::Idle;
        }
        state.waiter.take()
    }

    /// Somebody reads on.
    pub(crate) fn take_up(&self, waiter: Waiter) -> Result<(), Status> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Idle => {
                (state.phase, state.waiter) = (Phase::Continuing, Some(waiter));
                Ok(())
            }
            Phase::Creating | Phase::Continuing => Err(Status::Busy),
            Phase::Over(status) => Err(status),
        }
    }

    /// Nobody reads on for now.
    pub(crate) fn lay_down(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Continuing {
            (state.phase, state.waiter) = (Phase::Idle, None);
            shorten(&mut state.fetched);
        }
    }

    /// It is over, for that reason unless there was one already. Returns who waits.
    pub(crate) fn end(&self, status: Status) -> Option<Waiter> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Over(_)) {
            state.phase = Phase::Over(status);
        }
        state.fetched = VecDeque::new();
        state.waiter.take()
    }

    /// Where its reader goes on, with what is at hand there.
    pub(crate) fn begin_read(&self) -> Result<(usize, Fetched), Status> {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Continuing => Ok((state.position, std::mem::take(&mut state.fetched))),
            Phase::Over(status) => Err(status),
            Phase::Creating | Phase::Idle => Err(Status::Busy),
        }
    }

    /// Its reader has come so far, and leaves this.
    pub(crate) fn end_read(&self, position: usize, unused: Fetched) {
        let mut state = self.state.lock();
        state.position = position;
        // What was fetched meanwhile goes first: there is something in it for where the reader stopped.
        if state.phase == Phase::Continuing && state.fetched.is_empty() {
            state.fetched = unused;
        }
    }

    /// Where its reader is.
    pub(crate) fn position(&self) -> usize {
        self.state.lock().position
    }

    /// Documents have been read for its reader, who is to be woken. They replace what is left of earlier ones, which lacks
    /// what was in memory then and has been ejected since.
    pub(crate) fn offer(&self, documents: Fetched) -> Option<Waiter> {
        let mut state = self.state.lock();
        if state.phase == Phase::Continuing && !documents.is_empty() {
            state.fetched = documents;
        }
        state.waiter
    }

    /// On the backfill thread, once it is over: lets go of what takes time to let go of. The last reader of a file that
    /// compaction has removed is who frees it.
    pub(crate) fn let_go(&self) {
        *self.gathering.lock() = None;
        *self.pins.lock() = Pins::default();
    }

    /// Whether it was not in the queue.
    pub(crate) fn enter_queue(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn leave_queue(&self) {
        self.queued.store(false, Ordering::Release);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns what was accounted for before.
    pub(crate) fn set_bytes(&self, bytes: u64) -> u64 {
        self.bytes.swap(bytes, Ordering::Relaxed)
    }

    /// `None` once it is over.
    pub(crate) fn info(&self, now: Now) -> Option<ScanInfo> {
        let (phase, read, fetched) = {
            let state = self.state.lock();
            let fetched: usize = state.fetched.iter().map(|(_, item)| item.bytes()).sum();
            (state.phase, state.position, fetched as u64)
        };
        Some(ScanInfo {
            id: self.id,
            vb: self.vb,
            uuid: self.uuid,
            options: self.options.clone(),
            age_millis: now.mono_millis.saturating_sub(self.created_millis),
            phase: match phase {
                Phase::Creating => "creating",
                Phase::Idle => "idle",
                Phase::Continuing => "continuing",
                Phase::Over(_) => return None,
            },
            items: self.selected.get().map_or(0, |selected| selected.entries.len() as u64),
            read: read as u64,
            from_disk: self.from_disk.load(Ordering::Relaxed),
            bytes: self.bytes() + fetched,
        })
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("id", &self.id)
            .field("vb", &self.vb)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}

/// A scan that is being created from disk.
pub(crate) struct Reading {
    /// What has to be on disk before it is read.
    pub(crate) until: Seqno,
    pub(crate) backfill: Option<Box<dyn Backfill>>,
    pub(crate) keys: Vec<u8>,
    pub(crate) found: Vec<Document>,
}

/// A document of the scan.
#[derive(Clone, Copy)]
pub(crate) struct Document {
    pub(crate) start: usize,
    pub(crate) length: u8,
    pub(crate) entry: Entry,
}

impl Reading {
    /// Of a vBucket that is at this seqno.
    pub(crate) fn new(until: Seqno) -> Self {
        Self { until, backfill: None, keys: Vec::new(), found: Vec::new() }
    }

    pub(crate) fn key(&self, document: &Document) -> &[u8] {
        self.keys.get(document.start..document.start + usize::from(document.length)).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> u64 {
        let backfill = self.backfill.as_ref().map_or(0, |backfill| backfill.memory_bytes());
        (self.keys.capacity() + self.found.capacity() * size_of::<Document>() + backfill) as u64
    }
}
