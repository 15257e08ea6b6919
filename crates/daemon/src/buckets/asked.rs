//! Whether a bucket is being compacted because somebody asked for it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether an open bucket is being compacted because somebody asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compacting(Arc<AtomicBool>);

/// It is, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn(Compacting);

impl Compacting {
    /// `None` if it is already.
    pub(crate) fn begin(&self) -> Option<Turn> {
        let runs = self.0.swap(true, Ordering::AcqRel);
        (!runs).then(|| Turn(self.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runs_at_a_time_and_the_next_once_it_has_ended() {
        let compacting = Compacting::default();
        let turn = compacting.begin();
        assert!(turn.is_some() && compacting.begin().is_none());
        drop(turn);
        assert!(compacting.begin().is_some());
    }
}
