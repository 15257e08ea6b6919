//! What all nodes say of themselves, asked at once for a request.

use std::sync::Arc;

use base::NodeId;
use cluster::config;
use http::reply::{self, Outcome};
use serde::de::DeserializeOwned;

use super::{
    call::Call,
    figures::{ask, question},
};

/// Asks every node that is shown for what it says of itself, of which this one says `own`; and the nodes that did not answer.
pub(crate) async fn every<T: DeserializeOwned + Send + 'static>(
    call: &Call,
    path: &'static str,
    own: T,
) -> (Vec<(NodeId, T)>, Vec<NodeId>) {
    every_about(call, path, Vec::new(), own).await
}

/// The same with a question that has a body.
pub(crate) async fn every_about<T: DeserializeOwned + Send + 'static>(
    call: &Call,
    path: &'static str,
    body: Vec<u8>,
    own: T,
) -> (Vec<(NodeId, T)>, Vec<NodeId>) {
    let (control, this) = (&call.api.control, call.api.control.this_node());
    let (mut told, mut missing) = (Vec::new(), Vec::new());
    let mut asked = tokio::task::JoinSet::new();
    let mut own = Some(own);
    for node in config::shown_nodes(&call.meta) {
        let id = node.id;
        if node.uuid == this {
            told.extend(own.take().map(|own| (id, own)));
        } else if call.status.silent.contains(&id) {
            missing.push(id);
        } else {
            let (control, question) = (Arc::clone(control), question(node, path, body.clone()));
            asked.spawn(async move { (id, ask::<T>(control.as_ref(), question).await) });
        }
    }
    for (id, answer) in asked.join_all().await {
        match answer {
            Some(answer) => told.push((id, answer)),
            None => missing.push(id),
        }
    }
    (told, missing)
}

/// `POST /_settee/figures`: what this node says of itself to the others.
pub(crate) fn show(call: &Call) -> Outcome {
    let own = call.api.figures.own(call.api.control.as_ref(), &call.meta);
    match serde_json::to_value(own) {
        Ok(figures) => Ok(reply::json_ok(&figures)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}
