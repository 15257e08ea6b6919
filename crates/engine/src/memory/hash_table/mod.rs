//! A vBucket's hash table: from key to item, one reference held per entry.
//!
//! An array of cache lines ([`bucket::Bucket`]) in the shard's arena, probed linearly. The upper 24 bits of the key's
//! hash stay beside the handle. They choose the home bucket by multiply-shift and serve as tag. So growing touches no
//! item, and walks old and new array in the same order. Full buckets count who passed them instead of keeping
//! tombstones, so removal needs no repair. Up to 94 % of the slots are used; nothing is allocated while empty.
//!
//! A large table grows and shrinks in steps. Every change moves the entries of a few buckets, in the order of their
//! fragments. At any time those below `moved` are in the new array and all others in the old one. So a search looks
//! into one array only. Housekeeping ends a move that no changes end ([`HashTable::move_on`]).
//!
//! Lives inside the vBucket's mutex; [`TableHint`] outside of it lets a worker prefetch without the lock. The table
//! does not know what documents mean: locks, expiry, tombstones and checkpoints are the vBucket's.

mod array;
mod bucket;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::hash::key_hash;

use crate::memory::arena::{Arena, Handle};
use crate::memory::defragmenter::{Relocated, SparseSlot};
use crate::memory::item::{self, ItemId, ItemPtr, ItemRef, NewItem};
use array::{Array, Probe, displace, first_fragment_of, home_of, place, place_of, visit_home};
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
/// Buckets whose entries each change moves while the table grows or shrinks; tables up to 32 times as large are
/// moved in one go. With so many, the old array is empty long before its free slots are used up.
const MOVED_PER_CHANGE: usize = 16;
const MOVED_AT_ONCE: usize = 32 * MOVED_PER_CHANGE;
/// Above every fragment.
const FRAGMENTS_END: u32 = 1 << FRAGMENT_BITS;

/// See the module header.
pub struct HashTable {
    arena: Arc<Arena>,
    hint: Arc<TableHint>,
    /// The entries with fragments from `moved` on: all of them, unless the table is moving.
    array: Array,
    /// The entries with fragments below `moved`.
    target: Array,
    /// 0 unless the table is moving.
    moved: u32,
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

