//! Threads that meet in a bucket: at the seams between its parts, at a disk that stands still, and under load.

#![allow(clippy::unwrap_used, reason = "tests")]

mod feed_stress;
mod seams;
mod standing_still;
mod stress;
#[path = "../support/mod.rs"]
mod support;
