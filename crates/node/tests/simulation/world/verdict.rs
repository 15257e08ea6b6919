//! How a world is judged: what must hold at every step, and how it has to end.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use base::{BucketUuid, NodeId, Seqno, VbId};
use cluster::BucketInfo;
use settee_node::{Copies as _, Copy};

use super::{CopyId, Tally, World};
use crate::{
    invariants::{copies, one_active::Serving},
    machine::Machine,
    open_bucket::OpenBucket,
    operation::decode_value,
    process::Process,
};

/// Of a copy: its term, its last seqno, and the last one that is on disk, if there is one.
type CopyState = (u64, Seqno, Seqno);

/// How long a healed cluster may take to be as it shall be.
pub(super) const HEALING_MILLIS: u64 = 120_000;
/// What is quiet to the eye may have something to write yet.
const QUIET_MILLIS: u64 = 3_000;
/// Between two looks whether everything that was lost is there again.
const SOUNDNESS_MILLIS: u64 = 100;
/// Writes at every level after which a cluster counts as serving.
const WRITES: u64 = 3;

impl World {
    /// Lets so many milliseconds go by, with all that goes wrong meanwhile.
    pub(crate) fn endure(&mut self, millis: u64) {
        let until = self.journal.now + millis;
        while self.journal.now < until {
            self.go_wrong();
            self.operate();
            self.step();
        }
    }

    /// Nothing goes wrong any more; the cluster has to become what it shall be, serve, come to rest, and hold what it has
    /// promised.
    pub(crate) fn heal_and_check(&mut self) {
        self.mend_everything();
        self.part_with_all_wiped();
        self.bring_versions_up_to_date();
        self.bring_everybody_in();
        self.check_indexes_before_writes();
        self.clients.hurry = true;
        let before = self.clients.written;
        self.until("writes at every level", |world| {
            world.clients.written.iter().zip(before).all(|(now, before)| *now > before + WRITES)
        });
        self.clients.rest = true;
        self.until("idle clients", |world| world.clients.are_idle());
        self.until("copies that have everything", Self::is_at_rest);
        let until = self.journal.now + QUIET_MILLIS;
        while self.journal.now < until {
            self.step();
        }
        // Somebody's durable write may have timed out meanwhile.
        self.until("rest again", Self::is_at_rest);
        self.watch.is_calm = true;
        // A pager may have come across what had expired meanwhile.
        self.until("subscribers that were told of all", |world| {
            world.are_feeds_at_their_end() && world.is_at_rest()
        });
        self.await_indexes();
        self.check_in_the_end();
    }

    /// What went wrong, and what was asked for, in numbers.
    pub(crate) fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// What happened, in numbers.
    pub(crate) fn summary(&self) -> String {
        let buckets = self.processes().flat_map(|process| process.buckets.values());
        let fetched: u64 = buckets.map(|open| open.engine.stats().ops.bg_fetched).sum();
        format!(
            "{} s, {:?}, {:?}, {}, {}, written {:?}, conditional {}, removed {}, parts {}, from elsewhere {}, {}, read {}, fetched {fetched}, in histories {}, {}, {}{}, {} connections, version {}, trace {:016x}",
            self.journal.now / 1_000,
            self.tally,
            self.versions,
            self.invariants.rebalances.summary(),
            self.invariants.certainty.summary(),
            self.clients.written,
            self.clients.swapped,
            self.clients.removed,
            self.clients.parts,
            self.clients.foreign,
            self.invariants.resolution.summary(),
            self.clients.read,
            self.invariants.histories.len(),
            self.summary_of_feeds(),
            self.summary_of_scans(),
            self.summary_of_indexes(),
            self.connections_made,
            self.newest().version,
            self.journal.trace(),
        )
    }

