//! How a vBucket records what is owed of its collections' events.

use base::{CollectionId, DocKey, HashedKey, Manifest, ManifestUid, Status};

use crate::{
    api::notify::Refusal,
    memory::{
        item::{ItemMeta, NewItem},
        item_kind::mark_expired,
    },
    shard::{Env, deferred::DeferredEffects},
    vbucket::{
        VBucket,
        system_events::{Happening, SystemEvent, owed_after},
        version::{Current, Version},
    },
};

impl VBucket {
    /// Records events, or notes that they are owed. `target` is the manifest that is told with the last of them; `None`
    /// when more are to follow.
    pub(crate) fn record(
        &mut self,
        env: &Env<'_>,
        events: &[SystemEvent],
        target: Option<ManifestUid>,
        deferred: &mut DeferredEffects<'_>,
    ) {
        self.events.owed.extend(events.iter().cloned());
        self.events.target = target.unwrap_or(self.events.target);
        self.record_owed(env, deferred);
    }

    /// Whether a collection may not be written to, because its beginning is not recorded and cannot be now.
    #[cold]
    pub(crate) fn is_held_back(
        &mut self,
        env: &Env<'_>,
        collection: CollectionId,
        deferred: &mut DeferredEffects<'_>,
    ) -> bool {
        if !self.events.hold_back(collection) {
            return false;
        }
        self.record_owed(env, deferred);
        self.events.hold_back(collection)
    }

    /// Records what is owed, as far as that is possible now.
    pub(crate) fn record_owed(&mut self, env: &Env<'_>, deferred: &mut DeferredEffects<'_>) {
        while let Some(event) = self.events.owed.pop_front() {
            if self.record_one(env, &event, deferred).is_err() {
                self.events.owed.push_front(event);
                return;
            }
        }
        if self.events.told != self.events.target {
            self.events.told = self.events.target;
            self.events.told_at = self.high_seqno;
        }
    }

    pub(crate) fn record_one(
        &mut self,
        env: &Env<'_>,
        event: &SystemEvent,
        deferred: &mut DeferredEffects<'_>,
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
        self.put(env, key, old.as_ref(), item, version, deferred)?;
        if let Happening::CollectionEnd { collection, .. } = event.what {
            self.close_prepares_in(env, collection, deferred);
        }
        Ok(())
    }

    /// Records what the events in `found`, all that there are, do not tell of a manifest.
    pub(crate) fn catch_up(
        &mut self,
        env: &Env<'_>,
        found: &[SystemEvent],
        manifest: &Manifest,
        deferred: &mut DeferredEffects<'_>,
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
        self.record(env, &owed, Some(manifest.uid), deferred);
    }
}

/// Events have no revisions: one must not count as the deletion of a document with that many.
const EVENT_REV: u64 = 0;
