//! Reading one vBucket as of its highest synced seqno, each key once, in steps.
//!
//! 1. The pin: under the writer's lock, the segments of that moment and the synced seqno; nothing is read. A reader
//!    that holds a segment can read it, whatever compaction does to its name.
//! 2. The survey: the runs of the vBucket are walked, head and key of every record. Each one is noted in 24 bytes: a
//!    fingerprint of its key, its seqno, its place.
//! 3. Of each key the newest is kept; the rest is sorted by seqno, or by place.
//! 4. The delivery: those records are read again, through windows over the segments. Their values are read too, or only those that
//!    a rule asks for.
//!
//! Keys are told apart by 95 bits of a hash whose seed is random and this backfill's alone. An index's fingerprint
//! would not do, because it collides every day. Nor would the hash that clients can compute. Damage ends a backfill: of
//! what was lost nobody knows the seqno, so nothing may be delivered that could lie beyond it.

mod delivery;
mod found;
mod survey;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use base::{Seqno, VbId};

use self::{delivery::Delivery, survey::Survey};
use crate::{
    api::{Backfill, BackfillOptions, Locator, Marks, Record, RecordMeta},
    counters::{Counters, count},
    error::StoreError,
    segment::Segment,
    state::Core,
};

/// A vBucket at one moment, kept readable.
struct Pin {
    vb: VbId,
    incarnation: u32,
    /// Only versions above `from` and up to `end` count.
    from: Seqno,
    end: Seqno,
    purge_seqno: Seqno,
    marks: Marks,
    /// Prepares and aborts count too.
    prepares: bool,
    /// Those that turn out to hold nothing of it are let go; the others keep their number.
    segments: Vec<Option<Arc<Segment>>>,
    /// Of the store, by vBucket.
    incarnations: Arc<[AtomicU32]>,
    counters: Arc<Counters>,
}

/// See the module.
pub(crate) struct SegmentBackfill {
    pin: Pin,
    options: BackfillOptions,
    stage: Stage,
}

enum Stage {
    Survey(Survey),
    Delivery(Delivery),
    Done,
    Failed,
}

impl Pin {
    fn new(core: &Core, vb: VbId, from: Seqno, prepares: bool) -> Result<Self, StoreError> {
        // Order matters. The writer stands still, so that every segment with a record up to the synced seqno is in the
        // set. The set is taken before the seqno: what compaction had removed from the set by then gave way to
        // something synced by then.
        let writer = core.writer.lock();
        let segments: Vec<_> = core.segments().values().cloned().map(Some).collect();
        let high = core.synced_highs.of(vb);
        let (incarnation, purge_seqno) = (core.incarnation(vb), writer.purge_seqno(vb));
        drop(writer);
        if core.is_incomplete() {
            return Err(core.counters.corrupt(
                "segments",
                0,
                "a segment is missing: its records are unknown",
            ));
        }
        if high.incarnation != incarnation {
            return Err(StoreError::Reset);
        }
        count(&core.counters.backfills, 1);
        let (incarnations, counters) = (core.incarnations.clone(), core.counters.clone());
        Ok(Self {
            vb,
            incarnation,
            from,
            end: high.seqno,
            purge_seqno,
            marks: high.marks,
            prepares,
            segments,
            incarnations,
            counters,
        })
    }

    fn segment(&self, number: usize) -> Option<&Arc<Segment>> {
        self.segments.get(number)?.as_ref()
    }

    fn release(&mut self, number: usize) {
        if let Some(segment) = self.segments.get_mut(number) {
            *segment = None;
        }
    }

    fn covers(&self, meta: &RecordMeta) -> bool {
        meta.seqno > self.from && meta.seqno <= self.end && (self.prepares || !meta.kind.is_prepared())
    }

    /// Whether the vBucket's contents have been dropped since.
    fn is_reset(&self) -> bool {
        let now = self.incarnations.get(usize::from(self.vb.get()));
        // Pairs with the release in the store's reset.
        now.is_none_or(|incarnation| incarnation.load(Ordering::Acquire) != self.incarnation)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.counters.backfills.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SegmentBackfill {
    pub(crate) fn new(
        core: &Core,
        vb: VbId,
        from: Seqno,
        options: BackfillOptions,
    ) -> Result<Self, StoreError> {
        let pin = Pin::new(core, vb, from, options.prepares)?;
        let stage =
            if pin.from < pin.end { Stage::Survey(Survey::new(core.fs.random())) } else { Stage::Done };
        Ok(Self { pin, options, stage })
    }
}

impl Backfill for SegmentBackfill {
    fn end(&self) -> Seqno {
        self.pin.end
    }

    fn purge_seqno(&self) -> Seqno {
        self.pin.purge_seqno
    }

    fn marks(&self) -> Marks {
        self.pin.marks
    }

    fn memory_bytes(&self) -> usize {
        match &self.stage {
            Stage::Survey(survey) => survey.memory_bytes(),
            Stage::Delivery(delivery) => delivery.memory_bytes(),
            Stage::Done | Stage::Failed => 0,
        }
    }

    fn next_located(
        &mut self,
        bytes_max: usize,
        visit: &mut dyn FnMut(&Record<'_>, Locator),
    ) -> Result<bool, StoreError> {
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        if self.pin.is_reset() {
            return Err(StoreError::Reset);
        }
        self.stage = match stage {
            Stage::Survey(mut survey) => {
                if survey.step(&mut self.pin, bytes_max as u64)? {
                    Stage::Survey(survey)
                } else {
                    let newest = survey.finish(self.options.unordered)?;
                    Stage::Delivery(Delivery::new(&mut self.pin, newest, &self.options))
                }
            }
            Stage::Delivery(mut delivery) => {
                if delivery.step(&mut self.pin, bytes_max as u64, visit)? {
                    Stage::Delivery(delivery)
                } else {
                    self.pin.segments = Vec::new();
                    Stage::Done
                }
            }
            Stage::Done => Stage::Done,
            Stage::Failed => return Err(StoreError::Invalid("a backfill that has failed was asked again")),
        };
        Ok(!matches!(self.stage, Stage::Done))
    }
}
