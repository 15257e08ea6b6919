//! Every order of a few writes, faults and changes, exhaustively. Nodes are told what to do by the real metadata, orchestrator and
//! agents. Their copies only know which writes they have, and go by the engine's rules. What has to hold is in [`checks`].
//!
//! The small sizes run always. `ELECTIONS_COPIES`, `_SPARES`, `_KIND` (`ephemeral`), `_WRITES`, `_FAULTS` and `_CHANGES` choose
//! another for the test `a_chosen_size`, which is ignored otherwise; `ELECTIONS_STATES` and `ELECTIONS_SECONDS` bound it. With
//! `ELECTIONS_DEEP=1` each way is gone to its end before the next one. That takes some 60 bytes a state rather than kilobytes, and a fault is
//! told with a longer way. Where a size is too large for that, `ELECTIONS_WALKS` takes so many random ways through it instead, from
//! `ELECTIONS_SEED` on.
//!
//! ```sh
//! ELECTIONS_COPIES=3 ELECTIONS_WRITES=2 ELECTIONS_FAULTS=2 \
//!     cargo test --release -p settee-node --test elections -- --ignored --nocapture a_chosen_size
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod canon;
mod checks;
mod copy;
mod events;
mod restored;
mod ways;
mod world;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Instant,
};

use base::bucket::BucketKind;

use canon::fingerprint;
use events::Event;
use world::{Bounds, World};

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How a state was come to: from which one, by the number of the event.
type Trail = HashMap<u128, (u128, u8)>;

fn trail(came_by: &Trail, first: &World, mut at: u128) -> Vec<Event> {
    let mut choices = Vec::new();
    while let Some(&(before, choice)) = came_by.get(&at) {
        choices.push(choice);
        at = before;
    }
    let mut world = first.clone();
    let mut events = Vec::new();
    for &choice in choices.iter().rev() {
        // A fingerprint stands for a state and those that differ in names: numbers of nodes may.
        let Some(&event) = world.events().get(usize::from(choice)) else { break };
        events.push(event);
        world = world.after(event);
    }
    events
}

fn explore(bounds: Bounds) {
    if let Err(fault) = search(World::new(bounds)) {
        panic!("{fault}");
    }
}

/// The first fault that is come across from a state on, and how.
fn search(first: World) -> Result<(), String> {
    let bounds = first.bounds;
    let (limit, seconds) =
        (setting("ELECTIONS_STATES", usize::MAX), setting("ELECTIONS_SECONDS", usize::MAX));
    let begun = Instant::now();
    let start = fingerprint(&first);
    let mut came_by = Trail::new();
    let mut fine = HashSet::new();
    let mut queue = VecDeque::from([(start, first.clone())]);
    let (mut steps, mut is_whole) = (0_u64, true);
    let is_deep = setting("ELECTIONS_DEEP", 0) > 0;
    while let Some((at, world)) = if is_deep { queue.pop_back() } else { queue.pop_front() } {
        if begun.elapsed().as_secs() >= seconds as u64 {
            is_whole = false;
            break;
        }
        for (choice, event) in world.events().into_iter().enumerate() {
            let next = world.after(event);
            let print = fingerprint(&next);
            steps += 1;
            if print == start || came_by.contains_key(&print) {
                continue;
            }
            if came_by.len() >= limit {
                is_whole = false;
                continue;
            }
            came_by.insert(print, (at, choice as u8));
            if let Some(fault) = next.fault(&world).or_else(|| next.fault_after_quiet(&mut fine)) {
                let way = trail(&came_by, &first, print);
                return Err(format!("{fault}\nafter {way:?}\nlast {event:?}\n{next:#?}"));
            }
            queue.push_back((print, next));
        }
    }
    let (states, took) = (came_by.len() + 1, begun.elapsed().as_secs_f32());
    let extent = if is_whole { "all" } else { "not all" };
    println!("{bounds:?}: {states} states ({extent}), {steps} steps, {} left, {took:.1} s", queue.len());
    assert!(states > 100, "nothing was explored");
    Ok(())
}

