//! Asking something of every other node that holds data.

use std::sync::Arc;

use http::Gate as _;
use tokio::task::JoinSet;

use super::control::Control;

/// What a node says that has done what it was asked.
pub(super) const YES: &[u8] = b"yes";

/// Asks all of them at the same time; what those are called that have not said [`YES`].
pub(super) async fn absentees(control: &Control, question: &'static str, body: &[u8]) -> Vec<String> {
    let metadata = control.metadata();
    let mut asked = JoinSet::new();
    for node in metadata.active_nodes().filter(|node| node.id != control.this_id()) {
        let (peers, id, called) = (Arc::clone(control.peers()), node.id, node.called());
        let body = body.to_vec();
        asked.spawn(async move {
            let answer = peers.post(id, question, body).await;
            (!answer.is_ok_and(|answer| answer == YES)).then_some(called)
        });
    }
    asked.join_all().await.into_iter().flatten().collect()
}
