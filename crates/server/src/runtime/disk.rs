//! The disk under all buckets of the node: the operating system's files within one budget, if there is one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use storage::{DiskBudget, DiskClock, DiskLimits, Fs, RealFs, ThrottledFs};

/// The clock on the wall.
struct WallClock(Instant);

impl DiskClock for WallClock {
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, nanos: u64) {
        std::thread::sleep(Duration::from_nanos(nanos));
    }
}

/// Files of which all buckets together read and write as much as `limits` allow.
pub(crate) fn files(limits: DiskLimits) -> Arc<dyn Fs> {
    if limits == DiskLimits::default() {
        return Arc::new(RealFs);
    }
    tracing::info!(limits.bytes_per_sec, limits.iops, "the disk is throttled (0: unlimited)");
    let budget = DiskBudget::new(limits, Arc::new(WallClock(Instant::now())));
    Arc::new(ThrottledFs::new(Arc::new(RealFs), Arc::new(budget)))
}
