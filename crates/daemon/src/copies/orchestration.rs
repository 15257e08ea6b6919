//! Drives [`Leadership`] on the node that leads: reports in, the next changes of the metadata out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use admin::{Awaited, ClusterStatus, CutOff, NodeShare, RebalanceView};
use base::NodeId;
use cluster::{
    ClusterError, Command, Documents, Metadata, NodeReport,
    orchestrator::{Orchestrator, RebalanceProgress},
};
use dataplane::lease;
use http::Gate as _;
use node::{Leadership, Taken};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time,
};

use crate::{control::Control, copies::reporting::Reply, talk::agreement::Confirmed};

/// How long a report waits for a majority to confirm that this node leads: no longer than the reporting node waits.
const CONFIRMING: Duration = Duration::from_secs(1);
/// The question by which nodes report.
pub(crate) const REPORT: &str = "report";

/// See the module. One per node, at work on the leader only.
pub(crate) struct Orchestration {
    control: Weak<Control>,
    leadership: Mutex<Leadership>,
    reported: Notify,
    /// What was said in the log of nodes whose metadata differ.
    differing: Mutex<Differing>,
    /// When time was first asked for: by the wall clock, and by the one that never jumps.
    began: OnceLock<(u64, u64)>,
}

impl Orchestration {
    /// Hears what nodes report from now on.
    pub(crate) fn new(control: &Arc<Control>) -> Arc<Self> {
        let (leadership, reported, differing, began) = Default::default();
        let me = Arc::new(Self { control: Arc::downgrade(control), leadership, reported, differing, began });
        let listener = Arc::clone(&me);
        control.routes().add_for(REPORT, move |from, body| {
            let listener = Arc::clone(&listener);
            async move { listener.take_encoded(from, &body).await }
        });
        me
    }

    /// Orchestrates while this node leads, until `ended`.
    pub(crate) async fn run(self: Arc<Self>, mut ended: watch::Receiver<bool>) {
        while let Some(control) = self.control.upgrade() {
            let pause = self.leadership.lock().rests_for(&control.metadata(), self.now_millis());
            if pause > 0 {
                tokio::select! {
                    // An error means that the sender is gone: the node stops as well.
                    _ = ended.wait_for(|stop| *stop) => return,
                    _ = time::timeout(Duration::from_millis(pause), self.reported.notified()) => {}
                }
                continue;
            }
            // What is decided belongs to the term by whose knowledge it is.
            let term = control.leads_in().filter(|_| control.caught_up());
            let decided = self.leadership.lock().look(term, &control.metadata(), self.now_millis());
            let Some(term) = term else { continue };
            for command in decided {
                tokio::spawn(Arc::clone(&self).decide(Arc::clone(&control), command, term));
            }
        }
    }

    /// Has the cluster agree on something. That may take long, and what is heard meanwhile must not be missed.
    async fn decide(self: Arc<Self>, control: Arc<Control>, command: Command, term: u64) {
        let outcome = control.decide(command.clone(), term).await;
        self.leadership.lock().ended(term, &command, outcome.is_ok());
        match outcome {
            Ok(_) => self.reported.notify_one(),
            // The leader of that time looks again.
            Err(error) => tracing::debug!(%error, "a change of the map was not accepted"),
        }
    }

    /// Unix milliseconds that never jump, as counted since the start of this process.
    fn now_millis(&self) -> u64 {
        let unix = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let &(unix, clock) = self.began.get_or_init(|| (unix(), lease::clock_millis()));
        unix + (lease::clock_millis() - clock)
    }

    /// Takes a report that came from another node. A node speaks for itself alone. One that was failed over reports as well, and by
    /// what is reported of others these are fenced, or lose elections.
    async fn take_encoded(&self, from: Option<NodeId>, body: &[u8]) -> Result<Vec<u8>, ClusterError> {
        let unreadable = |error: serde_json::Error| ClusterError::Failed(error.to_string());
        let report: NodeReport = serde_json::from_slice(body).map_err(unreadable)?;
        // While nodes are known by a secret, nobody knows which node reports.
        if from.is_some_and(|from| from != report.node) {
            return Err(ClusterError::Failed("a node reports for another one".into()));
        }
        let reply = self.take(report).await?;
        serde_json::to_vec(&reply).map_err(unreadable)
    }

    /// Takes a node's report, once a majority has confirmed that this node leads. A leader that was replaced while it was paused
    /// must not let any node serve, itself included.
    ///
    /// # Errors
    /// When this node does not lead, or knows of no such node.
    pub(crate) async fn take(&self, report: NodeReport) -> Result<Reply, ClusterError> {
        let refused =
            || ClusterError::Failed("this node does not lead, or not the sender of the report".into());
        let control = self.control.upgrade().filter(|control| control.leads()).ok_or_else(refused)?;
        let came = self.now_millis();
        let Confirmed { term, agreed } = control.confirm_leadership(CONFIRMING).await.ok_or_else(refused)?;
        let mut leadership = self.leadership.lock();
        let Taken { is_news, lease_millis, diverged } =
            leadership.take(term, &agreed, report, came).ok_or_else(refused)?;
        let status = status(&leadership, &control.metadata(), control.leader(), self.now_millis());
        drop(leadership);
        self.differing.lock().note(&status, &control.metadata());
        if is_news {
            self.reported.notify_one();
        }
        Ok(Reply { lease_millis, diverged, status })
    }
}

