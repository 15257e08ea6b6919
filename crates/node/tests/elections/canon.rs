//! A state's fingerprint: 128 bits that are the same for states which differ in names only.
//!
//! * Writes and branches are named in the order in which they are met.
//! * Versions of the metadata are only compared, so of each the rank counts.
//! * Terms and generations are compared, and a generation may be one more than another one. A gap is counted up to more
//!   than the restarts that are left, and not beyond.
//! * Nodes stand in the order of the chain, and those outside of it in that of what they are to the vBucket. Nothing goes by their numbers
//!   but placement, and that by their order in the metadata. A rebalance begins with each order that leads elsewhere, so it counts only
//!   while one runs.
//! * An acknowledged write that no copy has, in memory or on disk, is of no concern any more.
//!
//! Numbers of the real types are told apart by their size: see the constants.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use base::NodeId;
use engine::FailoverTable;

use super::world::{FIRST_NODE, FIRST_VERSION, Link, Node, World, id};

/// Names in the order in which they are met.
#[derive(Default)]
struct Names(BTreeMap<u64, u64>);

impl Names {
    fn of(&mut self, name: u64) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(name).or_insert(next)
    }
}

/// Gathers terms and versions at first, and then the bytes in which they are replaced.
struct Canon {
    terms: BTreeSet<u64>,
    versions: BTreeSet<u64>,
    ranks: Option<BTreeMap<u64, u64>>,
    places: Vec<u16>,
    bytes: Vec<u8>,
}

