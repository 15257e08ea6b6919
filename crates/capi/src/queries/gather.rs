//! Has every vBucket of a bucket answered for once, by the node that serves it.
//!
//! Nodes are asked at the same time. A node may not answer for some vBuckets: they move, or it cannot be reached. The node that holds
//! these by newer metadata is asked again, for a limited time. Answers that have begun are kept meanwhile: each is of vBuckets that no
//! other one is of. An error behind the rows tells what no node answered for.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use base::NodeId;
use cluster::{BucketInfo, Metadata, auth::Identity};
use http::Gate;
use service::{AskError, Context, NOT_RUNNING, Nodes};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use views::{
    index::{
        Reducing, Source, SourceError, VbSet,
        wire::{Expected, Question, Remote},
    },
    refusal::Refusal,
};

use super::{
    answers::{self, Desk},
    definitions::Definitions,
    here::{HERE, Refused},
    plan::Plan,
};
use crate::{
    answer,
    streaming::{NodeAnswer, There},
};

/// So long a move, an election or a node that knows too little is waited for.
const MOVING: Duration = Duration::from_secs(30);
/// So long a node that cannot be reached, or has no service running, is asked again.
const UNREACHABLE: Duration = Duration::from_secs(5);
/// Between two rounds, unless the metadata change earlier.
const PAUSE: Duration = Duration::from_millis(50);
/// How much longer than the question says the first part of an answer is waited for.
const GRACE: Duration = Duration::from_secs(5);

/// What is known of the cluster, and how its nodes are asked.
#[derive(Clone)]
pub(crate) struct Reach {
    gate: Arc<dyn Gate>,
    revisions: watch::Receiver<i64>,
    nodes: Arc<dyn Nodes>,
    /// How long a node that cannot be reached is asked again.
    unreachable: Duration,
}

impl Reach {
    pub(crate) fn new(context: &Context) -> Self {
        let (gate, nodes) = (Arc::clone(&context.gate), Arc::clone(&context.nodes));
        Self { gate, revisions: context.revisions.clone(), nodes, unreachable: UNREACHABLE }
    }
}

/// A query on its way.
pub(crate) struct Asking<'a> {
    pub(crate) reach: &'a Reach,
    pub(crate) desk: &'a Desk,
    pub(super) definitions: &'a Definitions,
    /// The sender: users have shares of what other nodes are asked at once.
    pub(crate) user: &'a Identity,
    pub(crate) bucket: &'a str,
    /// With no vBuckets: who is asked for which follows from the metadata.
    pub(crate) question: Question,
    pub(crate) reducing: Option<Reducing>,
}

/// The answers that have begun, each with what its rows are told to be from, and what it is of.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) answers: Vec<(String, NodeAnswer)>,
    pub(crate) asked: Vec<(String, VbSet)>,
}

/// What became of one node's question.
enum Outcome {
    Began(NodeAnswer),
    Again(SourceError),
    Unreachable(SourceError),
    Failed(SourceError),
}

/// Why vBuckets are still to be answered for.
struct Lack {
    error: SourceError,
    since: Instant,
    patience: Duration,
}

