//! What the defragmenter may do with a slot it does not own, and how an item moves.

use std::sync::atomic::Ordering;

use base::{Seqno, VbId};

use super::{ItemRef, NewItem, REFERENCES_MASK};
use crate::memory::arena::{Arena, Handle};

/// The vBucket that the header in a slot names, whether or not an item is (still, yet) there.
///
/// # Safety
/// `handle` is a slot of a slab of items that is being drained.
pub(crate) unsafe fn vb_in_slot(arena: &Arena, handle: Handle) -> VbId {
    // SAFETY: a slot of items only ever has a header at its start, whose fields are accessed as atomics by everybody.
    unsafe { ItemRef::new(arena, handle) }.vb()
}

/// What the header in a slot says of the item that is there.
pub(crate) struct Found<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seqno: Seqno,
    /// How many references there were at the time.
    pub(crate) references: u8,
    /// Superseded while still queued: not in the table any more.
    pub(crate) is_stale: bool,
}

/// The published item in a slot, if there is one. Only a caller that knows its holders can say whether it is still there.
///
/// # Safety
/// As for [`vb_in_slot`]; and for as long as the key is used, the slab stays draining.
pub(crate) unsafe fn published_in_slot(arena: &Arena, handle: Handle) -> Option<Found<'_>> {
    // SAFETY: as in `vb_in_slot`.
    let item = unsafe { ItemRef::new(arena, handle) };
    // Acquire: pairs with the Release of `publish`, so that all of the item is visible. It also pairs with the Release of the
    // thread that gave a reference back. Should all be dropped meanwhile, the bytes stay as they are: free slots of a draining
    // slab are not reused.
    let references = item.header.references.load(Ordering::Acquire) & REFERENCES_MASK;
    let found = || Found { key: item.key(), seqno: item.seqno(), references, is_stale: item.is_stale() };
    (references > 0).then(found)
}

/// Copies an item into another slot, with as many references as it has, and frees the old one. Returns the new one with
/// the bytes copied. `None` when there is no memory.
///
/// # Safety
/// The item is published, the caller owns all of its references, and nobody else looks at more than its header.
pub(crate) unsafe fn move_item(arena: &Arena, from: Handle) -> Option<(Handle, usize)> {
    // SAFETY: alive by the caller's promise.
    let old = unsafe { ItemRef::new(arena, from) };
    let moved = NewItem::build(arena, &old.meta(), old.key(), old.value_len(), old.resident_bytes())?;
    let (from_header, to_header) = (old.header, moved.header());
    to_header.meta.store(from_header.meta.load(Ordering::Relaxed), Ordering::Relaxed);
    to_header.vb.store(from_header.vb.load(Ordering::Relaxed), Ordering::Relaxed);
    let value = old.value();
    // SAFETY: `build` allocated as many bytes for the value, and nobody else knows the new item.
    unsafe { moved.as_ref().value_start().copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    let bytes = old.bytes();
    // A free slot reads as "not published".
    let references = from_header.references.swap(0, Ordering::Relaxed) & REFERENCES_MASK;
    // SAFETY: the caller's references, which are all there are, are given up here.
    unsafe { arena.free(from) };
    Some((moved.publish_with(references), bytes))
}
