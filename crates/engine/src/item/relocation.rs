//! What the defragmenter may do with a slot it does not own, and how an item moves.

use std::sync::atomic::Ordering;

use base::VbId;

use super::{ItemRef, NewItem, REFERENCES_MASK};
use crate::arena::{Arena, Handle};

/// The vBucket that the header in a slot names, whether or not an item is (still, yet) there.
///
/// # Safety
/// `handle` is a slot of a slab of items that is being drained.
pub(crate) unsafe fn vb_in_slot(arena: &Arena, handle: Handle) -> VbId {
    // SAFETY: a slot of items only ever has a header at its start, whose fields are accessed as atomics by everybody.
    unsafe { ItemRef::new(arena, handle) }.vb()
}

/// The key in a slot, if it holds a published item with exactly one reference.
///
/// # Safety
/// As for [`vb_in_slot`]; and for as long as the key is used, the slab stays draining.
pub(crate) unsafe fn sole_published_key(arena: &Arena, handle: Handle) -> Option<&[u8]> {
    // SAFETY: as in `vb_in_slot`.
    let item = unsafe { ItemRef::new(arena, handle) };
    // Acquire: pairs with the Release of `publish`, so that all of the item is visible. Should the reference be
    // dropped meanwhile, the bytes stay as they are: free slots of a draining slab are not reused.
    let references = item.header.references.load(Ordering::Acquire) & REFERENCES_MASK;
    (references == 1).then(|| item.key())
}

/// Copies an item into another slot, frees the old one and returns the new one with the bytes copied. `None` when
/// there is no memory.
///
/// # Safety
/// The item is published, the caller owns its only reference, and nobody else looks at more than its header.
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
    from_header.references.store(0, Ordering::Relaxed);
    // SAFETY: the caller's only reference is given up here.
    unsafe { arena.free(from) };
    Some((moved.publish(), bytes))
}