/// What was said in the log of nodes whose metadata differ.
#[derive(Default)]
struct Differing(BTreeMap<NodeId, u64>, BTreeMap<NodeId, u64>);

impl Differing {
    fn note(&mut self, status: &ClusterStatus, metadata: &Metadata) {
        if (&self.0, &self.1) == (&status.diverged, &status.undecided) {
            return;
        }
        for text in admin::differing(metadata, status) {
            tracing::error!("the metadata of nodes differ: {text}");
        }
        (self.0, self.1) = (status.diverged.clone(), status.undecided.clone());
    }
}

/// How the cluster is, for REST on every node.
fn status(
    leadership: &Leadership,
    metadata: &Metadata,
    leader: Option<NodeId>,
    now_millis: u64,
) -> ClusterStatus {
    let Some(orchestrator) = leadership.orchestrator() else {
        return ClusterStatus { stale: true, ..ClusterStatus::default() };
    };
    let is_silent = |id: &NodeId| leadership.is_silent(*id, now_millis);
    let view = |progress: RebalanceProgress| RebalanceView {
        done: progress.total,
        moves_done: progress.moves_done,
        moves_total: progress.moves_total,
        eta_secs: progress.eta_secs,
        waits_for: progress.waits_for,
        bucket: None,
        nodes: progress
            .nodes
            .into_iter()
            .map(|(id, node)| {
                let documents = |documents: Documents| (documents.total, documents.done);
                let (incoming, outgoing) = (documents(node.incoming), documents(node.outgoing));
                (id, NodeShare { done: node.done, incoming, outgoing })
            })
            .collect(),
    };
    let silent: BTreeSet<NodeId> = metadata.nodes.iter().map(|node| node.id).filter(is_silent).collect();
    ClusterStatus {
        stale: false,
        leader,
        cut_off: cut_off(orchestrator, metadata, &silent),
        diverged: orchestrator.divergence().fenced().clone(),
        undecided: orchestrator.divergence().undecided().clone(),
        awaited: awaited(orchestrator, metadata, now_millis),
        silent,
        progress: orchestrator.progress(metadata, now_millis).map(view),
    }
}

/// The nodes that elections wait for.
fn awaited(orchestrator: &Orchestrator, metadata: &Metadata, now_millis: u64) -> Vec<Awaited> {
    let silent = orchestrator.awaited(metadata, now_millis).into_iter().map(|wait| (wait, false));
    let unyielded = orchestrator.unyielded(metadata, now_millis).into_iter().map(|wait| (wait, true));
    let all = silent.chain(unyielded);
    all.map(|(((bucket, node), vbs), may_serve)| Awaited { bucket, node, vbs, may_serve }).collect()
}

/// The replicas that are not fed, where that cannot be put down to a node that is gone.
fn cut_off(orchestrator: &Orchestrator, metadata: &Metadata, silent: &BTreeSet<NodeId>) -> Vec<CutOff> {
    let heard = metadata.nodes.iter().map(|node| node.id).filter(|node| !silent.contains(node));
    let reports = heard.filter_map(|node| orchestrator.last_report(node));
    let pairs = reports.flat_map(|report| report.buckets.iter().map(move |bucket| (report.node, bucket)));
    let outages = pairs.flat_map(|(to, bucket)| {
        bucket.cut_off.iter().map(move |(&from, &copies)| (to, &bucket.uuid, from, copies))
    });
    outages
        .filter(|(_, _, from, _)| !silent.contains(from))
        .filter_map(|(to, bucket, from, copies)| {
            let (name, _) = metadata.bucket_by_uuid(bucket)?;
            Some(CutOff { bucket: name.to_owned(), from, to, copies })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;
    use cluster::{BucketParams, BucketReport, NodeInfo, Ports};

    use super::*;

    fn cluster_of_two() -> Metadata {
        let node = |id: u16| {
            let first = NodeInfo::first(id.to_string(), format!("127.0.0.{id}"), Ports::default());
            NodeInfo { id: NodeId(id), ..first }
        };
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let commands = [Command::SetNode(node(0)), create, Command::AddNode(node(1))];
        commands
            .iter()
            .fold(Metadata::new("c".into(), 1024), |state, command| state.apply(command).unwrap().0)
    }

    #[test]
    fn replicas_that_are_not_fed_are_those_of_nodes_that_are_there() {
        let metadata = cluster_of_two();
        let (uuid, cut_off_from) = (BucketUuid("u".into()), BTreeMap::from([(NodeId(0), 5)]));
        let bucket = BucketReport {
            uuid,
            ready: true,
            vbs: Vec::new(),
            items: 0,
            bytes: 0,
            weights: Vec::new(),
            cut_off: cut_off_from,
            pressure: Default::default(),
            latency: None,
        };
        let mut orchestrator = Orchestrator::new();
        orchestrator.report(
            &metadata,
            NodeReport { boot: 1, buckets: vec![bucket], ..NodeReport::bare(NodeId(1), "1".into(), 1) },
            7,
        );
        let told = |silent: &[NodeId]| cut_off(&orchestrator, &metadata, &silent.iter().copied().collect());
        let expected = CutOff { bucket: "b".into(), from: NodeId(0), to: NodeId(1), copies: 5 };
        assert_eq!(told(&[]), [expected]);
        assert!(told(&[NodeId(0)]).is_empty(), "there is nobody to be fed by");
        assert!(told(&[NodeId(1)]).is_empty(), "what it said last may be old");
    }
}
