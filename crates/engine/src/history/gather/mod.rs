//! The state of a vBucket at exactly one seqno, gathered from its table while writers go on.
//!
//! A table cannot be read in one go: that would keep its lock for too long. So a cursor is placed behind the last
//! mutation, S. Then the table is walked, a few documents per lock hold, collecting references to what is no newer than
//! S. A version that was overwritten before the walk came by is missing then, and one that was overwritten later is out
//! of date. But everything newer than S is in the checkpoint, where the cursor keeps it. When the walk is over the last
//! seqno E is noted, and the checkpoint from S to E is applied. Of each key in it the newest version there replaces
//! what was collected. That is the state at E. (Prepares and aborts are no versions and change nothing.)
//!
//! Versions are immutable, so references are enough. A version without its value in memory is collected as such. What
//! is not in the table is not seen: synced tombstones, and anything before warm-up is over.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};

use base::{Seqno, Status, VbId};
use storage::Marks;

use crate::{
    history::{cursor::CursorGuard, told::FeedEnd},
    memory::{
        hash_table::ScanPosition,
        item::{HeldItems, ItemRef},
        item_kind::kind_of,
        key_map::{KeySet, repeated_later},
    },
    vbucket::slot::Home,
};

/// Documents looked at per lock hold.
const CHUNK: usize = 256;

/// What to gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatherOptions {
    /// Only versions newer than this.
    pub(crate) above: Seqno,
    /// Tombstones that are in the table too.
    pub(crate) tombstones: bool,
    /// Also the durable writes that are in progress at the end.
    pub(crate) prepares: bool,
}

/// Where a gathering is; see the module header. Dropping it frees everything.
pub(crate) struct Gather {
    options: GatherOptions,
    cursor: CursorGuard,
    /// S.
    start: Seqno,
    stage: Stage,
    collected: HeldItems,
    /// From the checkpoint, in seqno order.
    late: HeldItems,
    prepares: HeldItems,
    is_done: bool,
    /// The disk or the allocator failed it.
    is_short_of_memory: bool,
    _hold: EvictionHold,
}

/// Keeps documents from leaving a vBucket's table for the disk.
struct EvictionHold {
    home: Weak<dyn Home>,
    vb: VbId,
}

impl Drop for EvictionHold {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade()
            && let Ok((slot, _)) = home.at(self.vb)
        {
            slot.vb.lock().gathers -= 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Walking(ScanPosition),
    /// E is known, and what goes with it: tombstones up to the other seqno may be missing.
    Applying {
        end: Seqno,
        purge_seqno: Seqno,
        marks: Marks,
    },
}

/// How far a step got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatherStep {
    /// Call again.
    More,
    /// Everything is gathered: see [`Gather::finish`].
    Done,
}

/// What was gathered.
pub(crate) struct Gathered {
    /// E.
    pub(crate) end: Seqno,
    /// Tombstones up to here may be missing.
    pub(crate) purge_seqno: Seqno,
    /// Durable writes as of E.
    pub(crate) marks: Marks,
    /// Each key once (and once more if it is prepared), in no particular order.
    pub(crate) items: HeldItems,
}

impl Gather {
    /// Begins to gather a vBucket.
    ///
    /// # Errors
    /// - `NotMyVbucket`
    /// - `TemporaryFailure` while the vBucket is being loaded or closed
    /// - `NotSupported` when some of its documents may be on disk only: the caller has to ask the disk then
    ///   ([`storage::KvStore::backfill`])
    pub(crate) fn begin(home: &Arc<dyn Home>, vb: VbId, options: GatherOptions) -> Result<Self, Status> {
        let (_, shard) = home.at(vb)?;
        let (cursor, ()) = CursorGuard::register(home, vb, false, |v| {
            if v.warming.is_some() {
                return Err(Status::TemporaryFailure);
            }
            // The count is of no use here: a document that is given up in the place of another one lowers it.
            if !v.cold.is_empty() {
                return Err(Status::NotSupported);
            }
            // From here on it stays like that.
            v.gathers += 1;
            Ok(())
        })?;
        let hold = EvictionHold { home: Arc::downgrade(home), vb };
        let start = cursor
            .with(&**home, |at| {
                let start = at.v.high_seqno;
                let passed = at.v.checkpoint.place(at.id, at.shard, start, true);
                at.deferred.release_all(passed);
                start
            })
            .map_err(|_| Status::TemporaryFailure)?;
        Ok(Self {
            options,
            cursor,
            start,
            stage: Stage::Walking(ScanPosition::default()),
            collected: HeldItems::new(&shard.arena),
            late: HeldItems::new(&shard.arena),
            prepares: HeldItems::new(&shard.arena),
            is_done: false,
            is_short_of_memory: false,
            _hold: hold,
        })
    }

