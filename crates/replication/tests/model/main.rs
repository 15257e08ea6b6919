//! A producer over a real bucket against consumers that check what they are told.
//!
//! One seed decides everything. It draws mutations, collections that come and go, flushes, backfills, lost connections,
//! restarts and crashes of the bucket. It draws consumers that take little or much at once and resume from what they
//! have. What a consumer holds at the end of a snapshot must be what the bucket was at exactly that seqno. A plain log
//! of all mutations tells that.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

// By the name that the engine's own tests use.
extern crate engine as settee_engine;

#[path = "../shared/collections.rs"]
mod collections;
mod consumer;
#[path = "../shared/seeds.rs"]
mod seeds;
#[path = "../shared/sink.rs"]
mod sink;
#[path = "../../../engine/tests/support/mod.rs"]
mod support;
mod world;

use base::bucket::BucketKind;
use world::World;

/// Rounds per seed.
const STEPS: usize = 2_500;

fn run(kind: BucketKind, seed: u64) {
    let mut world = World::new(kind, seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
}

fn seeds(kind: BucketKind, first: u64) {
    for seed in seeds::seeds(first) {
        println!("seed {seed}");
        run(kind, seed);
    }
}

/// The clock stood still between two crashes.
#[test]
fn every_crash_begins_a_branch_that_no_consumer_takes_for_the_one_before() {
    [700_176, 801_143].into_iter().for_each(|seed| run(BucketKind::Couchbase, seed));
}

#[test]
fn consumers_of_a_persistent_bucket_end_with_what_it_holds() {
    seeds(BucketKind::Couchbase, 1);
}

#[test]
fn consumers_of_a_bucket_in_memory_end_with_what_it_holds() {
    seeds(BucketKind::Ephemeral, 1_000);
}
