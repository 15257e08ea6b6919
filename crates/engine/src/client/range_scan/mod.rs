//! Range scans: the documents of one collection in one vBucket, in key order, exactly as they were when the scan was
//! created.
//!
//! A scan's life:
//! 1. *Created*, on the backfill thread (`creation`): it gathers its vBucket's table (`gather`), and sorts and copies
//!    the keys that match. Of a document on disk it notes seqno and locator, and pins the record, so that compaction
//!    may go on. Of a document that is not on disk it holds the version. Nothing else is kept in memory.
//! 2. *Continued*, any number of times: a worker reads on from where it was (`reading`). A value comes from the table if
//!    the version there still is the one that was noted, else from the pin. The backfill thread reads pinned values
//!    ahead, and the request waits.
//! 3. *Over*: at its end; cancelled; because its collection, history or bucket is gone; or because a request that was
//!    working on it went away. After [`LIFETIME_MILLIS`] it is over whatever it does.
//!
//! Scans are bounded in number ([`SCANS_MAX`] a bucket) and memory (a share of the quota). Memory-only buckets have none:
//! they have no disk to leave the documents on.

mod creation;
mod from_disk;
mod reading;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{CollectionId, Now, Status, VbId, VbRole};

use crate::{
    api::notify::{Wait, Waiter, Work},
    bucket::Bucket,
    history::scan::{Phase, Scan},
    vbucket::slot::Home,
};

pub use crate::history::scans::{ScanHold, ScanId, ScanInfo, ScanOptions, ScanSelection};
pub use reading::{ScanLimits, ScanStep};

/// A scan that is not at its end by then is cancelled.
pub const LIFETIME_MILLIS: u64 = 180_000;
/// Scans of a bucket at once.
pub const SCANS_MAX: usize = 1000;
/// Percent of the quota that scans may hold, and what they may hold in any case.
const SHARE_PERCENT: u64 = 10;
const SHARE_MIN_BYTES: u64 = 32 << 20;
/// How often scans that are too old, or whose vBucket is not what it was, are looked for.
const SWEEP_MILLIS: u64 = 1000;

impl Bucket {
    /// Begins to create a scan. The waiter is woken when [`Bucket::scan_created`] has news.
    ///
    /// # Errors
    /// `NotMyVbucket`; `NotSupported` by memory-only buckets; `UnknownCollection`; `VbUuidNotEqual`; `Busy` when there are
    /// too many scans; `TemporaryFailure` while the vBucket is being loaded.
    pub fn create_scan(
        self: &Arc<Self>,
        vb: VbId,
        id: ScanId,
        options: ScanOptions,
        waiter: Waiter,
        now: Now,
    ) -> Result<ScanHold, Status> {
        let (slot, shard) = self.slot(vb)?;
        if shard.store.is_none() {
            return Err(Status::NotSupported);
        }
        if self.collections.load().cap(options.collection).is_none() {
            return Err(Status::UnknownCollection);
        }
        let (uuid, incarnation) = {
            let v = slot.vb.lock();
            if v.role != VbRole::Active {
                return Err(Status::NotMyVbucket);
            }
            (v.failover.uuid(), v.incarnation)
        };
        if options.uuid.is_some_and(|wanted| wanted != uuid) {
            return Err(Status::VbUuidNotEqual);
        }
        if self.range_scans.bytes() > self.scan_bytes_max() {
            return Err(Status::Busy);
        }
        let scan = Arc::new(Scan::new(id, vb, shard.index, (uuid, incarnation), options, waiter, now));
        scan.begin(&(self.clone() as Arc<dyn Home>))?;
        {
            let mut by_id = self.range_scans.by_id.lock();
            if by_id.len() >= SCANS_MAX || by_id.contains_key(&id) {
                return Err(Status::Busy);
            }
            by_id.insert(id, Arc::clone(&scan));
        }
        self.queue_scan(&scan);
        Ok(ScanHold::new(scan, Arc::clone(&self.range_scans)))
    }

    /// Whether a scan has been created. While it has not, ask again when woken, and every now and then.
    ///
    /// # Errors
    /// - `KeyNotFound` when nothing matches
    /// - `NotStored` when the mutation that must exist does not
    /// - `Busy` when scans hold too much memory
    /// - `NotMyVbucket` and `UnknownCollection` when what it was to show is gone
    pub fn scan_created(&self, hold: &ScanHold) -> Result<Wait, Status> {
        match hold.scan().phase() {
            Phase::Creating => {
                self.queue_scan(hold.scan());
                Ok(Wait::Parked)
            }
            Phase::Idle | Phase::Continuing => {
                hold.release();
                Ok(Wait::Ready)
            }
            Phase::Over(status) => Err(status),
        }
    }

