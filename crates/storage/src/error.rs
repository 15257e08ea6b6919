//! What can go wrong with a store, and what the caller may do about it.

use std::io;

/// Why a storage operation failed.
///
/// "Unreadable" is never "absent": a lookup that could not read what it had to read returns an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk is full. Nothing of the refused batch is visible; the same call works once there is space.
    #[error("no space left on the device")]
    NoSpace,
    /// A write or a sync failed earlier: nothing more is written, reads go on. Only a restart helps.
    #[error("the shard is poisoned by an earlier write or sync error")]
    Poisoned,
    /// Stored bytes do not match their checksum, or make no sense.
    #[error("corrupt data in {file} at offset {offset}: {detail}")]
    Corrupt {
        /// File name within the shard's directory.
        file: String,
        /// Where the damaged bytes begin.
        offset: u64,
        /// What was expected.
        detail: &'static str,
    },
    /// The locator's segment has been compacted away: look the key up again.
    #[error("the record has moved: look it up again")]
    Stale,
    /// The vBucket's contents were dropped, or are being dropped.
    #[error("the vBucket was reset")]
    Reset,
    /// What was under way was given up as its caller wanted; nothing has changed.
    #[error("given up as asked")]
    Stopped,
    /// Another process has the directory open.
    #[error("{0} is in use by another process")]
    Locked(String),
    /// The file was written by a format this build does not know.
    #[error("{file} has format version {found}, this build knows up to {known}")]
    Version {
        /// File name within the shard's directory.
        file: String,
        /// The version in the file.
        found: u32,
        /// The newest version this build reads.
        known: u32,
    },
    /// The caller's batch cannot be stored: a key, a value or one vBucket's part is beyond the format's limits.
    #[error("the batch cannot be stored: {0}")]
    Invalid(&'static str),
    /// The operating system refused.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// File or directory.
        file: String,
        /// The operating system's error.
        source: io::Error,
    },
}

/// An operating system's error with its file.
pub(crate) fn io_error(action: &'static str, file: &str, source: std::io::Error) -> StoreError {
    if crate::fs::is_no_space(&source) {
        return StoreError::NoSpace;
    }
    StoreError::Io { action, file: file.to_owned(), source }
}
