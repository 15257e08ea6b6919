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

/// What the files of all buckets are read and written through.
#[derive(Clone)]
pub(crate) struct Disk {
    budget: Option<Arc<DiskBudget>>,
}

impl Disk {
    /// A disk of which all buckets together read and write as much as `limits` allow.
    pub(crate) fn new(limits: DiskLimits) -> Self {
        if limits == DiskLimits::default() {
            return Self { budget: None };
        }
        tracing::info!(limits.bytes_per_sec, limits.iops, "the disk is throttled (0: unlimited)");
        let clock = Arc::new(WallClock(Instant::now()));
        Self { budget: Some(Arc::new(DiskBudget::new(limits, clock))) }
    }

    /// Files of one party: a bucket's, say. In the budget parties take turns, however much one of them asks for.
    pub(crate) fn files(&self) -> Arc<dyn Fs> {
        match &self.budget {
            None => Arc::new(RealFs),
            Some(budget) => Arc::new(ThrottledFs::new(Arc::new(RealFs), Arc::clone(budget))),
        }
    }
}
