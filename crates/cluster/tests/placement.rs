//! What a map promises, over long random histories of nodes that come and go. `PLACEMENT_SEED` and `PLACEMENT_SEEDS` choose others.

use std::ops::Range;

use settee_cluster::placement::{NodeIndex, VbMap, place};

/// A few random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

fn counts(map: &VbMap, nodes: usize, is_counted: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut counts = vec![0; nodes];
    for chain in &map.0 {
        let counted = chain.iter().enumerate().filter(|(position, _)| is_counted(*position));
        counted.for_each(|(_, node)| counts[usize::from(*node)] += 1);
    }
    counts
}

fn spread(counts: &[usize]) -> usize {
    counts.iter().max().zip(counts.iter().min()).map_or(0, |(most, least)| most - least)
}

fn check_chains(map: &VbMap, groups: &[u16], replicas: u8) {
    for chain in &map.0 {
        let mut nodes = chain.clone();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), chain.len(), "copies on different nodes: {chain:?}");
        assert_eq!(chain.len(), groups.len().min(usize::from(replicas) + 1));
        assert!(chain.iter().all(|node| usize::from(*node) < groups.len()));
    }
}

/// The copies that have to travel whatever one does: those that nodes with too few are to get.
fn least_moves(before: &VbMap, after: &VbMap, nodes: usize) -> usize {
    let had = counts(before, nodes.max(64), |_| true);
    let has = counts(after, nodes, |_| true);
    has.iter().zip(had).map(|(has, had)| has.saturating_sub(had)).sum()
}

/// Nodes that go have positions behind those that stay.
fn renumbered(map: &VbMap, leaving: &[usize], nodes: usize) -> VbMap {
    let mut order: Vec<usize> = (0..nodes).filter(|node| !leaving.contains(node)).collect();
    order.extend(leaving);
    let place_of = |node: &NodeIndex| {
        order.iter().take_while(|other| **other != usize::from(*node)).count() as NodeIndex
    };
    VbMap(map.0.iter().map(|chain| chain.iter().map(place_of).collect()).collect())
}

/// The sizes of so many groups, multiplied, are more than a number holds.
#[test]
fn any_number_of_groups_shares_evenly() {
    let groups: Vec<u16> = (0..120).map(|node| node / 3).collect();
    let map = place(&VbMap::empty(1024), &groups, 2);
    check_chains(&map, &groups, 2);
    let copies = counts(&map, groups.len(), |_| true);
    assert!(spread(&copies) <= 1, "{copies:?}");
}

#[test]
fn one_node_has_everything_and_no_replica() {
    let map = place(&VbMap::empty(1024), &[0], 1);
    assert!(map.0.iter().all(|chain| *chain == [0]));
    assert!(place(&map, &[], 1).0.iter().all(Vec::is_empty));
}

fn seeds() -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // No seed is 0, of which nothing random comes.
    let first = number("PLACEMENT_SEED").unwrap_or(1).max(1);
    first..first + number("PLACEMENT_SEEDS").unwrap_or(40)
}

#[test]
fn nodes_come_and_go_and_little_moves() {
    for seed in seeds() {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let replicas = dice.roll(4) as u8;
        let mut nodes = 1 + dice.roll(12);
        let mut map = place(&VbMap::empty(1024), &vec![0; nodes], replicas);
        for step in 0..8 {
            let leaving_count = dice.roll(nodes.min(4));
            let mut leaving: Vec<usize> = Vec::new();
            while leaving.len() < leaving_count {
                let node = dice.roll(nodes);
                if !leaving.contains(&node) {
                    leaving.push(node);
                }
            }
            // Those that come take the positions of those that go, or follow; either way they hold nothing.
            let before = renumbered(&map, &leaving, nodes);
            let staying = nodes - leaving_count;
            let coming = dice.roll(4).max(usize::from(staying == 0));
            let gone = |node: &NodeIndex| usize::from(*node) >= staying;
            let shifted = |node: &NodeIndex| if gone(node) { node + 1000 } else { *node };
            let before = VbMap(before.0.iter().map(|chain| chain.iter().map(shifted).collect()).collect());
            nodes = staying + coming;
            let groups = vec![0; nodes];
            map = place(&before, &groups, replicas);

            let what = format!("seed {seed}, step {step}: {nodes} nodes, {replicas} replicas");
            check_chains(&map, &groups, replicas);
            assert!(spread(&counts(&map, nodes, |_| true)) <= 1, "{what}: copies");
            assert!(spread(&counts(&map, nodes, |position| position == 0)) <= 2, "{what}: actives");
            let stayed =
                VbMap(before.0.iter().map(|c| c.iter().copied().filter(|n| *n < 1000).collect()).collect());
            let (moves, least) = (map.copies_to_move(&before), least_moves(&stayed, &map, nodes));
            assert!(moves * 10 <= least * 11 + 10 * nodes, "{what}: {moves} moves, {least} would do");
            assert_eq!(place(&map, &groups, replicas), map, "{what}: what is right stays");
        }
    }
}

#[test]
fn a_failed_over_node_leaves_roles_even_and_moves_only_what_it_held() {
    let map = place(&VbMap::empty(1024), &[0; 5], 1);
    let lost = counts(&map, 5, |_| true)[4];
    let after = place(&map, &[0; 4], 1);
    assert_eq!(after.copies_to_move(&map), lost);
    assert!(spread(&counts(&after, 4, |position| position == 0)) <= 1);
}

