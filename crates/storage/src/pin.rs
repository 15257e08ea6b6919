//! Reading by locator: from the segments of now, or from those of one moment that somebody keeps.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    api::{Locator, OwnedRecord, Pin},
    counters::{Counters, count},
    error::StoreError,
    format::UNIT,
    locator::Place,
    segment::Segment,
    state::{Core, SegmentSet},
};

/// The segments of one moment. A thread that holds a segment can read it, whatever compaction does to its name.
pub(crate) struct SegmentPin {
    set: Arc<SegmentSet>,
    generation: u64,
    /// Of the store, by vBucket.
    incarnations: Arc<[AtomicU32]>,
    counters: Arc<Counters>,
}

impl SegmentPin {
    pub(crate) fn new(core: &Core) -> Self {
        count(&core.counters.pins, 1);
        let (generation, set) = core.generation_of_segments();
        Self { set, generation, incarnations: core.incarnations.clone(), counters: core.counters.clone() }
    }
}

impl Drop for SegmentPin {
    fn drop(&mut self) {
        self.counters.pins.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pin for SegmentPin {
    fn generation(&self) -> u64 {
        self.generation
    }

    fn get_at(&self, at: Locator) -> Result<OwnedRecord, StoreError> {
        let place = Place::unpack(at);
        read(self.set.get(&place.segment), place, &self.incarnations)
    }
}

/// The record at a place of that segment, if it still counts.
pub(crate) fn read(
    segment: Option<&Arc<Segment>>,
    place: Place,
    incarnations: &[AtomicU32],
) -> Result<OwnedRecord, StoreError> {
    let segment = segment.ok_or(StoreError::Stale)?;
    let (record, current) = segment.record_at(place.offset, u64::from(place.units) * UNIT, |record| {
        let incarnation = incarnations.get(usize::from(record.vb.get()));
        // Pairs with the release in the store's reset.
        let current = incarnation.is_some_and(|now| now.load(Ordering::Acquire) == record.incarnation);
        (segment.own(place.offset, &record), current)
    })?;
    if current { Ok(record) } else { Err(StoreError::Stale) }
}
