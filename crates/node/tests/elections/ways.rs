//! Ways that larger sizes have found, and that are too long for the sizes that run always.

use std::collections::HashSet;

use base::bucket::BucketKind;

use super::{
    events::Event::{self, FailOver, Feed, Kill, Lead, Rebalance, Recover},
    world::{Bounds, World},
};

/// Three persistent copies of nothing, and what happens to them.
fn go(events: &[Event]) -> World {
    let kind = BucketKind::Couchbase;
    let bounds = Bounds { copies: 3, spares: 0, kind, writes: 0, faults: 2, changes: 1 };
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
    let mut world = go(&[FailOver(1), Feed { to: 2, all: false }, FailOver(0), Recover { at: 0, order: 0 }]);
    for _ in 0..3 {
        world.lead();
    }
    assert_eq!(world.serving(), Some(0));
}

/// Of two copies one was killed, and never had anything on disk. The other one is being begun anew.
#[test]
fn nobody_has_a_whole_copy_after_a_kill_and_a_failover() {
    go(&[Kill(1), Rebalance { without: Some(1), order: 0 }, Lead, Feed { to: 2, all: false }, FailOver(0)]);
}
