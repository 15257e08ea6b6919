//! Everything the store promises, checked against the real and the fault-injecting file system.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backfill;
mod conformance;
mod crash_points;
mod damage;
mod every_moment;
mod faults;
mod fixtures;
mod fuzz;
mod given_up;
mod hooked;
mod hostile_keys;
mod key_index;
mod model;
mod prepares;
mod resets;
mod support;
mod threads;
