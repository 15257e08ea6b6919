//! Keeps some of the disk free: below a threshold mutations that grow are refused, with the reason, before writes begin
//! to fail; they are accepted again once there is a little more than that.
//!
//! What buckets have accepted and not written yet counts as used. Looks are far apart while there is plenty of space: the
//! next one comes before a fast disk could have filled what is left. What frees space is never refused.

use std::{io, path::Path, sync::Arc, time::Duration};

use storage::{Fs, Space};

use super::{
    attendant::Attendant,
    housekeeping::Patient,
    options::{DiskFreeMin, DiskOptions},
};
use crate::{Shared, shared::DiskLevel};

/// No disk is filled faster than this.
const FILL_BYTES_PER_SEC: u64 = 4 << 30;
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(100);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Part of the threshold that must be free on top of it before writers are let in again.
const MARGIN: u64 = 8;

/// The threshold unless told otherwise: this or the percentage, whichever is less.
const FREE_MIN_BYTES: u64 = 1 << 30;
const FREE_MIN_PERCENT: u64 = 4;

impl DiskFreeMin {
    fn bytes(self, total: u64) -> u64 {
        let percent = |percent: u64| total / 100 * percent;
        match self {
            Self::Standard => FREE_MIN_BYTES.min(percent(FREE_MIN_PERCENT)),
            Self::Bytes(bytes) => bytes,
            Self::Percent(share) => percent(u64::from(share)),
        }
    }
}

/// `buckets` lists what is open at the moment; it is asked at every look.
pub(super) fn start(
    files: Arc<dyn Fs>,
    (dir, options): (&Path, DiskOptions),
    buckets: impl Fn() -> Vec<Patient> + Send + 'static,
    shared: Arc<Shared>,
) -> io::Result<Attendant> {
    let dir = dir.to_owned();
    Attendant::start("disk-guard", Arc::default(), move |duty| {
        while !duty.is_over() {
            let before = *shared.disk.lock();
            let level = look(&*files, &dir, options.free_min, &buckets(), before.low);
            announce(&dir, before, level);
            *shared.disk.lock() = level;
            duty.rest(look_again(level));
        }
    })
}

fn look(files: &dyn Fs, dir: &Path, min: DiskFreeMin, buckets: &[Patient], was_low: bool) -> DiskLevel {
    // A disk that does not say what it has is not guarded.
    let Ok(space) = files.space(dir) else { return DiskLevel::default() };
    let queued = buckets.iter().map(|(bucket, _)| bucket.dirty_bytes()).sum();
    let level = level(space, queued, min, was_low);
    buckets.iter().for_each(|(bucket, _)| bucket.set_disk_low(level.low));
    level
}

fn level(space: Space, queued: u64, min: DiskFreeMin, was_low: bool) -> DiskLevel {
    let free_min = min.bytes(space.total);
    let enough = if was_low { free_min.saturating_add(free_min / MARGIN) } else { free_min };
    let low = space.free.saturating_sub(queued) < enough;
    DiskLevel { total: space.total, free: space.free, free_min, low }
}

fn look_again(level: DiskLevel) -> Duration {
    let left = level.free.saturating_sub(level.free_min);
    let millis = left / (FILL_BYTES_PER_SEC / 1000);
    Duration::from_millis(millis).clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX)
}

fn announce(dir: &Path, before: DiskLevel, now: DiskLevel) {
    let (free, free_min) = (now.free, now.free_min);
    let dir = dir.display();
    match (before.low, now.low) {
        (false, true) => {
            tracing::warn!(%dir, free, free_min, "the disk is almost full: only deletions are accepted")
        }
        (true, false) => tracing::info!(%dir, free, free_min, "the disk has space again"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn is_low(free: u64, queued: u64, min: DiskFreeMin, was_low: bool) -> bool {
        level(Space { total: 100 * GIB, free }, queued, min, was_low).low
    }

    #[test]
    fn the_threshold_is_bytes_or_a_share_and_what_is_queued_counts_as_used() {
        assert!(!is_low(GIB, 0, DiskFreeMin::Standard, false));
        assert!(is_low(GIB - 1, 0, DiskFreeMin::Standard, false));
        assert!(is_low(GIB, 1, DiskFreeMin::Standard, false));
        assert!(is_low(9 * GIB, 0, DiskFreeMin::Percent(10), false));
        assert!(!is_low(11 * GIB, 0, DiskFreeMin::Percent(10), false));
        assert!(!is_low(0, GIB, DiskFreeMin::Bytes(0), false), "0 switches it off");
        let small = level(Space { total: GIB, free: GIB / 20 }, 0, DiskFreeMin::Standard, false);
        assert!(!small.low, "of a small disk a share: {small:?}");
    }

    #[test]
    fn writers_are_let_in_again_above_the_threshold_only() {
        let min = DiskFreeMin::Bytes(8 * GIB);
        assert!(is_low(9 * GIB - 1, 0, min, true));
        assert!(!is_low(9 * GIB, 0, min, true));
        assert!(!is_low(9 * GIB - 1, 0, min, false));
        assert!(is_low(9 * GIB, 0, DiskFreeMin::Bytes(u64::MAX), true), "more than there is");
    }

    #[test]
    fn looks_are_frequent_where_little_is_left() {
        let at = |free| look_again(DiskLevel { total: 0, free, free_min: GIB, low: false });
        assert_eq!(at(GIB), LOOK_AGAIN_MIN);
        assert_eq!(at(100 * GIB), LOOK_AGAIN_MAX);
        assert!(at(3 * GIB) < LOOK_AGAIN_MAX);
    }
}
