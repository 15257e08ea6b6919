//! The collections manifest in the form the data path asks: does this collection exist, and what caps its expiry?
//!
//! Published as an immutable snapshot. Every vBucket notes the uid it has been brought up to. So a mutation that looked
//! at an older snapshot notices under the lock and looks again. Ids are never reused. An id below the manifest's next
//! one that is not in it was dropped; one beyond it is not known here *yet*.

use std::sync::Arc;

use base::{CollectionId, DocKey, Manifest, ManifestUid, Now, ScopeId};

/// An expiry cap as a manifest gives it: the bucket's, or one of the collection's own (0: none).
type Cap = Option<u32>;

/// One version of the manifest, indexed.
#[derive(Debug)]
pub(crate) struct CollectionTable {
    manifest: Arc<Manifest>,
    /// Ascending by id.
    entries: Vec<(u32, Cap)>,
    /// The entry of the default collection, which is asked for most.
    default: Option<Cap>,
}

impl CollectionTable {
    pub(crate) fn new(manifest: Arc<Manifest>) -> Self {
        let mut entries: Vec<_> = manifest
            .scopes
            .iter()
            .flat_map(|scope| &scope.collections)
            .map(|collection| (collection.id.get(), collection.max_ttl_secs))
            .collect();
        entries.sort_unstable_by_key(|entry| entry.0);
        let default = entries.first().filter(|entry| entry.0 == 0).map(|entry| entry.1);
        Self { manifest, entries, default }
    }

    pub(crate) fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    pub(crate) fn uid(&self) -> ManifestUid {
        self.manifest.uid
    }

    /// The cap of the key's collection; `None` when there is no such collection.
    #[inline]
    pub(crate) fn cap_of(&self, key: DocKey<'_>) -> Option<Cap> {
        // A key of the default collection begins with a zero byte.
        if key.encoded().first() == Some(&0) { self.default } else { self.cap(key.collection()) }
    }

    /// The cap of a collection; `None` when there is no such collection.
    pub(crate) fn cap(&self, id: CollectionId) -> Option<Cap> {
        let index = self.entries.binary_search_by_key(&id.get(), |entry| entry.0).ok()?;
        self.entries.get(index).map(|entry| entry.1)
    }

    /// Whether the collection existed once and is gone for good. Reserved ones are never in a manifest and never gone.
    pub(crate) fn is_dropped(&self, id: CollectionId) -> bool {
        id.get() < self.manifest.next_id && !id.is_reserved() && self.cap(id).is_none()
    }

    /// Whether the scope existed once and is gone for good.
    pub(crate) fn is_scope_dropped(&self, id: ScopeId) -> bool {
        id.get() < self.manifest.next_id && self.manifest.scopes.iter().all(|scope| scope.id != id)
    }
}

/// The absolute expiry a document gets that asks for `absolute` (0: none) under a cap.
pub(crate) const fn capped(absolute: u32, collection: Cap, bucket_max_secs: u32, now: Now) -> u32 {
    let cap = match collection {
        Some(own) => own,
        None => bucket_max_secs,
    };
    if cap == 0 {
        return absolute;
    }
    let latest = now.unix_secs().saturating_add(cap);
    if absolute == 0 || absolute > latest { latest } else { absolute }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_known_dropped_or_not_yet_known() {
        let mut manifest = Manifest { next_id: 12, ..Manifest::default() };
        let mut collection = manifest.scopes[0].collections[0].clone();
        (collection.id, collection.max_ttl_secs) = (CollectionId(9), Some(60));
        manifest.scopes[0].collections.push(collection);
        let table = CollectionTable::new(Arc::new(manifest));
        assert_eq!(table.cap_of(DocKey::trusted(b"\0k")), Some(None));
        assert_eq!(table.cap_of(DocKey::trusted(b"\x09k")), Some(Some(60)));
        assert_eq!(table.cap_of(DocKey::trusted(b"\x0ak")), None);
        assert!(table.is_dropped(CollectionId(10)));
        assert!(!table.is_dropped(CollectionId(12)));
        assert!(!table.is_dropped(CollectionId(0)));
        assert!(!table.is_dropped(CollectionId(1)) && table.is_dropped(CollectionId(8)));
    }

    #[test]
    fn caps_apply_to_documents_without_expiry_too() {
        let now = Now { wall_nanos: 1_000 * 1_000_000_000, mono_millis: 0 };
        assert_eq!(capped(0, None, 0, now), 0);
        assert_eq!(capped(0, None, 50, now), 1_050);
        assert_eq!(capped(1_020, None, 50, now), 1_020);
        assert_eq!(capped(9_000, None, 50, now), 1_050);
        assert_eq!(capped(9_000, Some(0), 50, now), 9_000);
        assert_eq!(capped(0, Some(10), 50, now), 1_010);
    }
}
