//! A whole group in one process, from one seed: members, their disks, and a network that drops, delays, repeats and cuts.
//!
//! After every step: at most one leader per term; what members applied are prefixes of one another. After healing:
//! nothing acknowledged is lost, the group makes progress, and it consists of whom the metadata names. Many seeds:
//!
//! ```sh
//! CONSENSUS_SEEDS=1000 cargo test --release -p settee-cluster --test consensus -- --nocapture
//! ```
#![allow(clippy::unwrap_used, reason = "tests")]

mod checks;
mod simulation;

use simulation::{Faults, Simulation};

/// Seeds of every run of the tests.
const SEEDS: u64 = 12;

fn seeds() -> impl Iterator<Item = u64> {
    let count = std::env::var("CONSENSUS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    1..=count
}

/// Runs a group of `nodes` under `faults`, heals it and looks at what is left.
fn endure(seed: u64, nodes: u16, steps: u32, faults: Faults) {
    println!("seed {seed}, {nodes} nodes, {faults:?}");
    let mut simulation = Simulation::new(seed, nodes, faults);
    for _ in 0..steps {
        simulation.step();
    }
    simulation.heal();
    simulation.check_after_healing();
}

#[test]
fn groups_survive_everything_at_once() {
    for seed in seeds() {
        endure(seed, 1 + (seed % 7) as u16, 1500, Faults::ALL);
    }
}

#[test]
fn groups_survive_crashes_of_slow_disks() {
    for seed in seeds() {
        endure(seed, 3, 1500, Faults { crash: 40, slow_disk: true, ..Faults::NONE });
    }
}

#[test]
fn groups_survive_partitions() {
    for seed in seeds() {
        endure(seed, 5, 1500, Faults { cut: 30, ..Faults::NONE });
    }
}

#[test]
fn without_faults_there_is_one_leader_from_beginning_to_end() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 5, Faults::NONE);
        (0..600).for_each(|_| simulation.step());
        assert_eq!(simulation.checks.leaders(), 1);
        simulation.check_after_healing();
    }
}

#[test]
fn one_seed_is_one_run() {
    let run = || {
        let mut simulation = Simulation::new(7, 5, Faults::ALL);
        (0..800).for_each(|_| simulation.step());
        simulation.trace()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_member_far_behind_gets_a_snapshot() {
    let mut simulation = Simulation::new(3, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    simulation.stop(2);
    // More than the log keeps.
    simulation.proposals_per_step = 4;
    (0..600).for_each(|_| simulation.step());
    simulation.start(2);
    simulation.check_after_healing();
    assert!(simulation.snapshots_installed() > 0);
}

#[test]
fn a_leader_that_stops_hands_over_at_once() {
    let mut simulation = Simulation::new(5, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    let before = simulation.leader().unwrap();
    assert!(simulation.hand_over(before).is_some());
    // Far less than an election timeout.
    (0..4).for_each(|_| simulation.step());
    let after = simulation.leader().unwrap();
    assert_ne!(before, after);
}

#[test]
fn a_group_of_one_needs_no_time_and_writes_nothing_when_idle() {
    let mut simulation = Simulation::new(1, 1, Faults::NONE);
    simulation.proposals_per_step = 0;
    simulation.run_without_ticks();
    assert_eq!(simulation.leader(), Some(0));
    assert!(simulation.node(0).is_alone() && simulation.node(0).has_caught_up());
    let writes = simulation.writes();
    (0..100).for_each(|_| simulation.step());
    assert_eq!(simulation.writes(), writes);
}
