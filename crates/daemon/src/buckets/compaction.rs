//! The thread that compacts all buckets' files, and how much of its time it may take.
//!
//! A step works in slices of well below a millisecond and rests after each. So it has only its *share* of any stretch
//! of time. The share is a tenth where space has just become worth reclaiming, and grows with the dead part of the
//! files. It is everything at the bound, where the files are twice what is alive, and when the disk is short of space.
//! While writers are paced, the disk is theirs up to shortly before that bound. Beyond it they are paced to what is
//! reclaimed (`engine::space`). Under a steady load of overwrites the share settles where compaction reclaims what
//! becomes dead. The time of a slice is that on the clock: on a slow or busy disk it rests as much longer. The thread
//! gives way to others that want the processor. (It is not put off until the bound is near: what is put off comes all
//! at once then, with all of the time. See `docs/decisions/2026-11-21-compaction-by-shares.md`.)
//!
//! On a throttled disk it stands back ([`storage::stand_back`]). Compaction has what is left by threads that wait for
//! documents, flush or warm up. It has a sixteenth in any case, so that space comes back however hard others work the disk.
//! While writers are held back for the sake of space, its share grows the nearer space is to its limit, up to half.
//!
//! Nothing waits for it. Commits and syncs have other locks, and outputs are synced in small pieces. Some operations have
//! to wait for a step's end: emptying or dropping a bucket, and stopping the node. They make the step give up.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use dataplane::Shared;
use engine::Bucket;
use parking_lot::Mutex;

use crate::{
    buckets::housekeeping::{MeteredBucket, rest_for},
    threads::{
        node_thread::{Duty, NodeThread},
        priority::lower_priority,
    },
};

/// Pause between two looks when there is nothing to do.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a share holds before it is computed anew.
const SHARE_EVERY: Duration = Duration::from_millis(100);
/// Most that one rest takes.
const REST_MAX: Duration = Duration::from_millis(500);
/// On disk over alive: where compaction begins, and where it takes all its time.
const RATIO_BEGIN: f64 = 1.5;
/// Where it begins to take more than the least while writers wait for the disk.
const RATIO_BEGIN_BESIDE_WAITING: f64 = 1.9;
const RATIO_BOUND: f64 = 2.0;
/// The share at the beginning.
const SHARE_MIN: f64 = 0.1;
/// The share of what a user asked for.
const SHARE_ASKED: f64 = 0.5;
/// What it has of a throttled disk in any case, while nobody waits for space and where most is wanted.
const DISK_SHARE_MIN: f64 = 1.0 / 16.0;
const DISK_SHARE_MAX: f64 = 0.5;

/// `buckets` lists what is open at the moment; it is asked before every round.
pub(crate) fn start(
    buckets: impl Fn() -> Vec<MeteredBucket> + Send + 'static,
    shared: Arc<Shared>,
) -> io::Result<NodeThread> {
    NodeThread::start("compaction", Arc::default(), move |duty| {
        lower_priority();
        while !duty.is_over() {
            let buckets: Vec<Arc<Bucket>> = buckets().into_iter().map(|(bucket, _)| bucket).collect();
            let mut more = false;
            for bucket in &buckets {
                more |= round(bucket, &shared, &|| shares_of(&buckets), duty);
            }
            drop(buckets);
            if !more {
                duty.rest(LOOK_EVERY);
            }
        }
    })
}

/// One step per shard. Whether there is more to do.
fn round(bucket: &Bucket, shared: &Shared, shares: &(dyn Fn() -> Shares + Sync), duty: &Duty) -> bool {
    let mut more = false;
    for shard in 0..bucket.shards() {
        let rests = Rests::new(shares);
        let pace = || rests.rest() && !duty.is_over() && !bucket.is_closed();
        match bucket.compact_paced(shard, shared.now(), &pace) {
            Ok(report) => more |= report.more,
            Err(error) => {
                tracing::warn!(bucket = bucket.name(), shard, %error, "compaction could not run");
            }
        }
    }
    more && !bucket.is_closed()
}

/// Compacts a bucket because a user asked. It goes on step after step until nothing is left that is worth rewriting.
/// A steady load always leaves more, so it also ends once it has read as many bytes as the bucket had at the start.
pub(crate) fn compact_whole(bucket: &Bucket, shared: &Shared) {
    let shares = || Shares { time: SHARE_ASKED, disk: disk_share(bucket.space_wanted()) };
    let rests = Rests::new(&shares);
    let pace = || rests.rest() && !bucket.is_closed();
    for shard in 0..bucket.shards() {
        let mut bytes_left = bucket.stats().disk_bytes;
        while bytes_left > 0 && !bucket.is_closed() {
            match bucket.compact_eagerly_paced(shard, shared.now(), &pace) {
                Ok(report) if report.more => bytes_left = bytes_left.saturating_sub(report.bytes_read),
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(bucket = bucket.name(), %error, "the bucket could not be compacted");
                    return;
                }
            }
        }
    }
}

