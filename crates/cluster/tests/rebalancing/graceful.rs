//! Graceful failovers wait for the copies that they leave: those of nodes that are down, or have to catch up.

use base::NodeId;
use settee_cluster::{Command, FailOver, Membership, RebalanceResult};

use crate::world::World;

/// It is failed over gracefully.
const LEAVER: NodeId = NodeId(0);
/// It is not well.
const OTHER: NodeId = NodeId(2);
/// Longer than whatever is waited for a while only before it is done all the same.
const LONG_MS: u64 = 40_000;

/// So many nodes and three copies of everything; nobody is failed over but by hand.
fn cluster(nodes: u16) -> World {
    let mut world = World::new(5, nodes);
    world.is_rough = false;
    allow_automatic(&mut world, false);
    world.create_bucket(16, 2).unwrap();
    world.run(5_000);
    world
}

fn allow_automatic(world: &mut World, enabled: bool) {
    let settings = Command::SetAutoFailover { enabled, timeout_secs: 5, max_count: 1, whole_groups: false };
    world.apply(&settings).unwrap();
}

fn stop_other(world: &mut World) {
    world.nodes.get_mut(&OTHER).unwrap().stop(false);
}

fn waits_for(world: &World) -> String {
    world.progress().and_then(|progress| progress.waits_for).unwrap_or_default()
}

fn has_failed(world: &World, node: NodeId) -> bool {
    world.meta().node_by_id(node).is_some_and(|node| node.membership == Membership::InactiveFailed)
}

/// It ends within a minute, as it was meant to.
fn ends(world: &mut World) {
    world.settle(60_000);
    assert!(has_failed(world, LEAVER));
    assert_eq!(world.meta().last_rebalance.as_ref().unwrap().result, RebalanceResult::Completed);
}

#[test]
fn a_node_that_is_down_is_waited_for_until_its_copies_have_caught_up() {
    let mut world = cluster(3);
    stop_other(&mut world);
    // More than copies may be behind.
    world.write_one_in = 1;
    world.run(150_000);
    let before = world.active_on(LEAVER);
    assert!(before.0 > 0);
    assert!(world.fail_over_gracefully(LEAVER));
    world.run(LONG_MS);
    assert_eq!(world.active_on(LEAVER), before);
    assert_eq!(waits_for(&world), "node 10.0.0.2:8091 has not been heard of");
    world.restart_all();
    world.run(5_000);
    assert_eq!(world.active_on(LEAVER), before);
    assert_eq!(waits_for(&world), "node 10.0.0.2:8091 has to catch up with its copies of bucket \"b2\"");
    ends(&mut world);
}

#[test]
fn nobody_is_failed_over_while_one_is_down_that_others_are_to_do_with() {
    let mut world = cluster(3);
    assert!(world.fail_over_gracefully(LEAVER));
    world.tick_until(60_000, |world| world.active_on(LEAVER).0 == 0);
    stop_other(&mut world);
    world.run(LONG_MS);
    assert!(!has_failed(&world, LEAVER));
    assert_eq!(waits_for(&world), "node 10.0.0.2:8091 has not been heard of");
    world.restart_all();
    ends(&mut world);
}

#[test]
fn a_node_that_is_failed_over_by_hand_is_waited_for_no_longer() {
    let mut world = cluster(3);
    stop_other(&mut world);
    assert!(world.fail_over_gracefully(LEAVER));
    world.run(LONG_MS);
    assert!(world.active_on(LEAVER).0 > 0);
    let nodes = vec![OTHER];
    world.apply(&Command::FailOver(FailOver { nodes, allow_unsafe: false, auto: false })).unwrap();
    // One copy is left of three, of which nobody expects that it takes durable writes.
    ends(&mut world);
}

#[test]
fn a_node_that_is_failed_over_automatically_is_waited_for_no_longer() {
    let mut world = cluster(4);
    allow_automatic(&mut world, true);
    world.run(5_000);
    stop_other(&mut world);
    assert!(world.fail_over_gracefully(LEAVER));
    ends(&mut world);
    assert!(has_failed(&world, OTHER), "what the one that leaves has is what makes that safe");
}
