//! Keeps the indexes of a bucket's design documents up to date from the bucket's feeds, on one node.
//!
//! Other crates use [`Indexer`]. Code without I/O decides:
//! - [`desk`]: which indexes and copies of vBuckets exist, and which lane feeds which index.
//! - [`copies`]: what an indexer is told of copies.
//! - [`course`]: how far an index is, and what that is worth after a restart.
//! - [`documents`]: what map functions are given.
//! - [`pace`]: when changes are shown and made durable.
//! - [`pause`]: when something is tried again.
//! - [`mistakes`]: what is told of documents that were left out.
//!
//! A lane is a thread that carries the decisions out. A simulation gives lanes their turns instead ([`Lanes`]).

mod alarm;
pub mod copies;
pub mod course;
pub mod desk;
pub mod documents;
mod indexer;
mod lane;
mod lanes;
pub mod mistakes;
pub mod pace;
pub mod pause;
mod places;
mod shared;

pub use self::{
    alarm::{Alarm, Alarms},
    desk::{Change, Lane, Wants},
    indexer::{IndexCourse, IndexStatus, Indexer, Status, Ticket, WaitError},
    lanes::Lanes,
    pace::Pacing,
    places::Places,
    shared::{Batches, Setup},
};
