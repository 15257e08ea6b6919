//! A feed: reads the checkpoint by its cursor, and from disk what the checkpoint does not have (any more).
//!
//! What one call takes from the checkpoint is a snapshot: references to versions that do not change. When the cursor has
//! lost its place, or never had one that would do, a [`Backfill`] is queued for the shard's reading thread. That places the
//! cursor behind what it is going to read, before it reads; so when everything is read the checkpoint goes on from there,
//! or the place has been lost again and the next backfill does.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use base::{DocKey, Now, Seqno, Status, VbId, bucket::BucketKind};

use super::{
    AtCursor, CursorGuard, FeedBatch, FeedEnd, FeedItem, FeedOptions, FeedSnapshot, FeedStep,
    backfill::{Backfill, Taken},
    snapshots,
};
use crate::{Bucket, Waiter, Work, item::ItemRef, item_kind::kind_of};

/// Entries of the checkpoint that are looked at per lock hold.
const CHUNK: usize = 256;

/// See [`crate::feed`]. Dropping it frees everything that was kept for it.
pub struct Feed {
    bucket: Arc<Bucket>,
    vb: VbId,
    cursor: Arc<CursorGuard>,
    options: Arc<FeedOptions>,
    waiter: Waiter,
    /// The consumer has everything up to here.
    seqno: Seqno,
    /// The next snapshot reaches at least this far.
    through: Seqno,
    purge_known: Seqno,
    backfill: Option<Arc<Backfill>>,
    /// Read from the checkpoint already, to be told next.
    ready: VecDeque<FeedBatch>,
    /// The one snapshot that was asked for has been told.
    is_complete: bool,
    end: Option<FeedEnd>,
}

/// What one look at the checkpoint brought.
enum Chunk {
    /// Entries up to this seqno; tombstones up to the other may be missing on disk.
    Read { last: Seqno, purge_seqno: Seqno },
    /// Nothing to see; the waiter is noted.
    Nothing,
    /// It has to be read from disk.
    Missing,
}

impl Bucket {
    /// Opens a feed of a vBucket. Compare [`Bucket::vb_history`] with what the consumer has *after* this: what it tells
    /// cannot become worse for the feed without ending it.
    ///
    /// # Errors
    /// `NotMyVbucket`; `NotSupported` by caches; `Range` when [`FeedOptions::from`] or [`FeedOptions::through`] is beyond
    /// the high seqno; `TemporaryFailure` when the bucket is being closed.
    pub fn feed(self: &Arc<Self>, vb: VbId, options: FeedOptions, waiter: Waiter) -> Result<Feed, Status> {
        if self.options.kind == BucketKind::Memcached {
            return Err(Status::NotSupported);
        }
        let (cursor, purge_known) = CursorGuard::register(self, vb, |v| {
            let is_known = options.from.max(options.through) <= v.high_seqno;
            if is_known { Ok(v.purge_seqno) } else { Err(Status::Range) }
        })?;
        Ok(Feed {
            bucket: Arc::clone(self),
            vb,
            cursor: Arc::new(cursor),
            waiter,
            seqno: options.from,
            through: options.through,
            purge_known,
            backfill: None,
            ready: VecDeque::new(),
            is_complete: false,
            end: None,
            options: Arc::new(options),
        })
    }
}

impl Feed {
    /// The next batch, about `bytes_max` bytes of keys and values but at least one item. `now` tells the bucket that
    /// the consumer is alive.
    ///
    /// # Errors
    /// When the feed is over. It stays so.
    pub fn next(&mut self, bytes_max: usize, now: Now) -> Result<FeedStep, FeedEnd> {
        if let Some(end) = self.end {
            return Err(end);
        }
        let step = self.step(bytes_max, now);
        if let Err(end) = step {
            self.end = Some(end);
            self.let_go();
        }
        step
    }

    #[cfg(test)]
    pub(super) fn cursor(&self) -> &CursorGuard {
        &self.cursor
    }

