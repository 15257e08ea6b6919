//! A vBucket's hash table: from key to item, one reference held per entry.
//!
//! An array of cache lines ([`bucket::Bucket`]) in the shard's arena, probed linearly. The upper 24 bits of the key's
//! hash stay beside the handle; they choose the home bucket by multiply-shift and serve as tag, so that growing
//! touches no item and walks old and new array in the same order. Full buckets count who passed them instead of keeping
//! tombstones, so removal needs no repair. Up to 94 % of the slots are used; nothing is allocated while empty.
//!
//! Lives inside the vBucket's mutex; [`TableHint`] outside of it lets a worker prefetch without the lock. The table
//! does not know what documents mean: locks, expiry, tombstones and checkpoints are the vBucket's.

mod bucket;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::hash::key_hash;

use crate::arena::{Arena, Handle, Purpose};
use crate::defragmenter::{Relocated, SparseSlot};
use crate::item::{self, ItemId, ItemPtr, ItemRef, NewItem};
use bucket::{Bucket, FRAGMENT_BITS, SLOTS};

/// Share of the slots in use at which the table grows.
const LOAD_MAX: (usize, usize) = (15, 16);
/// Share of the slots in use below which the table shrinks.
const LOAD_MIN: (usize, usize) = (1, 4);
/// Without memory to grow, the table fills up to this share.
const LOAD_LIMIT: (usize, usize) = (63, 64);
/// Tables of more buckets grow by a quarter instead of an eighth: fewer, rarer pauses.
const CAREFUL_BUCKETS: usize = 4096;
/// More buckets than this would have fewer than four fragments each.
const BUCKETS_MAX: usize = 1 << (FRAGMENT_BITS - 2);

/// See the module header.
pub struct HashTable {
    arena: Arc<Arena>,
    hint: Arc<TableHint>,
    block: Option<Handle>,
    buckets: usize,
    len: usize,
}

/// Where a table is, for prefetching without its lock. May be out of date; a wrong prefetch is only wasted.
#[derive(Debug, Default)]
pub struct TableHint(AtomicU64);

impl TableHint {
    /// Loads the cache line where the search for `hash` begins.
    #[inline]
    pub fn prefetch(&self, hash: u64, arena: &Arena) {
        let packed = self.0.load(Ordering::Relaxed);
        let home = home_of(fragment_of(hash), packed as u32 as usize);
        arena.prefetch((packed >> 32) as u32, home * size_of::<Bucket>());
    }

    fn set(&self, block: Option<Handle>, buckets: usize) {
        let block = block.map_or(0, Handle::get);
        self.0.store(u64::from(block) << 32 | buckets as u64, Ordering::Relaxed);
    }
}

/// Where a scan goes on; stays good while the table changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanPosition(u32);

/// A table has no memory to take one more item.
struct Full;

#[inline]
fn fragment_of(hash: u64) -> u32 {
    (hash >> (64 - FRAGMENT_BITS)) as u32
}

#[inline]
fn home_of(fragment: u32, buckets: usize) -> usize {
    ((u64::from(fragment) * buckets as u64) >> FRAGMENT_BITS) as usize
}

/// The first fragment whose home is `bucket`, 1 << 24 after the last.
fn first_fragment_of(bucket: usize, buckets: usize) -> u32 {
    ((bucket as u64) << FRAGMENT_BITS).div_ceil(buckets as u64) as u32
}

impl HashTable {
    /// An empty table whose items live in `arena`.
    #[must_use]
    pub fn new(arena: Arc<Arena>) -> Self {
        Self { arena, hint: Arc::default(), block: None, buckets: 0, len: 0 }
    }

    /// For prefetching without the lock.
    #[must_use]
    pub fn hint(&self) -> Arc<TableHint> {
        Arc::clone(&self.hint)
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table itself.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buckets * size_of::<Bucket>()
    }

    fn lines(&self) -> &[Bucket] {
        let Some(block) = self.block else { return &[] };
        // SAFETY: `block` was allocated by `allocate` for this many buckets, which it initialised, and is written only
        // through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.arena.at(block).cast::<Bucket>(), self.buckets) }
    }

    fn lines_mut(&mut self) -> &mut [Bucket] {
        let Some(block) = self.block else { return &mut [] };
        // SAFETY: as in `lines`; the table is exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.arena.at(block).cast::<Bucket>(), self.buckets) }
    }

