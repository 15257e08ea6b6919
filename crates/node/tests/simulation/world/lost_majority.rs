//! So many nodes are lost at once that the others can agree on nothing. An operator fails them over at any price, which
//! has the survivors form their group anew. The lost ones come back later, with what their disks and logs have.
//!
//! What was written to a vBucket of which enough copies are left is kept: the others have no part in that. Nodes that come back may be a
//! majority of the old group, and go on as that until they hear of the new one. What they serve meanwhile is promised to nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base::{BucketUuid, DocKey, NodeId, VbId, hash::vbucket_of};
use cluster::{BucketInfo, Membership, Metadata};

use super::{World, operator::VBUCKETS};
use crate::{
    clients::MARK_SUFFIX,
    machine::{End, Machine},
    process::{Leaving, Process},
};

/// How far versions leap when a group is formed anew.
const LEAP: u64 = 1 << 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Lost {
    nodes: Vec<NodeId>,
    /// When the operator asks, again.
    ask_at: u64,
}

impl World {
    pub(super) fn lose_majority(&mut self) {
        let newest = Arc::clone(self.newest());
        let Some((voters, _)) = self.processes().find(|process| process.leads()).map(Process::members) else {
            return;
        };
        let mut active: Vec<NodeId> = newest.active_nodes().map(|node| node.id).collect();
        self.rng.shuffle(&mut active);
        let is_lost = |count: usize| {
            let left = voters.iter().filter(|voter| !active[..count].contains(voter)).count();
            left * 2 <= voters.len()
        };
        let Some(least) = (1..active.len()).find(|count| is_lost(*count)) else { return };
        let count = if self.rng.bool() { least } else { self.rng.usize(least..active.len()) };
        let nodes = active[..count].to_vec();
        self.journal.note(format_args!("the majority is lost: {nodes:?} of {voters:?}"));
        self.tally.lost_majorities += 1;
        for &id in &nodes {
            self.lose_for_long(id);
        }
        self.risk_what_is_lost_with(&newest, &nodes);
        let ask_at = self.journal.now + self.rng.u64(0..5_000);
        self.lost = Some(Lost { nodes, ask_at });
    }

    fn lose_for_long(&mut self, id: NodeId) {
        let end =
            self.rng.choice([End::Clean, End::Killed, End::PowerLoss, End::DiskLost]).unwrap_or(End::Killed);
        self.stop(id, end);
        let down = self.rng.u64(3_000..20_000);
        self.machine(id).starts_at = self.journal.now + down;
    }

    /// The node that has formed the group anew is lost, too. Others may have been told to join it, and have heard nothing else.
    pub(super) fn lose_founder(&mut self, id: NodeId) {
        let others = self.machines.values().filter(|machine| machine.process.is_some() && machine.id() != id);
        if others.count() == 0 || self.machines.get(&id).is_none_or(|machine| machine.process.is_none()) {
            return;
        }
        self.journal.note(format_args!("{id} is lost, which has formed the group anew"));
        self.tally.founders_lost += 1;
        self.lose_for_long(id);
        self.risk_everything("what only the founder knew is gone");
        let ask_at = self.journal.now + self.rng.u64(0..3_000);
        let lost = self.lost.get_or_insert(Lost { nodes: Vec::new(), ask_at });
        lost.nodes.push(id);
        lost.ask_at = ask_at;
    }

    /// An operator asks a survivor to fail the lost nodes over, until that is done or they are back.
    pub(super) fn fail_over_the_lost(&mut self, newest: &Metadata) {
        let Some(lost) = &self.lost else { return };
        let is_active =
            |id: &NodeId| newest.node_by_id(*id).is_some_and(|node| node.membership == Membership::Active);
        let runs = |id: &NodeId| self.machines.get(id).is_some_and(|machine| machine.process.is_some());
        if !lost.nodes.iter().any(is_active) || lost.nodes.iter().all(runs) {
            self.lost = None;
            return;
        }
        if self.journal.now < lost.ask_at {
            return;
        }
        let survives = |machine: &&Machine| machine.process.is_some() && !lost.nodes.contains(&machine.id());
        let survivors: Vec<NodeId> = self.machines.values().filter(survives).map(Machine::id).collect();
        let (Some(id), nodes) = (self.rng.choice(survivors), lost.nodes.clone()) else { return };
        let at = self.journal.now;
        let machine = self.machine(id);
        let ms = machine.clock.now(at).mono_millis;
        if let Some(process) = &mut machine.process {
            process.fail_over_at_any_price(nodes, ms);
        }
        let again = at + self.rng.u64(1_000..8_000);
        self.lost.iter_mut().for_each(|lost| lost.ask_at = again);
    }

