//! A whole cluster in one process, from one seed. Consensus, metadata, orchestrator, agents, engines and replication
//! are the very code that a server runs. Around them are simulated disks, machines with clocks that go wrong, a network
//! that loses and delays, and clients. One thread, virtual time.
//!
//! Whatever happens ([`faults`]), the [`invariants`] hold. Nothing that was promised to a client is lost. Each key
//! behaves as a register, at most one node serves a vBucket, and nothing goes back. Once nothing goes wrong any more,
//! the cluster comes to rest and serves, and all copies are equal.
//!
//! The [`setting`] and what goes wrong make a kind of run ([`kinds`]). Every run of the tests goes through a few
//! seeds of each, and those that have found something ([`found`]). A failure prints its seed and what happened last. Many
//! seeds, and one of them with all that happens:
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
mod found;
#[path = "../../../replication/tests/replica/host.rs"]
mod host;
mod indexing;
mod invariants;
mod journal;
mod kinds;
mod link;
mod log_disk;
mod machine;
mod network;
mod open_bucket;
mod operation;
mod parts;
mod process;
mod scanner;
mod setting;
#[path = "../../../cluster/tests/support/shaky_disk.rs"]
mod shaky_disk;
#[path = "../../../replication/tests/shared/sink.rs"]
mod sink;
mod subscriber;
#[path = "../../../engine/tests/support/mod.rs"]
mod support;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

// What is said of a log's disk elsewhere.
use cluster::consensus::{DiskLog, LogFile, Medium};
use faults::NEVER;
use found::FOUND;
use invariants::indexes::Checked;
use kinds::Kind;
use world::{Tally, World};

/// Seeds of each kind that every run of the tests goes through, beside those that have found something.
const SEEDS: u64 = 2;

fn seeds(kind: &Kind) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("CLUSTER_SEED"), number("CLUSTER_SEEDS")) {
        (None, None) => {
            let found = FOUND.iter().filter(|found| found.kind.name == kind.name).map(|found| found.seed);
            (1..=SEEDS).chain(found.filter(|seed| *seed > SEEDS)).collect()
        }
        (first, count) => {
            let first = first.unwrap_or(1);
            (first..first + count.unwrap_or(1)).collect()
        }
    }
}

/// What is left of a run.
struct Lived {
    /// It stands for all that happened.
    trace: u64,
    /// What was held against documents.
    checked: Checked,
    tally: Tally,
}

/// A cluster with a bucket goes through a kind of run, is healed, and looked at. Nothing is returned where it fails; what happened last
/// is printed then.
fn endure(seed: u64, kind: &Kind, millis: u64) -> Option<Lived> {
    let mut world = World::new(seed, kind);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        world.set_up((1 + (seed % 2) as u8).min(kind.setting.replicas_max));
        world.endure(millis);
        world.heal_and_check();
    }));
    let name = kind.name;
    if lived.is_err() {
        eprintln!("{}{name} failed with CLUSTER_SEED={seed}", world.journal.tail());
        if let Some(found) = FOUND.iter().find(|found| (found.kind.name, found.seed) == (name, seed)) {
            eprintln!("That seed has found before: {}", found.what);
        }
        return None;
    }
    println!("{name} {seed}: {}", world.summary());
    let (trace, checked) = (world.journal.trace(), world.checked_of_indexes());
    Some(Lived { trace, checked, tally: world.tally() })
}

fn endure_all(kind: &Kind) {
    let seeds = seeds(kind);
    let (mut failed, mut checked, mut tally) = (Vec::new(), Checked::default(), Tally::default());
    for &seed in &seeds {
        match endure(seed, kind, kind.millis) {
            Some(lived) => {
                checked.add(lived.checked);
                tally.add(&lived.tally);
            }
            None => failed.push(seed),
        }
    }
    println!("{}: {} of {} seeds failed: {failed:?}", kind.name, failed.len(), seeds.len());
    assert!(failed.is_empty(), "failed with CLUSTER_SEED={failed:?}");
    // Single seeds need not come across everything.
    let is_fixed = std::env::var_os("CLUSTER_SEED").is_none() && std::env::var_os("CLUSTER_SEEDS").is_none();
    if is_fixed {
        tally.check(kind, seeds.len());
    }
    if kind.setting.designs != NEVER && is_fixed {
        checked.check();
    }
}

#[test]
fn delays_cost_time_only() {
    endure_all(&kinds::DELAYS);
}

#[test]
fn what_a_majority_has_survives_one_node_after_the_other() {
    endure_all(&kinds::CRASHES);
}

#[test]
fn what_a_majority_has_survives_the_loss_of_one_beside_another_that_is_away() {
    endure_all(&kinds::BESIDE);
}

#[test]
fn what_a_majority_has_survives_a_loss_of_memory_beside_another_that_is_failed_over() {
    endure_all(&kinds::FORGETTING);
}

#[test]
fn what_a_majority_has_on_disk_survives_everything() {
    endure_all(&kinds::BLACKOUTS);
}

#[test]
fn whoever_is_replaced_is_so_without_a_loss() {
    endure_all(&kinds::FAILOVERS);
}

#[test]
fn whoever_sleeps_through_its_replacement_serves_nothing_when_it_wakes() {
    endure_all(&kinds::PAUSES);
}

#[test]
fn survivors_of_a_lost_majority_go_on_with_all_that_they_had() {
    endure_all(&kinds::LOST_MAJORITIES);
}

#[test]
fn nodes_come_and_go_under_the_eyes_of_clients() {
    endure_all(&kinds::REBALANCES);
}

#[test]
fn nodes_are_replaced_by_newer_ones_under_the_eyes_of_clients() {
    endure_all(&kinds::VERSIONS);
}

#[test]
fn what_is_planned_leaves_nobody_in_doubt() {
    endure_all(&kinds::MOVES);
}

#[test]
fn disks_that_rot_or_are_gone_cost_nothing_that_a_majority_has() {
    endure_all(&kinds::DISKS);
}

#[test]
fn logs_that_rot_or_were_never_on_the_disk_are_noticed_or_cost_nothing() {
    endure_all(&kinds::ROTTEN_LOGS);
}

#[test]
fn an_old_image_of_a_disk_costs_what_its_node_serves_at_most() {
    endure_all(&kinds::OLD_IMAGES);
}

#[test]
fn everything_at_once() {
    endure_all(&kinds::ALL);
}

#[test]
fn everything_at_once_with_all_that_there_can_be() {
    endure_all(&kinds::WIDE);
}

#[test]
fn little_memory_and_full_disks_cost_patience_only() {
    endure_all(&kinds::NARROW);
}

#[test]
fn indexes_are_what_a_map_over_active_documents_gives() {
    endure_all(&kinds::VIEWS);
}

#[test]
fn indexes_follow_copies_that_are_set_back() {
    endure_all(&kinds::SET_BACK);
}

#[test]
fn one_seed_is_one_run() {
    for kind in [&kinds::ALL, &kinds::WIDE, &kinds::NARROW, &kinds::VIEWS] {
        let run = || endure(7, kind, 5_000).expect("a run that does not fail").trace;
        assert_eq!(run(), run(), "{}", kind.name);
    }
}
