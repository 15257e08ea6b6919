//! A bucket in memory: vBuckets, their hash tables and checkpoints, and everything that happens to a document
//! between a request and the disk.
//!
//! The crate sees no opcode, no socket, no thread and no clock. Requests are method calls on [`Bucket`], and time
//! arrives as [`base::Now`]. Flushing, fetching, warm-up, expiry, paging, defragmentation and compaction are bounded
//! step functions, which the owner of the threads calls.
//!
//! One short mutex per vBucket guards its hash table, its checkpoint and its counters: under it, seqno order is
//! table order is checkpoint order. It is never held across I/O and never nested in another vBucket's.
//!
//! The crate's rooms, from the top down. An import runs downward or stays in its room, which a test in `crates/tidy` holds.
//!
//! | room | what is in it |
//! |---|---|
//! | `client` | operations on documents, range scans |
//! | `replica` | what a copy takes from its active; roles of vBuckets |
//! | `feed` | feeds, and the thread that reads for them |
//! | `background` | flusher, fetcher, warm-up, pagers, compactor, closing |
//! | `bucket` | the bucket, its settings, what it admits and what it reports |
//! | `history` | what readers of a vBucket hold: cursors, items, states gathered at one seqno, backfills and scans under way |
//! | `vbucket` | one vBucket: table, order, durable writes, locks, clocks, cold keys |
//! | `shard` | what the vBuckets of a shard share: arena, store, queues, the gate to the disk |
//! | `pressure` | the account of memory, the pace of writers |
//! | `api` | requests, options, answers, figures |
//! | `memory` | slabs, items, hash tables |
//! | `json` | JSON, and operations on parts of a document |

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
mod background;
mod bucket;
mod client;
pub mod feed;
mod history;
pub mod json;
mod memory;
mod pressure;
mod replica;
mod shard;
mod vbucket;

mod sync;

pub use api::{doc, notify, options, request, stats};
pub use client::range_scan;
pub use json::subdoc;
pub use memory::{arena, defragmenter, hash_table, item};
pub use vbucket::system_events;

pub use api::{
    doc::{DocMeta, DocView, Durable, Mutated, Observed, ObservedSeqno, ObservedState, SharedValue},
    notify::{Notifier, Refusal, Wait, Waiter, Work},
    options::{BucketChange, BucketOptions, OpenError, ValueCodec},
    pressure::{DiskRefusals, HeldMemory, PaceReport, PacingStats, Pool, PoolBytes, Pressure},
    request::{Counter, Delete, Expiry, Store, StoreMode, WithMeta},
    stats::{
        BucketStats, Budget, FlushFailure, FlushReport, RoleStats, StepReport, VbInfo, VbOps, WarmupState,
    },
};
pub use background::{bg_fetcher::Fetching, closing::Unclosed, compactor::Pace};
pub use bucket::{
    Bucket,
    admission::{Admission, PACED_MILLIS_MAX},
    quota::SHARD_QUOTA_MAX,
};
pub use client::{
    ops::subdoc::request::{
        Change, Look, LookedUp, Lookup, LookupSpec, MutationSpec, Precondition, SubdocBound, SubdocMutated,
        SubdocMutation, ValueForm, XattrRights,
    },
    range_scan::{ScanHold, ScanId, ScanInfo, ScanLimits, ScanOptions, ScanSelection, ScanStep},
};
pub use feed::{
    Feed, FeedBatch, FeedEnd, FeedFilter, FeedItem, FeedKind, FeedOptions, FeedSnapshot, FeedStep, VbHistory,
};
pub use pressure::pacing::FollowerLoad;
pub use replica::{
    ReplicaItem, ReplicaKind, ReplicaMarker, ReplicaStart,
    roles::{Activation, VbStatus},
};
pub use vbucket::{
    chains::{Chains, Topology},
    copy_rules::CopyFacts,
    failover_table::FailoverTable,
    following::Inflow,
    system_events::SystemEvent,
};
