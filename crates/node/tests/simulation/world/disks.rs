//! Disks with data that rot, and nodes all of whose disks are gone.
//!
//! A bit of what lies on a disk is not what was written any more. Until somebody notices and gives the node another disk, a read says what was
//! written, or that it cannot say. Nothing that is damaged is taken for absent, here or on a copy that is made from it.
//!
//! A node whose disks are gone, that with the metadata too, is that node no more. An operator fails it over and has it removed; what is
//! added in its place is another node.

use std::sync::Arc;

use base::NodeId;
use cluster::{Command, FailOver, Membership, Metadata};

use super::{World, mishaps::Mend, verdict::HEALING_MILLIS};
use crate::{
    faults::NEVER,
    machine::{End, Machine},
    process::Process,
};

/// Bits that are flipped at once, at most.
const BITS_MAX: usize = 12;
/// An operator looks after a node that is gone once in so many steps.
const LOOKS: u32 = 150;

impl World {
    pub(super) fn rot(&mut self) {
        let Some(id) = self.any_node() else { return };
        let (bits, until) = (self.rng.usize(1..=BITS_MAX), self.journal.now + self.rng.u64(100..5_000));
        let machine = self.machines.get_mut(&id).expect("one of the machines");
        if !machine.shelf.rot(bits, &mut self.rng) {
            return;
        }
        self.journal.note(format_args!("a disk of {id} rots in {bits} places until {until}"));
        self.tally.rotten_disks += 1;
        self.lost_something();
        self.mends.push((until, Mend::RottenDisk(id)));
        // What was in memory says nothing of the disk: half of the time the node has to read all that is there.
        if self.rng.bool() {
            self.stop(id, End::Killed);
            self.machine(id).starts_at = self.journal.now + 50;
        }
    }

    /// Answers to clients are on their way for a while: what was rotten before this step counts for those that were under way.
    pub(super) fn note_damage(&mut self) {
        if self.faults.rot != NEVER {
            let is_there = self.machines.values().any(|machine| machine.shelf.is_rotten);
            let now = self.clients.last_moment();
            self.invariants.damage.note(is_there, now);
        }
    }

    /// It may have another one by now, or may have left.
    pub(super) fn replace_rotten_disk(&mut self, id: NodeId) {
        if self.machines.get(&id).is_none_or(|machine| !machine.shelf.is_rotten) {
            return;
        }
        let starts_at = self.journal.now + self.rng.u64(50..1_000);
        // Another one that holds nothing, whether the process ran or not.
        self.stop(id, End::DiskLost);
        let machine = self.machine(id);
        machine.shelf.lose_data();
        machine.starts_at = machine.starts_at.max(starts_at);
    }

    pub(super) fn wipe(&mut self) {
        let newest = Arc::clone(self.newest());
        let Some(id) = self.any_node().filter(|id| newest.node_by_id(*id).is_some()) else { return };
        // A majority that is lost for good is a matter of its own: who votes may be about to change.
        if self.processes().any(Process::has_proposed) {
            return;
        }
        let voters =
            self.processes().find(|process| process.leads()).map(Process::voters).unwrap_or_default();
        let is_left = |voter: &NodeId| {
            *voter != id && self.machines.get(voter).is_some_and(|one| one.process.is_some())
        };
        if voters.iter().filter(|voter| is_left(voter)).count() * 2 <= voters.len() {
            return;
        }
        self.stop(id, End::DiskLost);
        self.journal.note(format_args!("{id} is gone with all its disks"));
        self.tally.wiped += 1;
        self.lost_something();
        let machine = self.machine(id);
        (machine.is_wiped, machine.starts_at) = (true, u64::MAX);
    }

    /// An operator fails a node over that is gone, unless that has happened by itself, and has it removed.
    pub(super) fn part_with_the_wiped(&mut self, newest: &Metadata) {
        let gone = self.machines.values().find(|machine| machine.is_wiped).map(Machine::id);
        let Some(node) = gone.and_then(|id| newest.node_by_id(id)).filter(|_| self.rng.u32(0..LOOKS) == 0)
        else {
            return;
        };
        if node.membership == Membership::Active {
            // In the end somebody takes a risk.
            let allow_unsafe = self.rng.u8(0..4) == 0;
            self.propose(Command::FailOver(FailOver { nodes: vec![node.id], allow_unsafe, auto: false }));
        } else {
            self.start_rebalance(newest, &[node.id]);
        }
    }

    /// Nobody waits any longer for a node that is gone.
    pub(super) fn part_with_all_wiped(&mut self) {
        let until = self.journal.now + HEALING_MILLIS;
        while self.machines.values().any(|machine| machine.is_wiped) {
            assert!(self.journal.now < until, "a node that is gone is still there: {:#?}", self.newest());
            let newest = Arc::clone(self.newest());
            self.part_with_the_wiped(&newest);
            self.step();
        }
    }
}
