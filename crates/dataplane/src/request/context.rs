//! What a connection's state machine may use while it executes:
//! - The clock reading and snapshot of this turn.
//! - The worker's scratch memory and counters.
//! - The ways to have a request continued later.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use base::{Now, Status};
use engine::Waiter;

use crate::{
    figures::{
        hot,
        meter::{BucketMeter, OpKind},
        phases::{Phase, Stopwatch},
        reading::Reading,
        slow::{SLOW, SlowBatch},
    },
    request::{
        located::{ConnectionId, Located},
        stage::Stop,
    },
    state::{
        helper::Helper,
        lease,
        shared::{Shared, Snapshot},
    },
};

/// When a connection has to look after its parked requests: (monotonic milliseconds, connection).
pub(crate) type Deadline = (u64, ConnectionId);

/// Scratch capacity that survives a request.
const SCRATCH_BYTES_KEPT: usize = 1 << 20;

/// A connection's time before others get theirs. Only looked at after commands that may take long: a few bytes can ask
/// for megabytes to be searched or rewritten.
const TURN_TIME: Duration = Duration::from_millis(2);

/// The clocks and the lease are looked at again in the middle of a turn that has taken so long.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What became of a batch.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// Operations that were answered.
    pub(crate) answered: u64,
    /// From when its input was read until its end, in microseconds.
    pub(crate) micros: u64,
    /// Those that were slow.
    pub(crate) slow: Option<SlowBatch>,
}

/// A turn's surroundings. One per worker.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) worker: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) helper: Helper,
    pub(crate) now: Now,
    /// Active copies must not serve now: see [`cluster::Lease`].
    pub(crate) lease_has_run_out: bool,
    /// As of when the two are.
    looked_at: Reading,
    /// When the input being executed was read.
    pub(crate) read_at: Reading,
    pub(crate) stopwatch: Stopwatch,
    /// The connection whose turn it is.
    pub(crate) connection: ConnectionId,
    pub(crate) deadlines: BinaryHeap<Reverse<Deadline>>,
    pub(crate) dice: Dice,
    /// Values inflated or rewritten on their way through.
    pub(crate) scratch: Vec<u8>,
    /// The encoded key of the request, for connections whose keys come without a collection prefix.
    pub(crate) keys: Vec<u8>,
    /// Where the documents of the batch being executed are; `None` where a request has none.
    pub(crate) planned: Vec<Option<Located>>,
    /// The same for the first request of the input to be consumed next.
    pub(crate) previewed: Option<Located>,
    /// A command was executed that may take long: the time of the turn is to be checked.
    pub(crate) check_turn_time: bool,
    /// Operations executed since latencies were last recorded.
    pub(crate) ran: Vec<(OpKind, u64)>,
    /// What the request that goes on now has waited for, and for how many nanoseconds.
    pub(crate) waited: Option<(Phase, u64)>,
    /// Operations until the next one that is counted among hot keys and clients.
    until_sample: u32,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
}

impl Context {
    pub(crate) fn new(worker: usize, shared: Arc<Shared>, helper: Helper) -> Self {
        let (snapshot, now) = (shared.snapshot(), shared.now());
        let begun = Reading::now();
        let dice = Dice::new(now.wall_nanos ^ ((worker as u64) << 32));
        Self {
            worker,
            shared,
            snapshot,
            helper,
            now,
            lease_has_run_out: false,
            looked_at: begun,
            read_at: begun,
            stopwatch: Stopwatch::new(begun),
            connection: 0,
            deadlines: BinaryHeap::new(),
            dice,
            scratch: Vec::new(),
            keys: Vec::new(),
            planned: Vec::new(),
            previewed: None,
            check_turn_time: false,
            ran: Vec::new(),
            waited: None,
            until_sample: hot::EVERY,
            bytes_read: 0,
            bytes_written: 0,
        }
    }

    /// Reads the clocks at the beginning of a turn.
    pub(crate) fn begin_turn(&mut self, at: Reading) {
        self.looked_at = at;
        self.now = self.shared.now();
        self.look_at_lease();
    }

    /// The same for the rest of a turn, behind the reading of some connections. The clocks are read where the turn has got long, and the lease
    /// in any case. The process may have been stopped meanwhile, and the machine may have slept, which no clock but that of leases tells.
    /// Other nodes may serve by now what was this node's when the turn began.
    pub(crate) fn go_on_with_turn(&mut self, at: Reading) {
        match at.since(self.looked_at) >= LOOK_AGAIN {
            true => self.begin_turn(at),
            false => self.look_at_lease(),
        }
    }

