//! Which nodes hold the copies of each vBucket: from the map there is and the nodes there shall be to the map to aim at.
//!
//! What the result promises, in this order:
//! 1. every copy of a vBucket is on another node, and there are as many as asked for, or one on every node;
//! 2. the copies of a vBucket are spread over the server groups as evenly as the groups allow;
//! 3. copies, and active copies, are spread evenly over the nodes (within groups, where those are of different sizes);
//! 4. as few copies as possible come to nodes that did not hold them: what is where it may stay does not move.
//!
//! Where a copy is costs data on the wire. Which of a vBucket's copies is the active one costs nothing of the kind, and is
//! decided second. A pure function of its arguments: nodes are numbers, ties are broken by them, nothing is random. It knows
//! nothing of the way from one map to the other.

use std::collections::VecDeque;

/// A node, as a position in the list of nodes that a map is about.
pub type NodeIndex = u16;

/// The copies of every vBucket, each list beginning with the active one. Without any copy: nobody has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VbMap(pub Vec<Vec<NodeIndex>>);

impl VbMap {
    /// A map of so many vBuckets that are nowhere yet.
    #[must_use]
    pub fn empty(vbuckets: u16) -> Self {
        Self(vec![Vec::new(); usize::from(vbuckets)])
    }

    /// How many copies there are that `before` did not have in the same place: what has to travel.
    #[must_use]
    pub fn copies_to_move(&self, before: &VbMap) -> usize {
        let nobody = Vec::new();
        let pairs = self.0.iter().enumerate().map(|(vb, chain)| (chain, before.0.get(vb).unwrap_or(&nobody)));
        pairs.map(|(chain, before)| chain.iter().filter(|node| !before.contains(node)).count()).sum()
    }
}

/// The map to aim at. `groups` has the server group of each node that shall hold data, by position. Copies in `current` on
/// positions beyond it are on nodes that go.
#[must_use]
pub fn place(current: &VbMap, groups: &[u16], replicas: u8) -> VbMap {
    if groups.is_empty() {
        return VbMap(vec![Vec::new(); current.0.len()]);
    }
    let mut holders = Holders::new(current, groups, replicas);
    holders.keep(current);
    holders.fill();
    holders.keep_others(current);
    holders.balance();
    let mut actives = Actives::new(current, &holders);
    actives.balance();
    actives.into_map(groups)
}

/// The nodes that hold each vBucket, roles aside.
struct Holders<'a> {
    groups: &'a [u16],
    /// Copies of each vBucket.
    copies: usize,
    /// Copies of one vBucket that one group may hold.
    per_group: usize,
    chains: Vec<Vec<NodeIndex>>,
    loads: Loads,
    /// How many vBuckets each pair of nodes both hold. Were these few pairs, what a node leaves behind would fall to few
    /// others.
    together: Vec<Vec<usize>>,
}

/// How much each node has, against what it should have.
struct Loads {
    has: Vec<usize>,
    /// What each node should have, as a fraction with one denominator for all.
    share: Vec<(usize, usize)>,
}

impl Loads {
    /// Above zero: too much. Comparable between nodes; a whole copy is `unit`.
    fn excess(&self, node: usize) -> i128 {
        let (numerator, denominator) = self.share[node];
        self.has[node] as i128 * denominator as i128 - numerator as i128
    }

    fn unit(&self) -> i128 {
        self.share.first().map_or(1, |share| share.1 as i128)
    }

    /// Whether moving something from `from` to `to` makes the loads more even.
    fn gains(&self, from: usize, to: usize) -> bool {
        self.excess(from) - self.excess(to) > self.unit()
    }

    /// The nodes, those with too much first.
    fn by_excess(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.has.len()).collect();
        nodes.sort_by_key(|&node| (-self.excess(node), node));
        nodes
    }
}

/// Something of a vBucket that could go from one node to another.
#[derive(Clone, Copy)]
struct Hop {
    from: usize,
    to: usize,
    vb: usize,
}