    fn step(&mut self, bytes_max: usize, now: Now) -> Result<FeedStep, FeedEnd> {
        if let Some(batch) = self.ready.pop_front() {
            return Ok(self.tell(batch));
        }
        if let Some(backfill) = self.backfill.clone()
            && let Some(step) = self.read_backfill(&backfill, bytes_max, now)?
        {
            return Ok(step);
        }
        if let Some(step) = self.read_checkpoint(bytes_max)? {
            return Ok(step);
        }
        if let Some(backfill) = self.begin_backfill()?
            && let Some(step) = self.read_backfill(&backfill, bytes_max, now)?
        {
            return Ok(step);
        }
        Ok(FeedStep::Wait)
    }

    // ---- from memory ----------------------------------------------------------------------------------------------

    /// A snapshot of what the checkpoint has; `None` when it does not go back far enough.
    fn read_checkpoint(&mut self, bytes_max: usize) -> Result<Option<FeedStep>, FeedEnd> {
        let mut items: Vec<FeedItem> = Vec::new();
        let (mut end, mut purged) = (self.seqno, Seqno(0));
        while end == self.seqno || end < self.through {
            let is_first = end == self.seqno;
            match self.cursor.with(&self.bucket, |at| self.read_chunk(at, is_first, bytes_max, &mut items))? {
                Chunk::Read { last, purge_seqno } => (end, purged) = (last, purge_seqno),
                Chunk::Nothing if is_first => return Ok(Some(FeedStep::Wait)),
                Chunk::Nothing => break,
                Chunk::Missing => return Ok(None),
            }
        }
        let snapshot = FeedSnapshot {
            start: self.seqno,
            end,
            from_disk: false,
            unordered: false,
            max_visible: end,
            high_completed: Seqno(0),
            high_prepared: Seqno(0),
            purge_seqno: purged,
        };
        self.ready = match self.options.prepares {
            true => snapshots::split(items, snapshot, self.through),
            false => VecDeque::from([snapshots::whole(items, snapshot)]),
        };
        Ok(self.ready.pop_front().map(|batch| self.tell(batch)))
    }

    fn tell(&mut self, batch: FeedBatch) -> FeedStep {
        self.seqno = batch.snapshot.map_or(self.seqno, |snapshot| snapshot.end);
        FeedStep::Batch(batch)
    }

