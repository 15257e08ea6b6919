//! The reading side of backfills: one thread per shard, a few snapshots at once, the rest in a queue.
//!
//! A backfill occupies a place from its start until its buffer is empty. So the bytes in buffers are bounded, however
//! many feeds exist. While a backfill reads, it keeps segments (or superseded versions) from being freed. So a consumer
//! that leaves its buffer alone loses its place after a while, and soon when others wait for one. What it has not got
//! is read again once it is back. Until then nothing else is begun for it either ([`crate::history::queue`]). An
//! unordered snapshot cannot be taken up in the middle: its feed ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{DocKey, Now, Seqno};
use storage::{BackfillOptions, KvStore, Marks, Record, StoreError};

use crate::{
    api::{notify::Work, stats::StepReport},
    bucket::Bucket,
    history::{
        backfill::{Backfill, GivenUp, ReadAhead, Stage},
        cursor::AtCursor,
        gather::{Gather, GatherOptions, GatherStep},
        item::{FeedItem, tells_by_value},
        places::{Backfiller, Place, Readers, Source},
        told::{FeedEnd, FeedOptions, FeedSnapshot},
    },
    memory::item::{HeldItems, ItemRef},
    shard::Shard,
    vbucket::{collections::CollectionTable, system_events::is_system_key},
};

/// A consumer that lets its buffer lie for so long loses its place.
const IDLE_MILLIS_MAX: u64 = 60_000;
/// The same while others wait for one, or the disk is short of the space that it keeps from being freed.
const IDLE_MILLIS_CONTENDED: u64 = 2_000;
/// A backfill that has been reading for so long, and waits for its consumer, makes way then.
const TURN_MILLIS: u64 = 10_000;
/// Nothing is kept from being freed for longer than this.
const READING_MILLIS_MAX: u64 = 30 * 60_000;
/// Lock holds per step of gathering from a table.
const GATHER_STEPS: usize = 16;

/// What one read brought.
struct Read {
    items: Vec<FeedItem>,
    is_last: bool,
}

impl Bucket {
    /// Reads what feeds and range scans of a shard need from disk (memory-only: from the tables). Blocks on the disk, so
    /// it wants a thread of its own. That thread calls it when [`Work::Backfill`] asks for it, and every now and then. It
    /// calls it again at once while the report says that more is to do.
    pub fn run_backfills(&self, shard: usize, now: Now) -> StepReport {
        let mut report = StepReport::default();
        let (Some(shard), Some(readers)) = (self.shards.get(shard), self.readers.get(shard)) else {
            return report;
        };
        report.more =
            self.run_scans(shard.index, now) | self.expire_cold(shard, now) | self.trim_cold(shard, now);
        let Some(mut backfiller) = readers.backfiller.try_lock() else { return report };
        let errors_before = shard.counters.backfill_errors.load(Ordering::Relaxed);
        self.make_way(shard, readers, &mut backfiller, now);
        while self.begin_next(shard, readers, &mut backfiller, now) {}
        // The pools are told of it in the end.
        let mut brought = 0;
        for place in &mut backfiller.places {
            let Some(source) = &mut place.source else { continue };
            let ahead = ReadAhead::of(self.is_short_of_memory(brought));
            if place.job.progress(now).bytes > ahead.refill_bytes {
                continue;
            }
            let read = self.read(shard, &place.job, source, ahead.read_bytes);
            let waiter = match read {
                Ok(Read { items, is_last }) => {
                    report.items += items.len();
                    brought += items.iter().map(FeedItem::bytes).sum::<usize>();
                    report.more = true;
                    if is_last {
                        place.source = None;
                    }
                    place.job.offer(items, is_last, now)
                }
                Err(end) => {
                    place.source = None;
                    place.job.give_up(Stage::Failed(end)).waiter
                }
            };
            waiter.into_iter().for_each(|waiter| self.notifier.wake(waiter));
        }
        backfiller.account(shard, now);
        report.failures = (shard.counters.backfill_errors.load(Ordering::Relaxed) - errors_before) as usize;
        report
    }

