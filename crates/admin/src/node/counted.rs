//! What a node has counted for objectives.

use cluster::{Metadata, Operation};
use serde::{Deserialize, Serialize};
use watch::{Spans, sdk::Latency};

/// Where an event was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// In the server: every operation of clients.
    #[default]
    Server,
    /// By the active probe of nodes.
    Probe,
    /// By clients whose SDKs tell what they see.
    Sdk,
}

impl Source {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Server, Self::Probe, Self::Sdk];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Probe => "probe",
            Self::Sdk => "sdk",
        }
    }
}

/// Which latencies of SDKs an objective is about.
#[must_use]
pub const fn told_latency(operation: Operation) -> Latency {
    match operation {
        Operation::Get => Latency::Retrieval,
        Operation::Set => Latency::Mutation,
        Operation::Durable => Latency::DurableMutation,
    }
}

/// Whether there are such a node and bucket, of which a client may tell.
#[must_use]
pub fn is_told_of(meta: &Metadata, node: &str, bucket: Option<&str>) -> bool {
    meta.nodes.iter().any(|known| known.uuid == node)
        && bucket.is_none_or(|name| meta.buckets.contains_key(name))
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