    /// Reads a bounded part of the checkpoint, under the vBucket's lock.
    fn read_chunk(
        &self,
        at: AtCursor<'_, '_>,
        is_first: bool,
        bytes_max: usize,
        items: &mut Vec<FeedItem>,
    ) -> Chunk {
        let AtCursor { v, shard, id, after } = at;
        let on_disk = if shard.store.is_some() { v.persisted_seqno } else { v.high_seqno };
        if self.is_complete || self.options.disk_only && on_disk <= self.seqno {
            v.checkpoint.await_drop(id, self.waiter);
            return Chunk::Nothing;
        }
        if !v.checkpoint.has_place(id) {
            if !is_first || self.options.disk_only || self.seqno < v.checkpoint.floor(shard, v.high_seqno) {
                return Chunk::Missing;
            }
            after.release_all(v.checkpoint.place(id, shard, self.seqno, false));
        }
        let (options, through) = (&*self.options, self.through);
        let visit = |item: ItemRef<'_>, commits: Seqno| {
            let is_wanted = options.prepares || !kind_of(item).is_prepared();
            if is_wanted && options.filter.passes(DocKey::trusted(item.key())) {
                let mut told = FeedItem::of_version(item, &shard.arena, options.keys_only);
                // In a snapshot whose beginning was told from disk, the prepare need not have been: there a commit is a version
                // like any other.
                if options.prepares && commits != Seqno(0) && item.seqno() > through {
                    told.prepared = commits;
                }
                items.push(told);
            }
        };
        let read = v.checkpoint.read(id, shard, v.high_seqno, (CHUNK, bytes_max as u64), visit);
        let (last, passed) = read.unwrap_or_default();
        after.release_all(passed);
        let Some(last) = last else {
            v.checkpoint.await_entry(id, self.waiter);
            return Chunk::Nothing;
        };
        Chunk::Read { last, purge_seqno: v.purge_seqno }
    }

    // ---- from disk ------------------------------------------------------------------------------------------------

    /// Queues what the checkpoint does not have; `None` while it is not on disk yet.
    fn begin_backfill(&mut self) -> Result<Option<Arc<Backfill>>, FeedEnd> {
        let is_on_disk = self.cursor.with(&self.bucket, |AtCursor { v, shard, id, after }| {
            let is_on_disk = shard.store.is_none() || v.persisted_seqno >= self.through;
            if !is_on_disk && shard.gate.is_poisoned() {
                return Err(FeedEnd::BackfillFailed);
            }
            if !is_on_disk {
                let entry = (self.through, self.waiter);
                if !v.persistence_waiters.contains(&entry) {
                    v.persistence_waiters.push(entry);
                }
                v.checkpoint.await_drop(id, self.waiter);
                after.flush();
            }
            Ok(is_on_disk)
        })??;
        if !is_on_disk {
            return Ok(None);
        }
        let backfill =
            Backfill::new(self.vb, &self.options, &self.cursor, self.waiter, self.seqno, self.purge_known);
        let backfill = Arc::new(backfill);
        self.bucket.queue_backfill(Arc::clone(&backfill));
        self.backfill = Some(Arc::clone(&backfill));
        Ok(Some(backfill))
    }

    /// The next of what is being read; `None` when that was given up.
    fn read_backfill(
        &mut self,
        backfill: &Backfill,
        bytes_max: usize,
        now: Now,
    ) -> Result<Option<FeedStep>, FeedEnd> {
        // First, so that what happens from here on is either seen or told.
        self.cursor.with(&self.bucket, |at| at.v.checkpoint.await_drop(at.id, self.waiter))?;
        let (taken, is_reader_wanted) = backfill.take(bytes_max, now)?;
        if is_reader_wanted {
            self.call_reader();
        }
        match taken {
            Taken::Nothing => {
                self.show_life();
                Ok(Some(FeedStep::Wait))
            }
            Taken::Suspended(end) => {
                // What it missed may be in memory by now; its owner's other feeds wait all the same.
                self.show_life();
                self.through = self.through.max(end.unwrap_or_default());
                self.backfill = None;
                Ok(None)
            }
            Taken::Batch(batch) => {
                if batch.ends_snapshot {
                    self.seqno = backfill.end().unwrap_or(self.seqno);
                    self.is_complete = self.options.disk_only;
                    self.backfill = None;
                } else if let Some(last) = batch.items.last().filter(|_| !self.options.unordered) {
                    self.seqno = last.seqno;
                }
                Ok(Some(FeedStep::Batch(batch)))
            }
        }
    }

    fn call_reader(&self) {
        if let Ok((_, shard)) = self.bucket.slot(self.vb) {
            self.bucket.notifier.work(Work::Backfill(shard.index));
        }
    }

    /// The owner takes what it has asked for (again): what it waits for may begin.
    fn show_life(&self) {
        if let Ok((_, shard)) = self.bucket.slot(self.vb)
            && shard.backfills.lock().readmit(self.waiter.into())
        {
            self.call_reader();
        }
    }

    /// Gives back everything that is kept for the feed, but for the registration.
    fn let_go(&mut self) {
        if let Some(backfill) = self.backfill.take() {
            backfill.abandon();
            self.show_life();
            self.call_reader();
        }
        self.ready = VecDeque::new();
        self.cursor.withdraw(&self.bucket);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("vb", &self.vb)
            .field("seqno", &self.seqno)
            .field("backfills", &self.backfill.is_some())
            .finish_non_exhaustive()
    }
}
