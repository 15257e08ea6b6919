//! What can be asked about a consumer from outside: counters that its connection writes and statistics read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared between a consumer and the display of statistics; outlives connections.
#[derive(Debug, Default)]
pub struct ConsumerStats {
    /// Stream messages taken.
    pub messages: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// How often the replica had no room.
    pub pauses: AtomicU64,
    /// How often a vBucket went back in its history, or to nothing because its copy was damaged.
    pub rollbacks: AtomicU64,
    /// Streams given up because their producer was wrong.
    pub faults: AtomicU64,
}

impl ConsumerStats {
    pub(super) fn took(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
