//! What all nodes say of themselves, for a request. Other nodes are asked once a second at most: see [`super::answers`].

use base::NodeId;
use cluster::{NodeInfo, config};
use http::reply::{self, Outcome};
use serde::{Serialize, de::DeserializeOwned};

use super::{answers::Question, call::Call};

/// What every node that is shown says of itself, of which this one says `own`; and the nodes that did not answer.
pub(crate) async fn every<T: DeserializeOwned + Send>(
    call: &Call,
    path: &'static str,
    own: T,
) -> (Vec<(NodeId, T)>, Vec<NodeId>) {
    every_about(call, path, Vec::new(), own).await
}

/// The same with a question that has a body.
pub(crate) async fn every_about<T: DeserializeOwned + Send>(
    call: &Call,
    path: &'static str,
    body: Vec<u8>,
    own: T,
) -> (Vec<(NodeId, T)>, Vec<NodeId>) {
    these_about(call, path, body, &config::shown_nodes(&call.meta), || Some(own)).await
}

/// The same of these nodes only. Where this one is among them and says nothing, it is not missing.
pub(crate) async fn these_about<T: DeserializeOwned + Send>(
    call: &Call,
    path: &'static str,
    body: Vec<u8>,
    nodes: &[&NodeInfo],
    own: impl FnOnce() -> Option<T>,
) -> (Vec<(NodeId, T)>, Vec<NodeId>) {
    let Asked { here, others, mut missing } = Asked::of(call, nodes);
    let mut told: Vec<(NodeId, T)> = here.and_then(|this| Some((this, own()?))).into_iter().collect();
    let question = Question::new(path, body, &call.meta);
    for (node, answer) in call.api.answers.of(&call.api.control, question, &others, None).await {
        match answer.and_then(|answer| serde_json::from_slice(&answer).ok()) {
            Some(answer) => told.push((node, answer)),
            None => missing.push(node),
        }
    }
    (told, missing)
}

/// The same where what nodes say has to be of one moment. Nodes that did not answer are not told of.
pub(crate) async fn these_at_once<T: Serialize + DeserializeOwned + Send>(
    call: &Call,
    path: &'static str,
    body: Vec<u8>,
    nodes: &[&NodeInfo],
    own: impl Fn() -> Option<T> + Sync,
) -> Vec<(NodeId, T)> {
    let Asked { here, others, .. } = Asked::of(call, nodes);
    if others.is_empty() {
        return here.and_then(|this| Some((this, own()?))).into_iter().collect();
    }
    let own = || serde_json::to_vec(&own()?).ok();
    let question = Question::new(path, body, &call.meta);
    let own = here.map(|this| (this, &own as _));
    let answers = call.api.answers.of(&call.api.control, question, &others, own).await.into_iter();
    answers.filter_map(|(node, answer)| Some((node, serde_json::from_slice(&answer?).ok()?))).collect()
}

/// Whom a request asks.
struct Asked<'a> {
    /// This node, where it is among them.
    here: Option<NodeId>,
    others: Vec<&'a NodeInfo>,
    /// Those that are known not to answer.
    missing: Vec<NodeId>,
}

impl<'a> Asked<'a> {
    fn of(call: &Call, nodes: &[&'a NodeInfo]) -> Self {
        let this = call.api.control.this_node();
        let here = nodes.iter().find(|node| node.uuid == this).map(|node| node.id);
        let (silent, others): (Vec<&NodeInfo>, Vec<&NodeInfo>) = nodes
            .iter()
            .filter(|node| node.uuid != this)
            .partition(|node| call.status.silent.contains(&node.id));
        Self { here, others, missing: silent.into_iter().map(|node| node.id).collect() }
    }
}

/// `POST /_settee/figures`: what this node says of itself to the others.
pub(crate) fn show(call: &Call) -> Outcome {
    let own = call.api.figures.own(call.api.control.as_ref(), &call.meta);
    match serde_json::to_value(own) {
        Ok(figures) => Ok(reply::json_ok(&figures)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}
