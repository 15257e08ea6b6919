//! How much memory, disk and how many nodes a workload needs, and when what a cluster has will not be enough any more.
//!
//! Pure arithmetic: callers bring the figures and the time. Invariants:
//! - A published rule gives the published figures, so that users can compare it with their own sheets.
//! - A forecast says that it does not know rather than draw a line through too few points.

#![forbid(unsafe_code)]

pub mod filling;
pub mod forecast;
pub mod live;
pub mod sizing;
