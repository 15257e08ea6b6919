//! Compaction that somebody asks for: everything that lies beside something superseded is written anew.
//!
//! Commits keep a quarter of the disk's bytes from being of no use, which is enough for an index that goes on. A compaction takes the
//! segments that there are when it begins, and gives up some with each step. Each step is a commit, so a crash or an end before the last
//! step costs nothing but the steps that are left.

use std::collections::BTreeSet;

use super::{Index, error::IndexError, functions::Functions};

/// About how many bytes a step writes anew.
const STEP_BYTES: u64 = 32 << 20;

/// How far a compaction is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Segments that are still to be given up.
    left: BTreeSet<u32>,
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
        self.left.is_empty()
    }
}

impl Index {
    /// What a compaction has to do now.
    ///
    /// # Errors
    /// The disk's, after which the index has to be opened again.
    pub fn begin_compaction(&mut self) -> Result<Compaction, IndexError> {
        self.check_usable()?;
        let sealed = self.store.seal();
        self.usable &= sealed.is_ok();
        sealed?;
        let mut compaction = Compaction::default();
        for (id, known) in self.store.segments.iter().filter(|(_, known)| known.live < known.length) {
            compaction.left.insert(*id);
            compaction.total += known.length;
        }
        Ok(compaction)
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
        for id in &compaction.left {
            // One that is gone meanwhile was given up by a commit.
            let known = self.store.segments.get(id).copied().unwrap_or_default();
            if moved > 0 && moved + known.live > STEP_BYTES {
                break;
            }
            moved += known.live;
            done += known.length;
            chosen.insert(*id);
        }
        let committed = self.try_commit(&chosen, functions);
        self.usable &= committed.is_ok();
        committed?;
        compaction.left.retain(|id| !chosen.contains(id));
        compaction.done += done;
        if compaction.left.is_empty() {
            compaction.done = compaction.total;
        }
        Ok(())
    }
}