    /// The collection that a scan shows.
    ///
    /// # Errors
    /// `KeyNotFound`.
    pub fn scan_collection(&self, vb: VbId, id: ScanId) -> Result<CollectionId, Status> {
        self.slot(vb)?;
        Ok(self.range_scans.find(vb, id)?.options.collection)
    }

    /// Takes a scan up again, for [`Bucket::read_scan`].
    ///
    /// # Errors
    /// `KeyNotFound` when there is none; `Busy` when somebody else is reading it; `UnknownCollection` and `NotMyVbucket`
    /// when what it shows is gone, and it with it.
    pub fn continue_scan(&self, vb: VbId, id: ScanId, waiter: Waiter) -> Result<ScanHold, Status> {
        self.slot(vb)?;
        let scan = self.range_scans.find(vb, id)?;
        self.check_scan(&scan)?;
        scan.take_up(waiter)?;
        Ok(ScanHold::new(scan, Arc::clone(&self.range_scans)))
    }

    /// Ends a scan.
    ///
    /// # Errors
    /// `KeyNotFound`.
    pub fn cancel_scan(&self, vb: VbId, id: ScanId) -> Result<(), Status> {
        self.slot(vb)?;
        let scan = self.range_scans.find(vb, id)?;
        self.end_scan(&scan, Status::RangeScanCancelled);
        Ok(())
    }

    /// All scans, or those of a vBucket.
    #[must_use]
    pub fn scans(&self, vb: Option<VbId>, now: Now) -> Vec<ScanInfo> {
        let scans: Vec<Arc<Scan>> = self.range_scans.by_id.lock().values().cloned().collect();
        let wanted = scans.iter().filter(|scan| vb.is_none_or(|vb| vb == scan.vb));
        wanted.filter_map(|scan| scan.info(now)).collect()
    }

    /// One step for a scan of the shard that has work for its thread; whether there is more. Ends what is too old.
    pub(crate) fn run_scans(&self, shard: usize, now: Now) -> bool {
        self.sweep_scans(now);
        let Some(queue) = self.range_scans.queues.get(shard) else { return false };
        let Some(scan) = queue.lock().pop_front() else { return false };
        scan.leave_queue();
        let again = match scan.phase() {
            Phase::Creating => self.create_step(&scan, now),
            Phase::Continuing => {
                self.fetch_step(&scan);
                false
            }
            Phase::Idle => false,
            Phase::Over(_) => {
                scan.let_go();
                false
            }
        };
        if again {
            self.range_scans.enqueue(&scan);
        }
        !queue.lock().is_empty()
    }

    fn sweep_scans(&self, now: Now) {
        let last = self.range_scans.swept.load(Ordering::Relaxed);
        if now.mono_millis < last + SWEEP_MILLIS {
            return;
        }
        self.range_scans.swept.store(now.mono_millis, Ordering::Relaxed);
        let scans: Vec<Arc<Scan>> = self.range_scans.by_id.lock().values().cloned().collect();
        for scan in scans {
            if now.mono_millis.saturating_sub(scan.created_millis) >= LIFETIME_MILLIS {
                self.end_scan(&scan, Status::RangeScanCancelled);
            } else {
                // An error ends it.
                let _ = self.check_scan(&scan);
            }
        }
    }

    /// Whether what a scan shows is still there; it ends if not.
    fn check_scan(&self, scan: &Scan) -> Result<(), Status> {
        let found = match self.slot(scan.vb) {
            _ if self.collections.load().cap(scan.options.collection).is_none() => {
                Err(Status::UnknownCollection)
            }
            Ok((slot, _)) => {
                let v = slot.vb.lock();
                let is_same = (v.failover.uuid(), v.incarnation) == (scan.uuid, scan.incarnation);
                if is_same { Ok(()) } else { Err(Status::NotMyVbucket) }
            }
            Err(status) => Err(status),
        };
        found.inspect_err(|&status| self.end_scan(scan, status))
    }

    fn end_scan(&self, scan: &Scan, status: Status) {
        if let Some(waiter) = self.range_scans.end(scan, status) {
            self.notifier.wake(waiter);
        }
    }

    /// Has the backfill thread look at a scan now.
    fn queue_scan(&self, scan: &Arc<Scan>) {
        if self.range_scans.enqueue(scan) {
            self.notifier.work(Work::Backfill(scan.shard));
        }
    }

    /// What scans may hold together.
    fn scan_bytes_max(&self) -> u64 {
        (self.settings.quota_bytes() / 100 * SHARE_PERCENT).max(SHARE_MIN_BYTES)
    }
}
