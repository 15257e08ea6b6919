//! One array of buckets in the arena, probed linearly from an item's home on. Which fragments it is responsible for is
//! the table's business; it must not be full.

#![expect(
    clippy::indexing_slicing,
    reason = "the number of a line is masked by the number of lines, and the checks would be a branch per lookup"
)]

use super::bucket::{Bucket, FRAGMENT_BITS, SLOTS};
use crate::memory::arena::{Arena, Handle, Purpose};

/// See the module header. Names memory without owning it: the table frees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Array {
    block: Option<Handle>,
    buckets: usize,
}

/// The bucket in which the search for a fragment begins.
#[inline]
pub(super) fn home_of(fragment: u32, buckets: usize) -> usize {
    ((u64::from(fragment) * buckets as u64) >> FRAGMENT_BITS) as usize
}

/// The first fragment whose home is `bucket`, 1 << 24 after the last.
pub(super) fn first_fragment_of(bucket: usize, buckets: usize) -> u32 {
    ((bucket as u64) << FRAGMENT_BITS).div_ceil(buckets as u64) as u32
}

#[inline]
fn following(bucket: usize, buckets: usize) -> usize {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

impl Array {
    /// An empty array of at least so many buckets; `None` without memory.
    pub(super) fn allocate(arena: &Arena, buckets: usize) -> Option<Self> {
        let block = arena.alloc(buckets * size_of::<Bucket>(), Purpose::Table)?;
        // The whole slot is ours: use what rounding added.
        let buckets = arena.size_of(block) / size_of::<Bucket>();
        let start = arena.at(block).cast::<Bucket>();
        debug_assert!(start.is_aligned());
        for index in 0..buckets {
            // SAFETY: the slot has room for as many buckets and belongs to nobody else. It is aligned to them (a
            // multiple of 64 in size, see the arena's classes).
            unsafe { start.add(index).write(Bucket::EMPTY) };
        }
        Some(Self { block: Some(block), buckets })
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// It came from this arena, and nobody uses this array or a copy of it any more.
    pub(super) unsafe fn free(self, arena: &Arena) {
        if let Some(block) = self.block {
            // SAFETY: as promised by the caller.
            unsafe { arena.free(block) };
        }
    }

    #[inline]
    pub(super) const fn buckets(self) -> usize {
        self.buckets
    }

    pub(super) const fn block(self) -> Option<Handle> {
        self.block
    }

    /// Its buckets.
    ///
    /// # Safety
    /// Not freed, of this arena, and not written while the slice lives.
    #[inline]
    pub(super) unsafe fn lines(self, arena: &Arena) -> &[Bucket] {
        let Some(block) = self.block else { return &[] };
        // SAFETY: allocated for this many buckets and initialised by `allocate`.
        unsafe { std::slice::from_raw_parts(arena.at(block).cast::<Bucket>(), self.buckets) }
    }

    /// Its buckets, to be changed.
    ///
    /// # Safety
    /// Not freed, of this arena, and used by nobody else while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the arena is only the address space that the array lies in")]
    pub(super) unsafe fn lines_mut(self, arena: &Arena) -> &mut [Bucket] {
        let Some(block) = self.block else { return &mut [] };
        // SAFETY: as in `lines`.
        unsafe { std::slice::from_raw_parts_mut(arena.at(block).cast::<Bucket>(), self.buckets) }
    }
}

/// Puts an item into the first bucket with room from its home on; the array is not full.
pub(super) fn place(lines: &mut [Bucket], handle: u32, fragment: u32) {
    let mut bucket = home_of(fragment, lines.len());
    while lines[bucket].is_full() {
        lines[bucket].add_passed();
        bucket = following(bucket, lines.len());
    }
    lines[bucket].push(handle, fragment);
}

/// Empties the slot in which an item with this fragment lies.
pub(super) fn displace(lines: &mut [Bucket], (bucket, slot): (usize, usize), fragment: u32) {
    lines[bucket].remove(slot);
    let mut passed = home_of(fragment, lines.len());
    while passed != bucket {
        lines[passed].subtract_passed();
        passed = following(passed, lines.len());
    }
}

/// Bucket and slot of an item.
#[inline]
pub(super) fn place_of(lines: &[Bucket], fragment: u32, handle: u32) -> Option<(usize, usize)> {
    Probe::new(lines, fragment).find_map(|(bucket, line)| line.slot_of(handle).map(|slot| (bucket, slot)))
}

/// Visits the items whose home is `home`: handle and fragment.
pub(super) fn visit_home(lines: &[Bucket], home: usize, mut visit: impl FnMut(Handle, u32)) {
    for (_, line) in Probe::new(lines, first_fragment_of(home, lines.len())) {
        for (slot, handle) in line.handles().iter().enumerate() {
            let Some(handle) = Handle::new(*handle) else { break };
            let fragment = line.fragment(slot);
            if home_of(fragment, lines.len()) == home {
                visit(handle, fragment);
            }
        }
    }
}

/// Some item of an array; `pick` is a random number.
pub(super) fn random(lines: &[Bucket], fragment: u32, pick: u64) -> Option<Handle> {
    let start = home_of(fragment, lines.len());
    let line = lines[start..].iter().chain(&lines[..start]).find(|line| line.handles()[0] != 0)?;
    let taken = line.slot_of(0).unwrap_or(SLOTS);
    Handle::new(line.handles()[pick as u32 as usize % taken])
}

/// The buckets from a fragment's home to where an item with it can be at most.
pub(super) struct Probe<'a> {
    lines: &'a [Bucket],
    next: usize,
    left: usize,
}

impl<'a> Probe<'a> {
    #[inline]
    pub(super) fn new(lines: &'a [Bucket], fragment: u32) -> Self {
        Self { lines, next: home_of(fragment, lines.len()), left: lines.len() }
    }
}

impl<'a> Iterator for Probe<'a> {
    type Item = (usize, &'a Bucket);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let bucket = self.next;
        let line = self.lines.get(bucket)?;
        self.left = if line.is_passed() { self.left - 1 } else { 0 };
        self.next = following(bucket, self.lines.len());
        Some((bucket, line))
    }
}