/// What it may take.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// Of its thread's time.
    time: f64,
    /// Of a throttled disk, however much others want of it.
    disk: f64,
}

/// Time worked and rested in turns, standing back at the disk, by the thread that made it.
struct Rests<'a> {
    shares: &'a (dyn Fn() -> Shares + Sync),
    slice: Mutex<Slice>,
}

struct Slice {
    began: Instant,
    shares: Shares,
    shares_as_of: Instant,
}

impl Drop for Rests<'_> {
    fn drop(&mut self) {
        storage::stand_in_line();
    }
}

impl<'a> Rests<'a> {
    fn new(shares: &'a (dyn Fn() -> Shares + Sync)) -> Self {
        let (now, current) = (Instant::now(), shares());
        storage::stand_back(current.disk);
        Self { shares, slice: Mutex::new(Slice { began: now, shares: current, shares_as_of: now }) }
    }

    /// A slice has been worked: rests for what it earned. Always true.
    fn rest(&self) -> bool {
        let mut slice = self.slice.lock();
        if slice.shares_as_of.elapsed() >= SHARE_EVERY {
            (slice.shares, slice.shares_as_of) = ((self.shares)(), Instant::now());
            storage::stand_back(slice.shares.disk);
        }
        std::thread::park_timeout(rest_for(slice.began.elapsed(), slice.shares.time).min(REST_MAX));
        slice.began = Instant::now();
        true
    }
}

/// The shares that the bucket takes which needs them most: all of them wait for the same thread.
fn shares_of(buckets: &[Arc<Bucket>]) -> Shares {
    let wanted = buckets.iter().map(|bucket| bucket.space_wanted());
    Shares { time: share_of(buckets), disk: disk_share(wanted.fold(0.0, f64::max)) }
}

fn disk_share(wanted: f64) -> f64 {
    DISK_SHARE_MIN + (DISK_SHARE_MAX - DISK_SHARE_MIN) * wanted
}

fn share_of(buckets: &[Arc<Bucket>]) -> f64 {
    if buckets.iter().any(|bucket| bucket.is_short_of_space()) {
        return 1.0;
    }
    let shards =
        buckets.iter().flat_map(|bucket| (0..bucket.shards()).map(|shard| bucket.space_ratio(shard)));
    let writers_wait = buckets.iter().any(|bucket| bucket.is_paced());
    share_at(shards.fold(1.0, f64::max), writers_wait)
}

fn share_at(space_ratio: f64, writers_wait: bool) -> f64 {
    let begin = if writers_wait { RATIO_BEGIN_BESIDE_WAITING } else { RATIO_BEGIN };
    let urgency = ((space_ratio - begin) / (RATIO_BOUND - begin)).clamp(0.0, 1.0);
    SHARE_MIN + (1.0 - SHARE_MIN) * urgency
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_rises_from_where_it_is_worth_while_to_the_bound() {
        let is = |ratio, share: f64| (share_at(ratio, false) - share).abs() < 1e-9;
        assert!(is(1.0, SHARE_MIN) && is(RATIO_BEGIN, SHARE_MIN));
        assert!(share_at(1.6, false) < share_at(1.8, false));
        assert!(is(RATIO_BOUND, 1.0) && is(9.0, 1.0));
    }

    #[test]
    fn while_writers_wait_for_the_disk_it_is_theirs_up_to_shortly_before_the_bound() {
        assert!((share_at(1.9, true) - SHARE_MIN).abs() < 1e-9);
        assert!((0.4..0.7).contains(&share_at(1.95, true)), "there is no step in it");
        assert!((share_at(RATIO_BOUND, true) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn of_the_disk_it_has_a_little_in_any_case_and_half_where_writers_are_held_back_at_the_limit() {
        assert!((disk_share(0.0) - 1.0 / 16.0).abs() < 1e-9 && (disk_share(1.0) - 0.5).abs() < 1e-9);
        assert!((0.2..0.4).contains(&disk_share(0.5)), "there is no step in it");
    }

    #[test]
    fn a_rest_makes_up_for_the_work_before_it() {
        let worked = Duration::from_micros(500);
        assert_eq!(rest_for(worked, 1.0), Duration::ZERO);
        assert_eq!(rest_for(worked, 0.5), worked);
        assert_eq!(rest_for(worked, 0.1).as_micros(), 4500);
    }
}
