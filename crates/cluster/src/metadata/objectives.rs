//! What an objective of a bucket is.

use serde::{Deserialize, Serialize};

/// Which operations an objective is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Reads of documents, or of parts of them.
    Get,
    /// Writes of documents or of parts of them, deletions among them.
    Set,
    /// Writes that wait for a durability level, by how long they wait for it.
    Durable,
}

impl Operation {
    /// Every one, with its name in REST.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Get, "get"), (Self::Set, "set"), (Self::Durable, "durable")];

    /// Its name in REST.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Durable => "durable",
        }
    }
}

/// "99.9 % of gets within 2 ms over 28 days".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// Which operations it is about.
    pub operation: Operation,
    /// Within how many microseconds they are to be answered.
    pub latency_us: u32,
    /// How many of a million.
    pub target_ppm: u32,
    /// Over how many days.
    pub period_days: u16,
}
