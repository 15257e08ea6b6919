//! What is probed, and what a node has found.

use std::collections::BTreeMap;

use base::NodeId;
use cluster::Metadata;
use serde::{Deserialize, Serialize};

/// Where it is kept among the settings.
pub(crate) const SETTING: &str = "settee/probe";
/// Seconds between two rounds, and the bounds of what may be set.
const PERIOD_SECS: u16 = 5;
pub(crate) const PERIODS: std::ops::RangeInclusive<u16> = 1..=300;

/// Which buckets are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbedBuckets {
    /// None.
    None,
    /// Those with an objective.
    Objectives,
    /// Every one.
    All,
}

impl ProbedBuckets {
    /// Every one with its name.
    pub(crate) const NAMES: [(Self, &'static str); 3] =
        [(Self::None, "none"), (Self::Objectives, "objectives"), (Self::All, "all")];
}

/// What is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeSettings {
    /// Which buckets.
    pub buckets: ProbedBuckets,
    /// Whether documents of the probe's own are written, too.
    pub writes: bool,
    /// Seconds between two rounds.
    pub period_secs: u16,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self { buckets: ProbedBuckets::All, writes: false, period_secs: PERIOD_SECS }
    }
}

impl ProbeSettings {
    /// Those of a cluster.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let kept = metadata.settings.get(SETTING).and_then(|kept| serde_json::from_value(kept.clone()).ok());
        let kept: Self = kept.unwrap_or_default();
        Self { period_secs: kept.period_secs.clamp(*PERIODS.start(), *PERIODS.end()), ..kept }
    }

    /// Whether a bucket is probed.
    #[must_use]
    pub fn probes(&self, metadata: &Metadata, bucket: &str) -> bool {
        let has_objective = || metadata.buckets.get(bucket).is_some_and(|info| !info.objectives.is_empty());
        match self.buckets {
            ProbedBuckets::None => false,
            ProbedBuckets::Objectives => has_objective(),
            ProbedBuckets::All => true,
        }
    }
}

/// What a node has found of a bucket on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The bucket.
    pub bucket: String,
    /// The node that was asked.
    pub to: NodeId,
    /// How many rounds in a row had something that was not answered.
    pub silent_rounds: u32,
    /// By the name of the operation.
    pub operations: BTreeMap<String, ProbedOperation>,
}

/// What is known of an operation on a bucket of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedOperation {
    /// How many were answered as they should.
    pub answered: u64,
    /// How many were answered with an error.
    pub refused: u64,
    /// How many were not answered in time.
    pub unanswered: u64,
    /// Their latencies together, in microseconds.
    pub total_us: u64,
    /// The newest latency.
    pub last_us: Option<u32>,
    /// Latencies of the last minute that half of the operations, nine of ten and ninety-nine of a hundred did not exceed.
    pub quantiles_us: [Option<u32>; 3],
}