    /// Ends what has no consumer, or none that keeps up.
    fn make_way(&self, shard: &Shard, readers: &Readers, backfiller: &mut Backfiller, now: Now) {
        let is_contended = {
            let mut waiting = readers.waiting.lock();
            waiting.retain(|job| !job.is_abandoned());
            waiting.is_waited_in()
        };
        let is_pressed = is_contended && !backfiller.has_room() || shard.gate.is_short_of_space();
        let gone: Vec<Place> = backfiller
            .places
            .extract_if(.., |place| {
                let job = &place.job;
                let progress = job.progress(now);
                if job.is_abandoned() || progress.stage != Stage::Reading && progress.bytes == 0 {
                    return true;
                }
                let age =
                    if place.source.is_some() { now.mono_millis.saturating_sub(place.since) } else { 0 };
                let idle = progress.idle_millis;
                let ordered = job.is_ordered();
                let is_late = idle >= IDLE_MILLIS_MAX || age >= READING_MILLIS_MAX;
                let makes_way = is_pressed && ordered && idle > 0;
                if !is_late && !(makes_way && (idle >= IDLE_MILLIS_CONTENDED || age >= TURN_MILLIS)) {
                    return false;
                }
                self.suspend(readers, job, idle);
                true
            })
            .collect();
        drop(gone);
    }

    /// Gives up a backfill whose owner has left something alone for so long.
    pub(super) fn suspend(&self, readers: &Readers, job: &Backfill, idle_millis: u64) {
        let is_idle = idle_millis >= IDLE_MILLIS_CONTENDED;
        if is_idle {
            readers.waiting.lock().pass_over(job.waiter.into());
        }
        let stage = if job.is_ordered() { Stage::Suspended } else { Stage::Failed(FeedEnd::TooSlow) };
        // The place first: it is behind what has not been told, and no use to a feed that goes on by itself.
        job.cursor.withdraw(self);
        let GivenUp { waiter, had_rest } = job.give_up(stage);
        if is_idle && !had_rest {
            // Its owner has taken the rest meanwhile, and need not ask for anything in which it would show life.
            readers.waiting.lock().readmit(job.waiter.into());
        }
        waiter.into_iter().for_each(|waiter| self.notifier.wake(waiter));
    }

    /// Begins the next backfill if there is one and a place for it; whether it did.
    fn begin_next(&self, shard: &Shard, readers: &Readers, backfiller: &mut Backfiller, now: Now) -> bool {
        if !backfiller.has_room() {
            return false;
        }
        let Some(job) = readers.waiting.lock().take_next() else { return false };
        if job.is_abandoned() {
            return true;
        }
        let begun = match &shard.store {
            Some(store) => self.begin_disk(&**store, shard, &job),
            None => self.begin_table(&job),
        };
        match begun {
            Ok(source) => {
                backfiller.places.push(Place { job, source: Some(source), since: now.mono_millis });
            }
            Err(end) => {
                let GivenUp { waiter, .. } = job.give_up(Stage::Failed(end));
                waiter.into_iter().for_each(|waiter| self.notifier.wake(waiter));
            }
        }
        true
    }

    fn begin_disk(&self, store: &dyn KvStore, shard: &Shard, job: &Backfill) -> Result<Source, FeedEnd> {
        // The cursor first: from here on nothing that is not synced yet leaves the checkpoint unread.
        let persisted = job.cursor.with(self, |at| at.v.persisted_seqno)?;
        self.place(job, persisted)?;
        let options = BackfillOptions {
            unordered: job.options.unordered,
            keys_only: job.options.keys_only,
            values_of: Some(tells_by_value),
            prepares: job.options.prepares,
        };
        let source = store.backfill(job.vb, job.from, options).map_err(|error| failed(shard, &error))?;
        if source.end() < persisted {
            // The contents are being dropped: the disk knows already.
            return Err(FeedEnd::Reset);
        }
        self.announce(job, source.end(), source.purge_seqno(), source.marks().or_all_visible(source.end()))?;
        Ok(Source::Disk(source))
    }

    fn begin_table(&self, job: &Backfill) -> Result<Source, FeedEnd> {
        let options = GatherOptions { above: job.from, tombstones: true, prepares: job.options.prepares };
        let home = job.cursor.home().ok_or(FeedEnd::Reset)?;
        let gather = Gather::begin(&home, job.vb, options).map_err(|_| FeedEnd::Reset)?;
        Ok(Source::Gathering(Box::new(gather)))
    }

    /// Puts the feed's cursor behind what a backfill reads.
    fn place(&self, job: &Backfill, end: Seqno) -> Result<(), FeedEnd> {
        job.cursor.with(self, |AtCursor { v, shard, id, deferred }| {
            if !job.options.disk_only {
                let passed = v.checkpoint.place(id, shard, end, false);
                deferred.release_all(passed);
            }
        })
    }

