//! A whole group in one process, from one seed: members, their disks, and a network that drops, delays, repeats and cuts.
//!
//! After every step: at most one leader per term; what members applied are prefixes of one another. After healing:
//! nothing acknowledged is lost, the group makes progress, and it consists of whom the metadata names. Many seeds:
//!
//! ```sh
//! CONSENSUS_SEEDS=1000 cargo test --release -p settee-cluster --test consensus -- --nocapture
//! CONSENSUS_SEED=28 cargo test -p settee-cluster --test consensus
//! ```
#![allow(clippy::unwrap_used, reason = "tests")]

mod checks;
mod failed_over;
mod layout;
mod simulation;
mod versions;

use std::sync::Arc;

use base::NodeId;
use settee_cluster::{
    ClusterError, Command, FailOver, StartRebalance,
    consensus::{Epoch, Member, Position, ProposalId, Record},
};
use simulation::{Faults, Simulation};

/// Seeds of every run of the tests.
const SEEDS: u64 = 12;

/// Seeds that have found something. 13: a leader that was restarted had lost what a follower acknowledges. 26: the same with
/// members that come and go. 28: the other one of two voters was gone before the one that is left had written that down.
/// 51: one of two voters came to lead while it was being removed, and was gone before the other one knew that it was. 2000303: the
/// test itself cut a voter off before the third node voted, so that nobody could be added.
const FOUND: [u64; 8] = [13, 26, 28, 51, 2_000_218, 2_000_303, 2_000_308, 2_000_413];
/// Steps in which a group without cuts gets to where it is to be, however many of its messages are lost.
const PATIENCE: u32 = 600;

fn seeds() -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("CONSENSUS_SEED"), number("CONSENSUS_SEEDS"));
    let count = count.unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let chosen = first.unwrap_or(1)..first.unwrap_or(1) + count;
    let found = FOUND.into_iter().filter(move |seed| first.is_none() && *seed > count);
    chosen.chain(found)
}

/// Runs a group of `nodes` under `faults`, heals it and looks at what is left.
fn endure(seed: u64, nodes: u16, steps: u32, faults: Faults) {
    println!("seed {seed}, {nodes} nodes, {faults:?}");
    let mut simulation = Simulation::new(seed, nodes, faults);
    for _ in 0..steps {
        simulation.step();
    }
    simulation.heal();
    simulation.check_after_healing();
}

#[test]
fn groups_survive_everything_at_once() {
    for seed in seeds() {
        endure(seed, 1 + (seed % 7) as u16, 1500, Faults::ALL);
    }
}

#[test]
fn groups_survive_crashes_of_slow_disks() {
    for seed in seeds() {
        endure(seed, 3, 1500, Faults { crash: 40, slow_disk: true, ..Faults::NONE });
    }
}

#[test]
fn groups_survive_partitions() {
    for seed in seeds() {
        endure(seed, 5, 1500, Faults { cut: 30, ..Faults::NONE });
    }
}

#[test]
fn groups_survive_members_that_come_and_go() {
    for seed in seeds() {
        endure(seed, 1 + (seed % 3) as u16, 1500, Faults { members: 60, ..Faults::NONE });
        endure(seed, 3, 1500, Faults { members: 60, crash: 10, ..Faults::NONE });
    }
}

#[test]
fn without_faults_there_is_one_leader_from_beginning_to_end() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 5, Faults::NONE);
        (0..600).for_each(|_| simulation.step());
        assert_eq!(simulation.checks.leaders(), 1);
        simulation.check_after_healing();
    }
}

#[test]
fn a_reader_knows_all_that_was_acknowledged_before() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 1 + (seed % 7) as u16, Faults::ALL);
        simulation.is_read = true;
        (0..1500).for_each(|_| simulation.step());
        simulation.heal();
        let before = simulation.checks.reads;
        simulation.check_after_healing();
        assert!(simulation.checks.reads > before, "seed {seed}: nobody who reads is answered");
    }
}

