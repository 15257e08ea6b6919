//! A consumer against the real producer over a real bucket.
//!
//! One seed decides everything:
//! - mutations, durable writes, collections, flushes, backfills;
//! - how many bytes of either direction arrive;
//! - links cut at any byte;
//! - streams closed and opened;
//! - restarts and crashes of the active;
//! - replicas without room.
//!
//! In the end the replica is what the active is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

// By the name that the engine's own tests use.
extern crate engine as settee_engine;

#[path = "../shared/collections.rs"]
mod collections;
mod copies;
mod crowded;
mod host;
mod link;
#[path = "../shared/seeds.rs"]
mod seeds;
mod shelf;
#[path = "../shared/sink.rs"]
mod sink;
#[path = "../../../engine/tests/support/mod.rs"]
mod support;
mod world;

use copies::{Copies, Node};
use shelf::Shelf;
use world::World;

/// Rounds per seed.
const STEPS: usize = 2_500;

fn seeds<C: Copies>(first: u64) {
    for seed in seeds::seeds(first) {
        println!("seed {seed}");
        let mut world = World::<C>::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.settle();
    }
}

#[test]
fn a_model_becomes_what_the_active_is_whatever_happens_on_the_way() {
    seeds::<Shelf>(1);
}

#[test]
fn a_replica_becomes_what_the_active_is_whatever_happens_on_the_way() {
    seeds::<Node>(1_000);
}
