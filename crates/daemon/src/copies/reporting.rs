//! Carries this node's reports to the leader, and brings leases and the state of the cluster back.
//! [`Reporter`] says when, and what comes of the answer; reports go whatever the node's reconciler is busy with.

use std::{sync::Arc, time::Duration};

use admin::ClusterStatus;
use base::NodeId;
use cluster::{ClusterError, NodeReport};
use dataplane::{Shared, lease};
use node::{REPORT_PATIENCE_MILLIS, Reporter, Taken};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time};

use crate::{
    control::Control,
    copies::orchestration::{Orchestration, REPORT},
};

/// A leader that has not answered by then is asked again, or another one.
const PATIENCE: Duration = Duration::from_millis(REPORT_PATIENCE_MILLIS);

/// What the leader answers to a report.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// From when the report was sent, so long may the node's actives serve; absent where no lease is needed, or none granted.
    pub(crate) lease_millis: Option<u64>,
    /// The node's metadata differ from those of most nodes since that change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) diverged: Option<u64>,
    /// How the cluster is.
    pub(crate) status: ClusterStatus,
}

/// A report, and the life of the group that it is of.
pub(crate) type Newest = Option<(u64, NodeReport)>;

/// The node that is reported to, and what.
pub(crate) struct Parts {
    pub(crate) control: Arc<Control>,
    /// For while this node leads itself.
    pub(crate) orchestration: Arc<Orchestration>,
    pub(crate) shared: Arc<Shared>,
    /// The newest report.
    pub(crate) reports: watch::Receiver<Newest>,
}

/// Reports until `ended`.
pub(crate) async fn run(parts: Parts, mut ended: watch::Receiver<bool>) {
    let Parts { control, orchestration, shared, mut reports } = parts;
    let mut reporter = Reporter::default();
    loop {
        let rest = Duration::from_millis(reporter.rests_for(lease::clock_millis()));
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            changed = time::timeout(rest, next_news(&mut reports)) => if changed.is_ok() {
                reporter.note_news();
            },
        }
        let leader = control.leader();
        let newest = of_life(&reports.borrow(), control.life_of_the_leader());
        let sent = reporter.next(newest.as_ref(), || control.state(), leader, lease::clock_millis());
        let Some((to, report)) = sent else { continue };
        let number = report.number;
        match deliver(&control, &orchestration, to, report).await {
            Ok(Reply { lease_millis, diverged, status }) => {
                let taken = Taken { is_news: false, lease_millis, diverged };
                let diverged = reporter.answered(number, taken, &shared.lease, lease::clock_millis());
                if let Some(index) = diverged {
                    control.has_diverged(index);
                }
                control.heard_of_cluster(status);
            }
            Err(error) => {
                reporter.given_up(number, lease::clock_millis());
                tracing::debug!(%error, "the leader did not take a report");
            }
        }
    }
}

/// The newest report if it is for a leader of that life of the group. What this node did in an earlier life is not for the leader of a
/// later one. That leader may ask for something else by a version of the same number.
fn of_life(newest: &Newest, life: u64) -> Option<NodeReport> {
    newest.as_ref().filter(|(of, _)| *of == life).map(|(_, report)| report.clone())
}

/// Resolves when there is a report that says something new. Where there will be none any more, the last one goes on being sent.
async fn next_news(reports: &mut watch::Receiver<Newest>) {
    if reports.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn deliver(
    control: &Control,
    orchestration: &Orchestration,
    leader: NodeId,
    report: NodeReport,
) -> Result<Reply, ClusterError> {
    let failed = |text: String| ClusterError::Failed(text);
    if leader == report.node {
        return orchestration.take(report).await;
    }
    let body = serde_json::to_vec(&report).map_err(|error| failed(error.to_string()))?;
    let answer = control.peers().report(leader, REPORT, body, PATIENCE).await;
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&answer).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_for_a_leader_of_its_own_life_of_the_group_only() {
        let report: NodeReport = serde_json::from_value(serde_json::json!({
            "node": 1, "uuid": "n1", "boot": 1, "applied": 7, "data_quota": 0, "data_used": 0,
            "disk_total": 0, "disk_free": 0, "buckets": [],
        }))
        .unwrap();
        let newest = Some((1, report.clone()));
        assert_eq!(of_life(&newest, 1), Some(report));
        assert_eq!(
            of_life(&newest, 2),
            None,
            "by the leader of the next life, which this node does not act in yet"
        );
        assert_eq!(of_life(&newest, 0), None);
        assert_eq!(of_life(&None, 1), None);
    }
}
