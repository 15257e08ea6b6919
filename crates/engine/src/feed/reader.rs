//! A feed: reads the checkpoint by its cursor, and from disk what the checkpoint does not have (any more).
//!
//! What one call takes from the checkpoint is a snapshot: references to versions that do not change. When the cursor
//! has lost its place, or never had one that would do, a [`Backfill`] is queued for the shard's reading thread. That
//! places the cursor behind what it is going to read, before it reads. So when everything is read the checkpoint goes
//! on from there, or the place has been lost again and the next backfill does.
//!
//! The reading thread changes the cursor's place, and it can be late. So a feed reads the checkpoint only from a place that
//! is right behind the last seqno that it has told. It announces a snapshot only from there.

use std::{collections::VecDeque, fmt, mem, sync::Arc};

use base::{DocKey, Now, Seqno, Status, VbId, bucket::BucketKind};

use super::snapshots;
use crate::{
    api::notify::{Waiter, Work},
    bucket::Bucket,
    history::{
        backfill::{Backfill, Taken},
        cursor::{AtCursor, CursorGuard},
        item::FeedItem,
        told::{FeedBatch, FeedEnd, FeedOptions, FeedSnapshot, FeedStep},
    },
    memory::{item::ItemRef, item_kind::kind_of},
    vbucket::slot::Home,
};

/// Entries of the checkpoint that are looked at per lock hold.
const CHUNK: usize = 256;
/// So many bytes of a copy that follows another node's are told whole, even to a consumer that asks for less. A consumer that stops
/// inside of a snapshot has to begin anew.
const WHOLE_BYTES: usize = 1 << 20;

