//! What every node has counted for objectives, put together. Each node keeps its own past; the sum is the cluster's.

use std::collections::BTreeMap;

use base::NodeId;
use http::reply::{self, Outcome, json_ok};
use serde::{Deserialize, Serialize};
use watch::Spans;

use crate::{call::Call, figures};

/// Where a node tells the others what it has counted.
const PATH: &str = "/_settee/objectives";

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

/// What all nodes have counted, and which of them did not say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Together {
    counted: BTreeMap<(String, String, Source), Spans>,
    pub(crate) missing: Vec<NodeId>,
}

impl Together {
    pub(crate) fn of(&self, bucket: &str, objective: &str) -> Spans {
        self.seen_by(bucket, objective, Source::Server).unwrap_or_default()
    }

    /// None: nothing was seen from there.
    pub(crate) fn seen_by(&self, bucket: &str, objective: &str, source: Source) -> Option<Spans> {
        self.counted.get(&(bucket.to_owned(), objective.to_owned(), source)).copied()
    }

    fn add(&mut self, told: Vec<Counted>) {
        for Counted { bucket, objective, source, spans } in told {
            let sum = self.counted.entry((bucket, objective, source)).or_default();
            *sum = sum.plus(&spans);
        }
    }
}

/// Asks every node.
pub(crate) async fn together(call: &Call) -> Together {
    let (told, missing) = figures::every(call, PATH, call.api.control.objectives()).await;
    let mut all = Together { missing, ..Together::default() };
    told.into_iter().for_each(|(_, counted)| all.add(counted));
    all
}

/// `POST /_settee/objectives`: what this node has counted.
pub(crate) fn show(call: &Call) -> Outcome {
    match serde_json::to_value(call.api.control.objectives()) {
        Ok(counted) => Ok(json_ok(&counted)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}
