//! Whether a mutation that grows memory may begin now, later, or not at all: the steps a bucket goes through under pressure.
//!
//! | step | begins | what happens |
//! |---|---|---|
//! | 1 paging | memory above the high watermark | the item pager ejects what is clean |
//! | 2 cursors | a little above it | feeds that are behind go on from disk, whatever their share |
//! | 3 pacing | above that, or half of what may be dirty is, or too much on disk is dead, or a copy elsewhere is far behind | mutations that grow memory are taken in as fast as the disk drains, compaction reclaims, or copies follow |
//! | 4 refusing | at the limit | the same are answered with temporary failure |
//!
//! Deletions, reads, touches and whatever else does not grow memory pass at every step; the part of the quota above the
//! limit is theirs. What waits is held back *before* it is executed: refused, it has not happened.
//!
//! The data path asks one flag ([`Bucket::is_paced`]). Everything else here is for when it is set, and for the thread that
//! calls [`Bucket::pace`]. The decisions are [`crate::pressure::pacing`]'s.

use std::sync::atomic::Ordering;

use base::{HashedKey, Now, VbId, bucket::BucketKind};

use crate::{
    api::{
        notify::{Waiter, Work},
        pressure::{PaceReport, PacingStats, Pool, Pressure},
    },
    bucket::Bucket,
    pressure::{
        gatekeeper::{Pacing, SYNC_BYTES_MIN},
        pacing::{Answer, FollowerLoad, Load},
    },
    shard::Shard,
};

pub use crate::pressure::pacing::WAIT_MILLIS_MAX as PACED_MILLIS_MAX;

/// Most bytes committed per sync where the disk is fast, and where it is slow.
const SYNC_BYTES_MAX: u64 = 64 << 20;
/// One sync should take about this long: what is measured by its end suffers from jerks, and so do those that wait for it.
const SYNC_MILLIS: u64 = 250;
/// Share of the quota that waiting mutations may take before their connections are not read any more.
const WAITING_SHARE: u64 = 64;
const WAITING_BYTES_MAX: u64 = 64 << 20;
/// With so many times more waiting than that, a mutation is refused at once.
const WAITING_REFUSED: u64 = 4;

/// What becomes of a mutation that asked to be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Execute it.
    Go,
    /// Park it: its waiter is woken when it may go ([`Bucket::redeem`]). After [`PACED_MILLIS_MAX`] refuse it.
    Wait,
    /// The same, and read nothing more from its connection meanwhile: too much waits already.
    WaitAlone,
    /// Refuse it with temporary failure.
    Refuse,
}