#[test]
fn one_seed_is_one_run() {
    let run = || {
        let mut simulation = Simulation::new(7, 5, Faults::ALL);
        (0..800).for_each(|_| simulation.step());
        simulation.trace()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_member_far_behind_gets_a_snapshot() {
    let mut simulation = Simulation::new(3, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    simulation.stop(2);
    // More than the log keeps.
    simulation.proposals_per_step = 4;
    (0..600).for_each(|_| simulation.step());
    simulation.start(2);
    simulation.check_after_healing();
    assert!(simulation.snapshots_installed() > 0);
}

/// It is asked by the leader of its term, in a letter that has hung on its way. It has no log then from which it could lead.
#[test]
fn a_member_that_is_asked_to_lead_while_it_takes_a_snapshot_goes_on() {
    let mut simulation = Simulation::new(3, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    let leader = simulation.leader().unwrap();
    let heir = simulation.hand_over_by_letters_that_hang(leader).unwrap();
    simulation.stop(heir);
    // More than the log keeps.
    simulation.proposals_per_step = 4;
    (0..1_500).for_each(|_| simulation.step());
    assert_eq!(simulation.leader(), Some(leader));
    simulation.start(heir);
    simulation.run_until_a_snapshot_is_to_be_written(heir);
    simulation.let_go();
    simulation.check_after_healing();
}

/// How far it knows decides later whether it founds a group of that.
#[test]
fn a_member_that_is_told_to_join_a_new_group_while_it_takes_a_snapshot_remembers_how_far_it_knows() {
    let mut simulation = Simulation::new(3, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    simulation.stop(2);
    // More than the log keeps.
    simulation.proposals_per_step = 4;
    (0..1_500).for_each(|_| simulation.step());
    simulation.start(2);
    simulation.run_until_a_snapshot_is_to_be_written(2);
    let member = simulation.node(2);
    let successor = Member { epoch: Epoch::default().next(1), ..member.member().clone() };
    let first = member.rejoin(&successor).unwrap();
    let known_at = first.records.iter().find(|(record, _)| *record == Record::KnownAt).unwrap();
    let known_at: Position = serde_json::from_slice(&known_at.1).unwrap();
    assert_eq!((known_at.epoch, known_at.index), (Epoch::default(), member.applied()));
    assert!(known_at.term > 0);
}

#[test]
fn a_leader_that_stops_hands_over_at_once() {
    let mut simulation = Simulation::new(5, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    let before = simulation.leader().unwrap();
    assert!(simulation.hand_over(before).is_some());
    // Far less than an election timeout.
    (0..4).for_each(|_| simulation.step());
    let after = simulation.leader().unwrap();
    assert_ne!(before, after);
}

#[test]
fn a_leader_whose_disk_stalls_lets_somebody_else_lead() {
    let mut simulation = Simulation::new(9, 3, Faults::NONE);
    (0..200).for_each(|_| simulation.step());
    let before = simulation.leader().unwrap();
    simulation.stall(before);
    (0..100).for_each(|_| simulation.step());
    assert_ne!(simulation.leader().unwrap(), before);
    let epoch = simulation.epoch();
    let acknowledged = simulation.checks.acknowledgements(epoch);
    (0..50).for_each(|_| simulation.step());
    assert!(simulation.checks.acknowledgements(epoch) > acknowledged);
}

/// Takes away half of the nodes or more, dead or merely out of reach, and lets the others form the group anew.
#[test]
fn survivors_form_the_group_anew_and_lost_members_join_them() {
    for seed in seeds() {
        let nodes = 2 + (seed % 8) as usize;
        let faults = Faults { drop: 3, delay: 5, slow_disk: true, ..Faults::NONE };
        println!("seed {seed}, {nodes} nodes");
        let mut simulation = Simulation::new(seed, nodes as u16, faults);
        (0..300).for_each(|_| simulation.step());
        // Of nine nodes seven vote: which, follows from the order in which they came.
        let lost: Vec<usize> =
            (0..nodes).filter(|node| (node + seed as usize) % nodes < nodes.div_ceil(2)).collect();
        let (voters, _) = simulation.node(0).members();
        let voting =
            |nodes: &[usize]| nodes.iter().filter(|at| voters.contains(&NodeId(**at as u16))).count();
        if voting(&lost) * 2 < voters.len() {
            continue;
        }
        // Survivors that have only joined know nothing that a group could be formed of; they refuse.
        let blank = (0..nodes).filter(|at| !lost.contains(at));
        if blank.clone().all(|at| simulation.node(at).metadata().next_node == 0) {
            let (id, epoch) = (ProposalId { origin: 9, number: 9 }, Epoch::default().next(1));
            blank.for_each(|at| {
                let command = Command::ResetAutoFailover;
                assert!(simulation.node(at).reform(epoch, id, command).is_err());
            });
            continue;
        }
        simulation.separate(&lost);
        let are_dead = seed % 3 == 0;
        if are_dead {
            lost.iter().for_each(|node| simulation.stop(*node));
        }
        (0..100).for_each(|_| simulation.step());
        let founder = simulation.reform(&lost);
        if seed % 4 == 1 {
            // What it has begun with may be on its disk, or not: then nobody has heard of it.
            (0..seed % 7).for_each(|_| simulation.step());
            simulation.stop(founder);
            simulation.start(founder);
            if simulation.node(founder).epoch() == Epoch::default() {
                assert_eq!(
                    simulation.epoch(),
                    Epoch::default(),
                    "somebody belongs to a group that nobody has founded"
                );
                (0..100).for_each(|_| simulation.step());
                simulation.reform(&lost);
            }
        }
        let epoch = simulation.epoch();
        (0..200).for_each(|_| simulation.step());
        assert!(simulation.checks.acknowledgements(epoch) > 0, "the survivors go on");
        let left: Vec<usize> = (0..nodes).filter(|node| !lost.contains(node)).collect();
        let mut other = None;
        if !are_dead && voting(&left) * 2 >= voters.len() && seed % 2 == 0 {
            // Somebody else thinks that it is the others who are lost.
            other = Some(simulation.reform(&left));
            (0..100).for_each(|_| simulation.step());
        }
        simulation.heal();
        if let Some(other) = other {
            give_one_half_up(&mut simulation, [founder, other]);
        }
        simulation.check_after_healing();
    }
}

/// Both halves have formed the group anew without the other one. Neither takes the word of nodes that it has failed over, so an
/// administrator has to reset one of them.
fn give_one_half_up(simulation: &mut Simulation, founders: [usize; 2]) {
    let epochs = founders.map(|founder| simulation.node(founder).epoch());
    (0..300).for_each(|_| simulation.step());
    assert_eq!(founders.map(|founder| simulation.node(founder).epoch()), epochs);
    let newest = simulation.epoch();
    let reset: Vec<usize> =
        simulation.indices().filter(|at| simulation.node(*at).epoch() != newest).collect();
    assert!(!reset.is_empty());
    for node in reset.into_iter().map(|at| NodeId(at as u16)) {
        simulation.remove(node);
        let leader = simulation.leader_of(newest).unwrap();
        simulation.propose(leader, Command::RemoveNode { node });
        (0..50).for_each(|_| simulation.step());
    }
}

/// The node that has formed the group anew is lost in its turn. Until then a survivor has heard nothing of the new group but that
/// it exists.
#[test]
fn a_group_that_is_formed_anew_twice_outranks_the_one_that_its_founder_knows_nothing_of() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 5, Faults { drop: 3, delay: 5, ..Faults::NONE });
        let all_vote = |simulation: &Simulation| {
            simulation.leader().is_some_and(|leader| simulation.node(leader).members().0.len() == 5)
        };
        assert!(until(&mut simulation, all_vote), "five nodes vote");
        let lost = [0, 1, 2];
        simulation.separate(&lost);
        lost.iter().for_each(|node| simulation.stop(*node));
        let nobody_leads =
            |simulation: &Simulation| [3, 4].into_iter().all(|node| simulation.node(node).leader().is_none());
        assert!(until(&mut simulation, nobody_leads), "survivors give their leader up");
        let founder = simulation.reform(&lost);
        let other = if founder == 3 { 4 } else { 3 };
        let known = Arc::clone(simulation.node(other).metadata());
        let is_told = |simulation: &Simulation| simulation.node(other).epoch() > Epoch::default();
        assert!(until(&mut simulation, is_told), "the other survivor is told to join");
        if simulation.node(other).metadata().rev_epoch > known.rev_epoch {
            continue;
        }
        let lost_too = Arc::clone(simulation.node(founder).metadata());
        simulation.stop(founder);
        assert_eq!(simulation.node(other).position().epoch, Epoch::default(), "its metadata are from before");
        // It is refused while the survivor has a leader, which it may have heard just before.
        let has_no_leader = |simulation: &Simulation| simulation.node(other).leader().is_none();
        assert!(until(&mut simulation, has_no_leader), "the survivor gives that up as well");
        let all: Vec<usize> = (0..5).filter(|node| *node != other).collect();
        assert_eq!(simulation.reform(&all), other);
        let now = simulation.node(other).metadata();
        assert!(now.version > lost_too.version + 1_000_000 && now.rev_epoch > lost_too.rev_epoch);
        simulation.heal();
        simulation.check_after_healing();
    }
}

/// The other one of two nodes has carried out that it leaves, and is lost. The one that stays has that in its log, and can learn from
/// nobody that it was agreed on.
#[test]
fn a_survivor_forms_the_group_anew_where_its_log_has_removed_the_lost_node() {
    let mut tried = 0;
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 2, Faults { delay: 5, ..Faults::NONE });
        let both_vote = |simulation: &Simulation| {
            simulation.leader().is_some_and(|leader| simulation.node(leader).members().0.len() == 2)
        };
        assert!(until(&mut simulation, both_vote), "both vote");
        for _ in 0..PATIENCE {
            if simulation.leader() == Some(1) {
                break;
            }
            simulation.hand_over(0);
            (0..20).for_each(|_| simulation.step());
        }
        assert_eq!(simulation.leader(), Some(1));
        let (stays, leaves) = (NodeId(0), NodeId(1));
        let start = StartRebalance { id: "r".into(), keep: vec![stays], eject: vec![leaves], now_ms: 1 };
        simulation.propose(1, Command::StartRebalance(start));
        let knows =
            |simulation: &Simulation, at: usize| simulation.node(at).metadata().node_by_id(leaves).is_some();
        let begun = |simulation: &Simulation| simulation.node(0).metadata().rebalance.is_some();
        assert!(until(&mut simulation, begun), "it is to leave");
        simulation.propose(1, Command::FinishRebalance { id: "r".into(), now_ms: 2 });
        assert!(until(&mut simulation, |simulation| !knows(simulation, 1)), "it has left");
        if !knows(&simulation, 0) {
            continue;
        }
        tried += 1;
        simulation.remove(leaves);
        let is_alone = |simulation: &Simulation| simulation.node(0).leader().is_none();
        assert!(until(&mut simulation, is_alone), "the leader is given up");
        if !knows(&simulation, 0) {
            continue;
        }
        assert_eq!(simulation.reform_without(&[leaves]), 0);
        simulation.check_after_healing();
        assert!(!knows(&simulation, 0));
    }
    assert!(tried > 0);
}

/// Steps until something is so; whether it is in the end.
fn until(simulation: &mut Simulation, holds: impl Fn(&Simulation) -> bool) -> bool {
    for _ in 0..PATIENCE {
        if holds(simulation) {
            return true;
        }
        simulation.step();
    }
    holds(simulation)
}

#[test]
fn whom_lost_nodes_have_added_hears_that_it_belongs_to_nobody() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 3, Faults { drop: 3, delay: 5, ..Faults::NONE });
        // A snapshot that was lost is sent again after seconds. Until all three vote, two of them may be no majority.
        let all_vote = |simulation: &Simulation| {
            let leader = simulation.leader();
            leader.is_some_and(|leader| simulation.node(leader).members().0.len() == 3)
        };
        assert!(until(&mut simulation, all_vote), "three nodes vote");
        let left = (0..3).find(|node| simulation.leader() != Some(*node)).unwrap();
        simulation.separate(&[left]);
        let leader = simulation.leader().unwrap();
        // What is proposed may be lost on its way, as any message.
        for _ in 0..5 {
            let leader = simulation.leader().unwrap_or(leader);
            if simulation.node(leader).metadata().node_by_id(NodeId(3)).is_none() {
                simulation.add(leader);
                (0..100).for_each(|_| simulation.step());
            }
        }
        let added = 3;
        let belongs = |simulation: &Simulation| simulation.node(added).members().0.contains(&NodeId(3));
        // The way to a vote is longer where messages are lost.
        assert!(until(&mut simulation, belongs), "it belongs to the others");
        simulation.separate(&[left]);
        let lost: Vec<usize> = (0..4).filter(|node| *node != left).collect();
        simulation.reform(&lost);
        (0..50).for_each(|_| simulation.step());
        // A node of the new group must not be taken for it.
        simulation.add(left);
        (0..50).for_each(|_| simulation.step());
        assert!(!simulation.is_gone(added), "nobody has told it yet");

        simulation.heal();
        simulation.check_after_healing();
        assert!(simulation.is_gone(added) && !simulation.is_gone(4));
    }
}