impl Loads {
    /// A shortest way of hops along which handing something on makes loads more even; `hops` are those from each node. No
    /// vBucket is on it twice.
    fn way(&self, hops: &[Vec<Hop>]) -> Option<Vec<Hop>> {
        let nodes = self.by_excess();
        nodes.iter().find_map(|&from| {
            let reached = reachable(from, hops);
            let ends = nodes.iter().rev().take_while(|&&to| self.gains(from, to));
            ends.filter_map(|&to| way_to(to, &reached)).next()
        })
    }
}

/// The last hop on a shortest way from `from` to every node.
fn reachable(from: usize, hops: &[Vec<Hop>]) -> Vec<Option<Hop>> {
    let mut reached: Vec<Option<Hop>> = vec![None; hops.len()];
    let mut next = VecDeque::from([from]);
    while let Some(node) = next.pop_front() {
        for hop in &hops[node] {
            if hop.to != from && reached[hop.to].is_none() {
                reached[hop.to] = Some(*hop);
                next.push_back(hop.to);
            }
        }
    }
    reached
}

fn way_to(to: usize, reached: &[Option<Hop>]) -> Option<Vec<Hop>> {
    let mut way = vec![reached[to]?];
    while let Some(before) = way.last().and_then(|hop| reached[hop.from]) {
        if way.iter().any(|hop| hop.vb == before.vb) {
            return None;
        }
        way.push(before);
    }
    Some(way)
}

impl<'a> Holders<'a> {
    fn new(current: &VbMap, groups: &'a [u16], replicas: u8) -> Self {
        let copies = (usize::from(replicas) + 1).min(groups.len());
        let sizes = group_sizes(groups);
        let vbuckets = current.0.len();
        Self {
            groups,
            copies,
            per_group: per_group(&sizes, copies),
            chains: vec![Vec::new(); vbuckets],
            loads: Loads {
                has: vec![0; groups.len()],
                share: shares(groups, &sizes, copies).iter().map(|&(n, d)| (n * vbuckets, d)).collect(),
            },
            together: vec![vec![0; groups.len()]; groups.len()],
        }
    }

    fn may_hold(&self, chain: &[NodeIndex], node: usize) -> bool {
        let in_group =
            chain.iter().filter(|&&other| self.groups[usize::from(other)] == self.groups[node]).count();
        in_group < self.per_group && !chain.contains(&(node as NodeIndex))
    }

    /// Leaves everything where it is, as far as it may stay.
    fn keep(&mut self, current: &VbMap) {
        for (vb, before) in current.0.iter().enumerate() {
            for &node in before.iter().filter(|&&node| usize::from(node) < self.groups.len()) {
                if self.may_hold(&self.chains[vb], usize::from(node)) {
                    self.add(vb, usize::from(node));
                }
            }
        }
        for vb in 0..self.chains.len() {
            while self.chains[vb].len() > self.copies {
                let fullest = self.chains[vb]
                    .iter()
                    .copied()
                    .max_by_key(|&node| (self.loads.excess(usize::from(node)), node));
                fullest.into_iter().for_each(|node| self.remove(vb, usize::from(node)));
            }
        }
    }

    /// Gives every vBucket the copies that it lacks, each to the node that has the least.
    fn fill(&mut self) {
        for vb in 0..self.chains.len() {
            while self.chains[vb].len() < self.copies {
                let emptiest =
                    (0..self.groups.len()).filter(|&node| self.may_hold(&self.chains[vb], node)).min_by_key(
                        |&node| (self.loads.excess(node), self.shared_vbuckets(&self.chains[vb], node), node),
                    );
                // There is always one: a group that is full has as many copies as the groups' sizes allow.
                let Some(node) = emptiest else { break };
                self.add(vb, node);
            }
        }
    }

    /// Of the copies that a vBucket has too many of, keeps others, where that makes loads more even.
    fn keep_others(&mut self, current: &VbMap) {
        while let Some(way) = self.loads.way(&self.exchanges(current)) {
            for hop in way {
                self.remove(hop.vb, hop.from);
                self.add(hop.vb, hop.to);
            }
        }
    }

