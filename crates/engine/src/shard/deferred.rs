//! Effects of an operation that are put off until the vBucket's lock is released: memory is given back, the flusher called, waiters woken.
//!
//! Declared before the lock is taken, so that it is dropped, and acts, after the lock was released.

use crate::{
    api::notify::{Notifier, Waiter, Work},
    memory::item::ItemPtr,
    shard::Shard,
};

/// References one operation gives up without the list allocating.
const INLINE: usize = 2;

/// See the module header.
pub(crate) struct DeferredEffects<'a> {
    shard: &'a Shard,
    notifier: &'a dyn Notifier,
    inline: [Option<ItemPtr>; INLINE],
    more: Vec<ItemPtr>,
    waiters: Vec<Waiter>,
    flush: bool,
}

impl<'a> DeferredEffects<'a> {
    #[inline]
    pub(crate) fn new(shard: &'a Shard, notifier: &'a dyn Notifier) -> Self {
        Self { shard, notifier, inline: [None, None], more: Vec::new(), waiters: Vec::new(), flush: false }
    }

    /// Gives a reference back, later.
    #[inline]
    pub(crate) fn release(&mut self, item: ItemPtr) {
        match self.inline.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(item),
            None => self.more.push(item),
        }
    }

    /// Gives references back, later.
    pub(crate) fn release_all(&mut self, mut items: Vec<ItemPtr>) {
        if self.more.is_empty() {
            self.more = items;
        } else {
            self.more.append(&mut items);
        }
    }

    /// Wakes a parked request, later.
    pub(crate) fn wake(&mut self, waiter: Waiter) {
        self.waiters.push(waiter);
    }

    /// Calls the flusher, later, unless it has been called already.
    pub(crate) fn flush(&mut self) {
        self.flush |= self.shard.gate.want_flush();
    }

    /// The same for a durable write, which the flusher may have waited for.
    pub(crate) fn flush_durable(&mut self) {
        self.flush |= self.shard.gate.want_flush();
        self.flush |= self.shard.gate.count_durable();
    }

    /// Calls the flusher, later, if it sleeps, though nobody waits for it.
    pub(crate) fn rouse(&mut self, sleeps: bool) {
        self.flush |= sleeps;
    }
}

impl Drop for DeferredEffects<'_> {
    #[inline]
    fn drop(&mut self) {
        for item in self.inline.iter_mut().filter_map(Option::take).chain(self.more.drain(..)) {
            self.shard.release(item);
        }
        if self.flush {
            self.notifier.work(Work::Flush(self.shard.index));
        }
        for &waiter in &self.waiters {
            self.notifier.wake(waiter);
        }
    }
}