    /// Steps until something is so, as it has to be after a while.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = self.journal.now + HEALING_MILLIS;
        while !is_so(self) {
            assert!(self.journal.now < until, "{what} is waited for in vain: {}", self.what_is_left());
            self.step();
        }
        self.journal.note(format_args!("there is {what}"));
    }

    /// What must hold at every step.
    pub(super) fn check(&mut self) {
        let at = self.journal.now;
        let life = self.newest().rev_epoch;
        let serving = self.machines.values().filter_map(|machine| {
            let process = machine.process.as_ref().filter(|_| machine.paused_until <= at)?;
            // Nodes that have not heard yet that their group was formed anew go on as before.
            let counts = process.metadata.rev_epoch == life;
            let is_leased = counts && process.is_leased() && process.serves(machine.clock.lease_millis(at));
            Some(Serving { node: machine.id(), is_leased, active: process.active() })
        });
        self.invariants.one_active.check(serving);
        for machine in self.machines.values() {
            if let Some(process) =
                machine.process.as_ref().filter(|process| process.caught_up && process.is_of_cluster())
            {
                self.invariants.never_back.shown(machine.id(), &process.metadata);
            }
        }
        if self.is_fragile && at.is_multiple_of(SOUNDNESS_MILLIS) {
            self.look_whether_all_is_there();
        }
    }

    /// Whether every copy holds, on disk, what active copies held when all was well otherwise.
    fn look_whether_all_is_there(&mut self) {
        let Some(copy_states) = self.copy_states() else {
            self.floors = None;
            return;
        };
        let Some(floors) = &self.floors else {
            let floors = copy_states.into_iter().map(|(id, all)| (id, (all[0].0, all[0].1)));
            self.floors = Some(floors.collect());
            return;
        };
        let same =
            floors.iter().all(|(id, floor)| copy_states.get(id).is_some_and(|all| all[0].0 == floor.0));
        if !same || floors.len() != copy_states.len() {
            self.floors = None;
            return;
        }
        let holds = |(id, all): (&CopyId, &Vec<CopyState>)| {
            let floor = floors[id].1;
            all.iter().all(|(_, high, persisted)| *high >= floor && *persisted >= floor)
        };
        if copy_states.iter().all(holds) {
            (self.is_fragile, self.floors) = (false, None);
            self.journal.note(format_args!("all is there again"));
        }
    }

    /// By vBucket, of each copy, the active one first. Nothing while anything is on its way, or somebody does not run.
    fn copy_states(&self) -> Option<BTreeMap<CopyId, Vec<CopyState>>> {
        if !self.is_settled() {
            return None;
        }
        let mut copy_states = BTreeMap::new();
        for bucket in self.newest().buckets.values() {
            for (vb, plan) in bucket.vbs.iter().enumerate() {
                let vb = VbId(vb as u16);
                let copy_state = |id: &NodeId| {
                    let process = self.machines.get(id)?.process.as_ref()?;
                    let open = process.buckets.get(&bucket.uuid)?;
                    let copy = open.engine.copy(vb);
                    let is_whole = copy.complete && copy.term == plan.term;
                    // What is in memory only is as safe there as it can be.
                    let safe = if open.is_persistent() { copy.persisted } else { copy.high_seqno };
                    is_whole.then_some((copy.term, copy.high_seqno, safe))
                };
                let all: Option<Vec<_>> = plan.chain.iter().map(copy_state).collect();
                copy_states.insert((bucket.uuid.clone(), vb), all.filter(|all| !all.is_empty())?);
            }
        }
        Some(copy_states)
    }

    /// Whether every copy has what the active one has, as safe as it can be.
    pub(super) fn is_at_rest(&self) -> bool {
        let has_all = |all: Vec<CopyState>| {
            let high = all[0].1;
            all.iter().all(|(_, last, safe)| (*last, *safe) == (high, high))
        };
        self.copy_states().is_some_and(|copy_states| copy_states.into_values().all(has_all))
    }

    /// Whether everybody runs, hears everybody, knows the newest metadata, and nothing is on its way.
    pub(super) fn is_settled(&self) -> bool {
        let newest = self.newest();
        let now = self.journal.now;
        let knows = |machine: &Machine| {
            let process = machine.process.as_ref().filter(|_| machine.paused_until <= now);
            process.is_some_and(|process| process.caught_up && process.metadata.version == newest.version)
        };
        let quiet = newest.buckets.values().all(|bucket| bucket.vbs.iter().all(|plan| plan.is_quiet()));
        let members = self.machines.keys().all(|id| newest.node_by_id(*id).is_some());
        let mended = self.mends.is_empty() && members;
        mended && quiet && newest.rebalance.is_none() && self.machines.values().all(knows)
    }

    pub(super) fn what_is_left(&self) -> String {
        let newest = self.newest();
        let mut text = format!("version {}, rebalance {:?}\n", newest.version, newest.rebalance);
        for machine in self.machines.values() {
            let process = machine.process.as_ref();
            let knows = process.map(|process| (process.metadata.version, process.caught_up, process.leads()));
            let open = process.map(Process::what_is_open).unwrap_or_default();
            let _ = writeln!(text, "node {}: (version, caught up, leads) {knows:?}, {open}", machine.id());
        }
        for (name, bucket) in &newest.buckets {
            for (vb, plan) in bucket.vbs.iter().enumerate() {
                let vb = VbId(vb as u16);
                let copy = |id: NodeId| self.open(id, &bucket.uuid).map(|open| open.engine.copy(vb));
                let copies: Vec<(NodeId, Option<Copy>)> =
                    plan.nodes().into_iter().map(|id| (id, copy(id))).collect();
                let last = |copy: &Option<Copy>| copy.map(|copy| (copy.high_seqno, copy.persisted));
                if plan.is_quiet() && copies.iter().all(|(_, copy)| last(copy) == last(&copies[0].1)) {
                    continue;
                }
                let target = bucket.target.as_ref().map(|target| &target[usize::from(vb.get())]);
                let _ = writeln!(text, "{name}/{vb}: {plan:?} wants {target:?}");
                for (id, copy) in copies {
                    let _ = writeln!(text, "  node {id}: {copy:?}");
                }
            }
        }
        let (untold, behind) = (self.untold(), self.indexes_behind());
        text + &format!("not told: {untold:#?}\nwrites {:?}\n{behind}", self.clients.written)
    }

    pub(super) fn open(&self, id: NodeId, bucket: &BucketUuid) -> Option<&OpenBucket> {
        self.machines.get(&id)?.process.as_ref()?.buckets.get(bucket)
    }

    fn check_in_the_end(&mut self) {
        let metadata = Arc::clone(self.newest());
        let at = self.journal.now;
        let open = |id: NodeId, bucket: &BucketUuid| {
            let now = self.machines.get(&id)?.clock.now(at);
            self.open(id, bucket).map(|open| (open, now))
        };
        copies::check(&metadata, &open, &|info: &BucketInfo| self.clients.keys(info));
        let read = |info: &BucketInfo, vb: VbId, key: &[u8]| {
            let (open, now) = open(*info.vbs[usize::from(vb.get())].chain.first()?, &info.uuid)?;
            let found =
                open.read(vb, key, now).unwrap_or_else(|status| panic!("{key:?} of {vb}: {status:?}"));
            found.map(|document| decode_value(&document.value))
        };
        let found = self.clients.find_all(&metadata, &read);
        self.clients.note_found(found, &mut self.invariants);
        self.read_marks_in_the_end();
        self.check_feeds_in_the_end();
        self.check_indexes_in_the_end();
        self.invariants.histories.check(self.faults.promise().level);
    }
}
