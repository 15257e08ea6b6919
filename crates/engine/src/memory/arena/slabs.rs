//! The arena's bookkeeping: which chunks belong to which slab and which slots of it are taken. Lives under the
//! arena's mutex; touches none of the memory it describes.
//!
//! Slabs with room are kept per class in eight lists by fullness, and the fullest are used first. Sparse slabs are left to
//! drain on their own, and the defragmenter helps them. A slab of items that becomes empty gives its chunks back unless it is
//! the last of its class with room. A *draining* slab is in no list. It takes no new items and stays until the drain ends, so
//! its slots are not reused while the defragmenter walks them.

#![expect(
    clippy::indexing_slicing,
    reason = "a slab's number, a pool and a slot come from this module's own lists and tables, never from a caller's input; a wrong one has to stop the process before it writes into another item"
)]

use super::classes::{self, CHUNK_BYTES, CLASSES};
use super::runs::{FreeRuns, Run};
use super::{Handle, Purpose};

/// "No slab", as a link.
const NONE: u32 = u32::MAX;
const GROUPS: usize = 8;
const UNITS_PER_CHUNK: u32 = (CHUNK_BYTES / 8) as u32;
const PAGE_BYTES: usize = 4096;
/// A slab that could not be emptied is left alone for so many rounds.
pub(super) const RETRY_ROUNDS: u32 = 16;
/// The defragmenter looks at this many slabs of a list before it tries another class.
const CANDIDATES_MAX: usize = 8;

/// A slab of slots, or one large block.
struct Slab {
    first_chunk: u32,
    chunks: u32,
    /// What counts as committed.
    bytes: u32,
    used: u16,
    /// No free slot in the words before this one.
    hint: u16,
    kind: SlabKind,
    group: u8,
    draining: bool,
    /// The defragmentation round before which this slab is left alone.
    retry: u32,
    /// Neighbours in the circular list of slabs as full as this one.
    previous: u32,
    next: u32,
    /// One bit per slot, set while taken.
    taken: Box<[u64]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlabKind {
    Large,
    Slots { pool: u16 },
}

/// One class for one purpose.
#[derive(Clone)]
struct Pool {
    /// Bit g: list g is not empty.
    occupied: u8,
    heads: [u32; GROUPS],
    slabs: u32,
    used: u32,
}

/// What [`Slabs::free`] or the end of a drain leaves to do without the mutex.
#[derive(Default)]
pub(super) struct Released {
    /// Chunks to discard, then to [`Slabs::give_back`].
    pub(super) run: Option<Run>,
    /// Bytes that are no longer used.
    pub(super) used: usize,
}

/// See the module header.
pub(super) struct Slabs {
    slabs: Vec<Slab>,
    unused_ids: Vec<u32>,
    /// Slab of each chunk ever taken.
    owner: Vec<u32>,
    pools: Vec<Pool>,
    free: FreeRuns,
    committed: usize,
}

impl Slabs {
    /// Bookkeeping for a range of `chunks` chunks. The first is never handed out, so that no handle is 0.
    pub(super) fn new(chunks: u32) -> Self {
        let pool = Pool { occupied: 0, heads: [NONE; GROUPS], slabs: 0, used: 0 };
        Self {
            slabs: Vec::new(),
            unused_ids: Vec::new(),
            owner: Vec::new(),
            pools: vec![pool; 2 * CLASSES],
            free: FreeRuns::new(1, chunks),
            committed: 0,
        }
    }

    pub(super) fn committed(&self) -> usize {
        self.committed
    }

    /// Takes a slot or block of at least `bytes`; returns it with its size.
    pub(super) fn alloc(&mut self, bytes: usize, purpose: Purpose) -> Option<(Handle, usize)> {
        if bytes > purpose.slot_bytes_max() {
            return self.alloc_large(bytes);
        }
        let pool = purpose as usize * CLASSES + classes::class_of(bytes);
        let id = match self.fullest(pool) {
            Some(id) => id,
            None => self.new_slab(pool)?,
        };
        let class = classes::SHAPES[pool];
        let slab = &mut self.slabs[id as usize];
        let slot = slab.take_slot();
        let handle = slab.first_chunk * UNITS_PER_CHUNK + slot * (class.slot_bytes / 8);
        self.pools[pool].used += 1;
        self.regroup(id, pool);
        Some((Handle::new(handle)?, class.slot_bytes as usize))
    }

    /// Frees what `handle` names.
    pub(super) fn free(&mut self, handle: Handle) -> Released {
        let id = self.owner[(handle.get() / UNITS_PER_CHUNK) as usize];
        let slab = &mut self.slabs[id as usize];
        let SlabKind::Slots { pool } = slab.kind else {
            let used = slab.bytes as usize;
            return Released { run: Some(self.dissolve(id)), used };
        };
        let pool = usize::from(pool);
        let slot_bytes = classes::SHAPES[pool].slot_bytes;
        let slot = (handle.get() - slab.first_chunk * UNITS_PER_CHUNK) / (slot_bytes / 8);
        slab.release_slot(slot);
        self.pools[pool].used -= 1;
        let run = if slab.draining {
            None
        } else {
            self.regroup(id, pool);
            self.dissolve_if_spare(id, pool)
        };
        Released { run, used: slot_bytes as usize }
    }

