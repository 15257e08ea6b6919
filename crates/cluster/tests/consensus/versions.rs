//! Two versions of the state machine in one cluster: nodes of the older one understand nothing that the newer one brings, and stop
//! before it.

use settee_cluster::level::LEVEL;

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
            assert!(
                at + 1 == nodes || simulation.levels().iter().all(|level| *level == older),
                "some do not understand more"
            );
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