    /// From each node, where its copies could just as well be, because they are there already and would go.
    fn exchanges(&self, current: &VbMap) -> Vec<Vec<Hop>> {
        let mut hops = vec![Vec::new(); self.groups.len()];
        for (vb, (chain, before)) in self.chains.iter().zip(&current.0).enumerate() {
            let present = |node: &&NodeIndex| usize::from(**node) < self.groups.len();
            let spare = before.iter().filter(present).filter(|node| !chain.contains(node));
            // Of each vBucket one at a time: two together might crowd a group.
            if let Some(to) = spare.map(|&node| usize::from(node)).min_by_key(|&node| self.loads.excess(node))
            {
                let allowed =
                    chain.iter().map(|&from| usize::from(from)).filter(|&from| self.may_move(vb, from, to));
                allowed.for_each(|from| hops[from].push(Hop { from, to, vb }));
            }
        }
        hops
    }

    /// Moves copies from nodes with too many to nodes with too few until that gains nothing.
    fn balance(&mut self) {
        while self.balance_once() {}
    }

    fn balance_once(&mut self) -> bool {
        let nodes = self.loads.by_excess();
        for &from in &nodes {
            for &to in nodes.iter().rev() {
                if !self.loads.gains(from, to) {
                    break;
                }
                if let Some(vb) = self.movable(from, to) {
                    self.remove(vb, from);
                    self.add(vb, to);
                    return true;
                }
            }
        }
        false
    }

    /// A vBucket whose copy may go from one node to another; rather one of which that is a replica.
    fn movable(&self, from: usize, to: usize) -> Option<usize> {
        let movable = (0..self.chains.len()).filter(|&vb| self.may_move(vb, from, to));
        movable.min_by_key(|&vb| {
            let is_active = self.chains[vb].first() == Some(&(from as NodeIndex));
            (is_active, self.shared_vbuckets(&self.chains[vb], to))
        })
    }

    /// How many vBuckets a node shares with those that have a copy of this one already.
    fn shared_vbuckets(&self, chain: &[NodeIndex], node: usize) -> usize {
        chain.iter().map(|&other| self.together[node][usize::from(other)]).sum()
    }

    fn may_move(&self, vb: usize, from: usize, to: usize) -> bool {
        let others = |node: &NodeIndex| usize::from(*node) != from;
        let rest: Vec<NodeIndex> = self.chains[vb].iter().copied().filter(others).collect();
        rest.len() < self.chains[vb].len() && self.may_hold(&rest, to)
    }

    fn add(&mut self, vb: usize, node: usize) {
        for &other in &self.chains[vb] {
            self.together[node][usize::from(other)] += 1;
            self.together[usize::from(other)][node] += 1;
        }
        self.chains[vb].push(node as NodeIndex);
        self.loads.has[node] += 1;
    }

    fn remove(&mut self, vb: usize, node: usize) {
        self.chains[vb].retain(|&other| usize::from(other) != node);
        for &other in &self.chains[vb] {
            self.together[node][usize::from(other)] -= 1;
            self.together[usize::from(other)][node] -= 1;
        }
        self.loads.has[node] -= 1;
    }
}

fn group_sizes(groups: &[u16]) -> Vec<(u16, usize)> {
    let mut names = groups.to_vec();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| (name, groups.iter().filter(|&&group| group == name).count())).collect()
}

/// The least number of copies of one vBucket that some group has to hold.
fn per_group(sizes: &[(u16, usize)], copies: usize) -> usize {
    let fits = |limit: usize| sizes.iter().map(|(_, size)| limit.min(*size)).sum::<usize>() >= copies;
    (1..=copies).find(|&limit| fits(limit)).unwrap_or(copies)
}

