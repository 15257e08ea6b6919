//! Who holds a bucket's memory: every byte belongs to one pool, and `mem_used` is their sum.
//!
//! A shard has one set of these counters and the bucket another, for what no shard has. They are written where memory
//! changes hands in bulk (a queue that grew, a batch being written, a buffer being filled), never once per operation.
//! What the arenas hold, documents and tables, is counted there and divided among the pools when somebody asks
//! ([`Bucket::pool_bytes`]).
//!
//! Invariants: what was added is subtracted, by [`Held`] where it goes with a scope; the total is the sum of the pools.
//! What all buckets share, as the buffers of the workers, is in the node's account, not here.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bucket::Bucket;

/// Whose bytes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pool {
    /// Documents and tombstones in the tables: keys, values, headers.
    Items,
    /// Hash tables, and the vBuckets themselves.
    Metadata,
    /// Queues of mutations, and versions that nothing but a queue holds.
    Checkpoints,
    /// What feeds have read from disk or gathered, and their lists.
    Replication,
    /// Keys to be read from disk, and the values just read.
    Fetch,
    /// Batches on their way to disk, the indexes that their segments will be sealed with, and compaction.
    Write,
    /// What finds keys that are not in memory.
    ColdIndex,
    /// What range scans have read ahead.
    RangeScans,
    /// Requests that wait.
    Connections,
    /// What a part of the bucket has set aside to be able to go on when memory is short.
    Reserve,
}

/// How many pools there are.
const POOLS: usize = Pool::ALL.len();

impl Pool {
    /// All of them, with the words for statistics.
    pub const ALL: [(Pool, &str); 10] = [
        (Self::Items, "items"),
        (Self::Metadata, "metadata"),
        (Self::Checkpoints, "checkpoints"),
        (Self::Replication, "replication"),
        (Self::Fetch, "fetch"),
        (Self::Write, "write"),
        (Self::ColdIndex, "cold_index"),
        (Self::RangeScans, "range_scans"),
        (Self::Connections, "connections"),
        (Self::Reserve, "reserve"),
    ];
}

/// Bytes by pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolBytes([u64; POOLS]);

impl PoolBytes {
    /// One pool's.
    #[must_use]
    pub fn of(&self, pool: Pool) -> u64 {
        self.0[pool as usize]
    }

    /// All pools'.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, pool: Pool, bytes: u64) {
        self.0[pool as usize] += bytes;
    }
}

/// What a bucket takes of its node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMemory {
    /// `mem_used`: all pools.
    pub used: u64,
    /// What its arenas have beyond that: holes that documents will fill.
    pub holes: u64,
    /// Of what is used, requests that wait to be admitted.
    pub waiting: u64,
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    bytes: [AtomicU64; POOLS],
    /// Their sum, for whoever decides by it.
    total: AtomicU64,
}

impl Pools {
    pub(crate) fn add(&self, pool: Pool, bytes: u64) {
        self.bytes[pool as usize].fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes away what was added before.
    pub(crate) fn sub(&self, pool: Pool, bytes: u64) {
        self.bytes[pool as usize].fetch_sub(bytes, Ordering::Relaxed);
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Of what was `before` there are `now`: for whoever counts its own bytes and tells now and then.
    pub(crate) fn exchange(&self, pool: Pool, before: u64, now: u64) {
        if now > before {
            self.add(pool, now - before);
        } else if before > now {
            self.sub(pool, before - now);
        }
    }

    /// Adds bytes for as long as what is returned lives.
    pub(crate) fn hold(&self, pool: Pool, bytes: u64) -> Held<'_> {
        self.add(pool, bytes);
        Held { pools: self, pool, bytes }
    }

    fn of(&self, pool: Pool) -> u64 {
        self.bytes[pool as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn add_to(&self, sum: &mut PoolBytes) {
        for (pool, _) in Pool::ALL {
            sum.add(pool, self.of(pool));
        }
    }
}

/// Bytes that a pool has until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Held<'p> {
    pools: &'p Pools,
    pool: Pool,
    bytes: u64,
}

impl Held<'_> {
    /// There are so many now.
    pub(crate) fn set(&mut self, bytes: u64) {
        self.pools.exchange(self.pool, self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.pools.sub(self.pool, self.bytes);
    }
}

impl Bucket {
    /// Counts bytes that somebody outside the engine holds for this bucket; give them back with
    /// [`Bucket::release_bytes`].
    pub fn hold_bytes(&self, pool: Pool, bytes: u64) {
        self.pools.add(pool, bytes);
    }

    /// Bytes counted by [`Bucket::hold_bytes`] are held no longer.
    pub fn release_bytes(&self, pool: Pool, bytes: u64) {
        self.pools.sub(pool, bytes);
    }

    /// `mem_used`: every byte that the bucket holds.
    #[inline]
    pub(crate) fn mem_used(&self) -> u64 {
        let shards = self.shards.iter().map(|shard| shard.arena.used_bytes() as u64 + shard.pools.total());
        shards.sum::<u64>() + self.pools.total() + self.range_scans.bytes()
    }

    /// What the bucket takes of its node's memory; unlike [`Bucket::stats`] it costs next to nothing.
    #[must_use]
    pub fn held_memory(&self) -> HeldMemory {
        let arenas = || self.shards.iter().map(|shard| &shard.arena);
        let used: usize = arenas().map(|arena| arena.used_bytes()).sum();
        let committed: usize = arenas().map(|arena| arena.committed_bytes()).sum();
        HeldMemory {
            used: self.mem_used(),
            holes: committed.saturating_sub(used) as u64,
            waiting: self.pools.of(Pool::Connections),
        }
    }

    /// Who holds most beside what is in the arenas, the documents and their tables, and how much.
    pub(crate) fn largest_beside_documents(&self) -> (Pool, u64) {
        let mut sum = PoolBytes::default();
        self.pools.add_to(&mut sum);
        self.shards.iter().for_each(|shard| shard.pools.add_to(&mut sum));
        sum.add(Pool::RangeScans, self.range_scans.bytes());
        let pools = Pool::ALL.map(|(pool, _)| (pool, sum.of(pool)));
        pools.into_iter().max_by_key(|entry| entry.1).unwrap_or((Pool::Items, 0))
    }

    /// All pools. Of what the arenas hold `table_bytes` are tables; `queued_bytes` of documents are in queues, of which
    /// whatever exceeds `item_bytes`, the documents in the tables, is there alone.
    pub(crate) fn pool_bytes(&self, table_bytes: u64, item_bytes: u64, queued_bytes: u64) -> PoolBytes {
        let mut sum = PoolBytes::default();
        self.pools.add_to(&mut sum);
        let mut in_arenas = 0;
        for shard in &self.shards {
            shard.pools.add_to(&mut sum);
            in_arenas += shard.arena.used_bytes() as u64;
        }
        let tables = table_bytes.min(in_arenas);
        let documents = in_arenas - tables;
        // Slots are a little larger than what is in them: with nothing queued that belongs to the documents.
        let queued_only = documents.saturating_sub(item_bytes).min(queued_bytes);
        sum.add(Pool::Metadata, tables);
        sum.add(Pool::Items, documents - queued_only);
        sum.add(Pool::Checkpoints, queued_only);
        sum.add(Pool::RangeScans, self.range_scans.bytes());
        sum
    }
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
