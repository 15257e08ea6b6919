//! The disk a test bucket stands on: something that opens a shard's store, crashes, and fills up.

use std::path::Path;
use std::sync::Arc;

use storage::{FaultFs, Fs, KvStore, Options, StoreError};

use super::MemStore;

/// One shard's disk.
pub(crate) trait Disk: Send + Sync {
    /// Opens the store on it, after a crash or a clean close if it was open.
    fn open(&self) -> Arc<dyn KvStore>;
    /// Power is lost: what was not synced may be gone.
    fn crash(&self);
    /// Whether writes find no space.
    fn set_full(&self, full: bool);
    /// Whether it takes some more when it is full (what is allocated already).
    fn fills_slowly(&self) -> bool;
    /// Everything fails after so many more changes, the last one half done, until the crash. False: not this disk.
    fn die_after(&self, changes: u64) -> bool;
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

    fn fills_slowly(&self) -> bool {
        false
    }

    fn die_after(&self, _: u64) -> bool {
        false
    }
}

/// The segment log over a file system in memory that tears and loses what was not synced.
pub(crate) struct FaultDisk {
    pub(crate) fs: FaultFs,
    /// What the log sees of it.
    seen: Arc<dyn Fs>,
    options: Options,
}

impl FaultDisk {
    pub(crate) fn new(seed: u64, shard: u32) -> Self {
        Self::over(FaultFs::new(seed), shard)
    }

    /// On a disk that the test keeps a hand on.
    pub(crate) fn over(fs: FaultFs, shard: u32) -> Self {
        // Small segments, so that compaction has something to do.
        let options = Options {
            shard,
            segment_bytes: 256 << 10,
            segment_bytes_min: 64 << 10,
            reserve_bytes: 1 << 20,
            index_segments_min: 3,
        };
        Self::seen_through(Arc::new(fs.clone()), fs, options)
    }

    /// On a disk with something between it and the log.
    pub(crate) fn seen_through(seen: Arc<dyn Fs>, fs: FaultFs, options: Options) -> Self {
        Self { fs, seen, options }
    }

    /// Opens the store on it.
    ///
    /// # Errors
    /// Where there is no space even for that.
    pub(crate) fn try_open(&self) -> Result<Arc<dyn KvStore>, StoreError> {
        let (seen, options) = (Arc::clone(&self.seen), self.options.clone());
        Ok(Arc::new(storage::open(Path::new("/shard"), seen, options)?))
    }

    /// Flips a bit of a value wherever it lies on the disk; says in how many places that was.
    pub(crate) fn damage(&self, value: &[u8]) -> usize {
        let segments = (0..100).map(|number| format!("/shard/{number:08}.seg"));
        let hits = segments.filter(|name| {
            let content = self.fs.contents(Path::new(name)).unwrap_or_default();
            let at = content.windows(value.len()).position(|window| window == value);
            at.is_some_and(|at| self.fs.flip_bit(Path::new(name), at as u64, 3))
        });
        hits.count()
    }
}

impl Disk for FaultDisk {
    fn open(&self) -> Arc<dyn KvStore> {
        self.try_open().unwrap()
    }

    fn crash(&self) {
        self.fs.crash();
    }

    fn set_full(&self, full: bool) {
        self.fs.set_capacity(full.then(|| self.fs.used_bytes()));
    }

    fn fills_slowly(&self) -> bool {
        true
    }

    fn die_after(&self, changes: u64) -> bool {
        self.fs.die_after(changes);
        true
    }
}
