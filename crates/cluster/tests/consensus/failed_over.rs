//! A member that was failed over: what it says when it lies moves nobody, and an honest one is not lost.

use base::NodeId;
use settee_cluster::{Command, FailOver, Membership, Recovery};

use crate::simulation::{Faults, Forged, Simulation};

/// Kinds of messages, as the codec numbers them.
const APPEND: u8 = 1;
const APPEND_RESPONSE: u8 = 2;
const VOTE: u8 = 3;
const SNAPSHOT: u8 = 5;
const HEARTBEAT: u8 = 6;
const HEARTBEAT_RESPONSE: u8 = 7;
const TIMEOUT_NOW: u8 = 8;
const PRE_VOTE: u8 = 11;
const PRE_VOTE_RESPONSE: u8 = 12;
const CLAIMS: [u8; 7] = [APPEND, SNAPSHOT, HEARTBEAT, TIMEOUT_NOW, VOTE, PRE_VOTE, PRE_VOTE_RESPONSE];
/// How a member asks for votes that was asked to lead.
const TRANSFER: &[u8] = b"CampaignTransfer";
/// Steps after which a group of healthy members has done what is to be done.
const SOON: usize = 100;
/// For so many ticks without a leader a member goes on to distrust nodes that were failed over.
const LEADERLESS: usize = 100;

fn run(simulation: &mut Simulation, steps: usize) {
    (0..steps).for_each(|_| simulation.step());
}

fn until(simulation: &mut Simulation, what: &str, steps: usize, holds: impl Fn(&Simulation) -> bool) {
    for _ in 0..steps {
        if holds(simulation) {
            return;
        }
        simulation.step();
    }
    assert!(holds(simulation), "{what} is waited for in vain");
}

fn fail_over(simulation: &mut Simulation, at: usize, failed: usize) {
    let nodes = vec![NodeId(failed as u16)];
    simulation.propose(at, Command::FailOver(FailOver { nodes, allow_unsafe: true, auto: false }));
}

fn learns(simulation: &Simulation, at: usize, node: usize) -> bool {
    simulation.node(at).members().1.contains(&NodeId(node as u16))
}

/// A group of four in which one that does not lead was failed over, is away and votes no more: who leads, and that one.
fn without_one(seed: u64) -> (Simulation, usize, usize) {
    let mut simulation = Simulation::new(seed, 4, Faults::NONE);
    run(&mut simulation, SOON);
    let leader = simulation.leader().unwrap();
    let failed = (leader + 1 + seed as usize % 3) % 4;
    simulation.stop(failed);
    fail_over(&mut simulation, leader, failed);
    let others = others(failed);
    let all_know = |simulation: &Simulation| others.iter().all(|at| learns(simulation, *at, failed));
    until(&mut simulation, "three that vote", 2 * SOON, all_know);
    (simulation, leader, failed)
}

fn others(failed: usize) -> Vec<usize> {
    (0..4).filter(|at| *at != failed).collect()
}

fn forged(kind: u8, term: u64) -> Forged {
    let context = if kind == VOTE { TRANSFER } else { &[] };
    Forged { kind, term, place: (0, 0), reject: false, context }
}

#[test]
fn what_a_failed_over_member_claims_neither_deposes_the_leader_nor_is_applied() {
    for seed in 1..5 {
        let (mut simulation, leader, failed) = without_one(seed);
        let liar = NodeId(failed as u16);
        let (term, epoch) = (simulation.node(leader).term(), simulation.epoch());
        for kind in CLAIMS {
            for ahead in [0, 1, 2, 50, 1 << 40] {
                // Snapshots and votes of a log that goes further than every other.
                let place =
                    if kind == HEARTBEAT || kind == APPEND { (0, 0) } else { (1 << 30, term + ahead) };
                for at in others(failed) {
                    let claim =
                        Forged { place, reject: kind == PRE_VOTE_RESPONSE, ..forged(kind, term + ahead) };
                    simulation.forge(liar, at, claim);
                }
                simulation.step();
                assert_eq!(simulation.leader(), Some(leader), "kind {kind}, {ahead} ahead");
                let led = |at: usize| (simulation.node(at).leader(), simulation.node(at).term());
                for at in others(failed) {
                    assert_eq!(led(at), (Some(NodeId(leader as u16)), term), "kind {kind}, {ahead} ahead");
                }
            }
        }
        for at in others(failed) {
            simulation.forge_notice(liar, at);
            simulation.step();
            assert_eq!(
                simulation.node(at).epoch(),
                epoch,
                "it begins again by the word of a node that was failed over"
            );
        }
        simulation.start(failed);
        simulation.heal();
        simulation.check_after_healing();
    }
}