    /// What a backfill reads is fixed: its snapshot can be told.
    fn announce(&self, job: &Backfill, end: Seqno, purge_seqno: Seqno, marks: Marks) -> Result<(), FeedEnd> {
        let is_of_follower = job.cursor.is_of_follower();
        let (known_purged, whole_at) = job.cursor.with(self, |AtCursor { v, shard, id, deferred }| {
            // The place may be lost already.
            if v.checkpoint.place_of(id).is_some() {
                let passed = v.checkpoint.place(id, shard, end, false);
                deferred.release_all(passed);
            }
            (v.purge_seqno, if is_of_follower { v.whole_behind(end) } else { end })
        })?;
        let purge_seqno = purge_seqno.max(known_purged);
        if job.from > Seqno(0) && purge_seqno > job.from && purge_seqno > job.purge_known {
            // Deletions that the consumer has not heard of are forgotten.
            return Err(FeedEnd::TooSlow);
        }
        let snapshot = FeedSnapshot {
            start: job.from,
            end: whole_at,
            from_disk: true,
            unordered: job.options.unordered,
            max_visible: marks.visible,
            high_completed: marks.completed,
            high_prepared: marks.prepared,
            purge_seqno,
        };
        job.begin(snapshot, whole_at > end);
        Ok(())
    }

    /// Reads on, about so many bytes.
    fn read(
        &self,
        shard: &Shard,
        job: &Backfill,
        source: &mut Source,
        read_bytes: usize,
    ) -> Result<Read, FeedEnd> {
        let mut items = Vec::new();
        let collections = self.collections.load_full();
        let is_last = match source {
            Source::Disk(disk) => {
                let mut visit = |record: &Record<'_>| {
                    if is_wanted(&job.options, &collections, record.key) {
                        items.push(FeedItem::of_record(record, job.options.keys_only));
                    }
                };
                !disk.next(read_bytes, &mut visit).map_err(|error| failed(shard, &error))?
            }
            Source::Gathering(gather) => {
                let wanted = |item: ItemRef<'_>| is_wanted(&job.options, &collections, item.key());
                let mut step = GatherStep::More;
                for _ in 0..GATHER_STEPS {
                    step = gather.step(self, &wanted)?;
                    if step != GatherStep::More {
                        break;
                    }
                }
                if step == GatherStep::Done {
                    self.settle(shard, job, source)?;
                }
                false
            }
            Source::Table(rest) => {
                let mut bytes = 0;
                while bytes < read_bytes
                    && let Some(held) = rest.pop()
                {
                    let item = FeedItem::of_held(held, &shard.arena, job.options.keys_only);
                    bytes += item.bytes();
                    if is_wanted(&job.options, &collections, item.key().encoded()) {
                        items.push(item);
                    }
                }
                rest.len() == 0
            }
        };
        Ok(Read { items, is_last })
    }

    /// A table has been gathered: what follows is in memory.
    fn settle(&self, shard: &Shard, job: &Backfill, source: &mut Source) -> Result<(), FeedEnd> {
        let Source::Gathering(gather) = source else { return Ok(()) };
        // While the gathering's own cursor still keeps what is behind its end.
        self.place(job, gather.end().unwrap_or(job.from))?;
        let empty = Source::Table(HeldItems::new(&shard.arena));
        let Source::Gathering(gather) = std::mem::replace(source, empty) else { return Ok(()) };
        let mut gathered = gather.finish().ok_or(FeedEnd::BackfillFailed)?;
        gathered.items.sort_newest_first();
        self.announce(job, gathered.end, gathered.purge_seqno, gathered.marks)?;
        *source = Source::Table(gathered.items);
        Ok(())
    }

    /// Has a backfill read.
    pub(super) fn queue_backfill(&self, job: Arc<Backfill>) {
        let Ok((_, shard)) = self.slot(job.vb) else { return };
        let Some(readers) = self.readers.get(shard.index) else { return };
        readers.waiting.lock().push(job.waiter.into(), job);
        self.notifier.work(Work::Backfill(shard.index));
    }
}

fn is_wanted(options: &FeedOptions, collections: &CollectionTable, key: &[u8]) -> bool {
    let doc_key = DocKey::trusted(key);
    // Of dropped collections the event tells that says so.
    is_system_key(key) || options.filter.passes(doc_key) && !collections.is_dropped(doc_key.collection())
}

fn failed(shard: &Shard, error: &StoreError) -> FeedEnd {
    if matches!(error, StoreError::Reset) {
        return FeedEnd::Reset;
    }
    shard.counters.backfill_errors.fetch_add(1, Ordering::Relaxed);
    FeedEnd::BackfillFailed
}
