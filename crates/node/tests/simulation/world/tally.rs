//! What happened, in numbers, and what has to have happened: a kind of run in which nothing goes wrong shows nothing.

use super::STEP_MILLIS;
use crate::{
    faults::{Faults, Losses, NEVER},
    kinds::Kind,
};

/// What would happen so often on average has happened.
const CERTAIN: u64 = 10;
/// The same of a loss, which does not happen before all is well again after the one before.
const CERTAIN_LOSSES: u64 = 36;
/// In so many steps somebody has been failed over, where that happens without anybody asking.
const CERTAIN_STEPS: u64 = 16_000;
/// An image comes back as the log, or as the data, once in so many times that one is made or comes back.
const RESTORED: u32 = 4;
/// One jump in so many is a leap.
const LEAPS: u32 = 4;
/// One pause in so many is that of a machine.
const SUSPENDS: u32 = 2;

macro_rules! tally {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// See the module.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Tally {
            $($(#[$about])* pub(super) $name: u64,)*
        }

        impl Tally {
            /// Of another run of the same kind.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

tally! {
    crashes,
    forgotten,
    cuts,
    broken_links,
    newer_versions,
    pauses,
    suspends,
    bad_disks,
    rotten_disks,
    rotten_logs,
    lying_logs,
    damaged_logs,
    images,
    old_logs,
    old_data,
    old_logs_noticed,
    wiped,
    jumps,
    leaps,
    stalls,
    hung_logs,
    timeouts_changed,
    pinned_reads,
    slow_links,
    slow_disks,
    full_disks,
    failovers,
    lost_majorities,
    reformed,
    vbs_kept,
    founders_lost,
    /// Groups that an operator ended, since another one lived on beside them.
    groups_ended,
    rebalances,
    replicas_changed,
    buckets_changed,
    flushes,
    joined,
    left,
}

impl Tally {
    /// Whether all that a kind of run is about has happened in so many runs of it. What is too rare for so few says nothing. Where a change
    /// of the code has left none of something in the fixed seeds, they are too few.
    pub(crate) fn check(&self, kind: &Kind, runs: usize) {
        let steps = runs as u64 * kind.millis / STEP_MILLIS;
        let faults = &kind.faults;
        let losses_certain = if faults.losses == Losses::AnyTime { CERTAIN } else { CERTAIN_LOSSES };
        let each = [(self.losses(faults), losses_certain), (self.others(faults), CERTAIN)];
        for ((what, chance, count), certain) in
            each.into_iter().flat_map(|(list, certain)| list.into_iter().map(move |one| (one, certain)))
        {
            let is_certain = chance != NEVER && steps / u64::from(chance) >= certain;
            assert!(!is_certain || count > 0, "{}: no {what} in {runs} runs: {self:?}", kind.name);
        }
        // Where nodes may be failed over without anybody asking they serve by leases.
        let is_leased = faults.auto_failover_secs.is_some();
        let are_replaced = is_leased && steps >= CERTAIN_STEPS;
        assert!(!are_replaced || self.failovers > 0, "{}: nobody was failed over: {self:?}", kind.name);
        assert!(!is_leased || self.pinned_reads > 0, "{}: nobody read by a lease: {self:?}", kind.name);
    }

    /// What waits until all is well: how often it is to happen, and how often it did.
    fn losses(&self, faults: &Faults) -> Vec<(&'static str, u32, u64)> {
        vec![
            ("crashes", faults.crash, self.crashes),
            ("copies that forget", faults.forgotten, self.forgotten),
            ("cuts", faults.cut, self.cuts),
            ("pauses", faults.pause, self.pauses),
            ("suspended machines", faults.pause.saturating_mul(SUSPENDS), self.suspends),
            ("bad disks", faults.bad_disk, self.bad_disks),
            ("rotten disks", faults.rot, self.rotten_disks),
            ("rotten logs", faults.rotten_log, self.rotten_logs),
            ("lying logs", faults.lying_log, self.lying_logs),
            ("images of disks", faults.old_image, self.images),
            ("old logs", faults.old_image.saturating_mul(RESTORED), self.old_logs),
            ("old data", faults.old_image.saturating_mul(RESTORED), self.old_data),
            ("wiped disks", faults.wipe, self.wiped),
            ("stalled parts", faults.stall, self.stalls),
            ("hung logs", faults.hung_log, self.hung_logs),
            ("failovers by hand", faults.failover, self.failovers),
            ("lost majorities", faults.lost_majority, self.lost_majorities),
            ("groups formed anew", faults.lost_majority, self.reformed),
        ]
    }

    /// The same of what happens at any time.
    fn others(&self, faults: &Faults) -> Vec<(&'static str, u32, u64)> {
        vec![
            ("broken links", faults.broken_link, self.broken_links),
            ("newer versions", faults.version, self.newer_versions),
            ("jumps of clocks", faults.jump, self.jumps),
            ("leaps of clocks", faults.jump.saturating_mul(LEAPS), self.leaps),
            ("other timeouts", faults.timeouts, self.timeouts_changed),
            ("slow links", faults.slow_link, self.slow_links),
            ("slow disks", faults.slow_disk, self.slow_disks),
            ("full disks", faults.full_disk, self.full_disks),
            ("rebalances", faults.rebalance, self.rebalances),
            ("other numbers of copies", faults.replicas, self.replicas_changed),
            ("buckets that come and go", faults.bucket, self.buckets_changed),
            ("flushes", faults.flush, self.flushes),
        ]
    }
}