#[test]
fn what_a_failed_over_member_refuses_costs_a_leader_one_term_at_most() {
    for kind in [APPEND_RESPONSE, HEARTBEAT_RESPONSE] {
        let (mut simulation, leader, failed) = without_one(2);
        let liar = NodeId(failed as u16);
        let before = simulation.node(leader).term();
        for ahead in 1..100 {
            for at in others(failed) {
                let term = simulation.node(at).term() + ahead;
                simulation.forge(liar, at, Forged { reject: true, ..forged(kind, term) });
            }
            simulation.step();
        }
        assert_eq!(simulation.leader(), Some(leader), "the others have it lead again at once");
        assert_eq!(
            simulation.node(leader).term(),
            before + 2,
            "behind the term that the node has named first"
        );
        // A term that none is behind would be the last one.
        simulation.forge(liar, leader, Forged { reject: true, ..forged(kind, u64::MAX) });
        run(&mut simulation, 3);
        assert_eq!(simulation.node(leader).term(), before + 2);
    }
}

#[test]
fn where_the_leader_is_lost_others_are_elected_and_not_the_failed_over_member_that_claims_to_lead() {
    for seed in 1..5 {
        let (mut simulation, leader, failed) = without_one(seed);
        let liar = NodeId(failed as u16);
        simulation.stop(leader);
        let left: Vec<usize> = others(failed).into_iter().filter(|at| *at != leader).collect();
        for ahead in 1..LEADERLESS as u64 {
            for at in &left {
                let term = simulation.node(*at).term() + ahead;
                CLAIMS.iter().for_each(|kind| simulation.forge(liar, *at, forged(*kind, term)));
                simulation.forge_notice(liar, *at);
            }
            simulation.step();
            for at in &left {
                assert_ne!(simulation.node(*at).leader(), Some(liar));
                assert_eq!(simulation.node(*at).epoch(), simulation.epoch());
            }
        }
        assert!(simulation.leader().is_some_and(|leader| left.contains(&leader)), "one of their own leads");
    }
}

/// It was asked to lead, and cut off just then: it has begun a term that nobody else has heard of.
#[test]
fn a_failed_over_member_that_is_ahead_by_a_term_hears_what_is_agreed_on_and_votes_again_once_it_is_recovered()
{
    for seed in 1..5 {
        let mut simulation = Simulation::new(seed, 4, Faults::NONE);
        run(&mut simulation, SOON);
        let leader = simulation.leader().unwrap();
        let failed = (leader + 1) % 4;
        let term = simulation.node(leader).term();
        simulation.forge(NodeId(leader as u16), failed, forged(TIMEOUT_NOW, term));
        simulation.separate(&[failed]);
        simulation.step();
        assert_eq!(simulation.node(failed).term(), term + 1, "it asks for votes");
        fail_over(&mut simulation, leader, failed);
        until(&mut simulation, "three that vote", SOON, |simulation| learns(simulation, leader, failed));
        assert_eq!(simulation.node(leader).term(), term);
        simulation.heal();
        let knows = |simulation: &Simulation| {
            simulation.node(failed).metadata().node_by_id(NodeId(failed as u16)).unwrap().is_failed_over()
        };
        until(&mut simulation, "that it hears of its failover", SOON, knows);
        assert_eq!(simulation.leader(), Some(leader));
        simulation.propose(leader, Command::ReAddNode { node: NodeId(failed as u16) });
        until(&mut simulation, "that it votes again", SOON, |simulation| {
            simulation.node(leader).members().0.contains(&NodeId(failed as u16))
        });
        simulation.check_after_healing();
    }
}

#[test]
fn a_leader_that_was_failed_over_hands_over() {
    for seed in 1..5 {
        let mut simulation = Simulation::new(seed, 3, Faults::NONE);
        run(&mut simulation, SOON);
        let failed = simulation.leader().unwrap();
        fail_over(&mut simulation, failed, failed);
        // Far less than an election timeout would take in all.
        until(&mut simulation, "another one that leads", 10, |simulation| {
            simulation.leader().is_some_and(|leader| leader != failed)
        });
        until(&mut simulation, "that it learns only", SOON, |simulation| learns(simulation, failed, failed));
        simulation.check_after_healing();
    }
}

#[test]
fn a_failed_over_leader_goes_on_while_nobody_else_can_vote() {
    let mut simulation = Simulation::new(1, 2, Faults::NONE);
    simulation.stop(1);
    run(&mut simulation, SOON);
    assert_eq!(simulation.leader(), Some(0));
    fail_over(&mut simulation, 0, 0);
    run(&mut simulation, LEADERLESS * 2);
    let epoch = simulation.epoch();
    let before = simulation.checks.acknowledgements(epoch);
    run(&mut simulation, SOON);
    assert!(simulation.checks.acknowledgements(epoch) > before, "it goes on");
    assert!(simulation.node(0).metadata().nodes[0].is_failed_over());
    simulation.start(1);
    until(&mut simulation, "that the other one leads", 3 * SOON, |simulation| simulation.leader() == Some(1));
    simulation.check_after_healing();
}

