//! Keeps some of the disk free. Below a threshold the node refuses mutations that grow, with the reason, before writes
//! begin to fail. It accepts them again once a little more than that is free.
//!
//! What buckets have accepted and not written yet counts as used. Looks are far apart while there is plenty of space: the
//! next one comes before a fast disk could have filled what is left. What frees space is never refused.
//!
//! A disk that does not say how much it has is not guarded: nothing is refused because of what it said before.

use std::{io, path::Path, sync::Arc, time::Duration};

use dataplane::{Shared, shared::DiskLevel};
use storage::{Fs, Space};

use crate::{
    buckets::housekeeping::MeteredBucket,
    setup::options::{DiskFreeMin, DiskOptions},
    threads::node_thread::NodeThread,
};

/// No disk is filled faster than this.
const FILL_BYTES_PER_SEC: u64 = 4 << 30;
const LOOK_AGAIN_MIN: Duration = Duration::from_millis(100);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Part of the threshold that must be free on top of it before writers are let in again.
const MARGIN: u64 = 8;
/// The same for services: more than [`MARGIN`], so that a disk that was full of documents is theirs again first.
const MARGIN_OF_SERVICES: u64 = 2;

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
pub(crate) fn start(
    files: Arc<dyn Fs>,
    (dir, options): (&Path, DiskOptions),
    buckets: impl Fn() -> Vec<MeteredBucket> + Send + 'static,
    shared: Arc<Shared>,
) -> io::Result<NodeThread> {
    let dir = dir.to_owned();
    NodeThread::start("disk-guard", Arc::default(), move |duty| {
        let mut silent = false;
        while !duty.is_over() {
            let before = *shared.disk.lock();
            let found = look(&*files, &dir, options.free_min, &buckets(), before.low);
            announce(&dir, before, &found, &mut silent);
            let level = found.unwrap_or_default();
            *shared.disk.lock() = level;
            duty.rest(look_again(level));
        }
    })
}

/// Asks the disk, and tells the buckets, whatever its answer: a bucket that was not told would go on refusing.
fn look(
    files: &dyn Fs,
    dir: &Path,
    min: DiskFreeMin,
    buckets: &[MeteredBucket],
    was_low: bool,
) -> io::Result<DiskLevel> {
    let queued = buckets.iter().map(|(bucket, _)| bucket.dirty_bytes()).sum();
    let found = files.space(dir).map(|space| level(space, queued, min, was_low));
    let low = found.as_ref().is_ok_and(|level| level.low);
    buckets.iter().for_each(|(bucket, _)| bucket.set_disk_low(low));
    found
}

fn level(space: Space, queued: u64, min: DiskFreeMin, was_low: bool) -> DiskLevel {
    let free_min = min.bytes(space.total);
    let enough = if was_low { free_min.saturating_add(free_min / MARGIN) } else { free_min };
    let low = space.free.saturating_sub(queued) < enough;
    DiskLevel { total: space.total, free: space.free, free_min, low }
}

/// How many bytes services leave free: documents are written for longer than what is kept for services.
pub(crate) fn left_by_services(level: DiskLevel) -> u64 {
    level.free_min.saturating_add(level.free_min / MARGIN_OF_SERVICES)
}

fn look_again(level: DiskLevel) -> Duration {
    let left = level.free.saturating_sub(level.free_min);
    let millis = left / (FILL_BYTES_PER_SEC / 1000);
    Duration::from_millis(millis).clamp(LOOK_AGAIN_MIN, LOOK_AGAIN_MAX)
}

/// Logs what has changed since `before`; `silent`: the disk did not answer then.
fn announce(dir: &Path, before: DiskLevel, found: &io::Result<DiskLevel>, silent: &mut bool) {
    let dir = dir.display();
    let was_silent = std::mem::replace(silent, found.is_err());
    let now = match found {
        Ok(now) => now,
        Err(error) => {
            if !was_silent {
                tracing::warn!(%dir, %error, "the disk does not say how much space it has: it is not guarded");
            }
            return;
        }
    };
    let (free, free_min) = (now.free, now.free_min);
    match (before.low, now.low) {
        (false, true) => {
            tracing::warn!(%dir, free, free_min, "the disk is almost full: only deletions are accepted")
        }
        (true, false) => tracing::info!(%dir, free, free_min, "the disk has space again"),
        _ if was_silent => tracing::info!(%dir, free, free_min, "the disk says again how much space it has"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use base::{Now, bucket::BucketKind};
    use dataplane::BucketMeter;
    use engine::{Bucket, BucketOptions, Notifier, Waiter, Work};
    use storage::FaultFs;

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
    fn a_disk_that_does_not_say_what_it_has_is_not_guarded() {
        struct Deaf;
        impl Notifier for Deaf {
            fn wake(&self, _: Waiter) {}
            fn work(&self, _: Work) {}
        }
        let options = BucketOptions { kind: BucketKind::Ephemeral, ..BucketOptions::new("b", 64 << 20) };
        let bucket =
            Bucket::open(options, Vec::new(), Arc::default(), Arc::new(Deaf), Now::default()).unwrap();
        let buckets = [(bucket, Arc::new(BucketMeter::new(1)))];
        let (disk, dir) = (FaultFs::new(1), Path::new("/data"));
        disk.set_capacity(Some(GIB));
        let min = DiskFreeMin::Bytes(2 * GIB);
        let full = look(&disk, dir, min, &buckets, false).unwrap();
        assert!(full.low && buckets[0].0.is_short_of_space());
        disk.die_after(0);
        assert!(disk.create(dir).is_err() && disk.is_dead());
        assert!(look(&disk, dir, min, &buckets, full.low).is_err());
        assert!(!buckets[0].0.is_short_of_space(), "it goes on refusing, for a reason that nobody knows");
    }

    #[test]
    fn looks_are_frequent_where_little_is_left() {
        let at = |free| look_again(DiskLevel { total: 0, free, free_min: GIB, low: false });
        assert_eq!(at(GIB), LOOK_AGAIN_MIN);
        assert_eq!(at(100 * GIB), LOOK_AGAIN_MAX);
        assert!(at(3 * GIB) < LOOK_AGAIN_MAX);
    }
}
