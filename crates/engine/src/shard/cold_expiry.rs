//! Where a shard is in looking for expired documents on disk (`crate::background::cold_expiry`).

use base::VbId;
use storage::Backfill;

use crate::{api::pressure::Pool, pressure::pools::Pools, shard::search::Search};

/// The pass that a shard is in.
#[derive(Default)]
pub(crate) struct ColdExpiry {
    pub(crate) pass: Option<Pass>,
    /// For the vBucket of the next pass.
    pub(crate) search: Search,
    /// Its memory, as the pools know it.
    pub(crate) accounted: u64,
}

pub(crate) struct Pass {
    pub(crate) vb: VbId,
    pub(crate) backfill: Box<dyn Backfill>,
    /// The first expiry of what is not due, or could not be fetched.
    pub(crate) next_expiry: u32,
    /// Since when it waits (monotonic milliseconds).
    pub(crate) waits_since: Option<u64>,
}

impl ColdExpiry {
    /// Tells the pools what the pass takes now.
    pub(crate) fn account(&mut self, pools: &Pools) {
        let now = self.pass.as_ref().map_or(0, |pass| pass.backfill.memory_bytes() as u64);
        pools.exchange(Pool::Fetch, std::mem::replace(&mut self.accounted, now), now);
    }
}