/// How many copies of each vBucket every node should hold, as fractions with one denominator. All nodes of a group have
/// the same fraction. All nodes have the same one as long as no group would have to hold more than its part of each
/// vBucket.
fn shares(groups: &[u16], sizes: &[(u16, usize)], copies: usize) -> Vec<(usize, usize)> {
    let limit = per_group(sizes, copies);
    let cap = |size: usize| limit.min(size);
    // Groups that are full hold their cap; the rest share what is left by size. Filling one may overfill another.
    let mut full: Vec<u16> = Vec::new();
    let (left, size_left) = loop {
        let open = || sizes.iter().filter(|(name, _)| !full.contains(name));
        let taken: usize =
            sizes.iter().filter(|(name, _)| full.contains(name)).map(|(_, size)| cap(*size)).sum();
        let size: usize = open().map(|(_, size)| size).sum();
        let left = copies - taken;
        let overfull: Vec<u16> =
            open().filter(|(_, group)| left * group > cap(*group) * size).map(|(name, _)| *name).collect();
        if overfull.is_empty() {
            break (left, size.max(1));
        }
        full.extend(overfull);
    };
    // Of no more than there are nodes, and so far from what a number holds: a product of as many sizes need not be.
    let denominator =
        sizes.iter().fold(1, |multiple, (_, size)| common_multiple(multiple, *size)) * size_left;
    let share = |group: u16| {
        let size = sizes.iter().find(|(name, _)| *name == group).map_or(1, |(_, size)| *size);
        match full.contains(&group) {
            true => cap(size) * (denominator / size),
            false => left * (denominator / size_left),
        }
    };
    groups.iter().map(|&group| (share(group), denominator)).collect()
}

/// The least one of two numbers above zero.
fn common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

/// Which copy of each vBucket is the active one.
struct Actives {
    /// Active first.
    chains: Vec<Vec<NodeIndex>>,
    loads: Loads,
}

impl Actives {
    /// An active copy stays that; of a vBucket that loses its active copy, the first replica takes over.
    fn new(current: &VbMap, holders: &Holders<'_>) -> Self {
        let nodes = holders.groups.len();
        let copies = holders.copies.max(1);
        let share = holders.loads.has.iter().map(|&has| (has, copies)).collect();
        let mut this = Self { chains: holders.chains.clone(), loads: Loads { has: vec![0; nodes], share } };
        for (vb, before) in current.0.iter().enumerate() {
            let stays = before.iter().find(|node| this.chains[vb].contains(node)).copied();
            let emptiest = || {
                let chain = this.chains[vb].iter().copied();
                chain.min_by_key(|&node| (this.loads.excess(usize::from(node)), node))
            };
            let Some(active) = stays.or_else(emptiest) else { continue };
            this.loads.has[usize::from(active)] += 1;
            put_first(&mut this.chains[vb], active);
        }
        this
    }

    /// Hands the active role on between nodes that hold copies, until that gains nothing.
    fn balance(&mut self) {
        while let Some(way) = self.loads.way(&self.handovers()) {
            for hop in way {
                self.loads.has[hop.from] -= 1;
                self.loads.has[hop.to] += 1;
                put_first(&mut self.chains[hop.vb], hop.to as NodeIndex);
            }
        }
    }

    /// From each node, to whom it could hand the active role of which vBucket.
    fn handovers(&self) -> Vec<Vec<Hop>> {
        let mut hops = vec![Vec::new(); self.loads.has.len()];
        for (vb, chain) in self.chains.iter().enumerate() {
            let Some((&active, replicas)) = chain.split_first() else { continue };
            let from = usize::from(active);
            hops[from].extend(replicas.iter().map(|&to| Hop { from, to: usize::from(to), vb }));
        }
        hops
    }

    /// The first replica is in another group than the active copy, if any is: it is the first to be asked.
    fn into_map(mut self, groups: &[u16]) -> VbMap {
        let group = |node: &NodeIndex| groups[usize::from(*node)];
        for chain in &mut self.chains {
            if let Some((active, replicas)) = chain.split_first_mut() {
                replicas.sort_by_key(|node| group(node) == group(active));
            }
        }
        VbMap(self.chains)
    }
}

fn put_first(chain: &mut [NodeIndex], node: NodeIndex) {
    if let Some(position) = chain.iter().position(|&other| other == node) {
        chain[..=position].rotate_right(1);
    }
}
