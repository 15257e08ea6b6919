//! Disks with data that rot, and nodes all of whose disks are gone.
//!
//! A bit of what lies on a disk is not what was written any more. Until somebody notices and gives the node another disk, a read says what was
//! written, or that it cannot say. Nothing that is damaged is taken for absent, here or on a copy that is made from it.
//!
//! A node whose disks are gone, that with the metadata too, is that node no more. An operator fails it over and has it removed; what is
//! added in its place is another node. The same becomes of a node that finds the log of its metadata damaged when it starts.
//!
//! A disk with metadata may lie: it confirms what it does not write, and its machine loses power. Or somebody puts an image of a node's disks in
//! their place that was made when the node had been stopped. Then the node's log, or its data, are as they were some time ago. It may
//! notice that its log lacks what it had confirmed; then it serves nothing, and is removed. Otherwise it goes on. Nothing is promised
//! of what it serves by old data, but all else is kept. Nothing else is lost meanwhile, and all nodes know what was agreed on.

use std::{collections::BTreeSet, sync::Arc};

use base::NodeId;
use cluster::{Command, FailOver, Membership, Metadata, consensus::LogError};

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
/// How long an operator waits whether two groups become one by themselves. A node without a leader takes every word after ten seconds.
const DECIDES_MILLIS: u64 = 30_000;

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
        let Some(id) = self.any_node().filter(|id| self.may_go(*id)) else { return };
        self.stop(id, End::DiskLost);
        self.journal.note(format_args!("{id} is gone with all its disks"));
        self.tally.wiped += 1;
        self.give_up(id);
    }

    /// Whether the others go on if that node never comes back.
    fn may_go(&self, id: NodeId) -> bool {
        // A majority that is lost for good is a matter of its own: the voters may be about to change.
        if self.newest().node_by_id(id).is_none() || self.processes().any(Process::has_proposed) {
            return false;
        }
        let Some(leader) = self.processes().find(|process| process.leads()) else { return false };
        let (voters, learners) = leader.members();
        let is_left = |voter: &NodeId| {
            *voter != id && self.machines.get(voter).is_some_and(|one| one.process.is_some())
        };
        let have_majority = |voters: &BTreeSet<NodeId>| {
            voters.iter().filter(|voter| is_left(voter)).count() * 2 > voters.len()
        };
        // The leader changes one of them at a time. It may be about to let a learner vote, or a voter that was failed over no more.
        let with = |learner: NodeId| voters.iter().copied().chain([learner]).collect();
        let without = |voter: NodeId| voters.iter().copied().filter(|one| *one != voter).collect();
        let counts = |voter: &NodeId| {
            let node = self.newest().node_by_id(*voter);
            node.is_some_and(|node| node.membership != Membership::InactiveFailed)
        };
        let leaving = voters.iter().copied().filter(|voter| !counts(voter));
        let next = learners.iter().copied().filter(counts).map(with).chain(leaving.map(without));
        have_majority(&voters) && next.collect::<Vec<_>>().iter().all(have_majority)
    }

    /// A node never comes back.
    pub(super) fn give_up(&mut self, id: NodeId) {
        self.lost_something();
        if self.takes_along(id, End::DiskLost) {
            self.risk_everything("what only a node had that is gone is gone");
        }
        let machine = self.machine(id);
        machine.shelf.lose_data();
        (machine.is_wiped, machine.starts_at) = (true, u64::MAX);
    }

    pub(super) fn rot_log(&mut self) {
        let Some(id) = self.any_node().filter(|id| self.may_go(*id)) else { return };
        let Self { machines, rng, .. } = self;
        if !machines.get_mut(&id).expect("one of the machines").shelf.log.rot(rng) {
            return;
        }
        self.journal.note(format_args!("the log of {id} rots"));
        self.tally.rotten_logs += 1;
        self.lost_something();
        let at = self.journal.now + self.rng.u64(0..4_000);
        self.mends.push((at, Mend::RottenLog(id)));
    }

    /// It notices, or what has rotted was not in use any more.
    pub(super) fn restart_with_rotten_log(&mut self, id: NodeId) {
        if self.machines.get(&id).is_none_or(|machine| !machine.shelf.log.is_rotten || machine.is_wiped) {
            return;
        }
        if self.newest().node_by_id(id).is_some() && !self.may_go(id) {
            let again = self.journal.now + self.rng.u64(50..500);
            return self.mends.push((again, Mend::RottenLog(id)));
        }
        let end = self.rng.choice([End::Clean, End::Killed, End::PowerLoss]).unwrap_or(End::Killed);
        self.stop(id, end);
        let starts_at = self.journal.now + self.rng.u64(50..1_000);
        self.machine(id).starts_at = starts_at;
    }

    /// A node does not start: its log is damaged.
    pub(super) fn gone_with_its_log(&mut self, id: NodeId, error: &LogError) {
        self.journal.note(format_args!("{id} does not start: {error}"));
        self.tally.damaged_logs += 1;
        self.give_up(id);
    }

    /// A disk with metadata begins to lie, or its machine loses power.
    pub(super) fn lie(&mut self) {
        let lies = self.machines.values().find(|machine| machine.shelf.log.lies).map(Machine::id);
        let Some(id) = lies else {
            let Some(id) = self.any_node() else { return };
            self.journal.note(format_args!("the disk with the metadata of {id} lies"));
            self.machine(id).shelf.log.set_lies(true);
            return;
        };
        if self.is_settled() && self.may_go(id) {
            self.journal.note(format_args!("{id} loses what its disk has confirmed"));
            self.tally.lying_logs += 1;
            self.stop(id, End::PowerLoss);
            let starts_at = self.journal.now + self.rng.u64(50..1_000);
            let Self { machines, rng, .. } = self;
            let machine = machines.get_mut(&id).expect("one of the machines");
            machine.shelf.log.lose_power(rng);
            machine.starts_at = starts_at;
        }
    }

    /// Somebody stops a node and copies its disks, or puts a copy into their place.
    pub(super) fn copy_or_restore(&mut self) {
        let has_image = |machine: &&Machine| machine.image.is_some();
        let copied = self.machines.values().find(has_image).map(Machine::id);
        let Some(id) = copied.filter(|_| self.rng.u8(0..4) > 0).or_else(|| self.any_node()) else { return };
        if !self.may_go(id) {
            return;
        }
        let image = self.machine(id).image.take();
        let end = if image.is_none() { End::Clean } else { End::Killed };
        self.stop(id, end);
        let (log, data) = self.rng.choice([(true, true), (true, false), (false, true)]).unwrap_or_default();
        let starts_at = self.journal.now + self.rng.u64(50..5_000);
        let machine = self.machine(id);
        machine.starts_at = starts_at;
        if let Some(image) = image {
            machine.shelf.restore(image, log, data);
            machine.served_by_old_data.clear();
            self.journal.note(format_args!("old disks of {id}: log {log}, data {data}"));
        } else {
            machine.image = Some(machine.shelf.image());
            self.tally.images += 1;
            self.journal.note(format_args!("the disks of {id} are copied"));
        }
    }

    /// A node starts.
    pub(super) fn starts_with_what_it_had(&mut self, id: NodeId) {
        let shelf = &self.machines[&id].shelf;
        self.tally.old_logs += u64::from(shelf.log.is_old);
        self.tally.old_data += u64::from(shelf.is_old);
    }

    /// What a node serves by old data is promised to nobody. One that has noticed that its log is old serves nothing, and is
    /// removed.
    pub(super) fn follow_old_images(&mut self) {
        let mut risked = BTreeSet::new();
        let mut known = Vec::new();
        for machine in self.machines.values_mut() {
            let Some(process) = &mut machine.process else { continue };
            if machine.shelf.is_old {
                let active = process.active().into_iter().map(|(bucket, vb, _)| (bucket.clone(), vb));
                risked.extend(active.filter(|copy| machine.served_by_old_data.insert(copy.clone())));
                machine.shelf.is_old = self.is_fragile;
            }
            if machine.shelf.log.is_old && process.is_known_to_be_old() {
                assert!(
                    process.active().is_empty(),
                    "{} serves by an old log, and knows",
                    machine.member.node
                );
                known.push(machine.member.node);
            } else if process.has_what_it_lacked() {
                machine.shelf.log.is_old = false;
            }
        }
        if !risked.is_empty() {
            self.journal.note(format_args!("{} vBuckets are served by old data", risked.len()));
            self.risk_vbs(&risked);
        }
        for id in known {
            if self.rng.u32(0..LOOKS) == 0 {
                self.journal.note(format_args!("{id} has noticed that its log is old"));
                self.tally.old_logs_noticed += 1;
                self.stop(id, End::Killed);
                self.give_up(id);
            }
        }
    }

    /// An operator fails each node over that is gone, unless that has happened by itself, and has them removed.
    pub(super) fn part_with_the_wiped(&mut self, newest: &Metadata) {
        let wiped = self.machines.values().filter(|machine| machine.is_wiped);
        let gone: Vec<_> = wiped.filter_map(|machine| newest.node_by_id(machine.id())).collect();
        if gone.is_empty() || self.rng.u32(0..LOOKS) > 0 {
            return;
        }
        if let Some(node) = gone.iter().find(|node| node.membership == Membership::Active) {
            // In the end somebody takes a risk.
            let allow_unsafe = self.rng.u8(0..4) == 0;
            self.propose(Command::FailOver(FailOver { nodes: vec![node.id], allow_unsafe, auto: false }));
        } else {
            let gone: Vec<NodeId> = gone.iter().map(|node| node.id).collect();
            self.start_rebalance(newest, &gone);
        }
    }

    /// Nobody waits any longer for a node that is gone, or turns out to be.
    pub(super) fn part_with_all_wiped(&mut self) {
        let mut until = self.journal.now + HEALING_MILLIS;
        let mut decides_at = self.journal.now + DECIDES_MILLIS;
        while !self.is_settled() {
            assert!(self.journal.now < until, "quiet is waited for in vain: {}", self.what_is_left());
            if self.journal.now >= decides_at && self.end_one_of_two_groups() {
                (decides_at, until) = (u64::MAX, self.journal.now + HEALING_MILLIS);
            }
            let newest = Arc::clone(self.newest());
            self.part_with_the_wiped(&newest);
            self.step();
        }
    }
}
