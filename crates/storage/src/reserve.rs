//! Disk space set aside in a preallocated file. The store gives it up when the disk is full, so that writes which free
//! space can proceed. It takes it back before anything else may be written.
//!
//! A store has two. One is for deletions and metadata, and has a fixed size. The other is for compaction, and grows
//! with the segments that compaction has to copy. They are apart because each needs the other: were deletions to use
//! up all there is, nothing could make use of what they free.
//!
//! How much there is can be asked while somebody changes that: the disk may take any time for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{
    api::Options,
    error::StoreError,
    fs::{Fs, FsFile, is_no_space},
};

/// See the module.
pub(crate) struct Reserve {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    /// A thread that changes `bytes` and `held` holds it for as long as the disk takes. One that only reads them never waits for it.
    changing: Mutex<()>,
    /// How much is to be held.
    bytes: AtomicU64,
    /// Whether it is.
    held: AtomicBool,
    /// What it began with, and never is less than.
    bytes_min: u64,
    /// The reserve has been given up: ordinary writes are refused. Read without the lock on every commit.
    released: AtomicBool,
    /// It has not been set aside since the store was opened, and nobody has given it up. Read as `released` is.
    owed: AtomicBool,
    /// The last ordinary write was refused. A statistic.
    full: AtomicBool,
}

impl Reserve {
    /// For deletions and metadata. Takes over what an earlier process set aside: on a disk that is still full there is
    /// nothing else. Otherwise nothing is allocated before the first [`Reserve::restore`]. Of a fixed size.
    pub(crate) fn for_deletions(dir: &Path, fs: Arc<dyn Fs>, options: &Options) -> Self {
        let (path, bytes) = (dir.join("reserve"), options.reserve_bytes);
        let found = fs.open(&path).and_then(|file| file.length());
        let held = bytes > 0 && found.is_ok_and(|length| length == bytes);
        Self::new(path, fs, options, (bytes, held), bytes > 0 && !held)
    }

    /// For compaction. Takes over the present reserve, whatever its size; the rest is owed.
    pub(crate) fn for_compaction(dir: &Path, fs: Arc<dyn Fs>, options: &Options) -> Self {
        let path = dir.join("reserve.compaction");
        let found = fs.open(&path).and_then(|file| file.length()).unwrap_or(0);
        let bytes = if found > 0 { found } else { options.reserve_bytes };
        Self::new(path, fs, options, (bytes, found > 0), false)
    }

    fn new(
        path: PathBuf,
        fs: Arc<dyn Fs>,
        options: &Options,
        (bytes, held): (u64, bool),
        released: bool,
    ) -> Self {
        Self {
            path,
            fs,
            bytes_min: options.reserve_bytes,
            owed: AtomicBool::new(bytes > 0 && !held),
            changing: Mutex::new(()),
            bytes: AtomicU64::new(bytes),
            held: AtomicBool::new(held),
            released: AtomicBool::new(released),
            full: AtomicBool::new(false),
        }
    }

    /// Gives the space up. Returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        let _changing = self.changing.lock();
        if !self.is_held() || self.fs.remove(&self.path).is_err() {
            return false;
        }
        self.held.store(false, Ordering::Relaxed);
        self.released.store(true, Ordering::Release);
        tracing::warn!(file = %self.path.display(), bytes = self.bytes(), "disk full: reserve released");
        true
    }

    /// Sets aside more than is held, if `bytes` are more and there is as much.
    pub(crate) fn grow(&self, bytes: u64) {
        let _changing = self.changing.lock();
        let held = self.held_bytes();
        if held == 0 || held >= bytes {
            return;
        }
        let extend = |file: Box<dyn FsFile>| {
            // What could not be had whole is given back.
            file.allocate(0, bytes).or_else(|error| file.truncate(held).and(Err(error)))
        };
        if self.fs.open(&self.path).and_then(extend).is_ok() {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Takes the space if that has not been done since the store was opened: the first writer might leave none. Returns
    /// whether ordinary writes may proceed as far as that goes.
    ///
    /// # Errors
    /// What the disk answers, unless that is that it is full.
    pub(crate) fn settle(&self) -> Result<bool, StoreError> {
        if self.owed.load(Ordering::Acquire) { self.claim() } else { Ok(true) }
    }

    /// Takes the space back if it was given up. Returns whether ordinary writes may proceed.
    ///
    /// # Errors
    /// As [`Reserve::settle`].
    pub(crate) fn restore(&self) -> Result<bool, StoreError> {
        if self.is_released() { self.claim() } else { Ok(true) }
    }

    /// Whether it has been given up and not been taken back.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// As [`Reserve::claim`], where `needed` bytes would do by now: what has grown and was given up need not be had whole.
    ///
    /// # Errors
    /// As [`Reserve::settle`].
    pub(crate) fn claim_what_is(&self, needed: u64) -> Result<bool, StoreError> {
        {
            let _changing = self.changing.lock();
            if !self.is_held() {
                self.bytes.fetch_min(needed.max(self.bytes_min), Ordering::Relaxed);
            }
        }
        self.claim()
    }

    /// Takes the space unless it is held. Returns whether it is now.
    fn claim(&self) -> Result<bool, StoreError> {
        let _changing = self.changing.lock();
        let bytes = self.bytes();
        if !self.is_held() && bytes > 0 {
            let file = self.fs.create(&self.path);
            if let Err(source) = file.and_then(|file| file.allocate(0, bytes)) {
                // What could not be taken whole is given back.
                let _ = self.fs.remove(&self.path);
                if is_no_space(&source) {
                    self.full.store(true, Ordering::Relaxed);
                    return Ok(false);
                }
                let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                return Err(StoreError::Io { action: "set aside", file, source });
            }
            self.held.store(true, Ordering::Relaxed);
        }
        self.released.store(false, Ordering::Release);
        self.owed.store(false, Ordering::Release);
        Ok(true)
    }

    /// Whether an ordinary write was just refused; or accepted, or would be.
    pub(crate) fn note_full(&self, full: bool) {
        // A plain load first: commits of many threads' shards need not share a written cache line.
        if self.is_full() != full {
            self.full.store(full, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// How much there is when it is held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        if self.is_held() { self.bytes() } else { 0 }
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}