/// See [`crate::feed`]. Dropping it frees everything that was kept for it.
pub struct Feed {
    bucket: Arc<Bucket>,
    vb: VbId,
    cursor: Arc<CursorGuard>,
    options: Arc<FeedOptions>,
    waiter: Waiter,
    /// The consumer has everything up to here.
    seqno: Seqno,
    /// It has yet to hear what was completed in the snapshot that it stopped in: see [`FeedOptions::inside`].
    resumes: bool,
    /// The next snapshot reaches at least this far.
    through: Seqno,
    /// A snapshot of the copy's was to end there that had begun. It may end further on.
    through_is_open: bool,
    purge_known: Seqno,
    /// The last mutation told that is neither a prepare nor an abort, as far as that is known.
    visible: Seqno,
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
        let home: Arc<dyn Home> = self.clone();
        let followers = options.followers && self.options.kind == BucketKind::Couchbase;
        let (cursor, (purge_known, visible, resumes, through)) =
            CursorGuard::register(&home, vb, followers, |v| {
                let is_known = options.from.max(options.through) <= v.told_to();
                // What was visible before the last such mutation is not remembered.
                let visible = if options.from >= v.marks.visible { v.marks.visible } else { Seqno(0) };
                // Where no durable write has ended there is nothing to be heard.
                let resumes = options.inside && options.prepares && v.marks.completed > Seqno(0);
                // No snapshot ends inside of one that this node was told when it was a replica.
                let told = v.told_whole();
                let through = if options.from < told { options.through.max(told) } else { options.through };
                if is_known { Ok((v.purge_seqno, visible, resumes, through)) } else { Err(Status::Range) }
            })?;
        Ok(Feed {
            bucket: Arc::clone(self),
            vb,
            cursor: Arc::new(cursor),
            waiter,
            seqno: options.from,
            resumes,
            through,
            through_is_open: false,
            purge_known,
            visible,
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
    pub(crate) fn cursor(&self) -> &CursorGuard {
        &self.cursor
    }

    fn step(&mut self, bytes_max: usize, now: Now) -> Result<FeedStep, FeedEnd> {
        if let Some(batch) = self.ready.pop_front() {
            return self.tell(batch);
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
        if self.resumes {
            // What was completed is known of what is on disk as a whole, not of a part of the checkpoint.
            return Ok(None);
        }
        let is_of_follower = self.cursor.is_of_follower();
        if is_of_follower {
            self.aim_at_what_is_whole()?;
        }
        let mut items: Vec<FeedItem> = Vec::new();
        let (mut end, mut purged, mut chunks) = (self.seqno, Seqno(0), 0);
        while end == self.seqno || end < self.through {
            let (is_first, from) = (end == self.seqno, end);
            chunks += 1;
            match self.cursor.with(&*self.bucket, |at| self.read_chunk(at, from, bytes_max, &mut items))? {
                Chunk::Read { last, purge_seqno } => (end, purged) = (last, purge_seqno),
                Chunk::Nothing if is_first || is_of_follower => return Ok(Some(FeedStep::Wait)),
                Chunk::Nothing => break,
                Chunk::Missing => return Ok(None),
            }
            if is_of_follower && is_enough(&items, end, bytes_max) {
                break;
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
        if is_of_follower && end < self.through {
            // Where it is cut it lacks what the rest replaces. It ends where the last item was, and the rest begins there.
            let snapshot = FeedSnapshot { end: self.through, max_visible: self.through, ..snapshot };
            self.seqno = end;
            let part = FeedBatch { ends_snapshot: false, ..snapshots::whole(items, snapshot) };
            return Ok(Some(FeedStep::Batch(part)));
        }
        self.ready = match self.options.prepares {
            true => snapshots::split(items, snapshot, self.through, self.visible),
            false => VecDeque::from([snapshots::whole(items, snapshot)]),
        };
        if chunks > 1 {
            // What was read for the sake of where it ends is told as much at a time as is asked for.
            let ready = mem::take(&mut self.ready);
            self.ready = ready.into_iter().flat_map(|batch| snapshots::in_parts(batch, bytes_max)).collect();
        }
        self.ready.pop_front().map(|batch| self.tell(batch)).transpose()
    }

    /// The next snapshot of a copy that follows another node's goes to where the copy is whole. In between the copy lacks what was replaced
    /// further on in a snapshot, whether that came from disk or from memory.
    fn aim_at_what_is_whole(&mut self) -> Result<(), FeedEnd> {
        let waiter = self.waiter;
        let (told, whole) = self.cursor.with(&*self.bucket, |at| {
            // First, so that what becomes whole from here on is either seen or told.
            at.v.checkpoint.await_drop(at.id, waiter);
            (at.v.told_from_disk(), at.v.told_to())
        })?;
        if self.through <= self.seqno || self.through_is_open && self.through <= whole {
            self.through = self.through.max(whole);
            self.through_is_open = false;
        }
        if self.seqno < told {
            // It was told that from disk since this feed was opened.
            self.through = self.through.max(told);
        }
        Ok(())
    }

    fn tell(&mut self, batch: FeedBatch) -> Result<FeedStep, FeedEnd> {
        self.check_start(&batch)?;
        if let Some(snapshot) = &batch.snapshot {
            self.seqno = snapshot.end;
            self.visible = self.visible.max(snapshot.max_visible);
        }
        Ok(FeedStep::Batch(batch))
    }

    /// A snapshot begins where the last thing told was, or the feed ends: a consumer takes what lies in between for empty.
    fn check_start(&self, batch: &FeedBatch) -> Result<(), FeedEnd> {
        match batch.snapshot {
            Some(snapshot) if snapshot.start != self.seqno => Err(FeedEnd::BackfillFailed),
            _ => Ok(()),
        }
    }

    /// Reads a bounded part of the checkpoint behind the seqno `from`, under the vBucket's lock.
    fn read_chunk(
        &self,
        at: AtCursor<'_, '_>,
        from: Seqno,
        bytes_max: usize,
        items: &mut Vec<FeedItem>,
    ) -> Chunk {
        let AtCursor { v, shard, id, deferred } = at;
        let is_of_follower = self.cursor.is_of_follower();
        let to = if is_of_follower { self.through } else { v.high_seqno };
        if is_of_follower && (self.through_is_open || to <= from || v.told_to() < to) {
            if v.is_catching_up() {
                // Nothing of it is told before all of it is here: it need not be kept until then.
                deferred.release_all(v.checkpoint.withdraw(id).0);
            }
            v.checkpoint.await_drop(id, self.waiter);
            return Chunk::Nothing;
        }
        let on_disk = if shard.store.is_some() { v.persisted_seqno } else { v.high_seqno };
        if self.is_complete || self.options.disk_only && on_disk <= self.seqno {
            v.checkpoint.await_drop(id, self.waiter);
            return Chunk::Nothing;
        }
        if v.checkpoint.place_of(id) != Some(from) {
            // It has none, or one behind what a backfill that was given up was to tell.
            if self.options.disk_only || from < v.checkpoint.floor(shard, v.high_seqno) {
                return Chunk::Missing;
            }
            deferred.release_all(v.checkpoint.place(id, shard, from, false));
        }
        let (options, through) = (&*self.options, self.through);
        let visit = |item: ItemRef<'_>, commits: Seqno| {
            let is_wanted = options.prepares || !kind_of(item).is_prepared();
            if is_wanted && options.filter.passes(DocKey::trusted(item.key())) {
                let mut told = FeedItem::of_version(item, &shard.arena, options.keys_only);
                // A snapshot's beginning may have been told before, or to this node from disk. Then the prepare need not have been
                // told: in such a snapshot a commit is a version like any other.
                if options.prepares && commits != Seqno(0) && item.seqno() > through {
                    told.prepared = commits;
                }
                items.push(told);
            }
        };
        let read = v.checkpoint.read(id, shard, to, (CHUNK, bytes_max as u64), visit);
        let (last, passed) = read.unwrap_or_default();
        deferred.release_all(passed);
        // What a replica was told to be empty at its end has no entry.
        let last = last.or((to > from).then_some(to));
        let Some(last) = last else {
            v.checkpoint.await_entry(id, self.waiter);
            return Chunk::Nothing;
        };
        if v.checkpoint.place_of(id) != Some(last) {
            deferred.release_all(v.checkpoint.place(id, shard, last, false));
        }
        Chunk::Read { last, purge_seqno: v.purge_seqno }
    }

    // ---- from disk ------------------------------------------------------------------------------------------------

    /// Queues what the checkpoint does not have; `None` while it is not on disk yet.
    fn begin_backfill(&mut self) -> Result<Option<Arc<Backfill>>, FeedEnd> {
        let is_on_disk = self.cursor.with(&*self.bucket, |AtCursor { v, shard, id, deferred }| {
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
                deferred.flush();
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
        self.cursor.with(&*self.bucket, |at| at.v.checkpoint.await_drop(at.id, self.waiter))?;
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
                self.through_is_open = self.cursor.is_of_follower();
                self.backfill = None;
                Ok(None)
            }
            Taken::Batch(batch) => {
                self.check_start(&batch)?;
                self.resumes &= batch.snapshot.is_none();
                self.visible = self.visible.max(snapshots::last_visible(&batch.items).unwrap_or_default());
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
            && let Some(readers) = self.bucket.readers.get(shard.index)
            && readers.waiting.lock().readmit(self.waiter.into())
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
        self.cursor.withdraw(&*self.bucket);
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

/// Whether what was read up to `end` of a copy that follows another node's is told as a part. A part ends with an item.
fn is_enough(items: &[FeedItem], end: Seqno, bytes_max: usize) -> bool {
    let ends_with_item = items.last().is_some_and(|last| last.seqno == end);
    ends_with_item && items.iter().map(FeedItem::bytes).sum::<usize>() >= bytes_max.max(WHOLE_BYTES)
}

#[cfg(test)]
mod tests {
    use base::HashedKey;

    use super::*;
    use crate::{BucketOptions, Notifier, Store, history::backfill::Stage};

    struct Deaf;

    impl Notifier for Deaf {
        fn wake(&self, _: Waiter) {}

        fn work(&self, _: Work) {}
    }

    const NOW: Now = Now { wall_nanos: 1 << 60, mono_millis: 0 };

    fn put(bucket: &Bucket, number: u32) {
        let key = format!("\0key{number}").into_bytes();
        let key = HashedKey::new(DocKey::trusted(&key));
        bucket.store(VbId(0), key, &Store::set(&vec![1; 20_000]), NOW).unwrap();
    }

    fn bucket() -> Arc<Bucket> {
        let options = BucketOptions {
            kind: BucketKind::Ephemeral,
            vbuckets: 1,
            shards: 1,
            ..BucketOptions::new("b", 64 << 20)
        };
        let bucket = Bucket::open(options, Vec::new(), Arc::default(), Arc::new(Deaf), NOW).unwrap();
        (0..40).for_each(|number| put(&bucket, number));
        bucket
    }

    /// The moment between a look of the reading thread and what it makes of that: the consumer takes the rest. Nothing would
    /// bring its other feeds back that wait for their turn.
    #[test]
    fn an_owner_that_takes_the_rest_in_time_is_not_passed_over() {
        let bucket = bucket();
        let waiter = |ticket| Waiter { worker: 1, connection: 2, ticket };
        let open = |ticket| bucket.feed(VbId(0), FeedOptions::default(), waiter(ticket)).unwrap();
        let mut feed = open(3);
        assert!(matches!(feed.next(usize::MAX, NOW), Ok(FeedStep::Wait)));
        let job = Arc::clone(feed.backfill.as_ref().unwrap());
        while job.progress(NOW).stage != Stage::Read {
            bucket.run_backfills(0, NOW);
            if job.progress(NOW).stage == Stage::Reading {
                let _ = feed.next(usize::MAX, NOW);
            }
        }
        let mut other = open(4);
        assert!(matches!(other.next(usize::MAX, NOW), Ok(FeedStep::Wait)));
        while feed.backfill.is_some() {
            assert!(matches!(feed.next(usize::MAX, NOW), Ok(FeedStep::Batch(_))));
        }
        bucket.suspend(&bucket.readers[0], &job, 60_000);
        assert!(bucket.readers[0].waiting.lock().is_waited_in(), "the other feed's turn comes");
    }

    /// The moment between two steps of the reading thread: what it has not told is dropped, the place behind it is not.
    #[test]
    fn a_place_behind_what_was_not_told_is_not_read_from() {
        let bucket = bucket();
        let waiter = Waiter { worker: 1, connection: 2, ticket: 3 };
        let mut feed = bucket.feed(VbId(0), FeedOptions::default(), waiter).unwrap();
        assert!(matches!(feed.next(1, NOW), Ok(FeedStep::Wait)));
        while feed.backfill.as_ref().and_then(|backfill| backfill.end()).is_none() {
            bucket.run_backfills(0, NOW);
        }
        bucket.run_backfills(0, NOW);
        let Ok(FeedStep::Batch(first)) = feed.next(1, NOW) else { panic!("the first document") };
        let mut last = first.items.last().unwrap().seqno;
        // What lies behind the place is what a feed would go on with.
        put(&bucket, 100);
        assert_eq!(feed.backfill.as_ref().unwrap().give_up(Stage::Suspended).waiter, None);
        let high = bucket.vb_history(VbId(0)).unwrap().high_seqno;
        while last < high {
            let batch = match feed.next(1, NOW).unwrap() {
                FeedStep::Batch(batch) => batch,
                FeedStep::Wait => {
                    bucket.run_backfills(0, NOW);
                    continue;
                }
            };
            assert!(batch.snapshot.is_none_or(|snapshot| snapshot.start == last), "{batch:?} behind {last}");
            for item in batch.items {
                assert_eq!(item.seqno, last.next(), "every key was written once");
                last = item.seqno;
            }
        }
    }
}
