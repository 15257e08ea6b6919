//! What holds a bucket's memory: every byte belongs to one pool, and `mem_used` is their sum.
//!
//! A shard has one set of these counters and the bucket another, for what no shard has. They are written where memory
//! changes hands in bulk (a queue that grew, a batch being written, a buffer being filled), never once per operation.
//! What the arenas hold, documents and tables, is counted there and divided among the pools when somebody asks
//! (`Bucket::pool_bytes`).
//!
//! Invariants: what was added is subtracted, by [`PoolCharge`] where it goes with a scope; the total is the sum of the pools.
//! What all buckets share, as the buffers of the workers, is in the node's account, not here.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::pressure::{POOLS, Pool, PoolBytes};

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    bytes: [AtomicU64; POOLS],
    /// The sum of the pools: pager, pacing and admission decide by it.
    total: AtomicU64,
}

impl Pools {
    #[expect(clippy::indexing_slicing, reason = "the array has a place for each pool")]
    pub(crate) fn add(&self, pool: Pool, bytes: u64) {
        self.bytes[pool as usize].fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes away what was added before.
    #[expect(clippy::indexing_slicing, reason = "the array has a place for each pool")]
    pub(crate) fn sub(&self, pool: Pool, bytes: u64) {
        self.bytes[pool as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Replaces the `before` bytes that an owner has told by the `now` bytes that it holds. Owners that count for themselves tell now and then.
    pub(crate) fn exchange(&self, pool: Pool, before: u64, now: u64) {
        if now > before {
            self.add(pool, now - before);
        } else if before > now {
            self.sub(pool, before - now);
        }
    }

    /// Adds bytes for as long as what is returned lives.
    pub(crate) fn hold(&self, pool: Pool, bytes: u64) -> PoolCharge<'_> {
        self.add(pool, bytes);
        PoolCharge { pools: self, pool, bytes }
    }

    #[expect(clippy::indexing_slicing, reason = "the array has a place for each pool")]
    pub(crate) fn of(&self, pool: Pool) -> u64 {
        self.bytes[pool as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub(crate) fn add_to(&self, sum: &mut PoolBytes) {
        for (pool, _) in Pool::ALL {
            sum.add(pool, self.of(pool));
        }
    }
}

/// Bytes that a pool has until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct PoolCharge<'p> {
    pools: &'p Pools,
    pool: Pool,
    bytes: u64,
}

impl PoolCharge<'_> {
    /// There are so many now.
    pub(crate) fn set(&mut self, bytes: u64) {
        self.pools.exchange(self.pool, self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for PoolCharge<'_> {
    fn drop(&mut self) {
        self.pools.sub(self.pool, self.bytes);
    }
}

/// What has been told to the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overheads {
    pub(crate) metadata: u64,
    pub(crate) checkpoint: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_the_sum_of_the_pools() {
        let pools = Pools::default();
        pools.add(Pool::Fetch, 10);
        {
            let mut held = pools.hold(Pool::Write, 100);
            held.set(40);
            assert_eq!(pools.total(), 50);
            held.set(70);
            let mut sum = PoolBytes::default();
            pools.add_to(&mut sum);
            assert_eq!((sum.of(Pool::Fetch), sum.of(Pool::Write), sum.sum()), (10, 70, pools.total()));
        }
        pools.exchange(Pool::Fetch, 10, 3);
        assert_eq!(pools.total(), 3, "what was held is given back");
    }

    #[test]
    fn every_pool_is_listed_at_its_place() {
        for (index, (pool, name)) in Pool::ALL.iter().enumerate() {
            assert_eq!(*pool as usize, index, "{name}");
        }
    }
}
