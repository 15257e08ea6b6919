//! Building an item that nobody sees yet.

use std::sync::atomic::Ordering;

use base::{Cas, Datatype, Seqno};
use storage::Locator;

use super::{
    DATATYPE_MASK, DATATYPE_SHIFT, DELETED, EXPIRY_BYTES, HAS_EXPIRY, HEADER_BYTES, Header, ItemMeta,
    ItemRef, RESIDENT, VALUE_BYTES_MAX, VB_MASK,
};
use crate::memory::arena::{Arena, Handle, Purpose};

/// An item nobody else sees yet; freed on drop unless a hash table takes it.
pub struct NewItem<'a> {
    arena: &'a Arena,
    handle: Handle,
}

impl<'a> NewItem<'a> {
    /// An item with these parts; `None` when the arena is exhausted.
    ///
    /// # Panics
    /// When the key is longer than 255 bytes or the value than [`VALUE_BYTES_MAX`]: callers have checked both.
    #[must_use]
    pub fn new(arena: &'a Arena, meta: &ItemMeta, key: &[u8], value: &[u8]) -> Option<Self> {
        Self::concat(arena, meta, key, value, &[])
    }

    /// As [`NewItem::new`]; the value is `first` followed by `second`.
    #[must_use]
    pub fn concat(
        arena: &'a Arena,
        meta: &ItemMeta,
        key: &[u8],
        first: &[u8],
        second: &[u8],
    ) -> Option<Self> {
        let length = first.len() + second.len();
        let item = Self::build(arena, meta, key, length, length)?;
        let header = item.header();
        header.meta.store(header.meta.load(Ordering::Relaxed) | RESIDENT, Ordering::Relaxed);
        let start = item.as_ref().value_start();
        // SAFETY: `build` allocated `length` bytes from there on, and nobody else knows the item.
        unsafe {
            start.copy_from_nonoverlapping(first.as_ptr(), first.len());
            start.add(first.len()).copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
        Some(item)
    }

    /// An item whose value of `value_length` bytes is on disk only.
    #[must_use]
    pub fn without_value(arena: &'a Arena, meta: &ItemMeta, key: &[u8], value_length: usize) -> Option<Self> {
        Self::build(arena, meta, key, value_length, 0)
    }

    pub(super) fn build(
        arena: &'a Arena,
        meta: &ItemMeta,
        key: &[u8],
        value_length: usize,
        value_bytes: usize,
    ) -> Option<Self> {
        assert!(key.len() <= usize::from(u8::MAX) && value_length <= VALUE_BYTES_MAX);
        let expiry_bytes = if meta.expiry == 0 { 0 } else { EXPIRY_BYTES };
        let handle = arena.alloc(HEADER_BYTES + expiry_bytes + key.len() + value_bytes, Purpose::Item)?;
        let item = Self { arena, handle };
        let header = item.header();
        header.cas.store(meta.cas.get(), Ordering::Relaxed);
        header.locator.store(meta.locator.0, Ordering::Relaxed);
        header.set_seqno(meta.seqno);
        header.set_rev(meta.rev);
        header.flags.store(meta.flags, Ordering::Relaxed);
        let deleted = if meta.deleted { DELETED } else { 0 };
        let datatype = (u32::from(meta.datatype.0) & DATATYPE_MASK) << DATATYPE_SHIFT;
        header.meta.store(value_length as u32 | datatype | deleted, Ordering::Relaxed);
        header.vb.store(meta.vb.get() & VB_MASK, Ordering::Relaxed);
        header.key_length.store(key.len() as u8, Ordering::Relaxed);
        header.references.store(if expiry_bytes == 0 { 0 } else { HAS_EXPIRY }, Ordering::Relaxed);
        let after_header = arena.at(handle).wrapping_add(HEADER_BYTES);
        // SAFETY: allocated above for exactly these parts, and nobody else knows the item.
        unsafe {
            if expiry_bytes > 0 {
                after_header.cast::<u32>().write(meta.expiry);
            }
            after_header.add(expiry_bytes).copy_from_nonoverlapping(key.as_ptr(), key.len());
        }
        Some(item)
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: the item is alive while `self` owns it; a header is nothing but atomics.
        unsafe { &*self.arena.at(self.handle).cast::<Header>() }
    }

    /// For reading.
    #[must_use]
    pub fn as_ref(&self) -> ItemRef<'_> {
        // SAFETY: alive and exclusively owned while `self` is borrowed.
        unsafe { ItemRef::new(self.arena, self.handle) }
    }

    /// The value, for changes in place; empty when it is not resident.
    pub fn value_mut(&mut self) -> &mut [u8] {
        let (start, length) = (self.as_ref().value_start(), self.as_ref().resident_bytes());
        // SAFETY: the item is exclusively owned and its value initialised.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Sets the CAS.
    pub fn set_cas(&mut self, cas: Cas) {
        self.header().cas.store(cas.get(), Ordering::Relaxed);
    }

    /// Sets the seqno.
    pub fn set_seqno(&mut self, seqno: Seqno) {
        self.header().set_seqno(seqno);
    }

    /// Sets the revision.
    pub fn set_rev(&mut self, rev: u64) {
        self.header().set_rev(rev);
    }

    /// Sets the client's flags.
    pub fn set_flags(&mut self, flags: u32) {
        self.header().flags.store(flags, Ordering::Relaxed);
    }

    /// Sets the value's datatype.
    pub fn set_datatype(&mut self, datatype: Datatype) {
        let bits = (u32::from(datatype.0) & DATATYPE_MASK) << DATATYPE_SHIFT;
        let meta = self.header().meta.load(Ordering::Relaxed);
        self.header().meta.store(meta & !(DATATYPE_MASK << DATATYPE_SHIFT) | bits, Ordering::Relaxed);
    }

    /// Sets where the newest synced version is.
    pub fn set_locator(&mut self, locator: Locator) {
        self.as_ref().set_locator(locator);
    }

    /// Sets or clears "not yet synced".
    pub fn set_dirty(&mut self, dirty: bool) {
        self.as_ref().set_dirty(dirty);
    }

    /// Makes it a tombstone, or not one.
    pub fn set_deleted(&mut self, deleted: bool) {
        self.header().set_state(DELETED, deleted);
    }

    /// Sets the frequency counter.
    pub fn set_frequency(&mut self, frequency: u8) {
        self.as_ref().set_frequency(frequency);
    }

    /// Makes the item visible with one reference, which the caller owns from now on.
    pub(crate) fn publish(self) -> Handle {
        self.publish_with(1)
    }

    /// Makes the item visible with so many references, all of which the caller owns from now on.
    pub(super) fn publish_with(self, count: u8) -> Handle {
        let references = &self.header().references;
        // Release: pairs with the defragmenter's Acquire; a thread that sees the count sees the whole item.
        references.store(references.load(Ordering::Relaxed) & HAS_EXPIRY | count, Ordering::Release);
        let handle = self.handle;
        std::mem::forget(self);
        handle
    }

    pub(crate) fn is_in(&self, arena: &Arena) -> bool {
        std::ptr::eq(self.arena, arena)
    }
}

impl Drop for NewItem<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in this arena, never published, and `self` was its only owner.
        unsafe { self.arena.free(self.handle) };
    }
}
