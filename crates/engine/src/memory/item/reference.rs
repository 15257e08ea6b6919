//! Counted references to items: bare ones for those who know the arena, and values that know it themselves.

use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Header, ItemId, ItemRef, REFERENCES_MASK, REFERENCES_MAX};
use crate::memory::arena::{Arena, Handle};

/// One counted reference to an item, in 4 bytes. Does not know its arena and has no destructor: its holder
/// must end it with [`ItemPtr::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a reference that is not released is leaked"]
pub struct ItemPtr(NonZeroU32);

impl ItemPtr {
    /// The reference the table gives up.
    pub(crate) const fn from_handle(handle: Handle) -> Self {
        Self(handle)
    }

    /// Which item this is.
    #[must_use]
    pub const fn id(&self) -> ItemId {
        ItemId(self.0)
    }

    /// The item.
    ///
    /// # Safety
    /// `arena` is the one the item was made in.
    #[inline]
    #[must_use]
    pub unsafe fn get<'a>(&'a self, arena: &'a Arena) -> ItemRef<'a> {
        // SAFETY: the reference keeps the item alive while borrowed; the arena is the caller's promise.
        unsafe { ItemRef::new(arena, self.0) }
    }

    /// Gives the reference back; the last one frees the item. Any thread, any lock.
    ///
    /// # Safety
    /// `arena` is the one the item was made in.
    #[inline]
    pub unsafe fn release(self, arena: &Arena) {
        // SAFETY: the reference keeps the header alive until it is subtracted.
        let header = unsafe { &*arena.at(self.0).cast::<Header>() };
        // Release: what this holder did to the item happens before the last holder frees it.
        let before = header.references.fetch_sub(1, Ordering::Release);
        debug_assert!(before & REFERENCES_MASK != 0, "released once too often");
        if before & REFERENCES_MASK == 1 {
            // Pairs with the other holders' Release.
            fence(Ordering::Acquire);
            // SAFETY: that was the last reference, and new ones come only from existing ones.
            unsafe { arena.free(self.0) };
        }
    }
}

/// An item kept by a reference of somebody else's, who promised to keep it: a checkpoint, of what its flusher has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemLoan(NonZeroU32);

impl ItemPtr {
    /// The item, for as long as the reference is kept all the same.
    pub(crate) const fn lend(&self) -> ItemLoan {
        ItemLoan(self.0)
    }
}

impl ItemLoan {
    /// The item.
    ///
    /// # Safety
    /// `arena` is the one the item was made in, and the reference that was lent is kept for `'a`.
    #[inline]
    pub(crate) unsafe fn get(self, arena: &Arena) -> ItemRef<'_> {
        // SAFETY: the caller's promise.
        unsafe { ItemRef::new(arena, self.0) }
    }
}

impl ItemRef<'_> {
    /// Under the vBucket's lock, or through a reference of one's own: one more reference; `None` when the count is at its
    /// maximum (copy instead).
    pub fn hold(self) -> Option<ItemPtr> {
        // Relaxed: the caller sees the item through a reference that exists already. Not a plain store, because
        // others release at the same time.
        let taken = self.header.references.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count & REFERENCES_MASK < REFERENCES_MAX).then(|| count + 1)
        });
        taken.is_ok().then_some(ItemPtr(self.handle))
    }

    /// Under the vBucket's lock: the value, to be read after the lock is gone; `None` as for [`ItemRef::hold`].
    ///
    /// # Panics
    /// When `arena` is not the item's.
    #[must_use]
    pub fn share(self, arena: &Arc<Arena>) -> Option<SharedValue> {
        assert!(std::ptr::eq(self.arena, &raw const **arena));
        let item = self.hold()?;
        Some(SharedValue {
            start: self.value_start(),
            length: self.resident_bytes(),
            item: ManuallyDrop::new(item),
            arena: Arc::clone(arena),
        })
    }
}

/// A value read without a lock, held by a counted reference that drop gives back on whatever thread.
pub struct SharedValue {
    start: *const u8,
    length: usize,
    item: ManuallyDrop<ItemPtr>,
    arena: Arc<Arena>,
}

// SAFETY: the value of a published item does not change, and both the count and the arena are shared between threads
// by design.
unsafe impl Send for SharedValue {}
// SAFETY: as above; `&SharedValue` only reads.
unsafe impl Sync for SharedValue {}

impl SharedValue {
    /// Takes over a reference to an item of `arena`.
    pub(crate) fn of(held: ItemPtr, arena: &Arc<Arena>) -> Self {
        // SAFETY: references never leave their arena's shard, see `Shard::item`.
        let item = unsafe { held.get(arena) };
        let (start, length) = (item.value_start().cast_const(), item.resident_bytes());
        Self { start, length, item: ManuallyDrop::new(held), arena: Arc::clone(arena) }
    }

    /// The version whose value this is.
    pub(crate) fn item(&self) -> ItemRef<'_> {
        // SAFETY: the arena is the item's, and the reference is ours while `self` is borrowed.
        unsafe { self.item.get(&self.arena) }
    }

    /// One more reference to the same value; `None` as for [`ItemRef::hold`].
    pub(crate) fn again(&self) -> Option<Self> {
        Some(Self::of(self.item().hold()?, &self.arena))
    }
}

impl Deref for SharedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the held reference keeps the value alive and in place, the arena keeps it mapped.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for SharedValue {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the maker of this made sure that it is the item's arena.
        unsafe { ManuallyDrop::take(&mut self.item).release(&self.arena) };
    }
}
