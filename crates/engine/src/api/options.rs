//! What a bucket is told when it is opened, and what can be changed while it runs.

use std::fmt;

use base::{
    Datatype, Status, VbRole,
    bucket::{BucketKind, CompressionMode, ConflictResolution, DurabilityLevel, EvictionPolicy},
    limits,
};
use storage::StoreError;

/// What the engine needs to know about the inside of values when it changes one (append, prepend, counter).
#[derive(Clone, Copy)]
pub struct ValueCodec {
    /// The datatype a body without extended attributes deserves: [`Datatype::JSON`] or [`Datatype::RAW`].
    pub recheck: fn(&[u8]) -> Datatype,
    /// Appends the inflated form of one raw Snappy block to the buffer, within the document size limit; false
    /// when it is not one.
    pub inflate: fn(&[u8], &mut Vec<u8>) -> bool,
    /// How long the inflated form is, as the block says, without inflating it.
    pub inflated_len: fn(&[u8]) -> usize,
}

impl ValueCodec {
    /// Treats every value as opaque and refuses compressed ones.
    #[must_use]
    pub fn opaque() -> Self {
        Self { recheck: |_| Datatype::RAW, inflate: |_, _| false, inflated_len: <[u8]>::len }
    }
}

impl fmt::Debug for ValueCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueCodec")
    }
}

/// Everything that is fixed, or starts out fixed, for an open bucket.
#[derive(Clone, Debug)]
pub struct BucketOptions {
    /// For messages and statistics.
    pub name: String,
    /// Persistent, memory only, or a cache.
    pub kind: BucketKind,
    /// Memory the bucket may use.
    pub quota_bytes: u64,
    /// How many vBuckets, `VBUCKETS_MIN..=VBUCKETS_MAX`.
    pub vbuckets: u16,
    /// What gives way when the quota is reached.
    pub eviction: EvictionPolicy,
    /// Whether values are compressed on their way to other nodes. (They are kept as they came.)
    pub compression: CompressionMode,
    /// Which version wins in with-meta writes.
    pub conflict: ConflictResolution,
    /// Cap on expiry for collections without one of their own; 0: none.
    pub max_ttl_secs: u32,
    /// Arena shards, and storage shards when the bucket is persistent. vBucket `v` belongs to shard `v % shards`.
    pub shards: usize,
    /// What this node is to every vBucket right after opening: [`VbRole::Active`] for a node on its own, [`VbRole::Dead`] for
    /// one that waits to be told.
    pub role: VbRole,
    /// Configured replicas: with the active as many copies as a majority is counted of, where nobody has told whose copies
    /// there are. (None of them exists then, which makes durable writes impossible.)
    pub replicas: u8,
    /// Durability every write is raised to.
    pub durability_min: DurabilityLevel,
    /// Largest value (extended attributes included).
    pub value_bytes_max: usize,
    /// Age at which tombstones may be forgotten.
    pub purge_interval_secs: u32,
    /// Whether it is remembered over a restart which keys are used most, so that they are loaded first.
    pub hot_keys: bool,
    /// Seed of everything random: vBucket uuids, frequency counters.
    pub seed: u64,
    /// Most bytes of one vBucket's mutations that are handed to the store as one atomic part.
    pub part_bytes_max: u64,
    /// Most bytes of mutations that stay queued for nobody but feeds; `None`: a share of the quota.
    pub cursor_bytes_max: Option<u64>,
    /// How to look into values.
    pub codec: ValueCodec,
}

impl BucketOptions {
    /// A persistent bucket with Couchbase's defaults, 1024 vBuckets and one shard.
    #[must_use]
    pub fn new(name: &str, quota_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            kind: BucketKind::Couchbase,
            quota_bytes,
            vbuckets: limits::VBUCKETS_MAX,
            eviction: EvictionPolicy::ValueOnly,
            compression: CompressionMode::Passive,
            conflict: ConflictResolution::Seqno,
            max_ttl_secs: 0,
            shards: 1,
            role: VbRole::Active,
            replicas: 0,
            durability_min: DurabilityLevel::None,
            value_bytes_max: limits::VALUE_BYTES_MAX + limits::XATTR_BYTES_MAX,
            purge_interval_secs: 3 * 24 * 60 * 60,
            hot_keys: true,
            seed: 0,
            part_bytes_max: 64 << 20,
            cursor_bytes_max: None,
            codec: ValueCodec::opaque(),
        }
    }
}

/// A change to a running bucket; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct BucketChange {
    /// See [`BucketOptions::quota_bytes`].
    pub quota_bytes: Option<u64>,
    /// See [`BucketOptions::eviction`].
    pub eviction: Option<EvictionPolicy>,
    /// See [`BucketOptions::compression`].
    pub compression: Option<CompressionMode>,
    /// See [`BucketOptions::max_ttl_secs`].
    pub max_ttl_secs: Option<u32>,
    /// See [`BucketOptions::replicas`].
    pub replicas: Option<u8>,
    /// See [`BucketOptions::durability_min`].
    pub durability_min: Option<DurabilityLevel>,
    /// See [`BucketOptions::value_bytes_max`].
    pub value_bytes_max: Option<usize>,
    /// See [`BucketOptions::purge_interval_secs`].
    pub purge_interval_secs: Option<u32>,
    /// See [`BucketOptions::hot_keys`].
    pub hot_keys: Option<bool>,
}

/// Why a bucket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option makes no sense.
    #[error("bucket option out of range: {0}")]
    Options(&'static str),
    /// The address space for the documents could not be reserved.
    #[error("no memory for the bucket: {0}")]
    Memory(std::io::Error),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<&OpenError> for Status {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::Options(_) => Status::Invalid,
            OpenError::Memory(_) => Status::NoMemory,
            OpenError::Store(_) => Status::TemporaryFailure,
        }
    }
}
