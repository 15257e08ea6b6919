//! What the thread that reads a shard's backfills has under way, and what waits for it (`crate::feed`).

use std::sync::Arc;

use base::Now;
use parking_lot::Mutex;

use crate::{
    api::pressure::Pool,
    history::{backfill::Backfill, gather::Gather, queue::BackfillQueue},
    memory::item::HeldItems,
    shard::Shard,
};

/// Backfills per shard that read.
const READING_MAX: usize = 4;

/// Backfills per shard that read or have something in their buffer.
const PLACES_MAX: usize = 8;

/// What a shard has to read for feeds.
#[derive(Default)]
pub(crate) struct Readers {
    /// Backfills that nobody reads yet.
    pub(crate) waiting: Mutex<BackfillQueue>,
    pub(crate) backfiller: Mutex<Backfiller>,
}

/// What the reading thread has under way.
#[derive(Default)]
pub(crate) struct Backfiller {
    pub(crate) places: Vec<Place>,
    /// What the pools know of.
    pub(crate) accounted: u64,
}

pub(crate) struct Place {
    pub(crate) job: Arc<Backfill>,
    /// `None` once everything is read.
    pub(crate) source: Option<Source>,
    /// When it began, in monotonic milliseconds.
    pub(crate) since: u64,
}

/// Where a snapshot comes from.
pub(crate) enum Source {
    Disk(Box<dyn storage::Backfill>),
    Gathering(Box<Gather>),
    /// Highest seqno first.
    Table(HeldItems),
}

impl Backfiller {
    pub(crate) fn has_room(&self) -> bool {
        let reading = self.places.iter().filter(|place| place.source.is_some()).count();
        self.places.len() < PLACES_MAX && reading < READING_MAX
    }

    /// Tells the pools what is held.
    pub(crate) fn account(&mut self, shard: &Shard, now: Now) {
        let bytes = self.bytes(now) as u64;
        let before = std::mem::replace(&mut self.accounted, bytes);
        shard.pools.exchange(Pool::Replication, before, bytes);
    }

    /// Bytes in buffers, and held for reading.
    pub(crate) fn bytes(&self, now: Now) -> usize {
        let bytes = |place: &Place| {
            let source = match &place.source {
                Some(Source::Disk(disk)) => disk.memory_bytes(),
                Some(Source::Table(rest)) => rest.len() * size_of::<u32>(),
                Some(Source::Gathering(_)) | None => 0,
            };
            place.job.progress(now).bytes + source
        };
        self.places.iter().map(bytes).sum()
    }
}
