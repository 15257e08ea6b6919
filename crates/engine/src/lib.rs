//! A bucket in memory: vBuckets, their hash tables and checkpoints, and everything that happens to a document
//! between a request and the disk.
//!
//! The crate sees no opcode, no socket, no thread and no clock: requests are method calls on [`Bucket`], time
//! arrives as [`base::Now`], and what other databases do in background threads (flushing, fetching, warm-up,
//! expiry, paging, defragmentation, compaction) are bounded step functions that whoever owns the threads calls.
//!
//! One short mutex per vBucket guards its hash table, its checkpoint and its counters: under it, seqno order is
//! table order is checkpoint order. It is never held across I/O and never nested in another vBucket's.

mod admission;
mod aftermath;
mod alarm;
pub mod arena;
mod bg_fetcher;
mod bucket;
mod ceiling;
mod chains;
mod checkpoint;
mod closing;
mod cold_expiry;
mod cold_keys;
mod cold_trim;
mod cold_warmup;
mod collections;
mod compactor;
mod conflict;
mod copy_rules;
mod counts;
pub mod defragmenter;
mod disk_answers;
pub mod doc;
mod durability;
mod expiry_pager;
mod failover_table;
pub mod feed;
mod flusher;
mod full_eviction;
mod gather;
pub mod hash_table;
mod hlc;
mod hot_keys;
pub mod item;
mod item_kind;
mod item_pager;
pub mod json;
mod key_map;
mod locks;
mod lookups;
mod memory;
pub mod notify;
mod ops;
pub mod options;
mod overheads;
mod pacing;
mod pools;
mod prepares;
pub mod range_scan;
mod replica;
pub mod request;
mod roles;
mod settings;
mod shard;
mod shortage;
mod space;
pub mod stats;
pub mod subdoc;
mod sync;
pub mod system_events;
mod vbucket;
mod warming;
mod warmup;

pub use admission::{Admission, PACED_MILLIS_MAX, PaceReport, PacingStats, Pressure};
pub use bg_fetcher::Fetching;
pub use bucket::Bucket;
pub use chains::Topology;
pub use closing::Unclosed;
pub use compactor::Pace;
pub use copy_rules::CopyFacts;
pub use doc::{DocMeta, DocView, Mutated, Observed, ObservedSeqno, ObservedState, SharedValue};
pub use failover_table::FailoverTable;
pub use feed::{
    Feed, FeedBatch, FeedEnd, FeedFilter, FeedItem, FeedKind, FeedOptions, FeedSnapshot, FeedStep, VbHistory,
};
pub use memory::SHARD_QUOTA_MAX;
pub use notify::{Notifier, Refusal, Wait, Waiter, Work};
pub use ops::subdoc::request::{
    Change, Look, LookedUp, Lookup, LookupSpec, MutationSpec, Precondition, SubdocBound, SubdocMutated,
    SubdocMutation, ValueForm, XattrRights,
};
pub use options::{BucketChange, BucketOptions, OpenError, ValueCodec};
pub use pacing::FollowerLoad;
pub use pools::{HeldMemory, Pool, PoolBytes};
pub use prepares::Durable;
pub use range_scan::{ScanHold, ScanId, ScanInfo, ScanLimits, ScanOptions, ScanSelection, ScanStep};
pub use replica::{Inflow, ReplicaItem, ReplicaKind, ReplicaMarker, ReplicaStart};
pub use request::{Counter, Delete, Expiry, Store, StoreMode, WithMeta};
pub use roles::{Activation, VbStatus};
pub use shard::DiskRefusals;
pub use stats::{
    BucketStats, Budget, FlushFailure, FlushReport, RoleStats, StepReport, VbInfo, VbOps, WarmupState,
};
pub use system_events::SystemEvent;
