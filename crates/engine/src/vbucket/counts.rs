//! What a vBucket holds, counted as it changes. Plain numbers under the vBucket's lock: a shared counter would be the
//! one cache line all cores fight over. System events take memory and nothing else: they are nobody's items.

use base::{CollectionId, DocKey, ScopeId, Seqno};

use crate::{
    memory::item::ItemRef,
    vbucket::system_events::{collection_of_key, is_system_key, scope_of_key},
};

/// What the counters need to know of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    deleted: bool,
    resident: bool,
    bytes: u64,
    value_bytes: u64,
}

impl Weight {
    #[inline]
    pub(crate) fn of(item: ItemRef<'_>) -> Self {
        Self {
            deleted: item.is_deleted(),
            resident: item.is_resident(),
            bytes: item.bytes() as u64,
            value_bytes: item.resident_bytes() as u64,
        }
    }
}

/// One collection's share of a vBucket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CollectionCount {
    pub(crate) id: CollectionId,
    /// Documents, those that are on disk only among them.
    pub(crate) items: u64,
    /// Documents that are on disk only.
    evicted: u64,
    /// Its last mutation, or its beginning.
    pub(crate) high_seqno: Seqno,
}

/// Collections for which there is room before the list grows.
const ROOM: usize = 4;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Documents, those that are on disk only among them.
    pub(crate) items: u64,
    /// Documents whose value is not in memory, those that are on disk only among them.
    pub(crate) non_resident: u64,
    /// Documents that are on disk only.
    pub(crate) evicted: u64,
    pub(crate) tombstones: u64,
    /// Of everything in the table.
    pub(crate) item_bytes: u64,
    /// Of those, values.
    pub(crate) value_bytes: u64,
    /// The default collection's share, which most mutations change, without a detour.
    default: CollectionCount,
    /// Other collections seen so far, ascending by id. Bounded by what manifests have listed.
    others: Vec<CollectionCount>,
    /// Scopes that events are about, ascending. They have no documents: a new active knows by nothing else which of them its consumers know.
    scopes: Vec<ScopeId>,
}

impl Counts {
    /// One version left the table, another came (either may be none).
    #[inline]
    pub(crate) fn exchange(&mut self, key: DocKey<'_>, old: Option<Weight>, new: Option<Weight>) {
        self.value_bytes += new.map_or(0, |new| new.value_bytes);
        self.value_bytes -= old.map_or(0, |old| old.value_bytes);
        if is_system_key(key.encoded()) {
            self.item_bytes += new.map_or(0, |new| new.bytes);
            self.item_bytes -= old.map_or(0, |old| old.bytes);
            return;
        }
        let mut items = 0_i64;
        if let Some(old) = old {
            self.item_bytes -= old.bytes;
            if old.deleted {
                self.tombstones -= 1;
            } else {
                self.non_resident -= u64::from(!old.resident);
                items -= 1;
            }
        }
        if let Some(new) = new {
            self.item_bytes += new.bytes;
            if new.deleted {
                self.tombstones += 1;
            } else {
                self.non_resident += u64::from(!new.resident);
                items += 1;
            }
        }
        if items != 0 {
            self.items = self.items.wrapping_add_signed(items);
            let collection = self.collection_mut(key);
            collection.items = collection.items.wrapping_add_signed(items);
        }
    }

    /// A document left the table for the disk.
    pub(crate) fn leave(&mut self, key: DocKey<'_>, old: Weight) {
        self.item_bytes -= old.bytes;
        self.value_bytes -= old.value_bytes;
        self.non_resident += u64::from(old.resident);
        self.evicted += 1;
        self.collection_mut(key).evicted += 1;
    }

    /// A document that was on disk only is in the table again.
    pub(crate) fn come_back(&mut self, key: DocKey<'_>, new: Weight) {
        if self.collection_mut(key).evicted == 0 {
            // It was given up in the place of another one; see `lose`.
            self.exchange(key, None, Some(new));
            return;
        }
        self.item_bytes += new.bytes;
        self.value_bytes += new.value_bytes;
        self.non_resident -= u64::from(new.resident);
        self.evicted -= 1;
        self.collection_mut(key).evicted -= 1;
    }