impl Bucket {
    /// Whether mutations that grow memory have to ask before they are executed.
    #[inline]
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.gatekeeper.is_paced.load(Ordering::Relaxed)
    }

    /// Whether mutations wait to be admitted.
    pub(crate) fn are_writers_waiting(&self) -> bool {
        self.is_paced() && self.gatekeeper.pacer.lock().pacer.waiting() > 0
    }

    /// What a document takes, as far as memory knows: a mutation that grows it writes all of it anew. Only for a bucket that is
    /// paced, since it takes a lock.
    #[must_use]
    pub fn rewritten_bytes(&self, vb: VbId, key: HashedKey<'_>) -> u64 {
        let Ok((slot, _)) = self.slot(vb) else { return 0 };
        let v = slot.vb.lock();
        let item = v.table.find(key.hash, key.key.encoded()).filter(|item| !item.is_deleted());
        item.map_or(0, |item| item.value_len() as u64)
    }

    /// A mutation of about so many bytes asks to be executed.
    pub fn ask(&self, waiter: Waiter, bytes: u64, now: Now) -> Admission {
        let allowed = (self.settings.quota_bytes() / WAITING_SHARE).min(WAITING_BYTES_MAX);
        let mut pacing = self.gatekeeper.pacer.lock();
        let waiting = pacing.pacer.waiting_bytes();
        if waiting > WAITING_REFUSED * allowed {
            drop(pacing);
            self.refused(now);
            return Admission::Refuse;
        }
        if pacing.pacer.ask(now.mono_millis, waiter, bytes) == Answer::Go {
            return Admission::Go;
        }
        self.account_waiting(&mut pacing);
        let is_first = pacing.pacer.waiting() == 1;
        drop(pacing);
        self.gatekeeper.paced.fetch_add(1, Ordering::Relaxed);
        if is_first {
            self.notifier.work(Work::Pace);
        }
        if waiting > allowed { Admission::WaitAlone } else { Admission::Wait }
    }

    /// Whether a waiting mutation that was woken may be executed now.
    pub fn redeem(&self, waiter: Waiter) -> bool {
        self.gatekeeper.pacer.lock().pacer.redeem(waiter)
    }

    /// A waiting mutation's connection is gone: it takes no turn, and makes room for others to wait.
    pub fn forget(&self, waiter: Waiter) {
        let mut pacing = self.gatekeeper.pacer.lock();
        pacing.pacer.withdraw(waiter);
        self.account_waiting(&mut pacing);
    }

    /// A waiting mutation gives up: it is going to be refused.
    pub fn give_up(&self, waiter: Waiter, now: Now) {
        let mut pacing = self.gatekeeper.pacer.lock();
        let was_waiting = pacing.pacer.withdraw(waiter);
        self.account_waiting(&mut pacing);
        drop(pacing);
        if was_waiting {
            self.refused(now);
        }
    }

    fn refused(&self, now: Now) {
        self.gatekeeper.refused.fetch_add(1, Ordering::Relaxed);
        self.errors.temporary.fetch_add(1, Ordering::Relaxed);
        self.gatekeeper.refuse(now);
    }

    fn account_waiting(&self, pacing: &mut Pacing) {
        let bytes = pacing.pacer.waiting_bytes();
        let before = std::mem::replace(&mut pacing.accounted, bytes);
        self.pools.exchange(Pool::Connections, before, bytes);
    }

    /// Looks at how things stand, lets mutations go that may, and says which step the bucket is at. To be called when asked
    /// for by [`Work::Pace`], again every few milliseconds while somebody waits, and every now and then.
    pub fn pace(&self, now: Now) -> PaceReport {
        let more = self.look(now);
        let step = self.gatekeeper.step();
        let idle = step == Pressure::None && self.shards.iter().all(|shard| shard.gate.dirty_bytes() == 0);
        PaceReport { step, still: self.does_disk_stand_still(now), more, idle }
    }

    /// Takes note of how far the nodes have come that follow this one in the bucket. To be called about once a second while there
    /// are any, and once when there are none any more.
    pub fn note_followers(&self, loads: &[FollowerLoad], now: Now) {
        self.gatekeeper.pacer.lock().pacer.observe_followers(now.mono_millis, loads);
    }

    /// Where the slowest of them is between where mutations are paced for its sake (zero) and the limit (one).
    pub(crate) fn followers_pressure(&self) -> f64 {
        self.gatekeeper.pacer.lock().pacer.followers_pressure()
    }

    /// As [`Bucket::pace`], for a caller that has changed how things stand; whether somebody waits.
    pub(crate) fn look(&self, now: Now) -> bool {
        let pressure = self.pressure();
        let mut pacing = self.gatekeeper.pacer.lock();
        let going = match self.options.kind {
            BucketKind::Couchbase => pacing.pacer.observe(now.mono_millis, &self.load_at(pressure)),
            // Nothing drains: a writer would wait in vain.
            BucketKind::Ephemeral | BucketKind::Memcached => Vec::new(),
        };
        let is_paced = pacing.pacer.is_paced();
        let more = pacing.pacer.waiting() > 0;
        let share = pacing.pacer.drain_rate() / self.shards.len() as u64 * SYNC_MILLIS / 1_000;
        self.account_waiting(&mut pacing);
        // Under the lock, so that it is what the pacer thinks.
        if self.is_paced() != is_paced {
            self.gatekeeper.is_paced.store(is_paced, Ordering::Relaxed);
        }
        drop(pacing);
        if share > 0 {
            self.gatekeeper.sync_bytes.store(share.clamp(SYNC_BYTES_MIN, SYNC_BYTES_MAX), Ordering::Relaxed);
        }
        going.into_iter().for_each(|waiter| self.notifier.wake(waiter));
        let step = self.step(is_paced, pressure, now);
        if step != self.gatekeeper.step() {
            self.gatekeeper.step.store(step as u8, Ordering::Relaxed);
        }
        more
    }

    fn load_at(&self, pressure: f64) -> Load {
        let room = self.settings.room();
        let (space, reclaimed) = self.space();
        let memory_room = room.limit.saturating_sub(self.mem_used());
        let mut load = Load { pressure, room: memory_room, space, reclaimed, drained: 0, backlog: 0 };
        for shard in self.shards_that_drain() {
            load.drained += shard.counters.drained_bytes.load(Ordering::Relaxed);
            let dirty = shard.gate.dirty_bytes();
            load.backlog += dirty;
            load.room = load.room.min(room.dirty_limit.saturating_sub(dirty));
        }
        load
    }

    /// Zero where pacing begins, one where mutations are refused; of memory and of each shard's dirty bytes the worst.
    fn pressure(&self) -> f64 {
        let (memory, dirty) = self.pressures();
        memory.max(dirty)
    }

    /// The same of memory, and of the shard with the most dirty bytes.
    pub(crate) fn pressures(&self) -> (f64, f64) {
        let between = |value: u64, from: u64, to: u64| {
            (value as f64 - from as f64) / to.saturating_sub(from).max(1) as f64
        };
        let room = self.settings.room();
        let memory = between(self.mem_used(), room.paced, room.limit);
        let dirty = self
            .shards_that_drain()
            .map(|shard| between(shard.gate.dirty_bytes(), room.dirty_paced, room.dirty_limit));
        (memory, dirty.fold(f64::NEG_INFINITY, f64::max))
    }

    /// All but those whose disk is broken. Such a shard refuses every mutation, and what is dirty there never drains. To pace
    /// the writers of other shards for it would be no use to anybody.
    fn shards_that_drain(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|shard| !shard.gate.is_poisoned())
    }

    fn step(&self, is_paced: bool, pressure: f64, now: Now) -> Pressure {
        let before = self.gatekeeper.step();
        let used = self.mem_used();
        let (high, low) = self.watermarks();
        // A cache at its quota drops something, and refuses nobody.
        let is_full = pressure >= 1.0 && self.options.kind != BucketKind::Memcached;
        if is_full || self.gatekeeper.has_refused_lately(now) {
            Pressure::Refusing
        } else if is_paced {
            Pressure::Pacing
        } else if used > self.settings.room().cursors {
            Pressure::Cursors
        } else if used > high || (before > Pressure::None && used > low) {
            Pressure::Paging
        } else {
            Pressure::None
        }
    }

    /// Pacing has to begin: a mutation has met the threshold.
    #[cold]
    pub(crate) fn begin_pacing(&self) {
        if self.options.kind == BucketKind::Couchbase && !self.is_paced() {
            self.notifier.work(Work::Pace);
        }
    }

    /// The step the bucket was at when it was last looked at.
    #[must_use]
    pub fn pressure_step(&self) -> Pressure {
        self.gatekeeper.step()
    }

    /// The bucket's pressure as of now, whatever step was last told. It is 0 up to where mutations are paced, and 100 from
    /// where they are refused.
    #[must_use]
    pub fn pressure_percent(&self) -> u8 {
        (self.pressure() * 100.0).clamp(0.0, 100.0) as u8
    }

    /// What can be said about pacing.
    pub(crate) fn pacing_stats(&self) -> PacingStats {
        let pacing = self.gatekeeper.pacer.lock();
        PacingStats {
            step: self.gatekeeper.step(),
            waiting: pacing.pacer.waiting() as u64,
            waiting_bytes: pacing.pacer.waiting_bytes(),
            drain_rate: pacing.pacer.drain_rate(),
            reclaim_rate: pacing.pacer.reclaim_rate(),
            followers_seconds: pacing.pacer.followers_seconds().round() as u64,
            intake_rate: pacing.pacer.intake_rate().unwrap_or(0),
            paced: self.gatekeeper.paced.load(Ordering::Relaxed),
            refused: self.gatekeeper.refused.load(Ordering::Relaxed),
            drained_bytes: self.shards.iter().map(|s| s.counters.drained_bytes.load(Ordering::Relaxed)).sum(),
        }
    }
}
