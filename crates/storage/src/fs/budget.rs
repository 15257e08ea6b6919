//! What a disk may be asked for per second: one budget for everybody who reads, writes and syncs through a
//! [`super::ThrottledFs`] that shares it.
//!
//! Two rates, either of which may be unlimited: bytes, and operations. An operation moves at most [`IO_BYTES`]; larger
//! ones count as several, as clouds count them. Who asks waits for their turn, in the order of asking, and large
//! requests ask piece by piece, so that a small read stands behind a piece of a large write and not behind all of it.
//!
//! Each party has a [`DiskLane`] of its own, and of each lane one piece at most waits for its turn; others wait for that
//! one. So lanes take turns however many threads ask in one of them, and who asks for little never stands behind more
//! than one piece of every other lane.
//!
//! Unused budget is kept for [`BURST_NANOS`] only: it makes up for sleeping too long, it is no credit.
//!
//! Time comes from a [`DiskClock`], so that tests and simulations may run faster than the clock on the wall. The page
//! cache is not seen: a read that memory would serve is charged like any other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};

/// Bytes that one operation moves at most.
const IO_BYTES: u64 = 256 << 10;
/// Bytes asked for at once.
const PIECE_BYTES: u64 = 64 << 10;
/// What has not been used by then is lost.
const BURST_NANOS: u64 = 20_000_000;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A clock and the means to wait.
pub trait DiskClock: Send + Sync {
    /// Nanoseconds since some moment; never falls.
    fn nanos(&self) -> u64;

    /// Returns when so many nanoseconds have passed.
    fn sleep(&self, nanos: u64);
}

/// Rates; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLimits {
    /// Bytes read and written per second.
    pub bytes_per_sec: u64,
    /// Reads, writes, syncs and changes of names per second.
    pub iops: u64,
}

/// What was charged so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations.
    pub operations: u64,
    /// Nanoseconds that threads waited for their turn, added up.
    pub waited_nanos: u64,
}

/// See the module.
pub struct DiskBudget {
    clock: Arc<dyn DiskClock>,
    bytes_per_sec: AtomicU64,
    iops: AtomicU64,
    /// When all that was asked for so far will have been moved.
    turns: Mutex<Turns>,
    bytes: AtomicU64,
    operations: AtomicU64,
    waited_nanos: AtomicU64,
}

#[derive(Default)]
struct Turns {
    bytes: u64,
    operations: u64,
}

impl DiskBudget {
    /// A budget nobody has used yet.
    #[must_use]
    pub fn new(limits: DiskLimits, clock: Arc<dyn DiskClock>) -> Self {
        Self {
            clock,
            bytes_per_sec: AtomicU64::new(limits.bytes_per_sec),
            iops: AtomicU64::new(limits.iops),
            turns: Mutex::default(),
            bytes: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
        }
    }

    /// The rates now.
    #[must_use]
    pub fn limits(&self) -> DiskLimits {
        DiskLimits { bytes_per_sec: self.bytes_per_sec.load(Relaxed), iops: self.iops.load(Relaxed) }
    }

    /// Other rates from here on; what waits already waits by the old ones.
    pub fn set_limits(&self, limits: DiskLimits) {
        self.bytes_per_sec.store(limits.bytes_per_sec, Relaxed);
        self.iops.store(limits.iops, Relaxed);
    }

    /// What was charged so far.
    #[must_use]
    pub fn used(&self) -> DiskUse {
        DiskUse {
            bytes: self.bytes.load(Relaxed),
            operations: self.operations.load(Relaxed),
            waited_nanos: self.waited_nanos.load(Relaxed),
        }
    }

    fn wait(&self, bytes: u64, operations: u64) {
        let limits = self.limits();
        let now = self.clock.nanos();
        let turn = {
            let mut turns = self.turns.lock();
            let oldest = now.saturating_sub(BURST_NANOS);
            turns.bytes = turns.bytes.max(oldest).saturating_add(cost(bytes, limits.bytes_per_sec));
            turns.operations = turns.operations.max(oldest).saturating_add(cost(operations, limits.iops));
            turns.bytes.max(turns.operations)
        };
        let nanos = turn.saturating_sub(now);
        if nanos > 0 {
            self.waited_nanos.fetch_add(nanos, Relaxed);
            self.clock.sleep(nanos);
        }
    }
}

/// One party's way to a budget that others use as well; see the module.
pub struct DiskLane {
    budget: Arc<DiskBudget>,
    /// Held by whoever in this lane waits for the disk.
    turn: Mutex<()>,
}

impl DiskLane {
    /// Another lane.
    #[must_use]
    pub fn new(budget: Arc<DiskBudget>) -> Self {
        Self { budget, turn: Mutex::default() }
    }

    /// The budget that it leads to.
    #[must_use]
    pub fn budget(&self) -> &Arc<DiskBudget> {
        &self.budget
    }

    /// Waits until the disk may move so many bytes (0: an operation that moves none).
    pub fn charge(&self, bytes: u64) {
        let budget = &self.budget;
        let operations = bytes.div_ceil(IO_BYTES).max(1);
        // Counters are statistics: relaxed, they order nothing.
        budget.bytes.fetch_add(bytes, Relaxed);
        budget.operations.fetch_add(operations, Relaxed);
        if budget.limits() == DiskLimits::default() {
            return;
        }
        let (mut done, mut first) = (0, true);
        while first || done < bytes {
            let piece = (bytes - done).min(PIECE_BYTES);
            let turn = self.turn.lock();
            budget.wait(piece, u64::from(done % IO_BYTES == 0));
            // Whoever has pieces left is not to go on before others in the lane.
            MutexGuard::unlock_fair(turn);
            (done, first) = (done + piece, false);
        }
    }
}