    /// A document that was on disk only cannot be read, and gives way to another.
    pub(crate) fn lose(&mut self, key: DocKey<'_>) {
        let collection = self.collection_mut(key);
        // What shares a short hash with an evicted key may be taken for it, whatever its collection. Then one document too few is
        // counted, until the last one of the collection comes back.
        if collection.evicted == 0 {
            return;
        }
        collection.items -= 1;
        collection.evicted -= 1;
        self.items -= 1;
        self.non_resident -= 1;
        self.evicted -= 1;
    }

    /// A document was found on disk that no table knows of.
    pub(crate) fn find_evicted(&mut self, key: DocKey<'_>, seqno: Seqno) {
        self.items += 1;
        self.non_resident += 1;
        self.evicted += 1;
        let collection = self.collection_mut(key);
        collection.items += 1;
        collection.evicted += 1;
        collection.high_seqno = collection.high_seqno.max(seqno);
    }

    /// Documents on disk of collections that are gone do not exist any more. Returns how many there were.
    pub(crate) fn drop_evicted(&mut self, is_dropped: impl Fn(CollectionId) -> bool) -> u64 {
        let mut dropped = 0;
        let all = std::iter::once(&mut self.default).chain(&mut self.others);
        for collection in all.filter(|collection| is_dropped(collection.id)) {
            collection.items -= collection.evicted;
            dropped += std::mem::take(&mut collection.evicted);
        }
        self.items -= dropped;
        self.non_resident -= dropped;
        self.evicted -= dropped;
        dropped
    }

    /// A mutation of a collection's document, or an event about the collection, got this seqno.
    #[inline]
    pub(crate) fn advance(&mut self, key: DocKey<'_>, seqno: Seqno) {
        let collection = if is_system_key(key.encoded()) {
            let Some(id) = collection_of_key(key.encoded()) else { return self.meet_scope(key) };
            if id == CollectionId::DEFAULT { &mut self.default } else { self.other_mut(id) }
        } else {
            self.collection_mut(key)
        };
        collection.high_seqno = collection.high_seqno.max(seqno);
    }

    #[cold]
    fn meet_scope(&mut self, key: DocKey<'_>) {
        if let Some(id) = scope_of_key(key.encoded())
            && let Err(index) = self.scopes.binary_search(&id)
        {
            self.scopes.reserve_exact(1);
            self.scopes.insert(index, id);
        }
    }

    /// Scopes that events are about.
    pub(crate) fn scopes(&self) -> &[ScopeId] {
        &self.scopes
    }

    #[inline]
    fn collection_mut(&mut self, key: DocKey<'_>) -> &mut CollectionCount {
        // A key of the default collection begins with a zero byte.
        if key.encoded().first() == Some(&0) { &mut self.default } else { self.other_mut(key.collection()) }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a search gives the position, or an entry was inserted there"
    )]
    fn other_mut(&mut self, id: CollectionId) -> &mut CollectionCount {
        let index = match self.others.binary_search_by_key(&id, |count| count.id) {
            Ok(index) => index,
            Err(index) => {
                // There may be a thousand collections in each of a thousand vBuckets: no room for more than a few.
                if self.others.len() == self.others.capacity() {
                    self.others.reserve_exact(ROOM);
                }
                self.others.insert(index, CollectionCount { id, ..CollectionCount::default() });
                index
            }
        };
        &mut self.others[index]
    }

    pub(crate) fn collection(&self, id: CollectionId) -> Option<&CollectionCount> {
        self.collections().find(|count| count.id == id)
    }

    /// Ascending by id.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &CollectionCount> {
        std::iter::once(&self.default).chain(&self.others)
    }

    /// Forgets collections that are gone and empty. To be called only once the vBucket's events tell that they are gone.
    pub(crate) fn retain_collections(&mut self, mut keep: impl FnMut(CollectionId) -> bool) {
        self.others.retain(|count| count.items > 0 || keep(count.id));
    }

    /// Forgets scopes that are gone. To be called only once the vBucket's events tell that they are gone.
    pub(crate) fn retain_scopes(&mut self, mut keep: impl FnMut(ScopeId) -> bool) {
        self.scopes.retain(|&id| keep(id));
    }
}
