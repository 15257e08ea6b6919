//! How much memory the bucket uses, and whether a mutation may use more.
//!
//! Counted is what the arenas hold (documents and tables), read from one atomic per shard. Below the high watermark
//! nothing happens; above it the item pager works until the low one is reached; at the quota a mutation that grows
//! memory first lends the pager a hand, and is refused only when that does not help. Mutations are also refused
//! when a shard's share of dirty bytes is used up: those cannot be ejected before they are synced.

use std::sync::atomic::Ordering;

use base::{Status, bucket::BucketKind};

use crate::{
    bucket::Bucket,
    notify::Work,
    shard::{Env, FLUSH_BYTES},
    stats::Budget,
};

/// Percent of the quota at which the pager starts, and at which it stops.
const HIGH_WATERMARK_PERCENT: u64 = 85;
const LOW_WATERMARK_PERCENT: u64 = 75;
/// Percent of the quota that may be dirty.
const DIRTY_PERCENT: u64 = 40;
/// Documents that a mutation looks at when it helps the pager.
const HELP: Budget = Budget { items: 512, bytes: 4 << 20 };

impl Bucket {
    /// Where the pager starts, and where it stops.
    pub(crate) fn watermarks(&self) -> (u64, u64) {
        let quota = self.settings.quota_bytes();
        (quota / 100 * HIGH_WATERMARK_PERCENT, quota / 100 * LOW_WATERMARK_PERCENT)
    }

    #[inline]
    pub(crate) fn has_room_for(&self, env: &Env<'_>, bytes: usize) -> bool {
        let quota = self.settings.quota_bytes();
        let used = self.mem_used() + bytes as u64;
        if used > quota / 100 * HIGH_WATERMARK_PERCENT {
            self.call_pager();
        }
        used <= quota && env.shard.gate.dirty_bytes() <= self.dirty_bytes_max(quota)
    }

    fn dirty_bytes_max(&self, quota: u64) -> u64 {
        (quota / 100 * DIRTY_PERCENT / self.shards.len() as u64).max(2 * FLUSH_BYTES)
    }

    /// Whether memory is above the high watermark, or has been and is not below the low one yet.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.pager_called.load(Ordering::Acquire) || self.mem_used() > self.watermarks().0
    }

    /// Whether memory is above the low watermark.
    #[must_use]
    pub fn has_room_to_make(&self) -> bool {
        self.mem_used() > self.watermarks().1
    }

    /// Memory is above the high watermark: has the pager called, unless it has been already.
    #[cold]
    fn call_pager(&self) {
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
        self.page(env.now, HELP);
        if self.has_room_for(env, bytes) {
            return Ok(());
        }
        // A cache never refuses as long as it can drop something; somebody else is doing that just now.
        let slack = self.settings.quota_bytes() / 100 * 105;
        if self.options.kind == BucketKind::Memcached && self.mem_used() + bytes as u64 <= slack {
            return Ok(());
        }
        if env.shard.gate.want_flush() {
            self.notifier.work(Work::Flush(env.shard.index));
        }
        self.errors.temporary.fetch_add(1, Ordering::Relaxed);
        Err(Status::TemporaryFailure)
    }

    /// The arena had no block: counted, and told as temporary, since deletions and the pager free some.
    #[cold]
    pub(crate) fn out_of_memory(&self) -> Status {
        self.errors.out_of_memory.fetch_add(1, Ordering::Relaxed);
        Status::TemporaryFailure
    }
}
