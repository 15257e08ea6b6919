//! How the quota is divided, and whether a mutation may use more of it.
//!
//! Up to the *ease* nothing is asked but two atomics. Above it the pager is called, then the bucket is paced
//! ([`crate::bucket::admission`]). At the limit a mutation that grows memory first lends the pager a hand. It is
//! refused only when that does not help. The same holds for what is dirty: that cannot be ejected before it is synced,
//! so it has a limit of its own, per shard.
//!
//! Between the limit and the quota is the *reserve*. It is for deletions (tombstones are written before they go), touches, and
//! values that readers bring back from disk. A cache has none, since it can always drop something. Tables grow by doubling, and
//! no room is asked for what that takes. Where it has used the reserve up, touches overdraw the quota a little.
//!
//! A bucket may have evicted keys before it was told to keep all of them. Such a key does not leave memory again once a reader has
//! brought it back. So readers bring such keys back up to that overdraft only.

use std::sync::atomic::Ordering;

use base::{
    Status,
    bucket::{BucketKind, EvictionPolicy},
};

use crate::{
    api::{
        notify::Work,
        pressure::Pool,
        stats::{BucketStats, Budget},
    },
    bucket::Bucket,
    memory::arena::RESERVE_BYTES_MAX,
    pressure::room::{Room, usable},
    shard::Env,
};

/// Where memory is short, copies are caught up with a part of what may be dirty otherwise at a time.
const SHORT_SHARE: u64 = 16;
/// Documents that a mutation looks at when it helps the pager.
const HELP: Budget = Budget { items: 512, bytes: 4 << 20 };

/// Bytes of a quota that one shard can make use of. That is what its arena reaches, less two amounts: what a quota may be
/// overdrawn by, and what one shard may have more than others.
pub const SHARD_QUOTA_MAX: u64 = usable(RESERVE_BYTES_MAX);

/// Percent of the quota that may be queued for cursors only, by default.
const CURSOR_PERCENT: u64 = 10;
/// Some megabytes are worth it in the smallest bucket.
const CURSOR_BYTES_MIN: u64 = 4 << 20;

impl Bucket {
    /// Bytes that may be queued for cursors only.
    #[must_use]
    pub fn cursor_bytes_max(&self) -> u64 {
        let share = (self.settings.quota_bytes() / 100 * CURSOR_PERCENT).max(CURSOR_BYTES_MIN);
        self.options.cursor_bytes_max.unwrap_or(share)
    }

    /// Where the pager starts, and where it stops.
    pub(crate) fn watermarks(&self) -> (u64, u64) {
        let room = self.settings.room();
        (room.high, room.low)
    }

    /// Whether there is so much room that nobody need ask.
    #[inline]
    pub(crate) fn is_at_ease(&self, env: &Env<'_>, bytes: usize) -> bool {
        let (memory, dirty) = self.settings.ease();
        self.mem_used() + bytes as u64 <= memory && env.shard.gate.dirty_bytes() <= dirty
    }

    fn has_room_for(&self, env: &Env<'_>, bytes: usize) -> bool {
        let room = self.settings.room();
        self.mem_used() + bytes as u64 <= room.limit && env.shard.gate.dirty_bytes() <= room.dirty_limit
    }