#[test]
fn a_group_with_a_majority_is_not_formed_anew() {
    let mut simulation = Simulation::new(2, 3, Faults::NONE);
    (0..100).for_each(|_| simulation.step());
    let leader = simulation.leader().unwrap();
    let id = ProposalId { origin: 9, number: 9 };
    let epoch = Epoch::default().next(1);
    assert!(simulation.node(leader).reform(epoch, id, Command::ResetAutoFailover).is_err());
    let follower = (leader + 1) % 3;
    let refused = simulation.node(follower).reform(epoch, id, Command::ResetAutoFailover).unwrap_err();
    assert!(refused.to_string().contains("leads"), "it knows a leader: {refused}");
    simulation.separate(&[follower]);
    assert!(until(&mut simulation, |simulation| simulation.node(follower).leader().is_none()), "cut off");
    // By what it knows, the two others could go on without the one that is said to be lost.
    let fail_over = FailOver { nodes: vec![NodeId(leader as u16)], allow_unsafe: true, auto: false };
    let refused = simulation.node(follower).reform(epoch, id, Command::FailOver(fail_over)).unwrap_err();
    assert!(matches!(refused, ClusterError::MembersRefused(_)), "{refused}");
    let again = simulation.node(follower).epoch();
    assert!(simulation.node(follower).reform(again, id, Command::ResetAutoFailover).is_err());
    // What the administrator asks for has to be possible.
    let nobody = Command::RemoveNode { node: NodeId(77) };
    assert!(simulation.node(follower).reform(epoch, id, nobody).is_err());
}

