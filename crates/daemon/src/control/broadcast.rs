//! A question that goes to every other node, or to those that hold data, at the same time.

use std::sync::Arc;

use cluster::NodeInfo;
use http::Gate as _;
use tokio::task::JoinSet;

use crate::control::Control;

/// What a node says that has done what it was asked.
pub(crate) const YES: &[u8] = b"yes";

/// Asks all of them at the same time; what those are called that have not said [`YES`].
pub(crate) async fn absentees(control: &Control, question: &'static str, body: &[u8]) -> Vec<String> {
    let metadata = control.metadata();
    absentees_among(control, metadata.active_nodes(), question, body).await
}

/// The same of these nodes, as far as they are others.
pub(crate) async fn absentees_among<'n>(
    control: &Control,
    nodes: impl Iterator<Item = &'n NodeInfo>,
    question: &'static str,
    body: &[u8],
) -> Vec<String> {
    let mut asked = JoinSet::new();
    for node in nodes.filter(|node| node.id != control.this_id()) {
        let (peers, id, called) = (Arc::clone(control.peers()), node.id, node.called());
        let body = body.to_vec();
        asked.spawn(async move {
            let answer = peers.wait_for(id, question, body).await;
            (!answer.is_ok_and(|answer| answer == YES)).then_some(called)
        });
    }
    asked.join_all().await.into_iter().flatten().collect()
}
