//! Memory for items and hash tables: one arena per shard, one reserved range of address space, 4-byte handles.
//!
//! A handle counts 8-byte units from the start of the range; 0 is none. Small requests get a slot in a slab of their
//! size class, large ones whole chunks. Slabs that become empty go back to the operating system and may serve any
//! class afterwards; sparse ones are emptied by [`crate::memory::defragmenter`].
//!
//! Invariants:
//! - A request that cannot be met answers `None`. It never aborts.
//! - Free memory of the range that no slab owns reads as zero.
//! - The mutex is held for bookkeeping only, never while memory is written or returned. What is stored, who references
//!   it and when it is freed is the business of [`crate::memory::item`] and [`crate::memory::hash_table`].

mod classes;
mod region;
mod runs;
mod slabs;
#[cfg(test)]
mod tests;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use classes::CHUNK_BYTES;
use region::Region;
use runs::Run;
use slabs::Slabs;

/// Where something lies in the arena, in units of 8 bytes.
pub(crate) type Handle = NonZeroU32;

/// What 4-byte handles reach.
pub const RESERVE_BYTES_MAX: usize = 32 << 30;

/// What a slot is for; slabs are not shared between purposes, for only items can be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An item, which the defragmenter may move.
    Item = 0,
    /// A hash table's buckets, which stay where they are.
    Table = 1,
}

impl Purpose {
    /// Larger requests get pages of their own. The tables of a bucket grow through the classes together. They would
    /// leave slabs behind that a few stragglers keep, and nobody can move those. So tables get pages early.
    const fn slot_bytes_max(self) -> usize {
        match self {
            Self::Item => classes::SLOT_BYTES_MAX,
            Self::Table => 8192,
        }
    }
}

/// A shard's memory. See the module header.
pub struct Arena {
    region: Region,
    slabs: Mutex<Slabs>,
    // Written under the mutex, read by anybody: statistics and admission need no exact moment.
    used_bytes: AtomicUsize,
    committed_bytes: AtomicUsize,
}

impl Arena {
    /// Reserves all that handles can reach, or as much as the operating system lets us.
    ///
    /// # Errors
    /// When not even a small range can be reserved.
    pub fn new() -> io::Result<Arc<Self>> {
        Self::with_reserve(RESERVE_BYTES_MAX)
    }

    /// As [`Arena::new`] with a smaller range.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn with_reserve(bytes_max: usize) -> io::Result<Arc<Self>> {
        let region = Region::reserve(bytes_max.min(RESERVE_BYTES_MAX))?;
        let slabs = Mutex::new(Slabs::new((region.bytes() / CHUNK_BYTES) as u32));
        Ok(Arc::new(Self {
            region,
            slabs,
            used_bytes: AtomicUsize::new(0),
            committed_bytes: AtomicUsize::new(0),
        }))
    }

    /// What handles reach, and the operating system has let us have.
    pub(crate) fn reserve_bytes(&self) -> usize {
        self.region.bytes()
    }

    /// Bytes of all slots and blocks that are taken, rounding included.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all slabs and blocks; what was never touched of them is not resident.
    #[must_use]
    pub fn committed_bytes(&self) -> usize {
        self.committed_bytes.load(Ordering::Relaxed)
    }

    /// Takes memory for `bytes` bytes. Its content is what was left there.
    pub(crate) fn alloc(&self, bytes: usize, purpose: Purpose) -> Option<Handle> {
        let mut slabs = self.slabs.lock();
        let (handle, size) = slabs.alloc(bytes, purpose)?;
        self.used_bytes.store(self.used_bytes.load(Ordering::Relaxed) + size, Ordering::Relaxed);
        self.committed_bytes.store(slabs.committed(), Ordering::Relaxed);
        Some(handle)
    }

    /// Gives memory back, from any thread.
    ///
    /// # Safety
    /// `handle` came from [`Arena::alloc`] of this arena, was not freed since, and nobody uses the memory any more.
    pub(crate) unsafe fn free(&self, handle: Handle) {
        let mut slabs = self.slabs.lock();
        let released = slabs.free(handle);
        self.used_bytes.store(self.used_bytes.load(Ordering::Relaxed) - released.used, Ordering::Relaxed);
        self.committed_bytes.store(slabs.committed(), Ordering::Relaxed);
        drop(slabs);
        if let Some(run) = released.run {
            self.discard(run);
        }
    }

    /// Bytes behind `handle`, at least those asked for.
    pub(crate) fn size_of(&self, handle: Handle) -> usize {
        self.slabs.lock().size_of(handle)
    }

    /// The address behind `handle`. Dereferencing it is up to the owner of that memory.
    #[inline]
    pub(crate) fn at(&self, handle: Handle) -> *mut u8 {
        self.region.at(handle.get() as usize * 8)
    }

    /// Asks the processor to load the cache line at `offset` from `handle`. Never faults, whatever the handle.
    #[inline]
    pub(crate) fn prefetch(&self, handle: u32, offset: usize) {
        let address = self.region.at(handle as usize * 8 + offset);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: prefetching is a hint, allowed on any address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = address;
    }

    /// Starts draining a sparse slab that is due in `round`; give the ticket to [`Arena::end_drain`].
    pub(crate) fn start_drain(&self, round: u32) -> Option<Drain> {
        self.slabs.lock().start_drain(round).map(|slab| Drain { slab, round, next_slot: Some(0) })
    }

    /// Puts the next taken slots of the draining slab, at most `max`, into `out`; none when the walk is over. They may
    /// be freed at any time after this call, but not reused before the drain ends.
    pub(crate) fn walk(&self, drain: &mut Drain, max: usize, out: &mut Vec<Handle>) {
        out.clear();
        if let Some(from) = drain.next_slot {
            drain.next_slot = self.slabs.lock().taken_slots(drain.slab, from, max, out);
        }
    }

    /// Ends a drain; returns the bytes that went back to the operating system.
    pub(crate) fn end_drain(&self, drain: Drain) -> usize {
        // A slab that was walked to the end holds only what cannot be moved at present. A slab that was not has more to
        // move in the next round.
        let rounds = if drain.next_slot.is_none() { slabs::RETRY_ROUNDS } else { 1 };
        let run = self.slabs.lock().end_drain(drain.slab, drain.round.saturating_add(rounds));
        self.return_run(run)
    }

    /// Returns one slab that is kept though empty; 0 when there is none.
    pub(crate) fn return_empty_slab(&self) -> usize {
        let run = self.slabs.lock().dissolve_an_empty_slab();
        self.return_run(run)
    }

    fn return_run(&self, run: Option<Run>) -> usize {
        let Some(run) = run else { return 0 };
        self.committed_bytes.store(self.slabs.lock().committed(), Ordering::Relaxed);
        self.discard(run);
        run.chunks as usize * CHUNK_BYTES
    }

    /// Returns the memory of a run that no slab owns any more, then the run.
    fn discard(&self, run: Run) {
        let (offset, bytes) = (run.first as usize * CHUNK_BYTES, run.chunks as usize * CHUNK_BYTES);
        // SAFETY: the run was taken from its slab and is not yet among the free ones: it is ours.
        unsafe { self.region.discard(offset, bytes) };
        self.slabs.lock().give_back(run);
    }
}

/// A slab being drained. Must be given to [`Arena::end_drain`].
#[must_use]
pub(crate) struct Drain {
    slab: u32,
    round: u32,
    next_slot: Option<u32>,
}
