//! A vBucket's mutations that are not on disk yet, in seqno order.
//!
//! Each entry holds a counted reference, so a version lives until it is synced even when the table has a newer one. A
//! superseded version is marked stale, not removed: its superseder is further back in the same queue, the two are taken
//! together, and only the newer one is written. The persistence cursor is the front of the queue; it never drops
//! anything, writers are refused instead when the shard's queues grow beyond their share of memory.

use std::collections::VecDeque;

use crate::item::{ItemPtr, ItemRef};

/// Queues with more room than this when they run empty give it back.
const IDLE_CAPACITY_MAX: usize = 64;

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    queue: VecDeque<ItemPtr>,
    /// Arena bytes of the entries.
    bytes: u64,
}

impl Checkpoint {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the queue itself.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        (self.queue.capacity() * size_of::<ItemPtr>()) as u64
    }

    /// Appends a version that was just published. False when its reference count is exhausted, which cannot be: nobody
    /// else has seen it yet.
    pub(crate) fn push(&mut self, item: ItemRef<'_>) -> bool {
        let Some(held) = item.hold() else { return false };
        self.bytes += item.bytes() as u64;
        self.queue.push_back(held);
        true
    }

    /// Takes everything, oldest first.
    pub(crate) fn take(&mut self) -> Vec<ItemPtr> {
        self.bytes = 0;
        let taken = self.queue.drain(..).collect();
        if self.queue.capacity() > IDLE_CAPACITY_MAX {
            self.queue = VecDeque::new();
        }
        taken
    }

    /// Returns what was taken and could not be written: it is older than everything queued since.
    pub(crate) fn put_back(&mut self, taken: Vec<ItemPtr>, bytes: u64) {
        self.bytes += bytes;
        for item in taken.into_iter().rev() {
            self.queue.push_front(item);
        }
    }
}
