//! Which alerts fire on this node.

use parking_lot::Mutex;
use watch::{
    alerts::{Board, Firing},
    touch::Touch,
    turns::Turns,
};

use crate::statistics::{FiringFacts, of_alert};

/// The alerts of this node.
#[derive(Default)]
pub(crate) struct Alerting {
    pub(crate) board: Mutex<Board>,
    pub(crate) touch: Mutex<Touch>,
    pub(crate) turns: Mutex<Turns>,
}

impl Alerting {
    /// What fires now, the gravest first.
    pub(crate) fn firing(&self) -> Vec<Firing> {
        self.board.lock().firing().into_iter().cloned().collect()
    }

    /// The same as statistics.
    pub(crate) fn readings(&self) -> Vec<stats::Reading> {
        let firing = self.firing();
        firing.iter().flat_map(|one| of_alert(&FiringFacts { level: one.about.level }, one)).collect()
    }
}
