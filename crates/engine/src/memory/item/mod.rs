//! One version of a document in the arena: a 40-byte header, then the expiry if there is one, the key, the value.
//!
//! Ownership: an item is built as a [`NewItem`], which nobody else sees. The hash table publishes it and then holds
//! one reference; a checkpoint holds one; every socket write in progress holds one ([`SharedValue`]). References
//! are *taken* only under the vBucket's lock ([`ItemRef::hold`], [`ItemRef::share`]) and *given back* on any thread; the
//! last one frees. A reference count of 0 means "not published". Free memory reads as 0 there, and so does an item under
//! construction. This lets the defragmenter walk a slab.
//!
//! A published item does not change but for its atomics (state bits, frequency, locator, CAS while locked). These
//! change only under the vBucket's lock, so `Relaxed` suffices for them. The reference count orders publication and
//! freeing.

mod held;
mod new;
mod reference;
mod relocation;
/// Arena bytes of an item with this key and value.
pub(crate) const fn item_bytes(key: DocKey<'_>, value_bytes: usize) -> usize {
    HEADER_BYTES + size_of::<u32>() + key.encoded().len() + value_bytes
}

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use base::{Cas, Datatype, DocKey, Seqno, VbId};
use storage::Locator;

use crate::memory::arena::{Arena, Handle};

pub(crate) use held::HeldItems;
pub use new::NewItem;
pub(crate) use reference::ItemLoan;
pub use reference::{ItemPtr, SharedValue};
pub(crate) use relocation::{Found, move_item, published_in_slot, vb_in_slot};

/// Bytes of the header, in front of expiry, key and value.
pub const HEADER_BYTES: usize = 40;
/// Longest value a header can describe.
pub const VALUE_BYTES_MAX: usize = LENGTH_MASK as usize;
/// Most references an item can have.
pub const REFERENCES_MAX: u8 = REFERENCES_MASK;
/// Highest value of the frequency counter.
pub const FREQUENCY_MAX: u8 = 63;
/// Steps of the frequency counter in which the uses that one step stands for double.
pub(crate) const FREQUENCY_OCTAVE: u8 = 6;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemId(pub(crate) Handle);

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
    pub(crate) fn resident_bytes(self) -> usize {
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

    /// What holds the item: table, checkpoint, socket writes.
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
}
