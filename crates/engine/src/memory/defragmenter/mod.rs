//! Empties sparse slabs by moving their items, so that memory that was freed is memory that is free.
//!
//! 1. The arena picks a slab whose items have room elsewhere in their class, and stops handing out its slots.
//! 2. Its taken slots are listed. From then on they may be freed, but not reused, until step 5.
//! 3. For each, the caller is told the vBucket that the header names. It locks that vBucket and calls
//!    [`HashTable::relocate`](crate::memory::hash_table::HashTable::relocate), with the entry of the vBucket's queue for the same
//!    item, unless that is lent to the flusher.
//! 4. There, under the lock, the slot is believed only if it holds a published item. The item must have as many
//!    references as that entry and the table's are. Then these two are the only holders, and nobody can become another.
//!    The item is copied, the entries switched, the old slot freed. Anything else stays; a later round tries again.
//! 5. The drain ends: an empty slab is returned, any other used again.
//!
//! Items that wait for the disk have to be movable. Where a bucket is filled as fast as its disk takes it, most
//! resident items wait, and every slab has some of them.
//!
//! Does not decide when to run or how much; takes no lock of a vBucket itself.

#[cfg(test)]
mod tests;

use base::VbId;

use crate::memory::arena::{Arena, Handle};
use crate::memory::item::{self, Found, ItemId};

/// Slots listed at a time.
const BATCH: usize = 64;
/// What giving a slab back counts as, copied bytes being one each: its pages are unmapped.
const SLAB_COST: usize = 16 << 10;

/// A slot in a slab that is being emptied. Only good for the call it is passed to.
pub struct SparseSlot<'a> {
    arena: &'a Arena,
    handle: Handle,
}

impl SparseSlot<'_> {
    pub(crate) fn is_in(&self, arena: &Arena) -> bool {
        std::ptr::eq(self.arena, arena)
    }

    pub(crate) fn id(&self) -> ItemId {
        ItemId(self.handle)
    }

    /// The item that was there a moment ago, if there was one.
    pub(crate) fn look(&self) -> Option<Found<'_>> {
        // SAFETY: the slot lies in a draining slab: it stays a slot of items and is not reused while we look.
        unsafe { item::published_in_slot(self.arena, self.handle) }
    }
}

/// What became of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relocated {
    /// The item has moved; so many bytes were copied.
    Moved(usize),
    /// Held by others, freed meanwhile, or not this vBucket's.
    Kept,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragReport {
    /// Items moved.
    pub moved_items: usize,
    /// Bytes copied.
    pub moved_bytes: usize,
    /// Bytes returned to the operating system.
    pub released_bytes: usize,
    /// The budget was used up before the empty and the sparse slabs were.
    pub more: bool,
}

/// Drives the defragmentation of one arena.
#[derive(Debug, Default)]
pub struct Defragmenter {
    round: u32,
}

impl Defragmenter {
    /// One step that looks at and copies about `budget_bytes` bytes at most, and gives as many slabs back as that allows.
    /// `relocate` locks the vBucket and passes the slot to its table; for a vBucket that does not exist (any more) it answers
    /// [`Relocated::Kept`].
    pub fn step(
        &mut self,
        arena: &Arena,
        budget_bytes: usize,
        relocate: &mut dyn FnMut(VbId, SparseSlot<'_>) -> Relocated,
    ) -> DefragReport {
        self.round = self.round.saturating_add(1);
        let mut report = DefragReport::default();
        let mut budget = budget_bytes;
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            if budget == 0 {
                report.more = true;
                return report;
            }
            match arena.return_empty_slab() {
                0 => break,
                bytes => report.released_bytes += bytes,
            }
            budget = budget.saturating_sub(SLAB_COST);
        }
        while let Some(mut drain) = (!report.more).then(|| arena.start_drain(self.round)).flatten() {
            loop {
                if budget == 0 {
                    report.more = true;
                    break;
                }
                arena.walk(&mut drain, BATCH, &mut batch);
                if batch.is_empty() {
                    break;
                }
                for &handle in &batch {
                    // SAFETY: the slot lies in a draining slab of items.
                    let vb = unsafe { item::vb_in_slot(arena, handle) };
                    if let Relocated::Moved(bytes) = relocate(vb, SparseSlot { arena, handle }) {
                        report.moved_items += 1;
                        report.moved_bytes += bytes;
                        budget = budget.saturating_sub(bytes);
                    }
                    budget = budget.saturating_sub(item::HEADER_BYTES);
                }
            }
            report.released_bytes += arena.end_drain(drain);
            budget = budget.saturating_sub(SLAB_COST);
        }
        report
    }
}
