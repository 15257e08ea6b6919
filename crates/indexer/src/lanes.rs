//! The lanes of an indexer without threads: somebody gives them their turns and says what the time is. A simulation does.

use std::{sync::Arc, time::Duration};

use crate::{
    desk::Lane,
    lane::Runner,
    shared::{Setup, Shared},
};

/// See the module. Dropped without [`Lanes::end`] they leave what is not durable, as a crash does.
pub struct Lanes {
    shared: Arc<Shared>,
    /// Each with the time of its next turn, should nobody wake it before.
    lanes: Vec<(Lane, Runner, Duration)>,
}

impl Lanes {
    pub(crate) fn new(shared: &Arc<Shared>, setup: &Arc<Setup>) -> Self {
        let lane = |lane| (lane, Runner::new(lane, Arc::clone(shared), Arc::clone(setup)), Duration::ZERO);
        Self { shared: Arc::clone(shared), lanes: Lane::ALL.map(lane).into() }
    }

    /// A lane does what its thread would do in one turn, where the thread would not wait at this time. Says whether it did.
    pub fn turn(&mut self, lane: Lane, now: Duration) -> bool {
        self.shared.tell_time(now);
        let Some((_, runner, due)) = self.lanes.iter_mut().find(|(of, _, _)| *of == lane) else {
            return false;
        };
        // The alarm has to be asked: it forgets nothing until then.
        let is_due = runner.wait(Duration::ZERO) || now >= *due;
        if is_due {
            *due = now + runner.turn();
        }
        is_due
    }

    /// Makes durable what indexes have, as lanes do when their node stops.
    pub fn end(mut self) {
        self.lanes.iter_mut().for_each(|(_, runner, _)| runner.end());
    }
}
