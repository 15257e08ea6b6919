//! Two versions of the state machine in one cluster: nodes of the older one understand nothing that the newer one brings, and stop
//! before it.

use base::NodeId;
use settee_cluster::{
    Applied, ClusterError, Command, FailOver, Metadata, StartRebalance, consensus::ProposalId, level::LEVEL,
};

use crate::{
    seeds,
    simulation::{Faults, Simulation},
};

/// A version before this one.
fn older(seed: u64) -> u32 {
    (seed % u64::from(LEVEL)) as u32
}

fn run(simulation: &mut Simulation, steps: u32) {
    for step in 0..steps {
        simulation.step();
        if step % 10 == 0 {
            simulation.orchestrate();
        }
    }
}

/// Nobody stops, whatever the newer ones propose while some are older; and the cluster gets the newer version's level in the end.
#[test]
fn nodes_are_replaced_by_newer_ones_one_after_the_other() {
    for seed in seeds() {
        let (nodes, older) = (1 + (seed % 7) as usize, older(seed));
        println!("seed {seed}, {nodes} nodes, from level {older}");
        let faults = Faults { members: 0, ..Faults::ALL };
        let mut simulation = Simulation::at_level(seed, nodes as u16, faults, older);
        run(&mut simulation, 200);
        for at in 0..nodes {
            simulation.replace((at + seed as usize) % nodes, LEVEL);
            run(&mut simulation, 100);
            // A node that has heard nothing yet of its cluster goes by the lowest level.
            let has_risen = simulation.levels().iter().any(|level| *level > older);
            assert!(at + 1 == nodes || !has_risen, "some do not understand more");
        }
        simulation.heal();
        run(&mut simulation, 100);
        simulation.check_after_healing();
        assert_eq!(simulation.levels(), [LEVEL]);
        let leader = simulation.leader().unwrap();
        assert!(
            nodes < 3 || simulation.node(leader).metadata().auto_failover.armed,
            "newer changes are made"
        );
    }
}

/// Those that are left are no majority of the group before. So the level does not rise before the group has let the older nodes go. They
/// would stop at that, and nobody could be elected any more.
#[test]
fn the_level_rises_once_the_group_has_let_go_of_older_nodes_that_were_removed() {
    for seed in seeds() {
        let (nodes, older) = (2 + (seed % 2) as usize, older(seed));
        println!("seed {seed}, {nodes} nodes, from level {older}");
        let faults = Faults { delay: 5, slow_disk: true, ..Faults::NONE };
        let mut simulation = Simulation::at_level(seed, nodes as u16, faults, older);
        run(&mut simulation, 100);
        simulation.replace(0, LEVEL);
        run(&mut simulation, 100);
        let eject = (1..nodes).map(|at| NodeId(at as u16)).collect();
        let start = StartRebalance { id: "r".into(), keep: vec![NodeId(0)], eject, now_ms: 1 };
        simulation.propose(0, Command::StartRebalance(start));
        run(&mut simulation, 100);
        simulation.propose(0, Command::FinishRebalance { id: "r".into(), now_ms: 2 });
        for _ in 0..30 {
            simulation.step();
            simulation.orchestrate();
        }
        run(&mut simulation, 200);
        simulation.heal();
        run(&mut simulation, 100);
        assert!((1..nodes).all(|at| simulation.is_gone(at)), "they are told");
        simulation.check_after_healing();
        assert_eq!(simulation.levels(), [LEVEL]);
    }
}

/// A node that is started with the older version again takes no part, and says why; the others go on without it.
#[test]
fn a_node_that_goes_back_to_the_older_version_stops() {
    for seed in seeds() {
        let older = older(seed);
        let mut simulation = Simulation::at_level(seed, 3, Faults::NONE, older);
        (0..3).for_each(|at| simulation.replace(at, LEVEL));
        run(&mut simulation, 100);
        assert_eq!(simulation.levels(), [LEVEL]);
        let back = seed as usize % 3;
        simulation.replace(back, older);
        run(&mut simulation, 100);
        let broken = simulation.node(back).broken().unwrap();
        assert!(broken.contains("start this node with that version or a later one"), "{broken}");
        assert!(simulation.leader().is_some_and(|leader| leader != back));
        simulation.replace(back, LEVEL);
        run(&mut simulation, 100);
        simulation.check_after_healing();
    }
}

/// As a version would that counts something twice, now and then.
fn in_another_way(state: &Metadata, command: &Command) -> Result<(Metadata, Applied), ClusterError> {
    let (mut next, applied) = state.apply(command)?;
    if next.version.is_multiple_of(20) {
        next.quotas.data_mb += 1;
    }
    Ok((next, applied))
}

fn compare(simulation: &mut Simulation, steps: u32) {
    for _ in 0..steps {
        simulation.step();
        simulation.compare();
    }
}

