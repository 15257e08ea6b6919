//! What one thread does for all buckets of the node: keeping them tidy.
//!
//! Housekeeping sleeps until something is due. Paging is rung for when memory crosses a bucket's high watermark; expiry
//! comes due when the second changes, and defragmentation is looked at as often; cursors are looked after as long as
//! there are any; durable writes time out (by then whoever waits has been told). Paging goes on without a pause while it helps. Everything else shares the processor with requests:
//! after each step it rests several times as long as the step took. The processor time of every step is in the
//! statistics; no step holds a vBucket's lock for longer than that.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use base::Now;
use engine::{Bucket, Budget, StepReport};

use super::{
    attendant::{Attendant, Duty},
    bell::Bell,
    machine::thread_cpu,
};
use crate::{BucketMeter, Shared, meter::Chore};

/// Documents that a step looks at: as many as one hold of a lock.
const STEP: Budget = Budget { items: 64, bytes: 1 << 20 };
/// What a step of defragmentation copies, one lock hold per document: some hundred microseconds.
const DEFRAGMENT_STEP: Budget = Budget { items: 64, bytes: 192 << 10 };
/// Steps of one chore before another bucket has its turn.
const STEPS: usize = 256;
/// How long what is not urgent rests for each step's time.
const REST: u32 = 3;
/// While memory is wanted and could not be had, or cursors may fall behind.
const WATCHFUL: Duration = Duration::from_millis(50);
/// While nothing is to be done but to notice that the second has changed.
const IDLE: Duration = Duration::from_secs(1);

/// An open bucket and where to count.
pub(crate) type Patient = (Arc<Bucket>, Arc<BucketMeter>);

/// `buckets` lists what is open at the moment; it is asked before every round. Who wants memory rings `bell`.
pub(super) fn start(
    buckets: impl Fn() -> Vec<Patient> + Send + 'static,
    shared: &Arc<Shared>,
    bell: Arc<Bell>,
) -> io::Result<Attendant> {
    let shared = Arc::clone(shared);
    Attendant::start("housekeeping", bell, move |duty| {
        let mut tidier = Tidier { shared, duty, second: 0, is_unfinished: false };
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
}

impl Tidier<'_> {
    /// Everything that is due, bounded; how long to sleep then, unless rung.
    fn round(&mut self, buckets: &[Patient]) -> Duration {
        let begin = Instant::now();
        let second = self.shared.now().unix_secs();
        let is_due = self.is_unfinished || second != self.second;
        let (mut wants_room, mut is_watchful, mut unfinished) = (false, false, false);
        for (bucket, meter) in buckets {
            is_watchful |= bucket.drop_slow_cursors().more;
            bucket.time_out_durable(self.shared.now());
            if bucket.wants_room() || is_due && bucket.has_room_to_make() {
                let freed = self.repeat(meter, Chore::Page, |now| bucket.page(now, STEP)).bytes;
                // What cannot be ejected yet is looked at again a little later.
                wants_room |= freed > 0 && bucket.wants_room();
                is_watchful |= bucket.wants_room();
            }
            if is_due {
                unfinished |= self.repeat(meter, Chore::Expire, |now| bucket.expire(now, STEP)).more;
                unfinished |=
                    self.repeat(meter, Chore::Defragment, |_| bucket.defragment(DEFRAGMENT_STEP)).more;
            }
        }
        if is_due {
            (self.second, self.is_unfinished) = (second, unfinished);
        }
        if wants_room {
            Duration::ZERO
        } else if self.is_unfinished {
            (begin.elapsed() * REST).min(WATCHFUL)
        } else if is_watchful {
            WATCHFUL
        } else {
            IDLE
        }
    }

    /// Steps of one chore until it is done, or has had its turn: what they did, and whether there is more.
    fn repeat(&self, meter: &BucketMeter, chore: Chore, step: impl Fn(Now) -> StepReport) -> StepReport {
        let mut sum = StepReport { more: true, ..StepReport::default() };
        for _ in 0..STEPS {
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
