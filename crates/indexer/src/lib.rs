//! Keeps the indexes of a bucket's design documents up to date from the bucket's feeds, on one node.
//!
//! What decides is code without I/O: [`desk`] knows which indexes and copies of vBuckets exist and which lane feeds which
//! index, [`course`] how far an index is and what that is worth after a restart, [`documents`] what map functions are given,
//! [`pace`] when changes are shown and made durable, [`pause`] when something is tried again, [`mistakes`] what is told of
//! documents that were left out.
//!
//! Nothing of this is wired to the server yet.

pub mod course;
pub mod desk;
pub mod documents;
pub mod mistakes;
pub mod pace;
pub mod pause;
