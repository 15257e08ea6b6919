//! How a bucket is off for memory and disk, in figures: whose bytes they are, which step it has come to, what was refused.

/// How far a bucket has gone to stay within its quota. Each step includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is room.
    #[default]
    None = 0,
    /// Values that are on disk are ejected from memory.
    Paging = 1,
    /// Slow feeds are sent to the disk.
    Cursors = 2,
    /// Mutations that grow memory wait for the disk.
    Pacing = 3,
    /// Mutations that grow memory are refused for now.
    Refusing = 4,
}

impl Pressure {
    /// All steps with their names, in order.
    pub const ALL: [(Self, &str); 5] = [
        (Self::None, "none"),
        (Self::Paging, "paging"),
        (Self::Cursors, "cursors"),
        (Self::Pacing, "pacing"),
        (Self::Refusing, "refusing"),
    ];

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).map_or(Self::Refusing, |entry| entry.0)
    }
}

/// What pacing a bucket came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceReport {
    /// The step now.
    pub step: Pressure,
    /// The disk has had the same piece of work for seconds.
    pub still: bool,
    /// Call again within some milliseconds: somebody waits.
    pub more: bool,
    /// There is nothing to measure: nothing waits for the disk.
    pub idle: bool,
}

/// Statistics of pacing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacingStats {
    /// `ep_pressure_step`.
    pub step: Pressure,
    /// Mutations that wait, and their bytes.
    pub waiting: u64,
    /// See `waiting`.
    pub waiting_bytes: u64,
    /// Bytes per second that the disk takes.
    pub drain_rate: u64,
    /// Bytes per second that compaction reclaims when it has to.
    pub reclaim_rate: u64,
    /// Seconds that the slowest of the nodes that follow this one would need to get what it has not; 0 where none is behind.
    pub followers_seconds: u64,
    /// Bytes per second that are taken in at most; 0: without bound.
    pub intake_rate: u64,
    /// Mutations that have waited, ever, and of those the ones refused in the end.
    pub paced: u64,
    /// See `paced`.
    pub refused: u64,
    /// Bytes of mutations synced, ever.
    pub drained_bytes: u64,
}

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
pub(crate) const POOLS: usize = Pool::ALL.len();

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
    #[expect(clippy::indexing_slicing, reason = "the array has a place for each pool")]
    pub fn of(&self, pool: Pool) -> u64 {
        self.0[pool as usize]
    }

    /// All pools'.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    #[expect(clippy::indexing_slicing, reason = "the array has a place for each pool")]
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

/// Requests answered with temporary failure because of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRefusals {
    /// It is full, or has less free space than must remain.
    pub space: u64,
    /// A write has failed, or the bucket is being closed.
    pub broken: u64,
    /// It has not recorded in time how far CAS values may go.
    pub ceiling: u64,
}
