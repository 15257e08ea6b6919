//! Ways that larger sizes have found, or that show what a rule is for, and that are too long for the sizes that run always.

use std::collections::HashSet;

use base::bucket::BucketKind;

use super::{
    events::Event::{
        self, Acknowledge, AgreeOnEnd, Cut, FailOver, Feed, Graceful, Kill, Lead, LoseDisk, ProposeEnd,
        Rebalance, Recover, Stick, Stop, Sync, Write,
    },
    world::{Bounds, World},
};

/// So many persistent copies and spare nodes, and what happens to them.
fn go(copies: u8, spares: u8, events: &[Event]) -> World {
    go_with(copies, spares, 1, events)
}

/// The same with so many changes of settings and members.
fn go_with(copies: u8, spares: u8, changes: usize, events: &[Event]) -> World {
    let kind = BucketKind::Couchbase;
    let bounds = Bounds { copies, spares, kind, writes: 2, faults: 3, changes };
    events.iter().fold(World::new(bounds), |world, &event| {
        assert!(world.events().contains(&event), "{event:?} cannot happen");
        let next = world.after(event);
        let fault = next.fault(&world).or_else(|| next.fault_after_quiet(&mut HashSet::new()));
        assert_eq!(fault, None, "after {event:?} of {events:?}");
        next
    })
}

/// The third copy is being begun anew when an operator does without the second one. The vBucket is given up after the operator has
/// decided to go on with what that one has.
#[test]
fn a_node_is_recovered_before_the_election_ends_that_it_was_failed_over_for() {
    let mut world =
        go(3, 0, &[FailOver(1), Feed { to: 2, all: false }, FailOver(0), Recover { at: 0, order: 0 }]);
    for _ in 0..3 {
        world.lead();
    }
    assert_eq!(world.serving(), Some(0));
}

/// Of two copies one was killed, and never had anything on disk. The other one is being begun anew.
#[test]
fn nobody_has_a_whole_copy_after_a_kill_and_a_failover() {
    go(
        3,
        0,
        &[Kill(1), Rebalance { without: Some(1), order: 0 }, Lead, Feed { to: 2, all: false }, FailOver(0)],
    );
}

/// What it had in memory is gone with the kill, and the stop syncs what is left. The other copy has all that was acknowledged.
#[test]
fn a_copy_that_was_killed_does_not_count_after_a_clean_stop() {
    let write = Write { at: 0, told: 0b10 };
    go(2, 0, &[write, Sync(0), write, Cut(1), Kill(0), Stop(0), Lead, Lead]);
}

/// The third node is in the new chain, and the second one counts until that has caught up.
#[test]
fn a_write_that_only_the_new_chain_has_is_not_acknowledged_as_durable() {
    let change = [
        Rebalance { without: Some(1), order: 0 },
        Lead,
        Feed { to: 2, all: true },
        Lead,
        Feed { to: 1, all: true },
        Feed { to: 2, all: true },
    ];
    let lost = [Write { at: 0, told: 0b100 }, Cut(2), Kill(0), Lead, Lead];
    let events: Vec<Event> = change.into_iter().chain(lost).collect();
    let world = go(2, 1, &events);
    assert_eq!(world.durable, 0, "the one before was not told");
}

/// The disk of the copy that is left is gone before it is agreed on that the other one has left. What that one has is served once it is
/// recovered.
#[test]
fn a_copy_that_has_lost_all_does_not_take_the_place_of_one_that_has_just_left() {
    let write = Write { at: 0, told: 0b10 };
    let before = [write, Sync(0), Graceful(1), ProposeEnd, LoseDisk(0), AgreeOnEnd, Lead, Lead];
    let mut world = go_with(2, 0, 2, &before);
    assert_eq!((world.serving(), world.durable), (None, 1));
    world = world.after(Recover { at: 1, order: 0 });
    for _ in 0..4 {
        world.lead();
    }
    assert_eq!(world.nodes[world.serving().unwrap()].held.log, [0]);
}

/// A write that was acknowledged in memory is on that copy's disk before the failover may end, and a later one before it is acknowledged.
#[test]
fn a_copy_that_is_killed_when_the_other_one_leaves_has_all_that_was_durable() {
    let write = Write { at: 0, told: 0b10 };
    let mut world = go_with(2, 0, 2, &[write, Graceful(1), Lead, ProposeEnd]);
    assert_eq!((world.durable, world.is_ending), (1, false));
    for event in [Sync(0), ProposeEnd, write] {
        world = world.after(event);
    }
    assert_eq!((world.durable, world.is_ending), (1, true), "the second one is in memory only");
    for event in [Sync(1), Sync(0), Acknowledge(0), Kill(0), AgreeOnEnd, Lead, Lead] {
        world = world.after(event);
    }
    assert_eq!((world.durable, world.serving()), (0b11, Some(0)));
    assert_eq!(world.nodes[0].held.log, [0, 1]);
}

/// A former active copy was killed, and its node applies nothing new. If the node says so it is waited for. Otherwise it is there and does not
/// answer: after ten seconds the other copy takes its place. What only that disk has is lost then, unless it is durable.
#[test]
fn a_former_active_that_is_stuck_is_waited_for_without_an_end_only_if_it_says_so() {
    for (says, serving) in [(true, None), (false, Some(1))] {
        let world =
            go(2, 0, &[Write { at: 0, told: 0 }, Sync(0), Kill(0), Stick { at: 0, says }, Lead, Lead]);
        assert_eq!((world.serving(), world.acknowledged, world.durable), (serving, 1, 0));
    }
}
