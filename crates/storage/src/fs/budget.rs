//! What a disk may be asked for per second: one budget for everybody who reads, writes and syncs through a
//! [`super::ThrottledFs`] that shares it.
//!
//! Two rates, either of which may be unlimited: bytes, and operations. An operation moves at most [`IO_BYTES`]; larger
//! ones count as several, as clouds count them. Who asks waits for their turn, in the order of asking, and large
//! requests ask piece by piece, so that a small read stands behind a piece of a large write and not behind all of it.
//! Unused budget is kept for [`BURST_NANOS`] only: it makes up for sleeping too long, it is no credit.
//!
//! Time comes from a [`DiskClock`], so that tests and simulations may run faster than the clock on the wall. The page
//! cache is not seen: a read that memory would serve is charged like any other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

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

    /// Waits until the disk may move so many bytes (0: an operation that moves none).
    pub fn charge(&self, bytes: u64) {
        let operations = bytes.div_ceil(IO_BYTES).max(1);
        // Counters are statistics: relaxed, they order nothing.
        self.bytes.fetch_add(bytes, Relaxed);
        self.operations.fetch_add(operations, Relaxed);
        if self.limits() == DiskLimits::default() {
            return;
        }
        let (mut done, mut first) = (0, true);
        while first || done < bytes {
            let piece = (bytes - done).min(PIECE_BYTES);
            self.wait(piece, u64::from(done % IO_BYTES == 0));
            (done, first) = (done + piece, false);
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

    fn budget(bytes_per_sec: u64, iops: u64) -> (Arc<Virtual>, DiskBudget) {
        let clock = Arc::new(Virtual::default());
        let limits = DiskLimits { bytes_per_sec, iops };
        (clock.clone(), DiskBudget::new(limits, clock))
    }

    #[test]
    fn bytes_take_as_long_as_the_rate_says() {
        let (clock, budget) = budget(1 << 20, 0);
        (0..40).for_each(|_| budget.charge(256 << 10));
        let expected = 10 * NANOS_PER_SEC;
        assert!(clock.nanos() <= expected && clock.nanos() + BURST_NANOS >= expected, "{}", clock.nanos());
        assert_eq!(budget.used().bytes, 10 << 20);
    }

    #[test]
    fn operations_are_counted_in_pieces_of_what_one_moves() {
        let (clock, budget) = budget(0, 100);
        // Twenty syncs, and twenty writes of three operations each.
        (0..20).for_each(|_| budget.charge(0));
        (0..20).for_each(|_| budget.charge(2 * IO_BYTES + 1));
        assert_eq!(budget.used().operations, 80);
        let expected = 80 * NANOS_PER_SEC / 100;
        assert!(clock.nanos() <= expected && clock.nanos() + BURST_NANOS >= expected, "{}", clock.nanos());
    }

    #[test]
    fn the_slower_rate_counts() {
        let (clock, budget) = budget(100 << 20, 10);
        (0..30).for_each(|_| budget.charge(4096));
        let expected = 3 * NANOS_PER_SEC;
        assert!(clock.nanos() <= expected && clock.nanos() + BURST_NANOS >= expected, "{}", clock.nanos());
    }

    #[test]
    fn idle_time_is_no_credit() {
        let (clock, budget) = budget(1 << 20, 0);
        clock.sleep(3600 * NANOS_PER_SEC);
        let start = clock.nanos();
        budget.charge(1 << 20);
        assert!(clock.nanos() - start + BURST_NANOS >= NANOS_PER_SEC);
    }

    #[test]
    fn without_limits_nobody_waits_and_limits_can_be_changed() {
        let (clock, budget) = budget(0, 0);
        budget.charge(u64::MAX / 2);
        assert_eq!(clock.nanos(), 0);
        budget.set_limits(DiskLimits { bytes_per_sec: 1 << 20, iops: 0 });
        budget.charge(1 << 20);
        assert!(clock.nanos() > 0);
    }
}
