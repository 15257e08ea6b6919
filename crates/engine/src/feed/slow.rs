//! Cursors that are too far behind.
//!
//! What is queued for cursors only may take a share of the quota. Above it the cursors that are furthest behind lose their
//! places, in the vBuckets where that frees most, and their feeds go on from disk. Only for what is synced: the disk has
//! it, and what is not synced yet stays queued anyway.

use std::sync::atomic::Ordering;

use base::VbId;

use crate::{api::stats::StepReport, bucket::Bucket};

/// Part of it that is left to them when memory is short.
const UNDER_PRESSURE: u64 = 8;
/// After cursors have been dropped there is room for this share of what is allowed.
const LEFT: (u64, u64) = (3, 4);

impl Bucket {
    /// Of that, what is allowed now: under pressure memory is for documents.
    fn cursor_bytes_allowed(&self) -> u64 {
        let allowed = self.cursor_bytes_max();
        if self.mem_used() > self.settings.room().cursors { allowed / UNDER_PRESSURE } else { allowed }
    }

    /// Has feeds that are far behind go on from disk when what is queued for them is too much. There is more to look
    /// after as long as so much could be queued at all.
    pub fn drop_slow_cursors(&self) -> StepReport {
        let mut report = StepReport::default();
        let allowed = self.cursor_bytes_allowed();
        report.more = self.cursors.load(Ordering::Relaxed) > 0 && self.mem_used() > allowed;
        if !report.more {
            return report;
        }
        let mut held: Vec<(u64, VbId)> = Vec::new();
        for vb in (0..self.vbuckets()).map(VbId) {
            let Ok((slot, _)) = self.slot(vb) else { continue };
            let bytes = slot.vb.lock().checkpoint.cursor_bytes();
            if bytes > 0 {
                held.push((bytes, vb));
            }
        }
        let sum: u64 = held.iter().map(|entry| entry.0).sum();
        if sum <= allowed {
            return report;
        }
        let excess = sum - allowed / LEFT.1 * LEFT.0;
        held.sort_unstable_by(|a, b| b.cmp(a));
        for (_, vb) in held {
            while report.bytes < excess
                && let Some(freed) = self.lose_slowest(vb)
            {
                report.bytes += freed;
                report.items += 1;
            }
        }
        report
    }

    /// The slowest cursor of a vBucket loses its place; how many bytes are not queued any more. `None` when no place can
    /// be taken away.
    fn lose_slowest(&self, vb: VbId) -> Option<u64> {
        let (slot, shard) = self.slot(vb).ok()?;
        let mut deferred = self.deferred(shard);
        let mut v = slot.vb.lock();
        let before = v.checkpoint.bytes();
        let (passed, waiter) = v.checkpoint.lose_slowest()?;
        deferred.release_all(passed);
        waiter.into_iter().for_each(|waiter| deferred.wake(waiter));
        shard.counters.cursors_dropped.fetch_add(1, Ordering::Relaxed);
        Some(before.saturating_sub(v.checkpoint.bytes()))
    }
}