    fn set(&self, array: Array) {
        let block = array.block().map_or(0, Handle::get);
        self.0.store(u64::from(block) << 32 | array.buckets() as u64, Ordering::Relaxed);
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

impl HashTable {
    /// An empty table whose items live in `arena`.
    #[must_use]
    pub fn new(arena: Arc<Arena>) -> Self {
        Self {
            arena,
            hint: Arc::default(),
            array: Array::default(),
            target: Array::default(),
            moved: 0,
            len: 0,
        }
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
        (self.array.buckets() + self.target.buckets()) * size_of::<Bucket>()
    }

    /// The array in which a fragment belongs.
    #[inline]
    fn side(&self, fragment: u32) -> Array {
        if fragment < self.moved { self.target } else { self.array }
    }

    #[inline]
    fn lines(&self, array: Array) -> &[Bucket] {
        // SAFETY: one of this table's arrays, which are written and freed only through `&mut self`.
        unsafe { array.lines(&self.arena) }
    }

    fn lines_mut(&mut self, array: Array) -> &mut [Bucket] {
        // SAFETY: one of this table's arrays; the table is exclusively borrowed.
        unsafe { array.lines_mut(&self.arena) }
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
        Probe::new(self.lines(self.side(fragment)), fragment)
    }

    /// The item with this key.
    #[inline]
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "a slot is one that the line has matched")]
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
    #[expect(clippy::indexing_slicing, reason = "a slot is one that the line has matched")]
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
        let fragment = fragment_of(hash);
        place(self.lines_mut(self.side(fragment)), handle.get(), fragment);
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
    #[expect(clippy::indexing_slicing, reason = "the place was found in the same array under the same lock")]
    pub fn replace<'a>(
        &mut self,
        hash: u64,
        old: ItemId,
        new: NewItem<'a>,
    ) -> Result<(ItemPtr, ItemRef<'_>), NewItem<'a>> {
        assert!(new.is_in(&self.arena), "an item from another arena");
        if self.is_moving() {
            self.move_on(MOVED_PER_CHANGE);
        }
        let fragment = fragment_of(hash);
        let array = self.side(fragment);
        let Some((bucket, slot)) = place_of(self.lines(array), fragment, old.0.get()) else {
            return Err(new);
        };
        let handle = new.publish();
        self.lines_mut(array)[bucket].set_handle(slot, handle.get());
        Ok((ItemPtr::from_handle(old.0), self.item(handle)))
    }

    /// Takes an item out; returns the table's reference to it.
    pub fn remove(&mut self, hash: u64, id: ItemId) -> Option<ItemPtr> {
        let fragment = fragment_of(hash);
        let array = self.side(fragment);
        let place = place_of(self.lines(array), fragment, id.0.get())?;
        displace(self.lines_mut(array), place, fragment);
        self.len -= 1;
        self.shrink();
        Some(ItemPtr::from_handle(id.0))
    }

    /// Visits items from `from` on until at least `limit` were visited or the end is reached (`None`). An item that stays
    /// in the table during a whole series of calls is visited exactly once, whatever else comes and goes.
    pub fn scan(
        &self,
        from: ScanPosition,
        limit: usize,
        visit: &mut dyn FnMut(ItemRef<'_>),
    ) -> Option<ScanPosition> {
        let mut visited = 0;
        for (array, begin, end) in [(self.target, 0, self.moved), (self.array, self.moved, FRAGMENTS_END)] {
            let (lines, begin) = (self.lines(array), from.0.max(begin));
            if begin >= end || lines.is_empty() {
                continue;
            }
            for home in home_of(begin, lines.len())..=home_of(end - 1, lines.len()) {
                if visited >= limit {
                    return Some(ScanPosition(first_fragment_of(home, lines.len()).max(begin)));
                }
                visit_home(lines, home, |handle, fragment| {
                    if fragment >= begin {
                        visit(self.item(handle));
                        visited += 1;
                    }
                });
            }
        }
        None
    }

    /// Some item; `pick` is a random number.
    #[must_use]
    pub fn random(&self, pick: u64) -> Option<ItemRef<'_>> {
        let fragment = fragment_of(pick);
        let sides = if fragment < self.moved { [self.target, self.array] } else { [self.array, self.target] };
        let found = sides.into_iter().find_map(|array| array::random(self.lines(array), fragment, pick));
        found.map(|handle| self.item(handle))
    }

    /// Moves an item of this vBucket out of a sparse slab if only the table and the vBucket's queue hold it. `queued`
    /// is the queue's reference to it, if it has one. That reference is not lent to anybody, and is under the same lock
    /// as the table.
    #[expect(clippy::indexing_slicing, reason = "the place was found in the same array under the same lock")]
    pub fn relocate(&mut self, from: &SparseSlot, queued: Option<&mut ItemPtr>) -> Relocated {
        let queued = queued.filter(|queued| queued.id() == from.id());
        if !from.is_in(&self.arena) {
            return Relocated::Kept;
        }
        let Some(found) = from.look() else { return Relocated::Kept };
        // References may be others', to an item this table does not know (any more).
        let fragment = fragment_of(key_hash(found.key));
        let array = self.side(fragment);
        let place = place_of(self.lines(array), fragment, from.id().0.get());
        if found.references != u8::from(place.is_some()) + u8::from(queued.is_some()) {
            return Relocated::Kept;
        }
        // SAFETY: the item has as many references as it has places in the table and in the queue, so they are those. Nobody
        // else can take one, because that needs the table or the queue.
        let Some((handle, bytes)) = (unsafe { item::move_item(&self.arena, from.id().0) }) else {
            return Relocated::Kept;
        };
        if let Some((bucket, slot)) = place {
            self.lines_mut(array)[bucket].set_handle(slot, handle.get());
        }
        if let Some(queued) = queued {
            *queued = ItemPtr::from_handle(handle);
        }
        Relocated::Moved(bytes)
    }

    /// Takes everything out: what is returned releases it when it is dropped, which may take long.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let mut taken = Self::new(Arc::clone(&self.arena));
        std::mem::swap(&mut taken.array, &mut self.array);
        std::mem::swap(&mut taken.target, &mut self.target);
        std::mem::swap(&mut taken.moved, &mut self.moved);
        std::mem::swap(&mut taken.len, &mut self.len);
        self.hint.set(self.array);
        taken
    }

    /// Releases every item and the table's memory.
    fn clear(&mut self) {
        for array in [self.target, self.array] {
            for line in self.lines(array) {
                for handle in line.handles().iter().map_while(|&handle| Handle::new(handle)) {
                    // SAFETY: the table's own reference, to an item of its arena; the array is given up below.
                    unsafe { ItemPtr::from_handle(handle).release(&self.arena) };
                }
            }
        }
        self.len = 0;
        self.give_up_arrays();
    }

    /// Frees the arrays, which name no items (any more).
    fn give_up_arrays(&mut self) {
        self.moved = 0;
        for array in [std::mem::take(&mut self.target), std::mem::take(&mut self.array)] {
            // SAFETY: allocated for this table, which has forgotten it.
            unsafe { array.free(&self.arena) };
        }
        self.hint.set(self.array);
    }

    /// Whether entries are on their way from one array to another.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.moved != 0
    }

    fn make_room(&mut self) -> Result<(), Full> {
        if self.is_moving() {
            // The old array was not full when this began, and is emptied faster than it could be filled.
            self.move_on(MOVED_PER_CHANGE);
            return Ok(());
        }
        let buckets = self.array.buckets();
        if self.len < share(buckets, LOAD_MAX) {
            return Ok(());
        }
        let step = if buckets < CAREFUL_BUCKETS { 8 } else { 4 };
        let grown = (buckets + (buckets / step).max(1)).min(BUCKETS_MAX);
        if grown > buckets && self.begin_move(grown).is_ok() {
            return Ok(());
        }
        if self.len < share(buckets, LOAD_LIMIT) { Ok(()) } else { Err(Full) }
    }

    fn shrink(&mut self) {
        if self.len == 0 {
            return self.give_up_arrays();
        }
        if self.is_moving() {
            return self.move_on(MOVED_PER_CHANGE);
        }
        let buckets = self.array.buckets();
        if buckets > 8 && self.len < share(buckets, LOAD_MIN) {
            // Without memory for a smaller table the larger one does.
            let _ = self.begin_move(buckets / 2);
        }
    }

    /// Begins to move all entries to an array of at least `buckets` buckets, with the first step.
    fn begin_move(&mut self, buckets: usize) -> Result<(), Full> {
        self.target = Array::allocate(&self.arena, buckets).ok_or(Full)?;
        let is_large = self.array.buckets() > MOVED_AT_ONCE;
        self.move_on(if is_large { MOVED_PER_CHANGE } else { self.array.buckets().max(1) });
        Ok(())
    }

    /// Moves the entries of so many buckets on to the new array; the old one is freed when nothing is left in it.
    pub fn move_on(&mut self, buckets: usize) {
        let from = self.array.buckets();
        let first = home_of(self.moved, from);
        let mut leaving = Vec::new();
        for home in first..from.min(first + buckets) {
            visit_home(self.lines(self.array), home, |handle, fragment| {
                leaving.push((handle.get(), fragment))
            });
            for (handle, fragment) in leaving.drain(..) {
                let old = self.lines_mut(self.array);
                if let Some(found) = place_of(old, fragment, handle) {
                    displace(old, found, fragment);
                    place(self.lines_mut(self.target), handle, fragment);
                }
            }
            self.moved = first_fragment_of(home + 1, from);
        }
        if from == 0 || self.moved == FRAGMENTS_END {
            let emptied = std::mem::replace(&mut self.array, std::mem::take(&mut self.target));
            self.moved = 0;
            self.hint.set(self.array);
            // SAFETY: allocated for this table, which has forgotten it.
            unsafe { emptied.free(&self.arena) };
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
