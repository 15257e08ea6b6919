//! What goes wrong, as often as the kind of run says, and for a while.

use std::sync::Arc;

use base::{
    NodeId,
    bucket::{BucketKind, DurabilityLevel},
};
use cluster::BucketInfo;

use super::{WAKING_MILLIS, World};
use crate::{
    faults::{Losses, NEVER},
    machine::{End, Machine},
    process::{PARTS, Process},
};

/// What ends something that went wrong.
#[derive(Clone, Debug)]
pub(super) enum Mend {
    /// These directions are open again.
    Cuts(Vec<(NodeId, NodeId)>),
    /// These directions are cut from then on, until that moment.
    CutFrom(Vec<(NodeId, NodeId)>, u64),
    /// They are cut, once more, until that moment.
    CutAgain(Vec<(NodeId, NodeId)>, u64),
    /// Between two nodes all is as it was.
    SlowLink(NodeId, NodeId),
    /// Its disks have space again.
    FullDisk(NodeId),
    /// The first one is killed, and is back before the second one, which is paused.
    Forget(NodeId, End, NodeId),
    /// Somebody ends a node whose disk fails, and gives it another disk with what could be read.
    BadDisk(NodeId),
    /// Somebody gives a node whose disk rots another one, with nothing on it.
    RottenDisk(NodeId),
    /// Somebody starts a node again whose log rots.
    RottenLog(NodeId),
    /// Somebody changes after how long nodes are failed over.
    ChangeTimeout,
    /// The node that has formed the group anew is lost as well.
    LoseFounder(NodeId),
}

/// Keys among which one is looked for that is written with a majority.
const KEYS_TRIED: usize = 8;
/// Clocks are set back or forth by so much at most, now and then.
const LEAP_MILLIS: i64 = 6 * 3_600_000;

impl World {
    /// Whether something happens that does so once in so many steps.
    pub(super) fn happens(&mut self, one_in: u32) -> bool {
        one_in != NEVER && self.rng.u32(0..one_in) == 0
    }

    /// One step's mishaps.
    pub(super) fn go_wrong(&mut self) {
        let faults = self.faults;
        if self.happens(faults.crash) && self.may_lose_something() {
            self.crash();
        }
        if self.happens(faults.forgotten) && self.may_lose_something() {
            self.slow_down_an_active();
        }
        if self.happens(faults.version) {
            self.replace_version();
        }
        if self.happens(faults.bad_disk) && self.may_lose_something() {
            self.fail_disk();
        }
        if self.happens(faults.rot) && self.may_lose_something() {
            self.rot();
        }
        if self.happens(faults.wipe) && self.may_lose_something() {
            self.wipe();
        }
        if self.happens(faults.rotten_log) && self.may_lose_something() {
            self.rot_log();
        }
        if self.happens(faults.lying_log) && self.may_lose_something() {
            self.lie();
        }
        if self.happens(faults.old_image) && self.may_lose_something() && self.is_settled() {
            self.copy_or_restore();
        }
        if self.happens(faults.cut) && self.may_be_away() {
            self.cut();
        }
        if self.happens(faults.pause) && self.may_be_away() {
            self.pause();
        }
        if self.happens(faults.stall) && self.may_lose_something() {
            self.stall();
        }
        if self.happens(faults.hung_log) && self.may_lose_something() {
            self.hang_log();
        }
        if self.happens(faults.lost_majority) && !self.is_fragile && self.is_settled() {
            self.lose_majority();
        }
        let now = self.journal.now;
        if self.happens(faults.slow_disk)
            && let Some(id) = self.any_node()
        {
            let until = now + self.rng.u64(100..4_000);
            self.machine(id).slow_until = until;
            self.tally.slow_disks += 1;
        }
        if self.happens(faults.slow_link) {
            self.slow_link();
        }
        if self.happens(faults.full_disk)
            && let Some(id) = self.any_node()
        {
            self.fill_disk(id);
        }
        if self.happens(faults.jump)
            && let Some(id) = self.any_node()
        {
            self.jump(id);
        }
    }

    fn jump(&mut self, id: NodeId) {
        let is_leap = self.rng.u8(0..4) == 0;
        let most = if is_leap { LEAP_MILLIS } else { 3_000 };
        let millis = self.rng.i64(-most..most);
        self.tally.jumps += 1;
        self.tally.leaps += u64::from(is_leap);
        self.journal.note(format_args!("the date of {id} jumps by {millis} ms"));
        self.machine(id).clock.ahead += millis;
    }

    pub(super) fn any_node(&mut self) -> Option<NodeId> {
        let there = self.machines.values().filter(|machine| !machine.is_wiped).map(Machine::id);
        self.rng.choice(there.collect::<Vec<_>>())
    }

