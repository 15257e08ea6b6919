//! One cache line of the hash table: up to nine items as (handle, 24-bit hash fragment).
//!
//! Slots are filled from the front without holes. `passed` counts the items that belong here or earlier but lie in a
//! later bucket because this one was full. A search goes on while it is not zero. Saturates; a saturated counter
//! stays until the table is rebuilt.

#![expect(
    clippy::indexing_slicing,
    reason = "a slot is below the fixed number of slots of a line: it comes from a match in the line or from its count"
)]

/// Items in one bucket.
pub(super) const SLOTS: usize = 9;
/// Bits of the hash that a bucket keeps.
pub(super) const FRAGMENT_BITS: u32 = 24;

/// 64 bytes, aligned to 64. All zero is an empty bucket.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    handles: [u32; SLOTS],
    low: [u16; SLOTS],
    high: [u8; SLOTS],
    passed: u8,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    pub(super) const EMPTY: Bucket =
        Bucket { handles: [0; SLOTS], low: [0; SLOTS], high: [0; SLOTS], passed: 0 };

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.handles[SLOTS - 1] != 0
    }

    /// Handles from the front; 0 from the first free slot on.
    #[inline]
    pub(super) fn handles(&self) -> &[u32; SLOTS] {
        &self.handles
    }

    #[inline]
    pub(super) fn fragment(&self, slot: usize) -> u32 {
        u32::from(self.high[slot]) << 16 | u32::from(self.low[slot])
    }

    /// Bit per slot whose fragment is `fragment`.
    #[inline]
    pub(super) fn matches(&self, fragment: u32) -> Matches {
        let (low, high) = (fragment as u16, (fragment >> 16) as u8);
        let mut bits = 0;
        for slot in 0..SLOTS {
            let same = self.low[slot] == low && self.high[slot] == high && self.handles[slot] != 0;
            bits |= u32::from(same) << slot;
        }
        Matches(bits)
    }

    /// The slot that holds `handle`.
    #[inline]
    pub(super) fn slot_of(&self, handle: u32) -> Option<usize> {
        self.handles.iter().position(|&other| other == handle)
    }

    /// Puts an item into the first free slot; the bucket is not full.
    pub(super) fn push(&mut self, handle: u32, fragment: u32) {
        let Some(slot) = self.slot_of(0) else { return debug_assert!(false, "pushed into a full bucket") };
        self.handles[slot] = handle;
        self.low[slot] = fragment as u16;
        self.high[slot] = (fragment >> 16) as u8;
    }

    /// Empties a slot; the last item takes its place.
    pub(super) fn remove(&mut self, slot: usize) {
        let last = self.slot_of(0).unwrap_or(SLOTS) - 1;
        self.handles[slot] = self.handles[last];
        self.low[slot] = self.low[last];
        self.high[slot] = self.high[last];
        self.handles[last] = 0;
    }

    pub(super) fn set_handle(&mut self, slot: usize, handle: u32) {
        self.handles[slot] = handle;
    }

    /// Whether an item that belongs here or earlier may lie further on.
    #[inline]
    pub(super) fn is_passed(&self) -> bool {
        self.passed != 0
    }

    pub(super) fn add_passed(&mut self) {
        self.passed = self.passed.saturating_add(1);
    }

    pub(super) fn subtract_passed(&mut self) {
        if self.passed != u8::MAX {
            self.passed -= 1;
        }
    }
}

/// Slots whose fragment matches.
pub(super) struct Matches(u32);

impl Iterator for Matches {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}
