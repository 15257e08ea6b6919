//! Compaction that somebody asks for: everything that lies beside something superseded is written anew.
//!
//! Commits keep a quarter of the disk's bytes from being of no use, which is enough for an index that goes on. A compaction takes the
//! segments that there are when it begins, and gives up some with each step. Each step is a commit, so a crash or an end before the last
//! step costs nothing but the steps that are left.
//!
//! What leads to rows is written anew by several steps. So a compaction of several steps ends with one over what they left superseded.

use std::collections::BTreeSet;

use super::{Index, error::IndexError, functions::Functions};

/// A step gives up about one in so many bytes of a large index, since each one writes anew what leads to the rows.
const STEPS_MAX: u64 = 64;
/// The last step gives up so many times as much.
const LAST_STEP: u64 = 4;

/// How far a compaction is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Segments that are still to be given up.
    left: BTreeSet<u32>,
    steps: u64,
    /// The step over what the others superseded is left.
    lacks_last: bool,
    /// Bytes that were written anew or removed, and those that are to be.
    done: u64,
    total: u64,
}

impl Compaction {
    /// Bytes of segments that were given up, and of all that are to be.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    /// Whether nothing is left to be done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && !self.lacks_last
    }
}

impl Index {
    /// What a compaction has to do now.
    ///
    /// # Errors
    /// The disk's, after which the index has to be opened again.
    pub fn begin_compaction(&mut self) -> Result<Compaction, IndexError> {
        self.check_usable()?;
        self.seal()?;
        let mut compaction = Compaction::default();
        for (id, known) in self.store.segments.iter().filter(|(_, known)| known.live < known.length) {
            compaction.left.insert(*id);
            compaction.total += known.length;
        }
        Ok(compaction)
    }

    fn seal(&mut self) -> Result<(), IndexError> {
        let sealed = self.store.seal();
        self.usable &= sealed.is_ok();
        sealed
    }

    /// Segments that are worth most to be given up, with at most `live_max` bytes to be written. All of them where that is the whole index:
    /// otherwise what leads to rows is superseded in those that stay.
    fn worst(&self, live_max: u64) -> BTreeSet<u32> {
        if self.store.bytes().1 <= live_max {
            return self.store.segments.keys().copied().collect();
        }
        let mut worst: Vec<_> =
            self.store.segments.iter().filter(|(_, known)| known.live < known.length).collect();
        worst.sort_by_key(|(_, known)| known.live * 1000 / known.length.max(1));
        let mut moved = 0;
        let mut fits = |live: u64| {
            moved += live;
            moved <= live_max
        };
        worst.into_iter().take_while(|(_, known)| fits(known.live)).map(|(id, _)| *id).collect()
    }

    /// Commits, and does a part of a compaction.
    ///
    /// # Errors
    /// The disk's, after which the index has to be opened again; it is then as it was at the commit before.
    pub fn compact(
        &mut self,
        compaction: &mut Compaction,
        functions: &mut dyn Functions,
    ) -> Result<(), IndexError> {
        self.check_usable()?;
        let (mut chosen, mut moved, mut done) = (BTreeSet::new(), 0, 0);
        let step_bytes = self.options.segment_bytes.max(compaction.total / STEPS_MAX);
        for id in &compaction.left {
            // One that is gone meanwhile was given up by a commit.
            let known = self.store.segments.get(id).copied().unwrap_or_default();
            if moved > 0 && moved + known.live > step_bytes {
                break;
            }
            moved += known.live;
            done += known.length;
            chosen.insert(*id);
        }
        let is_last = compaction.left.is_empty();
        if is_last {
            self.seal()?;
            chosen = self.worst(step_bytes * LAST_STEP);
        }
        let committed = self.try_commit(&chosen, functions);
        self.usable &= committed.is_ok();
        committed?;
        compaction.left.retain(|id| !chosen.contains(id));
        compaction.steps += 1;
        compaction.lacks_last = compaction.left.is_empty() && compaction.steps > 1 && !is_last;
        compaction.done += done;
        if compaction.lacks_last {
            compaction.done = compaction.done.min(compaction.total.saturating_sub(1));
        } else if compaction.left.is_empty() {
            compaction.done = compaction.total;
        }
        Ok(())
    }
}
