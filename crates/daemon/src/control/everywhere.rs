//! Changes that every node has carried out before anybody hears that they are made.
//!
//! A node answers a change once it has carried the change out itself. The next request of that client may go to another node, which
//! hears of the change a moment later. So for these changes the node then asks the others, which answer once they have got so far. A
//! node that does not answer in time is one that clients do not reach either: it is not waited for.
//!
//! A bucket that is dropped is another matter. A node that has not heard of it serves the bucket, and acknowledges writes that are gone
//! with it. The same node serves them under the name of the next bucket that is made. So the node that was asked waits for
//! every active node. Each carries the change out, and ends the turns of its loops that began before. After a while it says that this is
//! not complete yet, as Couchbase does. No bucket is made while a node that can be asked has another one of its name.

use std::{sync::Arc, time::Duration};

use admin::NodeControl as _;
use base::NodeId;
use cluster::{Applied, ClusterError, Command};
use http::{BoxFuture, Gate as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::{
    control::{
        Control, LOOK_AGAIN,
        broadcast::{YES, absent_among, ask_among},
        flushing::loops_follow,
    },
    talk::peers::PeerError,
};

/// The question whether a node has carried out everything up to that version of the metadata.
const APPLIED: &str = "applied";
/// The question whether a node serves a bucket of that name.
const HELD: &str = "held";
/// How long a node waits for that before it says no.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long other nodes are waited for where a bucket ends. It is the time that Couchbase takes.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);

impl service::Changes for Control {
    fn change(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>> {
        Box::pin(async {
            let applied = self.propose(command).await?;
            let metadata = self.metadata();
            let silent = &self.cluster_status().silent;
            let heard = metadata.nodes.iter().filter(|node| !silent.contains(&node.id));
            let late = absent_among(self, heard, APPLIED, &metadata.version.to_be_bytes()).await;
            if !late.is_empty() {
                tracing::debug!(?late, "a change may not be known everywhere yet");
            }
            Ok(applied)
        })
    }
}

/// Waits until every active node has carried out what this one knows by now, and its loops have ended the turns that began before.
/// Whether that was so in time.
pub(crate) async fn all_follow(control: &Control) -> bool {
    let version = control.metadata().version;
    let until = Instant::now() + FOLLOWED_WITHIN;
    let (follow, late) = tokio::join!(own_loops_follow(control, until), late_ones(control, version, until));
    if follow && late.is_empty() {
        return true;
    }
    tracing::info!(version, ?late, "nodes have not carried out a change yet");
    false
}

/// Waits until no loop of this node is in a turn that began before. Whether that was so in time.
async fn own_loops_follow(control: &Control, until: Instant) -> bool {
    let (shared, wakes) = control.loops();
    while !loops_follow(shared, wakes).await {
        if Instant::now() >= until {
            return false;
        }
    }
    true
}

/// Active nodes that have not carried out that version of the metadata, at the end or as soon as nobody hears of them.
async fn late_ones(control: &Control, version: u64, until: Instant) -> Vec<NodeId> {
    let mut done: Vec<NodeId> = vec![control.this_id()];
    loop {
        // One that is failed over meanwhile serves nothing.
        let metadata = control.metadata();
        let asked: Vec<_> = metadata.active_nodes().filter(|node| !done.contains(&node.id)).collect();
        let question = version.to_be_bytes();
        let told = absent_among(control, asked.iter().copied(), APPLIED, &question);
        let Ok(late) = timeout_at(until, told).await else {
            return asked.iter().map(|node| node.id).filter(|node| *node != control.this_id()).collect();
        };
        let silent = &control.cluster_status().silent;
        if late.iter().all(|node| silent.contains(node)) || Instant::now() >= until {
            return late;
        }
        done.extend(asked.iter().map(|node| node.id).filter(|node| !late.contains(node)));
        sleep(LOOK_AGAIN).await;
    }
}

/// Whether another node has a bucket of that name, of those that can be asked.
pub(crate) async fn is_held_elsewhere(control: &Control, name: &str) -> bool {
    let metadata = control.metadata();
    let silent = &control.cluster_status().silent;
    let heard = metadata.active_nodes().filter(|node| !silent.contains(&node.id));
    let answers = ask_among(control, heard, HELD, name.as_bytes()).await;
    answers.into_iter().any(|(_, answer)| match answer {
        Ok(said) => said == YES,
        // It has so much to do that it cannot even say so. One that cannot be reached serves nobody, and one of an earlier version does
        // not know the question.
        Err(error) => matches!(error, PeerError::Busy(_)),
    })
}

/// Answers other nodes.
pub(crate) fn answer(control: &Arc<Control>) {
    control.answer(APPLIED, |control, body| async move {
        let Ok(version) = <[u8; 8]>::try_from(body.as_slice()).map(u64::from_be_bytes) else {
            return Ok(Vec::new());
        };
        let mut carried_out = control.carried_out();
        let is_applied = |done: &u64| *done >= version;
        let in_time = matches!(timeout(PATIENCE, carried_out.wait_for(is_applied)).await, Ok(Ok(_)));
        let (shared, wakes) = control.loops();
        Ok(if in_time && loops_follow(shared, wakes).await { YES.to_vec() } else { Vec::new() })
    });
    control.answer(HELD, |control, body| async move {
        let (shared, wakes) = control.loops();
        // What clients are served by. A bucket that is dropped is there until the next is published, which other buckets may hold up.
        let is_served = str::from_utf8(&body).is_ok_and(|name| shared.snapshot().buckets.contains_key(name));
        let is_held = is_served || !loops_follow(shared, wakes).await;
        Ok(if is_held { YES.to_vec() } else { Vec::new() })
    });
}
