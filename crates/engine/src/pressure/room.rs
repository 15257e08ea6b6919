//! How a quota is divided: bytes at which something begins.

/// Of an arena that reaches so far.
pub(crate) const fn usable(arena_bytes: usize) -> u64 {
    arena_bytes as u64 / 8 * 7
}

/// Bytes of memory, and of what is dirty per shard, at which something begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The pager starts.
    pub(crate) high: u64,
    /// It stops.
    pub(crate) low: u64,
    /// Feeds that are behind are sent to the disk.
    pub(crate) cursors: u64,
    /// Mutations are paced.
    pub(crate) paced: u64,
    /// They are refused.
    pub(crate) limit: u64,
    /// Dirty bytes at which they are paced.
    pub(crate) dirty_paced: u64,
    /// Dirty bytes at which they are refused.
    pub(crate) dirty_limit: u64,
    /// Dirty bytes that copies may be caught up with.
    pub(crate) history: u64,
}

impl Room {
    /// The quota of which so many bytes are all that mutations may take.
    pub(crate) const fn quota_for(limit: u64) -> u64 {
        limit.div_ceil(Self::LIMIT) * 100
    }

    /// Percent of the quota.
    const HIGH: u64 = 85;
    const LOW: u64 = 75;
    const CURSORS: u64 = 87;
    const PACED: u64 = 89;
    /// Couchbase's `mutation_mem_ratio`.
    const LIMIT: u64 = 93;
    const DIRTY: u64 = 40;
    pub(crate) const OVERDRAFT: u64 = 105;

    pub(crate) fn of(quota: u64, shards: usize, is_cache: bool) -> Self {
        let percent = |percent: u64| quota / 100 * percent;
        let dirty_limit = (percent(Self::DIRTY) / shards.max(1) as u64).max(2 * FLUSH_BYTES);
        Self {
            high: percent(Self::HIGH),
            low: percent(Self::LOW),
            cursors: percent(Self::CURSORS),
            paced: if is_cache { quota } else { percent(Self::PACED) },
            limit: if is_cache { quota } else { percent(Self::LIMIT) },
            dirty_paced: dirty_limit / 2,
            dirty_limit,
            // With room for clients below where they are paced.
            history: dirty_limit / 4,
        }
    }
}

/// Dirty bytes of a shard at which the flusher is called without anybody waiting.
pub(crate) const FLUSH_BYTES: u64 = 4 << 20;