#[test]
fn a_member_that_lost_a_part_of_its_log_hears_that_it_was_removed() {
    let mut simulation = Simulation::new(11, 3, Faults::NONE);
    (0..100).for_each(|_| simulation.step());
    let leader = simulation.leader().unwrap();
    let forgetful = (leader + 1) % 3;
    let copy = simulation.copy_of(forgetful);
    (0..100).for_each(|_| simulation.step());
    simulation.restore(forgetful, copy);
    (0..100).for_each(|_| simulation.step());
    assert!(simulation.node(forgetful).broken().is_some());
    assert!(!simulation.is_gone(forgetful));

    // The next leader knows nothing of what the member had confirmed to the one before.
    let leader = usize::from(simulation.hand_over(leader).unwrap().get());
    simulation.stop(forgetful);
    (0..100).for_each(|_| simulation.step());
    assert_eq!(simulation.leader(), Some(leader));
    simulation.start(forgetful);
    (0..100).for_each(|_| simulation.step());
    assert!(simulation.node(forgetful).broken().is_some(), "after a restart either");

    let node = NodeId(forgetful as u16);
    let fail_over = FailOver { nodes: vec![node], allow_unsafe: false, auto: false };
    for command in [Command::FailOver(fail_over), Command::RemoveNode { node }] {
        simulation.propose(leader, command);
        (0..100).for_each(|_| simulation.step());
    }
    assert!(simulation.is_gone(forgetful));
    (0..100).for_each(|_| simulation.step());
    assert!(simulation.leader().is_some_and(|leader| simulation.node(leader).members().0.len() == 2));
}

