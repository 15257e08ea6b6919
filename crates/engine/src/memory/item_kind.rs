//! What an item says about its key, in the terms of the disk.
//!
//! Only documents and tombstones are ever in a table. A prepare or abort is queued in its checkpoint, and a prepare held by
//! its vBucket as well. All but documents carry the header's "deleted" bit and are never paged. So the bits of their
//! frequency are free to say which kind they are.

use base::{VbId, bucket::DurabilityLevel};
use storage::{Locator, RecordKind, RecordMeta};

use crate::memory::item::{ItemMeta, ItemRef, NewItem};

const DELETION: u8 = 0;
const EXPIRATION: u8 = 1;
const ABORT: u8 = 2;
/// Plus the level.
const PREPARE: u8 = 4;
const PREPARED_DELETION: u8 = 8;

/// Makes an item that nobody else sees yet one of this kind.
pub(crate) fn set_kind(new: &mut NewItem<'_>, kind: RecordKind) {
    let code = match kind {
        RecordKind::Document => return new.set_deleted(false),
        RecordKind::Deletion => DELETION,
        RecordKind::Expiration => EXPIRATION,
        RecordKind::Prepare(level) => PREPARE + level as u8,
        RecordKind::PreparedDeletion(level) => PREPARED_DELETION + level as u8,
        RecordKind::Abort => ABORT,
    };
    new.set_flags(kept_flags(kind, new.as_ref().flags()));
    new.set_deleted(true);
    new.set_frequency(code);
}

/// The flags that a version has. A deletion has none, whatever it was given: replication tells none, and two copies with
/// different flags would resolve a conflict differently.
pub(crate) const fn kept_flags(kind: RecordKind, flags: u32) -> u32 {
    match kind {
        RecordKind::Document | RecordKind::Prepare(_) => flags,
        RecordKind::Deletion
        | RecordKind::Expiration
        | RecordKind::PreparedDeletion(_)
        | RecordKind::Abort => 0,
    }
}

/// Makes an item that nobody else sees yet a tombstone that says why the document went.
pub(crate) fn mark_expired(tombstone: &mut NewItem<'_>, expired: bool) {
    tombstone.set_flags(0);
    tombstone.set_frequency(if expired { EXPIRATION } else { DELETION });
}

/// What an item is.
#[inline]
pub(crate) fn kind_of(item: ItemRef<'_>) -> RecordKind {
    if !item.is_deleted() {
        return RecordKind::Document;
    }
    match item.frequency() {
        EXPIRATION => RecordKind::Expiration,
        ABORT => RecordKind::Abort,
        code => match DurabilityLevel::from_wire(code % PREPARE) {
            Some(level) if code < PREPARED_DELETION => RecordKind::Prepare(level),
            Some(level) => RecordKind::PreparedDeletion(level),
            None => RecordKind::Deletion,
        },
    }
}

/// An item's metadata as a record has it.
pub(crate) fn item_meta(vb: VbId, meta: &RecordMeta, locator: Locator) -> ItemMeta {
    ItemMeta {
        vb,
        cas: meta.cas,
        seqno: meta.seqno,
        rev: meta.rev,
        flags: kept_flags(meta.kind, meta.flags),
        expiry: meta.expiry,
        datatype: meta.datatype,
        deleted: meta.kind.is_tombstone(),
        locator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{arena::Arena, item::ItemMeta};

    #[test]
    fn an_item_is_what_it_was_made() {
        let arena = Arena::new().unwrap();
        use RecordKind::{Abort, Deletion, Document, Expiration, Prepare, PreparedDeletion};
        let levels = [1, 2, 3].map(|level| DurabilityLevel::from_wire(level).unwrap());
        let prepares = levels.iter().flat_map(|&level| [Prepare(level), PreparedDeletion(level)]);
        let meta = ItemMeta { flags: 7, ..ItemMeta::default() };
        for kind in prepares.chain([Document, Deletion, Expiration, Abort]) {
            let mut new = NewItem::new(&arena, &meta, b"\0k", b"v").unwrap();
            set_kind(&mut new, kind);
            assert_eq!(kind_of(new.as_ref()), kind);
            assert_eq!(new.as_ref().is_deleted(), kind != Document);
            assert_eq!(new.as_ref().flags(), if matches!(kind, Document | Prepare(_)) { 7 } else { 0 });
        }
    }
}
