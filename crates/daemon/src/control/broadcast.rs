//! A question that goes to every other node, or to those that hold data, at the same time.

use std::sync::Arc;

use base::NodeId;
use cluster::NodeInfo;
use http::Gate as _;
use tokio::task::JoinSet;

use crate::{control::Control, talk::peers::PeerError};

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
    let said_yes = |answer: Result<Vec<u8>, _>| answer.is_ok_and(|said| said == YES);
    answers.into_iter().filter_map(|(node, answer)| (!said_yes(answer)).then_some(node)).collect()
}

/// What these nodes answer, as far as they are others.
pub(crate) async fn ask_among<'n>(
    control: &Control,
    nodes: impl Iterator<Item = &'n NodeInfo>,
    question: &'static str,
    body: &[u8],
) -> Vec<(NodeId, Result<Vec<u8>, PeerError>)> {
    let mut asked = JoinSet::new();
    for node in nodes.filter(|node| node.id != control.this_id()) {
        let (peers, id, body) = (Arc::clone(control.peers()), node.id, body.to_vec());
        asked.spawn(async move { (id, peers.wait_for(id, question, body).await) });
    }
    asked.join_all().await
}
