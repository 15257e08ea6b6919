//! The disk a test bucket stands on: something that opens a shard's store, crashes, and fills up.

use std::sync::Arc;

use storage::KvStore;

use super::MemStore;

/// One shard's disk.
pub(crate) trait Disk: Send + Sync {
    /// Opens the store on it, after a crash or a clean close if it was open.
    fn open(&self) -> Arc<dyn KvStore>;
    /// Power is lost: what was not synced may be gone.
    fn crash(&self);
    /// Whether writes find no space.
    fn set_full(&self, full: bool);
}

/// A store in memory: keeps exactly what was synced.
#[derive(Default)]
pub(crate) struct MemDisk(pub(crate) Arc<MemStore>);

impl Disk for MemDisk {
    fn open(&self) -> Arc<dyn KvStore> {
        self.0.clone()
    }

    fn crash(&self) {
        self.0.crash();
    }

    fn set_full(&self, full: bool) {
        self.0.set_full(full);
    }
}
