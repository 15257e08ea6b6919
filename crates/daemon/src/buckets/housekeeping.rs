//! What one thread does for all buckets of the node: keeping them tidy.
//!
//! Housekeeping sleeps until something is due:
//! - Paging, when memory crosses a bucket's high watermark.
//! - Expiry and defragmentation, when the second changes.
//! - Cursors, as long as a vBucket has any.
//! - Durable writes whose time is up. A waiting client has been told by then.
//!
//! All of it shares the processor with requests: it works for about a millisecond, and then rests several times as
//! long. Only paging has more of the time, the more urgent it is. It has all of it from the point on where slow
//! streams would be sent to the disk. So under a steady load memory stays where paging frees what comes in. It does
//! not go from one watermark to the other in bursts, which clients would see as their slowest requests. The processor
//! time of every step is in the statistics; no step holds a vBucket's lock for longer than that.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use base::Now;
use dataplane::{BucketMeter, Shared, machine::thread_cpu, meter::Chore};
use engine::{Bucket, Budget, StepReport};

use crate::threads::{
    node_thread::{Duty, NodeThread},
    priority::Contention,
    wake_flag::WakeFlag,
};

/// Documents that a step looks at: as many as one hold of a lock.
const STEP: Budget = Budget { items: 64, bytes: 1 << 20 };
/// What a step of defragmentation copies, one lock hold per document: some hundred microseconds, and what is counted is the whole
/// step.
const DEFRAGMENT_STEP: Budget = Budget { items: 64, bytes: 96 << 10 };
/// Steps of one chore before another bucket has its turn: about a millisecond, and where memory is wanted at once, more.
const STEPS: usize = 16;
const STEPS_AT_ONCE: usize = 256;
/// The share of the time that paging has as long as it is not urgent. The first holds where it waits for a processor longer than
/// it has one, the second where a processor is to spare.
const PAGING_SHARE_MIN: f64 = 0.1;
const PAGING_SHARE_SPARE: f64 = 0.5;
/// How long what is not urgent rests for each step's time.
const REST: u32 = 3;
/// While memory is wanted and could not be had, or cursors may fall behind.
const WATCHFUL: Duration = Duration::from_millis(50);
/// While nothing is to be done but to notice that the second has changed.
const IDLE: Duration = Duration::from_secs(1);

/// An open bucket and where to count.
pub(crate) type MeteredBucket = (Arc<Bucket>, Arc<BucketMeter>);

/// `buckets` lists what is open at the moment; it is asked before every round. A thread that wants memory sets `wake_flag`.
pub(crate) fn start(
    buckets: impl Fn() -> Vec<MeteredBucket> + Send + 'static,
    shared: &Arc<Shared>,
    wake_flag: Arc<WakeFlag>,
) -> io::Result<NodeThread> {
    let shared = Arc::clone(shared);
    NodeThread::start("housekeeping", wake_flag, move |duty| {
        let contention = Contention::default();
        let mut tidier = Tidier { shared, duty, second: 0, is_unfinished: false, contention };
        while !duty.is_over() {
            let pause = tidier.round(&buckets());
            if !pause.is_zero() {
                duty.rest(pause);
            }
        }
    })
}

/// The housekeeping thread's own state.
struct Tidier<'a> {
    shared: Arc<Shared>,
    duty: &'a Duty,
    /// The last second in which everything due was looked for.
    second: u32,
    /// Something due was left over.
    is_unfinished: bool,
    contention: Contention,
}

impl Tidier<'_> {
    /// Everything that is due, bounded; how long to sleep then, unless woken.
    fn round(&mut self, buckets: &[MeteredBucket]) -> Duration {
        let begin = Instant::now();
        let second = self.shared.now().unix_secs();
        let is_due = self.is_unfinished || second != self.second;
        let (mut wants_room, mut is_watchful, mut unfinished) = (false, false, false);
        let mut urgency: f64 = 0.0;
        for (bucket, meter) in buckets {
            is_watchful |= bucket.drop_slow_cursors().more;
            bucket.time_out_durable(self.shared.now());
            if bucket.wants_room() || is_due && bucket.has_room_to_make() {
                let steps = if bucket.room_urgency() < 1.0 { STEPS } else { STEPS_AT_ONCE };
                let freed = self.repeat(meter, Chore::Page, steps, |now| bucket.page(now, STEP)).bytes;
                // What cannot be ejected yet is looked at again a little later.
                wants_room |= freed > 0 && bucket.wants_room();
                is_watchful |= bucket.wants_room();
                urgency = urgency.max(bucket.room_urgency());
            }
            if is_due {
                let expired = self.repeat(meter, Chore::Expire, STEPS, |now| bucket.expire(now, STEP));
                let moved =
                    self.repeat(meter, Chore::Defragment, STEPS, |_| bucket.defragment(DEFRAGMENT_STEP));
                unfinished |= expired.more || moved.more;
            }
        }
        if is_due {
            (self.second, self.is_unfinished) = (second, unfinished);
        }
        if wants_room {
            rest_for(begin.elapsed(), paging_share(urgency, self.contention.look())).min(WATCHFUL)
        } else if self.is_unfinished {
            (begin.elapsed() * REST).min(WATCHFUL)
        } else if is_watchful {
            WATCHFUL
        } else {
            IDLE
        }
    }

    /// Steps of one chore until it is done, or has had its turn: what they did, and whether there is more.
    fn repeat(
        &self,
        meter: &BucketMeter,
        chore: Chore,
        steps: usize,
        step: impl Fn(Now) -> StepReport,
    ) -> StepReport {
        let mut sum = StepReport { more: true, ..StepReport::default() };
        for _ in 0..steps {
            if self.duty.is_over() || !sum.more {
                break;
            }
            let before = thread_cpu();
            let report = step(self.shared.now());
            meter.record_chore(chore, thread_cpu().saturating_sub(before));
            sum.bytes += report.bytes;
            sum.more = report.more;
        }
        sum
    }
}

/// The share of the time in which memory is wanted by the bucket that wants it most: all of them wait for the same thread.
fn paging_share(urgency: f64, is_contended: bool) -> f64 {
    let least = if is_contended { PAGING_SHARE_MIN } else { PAGING_SHARE_SPARE };
    least + (1.0 - least) * urgency
}

/// How long to rest after having worked for so long, to have such a share of the time.
pub(crate) fn rest_for(worked: Duration, share: f64) -> Duration {
    worked.mul_f64((1.0 - share) / share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paging_has_all_of_the_time_when_it_is_urgent_and_little_of_it_before() {
        let worked = Duration::from_millis(1);
        assert_eq!(rest_for(worked, paging_share(0.0, true)).as_millis(), 9);
        assert_eq!(rest_for(worked, paging_share(0.0, false)), worked);
        assert!(paging_share(0.5, true) > 0.5 && paging_share(0.5, true) < 0.6);
        for is_contended in [false, true] {
            assert_eq!(rest_for(worked, paging_share(1.0, is_contended)), Duration::ZERO);
        }
    }
}
