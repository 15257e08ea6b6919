//! What a bucket is configured to be. Shared by the metadata that records it, the REST API that shows it and
//! the engine that obeys it.

use serde::{Deserialize, Serialize};

/// How a bucket keeps its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BucketKind {
    /// Memory-first, persisted (`couchbase`, reported as `membase`).
    Couchbase,
    /// Memory only; full memory refuses writes (`noEviction`) or drops the least used (`nruEviction`).
    Ephemeral,
    /// Memory only, evicts freely, no replication (`memcached`).
    Memcached,
}

/// What leaves memory when the quota is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EvictionPolicy {
    /// Values go, keys and metadata stay.
    ValueOnly,
    /// Keys, metadata and values go.
    FullEviction,
    /// Nothing goes; writes are refused (ephemeral).
    NoEviction,
    /// The least recently used documents are deleted (ephemeral).
    NruEviction,
}

/// Which of two versions wins that were written on different clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ConflictResolution {
    /// The higher revision number.
    Seqno,
    /// The later CAS time.
    Lww,
    /// A function of the user's; recorded, resolved as `Lww` here.
    Custom,
}

/// What the server does to compress values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CompressionMode {
    /// Inflate what arrives compressed.
    Off,
    /// Keep what arrives compressed.
    Passive,
    /// Keep, and compress more in the background.
    Active,
}

/// How far a write must have travelled before it is acknowledged, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Hash)]
#[serde(rename_all = "camelCase")]
pub enum DurabilityLevel {
    /// In the memory of the active.
    None,
    /// In the memory of a majority of the chain.
    Majority,
    /// In the memory of a majority, on the disk of the active.
    MajorityAndPersistActive,
    /// On the disks of a majority.
    PersistToMajority,
}

impl DurabilityLevel {
    /// Whether a disk is involved.
    #[must_use]
    pub const fn needs_disk(self) -> bool {
        matches!(self, Self::MajorityAndPersistActive | Self::PersistToMajority)
    }

    /// The level with this number in frame info 1 of a request (1, 2, 3).
    #[must_use]
    pub const fn from_wire(level: u8) -> Option<Self> {
        match level {
            1 => Some(Self::Majority),
            2 => Some(Self::MajorityAndPersistActive),
            3 => Some(Self::PersistToMajority),
            _ => None,
        }
    }
}