impl Canon {
    fn raw(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// From here on names are replaced.
    fn rank(&mut self, gap_max: u64) {
        let mut ranks = BTreeMap::new();
        let (mut before, mut rank) = (0, 0);
        for &term in &self.terms {
            rank += (term - before).min(gap_max);
            before = term;
            ranks.insert(term, rank);
        }
        let versions = self.versions.iter().enumerate();
        ranks.extend(versions.map(|(rank, &version)| (version, FIRST_VERSION + rank as u64)));
        self.ranks = Some(ranks);
        self.bytes.clear();
    }
}

impl Hasher for Canon {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        // An identity of a node follows from its place.
        if bytes.len() < 32 {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn write_u64(&mut self, value: u64) {
        match &self.ranks {
            Some(ranks) => {
                let rank = ranks[&value];
                self.raw(rank);
            }
            None if value >= FIRST_VERSION => drop(self.versions.insert(value)),
            None => drop(self.terms.insert(value)),
        }
    }

    fn write_u16(&mut self, value: u16) {
        let place = value.checked_sub(FIRST_NODE).and_then(|at| self.places.get(usize::from(at)));
        let value = place.map_or(value, |place| place + FIRST_NODE);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.bytes.push(value as u8);
    }

    fn write_isize(&mut self, value: isize) {
        self.bytes.push(value as u8);
    }
}

/// The fingerprint of a state.
pub(crate) fn fingerprint(world: &World) -> u128 {
    let order = order(world);
    let mut places = vec![0; order.len()];
    for (place, &node) in order.iter().enumerate() {
        places[node] = place as u16;
    }
    let mut canon = Canon {
        terms: BTreeSet::new(),
        versions: BTreeSet::new(),
        ranks: None,
        places,
        bytes: Vec::with_capacity(1024),
    };
    write(world, &order, &mut canon);
    canon.rank(world.bounds.faults as u64 + 1);
    write(world, &order, &mut canon);
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, &canon.bytes).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Nodes in the order of the chain, then the others.
pub(crate) fn order(world: &World) -> Vec<usize> {
    let (plan, meta) = (world.plan(), &world.meta);
    let mut order: Vec<usize> = (0..world.nodes.len()).collect();
    order.sort_by_key(|&at| {
        let place = |nodes: &[NodeId]| nodes.iter().position(|&node| node == id(at)).unwrap_or(usize::MAX);
        let known = meta.nodes.iter().find(|node| node.id == id(at));
        let role_state =
            known.map(|node| (node.membership as u8, node.recovery.map(|recovery| recovery as u8)));
        let kept = meta.rebalance.as_ref().map(|rebalance| place(&rebalance.keep));
        let held = &world.nodes[at].held;
        let has = (held.log.len(), held.is_partial, held.may_lack);
        (place(&plan.chain), place(plan.counted()), place(&plan.building), role_state, kept, has)
    });
    order
}

fn write(world: &World, order: &[usize], canon: &mut Canon) {
    let (mut writes, mut branches) = (Names::default(), Names::default());
    write_metadata(world, order, canon);
    for &at in order {
        let node = &world.nodes[at];
        node.agent.hash(canon);
        write_copy(node, &mut writes, &mut branches, canon);
    }
    // Of those that some copy has.
    let known: BTreeMap<u64, u64> = writes.0;
    let mut said: Vec<[u8; 2]> = known
        .iter()
        .map(|(&write, &name)| {
            let of = |writes: u64| writes >> write & 1;
            let told = of(world.acknowledged)
                | of(world.durable) << 1
                | of(world.to_disk) << 2
                | of(world.excused) << 3;
            [name as u8, told as u8]
        })
        .collect();
    said.sort_unstable();
    let (faults, changes, losses) = (world.faults as u8, world.changes as u8, world.losses as u8);
    (said, world.writes, faults, changes, losses, world.is_ending).hash(canon);
}

fn write_metadata(world: &World, order: &[usize], canon: &mut Canon) {
    let meta = &world.meta;
    let bucket = &meta.buckets["b"];
    world.plan().hash(canon);
    (bucket.target.as_ref().map(|target| &target[0]), meta.version).hash(canon);
    for &at in order {
        bucket.former.get(&id(at)).hash(canon);
        let known = meta.nodes.iter().find(|node| node.id == id(at));
        known.map(|node| (node.membership, node.recovery)).hash(canon);
        let excluded = known.and_then(|node| node.excluded);
        canon.raw(excluded.and_then(|excluded| excluded.lease_ms).unwrap_or(0));
        excluded.map(|excluded| (excluded.version, excluded.is_leased)).hash(canon);
    }
    for gone in &meta.departed {
        (gone.node, gone.excluded.version, gone.excluded.is_leased).hash(canon);
    }
    if let Some(rebalance) = &meta.rebalance {
        let mut keep = rebalance.keep.clone();
        if !is_placed_again(world) {
            keep.sort_by_key(|node| order.iter().position(|&at| id(at) == *node));
        }
        (rebalance.kind, keep, &rebalance.eject).hash(canon);
    }
    let auto = &meta.auto_failover;
    (auto.enabled, auto.timeout_secs, auto.count, auto.armed, auto.since, auto.is_leased).hash(canon);
    canon.raw(auto.earlier_lease_ms.unwrap_or(0));
}

/// Whether the order in which nodes are placed may tell once more in the rebalance under way. It may if a node may yet be failed
/// over, is away, or is remembered for what it held.
fn is_placed_again(world: &World) -> bool {
    let is_away = world.nodes.iter().any(|node| node.link == Link::Cut);
    world.faults < world.bounds.faults || is_away || !world.meta.buckets["b"].former.is_empty()
}

fn write_copy(node: &Node, writes: &mut Names, branches: &mut Names, canon: &mut Canon) {
    let held = &node.held;
    (node.link, node.leash, node.is_failed, node.has_left, held.role, held.term).hash(canon);
    if let Some(stuck) = &node.stuck {
        let (meta, plan) = (&stuck.meta, &stuck.meta.buckets["b"].vbs[0]);
        (stuck.says, meta.version, plan, meta.lease_ms().is_some()).hash(canon);
    }
    (node.stuck.is_some(), node.was_mute).hash(canon);
    (held.unconfirmed, held.may_lack, held.is_unheard, held.is_partial).hash(canon);
    (held.is_told_all, held.is_unrecorded, held.following).hash(canon);
    held.topology.hash(canon);
    canon.raw(held.log.len() as u64);
    for &write in &held.log {
        let name = writes.of(u64::from(write));
        canon.raw(name);
    }
    let disk = held.disk.as_ref();
    for open in [held.open, disk.and_then(|disk| disk.open)] {
        let range = open.map_or((99, 99), |open| (open.0.get(), open.1.get()));
        canon.raw(range.0);
        canon.raw(range.1);
    }
    write_table(&held.table, branches, canon);
    disk.map(|disk| disk.is_partial).hash(canon);
    if let Some(disk) = disk {
        canon.raw(disk.writes as u64);
        write_table(&disk.table, branches, canon);
    }
}

fn write_table(table: &FailoverTable, branches: &mut Names, canon: &mut Canon) {
    canon.raw(table.log().len() as u64);
    for (uuid, begins) in table.log() {
        canon.write_u64(uuid.generation());
        let name = branches.of(uuid.of_generation(0).0);
        canon.raw(name);
        canon.raw(begins.get());
    }
}
