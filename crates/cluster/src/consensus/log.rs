//! What of a group is kept on a node's disk, and the seam behind which it is kept.
//!
//! A store holds a few named records and the entries by index, all of them opaque bytes. A write is a list of batches:
//! all of it is durable when it returns, or none of it happened.

use std::{collections::BTreeMap, path::PathBuf};

use base::NodeId;
use serde::{Deserialize, Serialize};

use crate::metadata::epoch::Epoch;
use crate::metadata::{Authority, NodeInfo};

/// Why the log could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file cannot be used: no rights, a failing disk. Nobody knows what of the last write is on the disk.
    #[error("{path}: {reason}")]
    #[allow(missing_docs, reason = "names say it")]
    Store { path: PathBuf, reason: String },
    /// A write found no space. It changed nothing, and may be tried again.
    #[error("{path}: {reason}")]
    #[allow(missing_docs, reason = "names say it")]
    NoSpace { path: PathBuf, reason: String },
    /// What was read is not what this version writes.
    #[error("the log of the metadata cannot be read: {0}")]
    Unreadable(String),
}

/// The records of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    /// [`Member`].
    Member,
    /// Term, vote and commit index.
    HardState,
    /// The state up to some index, with the group as it was then.
    Snapshot,
    /// Index and term of the entry before the first one kept.
    Start,
    /// The metadata as last known to a member whose group was formed anew, until it hears of the new group's.
    Known,
    /// How far the log went that these are from: a [`Position`](super::Position).
    KnownAt,
    /// The place in the log since which this member's state differs from that of most members.
    Diverged,
    /// The last place of a log that lacks what this member had confirmed.
    Lacks,
    /// That [`Record::Known`] was not what was agreed on. It counts while there is no snapshot.
    Unfit,
}

impl Record {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::Member,
        Self::HardState,
        Self::Snapshot,
        Self::Start,
        Self::Known,
        Self::KnownAt,
        Self::Diverged,
        Self::Lacks,
        Self::Unfit,
    ];

    /// Its name in a store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::HardState => "hard_state",
            Self::Snapshot => "snapshot",
            Self::Start => "start",
            Self::Known => "known",
            Self::KnownAt => "known_at",
            Self::Diverged => "diverged",
            Self::Lacks => "lacks",
            Self::Unfit => "unfit",
        }
    }
}

/// One step of a write, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Whether everything there was is forgotten.
    pub clear: bool,
    /// Entries below this index go.
    pub drop_below: Option<u64>,
    /// Entries from this index on go.
    pub drop_from: Option<u64>,
    /// Replaced.
    pub records: Vec<(Record, Vec<u8>)>,
    /// Added, by index.
    pub entries: Vec<(u64, Vec<u8>)>,
}

/// All that a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// By name.
    pub records: BTreeMap<Record, Vec<u8>>,
    /// By index.
    pub entries: BTreeMap<u64, Vec<u8>>,
}

impl Stored {
    /// Does what `batch` says.
    pub fn apply(&mut self, batch: &Batch) {
        if batch.clear {
            *self = Self::default();
        }
        if let Some(first) = batch.drop_below {
            self.entries = self.entries.split_off(&first);
        }
        if let Some(first) = batch.drop_from {
            self.entries.split_off(&first);
        }
        self.records.extend(batch.records.iter().cloned());
        self.entries.extend(batch.entries.iter().cloned());
    }

    /// Whether there is no group yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Where a group's log is kept.
pub trait LogStore: Send {
    /// All that was written, and perhaps the write that failed last; durable when it returns.
    ///
    /// # Errors
    /// [`LogError`] when it cannot be read.
    fn load(&mut self) -> Result<Stored, LogError>;

    /// Carries out all batches, in order, or none; durable when it returns.
    ///
    /// # Errors
    /// [`LogError::NoSpace`]: nothing has changed, and the same may be written again. Any other: nobody knows what has
    /// changed, and nothing can be written until the process starts again and loads.
    fn write(&mut self, batches: &[Batch]) -> Result<(), LogError>;
}

/// A store in memory, for simulation and tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    stored: Stored,
}

impl LogStore for MemoryLog {
    fn load(&mut self) -> Result<Stored, LogError> {
        Ok(self.stored.clone())
    }

    fn write(&mut self, batches: &[Batch]) -> Result<(), LogError> {
        batches.iter().for_each(|batch| self.stored.apply(batch));
        Ok(())
    }
}

/// A node's number, and its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node's uuid.
    pub uuid: String,
    /// Its number in the cluster.
    pub node: NodeId,
    /// The cluster's uuid.
    pub cluster_uuid: String,
    /// The life of the group that it belongs to.
    #[serde(default)]
    pub epoch: Epoch,
    /// The cluster's secret and its nodes, for as long as the metadata has not arrived.
    pub secret: String,
    /// See `secret`; empty where the node has founded the cluster.
    pub peers: Vec<NodeInfo>,
    /// See `secret`; by it the node is known to the others before it knows anything itself.
    #[serde(default)]
    pub authority: Option<Authority>,
}