    /// One lock hold's worth of work, for documents that are `wanted`, which is asked under the lock, once for each.
    ///
    /// # Errors
    /// `Reset` when the vBucket's contents were dropped, `TooSlow` when there was no memory.
    pub(crate) fn step(
        &mut self,
        home: &(impl Home + ?Sized),
        wanted: &dyn Fn(ItemRef<'_>) -> bool,
    ) -> Result<GatherStep, FeedEnd> {
        let step = match self.stage {
            Stage::Walking(from) => self.walk(home, from, wanted)?,
            Stage::Applying { end, .. } => self.apply(home, end, wanted)?,
        };
        self.is_done = step == GatherStep::Done;
        if self.is_short_of_memory { Err(FeedEnd::TooSlow) } else { Ok(step) }
    }

    fn walk(
        &mut self,
        home: &(impl Home + ?Sized),
        from: ScanPosition,
        wanted: &dyn Fn(ItemRef<'_>) -> bool,
    ) -> Result<GatherStep, FeedEnd> {
        let (options, start) = (self.options, self.start);
        let (collected, short) = (&mut self.collected, &mut self.is_short_of_memory);
        let prepares = &mut self.prepares;
        let (next, over) = self.cursor.with(home, |at| {
            let next = at.v.table.scan(from, CHUNK, &mut |item| {
                let is_asked = item.seqno() > options.above && (options.tombstones || !item.is_deleted());
                if is_asked && item.seqno() <= start && wanted(item) {
                    *short |= !collected.push(item);
                }
            });
            if next.is_none() && options.prepares {
                // In the lock hold that fixes the end: what becomes of them comes behind it.
                let open = at.v.pending.items().map(|item| at.shard.item(item));
                for item in open.filter(|&item| item.seqno() > options.above && wanted(item)) {
                    *short |= !prepares.push(item);
                }
            }
            let (end, purge_seqno, marks) = (at.v.high_seqno, at.v.purge_seqno, at.v.marks);
            (next, Stage::Applying { end, purge_seqno, marks })
        })?;
        self.stage = next.map_or(over, Stage::Walking);
        Ok(GatherStep::More)
    }

    fn apply(
        &mut self,
        home: &(impl Home + ?Sized),
        end: Seqno,
        wanted: &dyn Fn(ItemRef<'_>) -> bool,
    ) -> Result<GatherStep, FeedEnd> {
        let (late, short) = (&mut self.late, &mut self.is_short_of_memory);
        let read = self.cursor.with(home, |at| {
            let mut visit = |item: ItemRef<'_>, _| {
                if !kind_of(item).is_prepared() && wanted(item) {
                    *short |= !late.push(item);
                }
            };
            let (last, passed) =
                at.v.checkpoint.read(at.id, at.shard, end, (CHUNK, u64::MAX), &mut visit).unwrap_or_default();
            at.deferred.release_all(passed);
            last
        })?;
        Ok(if read.is_none_or(|last| last >= end) { GatherStep::Done } else { GatherStep::More })
    }

    /// E, once it is known.
    pub(crate) fn end(&self) -> Option<Seqno> {
        match self.stage {
            Stage::Applying { end, .. } => Some(end),
            Stage::Walking(_) => None,
        }
    }

    /// What was gathered, once a step has said that it is done.
    pub(crate) fn finish(self) -> Option<Gathered> {
        let Stage::Applying { end, purge_seqno, marks } = self.stage else { return None };
        if !self.is_done {
            return None;
        }
        let Self { options, cursor, mut collected, mut late, mut prepares, .. } = self;
        drop(cursor);
        let superseded: Vec<bool> = {
            let mut newer = KeySet::default();
            late.iter().for_each(|item| {
                newer.insert(item.key());
            });
            collected.iter().map(|item| newer.contains(item.key())).collect()
        };
        collected.drop_flagged(&superseded);
        let mut dropped = repeated_later(late.iter().map(ItemRef::key));
        for (dropped, item) in dropped.iter_mut().zip(late.iter()) {
            *dropped |= item.is_deleted() && !options.tombstones || item.seqno() <= options.above;
        }
        late.drop_flagged(&dropped);
        collected.append(&mut late);
        collected.append(&mut prepares);
        Some(Gathered { end, purge_seqno, marks, items: collected })
    }
}
