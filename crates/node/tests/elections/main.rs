//! Every order of a few writes and faults, exhaustively: what nodes are told to do by the real metadata, orchestrator and agents,
//! over copies that only know which writes they have.
//!
//! What has to hold (`docs/promises.md`): within a term one node is active, and of those that hear the leader one serves; no
//! acknowledged write, of any level, is passed over by an election or destroyed by another copy as long as a copy has it
//! that nobody has failed over; and once faults end somebody serves.
//!
//! `ELECTIONS_WRITES` and `ELECTIONS_FAULTS` make it larger, `ELECTIONS_STATES` bounds it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod copy;
mod world;

use std::collections::{HashMap, VecDeque};

use base::bucket::BucketKind;

use world::{Bounds, Event, World};

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How a state was come to.
type Trail = HashMap<u64, (u64, Event)>;

fn trail(came_by: &Trail, mut at: u64) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(&(before, event)) = came_by.get(&at) {
        events.push(event);
        at = before;
    }
    events.reverse();
    events
}

fn explore(bounds: Bounds) {
    let limit = setting("ELECTIONS_STATES", usize::MAX);
    let first = World::new(bounds);
    let start = first.hash();
    let mut came_by = Trail::new();
    let mut queue = VecDeque::from([(start, first)]);
    let mut steps = 0_u64;
    while let Some((at, world)) = queue.pop_front() {
        for event in world.events() {
            let next = world.after(event);
            let hash = next.hash();
            steps += 1;
            if hash == start || came_by.contains_key(&hash) || came_by.len() >= limit {
                continue;
            }
            came_by.insert(hash, (at, event));
            if let Some(fault) = next.fault(&world).or_else(|| next.fault_after_quiet()) {
                panic!("{fault}\nafter {:#?}\n{next:#?}", trail(&came_by, hash));
            }
            queue.push_back((hash, next));
        }
    }
    println!("{bounds:?}: {} states, {steps} steps", came_by.len() + 1);
    assert!(came_by.len() > 100, "nothing was explored");
}

fn sizes(copies: u8, kind: BucketKind, writes: usize, faults: usize) {
    let (writes, faults) = (setting("ELECTIONS_WRITES", writes), setting("ELECTIONS_FAULTS", faults));
    explore(Bounds { copies, kind, writes, faults });
}

#[test]
fn two_persistent_copies() {
    sizes(2, BucketKind::Couchbase, 1, 2);
}

#[test]
fn two_copies_in_memory() {
    sizes(2, BucketKind::Ephemeral, 2, 2);
}

#[test]
fn three_persistent_copies() {
    sizes(3, BucketKind::Couchbase, 1, 1);
}

#[test]
fn three_copies_in_memory() {
    sizes(3, BucketKind::Ephemeral, 1, 1);
}