/// A member that is behind takes for failed over a node that was recovered since, and leads.
#[test]
fn a_member_that_is_behind_catches_up_with_a_leader_that_was_recovered_meanwhile() {
    for seed in 1..5 {
        let (mut simulation, leader, failed) = without_one(seed);
        let behind = others(failed).into_iter().find(|at| *at != leader).unwrap();
        simulation.stop(behind);
        simulation.start(failed);
        let node = NodeId(failed as u16);
        run(&mut simulation, SOON);
        simulation.propose(leader, Command::SetRecovery { node, recovery: Some(Recovery::Full) });
        simulation.propose(leader, Command::ReAddNode { node });
        until(&mut simulation, "that it votes again", SOON, |simulation| {
            simulation.node(leader).members().0.contains(&node)
        });
        // The others follow it.
        while simulation.leader() != Some(failed) {
            let now = simulation.leader().unwrap();
            simulation.hand_over(now);
            run(&mut simulation, 20);
        }
        simulation.start(behind);
        simulation.run_without_ticks();
        let still = simulation.node(behind).metadata().node_by_id(node).unwrap().membership;
        assert_eq!(still, Membership::InactiveFailed, "by what it knows");
        until(&mut simulation, "that it has caught up", 2 * LEADERLESS, |simulation| {
            simulation.node(behind).has_caught_up()
        });
        assert_eq!(simulation.node(behind).leader(), Some(node));
        simulation.check_after_healing();
    }
}

/// Members that learn greet one another where they hear no leader, and know of none all the same.
#[test]
fn members_that_learn_and_hear_one_another_only_catch_up_with_a_leader_that_was_recovered_meanwhile() {
    for seed in 1..4 {
        let mut simulation = Simulation::new(seed, 5, Faults::NONE);
        run(&mut simulation, SOON);
        let leader = simulation.leader().unwrap();
        let others: Vec<usize> = (0..5).filter(|at| *at != leader).collect();
        let (behind, back) = (vec![others[0], others[1]], others[3]);
        let node = NodeId(back as u16);
        for at in [back, others[0], others[1]] {
            fail_over(&mut simulation, leader, at);
            until(&mut simulation, "that it learns only", 2 * SOON, |simulation| {
                learns(simulation, leader, at)
            });
        }
        let knows = |simulation: &Simulation, at: &usize| {
            simulation.node(*at).metadata().node_by_id(node).unwrap().is_failed_over()
                && learns(simulation, *at, *at)
        };
        until(&mut simulation, "that both have heard of it", SOON, |simulation| {
            behind.iter().all(|at| knows(simulation, at))
        });
        simulation.separate(&behind);
        simulation.propose(leader, Command::SetRecovery { node, recovery: Some(Recovery::Full) });
        simulation.propose(leader, Command::ReAddNode { node });
        until(&mut simulation, "that it votes again", SOON, |simulation| {
            simulation.node(leader).members().0.contains(&node)
        });
        while simulation.leader() != Some(back) {
            let now = simulation.leader().unwrap();
            simulation.hand_over(now);
            run(&mut simulation, 20);
        }
        assert!(behind.iter().all(|at| knows(&simulation, at)), "by what they know");
        simulation.heal();
        until(&mut simulation, "that they follow it", 2 * LEADERLESS, |simulation| {
            behind.iter().all(|at| simulation.node(*at).leader() == Some(node))
        });
        simulation.check_after_healing();
    }
}

/// Its disk takes nothing after a restart, and it is lost once more. Then it leads in the same term again, with other changes.
#[test]
fn a_leader_that_votes_alone_tells_nobody_of_a_term_that_its_disk_lacks() {
    for seed in 1..5 {
        let mut simulation = Simulation::new(seed, 2, Faults::NONE);
        run(&mut simulation, SOON);
        until(&mut simulation, "that the first one leads", 3 * SOON, |simulation| {
            simulation.leader() == Some(0)
        });
        fail_over(&mut simulation, 0, 1);
        until(&mut simulation, "one that votes alone", SOON, |simulation| {
            learns(simulation, 0, 1) && learns(simulation, 1, 1)
        });
        // More than the log keeps: at a start it knows at once that it votes alone.
        simulation.proposals_per_step = 4;
        run(&mut simulation, 700);
        let term = simulation.node(0).term();
        simulation.stop(0);
        simulation.start(0);
        simulation.stall(0);
        run(&mut simulation, SOON / 2);
        assert!(simulation.node(0).term() > term, "it has begun a term");
        assert_eq!(simulation.node(1).term(), term, "of which the disk knows nothing");
        simulation.stop_unwritten(0);
        simulation.start(0);
        run(&mut simulation, SOON);
        simulation.check_after_healing();
    }
}
