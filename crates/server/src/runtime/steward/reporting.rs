//! Carries this node's reports to whoever leads, and brings leases and the state of the cluster back.
//!
//! The newest report counts: one that could not be delivered is not kept. One is sent as soon as it says something new,
//! and at a steady pace to show that the node is there, whatever its steward is busy with.

use std::{sync::Arc, time::Duration};

use admin::ClusterStatus;
use cluster::{ClusterError, NodeReport};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time};

use super::super::{
    control::Control,
    orchestration::{Orchestration, REPORT},
};
use crate::{Shared, lease};

/// Between two reports that say the same.
const STEADY: Duration = Duration::from_millis(250);
/// Between two reports at least: what happens meanwhile goes with the next one.
const AT_MOST: Duration = Duration::from_millis(10);
/// A leader that has not answered by then is asked again, or another one.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the leader answers to a report.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Reply {
    /// From when the report was sent, so long may the node's actives serve; absent where no lease is needed, or none granted.
    pub(in super::super) lease_millis: Option<u64>,
    /// The node's metadata differ from those of most nodes since that change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) diverged: Option<u64>,
    /// How the cluster is.
    pub(in super::super) status: ClusterStatus,
}

/// Who is reported to, and what.
pub(in super::super) struct Parts {
    pub(in super::super) control: Arc<Control>,
    /// For while this node leads itself.
    pub(in super::super) orchestration: Arc<Orchestration>,
    pub(in super::super) shared: Arc<Shared>,
    /// The newest report.
    pub(in super::super) reports: watch::Receiver<Option<NodeReport>>,
}

/// Reports until `ended`.
pub(in super::super) async fn run(parts: Parts, mut ended: watch::Receiver<bool>) {
    let Parts { control, orchestration, shared, mut reports } = parts;
    // Reports may overtake one another on their way.
    let mut number = 0;
    loop {
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            _ = time::timeout(STEADY, reports.changed()) => {}
        }
        let report = reports.borrow_and_update().clone();
        let Some(report) = report else { continue };
        number += 1;
        let (diverged, state) = control.state();
        let report = NodeReport { number, diverged, state, ..report };
        let sent_at = lease::clock_millis();
        match deliver(&control, &orchestration, report).await {
            Ok(reply) => {
                if let Some(index) = reply.diverged {
                    control.has_diverged(index);
                    shared.lease.revoke();
                }
                shared.lease.heard(sent_at);
                if let Some(millis) = reply.lease_millis {
                    shared.lease.extend(sent_at + millis);
                }
                control.heard_of_cluster(reply.status);
            }
            Err(error) => tracing::debug!(%error, "the leader did not take a report"),
        }
        time::sleep(AT_MOST).await;
    }
}

async fn deliver(
    control: &Control,
    orchestration: &Orchestration,
    report: NodeReport,
) -> Result<Reply, ClusterError> {
    let failed = |text: String| ClusterError::Failed(text);
    let leader = control.leader().ok_or_else(|| failed("nobody leads".into()))?;
    if leader == report.node {
        return orchestration.take(report).await;
    }
    let body = serde_json::to_vec(&report).map_err(|error| failed(error.to_string()))?;
    let answer = control.peers().report(leader, REPORT, body, PATIENCE).await;
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&answer).map_err(|error| failed(error.to_string()))
}