/// Nanoseconds that an amount takes at a rate.
fn cost(amount: u64, per_sec: u64) -> u64 {
    if per_sec == 0 {
        return 0;
    }
    let nanos = u128::from(amount) * u128::from(NANOS_PER_SEC) / u128::from(per_sec);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Virtual(AtomicU64);

    impl DiskClock for Virtual {
        fn nanos(&self) -> u64 {
            self.0.load(Relaxed)
        }

        fn sleep(&self, nanos: u64) {
            self.0.fetch_add(nanos, Relaxed);
        }
    }

    fn lane(bytes_per_sec: u64, iops: u64) -> (Arc<Virtual>, DiskLane) {
        let clock = Arc::new(Virtual::default());
        let limits = DiskLimits { bytes_per_sec, iops };
        (clock.clone(), DiskLane::new(Arc::new(DiskBudget::new(limits, clock))))
    }

    #[test]
    fn bytes_take_as_long_as_the_rate_says() {
        let (clock, lane) = lane(1 << 20, 0);
        (0..40).for_each(|_| lane.charge(256 << 10));
        let expected = 10 * NANOS_PER_SEC;
        assert!(clock.nanos() <= expected && clock.nanos() + BURST_NANOS >= expected, "{}", clock.nanos());
        assert_eq!(lane.budget().used().bytes, 10 << 20);
    }

    #[test]
    fn operations_are_counted_in_pieces_of_what_one_moves() {
        let (clock, lane) = lane(0, 100);
        // Twenty syncs, and twenty writes of three operations each.
        (0..20).for_each(|_| lane.charge(0));
        (0..20).for_each(|_| lane.charge(2 * IO_BYTES + 1));
        assert_eq!(lane.budget().used().operations, 80);
        let expected = 80 * NANOS_PER_SEC / 100;
        assert!(clock.nanos() <= expected && clock.nanos() + BURST_NANOS >= expected, "{}", clock.nanos());
    }

    #[test]
    fn the_slower_rate_counts() {
        let (clock, lane) = lane(100 << 20, 10);
        (0..30).for_each(|_| lane.charge(4096));
        let expected = 3 * NANOS_PER_SEC;
        assert!(clock.nanos() <= expected && clock.nanos() + BURST_NANOS >= expected, "{}", clock.nanos());
    }

    #[test]
    fn idle_time_is_no_credit() {
        let (clock, lane) = lane(1 << 20, 0);
        clock.sleep(3600 * NANOS_PER_SEC);
        let start = clock.nanos();
        lane.charge(1 << 20);
        assert!(clock.nanos() - start + BURST_NANOS >= NANOS_PER_SEC);
    }

    #[test]
    fn without_limits_nobody_waits_and_limits_can_be_changed() {
        let (clock, lane) = lane(0, 0);
        lane.charge(u64::MAX / 2);
        assert_eq!(clock.nanos(), 0);
        lane.budget().set_limits(DiskLimits { bytes_per_sec: 1 << 20, iops: 0 });
        lane.charge(1 << 20);
        assert!(clock.nanos() > 0);
    }

    /// Notes how long whoever waits has to, and in the first wait calls what was left with it.
    #[derive(Default)]
    struct Interrupted {
        waits: Mutex<Vec<u64>>,
        then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl DiskClock for Interrupted {
        fn nanos(&self) -> u64 {
            NANOS_PER_SEC
        }

        fn sleep(&self, nanos: u64) {
            self.waits.lock().push(nanos);
            let then = self.then.lock().take();
            then.into_iter().for_each(|then| then());
        }
    }

    #[test]
    fn who_asks_for_little_stands_behind_one_piece_of_each_other_lane() {
        const THREADS: u64 = 8;
        let clock = Arc::new(Interrupted::default());
        let limits = DiskLimits { bytes_per_sec: PIECE_BYTES, iops: 0 };
        let budget = Arc::new(DiskBudget::new(limits, clock.clone()));
        let (loud, quiet) = (Arc::new(DiskLane::new(budget.clone())), DiskLane::new(budget.clone()));
        let waits = Arc::new(Mutex::new(Vec::new()));
        let (others, seen, waited) = (loud.clone(), budget.clone(), waits.clone());
        let threads = Arc::new(Mutex::new(Vec::new()));
        let started = threads.clone();
        let on = clock.clone();
        *clock.then.lock() = Some(Box::new(move || {
            for _ in 0..THREADS {
                let lane = others.clone();
                started.lock().push(std::thread::spawn(move || lane.charge(PIECE_BYTES)));
            }
            // All of them have asked by then.
            while seen.used().bytes < (THREADS + 1) * PIECE_BYTES {
                std::thread::yield_now();
            }
            quiet.charge(PIECE_BYTES);
            waited.lock().clone_from(&on.waits.lock());
        }));
        loud.charge(PIECE_BYTES);
        threads.lock().drain(..).for_each(|thread| thread.join().unwrap());
        assert_eq!(waits.lock().len(), 2, "nobody but the first and the quiet one");
        assert!(waits.lock()[1] <= 2 * NANOS_PER_SEC, "{} pieces", waits.lock()[1] / NANOS_PER_SEC);
        assert_eq!(clock.waits.lock().len() as u64, THREADS + 2, "the others after that");
    }
}
