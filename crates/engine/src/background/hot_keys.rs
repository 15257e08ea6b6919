//! What is used most, remembered over a restart, so that warm-up can load it first.
//!
//! Per shard a list of keys with their frequencies, most frequent first, of at most `LIST_BYTES_MAX`, kept by the store
//! as its hints. It is made by a walk through the tables, a few documents per lock hold, every [`RECORD_EVERY_MILLIS`] and
//! when the bucket is closed. Only what was used after it was written or loaded is listed. When the list is full, the
//! least frequent that it holds leave it, and nothing as infrequent is listed any more.
//!
//! The list is advice: it may be out of date, lost or damaged. A key that has gone since is looked up and not found.

use std::sync::atomic::Ordering;

use base::{DocKey, HashedKey, Now};
use storage::{KvStore, StoreError};

use crate::{
    api::{
        pressure::Pool,
        stats::{Budget, StepReport},
    },
    bucket::{
        Bucket,
        hot_list::{Walk, decode},
    },
    memory::hash_table::ScanPosition,
    shard::{Env, Shard},
    vbucket::system_events::is_system_key,
};

/// How often a list is made.
const RECORD_EVERY_MILLIS: u64 = 10 * 60 * 1000;
/// Documents looked at per lock hold.
const CHUNK: usize = 64;
/// Keys loaded between two pauses.
const PAUSE_KEYS: u64 = 16;

impl Bucket {
    /// Notes which keys are used most when it is time to; looks at about `budget.items` documents and may write to
    /// disk.
    ///
    /// # Errors
    /// When a list could not be written. The next one is made as usual.
    pub fn record_hot_keys(&self, now: Now, budget: Budget) -> Result<StepReport, StoreError> {
        let mut report = StepReport::default();
        let Some(mut hot) = self.hot_keys.try_lock() else { return Ok(report) };
        let due = *hot.due.get_or_insert(now.mono_millis + RECORD_EVERY_MILLIS);
        if !self.settings.hot_keys() || !self.is_warm() {
            hot.walk = None;
            return Ok(report);
        }
        if hot.walk.is_none() {
            if now.mono_millis < due {
                return Ok(report);
            }
            hot.due = Some(now.mono_millis + RECORD_EVERY_MILLIS);
        }
        let mut walk = hot.walk.take().unwrap_or_else(|| Walk::of(0));
        let Some(shard) = self.shards.get(walk.shard) else { return Ok(report) };
        let Some(store) = &shard.store else { return Ok(report) };
        let is_done = self.walk_on(shard, &mut walk, budget.items);
        let next = walk.shard + 1;
        if !is_done {
            hot.walk = Some(walk);
        } else {
            if next < self.shards.len() {
                hot.walk = Some(Walk::of(next));
            }
            report.items = walk.list.entries.len();
            store.put_hints(&walk.list.encode())?;
        }
        report.more = hot.walk.is_some();
        Ok(report)
    }

    /// The last list before the store is closed. That it cannot be written is no reason not to close it.
    pub(crate) fn record_last_hot_keys(&self, shard: &Shard, store: &dyn KvStore) {
        if !shard.warm.load(Ordering::Acquire) {
            // What is known now is less than what the list says.
            return;
        }
        let mut walk = Walk::of(shard.index);
        if self.settings.hot_keys() {
            self.walk_on(shard, &mut walk, usize::MAX);
        }
        let _ = store.put_hints(&walk.list.encode());
    }

    /// Looks at about so many documents of a shard; true at its end.
    fn walk_on(&self, shard: &Shard, walk: &mut Walk, items: usize) -> bool {
        let _held = shard.pools.hold(Pool::Metadata, walk.list.memory_bytes());
        let mut seen = 0;
        while let Some(vb) = self.vbs_of(shard).nth(walk.vb) {
            if seen >= items {
                return false;
            }
            let Ok((slot, _)) = self.slot(vb) else { return true };
            let mut found = Vec::new();
            let next = slot.vb.lock().table.scan(walk.position, CHUNK, &mut |item| {
                seen += 1;
                if walk.list.takes(item.frequency()) && !item.is_deleted() && !is_system_key(item.key()) {
                    found.push((item.frequency(), item.key().into()));
                }
            });
            // Without the lock: making room in a full list takes a while.
            found.into_iter().for_each(|(frequency, key)| walk.list.add(vb, frequency, key));
            // An empty vBucket is work as well.
            seen += 1;
            (walk.vb, walk.position) = match next {
                Some(position) => (walk.vb, position),
                None => (walk.vb + 1, ScanPosition::default()),
            };
        }
        true
    }

    /// The warm-up loads the documents that clients used most before the last stop, as long as the bucket has room.
    pub(crate) fn load_hot_keys(&self, env: &Env<'_>, store: &dyn KvStore, pause: &dyn Fn()) {
        if !self.settings.hot_keys() {
            return;
        }
        let hints = store.hints().unwrap_or_default();
        let _held = env.shard.pools.hold(Pool::Metadata, hints.len() as u64);
        for (vb, frequency, key) in decode(&hints) {
            if env.shard.gate.is_closed() || self.mem_used() >= self.watermarks().1 {
                return;
            }
            if self.slot(vb).is_ok_and(|(_, shard)| shard.index == env.shard.index) {
                self.bring(env, store, vb, HashedKey::new(DocKey::trusted(key)), frequency);
                let before = env.shard.warmed_hot.fetch_add(1, Ordering::Relaxed);
                if before.is_multiple_of(PAUSE_KEYS) {
                    pause();
                }
            }
        }
    }
}
