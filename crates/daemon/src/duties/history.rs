//! Keeps the past of statistics on the disk.

use std::{sync::Arc, time::Duration};

use http::Gate as _;
use parking_lot::Mutex;
use tokio::sync::watch as flags;

use crate::{control::Control, past::history::keeper::Keeper};

/// Between two looks for buckets that are new.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks between two writes.
const LOOKS_PER_WRITE: u32 = 60;

/// Reads and writes until `ended`, and once more then.
pub(crate) async fn run(control: Arc<Control>, mut ended: flags::Receiver<bool>) {
    let keeper = Arc::new(Mutex::new(Keeper::new(control.gauges().history_folder())));
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks = 0_u32;
    loop {
        let is_over = tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => true,
            _ = ticks.tick() => false,
        };
        looks = looks.wrapping_add(1);
        let is_due = is_over || looks.is_multiple_of(LOOKS_PER_WRITE);
        if is_due || control.gauges().history().has_unread() {
            let (control, keeper) = (Arc::clone(&control), Arc::clone(&keeper));
            // The disk may take its time; a stop waits for it, within its grace.
            let work = move || {
                let (mut keeper, history) = (keeper.lock(), control.gauges().history());
                keeper.load(history, control.unix_secs());
                if is_due {
                    keeper.write(history);
                }
                if is_due && !is_over && control.caught_up() {
                    let metadata = control.metadata();
                    let known = metadata.buckets.values().map(|info| info.uuid.0.clone()).collect();
                    if let Err(error) = keeper.remove_dropped(&known) {
                        tracing::debug!(%error, "files of dropped buckets' history are left");
                    }
                }
            };
            let _ = tokio::task::spawn_blocking(work).await;
        }
        if is_over {
            return;
        }
    }
}