    /// Whether memory is above the high watermark, or has been and is not below the low one yet.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.pager_called.load(Ordering::Acquire) || self.mem_used() > self.watermarks().0
    }

    /// How urgent it is to make room: 0 up to the high watermark, and 1 where lagging feeds begin to be sent to the disk.
    /// That is the next step for making room.
    #[must_use]
    pub fn room_urgency(&self) -> f64 {
        let room = self.settings.room();
        let above = self.mem_used().saturating_sub(room.high) as f64;
        (above / room.cursors.saturating_sub(room.high).max(1) as f64).min(1.0)
    }

    /// Whether memory is above the low watermark.
    #[must_use]
    pub fn has_room_to_make(&self) -> bool {
        self.mem_used() > self.watermarks().1
    }

    /// Has the pager called, unless it has been already: it then brings memory below the low watermark.
    #[cold]
    pub(crate) fn call_pager(&self) {
        if !self.pager_called.load(Ordering::Relaxed) && !self.pager_called.swap(true, Ordering::AcqRel) {
            self.notifier.work(Work::Room);
        }
    }

    /// Tries to make room for a mutation.
    ///
    /// # Errors
    /// `TemporaryFailure`.
    #[cold]
    pub(crate) fn make_room(&self, env: &Env<'_>, bytes: usize) -> Result<(), Status> {
        let room = self.settings.room();
        let (used, dirty) = (self.mem_used() + bytes as u64, env.shard.gate.dirty_bytes());
        if used > room.high {
            self.call_pager();
        }
        if used > room.paced || dirty > room.dirty_paced {
            self.begin_pacing();
        }
        if used <= room.limit && dirty <= room.dirty_limit {
            return Ok(());
        }
        self.page(env.now, HELP);
        if self.has_room_for(env, bytes) {
            return Ok(());
        }
        // A cache never refuses as long as it can drop something; somebody else is doing that just now.
        if self.options.kind == BucketKind::Memcached && self.mem_used() + bytes as u64 <= self.overdraft() {
            return Ok(());
        }
        if env.shard.gate.want_flush() {
            self.notifier.work(Work::Flush(env.shard.index));
        }
        Err(self.out_of_room(env))
    }

    /// Whether so many bytes fit into the reserve; what never waits for room asks this. Has the pager make up for them.
    #[inline]
    pub(crate) fn fits_reserve(&self, env: &Env<'_>, bytes: usize) -> bool {
        self.is_at_ease(env, bytes) || self.make_room_up_to(self.settings.usable_bytes(), env, bytes)
    }

    /// The same for a version that takes the place of one that is there. It may overdraw the quota a little. Where little
    /// is dirty it always fits: then such versions are not what fills the memory.
    #[inline]
    pub(crate) fn fits_overdraft(&self, env: &Env<'_>, bytes: usize) -> bool {
        self.is_at_ease(env, bytes)
            || self.make_room_up_to(self.overdraft(), env, bytes)
            || env.shard.gate.dirty_bytes() <= self.settings.room().dirty_paced
    }

    /// Whether so many bytes more take memory to where clients are paced.
    pub(crate) fn is_short_of_memory(&self, bytes: usize) -> bool {
        self.mem_used() + bytes as u64 > self.settings.room().paced
    }

    /// Whether what a copy is being caught up with has to wait for the disk, which is called. It has to where as much of it is dirty as may
    /// be, or some is and there is little memory left. Where nothing of it is dirty it never waits: what fills the memory
    /// then is not the disk's to free.
    pub(crate) fn holds_back_history(&self, env: &Env<'_>, bytes: usize) -> bool {
        let room = self.settings.room();
        let is_short = self.is_short_of_memory(bytes);
        let limit = if is_short { room.history / SHORT_SHARE } else { room.history };
        if is_short {
            self.call_pager();
        }
        let waits = env.shard.gate.history_bytes() > limit;
        if waits && env.shard.gate.want_flush() {
            self.notifier.work(Work::Flush(env.shard.index));
        }
        waits
    }

    #[cold]
    fn make_room_up_to(&self, limit: u64, env: &Env<'_>, bytes: usize) -> bool {
        if !self.has_room_for(env, bytes) {
            self.page(env.now, HELP);
        }
        self.mem_used() + bytes as u64 <= limit
    }

    /// Whether so many bytes more overdraw the quota a little at most. Makes no room for them.
    pub(crate) fn fits_overdraft_now(&self, bytes: usize) -> bool {
        self.mem_used() + bytes as u64 <= self.overdraft()
    }

    fn overdraft(&self) -> u64 {
        self.settings.usable_bytes() / 100 * Room::OVERDRAFT
    }

    /// Bytes that no ejection frees: a quota that leaves no room above them could not be kept.
    pub(crate) fn mem_floor(&self, stats: &BucketStats) -> u64 {
        let lasting = stats.pools.of(Pool::Metadata) + stats.pools.of(Pool::ColdIndex);
        match (self.options.kind, self.settings.eviction()) {
            (BucketKind::Couchbase, EvictionPolicy::FullEviction) => lasting,
            (BucketKind::Couchbase, _) => lasting + stats.kv_bytes - stats.value_bytes,
            (BucketKind::Memcached, _) | (BucketKind::Ephemeral, EvictionPolicy::NruEviction) => 0,
            (BucketKind::Ephemeral, _) => stats.mem_used,
        }
    }

    /// The answer to what does not fit.
    #[cold]
    pub(crate) fn out_of_room(&self, env: &Env<'_>) -> Status {
        self.errors.temporary.fetch_add(1, Ordering::Relaxed);
        self.gatekeeper.refuse(env.now);
        Status::TemporaryFailure
    }

    /// The arena had no block: counted, and told as temporary, since deletions and the pager free some.
    #[cold]
    pub(crate) fn out_of_memory(&self) -> Status {
        self.errors.out_of_memory.fetch_add(1, Ordering::Relaxed);
        Status::TemporaryFailure
    }
}
