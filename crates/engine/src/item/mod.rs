//! One version of a document in the arena: a 40-byte header, then the expiry if there is one, the key, the value.
//!
//! Ownership: an item is built as a [`NewItem`], which nobody else sees. The hash table publishes it and then holds
//! one reference; a checkpoint holds one; every socket write in progress holds one ([`SharedValue`]). References
//! are *taken* only under the vBucket's lock ([`ItemRef::hold`], [`ItemRef::share`]) and *given back* on any thread; the
//! last one frees. A reference count of 0 means "not published": free memory reads as 0 there, and so does an
//! item under construction, which is what lets the defragmenter walk a slab.
//!
//! A published item does not change but for its atomics (state bits, frequency, locator, CAS while locked), and those only
//! under the vBucket's lock, so `Relaxed` suffices for them; the reference count orders publication and freeing.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use base::{Cas, Datatype, Seqno, VbId};
use storage::Locator;

use crate::arena::{Arena, Handle, Purpose};

/// Bytes of the header, in front of expiry, key and value.
pub const HEADER_BYTES: usize = 40;
/// Longest value a header can describe.
pub const VALUE_BYTES_MAX: usize = LENGTH_MASK as usize;
/// Most references an item can have.
pub const REFERENCES_MAX: u8 = REFERENCES_MASK;
/// Highest value of the frequency counter.
pub const FREQUENCY_MAX: u8 = 63;

const EXPIRY_BYTES: usize = 4;

const LENGTH_MASK: u32 = (1 << 25) - 1;
const DATATYPE_SHIFT: u32 = 25;
const DATATYPE_MASK: u32 = 7;
const DIRTY: u32 = 1 << 28;
const STALE: u32 = 1 << 29;
const RESIDENT: u32 = 1 << 30;
const DELETED: u32 = 1 << 31;

const REFERENCES_MASK: u8 = 0x7f;
/// In the byte of the reference count: an expiry follows the header.
const HAS_EXPIRY: u8 = 0x80;

const VB_MASK: u16 = (1 << 10) - 1;
const FREQUENCY_SHIFT: u32 = 10;

/// What the arena holds in front of every key. All atomics: the defragmenter looks at headers it does not own.
#[repr(C)]
struct Header {
    cas: AtomicU64,
    locator: AtomicU64,
    seqno_low: AtomicU32,
    rev_low: AtomicU32,
    flags: AtomicU32,
    /// Value length, datatype, state bits.
    meta: AtomicU32,
    seqno_high: AtomicU16,
    rev_high: AtomicU16,
    /// vBucket, frequency.
    vb: AtomicU16,
    key_length: AtomicU8,
    /// Reference count, and whether an expiry follows.
    references: AtomicU8,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES && align_of::<Header>() == 8);

/// Metadata of an item, by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// The vBucket it belongs to.
    pub vb: VbId,
    /// Its CAS.
    pub cas: Cas,
    /// Its place in the vBucket's order; 48 bits.
    pub seqno: Seqno,
    /// Its revision; 48 bits.
    pub rev: u64,
    /// The client's flags.
    pub flags: u32,
    /// Absolute Unix seconds, 0 never; of a deletion the time of it.
    pub expiry: u32,
    /// Of the value.
    pub datatype: Datatype,
    /// A tombstone.
    pub deleted: bool,
    /// Where the newest synced version is on disk.
    pub locator: Locator,
}

/// Which item; good for comparing while the vBucket stays locked, gives no access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemId(pub(crate) Handle);

