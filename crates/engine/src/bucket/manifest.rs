//! How a bucket follows the collections manifest: events are recorded in its vBuckets, in the order that
//! [`crate::vbucket::system_events`] asks for.

use std::sync::Arc;

use base::{Manifest, ManifestUid, Now, VbId, VbRole};
use storage::StoreError;

use crate::{
    bucket::Bucket,
    shard::{Env, Shard},
    vbucket::{
        collections::CollectionTable,
        system_events::{Changes, SystemEvent, owed_after},
    },
};

impl Bucket {
    /// Follows the collections manifest; one older than the one in force is ignored. Documents of collections that are
    /// gone become invisible at once and are erased by [`Bucket::expire`].
    pub fn set_manifest(&self, manifest: Arc<Manifest>, now: Now) {
        let _one_at_a_time = self.manifest_changes.lock();
        let old = self.manifest();
        if manifest.uid <= old.uid {
            return;
        }
        let uid = manifest.uid;
        let changes = Changes::between(&old, &manifest);
        self.record_everywhere(&changes.before, None, now);
        self.collections.store(Arc::new(CollectionTable::new(manifest)));
        // From here on every operation finds the new manifest; one that looked before notices under the lock.
        self.record_everywhere(&changes.after, Some(uid), now);
    }

    fn record_everywhere(&self, events: &[SystemEvent], target: Option<ManifestUid>, now: Now) {
        if events.is_empty() && target.is_none() {
            return;
        }
        for vb in (0..self.vbuckets()).map(VbId) {
            let Ok((slot, shard)) = self.slot(vb) else { continue };
            let env = Env { shard, kind: self.options.kind, now };
            let mut deferred = self.deferred(shard);
            let mut v = slot.vb.lock();
            v.manifest_uid = target.map_or(v.manifest_uid, |uid| v.manifest_uid.max(uid));
            // Warm-up will find out what else is missing, and record this with it. Only the active records: the others are
            // told by it.
            if v.role == VbRole::Active && env.keeps_tombstones() && !v.events.are_unknown {
                v.record(&env, events, target, &mut deferred);
            }
        }
    }

    /// Warm-up's first step: vBuckets that may lack the beginning of a collection get it, before there can be documents
    /// of it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn begin_collections(&self, shard: &Shard, now: Now) -> Result<(), StoreError> {
        let Some(store) = &shard.store else { return Ok(()) };
        let env = Env { shard, kind: self.options.kind, now };
        for vb in self.vbs_of(shard) {
            let Ok((slot, _)) = self.slot(vb) else { continue };
            let is_wanted = || {
                let v = slot.vb.lock();
                v.role == VbRole::Active && v.events.are_unknown
            };
            while is_wanted() && !shard.gate.is_closed() {
                let manifest = self.manifest();
                let mut found = Vec::new();
                for begin in owed_after(&[], ManifestUid(0), &manifest) {
                    let key = begin.what.key();
                    match store.lookup(vb, &key) {
                        Ok(Some(record)) if !record.meta.kind.is_tombstone() => found.push(begin),
                        // What cannot be read is as good as absent: told twice is better than not at all.
                        Ok(_) | Err(StoreError::Corrupt { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                let _one_at_a_time = self.manifest_changes.lock();
                if self.manifest().uid != manifest.uid {
                    continue;
                }
                let mut deferred = self.deferred(shard);
                let mut v = slot.vb.lock();
                if v.role == VbRole::Active {
                    // Ends and settings are found at the end of warm-up.
                    v.catch_up(&env, &found, &manifest, &mut deferred);
                }
            }
        }
        Ok(())
    }
}
