//! Metadata, orchestrator and fake nodes together, from a seed: whatever happens, nothing acknowledged is lost, nobody
//! serves twice, and every rebalance ends.
//!
//! `REBALANCE_SEEDS=5000 cargo test --release -p settee-cluster --test rebalancing` runs more seeds.

#![allow(clippy::unwrap_used, reason = "tests")]

mod fake_node;
mod rng;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use base::NodeId;
use settee_cluster::Command;
use world::{TICK_MS, World};

/// Seeds that every run of the tests goes through.
const SEEDS: u64 = 40;

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("REBALANCE_SEED").unwrap_or(0);
    first..first + number("REBALANCE_SEEDS").unwrap_or(SEEDS)
}

fn for_each_seed(run: impl Fn(u64)) {
    for seed in seeds() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("failed with REBALANCE_SEED={seed} REBALANCE_SEEDS=1");
            resume_unwind(panic);
        }
    }
}

#[test]
fn whatever_happens_nothing_is_lost_and_everything_ends() {
    for_each_seed(|seed| {
        let mut world = World::new(seed, 3 + (seed % 5) as u16);
        let timeout_secs = 5 + (seed % 7) as u32;
        let auto = Command::SetAutoFailover {
            enabled: seed % 2 == 0,
            timeout_secs,
            max_count: 100,
            whole_groups: false,
        };
        world.apply(&auto).unwrap();
        for replicas in [1, (seed % 4) as u8] {
            world.create_bucket(16, replicas).unwrap();
        }
        for _ in 0..1_500 {
            if world.rng.one_in(30) {
                world.disturb();
            }
            world.tick();
        }
        world.heal();
        world.settle(600_000);
        // What lost its last copy is made anew, and every node that is left takes part.
        world.start_rebalance(&[]);
        world.settle(600_000);
        world.write_one_in = u64::MAX;
        (0..200).for_each(|_| world.tick());
        world.check_copies();
    });
}

#[test]
fn undisturbed_rebalances_move_as_little_as_possible() {
    for_each_seed(|seed| {
        let mut world = World::new(seed, 2 + (seed % 4) as u16);
        world.is_rough = false;
        for replicas in 0..=(seed % 3) as u8 {
            world.create_bucket(64, replicas).unwrap();
        }
        (0..100).for_each(|_| world.tick());
        for round in 0..4 {
            let nodes: Vec<NodeId> = world.meta().nodes.iter().map(|node| node.id).collect();
            let eject = match (seed + round) % 3 {
                0 => Vec::new(),
                1 if nodes.len() > 1 => vec![nodes[0]],
                _ => vec![nodes[nodes.len() - 1]],
            };
            if (seed + round) % 3 != 1 || nodes.len() < 3 {
                world.add_node();
            }
            let before = world.copies_begun;
            assert!(world.start_rebalance(&eject));
            let ideal = world.meta().rebalance.as_ref().unwrap().copies;
            world.settle(3_600_000);
            let moved = world.copies_begun - before;
            assert!(moved * 10 <= ideal * 11, "{moved} copies moved where {ideal} had to");
        }
        world.write_one_in = u64::MAX;
        (0..50).for_each(|_| world.tick());
        world.check_copies();
    });
}

#[test]
fn fifty_nodes_take_in_and_give_up_nodes() {
    let mut world = World::new(7, 47);
    world.is_rough = false;
    world.create_bucket(1024, 2).unwrap();
    (0..20).for_each(|_| world.tick());
    for _ in 0..3 {
        world.add_node();
    }
    assert!(world.start_rebalance(&[NodeId(3), NodeId(11)]));
    let ideal = world.meta().rebalance.as_ref().unwrap().copies;
    let before = world.copies_begun;
    for _ in 0..100 {
        world.tick();
    }
    world.change_leader();
    world.settle(600_000);
    assert_eq!(world.meta().nodes.len(), 48);
    assert!((world.copies_begun - before) * 10 <= ideal * 11);
}

#[test]
fn the_time_left_is_right_within_a_fifth_after_the_first_tenth() {
    let mut world = World::new(11, 3);
    world.is_rough = false;
    world.create_bucket(64, 1).unwrap();
    world.write_one_in = 2;
    (0..200).for_each(|_| world.tick());
    (world.write_one_in, world.speed) = (200, 2);
    world.add_node();
    assert!(world.start_rebalance(&[]));
    let began = world.now_ms;
    let (mut guesses, mut taken) = (Vec::new(), Vec::new());
    while world.meta().rebalance.is_some() {
        world.tick();
        if let Some(progress) = world.progress() {
            // The node that was added has the highest number.
            taken.extend(progress.nodes.last_key_value().map(|(_, node)| node.incoming));
            guesses.push((world.now_ms, progress.total, progress.eta_secs));
        }
    }
    let last = taken.last().unwrap();
    assert!(last.total > 0 && last.done > last.total * 9 / 10, "{last:?}");
    assert!(taken.iter().any(|taken| taken.done < taken.total / 2), "it came bit by bit: {taken:?}");
    let took = world.now_ms - began;
    let checked = guesses.iter().filter(|(at, total, _)| *total >= 0.1 && *at < began + took * 9 / 10);
    for (at, total, eta) in checked {
        let guess = (at - began + eta.unwrap() * 1000) as f64;
        let off = guess / took as f64 - 1.0;
        assert!(
            off.abs() <= 0.2,
            "at {} s of {} s, {total:.2} done, it says {eta:?} s",
            (at - began) / 1000,
            took / 1000
        );
    }
    assert!(guesses.len() as u64 > 10_000 / TICK_MS);
}
