//! A whole cluster in one process, from one seed: consensus and metadata, the orchestrator, the agents of the nodes, engines
//! over simulated disks, and replication between them, all of it the very code that a server runs; around it machines with
//! clocks that go wrong, a network that loses and delays, and clients. One thread, virtual time.
//!
//! Whatever happens ([`faults`]): nothing that was promised to a client is lost, each key behaves as a register, at most one
//! node serves a vBucket, nothing goes back, and once nothing goes wrong any more the cluster comes to rest, serves, and all
//! copies are equal ([`invariants`]).
//!
//! A failure prints its seed and what happened last. Many seeds, and one of them with all that happens:
//!
//! ```sh
//! CLUSTER_SEEDS=1000 cargo test --release -p settee-node --test simulation
//! CLUSTER_SEED=17 CLUSTER_LOG=1 cargo test -p settee-node --test simulation -- --nocapture
//! ```

#![allow(clippy::unwrap_used, reason = "tests")]

// By the names under which the tests of these crates know them, whose support is shared.
extern crate engine as settee_engine;
extern crate replication as settee_replication;

mod clients;
mod connection;
mod faults;
#[path = "../../../replication/tests/replica/host.rs"]
mod host;
mod invariants;
mod journal;
mod machine;
mod network;
mod open_bucket;
mod operation;
mod process;
#[path = "../../../engine/tests/support/mod.rs"]
mod support;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use faults::Faults;
use world::World;

/// Seeds that every run of the tests goes through.
const SEEDS: u64 = 2;

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("CLUSTER_SEED");
    let count = number("CLUSTER_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    first.unwrap_or(1)..first.unwrap_or(1) + count
}

/// Runs a world; what happened last is printed if it fails.
fn watch<T>(seed: u64, world: &mut World, run: impl FnOnce(&mut World) -> T) -> T {
    match catch_unwind(AssertUnwindSafe(|| run(world))) {
        Ok(done) => done,
        Err(panic) => {
            eprintln!("{}failed with CLUSTER_SEED={seed}", world.journal.tail());
            resume_unwind(panic);
        }
    }
}

/// A cluster with a bucket goes through `faults`, is healed, and looked at. Returns what stands for all that happened.
fn endure(seed: u64, faults: Faults, millis: u64) -> u64 {
    let mut world = World::new(seed, 3 + (seed % 3) as u16, faults);
    watch(seed, &mut world, |world| {
        world.set_up(1 + (seed % 2) as u8);
        world.endure(millis);
        world.heal_and_check();
    });
    println!("seed {seed}: {}", world.summary());
    world.journal.trace()
}

fn endure_all(faults: Faults, millis: u64) {
    for seed in seeds() {
        endure(seed, faults, millis);
    }
}

#[test]
fn delays_cost_time_only() {
    endure_all(Faults::DELAYS, 15_000);
}

#[test]
fn what_a_majority_has_survives_one_node_after_the_other() {
    endure_all(Faults::CRASHES, 20_000);
}

#[test]
fn what_a_majority_has_on_disk_survives_everything() {
    endure_all(Faults::BLACKOUTS, 20_000);
}

#[test]
fn whoever_is_replaced_is_so_without_a_loss() {
    endure_all(Faults::FAILOVERS, 20_000);
}

#[test]
fn nodes_come_and_go_under_the_eyes_of_clients() {
    endure_all(Faults::REBALANCES, 20_000);
}

#[test]
fn everything_at_once() {
    endure_all(Faults::ALL, 20_000);
}

#[test]
fn one_seed_is_one_run() {
    let run = || endure(7, Faults::ALL, 5_000);
    assert_eq!(run(), run());
}
