//! A disk that takes its time, fills up and dies, in a world without clocks: a wait for it moves time on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::{DiskBudget, DiskClock, DiskLimits, FaultFs, Options, ThrottledFs};

use crate::support::FaultDisk;

/// Time that passes when somebody waits.
#[derive(Default)]
pub(crate) struct SimClock(AtomicU64);

impl DiskClock for SimClock {
    fn nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep(&self, nanos: u64) {
        self.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// One shard's log on a throttled, faulty file system; all shards share the budget.
pub(crate) fn slow_disk(seed: u64, shard: u32, budget: &Arc<DiskBudget>) -> FaultDisk {
    let fs = FaultFs::new(seed);
    let slow = ThrottledFs::new(Arc::new(fs.clone()), Arc::clone(budget));
    let options = Options {
        shard,
        segment_bytes: 4 << 20,
        segment_bytes_min: 1 << 20,
        reserve_bytes: 2 << 20,
        ..Options::default()
    };
    FaultDisk::seen_through(Arc::new(slow), fs, options)
}

/// A budget of so many bytes per second.
pub(crate) fn budget(bytes_per_sec: u64, clock: &Arc<SimClock>) -> Arc<DiskBudget> {
    let limits = DiskLimits { bytes_per_sec, iops: 0 };
    Arc::new(DiskBudget::new(limits, Arc::clone(clock) as Arc<dyn DiskClock>))
}
