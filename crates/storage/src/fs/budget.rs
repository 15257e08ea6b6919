//! What a disk may be asked for per second: one budget for everybody who reads, writes and syncs through a
//! [`super::ThrottledFs`] that shares it.
//!
//! Two rates, either of which may be unlimited: bytes, and operations. An operation moves at most [`IO_BYTES`]; larger
//! ones count as several, as clouds count them. A caller waits for its turn, in the order of asking, and large
//! requests ask piece by piece. So a small read stands behind a piece of a large write and not behind all of it.
//!
//! Each party has a [`DiskLane`] of its own, and of each lane one piece at most waits for its turn; others wait for that
//! one. So lanes take turns however many threads ask in one of them. A lane that asks for little never stands behind
//! more than one piece of every other lane.
//!
//! Unused budget is kept for [`BURST_NANOS`] only: it makes up for sleeping too long, it is no credit.
//!
//! Threads that stand back ([`super::stand_back`]) take no turns. They have what would be lost otherwise. A piece of
//! theirs is moved when no other caller has wanted the disk for so long that the others' unused budget is whole. So the
//! next caller finds nearly all of it and does not wait. They also have a share of either rate in any case, however
//! much others ask for. Once it is due, a piece of theirs stands in line as another lane's would. Whatever they wait
//! for, no other lane waits for it with them.
//!
//! Time comes from a [`DiskClock`], so that tests and simulations may run faster than the clock on the wall. The page
//! cache is not seen: a read that memory would serve is charged like any other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, MutexGuard};

use super::standing_back;

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
    /// When a caller that stands back has a piece in any case. Held by the one of them whose piece is next.
    standing_back: Mutex<u64>,
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
            standing_back: Mutex::default(),
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
        self.sleep(turn.saturating_sub(now));
    }

    /// As [`DiskBudget::wait`], of a thread that stands back and has the share `least` in any case.
    fn wait_behind(&self, bytes: u64, operations: u64, least: f64) {
        let mut due = self.standing_back.lock();
        let now = loop {
            let now = self.clock.nanos();
            let turns = self.turns.lock();
            let unwanted = turns.bytes.max(turns.operations).saturating_add(BURST_NANOS);
            drop(turns);
            let early = unwanted.min(*due).saturating_sub(now);
            if early == 0 {
                break now;
            }
            self.sleep(early);
        };
        let limits = self.limits();
        let cost = cost(bytes, limits.bytes_per_sec).max(cost(operations, limits.iops));
        // The next time counts from when this was due, which makes up for sleeping too long. If it was not due yet, the next
        // counts from now. What was moved because nobody wanted the disk is not held against the share.
        let from = (*due).clamp(now.saturating_sub(BURST_NANOS), now);
        *due = from.saturating_add((cost as f64 / least) as u64);
        self.wait(bytes, operations);
        MutexGuard::unlock_fair(due);
    }

    fn sleep(&self, nanos: u64) {
        if nanos > 0 {
            self.waited_nanos.fetch_add(nanos, Relaxed);
            self.clock.sleep(nanos);
        }
    }
}

/// One party's way to a budget that others use as well; see the module.
pub struct DiskLane {
    budget: Arc<DiskBudget>,
    /// Held by the caller in this lane that waits for the disk.
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
            let operation = u64::from(done % IO_BYTES == 0);
            if let Some(least) = standing_back::least() {
                budget.wait_behind(piece, operation, least);
            } else {
                let turn = self.turn.lock();
                budget.wait(piece, operation);
                // A caller with pieces left is not to go on before others in the lane.
                MutexGuard::unlock_fair(turn);
            }
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
    use super::{
        super::{in_line, stand_back, stand_in_line},
        *,
    };

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