    /// Whether there may be another loss. Where a node may lose memory, whatever else may have it replaced, or others go on
    /// without it, counts as one too.
    pub(super) fn may_lose_something(&self) -> bool {
        self.faults.losses == Losses::AnyTime || !self.is_fragile
    }

    /// Whether a node may be away that loses nothing. What is promised for a copy that is lost beside one that is away is a matter of
    /// kinds of their own.
    fn may_be_away(&self) -> bool {
        self.faults.losses == Losses::OneBesideAway || self.may_lose_something()
    }

    /// A node is away. Elsewhere than in those kinds that counts as a loss.
    fn is_away(&mut self) {
        if self.faults.losses != Losses::OneBesideAway {
            self.lost_something();
        }
    }

    fn crash(&mut self) {
        let Some(id) = self.any_node() else { return };
        let ends = [End::Clean, End::Killed, End::PowerLoss, End::DiskLost];
        let end = ends[self.rng.usize(0..if self.faults.lost_disks { 4 } else { 3 })];
        let down = self.rng.u64(50..6_000);
        self.stop(id, end);
        self.machine(id).starts_at = self.journal.now + down;
    }

    /// An active copy of two takes for a while what its disk has not: see [`World::forget`].
    fn slow_down_an_active(&mut self) {
        let newest = Arc::clone(self.newest());
        let keys = (0..KEYS_TRIED).filter_map(|_| self.clients.any_key(&newest, &mut self.rng));
        let Some(place) = keys.into_iter().find(|place| place.level == DurabilityLevel::Majority) else {
            return;
        };
        let Some((_, info)) = newest.bucket_by_uuid(&place.bucket) else { return };
        let plan = &info.vbs[usize::from(place.vb.get())];
        let [active, other] = plan.chain[..] else { return };
        if !plan.is_quiet() {
            return;
        }
        let at = self.journal.now + self.rng.u64(100..500);
        self.machine(active).slow_until = at;
        // Of a bucket in memory a clean end leaves no more than another one.
        let ends = [End::Killed, End::PowerLoss, End::Clean];
        let end = ends[self.rng.usize(0..if info.kind == BucketKind::Ephemeral { 3 } else { 2 })];
        self.mends.push((at, Mend::Forget(active, end, other)));
    }

    /// What a majority of two has acknowledged is with both, and on one disk at most. Now the other one is away. The active one has
    /// forgotten some of it, is back, and is the first that can be asked. Nobody may go on before the other one is back as well.
    fn forget(&mut self, active: NodeId, end: End, other: NodeId) {
        let runs = |id: NodeId| self.machines.get(&id).is_some_and(|machine| machine.process.is_some());
        if !self.may_lose_something() || !runs(active) || !runs(other) {
            return;
        }
        let now = self.journal.now;
        let (until, starts_at) = (now + self.rng.u64(3_000..8_000), now + self.rng.u64(50..500));
        self.journal.note(format_args!("{other} pauses until {until}, and {active} forgets something"));
        self.tally.forgotten += 1;
        self.is_away();
        let machine = self.machine(other);
        machine.paused_until = until.max(machine.paused_until);
        self.stop(active, end);
        self.machine(active).starts_at = starts_at;
    }

    pub(super) fn stop(&mut self, id: NodeId, end: End) {
        if self.machines[&id].process.is_none() {
            return;
        }
        self.journal.note(format_args!("{id} ends: {end:?}"));
        self.tally.crashes += 1;
        self.lost_something();
        if self.takes_along(id, end) {
            self.risk_everything("what was with one node only may be gone");
        }
        // Nobody else may hold on to its buckets.
        self.connections.values_mut().for_each(|connection| connection.lose_end_of(id));
        self.watch.lose(id);
        self.scans.lose(id);
        let (written, at) = (self.rng.usize(0..4), self.journal.now);
        let Self { machines, rng, .. } = self;
        machines.get_mut(&id).expect("one of the machines").stop(end, written, at, rng);
    }

    /// Whether something may go with a node that ends like this although it was acknowledged as safe. Of a copy that counts alone,
    /// where no other is configured, a majority has what that node has in memory.
    pub(super) fn takes_along(&self, id: NodeId, end: End) -> bool {
        let is_memory_promised = self.faults.promise().level < DurabilityLevel::PersistToMajority;
        let forgets = |info: &BucketInfo| match info.kind {
            BucketKind::Couchbase => end == End::DiskLost || (end != End::Clean && is_memory_promised),
            BucketKind::Ephemeral | BucketKind::Memcached => true,
        };
        let is_alone = |info: &BucketInfo| info.vbs.iter().any(|plan| plan.counted() == [id]);
        self.newest().buckets.values().any(|info| forgets(info) && is_alone(info))
    }

