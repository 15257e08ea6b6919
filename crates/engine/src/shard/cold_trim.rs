//! Where a shard is in making a vBucket's cold keys anew (`crate::background::cold_trim`).

use base::{DocKey, HashedKey, Seqno, VbId};
use storage::Backfill;

use crate::shard::search::Search;

/// The pass that a shard is in.
#[derive(Default)]
pub(crate) struct ColdTrim {
    pub(crate) pass: Option<Pass>,
    /// For the vBucket of the next pass.
    pub(crate) search: Search,
    /// Its memory, as the pools know it.
    pub(crate) accounted: u64,
}

pub(crate) struct Pass {
    pub(crate) vb: VbId,
    pub(crate) begun_at: Seqno,
    pub(crate) stage: Stage,
    pub(crate) keys: Vec<u8>,
    pub(crate) found: Vec<Entry>,
}

pub(crate) enum Stage {
    /// Until everything up to the seqno that it began at is synced.
    Waiting,
    Reading(Box<dyn Backfill>),
    /// So many are settled.
    Settling(usize),
}

#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) start: usize,
    pub(crate) length: u8,
}

impl Pass {
    pub(crate) fn memory_bytes(&self) -> u64 {
        let backfill = if let Stage::Reading(backfill) = &self.stage { backfill.memory_bytes() } else { 0 };
        (backfill + self.keys.capacity() + self.found.capacity() * size_of::<Entry>()) as u64
    }

    pub(crate) fn key(&self, entry: Entry) -> HashedKey<'_> {
        let key = self.keys.get(entry.start..entry.start + usize::from(entry.length)).unwrap_or_default();
        HashedKey { key: DocKey::trusted(key), hash: entry.hash }
    }
}
