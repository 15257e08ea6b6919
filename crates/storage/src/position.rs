//! A place in the shard's log: segments in order of their numbers, offsets within.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::UNIT;

/// Everything in lower segments, and in this one below the offset, comes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
}

/// A position that only grows, readable without a lock.
#[derive(Default)]
pub(crate) struct AtomicPosition(AtomicU64);

impl AtomicPosition {
    pub(crate) fn load(&self) -> Position {
        // Acquire pairs with the release below: a reader that sees the position sees what was done before it was published.
        let packed = self.0.load(Ordering::Acquire);
        Position { segment: (packed >> 32) as u32, offset: (packed & 0xffff_ffff) * UNIT }
    }

    /// Moves forward to `position`; never back.
    pub(crate) fn advance(&self, position: Position) {
        let packed = (u64::from(position.segment) << 32) | (position.offset / UNIT);
        self.0.fetch_max(packed, Ordering::AcqRel);
    }
}
