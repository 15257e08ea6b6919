//! Free chunks of the range: best fit over coalesced runs, lowest address first among equals.
//!
//! Only numbers; what the chunks hold and who owns the taken ones is the slabs' business.

use std::collections::{BTreeMap, BTreeSet};

/// Consecutive chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) chunks: u32,
}

/// The chunks nobody uses.
pub(super) struct FreeRuns {
    /// Start → length of the free runs below `top`; never adjacent to each other nor to `top`.
    by_start: BTreeMap<u32, u32>,
    /// The same runs as (length, start).
    by_length: BTreeSet<(u32, u32)>,
    /// Chunks from here on were never taken, or are free again.
    top: u32,
    end: u32,
}

impl FreeRuns {
    /// All chunks in `first..end` are free.
    pub(super) fn new(first: u32, end: u32) -> Self {
        Self { by_start: BTreeMap::new(), by_length: BTreeSet::new(), top: first, end }
    }

    /// Takes `chunks` consecutive chunks.
    pub(super) fn take(&mut self, chunks: u32) -> Option<Run> {
        if let Some(&(length, first)) = self.by_length.range((chunks, 0)..).next() {
            self.forget(first, length);
            if length > chunks {
                self.remember(first + chunks, length - chunks);
            }
            return Some(Run { first, chunks });
        }
        if self.end - self.top < chunks {
            return None;
        }
        let first = self.top;
        self.top += chunks;
        Some(Run { first, chunks })
    }

    /// Takes a run back.
    pub(super) fn give(&mut self, run: Run) {
        let Run { mut first, mut chunks } = run;
        if let Some((&start, &length)) = self.by_start.range(..first).next_back()
            && start + length == first
        {
            self.forget(start, length);
            (first, chunks) = (start, chunks + length);
        }
        if let Some(&length) = self.by_start.get(&(first + chunks)) {
            self.forget(first + chunks, length);
            chunks += length;
        }
        if first + chunks == self.top {
            self.top = first;
        } else {
            self.remember(first, chunks);
        }
    }

    fn remember(&mut self, first: u32, length: u32) {
        self.by_start.insert(first, length);
        self.by_length.insert((length, first));
    }

    fn forget(&mut self, first: u32, length: u32) {
        self.by_start.remove(&first);
        self.by_length.remove(&(length, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_coalesce_and_the_best_fit_is_taken() {
        let mut free = FreeRuns::new(1, 100);
        let runs: Vec<Run> = (0..9).filter_map(|_| free.take(10)).collect();
        assert_eq!(runs.len(), 9);
        assert_eq!(free.take(10), None, "only nine chunks are left above");
        assert_eq!(free.take(9), Some(Run { first: 91, chunks: 9 }));
        free.give(runs[2]);
        free.give(runs[4]);
        free.give(runs[3]);
        free.give(runs[7]);
        assert_eq!(free.take(8), Some(Run { first: 71, chunks: 8 }), "the smaller hole");
        assert_eq!(free.take(30), Some(Run { first: 21, chunks: 30 }), "three neighbours became one");
        assert_eq!(free.take(3), None);
    }

    #[test]
    fn all_given_back_is_as_new() {
        let mut free = FreeRuns::new(1, 64);
        let runs: Vec<Run> = (1..8).filter_map(|chunks| free.take(chunks)).collect();
        for index in [3, 0, 6, 1, 5, 2, 4] {
            free.give(runs[index]);
        }
        assert_eq!(free.take(63), Some(Run { first: 1, chunks: 63 }));
    }
}
