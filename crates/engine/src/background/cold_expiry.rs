//! Expired documents that are on disk only: they are to go like all others, though no walk through a table meets them.
//!
//! A vBucket knows a time before which none of those that left for the disk expires. When that time has come, the
//! backfill thread reads the keys of the vBucket, a piece at a time. It asks for the documents that are due to be
//! fetched. Once they are in the table, the expiry pager meets them. Such a pass reads every key of the vBucket, so
//! there is one per vBucket every ten minutes at most. A client that asks for an expired document does not wait for it.
//! While clients wait for the disk a pass waits. If they wait for long the pass ends, because compaction cannot remove
//! the files that it reads from. It begins again when no client waits any more, and passes over what it has brought
//! into the table before.

use base::{DocKey, HashedKey, Now, Seqno, VbId, VbRole};
use storage::{BackfillOptions, RecordKind};

use crate::{
    background::bg_fetcher::Fetching,
    bucket::Bucket,
    shard::{Shard, cold_expiry::Pass},
    vbucket::version::is_due,
};

/// Between two passes through a vBucket.
const PASS_MILLIS: u64 = 600_000;
/// Read per step.
const STEP_BYTES: usize = 256 << 10;
/// Fetches that are queued already, from which on a pass waits: clients go first.
const QUEUED_MAX: usize = 1_000;

/// For so long a pass that waits keeps its files.
const WAIT_MILLIS_MAX: u64 = 5_000;

impl Bucket {
    /// A step of looking for expired documents on disk; whether there is more to do at once.
    pub(crate) fn expire_cold(&self, shard: &Shard, now: Now) -> bool {
        let Some(mut expiry) = shard.cold_expiry.try_lock() else { return false };
        let pass = expiry.pass.take();
        let (is_at_work, pass) = if shard.queued_fetches() < QUEUED_MAX {
            let pass = pass.or_else(|| expiry.search.run(now, || self.begin_pass(shard, now)));
            (pass.is_some(), pass.and_then(|pass| self.go_on(pass, now)))
        } else {
            (false, pass.and_then(|pass| self.wait(pass, now)))
        };
        expiry.pass = pass;
        expiry.account(&shard.pools);
        is_at_work
    }

    /// Keeps a pass that cannot go on, but not for long.
    fn wait(&self, mut pass: Pass, now: Now) -> Option<Pass> {
        let since = *pass.waits_since.get_or_insert(now.mono_millis);
        if now.mono_millis.saturating_sub(since) < WAIT_MILLIS_MAX {
            return Some(pass);
        }
        if let Ok((slot, _)) = self.slot(pass.vb) {
            let mut v = slot.vb.lock();
            // From the beginning, and as soon as there are fewer fetches.
            v.cold_next_expiry = v.cold_next_expiry.min(now.unix_secs());
            v.cold_pass_after = now.mono_millis;
        }
        None
    }

    /// One step of a pass; none when it is over.
    fn go_on(&self, mut pass: Pass, now: Now) -> Option<Pass> {
        pass.waits_since = None;
        let mut due: Vec<Box<[u8]>> = Vec::new();
        let mut next_expiry = pass.next_expiry;
        let more = pass.backfill.next(STEP_BYTES, &mut |record| {
            let expiry = record.meta.expiry;
            let expires = record.meta.kind == RecordKind::Document && expiry != 0;
            if expires && is_due(expiry, now) {
                due.push(record.key.into());
            } else if expires {
                next_expiry = next_expiry.min(expiry);
            }
        });
        pass.next_expiry = next_expiry;
        for key in due {
            if !self.fetch_expired(pass.vb, &key) {
                pass.next_expiry = now.unix_secs();
            }
        }
        // What could not be read now is looked for again after the pause.
        let is_over = !more.unwrap_or_else(|_| {
            pass.next_expiry = now.unix_secs();
            false
        });
        if is_over && let Ok((slot, _)) = self.slot(pass.vb) {
            let mut v = slot.vb.lock();
            v.cold_next_expiry = v.cold_next_expiry.min(pass.next_expiry);
        }
        (!is_over).then_some(pass)
    }

    fn begin_pass(&self, shard: &Shard, now: Now) -> Option<Pass> {
        let store = shard.store.as_ref()?;
        let vb = self.vbs_of(shard).find(|&vb| {
            let Ok((slot, _)) = self.slot(vb) else { return false };
            let mut v = slot.vb.lock();
            let is_wanted = v.role == VbRole::Active
                && v.counts.evicted > 0
                && is_due(v.cold_next_expiry, now)
                && v.cold_pass_after <= now.mono_millis;
            if is_wanted {
                // What leaves from now on lowers it again.
                v.cold_next_expiry = u32::MAX;
                v.cold_pass_after = now.mono_millis + PASS_MILLIS;
            }
            is_wanted
        })?;
        let options = BackfillOptions { unordered: true, keys_only: true, ..BackfillOptions::default() };
        match store.backfill(vb, Seqno(0), options) {
            Ok(backfill) => Some(Pass { vb, backfill, next_expiry: u32::MAX, waits_since: None }),
            Err(_) => {
                if let Ok((slot, _)) = self.slot(vb) {
                    slot.vb.lock().cold_next_expiry = now.unix_secs();
                }
                None
            }
        }
    }

    /// Has an expired document brought into the table; false when it has to be asked for again.
    fn fetch_expired(&self, vb: VbId, key: &[u8]) -> bool {
        let key = HashedKey::new(DocKey::trusted(key));
        let Ok((slot, _)) = self.slot(vb) else { return true };
        let is_cold = {
            let v = slot.vb.lock();
            v.table.find(key.hash, key.key.encoded()).is_none() && v.cold.may_contain(key.hash)
        };
        !is_cold || self.enqueue_fetch(vb, key, None) == Ok(Fetching::Queued)
    }
}
