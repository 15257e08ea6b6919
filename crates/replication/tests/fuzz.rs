//! The fuzz target of this crate, run briefly on any toolchain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

// By the names that the target uses.
extern crate engine as settee_engine;
extern crate settee_replication as replication;

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;
#[path = "../../../fuzz/shared/replication.rs"]
mod targets;

#[test]
fn whatever_a_producer_sends_a_replica_is_fed_in_order() {
    runner::run("consumer", targets::consumer);
}