    /// The table's item with this handle.
    #[inline]
    fn item(&self, handle: Handle) -> ItemRef<'_> {
        // SAFETY: called with handles in the table, for each of which it holds a reference; it loses them only through
        // `&mut self`.
        unsafe { ItemRef::new(&self.arena, handle) }
    }

    /// The buckets in which an item with this fragment may lie.
    #[inline]
    fn probe(&self, fragment: u32) -> Probe<'_> {
        let lines = self.lines();
        Probe { lines, next: home_of(fragment, lines.len()), left: lines.len() }
    }

    /// The item with this key.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<ItemRef<'_>> {
        let fragment = fragment_of(hash);
        for (_, line) in self.probe(fragment) {
            for slot in line.matches(fragment) {
                let item = Handle::new(line.handles()[slot]).map(|handle| self.item(handle));
                if item.is_some_and(|item| item.key() == key) {
                    return item;
                }
            }
        }
        None
    }

    /// Loads the header of the item that `hash` probably means. Reads the bucket: prefetch that first.
    #[inline]
    pub fn prefetch_item(&self, hash: u64) {
        let fragment = fragment_of(hash);
        let Some((_, line)) = self.probe(fragment).next() else { return };
        if let Some(slot) = line.matches(fragment).next() {
            // Header and key straddle two cache lines more often than not.
            self.arena.prefetch(line.handles()[slot], 0);
            self.arena.prefetch(line.handles()[slot], 64);
        }
    }

    /// Adds an item whose key is not in the table and publishes it; the table holds its reference. Gives the item back
    /// when there is no memory to grow.
    ///
    /// # Errors
    /// The item that was not taken.
    ///
    /// # Panics
    /// When the item is from another arena.
    pub fn insert<'a>(&mut self, hash: u64, new: NewItem<'a>) -> Result<ItemRef<'_>, NewItem<'a>> {
        assert!(new.is_in(&self.arena), "an item from another arena");
        if self.make_room().is_err() {
            return Err(new);
        }
        let handle = new.publish();
        place(self.lines_mut(), handle.get(), fragment_of(hash));
        self.len += 1;
        Ok(self.item(handle))
    }

    /// Puts a new version in the place of `old`, which has the same key; returns the table's reference to the old one.
    /// Never allocates.
    ///
    /// # Errors
    /// The item, when `old` is not in the table.
    ///
    /// # Panics
    /// When the item is from another arena.
    pub fn replace<'a>(
        &mut self,
        hash: u64,
        old: ItemId,
        new: NewItem<'a>,
    ) -> Result<(ItemPtr, ItemRef<'_>), NewItem<'a>> {
        assert!(new.is_in(&self.arena), "an item from another arena");
        let Some((bucket, slot)) = self.place_of(hash, old.0) else { return Err(new) };
        let handle = new.publish();
        self.lines_mut()[bucket].set_handle(slot, handle.get());
        Ok((ItemPtr::from_handle(old.0), self.item(handle)))
    }

    /// Takes an item out; returns the table's reference to it.
    pub fn remove(&mut self, hash: u64, id: ItemId) -> Option<ItemPtr> {
        let (bucket, slot) = self.place_of(hash, id.0)?;
        let lines = self.lines_mut();
        lines[bucket].remove(slot);
        let mut passed = home_of(fragment_of(hash), lines.len());
        while passed != bucket {
            lines[passed].subtract_passed();
            passed = following(passed, lines.len());
        }
        self.len -= 1;
        self.shrink();
        Some(ItemPtr::from_handle(id.0))
    }

    fn place_of(&self, hash: u64, handle: Handle) -> Option<(usize, usize)> {
        self.probe(fragment_of(hash))
            .find_map(|(bucket, line)| line.slot_of(handle.get()).map(|slot| (bucket, slot)))
    }

    /// Visits items from `from` on until at least `limit` were visited or the end is reached (`None`). An item that stays
    /// in the table during a whole series of calls is visited exactly once, whatever else comes and goes.
    pub fn scan(
        &self,
        from: ScanPosition,
        limit: usize,
        visit: &mut dyn FnMut(ItemRef<'_>),
    ) -> Option<ScanPosition> {
        let buckets = self.lines().len();
        let mut visited = 0;
        for home in home_of(from.0, buckets)..buckets {
            if visited >= limit {
                return Some(ScanPosition(first_fragment_of(home, buckets).max(from.0)));
            }
            let first = first_fragment_of(home, buckets);
            for (_, line) in self.probe(first) {
                for (slot, handle) in line.handles().iter().enumerate() {
                    let Some(handle) = Handle::new(*handle) else { break };
                    let fragment = line.fragment(slot);
                    if home_of(fragment, buckets) == home && fragment >= from.0 {
                        visit(self.item(handle));
                        visited += 1;
                    }
                }
            }
        }
        None
    }

    /// Some item; `pick` is a random number.
    #[must_use]
    pub fn random(&self, pick: u64) -> Option<ItemRef<'_>> {
        let lines = self.lines();
        let start = home_of(fragment_of(pick), lines.len());
        let line = lines[start..].iter().chain(&lines[..start]).find(|line| line.handles()[0] != 0)?;
        let taken = line.slot_of(0).unwrap_or(SLOTS);
        Handle::new(line.handles()[pick as u32 as usize % taken]).map(|handle| self.item(handle))
    }

    /// Moves an item of this vBucket out of a sparse slab if nobody but the table holds it.
    pub fn relocate(&mut self, from: &SparseSlot) -> Relocated {
        if !from.is_in(&self.arena) {
            return Relocated::Kept;
        }
        // SAFETY: the slot lies in a draining slab: it stays a slot of items and is not reused while we look.
        let Some(key) = (unsafe { item::sole_published_key(&self.arena, from.handle()) }) else {
            return Relocated::Kept;
        };
        // The one reference may be somebody else's, to an item this table does not know (any more).
        let Some((bucket, slot)) = self.place_of(key_hash(key), from.handle()) else {
            return Relocated::Kept;
        };
        // SAFETY: the item is in the table and has one reference, so that is the table's; nobody else can take one,
        // because that needs the table.
        let Some((handle, bytes)) = (unsafe { item::move_item(&self.arena, from.handle()) }) else {
            return Relocated::Kept;
        };
        self.lines_mut()[bucket].set_handle(slot, handle.get());
        Relocated::Moved(bytes)
    }

    /// Releases every item and the table's memory.
    pub fn clear(&mut self) {
        for line in self.lines() {
            for handle in line.handles().iter().map_while(|&handle| Handle::new(handle)) {
                // SAFETY: the table's own reference, to an item of its arena; the array is given up below.
                unsafe { ItemPtr::from_handle(handle).release(&self.arena) };
            }
        }
        self.len = 0;
        self.adopt(None, 0);
    }

    fn make_room(&mut self) -> Result<(), Full> {
        if self.len < share(self.buckets, LOAD_MAX) {
            return Ok(());
        }
        let step = if self.buckets < CAREFUL_BUCKETS { 8 } else { 4 };
        let grown = (self.buckets + (self.buckets / step).max(1)).min(BUCKETS_MAX);
        if grown > self.buckets && self.rebuild(grown).is_ok() {
            return Ok(());
        }
        if self.len < share(self.buckets, LOAD_LIMIT) { Ok(()) } else { Err(Full) }
    }

    fn shrink(&mut self) {
        if self.len == 0 {
            return self.adopt(None, 0);
        }
        if self.buckets > 8 && self.len < share(self.buckets, LOAD_MIN) {
            // Without memory for a smaller table the larger one does.
            let _ = self.rebuild(self.buckets / 2);
        }
    }

    /// Moves all entries to an array of at least `buckets` buckets.
    fn rebuild(&mut self, buckets: usize) -> Result<(), Full> {
        let block = self.arena.alloc(buckets * size_of::<Bucket>(), Purpose::Table).ok_or(Full)?;
        // The whole slot is ours: use what rounding added.
        let buckets = self.arena.size_of(block) / size_of::<Bucket>();
        let start = self.arena.at(block).cast::<Bucket>();
        debug_assert!(start.is_aligned());
        // SAFETY: the slot has room for as many buckets, is aligned to them (a multiple of 64 in size, see the arena's
        // classes) and belongs to nobody else.
        let lines = unsafe {
            for index in 0..buckets {
                start.add(index).write(Bucket::EMPTY);
            }
            std::slice::from_raw_parts_mut(start, buckets)
        };
        for line in self.lines() {
            for (slot, &handle) in line.handles().iter().enumerate() {
                if handle != 0 {
                    place(lines, handle, line.fragment(slot));
                }
            }
        }
        self.adopt(Some(block), buckets);
        Ok(())
    }

    /// Switches to another array and frees the one in use.
    fn adopt(&mut self, block: Option<Handle>, buckets: usize) {
        self.hint.set(block, buckets);
        let old = std::mem::replace(&mut self.block, block);
        self.buckets = buckets;
        if let Some(old) = old {
            // SAFETY: allocated by `rebuild`, and no slice of it is left.
            unsafe { self.arena.free(old) };
        }
    }
}

impl Drop for HashTable {
    fn drop(&mut self) {
        self.clear();
    }
}

fn share(buckets: usize, (numerator, denominator): (usize, usize)) -> usize {
    buckets * SLOTS * numerator / denominator
}

#[inline]
fn following(bucket: usize, buckets: usize) -> usize {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

/// Puts an item into the first bucket with room from its home on; the array is not full.
fn place(lines: &mut [Bucket], handle: u32, fragment: u32) {
    let mut bucket = home_of(fragment, lines.len());
    while lines[bucket].is_full() {
        lines[bucket].add_passed();
        bucket = following(bucket, lines.len());
    }
    lines[bucket].push(handle, fragment);
}

/// The buckets from an item's home to where it can be at most.
struct Probe<'a> {
    lines: &'a [Bucket],
    next: usize,
    left: usize,
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
