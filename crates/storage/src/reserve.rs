//! Disk space set aside: a preallocated file that is given up when the disk is full, so that tombstones, metadata
//! and compaction can proceed, and taken back before anything else may be written.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use crate::fs::Fs;

/// See the module.
pub(crate) struct Reserve {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    bytes: u64,
    held: Mutex<bool>,
    /// The reserve has been given up: ordinary writes are refused. Read without the lock on every commit.
    released: AtomicBool,
    /// The last ordinary write was refused. A statistic.
    full: AtomicBool,
}

impl Reserve {
    /// Takes over what an earlier process set aside: on a disk that is still full there is nothing else. Otherwise
    /// nothing is allocated before the first [`Reserve::restore`].
    pub(crate) fn new(path: PathBuf, fs: Arc<dyn Fs>, bytes: u64) -> Self {
        let found = fs.open(&path).and_then(|file| file.length());
        let held = bytes > 0 && found.is_ok_and(|length| length == bytes);
        Self {
            path,
            fs,
            bytes,
            held: Mutex::new(held),
            released: AtomicBool::new(bytes > 0 && !held),
            full: AtomicBool::new(false),
        }
    }

    /// Gives the space up. Returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        let mut held = self.held.lock();
        if !*held || self.fs.remove(&self.path).is_err() {
            return false;
        }
        *held = false;
        self.released.store(true, Ordering::Release);
        tracing::warn!(bytes = self.bytes, "disk full: reserve released for deletes and compaction");
        true
    }

    /// Takes the space back if it was given up. Returns whether ordinary writes may proceed.
    pub(crate) fn restore(&self) -> bool {
        if !self.released.load(Ordering::Acquire) {
            return true;
        }
        let mut held = self.held.lock();
        if !*held {
            let file = self.fs.create(&self.path);
            if file.and_then(|file| file.allocate(0, self.bytes)).is_err() {
                // What could not be taken whole is given back.
                let _ = self.fs.remove(&self.path);
                self.full.store(true, Ordering::Relaxed);
                return false;
            }
            *held = true;
        }
        self.released.store(false, Ordering::Release);
        true
    }

    /// Whether an ordinary write was just refused, or accepted.
    pub(crate) fn note_full(&self, full: bool) {
        // A plain load first: commits of many threads' shards need not share a written cache line.
        if self.is_full() != full {
            self.full.store(full, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        if *self.held.lock() { self.bytes } else { 0 }
    }
}
