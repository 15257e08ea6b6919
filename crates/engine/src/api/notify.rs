//! How the engine answers "not yet" and says "now" later.
//!
//! The engine owns no connection. The caller parks a request that must wait under a [`Waiter`]. When the reason is gone
//! the engine hands that waiter to the [`Notifier`] and forgets it. A wake-up carries no result: the caller asks again
//! and learns the state of things. Spurious wake-ups are allowed, lost ones are not.

use base::Status;

/// A parked request, opaque to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// Which data-plane loop it belongs to.
    pub worker: u32,
    /// Which connection of that loop.
    pub connection: u64,
    /// Which request of that connection.
    pub ticket: u64,
}

/// Something that a background thread should look at soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// This shard has someone waiting for persistence, many dirty bytes, or replicas that are to begin anew: call
    /// [`crate::Bucket::flush`].
    Flush(usize),
    /// This shard has fetches queued: call [`crate::Bucket::run_fetches`].
    Fetch(usize),
    /// Feeds or range scans of this shard need what is not in memory: call [`crate::Bucket::run_backfills`].
    Backfill(usize),
    /// Memory is above the high watermark: call [`crate::Bucket::page`] until it is not.
    Room,
    /// Mutations are, or are to be, paced: call [`crate::Bucket::pace`].
    Pace,
}

/// Where the engine's signals go. The calls are made outside every lock of the engine, but for the question for the time,
/// and must be cheap.
pub trait Notifier: Send + Sync {
    /// The parked request should be tried again.
    fn wake(&self, waiter: Waiter);
    /// A step function has something urgent to do. Steps are also called periodically without being asked.
    fn work(&self, kind: Work);
    /// Processor time of the calling thread in nanoseconds, for [`Notifier::held`]; always 0 where nobody wants to know.
    fn thread_nanos(&self) -> u64 {
        0
    }
    /// The flusher has held a vBucket's lock for so much processor time.
    fn held(&self, _nanos: u64) {}
}

/// Why an operation did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is over: this is the answer.
    Status(Status),
    /// It needs the disk: call [`crate::Bucket::fetch`], park, execute again when woken.
    Fetch,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Whether a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It is: answer.
    Ready,
    /// The waiter has been noted and will be woken.
    Parked,
}