    /// Whether this node may serve what has been read until now.
    pub(crate) fn look_at_lease(&mut self) {
        self.lease_has_run_out = self.shared.lease.has_run_out(lease::clock_millis);
    }

    /// Refuses what needs an active copy while none may serve.
    ///
    /// # Errors
    /// `TemporaryFailure`: the client tries again, here or where a newer map sends it.
    #[inline]
    pub(crate) fn require_lease(&self) -> Result<(), Stop> {
        if self.lease_has_run_out { Err(lease_has_run_out()) } else { Ok(()) }
    }

    /// Names a parked request of the current connection.
    pub(crate) fn waiter(&self, ticket: u64) -> Waiter {
        Waiter { worker: u32::try_from(self.worker).unwrap_or(u32::MAX), connection: self.connection, ticket }
    }

    /// Has the current connection look after its parked requests at `millis`.
    pub(crate) fn wake_at(&mut self, millis: u64) {
        self.deadlines.push(Reverse((millis, self.connection)));
    }

    /// Takes the scratch buffer back after use, unless one large value has made it large.
    pub(crate) fn keep_scratch(&mut self, mut scratch: Vec<u8>) {
        if scratch.capacity() > SCRATCH_BYTES_KEPT {
            scratch = Vec::new();
        }
        self.scratch = scratch;
    }

    /// Counts an operation; consecutive ones of a kind together.
    #[inline]
    pub(crate) fn ran(&mut self, kind: OpKind) {
        match self.ran.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => self.ran.push((kind, 1)),
        }
    }

    /// Whether the lot for hot keys and clients falls on this operation.
    #[inline]
    pub(crate) fn is_drawn(&mut self) -> bool {
        self.until_sample = self.until_sample.saturating_sub(1);
        self.until_sample == 0
    }

    /// Begins the distance to the next one that is drawn. It is random: clients that ask in a fixed order would otherwise be counted
    /// at the same place each time.
    #[cold]
    pub(crate) fn draw_next(&mut self) {
        let distance = self.dice.roll() % u64::from(2 * hot::EVERY - 1);
        self.until_sample = 1 + u32::try_from(distance).unwrap_or(hot::EVERY);
    }

    /// Records the operations executed since the last time, and `parked` more that have to wait, which took the time
    /// since the clock was last read. `queued` is for how many nanoseconds they waited for their turn, unless that was counted before.
    /// `is_told` if the client is to know the time, also of what counts as no operation.
    pub(crate) fn record_batch(
        &mut self,
        meter: Option<&BucketMeter>,
        parked: u64,
        queued: Option<u64>,
        is_told: bool,
    ) -> Recorded {
        let waited = self.waited.take();
        let answered: u64 = self.ran.iter().map(|(_, count)| count).sum();
        let requests = answered + parked;
        if requests == 0 && !is_told {
            return Recorded::default();
        }
        let now = Reading::now();
        let mut slow = None;
        let micros = self.micros_until(now);
        if requests == 0 {
            return Recorded { micros, ..Recorded::default() };
        }
        let executed = self.stopwatch.lap(now);
        self.stopwatch.answered(answered);
        if let Some(meter) = meter {
            for (kind, count) in &self.ran {
                meter.record(self.worker, *kind, *count, micros);
            }
            if let Some(queued) = queued {
                meter.record_phase(self.worker, Phase::Queue, requests, queued);
            }
            let share = if requests == 1 { executed } else { executed / requests };
            meter.record_phase(self.worker, Phase::Execute, requests, share);
            if micros >= SLOW.as_micros() as u64 && answered > 0 {
                slow = Some(SlowBatch { kinds: self.ran.clone(), micros, queued, executed: share, waited });
            }
        }
        self.ran.clear();
        Recorded { answered, micros, slow }
    }

    /// Whether what was executed took so long that others have to come first.
    pub(crate) fn is_turn_over(&mut self) -> bool {
        std::mem::take(&mut self.check_turn_time) && Reading::now().since(self.read_at) >= TURN_TIME
    }

    /// Microseconds from when the input was read to `now`.
    pub(crate) fn micros_until(&self, now: Reading) -> u64 {
        now.nanos_since(self.read_at) / 1000
    }
}

#[cold]
fn lease_has_run_out() -> Stop {
    Stop::Refused(
        Status::TemporaryFailure,
        "The node has lost touch with its cluster and serves nothing until it is back",
    )
}

/// Cheap randomness for choices that need no secrecy (xorshift64*).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
