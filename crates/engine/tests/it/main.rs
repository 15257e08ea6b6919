//! What a bucket does, one step after another: operations, durable writes, feeds, replicas, eviction, a disk that fails. One binary has
//! all of it, since each one more is linked by itself. Models that are run from seeds have targets of their own, and so has what
//! needs a process to itself.

#![allow(clippy::unwrap_used, reason = "tests")]

mod closing;
mod cold_lists;
mod damage;
mod durability;
mod eviction_switched;
mod expiry;
mod feed_paths;
mod full_eviction;
mod fuzz;
mod holes;
mod loading_beside_compaction;
mod operations;
mod persistence;
mod prepares;
mod pressure_steps;
mod races;
mod replicas;
mod shortage;
mod space_bound;
mod subdoc;
mod subdoc_model;
mod subdoc_operations;
#[path = "../support/mod.rs"]
mod support;
mod system_events;
mod twins;
mod waiters;
mod with_meta;
