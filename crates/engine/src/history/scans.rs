//! A bucket's range scans, and what each of them shows (`crate::client::range_scan`).

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{CollectionId, Seqno, Status, VbId, VbUuid};
use parking_lot::Mutex;

use crate::{api::notify::Waiter, history::scan::Scan};

/// Names a scan. Chosen by the caller, at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanId(pub u128);

/// What a scan shows.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// The collection.
    pub collection: CollectionId,
    /// Which of its documents.
    pub selection: ScanSelection,
    /// Keys without documents.
    pub keys_only: bool,
    /// The reader wants extended attributes; noted here for it, documents always have theirs.
    pub include_xattrs: bool,
    /// The branch of history that the vBucket must be on.
    pub uuid: Option<VbUuid>,
    /// A mutation that must not have been superseded; it must be known to be synced.
    pub must_exist: Option<Seqno>,
    /// For people.
    pub name: Option<Box<str>>,
}

/// Which documents of a collection.
#[derive(Clone, Debug)]
pub enum ScanSelection {
    /// Those with logical keys between these.
    Range(Bound<Box<[u8]>>, Bound<Box<[u8]>>),
    /// Each with the probability that makes it about `samples` of all of them.
    Sample {
        /// How many.
        samples: u64,
        /// The same seed chooses the same documents.
        seed: u64,
    },
}

/// A scan as statistics show it.
#[derive(Clone, Debug)]
pub struct ScanInfo {
    /// Its name.
    pub id: ScanId,
    /// Where it is.
    pub vb: VbId,
    /// The branch of history it shows.
    pub uuid: VbUuid,
    /// What it was asked for.
    pub options: ScanOptions,
    /// Milliseconds since it was created.
    pub age_millis: u64,
    /// `creating`, `idle` or `continuing`.
    pub phase: &'static str,
    /// Keys or documents in all; zero while it is being created.
    pub items: u64,
    /// Of those, how many were read.
    pub read: u64,
    /// Values read from disk for it.
    pub from_disk: u64,
    /// Memory it holds.
    pub bytes: u64,
}

/// A bucket's scans, and which of them the backfill threads have work for.
#[derive(Debug, Default)]
pub(crate) struct Scans {
    pub(crate) by_id: Mutex<HashMap<ScanId, Arc<Scan>>>,
    /// By shard.
    pub(crate) queues: Box<[Mutex<VecDeque<Arc<Scan>>>]>,
    /// Held by all of them.
    pub(crate) bytes: AtomicU64,
    /// When they were last looked through, in monotonic milliseconds.
    pub(crate) swept: AtomicU64,
}

impl Scans {
    pub(crate) fn new(shards: usize) -> Self {
        Self { queues: (0..shards).map(|_| Mutex::default()).collect(), ..Self::default() }
    }

    /// Memory that scans hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn find(&self, vb: VbId, id: ScanId) -> Result<Arc<Scan>, Status> {
        let found = self.by_id.lock().get(&id).cloned();
        found.filter(|scan| scan.vb == vb).ok_or(Status::KeyNotFound)
    }

    /// Takes a scan away; the request that works on it is told why. Returns its waiter.
    pub(crate) fn end(&self, scan: &Scan, status: Status) -> Option<Waiter> {
        let waiter = scan.end(status);
        let removed = self.by_id.lock().remove(&scan.id);
        if let Some(removed) = removed {
            self.bytes.fetch_sub(removed.bytes(), Ordering::Relaxed);
            // Not in a hurry: the thread looks into its queue every now and then.
            self.enqueue(&removed);
        }
        waiter
    }

    /// Has the backfill thread of its shard look at a scan; whether it had not to already.
    pub(crate) fn enqueue(&self, scan: &Arc<Scan>) -> bool {
        let Some(queue) = self.queues.get(scan.shard) else { return false };
        let is_new = scan.enter_queue();
        if is_new {
            queue.lock().push_back(Arc::clone(scan));
        }
        is_new
    }

    /// Takes over what a scan holds from now on; false when that is too much for all of them together.
    pub(crate) fn account(&self, scan: &Scan, bytes: u64, bytes_max: u64) -> bool {
        // Under the registry's lock: a scan that has been removed accounts for nothing.
        let by_id = self.by_id.lock();
        if !by_id.contains_key(&scan.id) {
            return true;
        }
        let before = scan.set_bytes(bytes);
        let others = self.bytes.fetch_sub(before, Ordering::Relaxed) - before;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes <= before || others + bytes <= bytes_max
    }
}

/// A request that works on a scan. Dropped without being released, the request is gone (its connection was closed): so is
/// the scan then.
#[derive(Debug)]
pub struct ScanHold {
    scan: Arc<Scan>,
    scans: Arc<Scans>,
    is_released: AtomicBool,
}

impl ScanHold {
    pub(crate) fn new(scan: Arc<Scan>, scans: Arc<Scans>) -> Self {
        Self { scan, scans, is_released: AtomicBool::new(false) }
    }

    pub(crate) fn scan(&self) -> &Arc<Scan> {
        &self.scan
    }

    /// The request is done with the scan, which stays.
    pub(crate) fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }

    /// The scan's name.
    #[must_use]
    pub fn id(&self) -> ScanId {
        self.scan.id
    }

    /// The collection it shows.
    #[must_use]
    pub fn collection(&self) -> CollectionId {
        self.scan.options.collection
    }

    /// Whether its reader wants extended attributes.
    #[must_use]
    pub fn includes_xattrs(&self) -> bool {
        self.scan.options.include_xattrs
    }

    /// Whether it shows keys alone.
    #[must_use]
    pub fn is_keys_only(&self) -> bool {
        self.scan.options.keys_only
    }

    /// The request has read enough; the scan waits for the next.
    pub fn lay_down(&self) {
        self.release();
        self.scan.lay_down();
    }
}

impl Drop for ScanHold {
    fn drop(&mut self) {
        if !*self.is_released.get_mut() {
            // The request that would be woken is the one that goes away.
            let _ = self.scans.end(&self.scan, Status::RangeScanCancelled);
        }
    }
}
