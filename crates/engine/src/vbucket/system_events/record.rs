//! When events are written, and what happens when the manifest moved while a vBucket was not looking.
//!
//! The manifest lives in the cluster's metadata, the events in the vBuckets, and nothing makes the two one transaction. So:
//!
//! - A change is recorded in three steps, each vBucket under its own lock: beginnings, then the new manifest is put in
//!   force, then modifications and ends.
//! - A vBucket's state on disk names the manifest that its events tell of. When that is the one the bucket is opened
//!   with, nothing is missing. When it is not, warm-up first looks up on disk which beginnings are there and records the
//!   others; until then nothing is written to named collections of that vBucket ("temporary failure").
//! - At the end of warm-up, when every event on disk is in the table, what is still owed is recorded, whatever the state
//!   said: ends that were missed, settings that changed, beginnings in directories older than events.
//! - An event that cannot be written now (no CAS below the ceiling, no memory) is owed, and the collection it would begin
//!   takes no writes until it is recorded: by the next such write, or by housekeeping.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{CollectionId, DocKey, HashedKey, Manifest, ManifestUid, Now, Seqno, Status, VbId, VbRole};
use storage::StoreError;

use super::{Changes, Happening, SystemEvent, owed_after};
use crate::{
    api::notify::Refusal,
    bucket::Bucket,
    memory::{
        item::{ItemMeta, NewItem},
        item_kind::mark_expired,
    },
    shard::{Env, Shard, aftermath::Aftermath},
    vbucket::{Current, VBucket, Version, collections::CollectionTable},
};

/// Events have no revisions: one must not count as the deletion of a document with that many.
const EVENT_REV: u64 = 0;

/// What a vBucket knows about its own events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The manifest whose collections have all begun by seqno `told_at`.
    told: ManifestUid,
    told_at: Seqno,
    /// Not written yet, in order; the manifest that will have been told then.
    owed: VecDeque<SystemEvent>,
    target: ManifestUid,
    /// Which beginnings are on disk is not known yet.
    are_unknown: bool,
}

impl Events {
    /// What the disk says, for a bucket opened with a manifest.
    pub(crate) fn recovered(told: ManifestUid, high_seqno: Seqno, manifest: ManifestUid) -> Self {
        Self { told, told_at: high_seqno, target: told, are_unknown: told != manifest, ..Self::default() }
    }

    /// The manifest to record with everything up to a seqno. 0 stands for "look": the first manifest needs no events.
    pub(crate) fn told_up_to(&self, seqno: Seqno) -> ManifestUid {
        if seqno >= self.told_at { self.told } else { ManifestUid(0) }
    }

    /// A replica was told an event, at a seqno.
    pub(crate) fn follow(&mut self, manifest: ManifestUid, seqno: Seqno) {
        if manifest > self.told {
            (self.told, self.target, self.told_at) = (manifest, manifest, seqno);
        }
    }

    /// The manifest that has been told.
    pub(crate) fn told(&self) -> ManifestUid {
        self.told
    }

    /// Nothing is recorded here any more: another node is about to be the active.
    pub(crate) fn hand_over(&mut self) {
        self.owed.clear();
        self.target = self.told;
        self.are_unknown = false;
    }

    /// Whether some collections may not have begun.
    #[inline]
    pub(crate) fn are_behind(&self) -> bool {
        self.are_unknown || !self.owed.is_empty()
    }

    /// How many are not recorded.
    pub(crate) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// Whether a collection's beginning is not recorded.
    fn hold_back(&self, id: CollectionId) -> bool {
        let begins = |event: &SystemEvent| matches!(&event.what, Happening::CollectionBegin(facts) if facts.collection == id);
        id != CollectionId::DEFAULT && (self.are_unknown || self.owed.iter().any(begins))
    }
}

impl VBucket {
    /// Records events, or notes that they are owed. `target` is the manifest that is told with the last of them; `None`
    /// when more are to follow.
    fn record(
        &mut self,
        env: &Env<'_>,
        events: &[SystemEvent],
        target: Option<ManifestUid>,
        after: &mut Aftermath<'_>,
    ) {
        self.events.owed.extend(events.iter().cloned());
        self.events.target = target.unwrap_or(self.events.target);
        self.record_owed(env, after);
    }

    /// Whether a collection may not be written to, because its beginning is not recorded and cannot be now.
    #[cold]
    pub(crate) fn is_held_back(
        &mut self,
        env: &Env<'_>,
        collection: CollectionId,
        after: &mut Aftermath<'_>,
    ) -> bool {
        if !self.events.hold_back(collection) {
            return false;
        }
        self.record_owed(env, after);
        self.events.hold_back(collection)
    }

    /// Records what is owed, as far as that is possible now.
    pub(crate) fn record_owed(&mut self, env: &Env<'_>, after: &mut Aftermath<'_>) {
        while let Some(event) = self.events.owed.pop_front() {
            if self.record_one(env, &event, after).is_err() {
                self.events.owed.push_front(event);
                return;
            }
        }
        if self.events.told != self.events.target {
            self.events.told = self.events.target;
            self.events.told_at = self.high_seqno;
        }
    }

    fn record_one(
        &mut self,
        env: &Env<'_>,
        event: &SystemEvent,
        after: &mut Aftermath<'_>,
    ) -> Result<(), Refusal> {
        let key = event.what.key();
        let key = HashedKey::new(DocKey::trusted(&key));
        let deleted = event.what.is_end();
        let meta = ItemMeta {
            vb: self.id,
            expiry: if deleted { env.now.unix_secs().max(1) } else { 0 },
            deleted,
            ..ItemMeta::default()
        };
        let mut item = NewItem::new(&env.shard.arena, &meta, key.key.encoded(), &event.encode())
            .ok_or(Status::NoMemory)?;
        if deleted {
            mark_expired(&mut item, false);
        }
        let old = self.table.find(key.hash, key.key.encoded()).map(Current::of);
        let version = Version { cas: None, rev: EVENT_REV, durable: None };
        self.put(env, key, old.as_ref(), item, version, after)?;
        if let Happening::CollectionEnd { collection, .. } = event.what {
            self.close_prepares_in(env, collection, after);
        }
        Ok(())
    }

    /// Records what the events in `found`, all that there are, do not tell of a manifest.
    pub(crate) fn catch_up(
        &mut self,
        env: &Env<'_>,
        found: &[SystemEvent],
        manifest: &Manifest,
        after: &mut Aftermath<'_>,
    ) {
        if !env.keeps_tombstones() {
            return;
        }
        self.events.owed.clear();
        self.events.are_unknown = false;
        if self.events.told > manifest.uid {
            // Told by an active that has heard more of the manifest than this node.
            return;
        }
        let owed = owed_after(found, self.events.told, manifest);
        self.record(env, &owed, Some(manifest.uid), after);
    }
}

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
            let mut after = self.aftermath(shard);
            let mut v = slot.vb.lock();
            v.manifest_uid = target.map_or(v.manifest_uid, |uid| v.manifest_uid.max(uid));
            // Warm-up will find out what else is missing, and record this with it. Only the active records: the others are
            // told by it.
            if v.role == VbRole::Active && env.keeps_tombstones() && !v.events.are_unknown {
                v.record(&env, events, target, &mut after);
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
                let mut after = self.aftermath(shard);
                let mut v = slot.vb.lock();
                if v.role == VbRole::Active {
                    // Ends and settings are found at the end of warm-up.
                    v.catch_up(&env, &found, &manifest, &mut after);
                }
            }
        }
        Ok(())
    }
}
