//! Size classes: which slot a request gets and how many slots a slab of that class has.
//!
//! Up to 1 KiB classes are 8 bytes apart, beyond that each octave has 16, up to 64 KiB. A request that is a multiple
//! of 64 bytes gets a class that is one too. So slots of such a class are aligned to cache lines. A slab is as many
//! chunks as it takes to leave less than 1 % of it unused.

/// The unit in which the range is divided among slabs and large blocks.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
/// The largest slot; what is larger gets chunks of its own.
pub(super) const SLOT_BYTES_MAX: usize = 64 * 1024;
/// The smallest slot, which bounds the slots of a slab.
pub(super) const SLOT_BYTES_MIN: usize = 40;
/// Number of classes (those below the smallest slot are never used).
pub(super) const CLASSES: usize = FINE + 16 * OCTAVES;

const FINE: usize = FINE_BYTES_MAX / 8;
const FINE_BYTES_MAX: usize = 1024;
const OCTAVES: usize = 6;
const CHUNKS_PER_SLAB_MAX: usize = 32;
/// A slab with less waste than this (in units of 1/4096) is good enough; larger slabs are harder to empty.
const WASTE_WANTED: usize = 16;

/// Shape of the slabs of one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// Bytes of one slot.
    pub(super) slot_bytes: u32,
    /// Chunks of one slab.
    pub(super) chunks: u16,
    /// Slots of one slab.
    pub(super) slots: u16,
}

/// Shapes of the slabs of all pools: by class those for items, then by class those for tables.
pub(super) static SHAPES: [Class; 2 * CLASSES] = build_shapes();

/// The class whose slots hold `bytes`, at most [`SLOT_BYTES_MAX`].
#[inline]
pub(super) const fn class_of(bytes: usize) -> usize {
    debug_assert!(bytes <= SLOT_BYTES_MAX);
    if bytes <= SLOT_BYTES_MIN {
        SLOT_BYTES_MIN / 8 - 1
    } else if bytes <= FINE_BYTES_MAX {
        bytes.div_ceil(8) - 1
    } else {
        let octave = (bytes - 1).ilog2() as usize;
        let step = (bytes - 1 - (1 << octave)) >> (octave - 4);
        FINE + (octave - 10) * 16 + step
    }
}

const fn slot_bytes_of(class: usize) -> usize {
    if class < FINE {
        (class + 1) * 8
    } else {
        let octave = 10 + (class - FINE) / 16;
        let step = (class - FINE) % 16;
        (1 << octave) + ((step + 1) << (octave - 4))
    }
}

/// Fewer slots per slab are fewer tables that keep the slab alive; the waste at its end is never touched.
const fn shape_for_tables(slot_bytes: usize) -> Class {
    let chunks = slot_bytes.div_ceil(CHUNK_BYTES);
    Class {
        slot_bytes: slot_bytes as u32,
        chunks: chunks as u16,
        slots: (chunks * CHUNK_BYTES / slot_bytes) as u16,
    }
}

const fn shape_for_items(slot_bytes: usize) -> Class {
    let (mut best, mut best_waste) = (1, usize::MAX);
    let mut chunks = slot_bytes.div_ceil(CHUNK_BYTES);
    while chunks <= CHUNKS_PER_SLAB_MAX {
        let bytes = chunks * CHUNK_BYTES;
        let waste = (bytes % slot_bytes) * 4096 / bytes;
        if waste < best_waste {
            (best, best_waste) = (chunks, waste);
        }
        if waste < WASTE_WANTED {
            break;
        }
        chunks += 1;
    }
    Class {
        slot_bytes: slot_bytes as u32,
        chunks: best as u16,
        slots: (best * CHUNK_BYTES / slot_bytes) as u16,
    }
}

#[expect(clippy::indexing_slicing, reason = "runs when constants are made: a wrong index does not compile")]
const fn build_shapes() -> [Class; 2 * CLASSES] {
    let mut shapes = [Class { slot_bytes: 0, chunks: 0, slots: 0 }; 2 * CLASSES];
    let mut class = 0;
    while class < CLASSES {
        shapes[class] = shape_for_items(slot_bytes_of(class));
        shapes[CLASSES + class] = shape_for_tables(slot_bytes_of(class));
        class += 1;
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in (1..=SLOT_BYTES_MAX).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let class = class_of(bytes);
            let slot = SHAPES[class].slot_bytes as usize;
            assert!(slot >= bytes, "{bytes} in {slot}");
            if bytes > SLOT_BYTES_MIN {
                assert!(
                    (SHAPES[class - 1].slot_bytes as usize) < bytes,
                    "{bytes} fits a smaller class than {slot}"
                );
                assert!(slot - bytes <= 7.max(bytes / 16), "{bytes} wastes too much in {slot}");
            }
            assert_eq!(slot % 8, 0);
            if bytes % 64 == 0 {
                assert_eq!(slot % 64, 0, "{bytes} in {slot}");
            }
        }
    }

    #[test]
    fn slabs_waste_less_than_one_percent() {
        for class in &SHAPES[class_of(SLOT_BYTES_MIN)..CLASSES] {
            let slab = class.chunks as usize * CHUNK_BYTES;
            let used = class.slots as usize * class.slot_bytes as usize;
            assert!(used <= slab && (slab - used) * 100 < slab, "{class:?}");
        }
    }
}
