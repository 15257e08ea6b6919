//! What every node has counted for objectives, put together. Each node keeps its own past; the sum is the cluster's.

use std::collections::BTreeMap;

use base::NodeId;
use http::reply::{self, Outcome, json_ok};
use watch::Spans;

use crate::{
    node::counted::{Counted, Source},
    request::{Call, asking},
};

/// Where a node tells the others what it has counted.
const PATH: &str = "/_settee/objectives";

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
    let (told, missing) = asking::every(call, PATH, call.api.control.objectives()).await;
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
