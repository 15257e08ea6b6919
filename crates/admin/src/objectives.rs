//! What every node has counted for objectives, put together. Each node keeps its own past; the sum is the cluster's.

use std::collections::BTreeMap;

use base::NodeId;
use http::reply::{self, Outcome, json_ok};
use serde::{Deserialize, Serialize};
use watch::Spans;

use crate::{call::Call, figures};

/// Where a node tells the others what it has counted.
const PATH: &str = "/_settee/objectives";

/// What a node has counted for an objective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The bucket.
    pub bucket: String,
    /// The objective.
    pub objective: String,
    /// Good events and all of them.
    pub spans: Spans,
}

/// What all nodes have counted, and which of them did not say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Together {
    counted: BTreeMap<(String, String), Spans>,
    pub(crate) missing: Vec<NodeId>,
}

impl Together {
    pub(crate) fn of(&self, bucket: &str, objective: &str) -> Spans {
        self.counted.get(&(bucket.to_owned(), objective.to_owned())).copied().unwrap_or_default()
    }

    fn add(&mut self, told: Vec<Counted>) {
        for Counted { bucket, objective, spans } in told {
            let sum = self.counted.entry((bucket, objective)).or_default();
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