#[test]
fn groups_of_one_size_hold_a_copy_each() {
    for (groups, replicas) in [(vec![0, 0, 1, 1], 1), (vec![0, 1, 2, 0, 1, 2], 2), (vec![0, 1, 0, 1], 3)] {
        let map = place(&VbMap::empty(1024), &groups, replicas);
        check_chains(&map, &groups, replicas);
        let most =
            (usize::from(replicas) + 1).div_ceil(groups.iter().max().map_or(1, |g| usize::from(*g) + 1));
        for chain in &map.0 {
            for group in &groups {
                let inside = chain.iter().filter(|node| groups[usize::from(**node)] == *group).count();
                assert!(inside <= most, "{chain:?} in {groups:?}");
            }
            if replicas > 0 {
                assert_ne!(groups[usize::from(chain[0])], groups[usize::from(chain[1])], "first replica");
            }
        }
        assert!(spread(&counts(&map, groups.len(), |_| true)) <= 1);
        assert!(spread(&counts(&map, groups.len(), |position| position == 0)) <= 2);
    }
}

#[test]
fn a_small_group_holds_more_per_node_rather_than_one_group_two_copies() {
    let groups = [0, 0, 0, 1];
    let map = place(&VbMap::empty(1024), &groups, 1);
    check_chains(&map, &groups, 1);
    assert!(map.0.iter().all(|chain| chain.contains(&3)));
    assert!(spread(&counts(&map, 4, |_| true)[..3]) <= 1);
}

#[test]
fn groups_that_change_are_obeyed() {
    let before = place(&VbMap::empty(256), &[0, 0, 0, 0], 1);
    let groups = [0, 0, 1, 1];
    let after = place(&before, &groups, 1);
    check_chains(&after, &groups, 1);
    for chain in &after.0 {
        assert_ne!(groups[usize::from(chain[0])], groups[usize::from(chain[1])]);
    }
    assert!(spread(&counts(&after, 4, |_| true)) <= 1);
}

#[test]
fn replicas_come_and_go() {
    let none = place(&VbMap::empty(1024), &[0; 4], 0);
    let two = place(&none, &[0; 4], 2);
    assert_eq!(two.copies_to_move(&none), 2048);
    check_chains(&two, &[0; 4], 2);
    let one = place(&two, &[0; 4], 1);
    assert_eq!(one.copies_to_move(&two), 0, "dropping copies moves nothing");
    assert!(spread(&counts(&one, 4, |_| true)) <= 1);
}

#[test]
fn fifty_nodes() {
    let groups: Vec<u16> = (0..50).map(|node| node % 5).collect();
    let map = place(&VbMap::empty(1024), &groups, 3);
    check_chains(&map, &groups, 3);
    assert!(spread(&counts(&map, 50, |_| true)) <= 1);
    assert!(spread(&counts(&map, 50, |position| position == 0)) <= 2);
}

/// The server groups of nodes that take turns.
fn in_groups(nodes: impl Iterator<Item = usize>, groups: usize) -> Vec<u16> {
    nodes.map(|node| (node % groups) as u16).collect()
}

#[test]
fn up_to_fifty_nodes_in_groups_send_hardly_more_than_they_must() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    // Large and small vBuckets, as documents fall.
    let bytes: Vec<usize> = (0..1024).map(|_| 50 + dice.roll(101)).collect();
    for nodes in [3, 10, 25, 50] {
        for groups in [1, 2, 5].into_iter().filter(|groups| *groups <= nodes) {
            for replicas in 0..=3 {
                let first = place(&VbMap::empty(1024), &in_groups(0..nodes, groups), replicas);
                // A node comes, goes, is swapped; a whole rack's worth comes; some go and some come.
                for (going, coming) in [(0, 1), (1, 0), (1, 1), (0, groups), (2, 1)] {
                    if nodes + coming > 50 || going >= nodes {
                        continue;
                    }
                    let leaving: Vec<usize> = (0..going).collect();
                    let before = renumbered(&first, &leaving, nodes);
                    let staying = nodes - going;
                    let shifted =
                        |node: &NodeIndex| if usize::from(*node) < staying { *node } else { node + 1000 };
                    let before =
                        VbMap(before.0.iter().map(|chain| chain.iter().map(shifted).collect()).collect());
                    // Those that come take the places of those that go, in their groups.
                    let group_of = in_groups((going..nodes).chain(0..coming), groups);
                    let after = place(&before, &group_of, replicas);

                    let what =
                        format!("{nodes} nodes, {groups} groups, {replicas} replicas: -{going} +{coming}");
                    check_chains(&after, &group_of, replicas);
                    let stayed = before.0.iter().map(|c| c.iter().copied().filter(|n| *n < 1000).collect());
                    let least = least_moves(&VbMap(stayed.collect()), &after, group_of.len());
                    let came = |(vb, chain): (usize, &Vec<NodeIndex>)| {
                        chain.iter().filter(|node| !before.0[vb].contains(node)).count() * bytes[vb]
                    };
                    let sent: usize = after.0.iter().enumerate().map(came).sum();
                    let ideal = least * 100;
                    println!(
                        "{what}: {sent} bytes sent, {ideal} ideal, {:.3}",
                        sent as f64 / ideal.max(1) as f64
                    );
                    assert!(sent * 10 <= ideal * 11 + 10 * 100 * group_of.len() / 4, "{what}");
                }
            }
        }
    }
}
