//! The clock that interrupts a function.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

/// A deadline that the engine asks for every few thousand steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    deadline: Rc<Cell<Option<Instant>>>,
    rang: Rc<Cell<bool>>,
}

impl Watch {
    /// Lets a function run for `time`.
    pub(super) fn start(&self, time: Duration) {
        self.rang.set(false);
        self.deadline.set(Instant::now().checked_add(time));
    }

    /// Lets what comes next run without a limit.
    pub(super) fn stop(&self) {
        self.deadline.set(None);
    }

    /// Whether the time was up since the start.
    pub(super) fn rang(&self) -> bool {
        self.rang.get()
    }

    /// Whether to interrupt what runs.
    pub(super) fn is_over(&self) -> bool {
        let over = self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline);
        if over {
            self.rang.set(true);
        }
        over
    }
}
