//! Keeps the past of statistics on the disk.

use std::{sync::Arc, time::Duration};

use http::Gate as _;
use tokio::sync::watch as flags;

use super::ticks::Ticks;
use crate::control::Control;

/// Between two looks for buckets that are new.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks between two writes.
const LOOKS_PER_WRITE: u32 = 60;

/// Reads and writes until `ended`. The last write is [`Control::write_pasts`].
pub(crate) async fn run(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let mut ticks = Ticks::every(LOOK_EVERY, ended);
    let mut looks = 0_u32;
    while ticks.next().await {
        looks = looks.wrapping_add(1);
        let is_due = looks.is_multiple_of(LOOKS_PER_WRITE);
        if is_due || control.gauges().history().has_unread() {
            let control = Arc::clone(&control);
            let work = move || {
                let known = || {
                    let metadata = control.metadata();
                    let uuids = || metadata.buckets.values().map(|info| info.uuid.0.clone()).collect();
                    control.caught_up().then(uuids)
                };
                let mut keeper = control.keeper().lock();
                if let Err(error) = keeper.turn(control.gauges().history(), is_due, known) {
                    tracing::debug!(%error, "files of dropped buckets' history are left");
                }
            };
            let _ = tokio::task::spawn_blocking(work).await;
        }
    }
}