    pub(super) fn start(&mut self, id: NodeId) {
        let (boot, at) = (self.rng.u64(..), self.journal.now);
        self.journal.note(format_args!("{id} starts"));
        let level = self.versions.of(id);
        if let Err(error) = self.machine(id).start(boot, level, at) {
            return self.gone_with_its_log(id, &error);
        }
        self.starts_with_what_it_had(id);
    }

    /// Separates some from the others, in both directions or one, for a while or again and again.
    fn cut(&mut self) {
        let ids = self.ids();
        let side: Vec<bool> = ids.iter().map(|_| self.rng.u8(0..3) == 0).collect();
        let one_way = self.rng.u8(0..3) == 0;
        let mut cuts = Vec::new();
        for (a, from) in ids.iter().enumerate() {
            for (b, to) in ids.iter().enumerate() {
                if side[a] != side[b] && (!one_way || side[a]) {
                    cuts.push((*from, *to));
                }
            }
        }
        if cuts.is_empty() {
            return;
        }
        let now = self.journal.now;
        let until = now + self.rng.u64(100..8_000);
        self.journal.note(format_args!("until {until}: cut {cuts:?}"));
        self.tally.cuts += 1;
        self.is_away();
        if self.rng.u8(0..4) == 0 {
            self.mends.push((now, Mend::CutAgain(cuts, until)));
        } else {
            cuts.iter().for_each(|(from, to)| self.network.cut(*from, *to));
            self.mends.push((until, Mend::Cuts(cuts)));
        }
    }

    fn pause(&mut self) {
        // Half of the time it is one that takes itself for the leader.
        let leader =
            self.machines.values().find(|machine| machine.process.as_ref().is_some_and(Process::leads));
        let leader = leader.map(Machine::id).filter(|_| self.rng.bool());
        let Some(id) = leader.or_else(|| self.any_node()) else { return };
        let now = self.journal.now;
        let until = now + self.rng.u64(100..self.faults.pause_max);
        // The clocks of a machine that is suspended part, those of one whose process is paused go on.
        let is_suspended = self.rng.bool() && self.machines[&id].paused_until <= now;
        self.journal.note(format_args!("{id} pauses until {until}, suspended: {is_suspended}"));
        self.tally.pauses += 1;
        self.is_away();
        let machine = self.machine(id);
        if is_suspended {
            machine.clock.suspend(now, until);
            machine.sleeps_until = until;
        }
        machine.paused_until = until.max(machine.sleeps_until);
        self.tally.suspends += u64::from(is_suspended);
        let others: Vec<NodeId> = self.ids().into_iter().filter(|other| *other != id).collect();
        let cuts: Vec<_> = others.into_iter().flat_map(|other| [(id, other), (other, id)]).collect();
        // A cut may begin, or end, just when it wakes.
        match self.rng.u8(0..6) {
            0 => {
                let mended = until + self.rng.u64(50..4_000);
                self.journal.note(format_args!("{id} will wake alone, until {mended}"));
                self.mends.push((until, Mend::CutFrom(cuts, mended)));
            }
            1 => {
                cuts.iter().for_each(|(from, to)| self.network.cut(*from, *to));
                self.mends.push((until, Mend::Cuts(cuts)));
            }
            _ => {}
        }
    }

    /// A thread of a process is not given any time; the others are.
    fn stall(&mut self) {
        let Some(id) = self.any_node() else { return };
        let now = self.journal.now;
        let (part, until) = (self.rng.usize(0..PARTS), now + self.rng.u64(100..self.faults.pause_max));
        let machine = self.machine(id);
        let Some(process) = &mut machine.process else { return };
        process.stalled_until[part] = machine.clock.now(until).mono_millis;
        self.journal.note(format_args!("part {part} of {id} stands still until {until}"));
        self.tally.stalls += 1;
        self.lost_something();
    }

    /// A disk with metadata takes nothing for a while; the data lies elsewhere.
    fn hang_log(&mut self) {
        let Some(id) = self.any_node() else { return };
        let until = self.journal.now + self.rng.u64(100..self.faults.pause_max);
        self.journal.note(format_args!("the disk with the metadata of {id} hangs until {until}"));
        self.tally.hung_logs += 1;
        self.lost_something();
        self.machine(id).log_hangs_until = until;
    }

    /// A disk begins to fail, that of the data or that of the metadata, until somebody does something about it.
    fn fail_disk(&mut self) {
        let Some(id) = self.any_node() else { return };
        let (is_data, until) = (self.rng.bool(), self.journal.now + self.rng.u64(100..3_000));
        let what = if is_data { "data" } else { "metadata" };
        self.journal.note(format_args!("the disk with the {what} of {id} fails until {until}"));
        self.tally.bad_disks += 1;
        self.lost_something();
        let shelf = &mut self.machine(id).shelf;
        if is_data {
            shelf.set_syncs_fail(true);
        } else {
            shelf.log.fails = true;
        }
        self.mends.push((until, Mend::BadDisk(id)));
    }

