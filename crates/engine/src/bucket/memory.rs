//! What a bucket holds of memory, gathered from its own account and its shards'.

use crate::{
    api::pressure::{HeldMemory, Pool, PoolBytes},
    bucket::Bucket,
};

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

    /// The pool that holds most beside what is in the arenas (the documents and their tables), and how much.
    pub(crate) fn largest_beside_documents(&self) -> (Pool, u64) {
        let mut sum = PoolBytes::default();
        self.pools.add_to(&mut sum);
        self.shards.iter().for_each(|shard| shard.pools.add_to(&mut sum));
        sum.add(Pool::RangeScans, self.range_scans.bytes());
        let pools = Pool::ALL.map(|(pool, _)| (pool, sum.of(pool)));
        pools.into_iter().max_by_key(|entry| entry.1).unwrap_or((Pool::Items, 0))
    }

    /// All pools. Of the bytes that the arenas hold, `table_bytes` are tables and the rest documents. Documents in the
    /// tables take `item_bytes`. Whatever the rest has beyond those is in queues alone, up to `queued_bytes`.
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