    /// The bytes that `handle`'s slot or block has.
    pub(super) fn size_of(&self, handle: Handle) -> usize {
        let slab = &self.slabs[self.owner[(handle.get() / UNITS_PER_CHUNK) as usize] as usize];
        match slab.kind {
            SlabKind::Large => slab.bytes as usize,
            SlabKind::Slots { pool } => classes::SHAPES[usize::from(pool)].slot_bytes as usize,
        }
    }

    /// Takes back discarded chunks.
    pub(super) fn give_back(&mut self, run: Run) {
        self.free.give(run);
    }

    /// An empty slab that was kept although nobody needs it, if there is one.
    pub(super) fn dissolve_an_empty_slab(&mut self) -> Option<Run> {
        let id = self.pools.iter().find_map(|pool| {
            let id = pool.heads[0];
            (id != NONE && self.slabs[id as usize].used == 0).then_some(id)
        })?;
        self.unlink(id);
        Some(self.dissolve(id))
    }

    /// Chooses a sparse slab of items whose content has room in other slabs of its class, and starts draining it.
    pub(super) fn start_drain(&mut self, round: u32) -> Option<u32> {
        let id = (0..CLASSES).find_map(|pool| self.sparse_slab(pool, round))?;
        self.unlink(id);
        let slab = &mut self.slabs[id as usize];
        slab.draining = true;
        Some(id)
    }

    fn sparse_slab(&self, pool: usize, round: u32) -> Option<u32> {
        let state = &self.pools[pool];
        let slots = u32::from(classes::SHAPES[pool].slots);
        let vacant = state.slabs * slots - state.used;
        // Worth it when more than a slab could be gained and at least an eighth of the class is air.
        if vacant < slots || vacant * 8 < state.slabs * slots {
            return None;
        }
        // The fullest group is left alone: too much work per slab gained.
        for (group, &head) in state.heads[..GROUPS - 1].iter().enumerate() {
            let fuller_slabs = state.occupied >> group > 1;
            let mut id = head;
            for _ in 0..CANDIDATES_MAX {
                let Some(slab) = self.slabs.get(id as usize) else { break };
                // Into emptier slabs nothing is moved: it would only come back.
                if slab.retry <= round && slab.used > 0 && (fuller_slabs || slab.next != id) {
                    return Some(id);
                }
                id = slab.next;
                if id == head {
                    break;
                }
            }
        }
        None
    }

    /// Appends to `out` the taken slots of a draining slab from number `from` on, at most `max`; returns where to go on.
    pub(super) fn taken_slots(&self, id: u32, from: u32, max: usize, out: &mut Vec<Handle>) -> Option<u32> {
        let slab = &self.slabs[id as usize];
        let SlabKind::Slots { pool } = slab.kind else { return None };
        let class = classes::SHAPES[usize::from(pool)];
        for slot in from..u32::from(class.slots) {
            if out.len() == max {
                return Some(slot);
            }
            if slab.taken[slot as usize / 64] >> (slot % 64) & 1 == 1 {
                out.extend(Handle::new(slab.first_chunk * UNITS_PER_CHUNK + slot * (class.slot_bytes / 8)));
            }
        }
        None
    }

    /// Ends a drain: the slab is used again, or its chunks are returned if nothing is left in it. `retry` is the round
    /// in which what is left may be tried again.
    pub(super) fn end_drain(&mut self, id: u32, retry: u32) -> Option<Run> {
        let slab = &mut self.slabs[id as usize];
        slab.draining = false;
        slab.retry = retry;
        if slab.used == 0 {
            return Some(self.dissolve(id));
        }
        let SlabKind::Slots { pool } = slab.kind else { return None };
        self.link(id, usize::from(pool), true);
        None
    }

    fn alloc_large(&mut self, bytes: usize) -> Option<(Handle, usize)> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let chunks = u32::try_from(bytes.div_ceil(CHUNK_BYTES)).ok()?;
        let run = self.free.take(chunks)?;
        self.add_slab(run, u32::try_from(bytes).ok()?, SlabKind::Large, Box::default());
        Some((Handle::new(run.first * UNITS_PER_CHUNK)?, bytes))
    }

    fn fullest(&self, pool: usize) -> Option<u32> {
        let pool = &self.pools[pool];
        let group = pool.occupied.checked_ilog2()?;
        Some(pool.heads[group as usize])
    }

    fn new_slab(&mut self, pool: usize) -> Option<u32> {
        let class = classes::SHAPES[pool];
        let run = self.free.take(u32::from(class.chunks))?;
        let taken = vec![0; usize::from(class.slots).div_ceil(64)].into_boxed_slice();
        let bytes = run.chunks * CHUNK_BYTES as u32;
        let id = self.add_slab(run, bytes, SlabKind::Slots { pool: pool as u16 }, taken);
        self.pools[pool].slabs += 1;
        self.link(id, pool, false);
        Some(id)
    }

