//! Compares this node's clock with that of the node that leads. Conflict resolution by time,
//! expiry and what logs say are as good as the clocks of nodes. What counts as a difference is decided by [`watch::skew`].

use std::{sync::Arc, time::Duration};

use tokio::sync::watch as flags;
use watch::skew::ahead;

use super::ticks::Ticks;
use crate::control::Control;

/// The question what time it is.
const CLOCK: &str = "clock";
/// Between two questions.
const ASK_EVERY: Duration = Duration::from_secs(20);

impl Control {
    fn unix_millis(&self) -> u64 {
        self.loops().0.now().wall_nanos / 1_000_000
    }

    async fn compare_clocks(&self) {
        let leader = self.leader().filter(|leader| *leader != self.this_id());
        let difference = match leader {
            None => None,
            Some(leader) => {
                let asked = self.unix_millis();
                let told = self.peers().post(leader, CLOCK, Vec::new()).await;
                let theirs = told.ok().and_then(|body| Some(u64::from_be_bytes(body.try_into().ok()?)));
                theirs.map(|theirs| ahead(asked, self.unix_millis(), theirs))
            }
        };
        self.clocks().note(leader, difference);
    }
}

/// Answers other nodes.
pub(crate) fn answer(control: &Arc<Control>) {
    control.answer(CLOCK, |control, _| async move { Ok(control.unix_millis().to_be_bytes().to_vec()) });
}

/// Compares until `ended`.
pub(crate) async fn run(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let mut ticks = Ticks::every(ASK_EVERY, ended);
    while ticks.next().await {
        ticks.unless_ended(control.compare_clocks()).await;
    }
}
