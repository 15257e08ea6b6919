//! Looks at the histograms for objectives, and writes their past.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch as flags;

use super::ticks::Ticks;
use crate::control::Control;

/// Between two looks at the histograms.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Looks between two writes of the file.
const LOOKS_PER_WRITE: u32 = 60;

/// Looks and writes until `ended`. The last write is [`Control::write_pasts`].
pub(crate) async fn run(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let mut ticks = Ticks::every(LOOK_EVERY, ended);
    let mut looks = 0_u32;
    while ticks.next().await {
        if control.caught_up() {
            control.look_at_objectives();
        }
        looks += 1;
        let objectives = control.objectives_here();
        let is_due = looks.is_multiple_of(LOOKS_PER_WRITE) || objectives.is_renamed();
        if is_due && control.caught_up() {
            let writer = Arc::clone(objectives);
            let _ = tokio::task::spawn_blocking(move || writer.write_or_say()).await;
        }
    }
}