    fn add_slab(&mut self, run: Run, bytes: u32, kind: SlabKind, taken: Box<[u64]>) -> u32 {
        let slab = Slab {
            first_chunk: run.first,
            chunks: run.chunks,
            bytes,
            used: 0,
            hint: 0,
            kind,
            group: 0,
            draining: false,
            retry: 0,
            previous: NONE,
            next: NONE,
            taken,
        };
        let id = match self.unused_ids.pop() {
            Some(id) => {
                self.slabs[id as usize] = slab;
                id
            }
            None => {
                self.slabs.push(slab);
                (self.slabs.len() - 1) as u32
            }
        };
        let (first, end) = (run.first as usize, (run.first + run.chunks) as usize);
        if self.owner.len() < end {
            self.owner.resize(end, NONE);
        }
        self.owner[first..end].fill(id);
        self.committed += bytes as usize;
        id
    }

    /// Forgets a slab that is in no list.
    fn dissolve(&mut self, id: u32) -> Run {
        let slab = &mut self.slabs[id as usize];
        slab.taken = Box::default();
        self.committed -= slab.bytes as usize;
        self.unused_ids.push(id);
        if let SlabKind::Slots { pool } = slab.kind {
            self.pools[usize::from(pool)].slabs -= 1;
        }
        Run { first: slab.first_chunk, chunks: slab.chunks }
    }

    fn dissolve_if_spare(&mut self, id: u32, pool: usize) -> Option<Run> {
        let slab = &self.slabs[id as usize];
        let alone = self.pools[pool].occupied == 1 && slab.next == id;
        // Kept so that a class does not fetch and return the same slab all the time. Tables outgrow their class for good.
        let kept = alone && pool < CLASSES;
        if slab.used > 0 || kept {
            return None;
        }
        self.unlink(id);
        Some(self.dissolve(id))
    }

    /// Moves a slab to the list of its fullness.
    fn regroup(&mut self, id: u32, pool: usize) {
        let slab = &self.slabs[id as usize];
        if group_of(slab.used, classes::SHAPES[pool].slots) != slab.group {
            self.unlink(id);
            self.link(id, pool, false);
        }
    }

    /// Puts a slab into the list of its fullness; at the back it is used last. A full slab is in no list.
    fn link(&mut self, id: u32, pool: usize, at_back: bool) {
        let group = group_of(self.slabs[id as usize].used, classes::SHAPES[pool].slots);
        self.slabs[id as usize].group = group;
        let Some(&head) = self.pools[pool].heads.get(usize::from(group)) else { return };
        if head == NONE {
            let slab = &mut self.slabs[id as usize];
            (slab.previous, slab.next) = (id, id);
            self.pools[pool].heads[usize::from(group)] = id;
            self.pools[pool].occupied |= 1 << group;
            return;
        }
        let first = &self.slabs[head as usize];
        // A slab that is kept though empty (there is one at most) stays at the head, where it is found again.
        let next = if first.used == 0 && !at_back { first.next } else { head };
        if !at_back && next == head && first.used > 0 {
            self.pools[pool].heads[usize::from(group)] = id;
        }
        let previous = std::mem::replace(&mut self.slabs[next as usize].previous, id);
        self.slabs[previous as usize].next = id;
        let slab = &mut self.slabs[id as usize];
        (slab.previous, slab.next) = (previous, next);
    }

    fn unlink(&mut self, id: u32) {
        let slab = &self.slabs[id as usize];
        let (group, previous, next) = (usize::from(slab.group), slab.previous, slab.next);
        let SlabKind::Slots { pool } = slab.kind else { return };
        let state = &mut self.pools[usize::from(pool)];
        let Some(head) = state.heads.get_mut(group) else { return };
        if next == id {
            *head = NONE;
            state.occupied &= !(1 << group);
            return;
        }
        if *head == id {
            *head = next;
        }
        self.slabs[previous as usize].next = next;
        self.slabs[next as usize].previous = previous;
    }
}

/// The list a slab with `used` of `slots` slots taken belongs to; [`GROUPS`] when it is full.
fn group_of(used: u16, slots: u16) -> u8 {
    (usize::from(used) * GROUPS / usize::from(slots)) as u8
}

impl Slab {
    /// Takes the free slot with the lowest number; there is one.
    fn take_slot(&mut self) -> u32 {
        let mut word = usize::from(self.hint);
        while self.taken[word] == u64::MAX {
            word += 1;
        }
        self.hint = word as u16;
        let bit = self.taken[word].trailing_ones();
        self.taken[word] |= 1 << bit;
        self.used += 1;
        word as u32 * 64 + bit
    }

    fn release_slot(&mut self, slot: u32) {
        let word = slot as usize / 64;
        debug_assert!(self.taken[word] >> (slot % 64) & 1 == 1, "freed twice");
        self.taken[word] &= !(1 << (slot % 64));
        self.used -= 1;
        self.hint = self.hint.min(word as u16);
    }
}