/// Random ways of that many events.
fn walk(bounds: Bounds, walks: usize) {
    const EVENTS: usize = 60;
    let first = setting("ELECTIONS_SEED", 1);
    let mut states = HashSet::new();
    let mut fine = HashSet::new();
    for seed in first..first + walks {
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let mut world = World::new(bounds);
        let mut events = Vec::new();
        for _ in 0..EVENTS {
            let Some(event) = rng.choice(world.events()) else { break };
            let next = world.after(event);
            events.push(event);
            if let Some(fault) = next.fault(&world) {
                panic!("{fault}\nseed {seed}, after {events:?}\n{next:#?}");
            }
            if states.insert(fingerprint(&next))
                && let Some(fault) = next.fault_after_quiet(&mut fine)
            {
                panic!("{fault}\nseed {seed}, after {events:?}\n{next:#?}");
            }
            world = next;
        }
    }
    println!("{bounds:?}: {walks} random ways, {} states", states.len());
}

fn sizes(copies: u8, spares: u8, kind: BucketKind, [writes, faults, changes]: [usize; 3]) {
    explore(Bounds { copies, spares, kind, writes, faults, changes });
}

#[test]
fn two_persistent_copies() {
    sizes(2, 0, BucketKind::Couchbase, [1, 2, 0]);
}

#[test]
fn two_copies_in_memory() {
    sizes(2, 0, BucketKind::Ephemeral, [2, 2, 0]);
}

#[test]
fn three_persistent_copies() {
    sizes(3, 0, BucketKind::Couchbase, [1, 1, 0]);
}

#[test]
fn three_copies_in_memory() {
    sizes(3, 0, BucketKind::Ephemeral, [1, 1, 0]);
}

#[test]
fn members_and_settings_change_between_faults() {
    sizes(2, 1, BucketKind::Couchbase, [0, 0, 1]);
    sizes(2, 1, BucketKind::Ephemeral, [1, 0, 1]);
}

/// Of two persistent copies, with one write and one fault, one leaves gracefully after these events.
fn leaving(before: &[Event], leaver: usize) -> World {
    let kind = BucketKind::Couchbase;
    let first = World::new(Bounds { copies: 2, spares: 0, kind, writes: 1, faults: 1, changes: 1 });
    before.iter().chain(&[Event::Graceful(leaver)]).fold(first, |world, &event| world.after(event))
}

#[test]
fn two_persistent_copies_while_a_node_leaves() {
    let write = Event::Write { at: 0, told: 0b10 };
    for (before, leaver) in [(&[][..], 0), (&[], 1), (&[write], 0), (&[write], 1)] {
        search(leaving(before, leaver)).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// Were durable writes to stay in memory while a node leaves gracefully, one would be lost with the kill of the other one.
#[test]
fn writes_acknowledged_in_memory_while_a_node_leaves_are_found_out() {
    let mut first = leaving(&[], 0);
    first.stays_in_memory = true;
    let fault = search(first).expect_err("a fault");
    assert!(fault.contains("only one that has left has the durable writes"), "{fault}");
}

/// Were copies not to say that they may have lost something, a write would be lost by one kill. The search has to find that.
#[test]
fn copies_that_hide_what_they_have_lost_are_found_out() {
    for kind in [BucketKind::Couchbase, BucketKind::Ephemeral] {
        let bounds = Bounds { copies: 2, spares: 0, kind, writes: 1, faults: 2, changes: 0 };
        let mut first = World::new(bounds);
        first.hides_losses = true;
        let fault = search(first).expect_err("a fault");
        assert!(fault.contains("passed over or destroyed"), "{fault}");
    }
}

#[test]
fn three_nodes_under_leases() {
    sizes(3, 0, BucketKind::Ephemeral, [0, 2, 0]);
}

#[test]
#[ignore = "as large as one likes: see the module"]
fn a_chosen_size() {
    let is_volatile = std::env::var("ELECTIONS_KIND").is_ok_and(|kind| kind == "ephemeral");
    let bounds = Bounds {
        copies: setting("ELECTIONS_COPIES", 2) as u8,
        spares: setting("ELECTIONS_SPARES", 0) as u8,
        kind: if is_volatile { BucketKind::Ephemeral } else { BucketKind::Couchbase },
        writes: setting("ELECTIONS_WRITES", 2),
        faults: setting("ELECTIONS_FAULTS", 2),
        changes: setting("ELECTIONS_CHANGES", 0),
    };
    match setting("ELECTIONS_WALKS", 0) {
        0 => explore(bounds),
        walks => walk(bounds, walks),
    }
}