#[test]
fn nonsense_ends_nobody() {
    for seed in seeds() {
        let mut simulation = Simulation::new(seed, 3, Faults::NONE);
        (0..100).for_each(|_| simulation.step());
        let follower = (0..3).find(|node| simulation.leader() != Some(*node)).unwrap();
        let misled = if seed % 2 == 0 { follower } else { simulation.leader().unwrap() };
        simulation.mislead(misled);
        (0..100).for_each(|_| simulation.step());
        let others: Vec<usize> = (0..3).filter(|node| *node != misled).collect();
        let versions = |simulation: &Simulation| {
            others.iter().map(|node| simulation.node(*node).metadata().version).min()
        };
        let before = versions(&simulation);
        assert!(
            until(&mut simulation, |simulation| versions(simulation) > before),
            "seed {seed}: the others go on"
        );
        assert!(others.iter().all(|node| simulation.node(*node).broken().is_none()), "seed {seed}");
    }
}

#[test]
fn a_group_of_one_needs_no_time_and_writes_nothing_when_idle() {
    let mut simulation = Simulation::new(1, 1, Faults::NONE);
    simulation.proposals_per_step = 0;
    simulation.run_without_ticks();
    assert_eq!(simulation.leader(), Some(0));
    assert!(simulation.node(0).is_alone() && simulation.node(0).has_caught_up());
    let writes = simulation.writes();
    (0..100).for_each(|_| simulation.step());
    assert_eq!(simulation.writes(), writes);
    simulation.read(0);
    simulation.run_without_ticks();
    assert_eq!(simulation.checks.reads, 1, "there is nobody to be asked");
}