/// One counted reference to an item, in 4 bytes. Does not know its arena and has no destructor: whoever keeps it
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
        // Release: what this holder did to the item happens before it is freed by whoever is last.
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

    fn build(
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

    fn header(&self) -> &Header {
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

    /// Sets the frequency counter.
    pub fn set_frequency(&mut self, frequency: u8) {
        self.as_ref().set_frequency(frequency);
    }

    /// Makes the item visible with one reference, which the caller owns from now on.
    pub(crate) fn publish(self) -> Handle {
        let references = &self.header().references;
        // Release: pairs with the defragmenter's Acquire; whoever sees the count sees the whole item.
        references.store(references.load(Ordering::Relaxed) & HAS_EXPIRY | 1, Ordering::Release);
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

impl Header {
    fn set_seqno(&self, seqno: Seqno) {
        self.seqno_low.store(seqno.get() as u32, Ordering::Relaxed);
        self.seqno_high.store((seqno.get() >> 32) as u16, Ordering::Relaxed);
    }

    fn set_rev(&self, rev: u64) {
        self.rev_low.store(rev as u32, Ordering::Relaxed);
        self.rev_high.store((rev >> 32) as u16, Ordering::Relaxed);
    }

    /// Changes a bit of `meta`. Not a read-modify-write instruction: writers hold the vBucket's lock.
    fn set_state(&self, bit: u32, on: bool) {
        let meta = self.meta.load(Ordering::Relaxed);
        self.meta.store(if on { meta | bit } else { meta & !bit }, Ordering::Relaxed);
    }
}

/// A live item, borrowed from what holds its reference: a locked table, an [`ItemPtr`].
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    header: &'a Header,
    arena: &'a Arena,
    handle: Handle,
}

impl<'a> ItemRef<'a> {
    /// Borrows an item.
    ///
    /// # Safety
    /// `handle` is an item of `arena` that is published, or under construction by the caller, and stays alive for `'a`.
    #[inline]
    pub(crate) unsafe fn new(arena: &'a Arena, handle: Handle) -> Self {
        // SAFETY: alive by the caller's promise; a header is nothing but atomics.
        Self { header: unsafe { &*arena.at(handle).cast::<Header>() }, arena, handle }
    }

    /// Which item this is.
    #[inline]
    #[must_use]
    pub const fn id(self) -> ItemId {
        ItemId(self.handle)
    }

    #[inline]
    fn has_expiry(self) -> bool {
        self.header.references.load(Ordering::Relaxed) & HAS_EXPIRY != 0
    }

    #[inline]
    fn key_start(self) -> *mut u8 {
        let expiry_bytes = if self.has_expiry() { EXPIRY_BYTES } else { 0 };
        self.arena.at(self.handle).wrapping_add(HEADER_BYTES + expiry_bytes)
    }

    #[inline]
    fn key_length(self) -> usize {
        usize::from(self.header.key_length.load(Ordering::Relaxed))
    }

    #[inline]
    fn value_start(self) -> *mut u8 {
        self.key_start().wrapping_add(self.key_length())
    }

    #[inline]
    fn resident_bytes(self) -> usize {
        if self.is_resident() { self.value_len() } else { 0 }
    }

    /// The encoded key.
    #[inline]
    #[must_use]
    pub fn key(self) -> &'a [u8] {
        // SAFETY: initialised when built, not changed since, alive for 'a.
        unsafe { std::slice::from_raw_parts(self.key_start(), self.key_length()) }
    }

    /// The value; empty when it is not resident.
    #[inline]
    #[must_use]
    pub fn value(self) -> &'a [u8] {
        // SAFETY: as for `key`.
        unsafe { std::slice::from_raw_parts(self.value_start(), self.resident_bytes()) }
    }

    /// Bytes of the value, resident or not.
    #[inline]
    #[must_use]
    pub fn value_len(self) -> usize {
        (self.header.meta.load(Ordering::Relaxed) & LENGTH_MASK) as usize
    }

    /// The CAS.
    #[inline]
    #[must_use]
    pub fn cas(self) -> Cas {
        Cas(self.header.cas.load(Ordering::Relaxed))
    }

    /// The seqno.
    #[inline]
    #[must_use]
    pub fn seqno(self) -> Seqno {
        let high = u64::from(self.header.seqno_high.load(Ordering::Relaxed));
        Seqno(high << 32 | u64::from(self.header.seqno_low.load(Ordering::Relaxed)))
    }

    /// The revision.
    #[inline]
    #[must_use]
    pub fn rev(self) -> u64 {
        let high = u64::from(self.header.rev_high.load(Ordering::Relaxed));
        high << 32 | u64::from(self.header.rev_low.load(Ordering::Relaxed))
    }

    /// The client's flags.
    #[inline]
    #[must_use]
    pub fn flags(self) -> u32 {
        self.header.flags.load(Ordering::Relaxed)
    }

    /// Absolute Unix seconds; 0 never.
    #[inline]
    #[must_use]
    pub fn expiry(self) -> u32 {
        if !self.has_expiry() {
            return 0;
        }
        // SAFETY: the bit says that four bytes of expiry follow the header, which keeps them aligned.
        unsafe { self.arena.at(self.handle).wrapping_add(HEADER_BYTES).cast::<u32>().read() }
    }

    /// Of the value.
    #[inline]
    #[must_use]
    pub fn datatype(self) -> Datatype {
        Datatype((self.header.meta.load(Ordering::Relaxed) >> DATATYPE_SHIFT & DATATYPE_MASK) as u8)
    }

    /// The vBucket.
    #[inline]
    #[must_use]
    pub fn vb(self) -> VbId {
        VbId(self.header.vb.load(Ordering::Relaxed) & VB_MASK)
    }

    /// Where the newest synced version is on disk; while dirty, that is an older one.
    #[inline]
    #[must_use]
    pub fn locator(self) -> Locator {
        Locator(self.header.locator.load(Ordering::Relaxed))
    }

    /// How often it was used lately, 0..=[`FREQUENCY_MAX`], as the caller counts.
    #[inline]
    #[must_use]
    pub fn frequency(self) -> u8 {
        (self.header.vb.load(Ordering::Relaxed) >> FREQUENCY_SHIFT) as u8
    }

    /// Not yet synced.
    #[inline]
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.header.meta.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Superseded while still queued.
    #[inline]
    #[must_use]
    pub fn is_stale(self) -> bool {
        self.header.meta.load(Ordering::Relaxed) & STALE != 0
    }

    /// The value is in memory.
    #[inline]
    #[must_use]
    pub fn is_resident(self) -> bool {
        self.header.meta.load(Ordering::Relaxed) & RESIDENT != 0
    }

    /// A tombstone.
    #[inline]
    #[must_use]
    pub fn is_deleted(self) -> bool {
        self.header.meta.load(Ordering::Relaxed) & DELETED != 0
    }

    /// Everything but the key and value.
    #[must_use]
    pub fn meta(self) -> ItemMeta {
        ItemMeta {
            vb: self.vb(),
            cas: self.cas(),
            seqno: self.seqno(),
            rev: self.rev(),
            flags: self.flags(),
            expiry: self.expiry(),
            datatype: self.datatype(),
            deleted: self.is_deleted(),
            locator: self.locator(),
        }
    }

    /// Under the vBucket's lock: sets or clears "not yet synced".
    pub fn set_dirty(self, dirty: bool) {
        self.header.set_state(DIRTY, dirty);
    }

    /// Under the vBucket's lock: sets or clears "superseded while still queued".
    pub fn set_stale(self, stale: bool) {
        self.header.set_state(STALE, stale);
    }

    /// Under the vBucket's lock: records where the newest synced version is.
    pub fn set_locator(self, locator: Locator) {
        self.header.locator.store(locator.0, Ordering::Relaxed);
    }

    /// Under the vBucket's lock: changes the CAS of a published item (`GET_LOCKED`).
    pub fn set_cas(self, cas: Cas) {
        self.header.cas.store(cas.get(), Ordering::Relaxed);
    }

    /// Under the vBucket's lock: sets the frequency counter, capped at [`FREQUENCY_MAX`].
    pub fn set_frequency(self, frequency: u8) {
        let vb = self.header.vb.load(Ordering::Relaxed) & VB_MASK;
        let frequency = u16::from(frequency.min(FREQUENCY_MAX));
        self.header.vb.store(vb | frequency << FREQUENCY_SHIFT, Ordering::Relaxed);
    }

    /// Who holds the item: table, checkpoint, socket writes.
    #[must_use]
    pub fn references(self) -> u8 {
        self.header.references.load(Ordering::Relaxed) & REFERENCES_MASK
    }

    /// Bytes of header, expiry, key and resident value.
    #[must_use]
    pub fn bytes(self) -> usize {
        let expiry_bytes = if self.has_expiry() { EXPIRY_BYTES } else { 0 };
        HEADER_BYTES + expiry_bytes + self.key_length() + self.resident_bytes()
    }

    /// Under the vBucket's lock: one more reference; `None` when the count is at its maximum (copy instead).
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
            item: Some(item),
            arena: Arc::clone(arena),
        })
    }
}

/// A value read without a lock, held by a counted reference that drop gives back on whatever thread.
pub struct SharedValue {
    start: *const u8,
    length: usize,
    /// Present until drop.
    item: Option<ItemPtr>,
    arena: Arc<Arena>,
}

// SAFETY: the value of a published item does not change, and both the count and the arena are shared between threads
// by design.
unsafe impl Send for SharedValue {}
// SAFETY: as above; `&SharedValue` only reads.
unsafe impl Sync for SharedValue {}

impl Deref for SharedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the held reference keeps the value alive and in place, the arena keeps it mapped.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for SharedValue {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            // SAFETY: `share` made sure that this is the item's arena.
            unsafe { item.release(&self.arena) };
        }
    }
}

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