    /// Notes how long a caller has to wait, and in the first wait calls what was left with it.
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
    fn a_lane_that_asks_for_little_stands_behind_one_piece_of_each_other_lane() {
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

    /// A clock by which somebody else works while one waits: what it is called with until the wait is over.
    #[derive(Default)]
    struct Beside {
        nanos: AtomicU64,
        work: Mutex<Option<Box<dyn FnMut() + Send>>>,
    }

    impl DiskClock for Beside {
        fn nanos(&self) -> u64 {
            self.nanos.load(Relaxed)
        }

        fn sleep(&self, nanos: u64) {
            let until = self.nanos() + nanos;
            let work = self.work.lock().take();
            match work {
                // Its neighbours sleep as well.
                None => _ = self.nanos.fetch_add(nanos, Relaxed),
                Some(mut work) => {
                    while self.nanos() < until {
                        in_line(&mut work);
                    }
                    *self.work.lock() = Some(work);
                }
            }
        }
    }

    const MIB: u64 = 1 << 20;

    /// Moves `pieces` as a thread that stands back, beside others that do `work` over and over in the same lane. Returns how
    /// many nanoseconds that takes.
    fn moved_behind(
        limits: DiskLimits,
        least: f64,
        pieces: u64,
        work: impl Fn(&DiskLane, &Beside) + Send + 'static,
    ) -> u64 {
        let clock = Arc::new(Beside::default());
        // The whole burst may have been saved.
        clock.sleep(NANOS_PER_SEC);
        let lane = Arc::new(DiskLane::new(Arc::new(DiskBudget::new(limits, clock.clone()))));
        let (others, time) = (Arc::downgrade(&lane), Arc::downgrade(&clock));
        *clock.work.lock() = Some(Box::new(move || {
            let (Some(lane), Some(clock)) = (others.upgrade(), time.upgrade()) else { return };
            work(&lane, &clock);
        }));
        let begin = clock.nanos();
        stand_back(least);
        (0..pieces).for_each(|_| lane.charge(PIECE_BYTES));
        stand_in_line();
        clock.nanos() - begin
    }

    fn is_about(nanos: u64, expected: u64) -> bool {
        (expected * 9 / 10..=expected * 11 / 10).contains(&nanos)
    }

    /// What so many pieces take alone.
    fn alone(pieces: u64) -> u64 {
        cost(pieces * PIECE_BYTES, 32 * MIB)
    }

    const BYTES: DiskLimits = DiskLimits { bytes_per_sec: 32 * MIB, iops: 0 };

    #[test]
    fn a_thread_that_stands_back_has_all_that_nobody_else_wants() {
        let took = moved_behind(BYTES, 1.0 / 16.0, 1_000, |_, clock| clock.sleep(1_000));
        assert!(is_about(took, alone(1_000)), "{took}");
    }

    #[test]
    fn a_thread_that_stands_back_has_its_share_whatever_others_ask_for() {
        for least in [1.0 / 16.0, 0.25, 0.5] {
            for bytes in [2_500, PIECE_BYTES] {
                let took = moved_behind(BYTES, least, 200, move |lane, _| lane.charge(bytes));
                let expected = (alone(200) as f64 / least) as u64;
                assert!(is_about(took, expected), "{least} beside {bytes}: {took} instead of {expected}");
            }
        }
    }

    #[test]
    fn a_thread_that_stands_back_has_its_share_of_operations_too() {
        let limits = DiskLimits { bytes_per_sec: 0, iops: 100 };
        let took = moved_behind(limits, 1.0 / 16.0, 50, |lane, _| lane.charge(0));
        assert!(is_about(took, 50 * 16 * NANOS_PER_SEC / 100), "{took}");
    }

    #[test]
    fn a_thread_that_leaves_half_of_the_disk_never_waits_for_one_that_stands_back() {
        let work = |lane: &DiskLane, clock: &Beside| {
            let begin = clock.nanos();
            lane.charge(2_500);
            assert_eq!(clock.nanos(), begin, "the disk is there at once");
            clock.sleep(2 * cost(2_500, 32 * MIB));
        };
        let took = moved_behind(BYTES, 1.0 / 16.0, 1_000, work);
        assert!(is_about(took, 2 * alone(1_000)), "{took}");
    }

    #[test]
    fn what_was_moved_while_nobody_wanted_the_disk_is_not_held_against_the_share() {
        let busy_from = 10 * NANOS_PER_SEC;
        let work = move |lane: &DiskLane, clock: &Beside| {
            if clock.nanos() < busy_from { clock.sleep(1_000) } else { lane.charge(PIECE_BYTES) }
        };
        // Nine seconds of all of it, and nine of a sixteenth.
        let pieces = 9 * 512 + 9 * 32;
        let took = moved_behind(BYTES, 1.0 / 16.0, pieces, work);
        assert!(is_about(took, 18 * NANOS_PER_SEC), "{took}");
    }
}
