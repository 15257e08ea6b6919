//! The arena's bookkeeping: which chunks belong to which slab and which slots of it are taken. Lives under the
//! arena's mutex; touches none of the memory it describes.
//!
//! Slabs with room are kept per class in eight lists by fullness, and the fullest are used first: sparse slabs are
//! left to drain on their own, the defragmenter helps them. A slab of items that becomes empty gives its chunks back unless it
//! is the last of its class with room. A *draining* slab is in no list: it takes no new items and stays until
//! the drain ends, so its slots are not reused while somebody walks them.

use super::classes::{self, CHUNK_BYTES, CLASSES};
use super::runs::{FreeRuns, Run};
use super::{Handle, Purpose};

/// "No slab", as a link.
const NONE: u32 = u32::MAX;
const GROUPS: usize = 8;
const UNITS_PER_CHUNK: u32 = (CHUNK_BYTES / 8) as u32;
const PAGE_BYTES: usize = 4096;
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
    /// The defragmentation round that last tried this slab.
    tried: u32,
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
        let class = classes::TABLE[pool % CLASSES];
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
        let slot_bytes = classes::TABLE[pool % CLASSES].slot_bytes;
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
            SlabKind::Slots { pool } => classes::TABLE[usize::from(pool) % CLASSES].slot_bytes as usize,
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

    /// Chooses a sparse slab of items whose content has room in other slabs of its class, not tried in `round` yet,
    /// and starts draining it.
    pub(super) fn start_drain(&mut self, round: u32) -> Option<u32> {
        let id = (0..CLASSES).find_map(|pool| self.sparse_slab(pool, round))?;
        self.unlink(id);
        let slab = &mut self.slabs[id as usize];
        slab.draining = true;
        slab.tried = round;
        Some(id)
    }

    fn sparse_slab(&self, pool: usize, round: u32) -> Option<u32> {
        let state = &self.pools[pool];
        let slots = u32::from(classes::TABLE[pool].slots);
        let vacant = state.slabs * slots - state.used;
        // Worth it when more than a slab could be gained and at least an eighth of the class is air.
        if vacant < slots || vacant * 8 < state.slabs * slots {
            return None;
        }
        // The fullest group is left alone: too much work per slab gained.
        for &head in &state.heads[..GROUPS - 1] {
            let mut id = head;
            for _ in 0..CANDIDATES_MAX {
                let Some(slab) = self.slabs.get(id as usize) else { break };
                if slab.tried != round && slab.used > 0 {
                    return Some(id);
                }
                id = slab.next;
            }
        }
        None
    }

    /// Appends to `out` the taken slots of a draining slab from number `from` on, at most `max`; returns where to go on.
    pub(super) fn taken_slots(&self, id: u32, from: u32, max: usize, out: &mut Vec<Handle>) -> Option<u32> {
        let slab = &self.slabs[id as usize];
        let SlabKind::Slots { pool } = slab.kind else { return None };
        let class = classes::TABLE[usize::from(pool) % CLASSES];
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

    /// Ends a drain: the slab is used again, or its chunks are returned if nothing is left in it.
    pub(super) fn end_drain(&mut self, id: u32) -> Option<Run> {
        let slab = &mut self.slabs[id as usize];
        slab.draining = false;
        if slab.used == 0 {
            return Some(self.dissolve(id));
        }
        let SlabKind::Slots { pool } = slab.kind else { return None };
        self.link(id, usize::from(pool));
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
        let class = classes::TABLE[pool % CLASSES];
        let run = self.free.take(u32::from(class.chunks))?;
        let taken = vec![0; usize::from(class.slots).div_ceil(64)].into_boxed_slice();
        let bytes = run.chunks * CHUNK_BYTES as u32;
        let id = self.add_slab(run, bytes, SlabKind::Slots { pool: pool as u16 }, taken);
        self.pools[pool].slabs += 1;
        self.link(id, pool);
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
            tried: 0,
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
        let alone = self.pools[pool].occupied == 1 && slab.previous == NONE && slab.next == NONE;
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
        if group_of(slab.used, classes::TABLE[pool % CLASSES].slots) != slab.group {
            self.unlink(id);
            self.link(id, pool);
        }
    }

    fn link(&mut self, id: u32, pool: usize) {
        let group = group_of(self.slabs[id as usize].used, classes::TABLE[pool % CLASSES].slots);
        let state = &mut self.pools[pool];
        let Some(head) = state.heads.get_mut(usize::from(group)) else {
            // A full slab is in no list.
            self.slabs[id as usize].group = group;
            return;
        };
        state.occupied |= 1 << group;
        // A slab that is kept though empty (there is one at most) stays at the head, where it is found again.
        let (previous, next) = match self.slabs.get(*head as usize) {
            Some(first) if first.used == 0 => (*head, first.next),
            _ => (NONE, std::mem::replace(head, id)),
        };
        let slab = &mut self.slabs[id as usize];
        (slab.group, slab.previous, slab.next) = (group, previous, next);
        if let Some(next) = self.slabs.get_mut(next as usize) {
            next.previous = id;
        }
        if let Some(previous) = self.slabs.get_mut(previous as usize) {
            previous.next = id;
        }
    }

    fn unlink(&mut self, id: u32) {
        let slab = &self.slabs[id as usize];
        let (group, previous, next) = (usize::from(slab.group), slab.previous, slab.next);
        let SlabKind::Slots { pool } = slab.kind else { return };
        if group >= GROUPS {
            return;
        }
        if let Some(next) = self.slabs.get_mut(next as usize) {
            next.previous = previous;
        }
        if let Some(previous) = self.slabs.get_mut(previous as usize) {
            previous.next = next;
            return;
        }
        let state = &mut self.pools[usize::from(pool)];
        state.heads[group] = next;
        if next == NONE {
            state.occupied &= !(1 << group);
        }
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
