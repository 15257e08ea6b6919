//! The segment log: where a shard's vBuckets live on disk.
//!
//! Each shard has one [`KvStore`]. Batches of records are appended to segment files and made durable together. The
//! engine's hash table keeps the [`Locator`]s. Every sealed segment carries an index sorted by key hash, for the keys
//! that memory has forgotten. Compaction copies what is live out of segments that are mostly dead.
//!
//! This crate relies on two things. The engine hands over each vBucket's records in seqno order. `Record::hash` is
//! [`base::hash::key_hash`] of the key, as in memory; indexes use a hash with a seed of the shard. The crate
//! deliberately does not cache values, start threads, read clocks, or know what a client is.
//!
//! The way in:
//! - `api` is the trait, and `log` the store behind it.
//! - `writer` and `appender` are the path of a commit. `durability` syncs, and replaces the manifest.
//! - `recover` and `tail` open a store.
//! - `lookup` reads a record, and `backfill` reads a vBucket in order.
//! - `compact` cleans.
//! - `format` is the bytes, and does no I/O.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice
)]
#![cfg_attr(test, allow(clippy::unreachable, clippy::string_slice))]

mod api;
mod appender;
mod aside;
mod backfill;
mod compact;
mod counters;
mod durability;
mod error;
mod format;
mod frames;
mod fs;
mod hints;
mod index;
mod key_index;
mod locator;
mod log;
mod lookup;
mod notes;
mod pin;
mod position;
mod read_many;
mod recover;
mod reserve;
mod segment;
mod state;
mod synced;
mod tail;
mod window;
mod writer;

pub use api::{
    Backfill, BackfillOptions, CompactBudget, CompactReport, KvStore, Liveness, Locator, Marks, Options,
    OwnedRecord, Pin, Record, RecordKind, RecordMeta, SpaceUse, StoreStats, ValueRule, VbBatch, VbState,
    Verdict,
};
pub use error::StoreError;
pub use fs::{
    DiskBudget, DiskClock, DiskLane, DiskLimits, DiskUse, FaultCounts, FaultFs, Fs, FsCall, FsFile,
    LockGuard, RealFs, Space, ThrottledFs, create_dirs_synced, is_unreadable, stand_back, stand_in_line,
};
pub use log::{SegmentLog, open};
pub use recover::is_store;
