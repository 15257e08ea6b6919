//! Changes that every node knows before anybody hears that they are made.
//!
//! A node answers a change once it has carried the change out itself. The next request of that client may go to another node, which
//! hears of the change a moment later. So for these changes the node then asks the others, which answer once they have got so far. A
//! node that does not answer in time is one that clients do not reach either: it is not waited for.

use std::{sync::Arc, time::Duration};

use admin::NodeControl as _;
use cluster::{Applied, ClusterError, Command};
use http::{BoxFuture, Gate as _};
use tokio::time::timeout;

use crate::control::{
    Control,
    broadcast::{YES, absentees_among},
};

/// The question whether a node has carried out everything up to that version of the metadata.
const APPLIED: &str = "applied";
/// How long a node waits for that before it says no.
const PATIENCE: Duration = Duration::from_secs(4);

impl service::Changes for Control {
    fn change(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>> {
        Box::pin(async {
            let applied = self.propose(command).await?;
            let metadata = self.metadata();
            let silent = &self.cluster_status().silent;
            let heard = metadata.nodes.iter().filter(|node| !silent.contains(&node.id));
            let late = absentees_among(self, heard, APPLIED, &metadata.version.to_be_bytes()).await;
            if !late.is_empty() {
                tracing::debug!(nodes = late.join(", "), "a change may not be known everywhere yet");
            }
            Ok(applied)
        })
    }
}

/// Answers other nodes.
pub(crate) fn answer(control: &Arc<Control>) {
    control.answer(APPLIED, |control, body| async move {
        let Ok(version) = <[u8; 8]>::try_from(body.as_slice()).map(u64::from_be_bytes) else {
            return Ok(Vec::new());
        };
        let mut changes = control.watch();
        let is_applied = |_: &i64| control.metadata().version >= version;
        let in_time = matches!(timeout(PATIENCE, changes.wait_for(is_applied)).await, Ok(Ok(_)));
        Ok(if in_time { YES.to_vec() } else { Vec::new() })
    });
}
