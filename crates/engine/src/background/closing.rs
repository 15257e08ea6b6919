//! The clean end of a bucket: everything that was acknowledged goes to disk, and the disk learns that nothing is missing.
//!
//! - Each shard is closed for itself. What one of them cannot write keeps no other from being written and closed.
//! - A full disk is not the end. The compactor's thread has stopped by now, so closing compacts for itself, and goes on for as
//!   long as that helps.
//! - A shard is marked as closed cleanly only after all of it is synced. The caller learns of every other one, and how much of it
//!   is not known to be on disk.

use std::collections::BTreeMap;

use base::{Cas, Now, Seqno, VbId};
use storage::{StoreError, VbState};

use crate::{
    api::stats::{FlushFailure, FlushReport},
    bucket::Bucket,
    shard::{Shard, ceiling, failures::failure_of},
};

/// Closing gives up a full disk after so many rounds of compaction after which nothing more could be written.
const FRUITLESS_ROUNDS_MAX: usize = 3;

/// A shard that [`Bucket::close`] could not close cleanly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unclosed {
    /// Which one.
    pub shard: usize,
    /// Mutations that the disk may lack. With none of them only the mark of a clean end is missing.
    pub unwritten: u64,
    /// What is the matter with its disk.
    pub failure: FlushFailure,
}

impl Bucket {
    /// Stops accepting mutations, and ends feeds and a warm-up that is under way: before the bucket's threads are waited
    /// for.
    pub fn begin_close(&self) {
        self.shards.iter().for_each(|shard| shard.gate.close());
        for vb in (0..self.vbuckets()).map(VbId) {
            let Ok((slot, shard)) = self.slot(vb) else { continue };
            let mut deferred = self.deferred(shard);
            slot.vb.lock().checkpoint.wake_all().into_iter().for_each(|waiter| deferred.wake(waiter));
        }
    }

    /// Stops accepting mutations, writes and syncs everything, and records that the bucket was closed cleanly (the
    /// next open then needs no new branch of history). May be called again: somebody else may have made room meanwhile.
    ///
    /// # Errors
    /// The shards that could not be closed. All others are.
    pub fn close(&self, now: Now) -> Result<(), Vec<Unclosed>> {
        self.begin_close();
        // A thread past the gate is done once their lock is free again.
        let last_cas: Vec<_> = self.shards.iter().map(|shard| self.last_cas(shard)).collect();
        let failed = self.write_all(now);
        let mut unclosed = Vec::new();
        for (shard, last_cas) in self.shards.iter().zip(last_cas) {
            let failure = match failed.get(&shard.index) {
                Some(&failure) => Some(failure),
                None => self.close_shard(shard, last_cas, now).err().map(|error| failure_of(shard, &error)),
            };
            unclosed.extend(failure.map(|failure| Unclosed {
                shard: shard.index,
                unwritten: self.unwritten(shard),
                failure,
            }));
        }
        if unclosed.is_empty() { Ok(()) } else { Err(unclosed) }
    }

    fn last_cas(&self, shard: &Shard) -> Cas {
        let slots = self.vbs_of(shard).filter_map(|vb| self.slot(vb).ok());
        slots.map(|(slot, _)| slot.vb.lock().hlc.last()).max().unwrap_or_default()
    }

    /// Mutations of a shard that are not known to be on disk.
    fn unwritten(&self, shard: &Shard) -> u64 {
        let waiting = |vb| {
            self.slot(vb).map_or(0, |(slot, _)| {
                let v = slot.vb.lock();
                v.checkpoint.dirty_len() + v.checkpoint.in_flight()
            })
        };
        self.vbs_of(shard).map(waiting).sum()
    }

    fn unwritten_in(&self, failed: &BTreeMap<usize, FlushFailure>) -> u64 {
        failed.keys().filter_map(|&index| self.shards.get(index)).map(|shard| self.unwritten(shard)).sum()
    }

    /// Writes and syncs what is dirty in all shards. The shards where that failed, and why.
    fn write_all(&self, now: Now) -> BTreeMap<usize, FlushFailure> {
        let write = |index| Some((index, self.write_whole(index, now)?));
        let mut failed: BTreeMap<_, _> = (0..self.shards()).filter_map(write).collect();
        let mut fruitless = 0;
        while fruitless < FRUITLESS_ROUNDS_MAX
            && failed.values().any(|&failure| failure == FlushFailure::NoSpace)
            && self.reclaim_space(now)
        {
            let before = self.unwritten_in(&failed);
            failed = failed.into_keys().filter_map(write).collect();
            fruitless = if self.unwritten_in(&failed) < before { 0 } else { fruitless + 1 };
        }
        failed
    }

    fn write_whole(&self, index: usize, now: Now) -> Option<FlushFailure> {
        loop {
            let FlushReport { failed, more, unsynced, .. } = self.flush_shard(index, now, true);
            if failed.is_some() || !(more || unsynced) {
                return failed;
            }
        }
    }

    /// Compacts all that gains by it, in all shards: they share a disk. Whether that gave anything back.
    fn reclaim_space(&self, now: Now) -> bool {
        let mut freed = false;
        for index in 0..self.shards() {
            // A store that cannot be compacted says more when it is written to.
            while let Ok(report) = self.compact(index, now) {
                freed |= report.bytes_freed > 0;
                if !report.more || report.bytes_freed == 0 {
                    break;
                }
            }
        }
        freed
    }

    /// Marks a shard, all of which is synced, as closed cleanly. Where a copy does not count after a stop, the shard keeps a ceiling. The
    /// last CAS itself would pass for the mark.
    fn close_shard(&self, shard: &Shard, last_cas: Cas, now: Now) -> Result<(), StoreError> {
        let Some(store) = &shard.store else { return Ok(()) };
        let _flusher = shard.flusher.lock();
        let Ok((slot, _)) = self.slot(shard.marker_vb) else { return Ok(()) };
        let mut state = slot.vb.lock().state();
        let may_lack =
            |vb: VbId| self.slot(vb).is_ok_and(|(slot, _)| !slot.vb.lock().facts().counts_after_stop());
        state.max_cas = match self.vbs_of(shard).any(may_lack) {
            true => shard.recorded_cas(shard.marker_vb, state.max_cas, now),
            false => ceiling::clean_mark(last_cas),
        };
        self.record_last_hot_keys(shard, &**store);
        let mut states = vec![(shard.marker_vb, state)];
        states.extend(self.vbs_of(shard).filter(|&vb| vb != shard.marker_vb).filter_map(|vb| self.told(vb)));
        store.put_states(&states)?;
        store.close()
    }

    /// The state of a vBucket that has a branch and nothing else. The disk learns of it with the first mutation, or now: otherwise the next
    /// start would know nothing of a copy that is whole. A copy that may lack something and of which nothing is known is recorded as
    /// such a one. The disk may have a branch that it was begun anew on, and the next start would not ask what was lost.
    fn told(&self, vb: VbId) -> Option<(VbId, VbState)> {
        let v = self.slot(vb).ok()?.0.vb.lock();
        (v.high_seqno == Seqno(0) && (!v.is_unheard || v.may_lack)).then(|| (vb, v.state()))
    }
}
