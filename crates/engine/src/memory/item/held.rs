//! Many references at four bytes each, given back when the list is dropped.

use std::sync::Arc;

use super::{ItemPtr, ItemRef, NewItem};
use crate::memory::arena::Arena;

/// References to items of one arena.
pub(crate) struct HeldItems {
    arena: Arc<Arena>,
    items: Vec<ItemPtr>,
}

impl HeldItems {
    pub(crate) fn new(arena: &Arc<Arena>) -> Self {
        Self { arena: Arc::clone(arena), items: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Under the vBucket's lock: adds a reference to an item, or to a copy of one that has too many. False when there is
    /// no memory for a copy.
    pub(crate) fn push(&mut self, item: ItemRef<'_>) -> bool {
        let held = item.hold().or_else(|| {
            let copy = if item.is_resident() {
                NewItem::new(&self.arena, &item.meta(), item.key(), item.value())?
            } else {
                NewItem::without_value(&self.arena, &item.meta(), item.key(), item.value_len())?
            };
            copy.as_ref().set_frequency(item.frequency());
            Some(ItemPtr::from_handle(copy.publish()))
        });
        let is_held = held.is_some();
        self.items.extend(held);
        is_held
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = ItemRef<'_>> {
        // SAFETY: `push` takes items of this arena only.
        self.items.iter().map(|held| unsafe { held.get(&self.arena) })
    }

    /// Takes the last reference out.
    pub(crate) fn pop(&mut self) -> Option<ItemPtr> {
        self.items.pop()
    }

    /// Keeps those whose flag in `drop` is not set.
    pub(crate) fn drop_flagged(&mut self, drop: &[bool]) {
        let mut flags = drop.iter();
        let arena = &self.arena;
        for gone in self.items.extract_if(.., |_| flags.next() == Some(&true)) {
            // SAFETY: as in `iter`.
            unsafe { gone.release(arena) };
        }
    }

    /// Moves everything from a list of the same arena to the end of this one.
    pub(crate) fn append(&mut self, other: &mut Self) {
        debug_assert!(Arc::ptr_eq(&self.arena, &other.arena));
        self.items.append(&mut other.items);
    }

    /// Highest seqno first, so that [`HeldItems::pop`] takes them in order.
    pub(crate) fn sort_newest_first(&mut self) {
        let arena = &self.arena;
        // SAFETY: as in `iter`.
        self.items.sort_by_cached_key(|held| std::cmp::Reverse(unsafe { held.get(arena) }.seqno()));
    }
}

impl Drop for HeldItems {
    fn drop(&mut self) {
        for held in self.items.drain(..) {
            // SAFETY: as in `iter`.
            unsafe { held.release(&self.arena) };
        }
    }
}
