//! A question that goes to every other node, or to those that hold data, at the same time.

use std::sync::Arc;

use base::NodeId;
use cluster::NodeInfo;
use http::Gate as _;
use tokio::task::JoinSet;

use crate::control::Control;

/// What a node says that has done what it was asked.
pub(crate) const YES: &[u8] = b"yes";

/// Asks all of them at the same time; what those are called that have not said [`YES`].
pub(crate) async fn absentees(control: &Control, question: &'static str, body: &[u8]) -> Vec<String> {
    let metadata = control.metadata();
    let absent = absent_among(control, metadata.active_nodes(), question, body).await;
    metadata.nodes.iter().filter(|node| absent.contains(&node.id)).map(NodeInfo::called).collect()
}

/// The same of these nodes, as far as they are others, by number.
pub(crate) async fn absent_among<'n>(
    control: &Control,
    nodes: impl Iterator<Item = &'n NodeInfo>,
    question: &'static str,
    body: &[u8],
) -> Vec<NodeId> {
    let answers = ask_among(control, nodes, question, body).await;
    answers.into_iter().filter(|(_, answer)| answer.as_deref() != Some(YES)).map(|(node, _)| node).collect()
}

/// What these nodes answer, as far as they are others; nothing where one does not.
pub(crate) async fn ask_among<'n>(
    control: &Control,
    nodes: impl Iterator<Item = &'n NodeInfo>,
    question: &'static str,
    body: &[u8],
) -> Vec<(NodeId, Option<Vec<u8>>)> {
    let mut asked = JoinSet::new();
    for node in nodes.filter(|node| node.id != control.this_id()) {
        let (peers, id, body) = (Arc::clone(control.peers()), node.id, body.to_vec());
        asked.spawn(async move { (id, peers.wait_for(id, question, body).await.ok()) });
    }
    asked.join_all().await
}
