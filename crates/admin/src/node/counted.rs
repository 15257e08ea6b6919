//! What a node has counted for objectives.

use serde::{Deserialize, Serialize};
use watch::Spans;

/// Where an event was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// In the server: every operation of clients.
    #[default]
    Server,
    /// By the active probe of nodes.
    Probe,
}

impl Source {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Server, Self::Probe];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Probe => "probe",
        }
    }
}

/// What a node has counted for an objective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The bucket.
    pub bucket: String,
    /// The objective.
    pub objective: String,
    /// Where it was counted.
    #[serde(default)]
    pub source: Source,
    /// Good events and all of them.
    pub spans: Spans,
}