    /// Its process ends, whatever it has noticed, and the disks work again.
    fn mend_disk(&mut self, id: NodeId) {
        if !self.machines.contains_key(&id) {
            return;
        }
        let end = if self.rng.bool() { End::Killed } else { End::PowerLoss };
        self.stop(id, end);
        let starts_at = self.journal.now + self.rng.u64(50..1_000);
        let machine = self.machine(id);
        machine.starts_at = starts_at.max(machine.starts_at);
        machine.shelf.set_syncs_fail(false);
        machine.shelf.log.fails = false;
    }

    fn slow_link(&mut self) {
        let Some(between) = self.any_node().zip(self.any_node()).filter(|(a, b)| a != b) else { return };
        let (until, millis) = (self.journal.now + self.rng.u64(200..6_000), self.rng.u64(20..500));
        self.journal.note(format_args!("until {until}: {between:?} are {millis} ms apart"));
        self.tally.slow_links += 1;
        self.network.slow_down(between, millis);
        self.mends.push((until, Mend::SlowLink(between.0, between.1)));
    }

    fn fill_disk(&mut self, id: NodeId) {
        let until = self.journal.now + self.rng.u64(100..5_000);
        self.journal.note(format_args!("the disks of {id} are full until {until}"));
        self.tally.full_disks += 1;
        self.machine(id).shelf.set_full(true);
        self.mends.push((until, Mend::FullDisk(id)));
    }

    pub(super) fn mend_what_is_due(&mut self) {
        let now = self.journal.now;
        let due: Vec<_> = self.mends.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, mend) in due {
            match mend {
                Mend::Cuts(cuts) => cuts.into_iter().for_each(|(from, to)| self.network.mend(from, to)),
                Mend::CutFrom(cuts, until) => {
                    cuts.iter().for_each(|(from, to)| self.network.cut(*from, *to));
                    self.mends.push((until, Mend::Cuts(cuts)));
                }
                Mend::BadDisk(id) => self.mend_disk(id),
                Mend::RottenDisk(id) => self.replace_rotten_disk(id),
                Mend::RottenLog(id) => self.restart_with_rotten_log(id),
                Mend::ChangeTimeout => self.change_timeout(),
                Mend::LoseFounder(id) => self.lose_founder(id),
                Mend::Forget(active, end, other) => self.forget(active, end, other),
                Mend::SlowLink(a, b) => self.network.slow_down((a, b), 0),
                // It may have left meanwhile.
                Mend::FullDisk(id) => {
                    if let Some(machine) = self.machines.get_mut(&id) {
                        machine.shelf.set_full(false);
                    }
                }
                Mend::CutAgain(cuts, until) => {
                    for &(from, to) in &cuts {
                        if self.network.is_cut(from, to) || now >= until {
                            self.network.mend(from, to);
                        } else {
                            self.network.cut(from, to);
                        }
                    }
                    if now < until {
                        let again = now + self.rng.u64(50..800);
                        self.mends.push((again.min(until), Mend::CutAgain(cuts, until)));
                    }
                }
            }
        }
    }

    /// Nothing is wrong any more, and each node that does not run is started.
    pub(super) fn mend_everything(&mut self) {
        self.journal.note(format_args!("healing"));
        (self.network.loss, self.network.repeats, self.network.breaks) = (0, 0, NEVER);
        self.network.mend_all();
        self.mends.retain(|(_, mend)| matches!(mend, Mend::RottenLog(_)));
        self.lost = None;
        for id in self.ids() {
            let shelf = &self.machines[&id].shelf;
            if shelf.syncs_fail || shelf.log.fails {
                self.mend_disk(id);
            }
            self.replace_rotten_disk(id);
            let now = self.journal.now;
            let machine = self.machine(id);
            machine.clock.wake(now);
            machine.sleeps_until = 0;
            let was_paused = machine.paused_until > now;
            (machine.paused_until, machine.slow_until, machine.log_hangs_until) = (0, 0, 0);
            if let Some(process) = &mut machine.process {
                process.stalled_until = [0; PARTS];
            }
            machine.shelf.set_full(false);
            // One that has lost power says itself what it lacks when its node starts.
            if machine.process.is_some() {
                machine.shelf.log.set_lies(false);
            }
            if machine.process.is_none() && !machine.is_wiped {
                machine.starts_at = now;
            }
            if was_paused {
                self.network.wake(&mut self.rng, id, now, WAKING_MILLIS);
            }
        }
    }
}
