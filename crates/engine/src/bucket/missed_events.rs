//! Events that an active before should have recorded, and did not come to: the next active records them before it
//! takes writes.
//!
//! The manifest that the vBucket has been told tells whether anything can be missing at all. If so, the events are
//! looked up one by one, in the table (where they are until they are synced) and on disk. They are those of every
//! collection and scope that the manifest lists, and of those that the vBucket knows.

use std::collections::BTreeSet;

use base::{CollectionId, Manifest, ScopeId, VbId, hash::key_hash};

use crate::{
    bucket::Bucket,
    shard::Env,
    vbucket::{
        slot::Slot,
        system_events::{CollectionFacts, Happening, SystemEvent},
    },
};

impl Bucket {
    /// Records what the events of a vBucket do not tell of the manifest. The manifest must not change meanwhile.
    pub(crate) fn tell_missed_events(&self, slot: &Slot, env: &Env<'_>, vb: VbId) {
        if !env.keeps_tombstones() {
            return;
        }
        let manifest = self.manifest();
        let known = {
            let mut v = slot.vb.lock();
            if v.events.told() >= manifest.uid {
                // It was opened by another manifest, which said nothing of this one. From now on it records what changes.
                v.events.are_unknown = false;
                return;
            }
            let known: Vec<CollectionId> = v.counts.collections().map(|count| count.id).collect();
            (known, v.counts.scopes().to_vec())
        };
        let found = self.find_events(slot, env, vb, &manifest, &known);
        let mut deferred = self.deferred(env.shard);
        let mut v = slot.vb.lock();
        v.manifest_uid = v.manifest_uid.max(manifest.uid);
        v.catch_up(env, &found, &manifest, &mut deferred);
    }

    fn find_events(
        &self,
        slot: &Slot,
        env: &Env<'_>,
        vb: VbId,
        manifest: &Manifest,
        (known, known_scopes): &(Vec<CollectionId>, Vec<ScopeId>),
    ) -> Vec<SystemEvent> {
        let listed =
            manifest.scopes.iter().flat_map(|scope| &scope.collections).map(|collection| collection.id);
        let collections: BTreeSet<CollectionId> = listed.chain(known.iter().copied()).collect();
        let find = |happening: &Happening| self.find_event(slot, env, vb, &happening.key());
        let of_collection = |&collection: &CollectionId| {
            let scope = ScopeId::DEFAULT;
            let facts = CollectionFacts { scope, collection, name: "".into(), max_ttl_secs: None };
            find(&Happening::CollectionBegin(facts))
        };
        let mut events: Vec<SystemEvent> = collections.iter().filter_map(of_collection).collect();
        let mut scopes: BTreeSet<ScopeId> = manifest.scopes.iter().map(|scope| scope.id).collect();
        scopes.extend(events.iter().map(|event| event.what.scope()));
        scopes.extend(known_scopes);
        let of_scope = |&scope: &ScopeId| find(&Happening::ScopeBegin { scope, name: "".into() });
        events.extend(scopes.iter().filter_map(of_scope));
        events
    }

    /// The newest event under a key.
    fn find_event(&self, slot: &Slot, env: &Env<'_>, vb: VbId, key: &[u8]) -> Option<SystemEvent> {
        if let Some(item) = slot.vb.lock().table.find(key_hash(key), key) {
            return SystemEvent::decode(item.value());
        }
        // What cannot be read is as good as absent: told twice is better than not at all.
        let read = env.shard.store.as_ref()?.lookup(vb, key).ok()??;
        SystemEvent::decode(&read.value)
    }
}
