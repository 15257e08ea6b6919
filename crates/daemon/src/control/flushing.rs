//! Emptying a bucket of several nodes.
//!
//! The cluster agrees that the bucket is another one from now on. Every node that hears of it closes and removes its
//! copies, as if the bucket had been dropped. So nothing that a node still holds belongs to the new bucket, however
//! late that node comes back.
//!
//! The client is answered when every node has said two things. It has heard of the change, and none of its data-plane
//! loops is still in a turn that began with the old bucket. Later writes are there to stay then, and later reads are of
//! the new bucket.

use std::{sync::Arc, time::Duration};

use admin::NodeControl as _;
use base::{BucketUuid, Status};
use cluster::{BucketChange, ClusterError, Membership, NodeInfo};
use dataplane::{Shared, Wakes};
use http::Gate as _;
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use crate::{
    control::{
        Control,
        broadcast::{YES, absentees},
    },
    setup::random::random_uuid,
};

/// The question whether a bucket is open.
const OPENED: &str = "opened";
/// How long a node waits for its own bucket before it says no.
const PATIENCE: Duration = Duration::from_secs(4);
/// How often it is looked whether loops have ended their turns.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Empties the bucket of that name and uuid.
///
/// # Errors
/// When it may not be emptied now, nobody agrees, or nodes have not said that they have heard of it.
pub(crate) async fn flush(control: &Control, bucket: &str, over: &BucketUuid) -> Result<(), ClusterError> {
    let silent = &control.cluster_status().silent;
    let metadata = control.metadata();
    let absent = metadata.nodes.iter().filter(|node| node.membership == Membership::Active);
    let absent: Vec<_> = absent.filter(|node| silent.contains(&node.id)).map(NodeInfo::called).collect();
    if !absent.is_empty() {
        // Replicas of what they have would be empty, and nobody could say so.
        let text = format!("Cannot flush buckets while nodes are not heard of: {}", absent.join(", "));
        return Err(ClusterError::MembersRefused(text));
    }
    let uuid = random_uuid().map_err(|error| ClusterError::Failed(error.to_string()))?;
    let uuid = BucketUuid(uuid);
    control.propose(metadata.change_of_bucket(bucket, over, BucketChange::Flush(uuid.clone()))).await?;
    wait_for_all(control, &uuid).await
}

async fn wait_for_all(control: &Control, bucket: &BucketUuid) -> Result<(), ClusterError> {
    let (shared, wakes) = control.loops();
    let (follow, mut late) =
        tokio::join!(loops_follow(shared, wakes), absentees(control, OPENED, bucket.0.as_bytes()));
    if !follow {
        late.push("this node".into());
    }
    if late.is_empty() {
        return Ok(());
    }
    let text = format!(
        "The bucket is being flushed. Nodes that have not said yet that they know: {}",
        late.join(", ")
    );
    Err(ClusterError::Failed(text))
}

/// Waits until no loop executes anything in an older snapshot than that of now. Whether that was so in time.
pub(crate) async fn loops_follow(shared: &Shared, wakes: &Wakes) -> bool {
    let generation = shared.generation();
    let ended = async {
        while !wakes.all_follow(generation) {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout(PATIENCE, ended).await.is_ok()
}

/// Answers other nodes, and clients of the data ports.
pub(crate) fn answer(control: &Arc<Control>, shared: &Arc<Shared>, wakes: &Wakes, runtime: &Handle) {
    let (me, here, loops) = (Arc::downgrade(control), Arc::downgrade(shared), wakes.clone());
    control.routes().add(OPENED, move |body| {
        let (control, shared, loops) = (me.upgrade(), here.upgrade(), loops.clone());
        async move {
            let (Some(control), Some(shared)) = (control, shared) else { return Ok(Vec::new()) };
            let mut changes = control.watch();
            let is_open =
                |_: &i64| shared.snapshot().buckets.values().any(|bucket| bucket.uuid.0.as_bytes() == body);
            let is_opened = matches!(timeout(PATIENCE, changes.wait_for(is_open)).await, Ok(Ok(_)));
            Ok(if is_opened && loops_follow(&shared, &loops).await { YES.to_vec() } else { Vec::new() })
        }
    });
    let (me, wakes, runtime) = (Arc::downgrade(control), wakes.clone(), runtime.clone());
    shared.flush_with(move |bucket, uuid, waiter| {
        let (control, wakes) = (me.upgrade(), wakes.clone());
        runtime.spawn(async move {
            let outcome = match &control {
                Some(control) => flush(control, &bucket, &uuid).await.map_err(|error| {
                    tracing::warn!(bucket, %error, "a client's flush was refused");
                    Status::TemporaryFailure
                }),
                None => Err(Status::TemporaryFailure),
            };
            wakes.done(waiter, outcome);
        });
    });
}
