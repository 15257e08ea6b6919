//! The thread that paces buckets under pressure: it looks at each now and then, and every few milliseconds while one of
//! them has mutations waiting. It also tells the log which step a bucket has come to.

use std::{io, sync::Arc, time::Duration};

use engine::{PaceReport, Pressure};

use super::{attendant::Attendant, bell::Bell, housekeeping::Patient};
use crate::Shared;

/// While nobody waits: how well the disk does is measured all the same.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// While nothing waits for the disk either.
const IDLE: Duration = Duration::from_secs(1);
/// While somebody waits.
const PACE_EVERY: Duration = Duration::from_millis(4);

/// `buckets` lists what is open at the moment; `bell` is rung when a bucket cannot wait.
pub(super) fn start(
    buckets: impl Fn() -> Vec<Patient> + Send + 'static,
    bell: Arc<Bell>,
    shared: Arc<Shared>,
) -> io::Result<Attendant> {
    Attendant::start("pacing", bell, move |duty| {
        while !duty.is_over() {
            let (mut more, mut idle) = (false, true);
            for (bucket, _) in buckets() {
                let report = bucket.pace(shared.now());
                tell(bucket.name(), &report);
                more |= report.more;
                idle &= report.idle;
            }
            if more {
                std::thread::sleep(PACE_EVERY);
            } else {
                duty.rest(if idle { IDLE } else { LOOK_EVERY });
            }
        }
    })
}

/// Every step that was entered, in order, or the one that was gone back to.
fn tell(bucket: &str, report: &PaceReport) {
    for (step, name) in Pressure::ALL {
        if step <= report.before || step > report.step {
            continue;
        }
        match step {
            Pressure::None => {}
            Pressure::Paging => tracing::info!(bucket, step = name, "memory is above the high watermark"),
            Pressure::Cursors => tracing::warn!(bucket, step = name, "slow streams go on from disk"),
            Pressure::Pacing => {
                tracing::warn!(bucket, step = name, "writers are slowed down to what the disk takes");
            }
            Pressure::Refusing => {
                tracing::error!(bucket, step = name, "mutations are refused until there is room again");
            }
        }
    }
    if report.step < report.before {
        let name = Pressure::ALL.iter().find(|entry| entry.0 == report.step).map(|entry| entry.1);
        tracing::info!(bucket, step = name, "pressure has eased");
    }
}