    /// Somebody has formed the group anew; `before` is the newest that anybody had known.
    pub(super) fn reformed(&mut self, before: &Metadata, after: &Metadata, founder: NodeId) {
        self.journal.note(format_args!("{founder} has formed the group anew"));
        self.tally.reformed += 1;
        self.lost_something();
        // A number that was offered in vain is left out, which is another leap.
        if after.version.wrapping_sub(before.version) % LEAP == 1 {
            let failed = |state: &Metadata| -> BTreeSet<NodeId> {
                let failed = state.nodes.iter().filter(|node| node.membership == Membership::InactiveFailed);
                failed.map(|node| node.id).collect()
            };
            let news: Vec<NodeId> = failed(after).difference(&failed(before)).copied().collect();
            self.risk_what_is_lost_with(before, &news);
        } else {
            self.risk_everything("the survivors do not know everything that was agreed on");
        }
        if self.rng.u8(0..4) == 0 {
            let at = self.journal.now + self.rng.u64(0..1_500);
            self.mends.push((at, super::Mend::LoseFounder(founder)));
        }
    }

    /// Two groups live on side by side, each of which has failed nodes of the other over, and some node warns of that. An operator
    /// resets the nodes of the earlier one. They are nodes that are gone to the other group. Returns whether that was so.
    pub(super) fn end_one_of_two_groups(&mut self) -> bool {
        let version = self.newest().version;
        let stays = self.processes().find(|process| process.metadata.version == version);
        let stays = stays.map(Process::epoch);
        let is_torn = |process: &&Process| process.leaving == Leaving::Torn && Some(process.epoch()) < stays;
        let Some(goes) = self.processes().find(is_torn).map(Process::epoch) else { return false };
        let is_reset = |machine: &&Machine| machine.process.as_ref().is_some_and(|one| one.epoch() == goes);
        let nodes: Vec<NodeId> = self.machines.values().filter(is_reset).map(Machine::id).collect();
        self.journal.note(format_args!("there are two groups: {nodes:?} are reset, of {goes:?}"));
        self.tally.groups_ended += 1;
        self.risk_everything("what only the nodes had that are reset is gone");
        for id in nodes {
            self.stop(id, End::DiskLost);
            self.give_up(id);
        }
        true
    }

    /// Nothing is promised of vBuckets of which too few copies are left without these nodes.
    fn risk_what_is_lost_with(&mut self, metadata: &Metadata, nodes: &[NodeId]) {
        let mut risked = BTreeSet::new();
        let mut kept = 0;
        for (name, info) in &metadata.buckets {
            for (vb, plan) in info.vbs.iter().enumerate() {
                let alone = BucketInfo { vbs: Arc::new(vec![plan.clone()]), ..info.clone() };
                let buckets = BTreeMap::from([(name.clone(), alone)]);
                let alone = Metadata { buckets, ..metadata.clone() };
                if alone.unsafe_without(nodes).is_some() {
                    risked.insert((info.uuid.clone(), VbId(vb as u16)));
                } else {
                    kept += 1;
                }
            }
        }
        self.journal
            .note(format_args!("{} vBuckets may be lost with {nodes:?}, {kept} are not", risked.len()));
        self.tally.vbs_kept += kept;
        self.risk_vbs(&risked);
    }

    /// Nothing is promised any more of what was written to these so far.
    pub(super) fn risk_vbs(&mut self, risked: &BTreeSet<(BucketUuid, VbId)>) {
        self.clients.forget_some(risked);
        let of_vb = |bucket: &BucketUuid, key: &[u8]| {
            let key = key.strip_suffix(MARK_SUFFIX).unwrap_or(key);
            let vb = vbucket_of(DocKey::trusted(key).logical(), VBUCKETS);
            risked.contains(&(bucket.clone(), vb))
        };
        self.invariants.histories.forget_some(of_vb);
        self.invariants.never_back.forget_some(risked);
        self.invariants.resolution.forget();
    }
}
