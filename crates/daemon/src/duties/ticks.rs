//! Work at intervals, until the node stops.

use std::time::Duration;

use tokio::{
    sync::watch as flags,
    time::{Interval, MissedTickBehavior},
};

/// Intervals of a duty.
pub(super) struct Ticks {
    ticks: Interval,
    ended: flags::Receiver<bool>,
}

impl Ticks {
    /// The first tick comes at once. One that is late moves those behind it.
    pub(super) fn every(period: Duration, ended: flags::Receiver<bool>) -> Self {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, ended }
    }

    /// Waits for the next one; false where the node stops.
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = self.ended.wait_for(|stop| *stop) => false,
            _ = self.ticks.tick() => true,
        }
    }

    /// Does something that takes a while, or part of it where the node stops.
    pub(super) async fn unless_ended(&mut self, work: impl Future<Output = ()>) {
        tokio::select! {
            _ = self.ended.wait_for(|stop| *stop) => {}
            () = work => {}
        }
    }
}
