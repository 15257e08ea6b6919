//! Operations that took long, as nodes tell them.

use serde::{Deserialize, Serialize};

/// Operations of one kind that were answered together, long after they had come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowOperation {
    /// When they were answered, or parked again, in milliseconds since 1970.
    pub at_ms: u64,
    /// The bucket.
    pub bucket: String,
    /// Their kind, by its name in statistics.
    pub operation: String,
    /// How many.
    pub count: u64,
    /// Microseconds from their reading on.
    pub took_us: u64,
    /// Phases that they spent time in, with microseconds; the longest first.
    pub phases: Vec<(String, u64)>,
    /// The user that has asked.
    pub user: String,
    /// The address that it came from.
    pub client: String,
    /// What the client says that it is.
    pub agent: String,
}