impl Asking<'_> {
    /// The answers of these vBuckets. Nothing where the design document was replaced before all of them had begun: no node knows what it
    /// was for long.
    ///
    /// # Errors
    /// The bucket or the design document has gone, or no node answers.
    pub(crate) async fn gather(&self, wanted: VbSet) -> Result<Option<Gathered>, Refusal> {
        let (mut left, mut gathered) = (wanted, Gathered::default());
        let mut lacks: BTreeMap<Option<NodeId>, Lack> = BTreeMap::new();
        let mut revisions = self.reach.revisions.clone();
        loop {
            revisions.mark_unchanged();
            let meta = self.reach.gate.metadata();
            let info = self.bucket(&meta)?;
            let defined = self.definitions.of(info, &self.question.design)?;
            if defined.signature() != self.question.signature {
                return Ok(None);
            }
            let plan = Plan::of(info, &left);
            let rounds = self.ask(&meta, &plan, &mut gathered, &mut left).await;
            let mut now_lacking = BTreeMap::new();
            for (node, vbs, error, patience) in rounds {
                let since = lacks.get(&node).map_or_else(Instant::now, |lack| lack.since);
                let lack = Lack { error, since, patience };
                if lack.since.elapsed() < lack.patience {
                    now_lacking.insert(node, lack);
                    continue;
                }
                vbs.iter().for_each(|vb| left.remove(vb));
                let name = lack.error.from.clone();
                gathered.answers.push((name, NodeAnswer::Nowhere(lack.error)));
            }
            lacks = now_lacking;
            if left.is_empty() {
                return gathered.checked().map(Some);
            }
            // Whether the metadata have changed or some time has passed: both are reason to ask again.
            let _ = timeout(PAUSE, revisions.changed()).await;
        }
    }

    fn bucket<'m>(&self, meta: &'m Metadata) -> Result<&'m BucketInfo, Refusal> {
        let info = meta.buckets.get(self.bucket).filter(|info| info.uuid == self.question.bucket);
        info.ok_or_else(|| answer::not_found("missing"))
    }

    /// Asks once. Notes answers that began and nodes that failed for good; gives what is lacking, and how long that is waited for.
    async fn ask(
        &self,
        meta: &Metadata,
        plan: &Plan,
        gathered: &mut Gathered,
        left: &mut VbSet,
    ) -> Vec<(Option<NodeId>, VbSet, SourceError, Duration)> {
        let mut lacking = Vec::new();
        if !plan.unserved.is_empty() {
            let number = plan.unserved.iter().count();
            let reason = format!("no node serves {number} of the vBuckets");
            lacking.push((None, plan.unserved, SourceError::new(HERE, reason), MOVING));
        }
        let this_node = self.reach.gate.this_node_uuid();
        let mut round = JoinSet::new();
        for (node, vbs) in &plan.nodes {
            let (node, vbs) = (*node, *vbs);
            let question = Question { vbs, ..self.question.clone() };
            let known = meta.nodes.iter().find(|known| known.id == node);
            if known.is_some_and(|known| known.uuid == this_node) {
                let desk = self.desk.clone();
                round.spawn(async move { (node, vbs, HERE.to_owned(), here(&desk, question).await) });
                continue;
            }
            let address = known.map_or_else(
                || format!("node {node}"),
                |known| format!("{}:{}", cluster::config::host_in_url(meta, known), known.ports.capi),
            );
            let (nodes, reducing) = (Arc::clone(&self.reach.nodes), self.reducing);
            let user = self.user.clone();
            round.spawn(async move {
                let outcome = there(&*nodes, (&user, node), address.clone(), question, reducing).await;
                (node, vbs, address, outcome)
            });
        }
        let mut unheard = plan.nodes.clone();
        while let Some(done) = round.join_next().await {
            let Ok((node, vbs, name, outcome)) = done else { continue };
            unheard.remove(&node);
            match outcome {
                Outcome::Again(error) => lacking.push((Some(node), vbs, error, MOVING)),
                Outcome::Unreachable(error) => lacking.push((Some(node), vbs, error, self.reach.unreachable)),
                Outcome::Began(answer) => {
                    vbs.iter().for_each(|vb| left.remove(vb));
                    gathered.asked.push((name.clone(), vbs));
                    gathered.answers.push((name, answer));
                }
                Outcome::Failed(error) => {
                    vbs.iter().for_each(|vb| left.remove(vb));
                    gathered.answers.push((name, NodeAnswer::Nowhere(error)));
                }
            }
        }
        // A task that panicked: its vBuckets are asked for again, but not without end.
        lacking.extend(unheard.into_iter().map(|(node, vbs)| {
            let error = SourceError::new(HERE, format!("asking node {node} failed"));
            (Some(node), vbs, error, self.reach.unreachable)
        }));
        lacking
    }
}

impl Gathered {
    /// Where no node answers at all, the client is told so by the status.
    fn checked(self) -> Result<Self, Refusal> {
        let first = self.answers.first().map(|(_, answer)| answer);
        match first {
            Some(NodeAnswer::Nowhere(error)) if self.asked.is_empty() => {
                Err(Refusal { status: 500, error: "error", reason: error.reason.clone() })
            }
            _ => Ok(self),
        }
    }
}

async fn here(desk: &Desk, question: Question) -> Outcome {
    match desk.begin(question).await {
        Ok(local) => Outcome::Began(NodeAnswer::Here(Box::new(local))),
        Err(refused) => refused_by(HERE.to_owned(), refused),
    }
}

fn refused_by(from: String, refused: Refused) -> Outcome {
    match refused {
        Refused::Again(why) => Outcome::Again(SourceError::new(from, why)),
        Refused::Failed(why) => Outcome::Failed(SourceError::new(from, why)),
    }
}

/// Asks another node, until its answer has begun.
async fn there(
    nodes: &dyn Nodes,
    (user, node): (&Identity, NodeId),
    address: String,
    question: Question,
    reducing: Option<Reducing>,
) -> Outcome {
    let patience = answers::timeout(question.query.connection_timeout) + GRACE;
    let within = format!("http://{address}/_view_merge/");
    let remote = Remote::new(within, Expected::of(&question, reducing));
    let answer = nodes.ask_for(user, node, Bytes::from(question.encode()), patience);
    let mut there = There { address: address.clone(), remote, answer };
    loop {
        match there.remote.total_rows() {
            Ok(Some(_)) => return Outcome::Began(NodeAnswer::There(Box::new(there))),
            Ok(None) => {}
            Err(error) => return Outcome::Failed(error),
        }
        match there.answer.next().await {
            Ok(Some(part)) => there.remote.push(&part),
            Ok(None) => there.remote.close(Ok(())),
            // A node that starts is soon there. On another one the service has failed, which time does not mend.
            Err(AskError::Refused(why)) if why == NOT_RUNNING => {
                return Outcome::Unreachable(SourceError::new(address, why));
            }
            Err(AskError::Refused(why)) => return refused_by(address, Refused::of(why)),
            Err(AskError::TimedOut) => return Outcome::Failed(SourceError::new(address, "timeout")),
            // Nothing of it was told to the client.
            Err(error @ (AskError::Unreachable(_) | AskError::BrokenOff(_))) => {
                return Outcome::Unreachable(SourceError::new(address, error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
