//! How the engine wakes a lane for its feeds. Changes of the desk wake a lane in the same way.

use std::{collections::BTreeSet, time::Duration};

use engine::Waiter;

/// Where alarms come from. The engine's `Notifier` leads to [`Alarms::wake`].
pub trait Alarms: Send + Sync {
    /// An alarm for a thread.
    fn alarm(&self) -> Box<dyn Alarm>;
    /// Wakes the thread that `waiter` belongs to.
    fn wake(&self, waiter: Waiter);
}

/// The alarm of one thread.
pub trait Alarm: Send {
    /// What to give the engine: once it is woken, [`Alarm::wait`] tells `ticket`.
    fn waiter(&self, ticket: u64) -> Waiter;
    /// Waits until something was woken, or for so long; tells what was, each ticket once.
    fn wait(&self, patience: Duration) -> BTreeSet<u64>;
}

/// The ticket that means something else than a feed. Those of feeds are the numbers of their vBuckets.
pub(crate) const COMMAND: u64 = u64::MAX;
