//! Whether somebody still waits for an answer. Threads that block cannot be ended from outside: they look here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// About how long a piece takes that has an item. The asker hears from this node well within its patience, and others get the place.
pub(crate) const PIECE_TIME: Duration = Duration::from_secs(1);

/// An answer is waited for until this is dropped.
#[derive(Default)]
pub(crate) struct Wanted(HasLeft);

/// Whether the asker, which waits for an answer, has left.
#[derive(Clone, Default)]
pub(crate) struct HasLeft(Arc<AtomicBool>);

impl Wanted {
    /// For what works on the answer.
    pub(crate) fn has_left(&self) -> HasLeft {
        self.0.clone()
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl HasLeft {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
