//! The entry of `/pools/default/tasks`: the last collection of logs, from what all nodes tell of it.

use serde_json::{Map, Value, json};

use super::nodes;
use crate::{
    node::time::{now_ms, rfc3339},
    request::{
        Call,
        collecting::{PartState, Run},
    },
};

/// How long a node's figures may not yet tell that it has begun.
const UNTOLD_MS: u64 = 12_000;
/// How often tools should look.
const REFRESH_SECS: u32 = 2;

/// What a node has done for a collection.
struct Shown {
    node: String,
    status: &'static str,
    path: Option<String>,
    why: Option<String>,
}

impl Shown {
    fn has_ended(&self) -> bool {
        !["starting", "started"].contains(&self.status)
    }
}

/// The collection to be shown: one that runs, else the last one; and the node that it was started at.
pub(in crate::routes) fn task(call: &Call) -> Option<Value> {
    let all = runs(call).map(|(node, run)| (node, run, shown(call, run)));
    let (node, run, parts) =
        all.max_by_key(|(_, run, parts)| (status(run, parts) == "running", run.began_ms))?;
    let status = status(run, &parts);
    let ended = parts.iter().filter(|part| part.has_ended()).count();
    let per_node: Map<String, Value> = parts
        .iter()
        .map(|part| {
            let mut fields = Map::from_iter([("status".to_owned(), part.status.into())]);
            fields.extend(part.path.as_ref().map(|path| ("path".to_owned(), path.as_str().into())));
            fields.extend(part.why.as_ref().map(|why| ("collectionOutput".to_owned(), why.as_str().into())));
            (part.node.clone(), Value::Object(fields))
        })
        .collect();
    let mut task = json!({
        "type": "clusterLogsCollection", "node": node, "status": status, "ts": rfc3339(run.began_ms),
        "progress": ended * 100 / parts.len().max(1), "perNode": per_node,
    });
    if status == "running" {
        task["recommendedRefreshPeriod"] = REFRESH_SECS.into();
        task["cancelURI"] = "/controller/cancelLogsCollection".into();
    }
    Some(task)
}

/// Whether some node has yet to end its part of a collection.
pub(super) fn is_running(call: &Call) -> bool {
    !running(call).is_empty()
}

/// The collections that run.
pub(super) fn running(call: &Call) -> Vec<String> {
    let runs = runs(call).filter(|(_, run)| status(run, &shown(call, run)) == "running");
    runs.map(|(_, run)| run.id.clone()).collect()
}

/// Every collection that a node tells of, with the node's name.
fn runs(call: &Call) -> impl Iterator<Item = (String, &Run)> {
    call.meta.nodes.iter().filter_map(|node| {
        let run = call.figures.node(node.id)?.collecting.run.as_ref()?;
        Some((nodes::otp_node(call, node), run))
    })
}

fn status(run: &Run, parts: &[Shown]) -> &'static str {
    match (run.is_cancelled, parts.iter().all(Shown::has_ended)) {
        (true, _) => "cancelled",
        (false, true) => "completed",
        (false, false) => "running",
    }
}

/// What every node has done for it. Nodes that were removed meanwhile are not shown.
fn shown(call: &Call, run: &Run) -> Vec<Shown> {
    let members = run.nodes.iter().filter_map(|(id, refused)| Some((call.meta.node_by_id(*id)?, refused)));
    members
        .map(|(node, refused)| {
            let told = call.figures.node(node.id).and_then(|figures| figures.collecting.part.as_ref());
            let part = told.filter(|part| part.run == run.id);
            let (status, why) = match (part.map(|part| &part.state), refused) {
                (Some(PartState::Started), _) => ("started", None),
                (Some(PartState::Collected), _) => ("collected", None),
                (Some(PartState::Cancelled), _) => ("cancelled", None),
                (Some(PartState::Failed(why)), _) | (None, Some(why)) => ("failed", Some(why.clone())),
                (None, None) if run.is_cancelled => ("cancelled", None),
                (None, None) if now_ms().saturating_sub(run.began_ms) < UNTOLD_MS => ("starting", None),
                (None, None) => {
                    ("failed", Some("The node does not answer, or has been started anew since.".to_owned()))
                }
            };
            let path = part.filter(|_| ["started", "collected"].contains(&status));
            let path = path.map(|part| part.path.clone());
            Shown { node: nodes::otp_node(call, node), status, path, why }
        })
        .collect()
}