/// One of several nodes makes something else of the log: it is named, and takes no part any more, until it is removed.
#[test]
fn a_node_whose_version_carries_changes_out_in_another_way_is_named_and_fenced() {
    for seed in seeds() {
        let nodes = 3 + (seed % 5) as usize;
        println!("seed {seed}, {nodes} nodes");
        let faults = Faults { drop: 3, delay: 5, slow_disk: true, ..Faults::NONE };
        let mut simulation = Simulation::new(seed, nodes as u16, faults);
        compare(&mut simulation, 100);
        assert!(simulation.divergence().fenced().is_empty());
        // A leader as well, which then has to go.
        let odd = simulation.leader().map_or(0, |leader| (leader + seed as usize % 2) % nodes);
        simulation.make_odd(odd, in_another_way);
        compare(&mut simulation, 600);
        let named: Vec<usize> =
            simulation.divergence().fenced().keys().map(|node| usize::from(node.get())).collect();
        assert_eq!(named, [odd]);
        let broken = simulation.node(odd).broken().unwrap().to_owned();
        assert!(broken.contains("differ") && broken.contains("remove the node"), "{broken}");
        // Nor does it take part after a restart, though it be the version of all others by then.
        simulation.make_odd(odd, Metadata::apply);
        compare(&mut simulation, 100);
        assert_eq!(simulation.node(odd).broken(), Some(broken.as_str()));
        let leader = simulation.leader().unwrap();
        assert_ne!(leader, odd);
        let node = NodeId(odd as u16);
        let fail_over = FailOver { nodes: vec![node], allow_unsafe: false, auto: false };
        for command in [Command::FailOver(fail_over), Command::RemoveNode { node }] {
            simulation.propose(simulation.leader().unwrap_or(leader), command);
            compare(&mut simulation, 200);
        }
        assert!(simulation.is_gone(odd), "it is told, however little it takes part");
    }
}

/// It is told to join a group that was formed anew, and hears no more of that group, whose founder is lost.
#[test]
fn a_node_that_was_fenced_founds_no_group_of_what_it_knows() {
    let mut tried = 0;
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 3, Faults { delay: 5, ..Faults::NONE });
        compare(&mut simulation, 200);
        let leader = simulation.leader().unwrap();
        let (odd, founder) = ((leader + 1) % 3, (leader + 2) % 3);
        simulation.make_odd(odd, in_another_way);
        compare(&mut simulation, 600);
        assert!(simulation.node(odd).broken().is_some());
        let lost = [leader, odd];
        simulation.separate(&lost);
        simulation.stop(leader);
        run(&mut simulation, 100);
        assert_eq!(simulation.reform(&lost), founder);
        let known = simulation.node(odd).metadata().rev_epoch;
        simulation.heal_cuts();
        let epoch = simulation.epoch();
        for _ in 0..400 {
            if simulation.node(odd).epoch() == epoch {
                break;
            }
            simulation.step();
        }
        assert_eq!(simulation.node(odd).epoch(), epoch, "it is told");
        if simulation.node(odd).metadata().rev_epoch > known {
            continue;
        }
        tried += 1;
        simulation.stop(founder);
        run(&mut simulation, 100);
        assert_eq!(simulation.node(odd).broken(), None, "it would join");
        let nodes = vec![NodeId(leader as u16), NodeId(founder as u16)];
        let command = Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false });
        let reformed = |simulation: &Simulation| {
            let id = ProposalId { origin: 9, number: 9 };
            simulation.node(odd).reform(epoch.next(1), id, command.clone())
        };
        assert!(reformed(&simulation).is_err());
        simulation.make_odd(odd, Metadata::apply);
        run(&mut simulation, 100);
        assert!(reformed(&simulation).is_err(), "after a restart either");
        simulation.heal();
        run(&mut simulation, 200);
        assert_eq!(simulation.node(odd).broken(), None, "the founder is back");
        assert!(simulation.node(odd).has_caught_up());
    }
    assert!(tried > 0);
}

/// Two of two that differ: nobody knows which one is right, so both are named and both go on.
#[test]
fn where_no_majority_agrees_all_are_named_and_none_is_fenced() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 2, Faults::NONE);
        compare(&mut simulation, 100);
        simulation.make_odd(1, in_another_way);
        compare(&mut simulation, 400);
        assert!(simulation.divergence().fenced().is_empty());
        assert_eq!(simulation.divergence().undecided().len(), 2);
        assert!((0..2).all(|at| simulation.node(at).broken().is_none()));
        let epoch = simulation.epoch();
        let before = simulation.checks.acknowledgements(epoch);
        compare(&mut simulation, 100);
        assert!(simulation.checks.acknowledgements(epoch) > before, "the cluster goes on");
    }
}
