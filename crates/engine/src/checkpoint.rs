//! A vBucket's mutations that are not on disk yet, in seqno order.
//!
//! Each entry holds a counted reference, so a version lives until it is synced even when the table has a newer one. A
//! superseded version is marked stale, not removed: its superseder is further back in the same queue, the two are normally
//! taken together, and only the newer one is written. The persistence cursor is the front of the queue; it never drops
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

    /// Takes the oldest entries, about `bytes_max` of them (by `bytes_of`) but at least one; usually that is everything.
    pub(crate) fn take(&mut self, bytes_max: u64, bytes_of: impl Fn(&ItemPtr) -> u64) -> Vec<ItemPtr> {
        if self.bytes <= bytes_max {
            self.bytes = 0;
            let taken = self.queue.drain(..).collect();
            if self.queue.capacity() > IDLE_CAPACITY_MAX {
                self.queue = VecDeque::new();
            }
            return taken;
        }
        let mut sum = 0;
        let mut count = 0;
        while let Some(item) = self.queue.get(count) {
            let bytes = bytes_of(item);
            if count > 0 && sum + bytes > bytes_max {
                break;
            }
            sum += bytes;
            count += 1;
        }
        self.bytes = self.bytes.saturating_sub(sum);
        self.queue.drain(..count).collect()
    }

    /// Returns what was taken and could not be written: it is older than everything queued since.
    pub(crate) fn put_back(&mut self, taken: Vec<ItemPtr>, bytes: u64) {
        self.bytes += bytes;
        for item in taken.into_iter().rev() {
            self.queue.push_front(item);
        }
    }
}
