//! A rebalance that was started ends, and is told how it ended; none begins while another one is running, or twice. (That it
//! ends even if nobody stops it, once nothing goes wrong any more, is what a healed world waits for.)

use std::collections::BTreeSet;

use cluster::{Metadata, RebalanceResult};

/// See the module.
#[derive(Default)]
pub(crate) struct Rebalances {
    started: BTreeSet<String>,
    completed: u64,
    stopped: u64,
    failed: u64,
}

impl Rebalances {
    /// The cluster has agreed on a change.
    pub(crate) fn changed(&mut self, before: &Metadata, after: &Metadata) {
        let (was, is) = (running(before), running(after));
        if was == is {
            return;
        }
        if let Some(was) = was {
            let outcome = after.last_rebalance.as_ref().filter(|outcome| outcome.id == was);
            match outcome.map(|outcome| &outcome.result) {
                Some(RebalanceResult::Completed) => self.completed += 1,
                Some(RebalanceResult::Stopped) => self.stopped += 1,
                Some(RebalanceResult::Failed(_)) => self.failed += 1,
                None => panic!("{was} is not running any more, and nobody is told how it ended"),
            }
        }
        if let Some(is) = is {
            assert!(self.started.insert(is.to_owned()), "{is} begins again");
        }
    }

    /// What became of those that were seen to end.
    pub(crate) fn summary(&self) -> String {
        format!("rebalances: {} completed, {} stopped, {} failed", self.completed, self.stopped, self.failed)
    }
}

fn running(metadata: &Metadata) -> Option<&str> {
    metadata.rebalance.as_ref().map(|rebalance| rebalance.id.as_str())
}
