//! What a node foretells of itself: when memory, metadata and disk run out. Nodes tell it to one another.

use serde::{Deserialize, Serialize};

/// What runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// A bucket's memory reaches its high watermark: values begin to leave it.
    Memory,
    /// Keys and metadata, which cannot leave memory, take half of a bucket's quota.
    Metadata,
    /// The disk has no more free space than is kept free.
    Disk,
}

impl Limit {
    /// Its name in REST.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Metadata => "metadata",
            Self::Disk => "disk",
        }
    }
}

/// What is to be said of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outlook {
    /// The past is too short.
    NotEnoughData,
    /// It has been reached.
    Reached,
    /// It is reached at `likely_secs`, by the median of growth.
    Dated,
    /// It is not reached while things go on as they do.
    NotInSight,
}

impl Outlook {
    /// Its name in REST.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotEnoughData => "notEnoughData",
            Self::Reached => "reached",
            Self::Dated => "dated",
            Self::NotInSight => "notInSight",
        }
    }
}

/// How far forecasts of the past were off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastForecasts {
    /// So many days ahead.
    pub days: u64,
    /// In percent of what came true, in the mean.
    pub percent: f64,
    /// How many there were.
    pub forecasts: u32,
}

/// A forecast of one figure of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Foretold {
    /// What runs out.
    pub what: Limit,
    /// Of which bucket; nothing for the disk.
    pub bucket: Option<String>,
    /// Bytes now.
    pub value: f64,
    /// Bytes there may be.
    pub limit: f64,
    /// Growth a day, by the median. None: not enough data.
    pub per_day: Option<f64>,
    /// What is to be said of it.
    pub outlook: Outlook,
    /// When half of the slopes have reached the limit, in seconds since 1970.
    pub likely_secs: Option<u64>,
    /// When one in ten has.
    pub early_secs: Option<u64>,
    /// How far forecasts of the past were off.
    pub past: Vec<PastForecasts>,
    /// When this was foretold, in seconds since 1970.
    pub at_secs: u64,
}
