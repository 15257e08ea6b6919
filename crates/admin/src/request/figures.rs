//! Figures of every node. A node knows its own, and asks the others at most once in a while, however many clients want
//! to know. It asks all of them at once and with little patience. A node that does not answer in time is shown without
//! figures, and holds no answer up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base::NodeId;
use cluster::{Metadata, NodeInfo};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use stats::SystemStats;

use super::collecting::{Collecting, Told};
use crate::node::control::{BucketStatsView, Callee, Indexing, NodeCall, NodeControl};

/// Where a node tells its figures to the others.
const PATH: &str = "/_settee/figures";
/// How old figures may be.
const FRESH: Duration = Duration::from_secs(1);
/// How long a node may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How long a node that is too busy to answer is still taken for what it was last. It is longer than the leader takes to
/// find out that a node is gone.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What a node knows about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeFigures {
    pub(crate) system: SystemStats,
    /// By bucket name.
    pub(crate) buckets: BTreeMap<String, BucketStatsView>,
    /// How far indexes are that are fed, by bucket name.
    #[serde(default)]
    pub(crate) indexing: BTreeMap<String, Vec<Indexing>>,
    /// How far compactions of indexes are, by bucket name.
    #[serde(default)]
    pub(crate) compacting: BTreeMap<String, Vec<Indexing>>,
    /// Buckets that serve.
    pub(crate) ready: BTreeSet<String>,
    /// The certificate that its TLS ports show to clients, in PEM.
    #[serde(default)]
    pub(crate) certificate: Option<String>,
    /// What it does to collect logs.
    #[serde(default)]
    pub(crate) collecting: Told,
}

impl NodeFigures {
    /// Those of this node.
    fn own(control: &dyn NodeControl, meta: &Metadata, collecting: Told) -> Self {
        let names = || meta.buckets.keys();
        Self {
            system: control.system(),
            buckets: names().filter_map(|name| Some((name.clone(), control.bucket_stats(name)?))).collect(),
            indexing: names().map(|name| (name.clone(), control.indexing(name))).collect(),
            compacting: names().map(|name| (name.clone(), control.compacting(name))).collect(),
            ready: names().filter(|name| control.bucket_is_ready(name)).cloned().collect(),
            certificate: control.certificates().chain_pem(),
            collecting,
        }
    }

    /// All buckets together.
    pub(crate) fn sum(&self) -> BucketStatsView {
        self.buckets.values().fold(BucketStatsView::default(), add)
    }
}

/// What every node has said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterFigures(BTreeMap<NodeId, Known>);

/// What a node has said, and how long ago.
#[derive(Clone, Debug)]
struct Known {
    figures: Arc<NodeFigures>,
    age: Duration,
}

impl Known {
    /// Whether it is recent enough to be added up.
    fn counts(&self) -> bool {
        self.age < FRESH + PATIENCE
    }
}

impl ClusterFigures {
    /// What a node said last; nothing where it has not answered for long.
    pub(crate) fn node(&self, node: NodeId) -> Option<&NodeFigures> {
        self.0.get(&node).filter(|known| known.age < REMEMBERED).map(|known| known.figures.as_ref())
    }

    /// What a node said last, however long ago; and how long, where it does not count any more.
    pub(crate) fn last(&self, node: NodeId) -> Option<(&NodeFigures, Option<Duration>)> {
        let known = self.0.get(&node)?;
        Some((&known.figures, (!known.counts()).then_some(known.age)))
    }

    /// What counts now of every node.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeFigures)> {
        let counting = self.0.iter().filter(|(_, known)| known.counts());
        counting.map(|(&node, known)| (node, known.figures.as_ref()))
    }

    /// Members whose figures do not count now: sums are without them.
    pub(crate) fn missing<'a>(&'a self, meta: &'a Metadata) -> impl Iterator<Item = &'a NodeInfo> {
        let counts = |node: &NodeInfo| self.0.get(&node.id).is_some_and(Known::counts);
        meta.active_nodes().filter(move |node| !counts(node))
    }

    /// A bucket's figures on each node, as far as they count.
    pub(crate) fn of_bucket<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a BucketStatsView> {
        self.nodes().filter_map(move |(_, figures)| figures.buckets.get(name))
    }

    /// How far the indexes of a bucket are over all nodes, by design document: changes that they have, and shall have.
    pub(crate) fn indexing(&self, name: &str) -> BTreeMap<&str, (u64, u64)> {
        by_document(self.nodes().filter_map(|(_, figures)| figures.indexing.get(name)))
    }

    /// The same of compactions: bytes that are compacted, and those that are to be.
    pub(crate) fn compacting(&self, name: &str) -> BTreeMap<&str, (u64, u64)> {
        by_document(self.nodes().filter_map(|(_, figures)| figures.compacting.get(name)))
    }

    /// A bucket's figures over all nodes.
    pub(crate) fn sum(&self, name: &str) -> BucketStatsView {
        self.of_bucket(name).fold(BucketStatsView::default(), add)
    }
}

/// What nodes have done and shall have done, by design document.
fn by_document<'a>(nodes: impl Iterator<Item = &'a Vec<Indexing>>) -> BTreeMap<&'a str, (u64, u64)> {
    let mut all = BTreeMap::new();
    for index in nodes.flatten() {
        let (done, total) = all.entry(index.design_document.as_str()).or_insert((0_u64, 0_u64));
        *done = done.saturating_add(index.done);
        *total = total.saturating_add(index.total);
    }
    all
}

/// The sum of two figures; the resident share is weighted by documents.
fn add(a: BucketStatsView, b: &BucketStatsView) -> BucketStatsView {
    BucketStatsView {
        items: a.items + b.items,
        replica_items: a.replica_items + b.replica_items,
        mem_used: a.mem_used + b.mem_used,
        mem_floor: a.mem_floor + b.mem_floor,
        quota_min: a.quota_min.max(b.quota_min),
        disk_used: a.disk_used + b.disk_used,
        data_used: a.data_used + b.data_used,
        ops_per_sec: a.ops_per_sec + b.ops_per_sec,
        gets_per_sec: a.gets_per_sec + b.gets_per_sec,
        get_hits_per_sec: a.get_hits_per_sec + b.get_hits_per_sec,
        non_resident: a.non_resident + b.non_resident,
        disk_fetches_per_sec: a.disk_fetches_per_sec + b.disk_fetches_per_sec,
        resident_percent: resident_percent(&a, b),
        disk_queue: a.disk_queue + b.disk_queue,
        views_disk_used: a.views_disk_used + b.views_disk_used,
        views_data_used: a.views_data_used + b.views_data_used,
        connections: a.connections + b.connections,
        gets: a.gets + b.gets,
        get_hits: a.get_hits + b.get_hits,
        sets: a.sets + b.sets,
        deletes: a.deletes + b.deletes,
        dcp_producers: a.dcp_producers + b.dcp_producers,
        dcp_items_sent: a.dcp_items_sent + b.dcp_items_sent,
        dcp_items_remaining: a.dcp_items_remaining + b.dcp_items_remaining,
        dcp_bytes_sent: a.dcp_bytes_sent + b.dcp_bytes_sent,
        links: a.links + b.links,
        links_items_sent: a.links_items_sent + b.links_items_sent,
        links_items_remaining: a.links_items_remaining + b.links_items_remaining,
        links_bytes_sent: a.links_bytes_sent + b.links_bytes_sent,
        links_inflated_bytes_sent: a.links_inflated_bytes_sent + b.links_inflated_bytes_sent,
        replicas_cut_off: a.replicas_cut_off + b.replicas_cut_off,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a percentage")]
fn resident_percent(a: &BucketStatsView, b: &BucketStatsView) -> f64 {
    match a.items + b.items {
        // Nothing is missing where nothing is.
        0 => b.resident_percent,
        all => (a.resident_percent * a.items as f64 + b.resident_percent * b.items as f64) / all as f64,
    }
}

/// Asks the nodes, and remembers for a moment what they said.
#[derive(Default)]
pub(crate) struct Figures {
    known: Mutex<BTreeMap<NodeId, (Instant, Arc<NodeFigures>)>>,
    /// Held by the task that asks; others wait for the answers instead of asking, too.
    asking: tokio::sync::Mutex<()>,
    /// What this node does to collect logs.
    pub(crate) collecting: Collecting,
}

impl Figures {
    /// Figures of every node, a second old at most.
    pub(crate) async fn fresh(&self, control: &Arc<dyn NodeControl>, meta: &Metadata) -> ClusterFigures {
        let this = control.this_node();
        let others: Vec<&NodeInfo> = meta.nodes.iter().filter(|node| node.uuid != this).collect();
        if self.misses(&others) {
            let _turn = self.asking.lock().await;
            let status = control.cluster_status();
            let wanted =
                others.iter().filter(|node| self.misses(&[node]) && !status.silent.contains(&node.id));
            for (node, figures) in ask_all(control, wanted.copied()).await {
                self.lock().insert(node, (Instant::now(), Arc::new(figures)));
            }
        }
        self.known(control.as_ref(), meta)
    }

    /// Those of this node.
    pub(crate) fn own(&self, control: &dyn NodeControl, meta: &Metadata) -> NodeFigures {
        NodeFigures::own(control, meta, self.collecting.told())
    }

    /// What is known without asking anybody.
    pub(crate) fn known(&self, control: &dyn NodeControl, meta: &Metadata) -> ClusterFigures {
        let mut known = self.lock();
        known.retain(|node, _| meta.node_by_id(*node).is_some());
        let said = known
            .iter()
            .map(|(&node, (at, figures))| (node, Known { figures: Arc::clone(figures), age: at.elapsed() }));
        let mut all: BTreeMap<_, _> = said.collect();
        if let Some(this) = meta.node(&control.this_node()) {
            let own = Arc::new(self.own(control, meta));
            all.insert(this.id, Known { figures: own, age: Duration::ZERO });
        }
        ClusterFigures(all)
    }

    fn misses(&self, nodes: &[&NodeInfo]) -> bool {
        let known = self.lock();
        nodes.iter().any(|node| known.get(&node.id).is_none_or(|(at, _)| at.elapsed() >= FRESH))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, (Instant, Arc<NodeFigures>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What those nodes say that answer in time.
async fn ask_all<'a>(
    control: &Arc<dyn NodeControl>,
    nodes: impl Iterator<Item = &'a NodeInfo>,
) -> Vec<(NodeId, NodeFigures)> {
    let mut asked = tokio::task::JoinSet::new();
    for node in nodes {
        let (control, id, question) = (Arc::clone(control), node.id, question(node, PATH, Vec::new()));
        asked.spawn(async move { (id, ask(control.as_ref(), question).await) });
    }
    let answers = asked.join_all().await.into_iter();
    answers.filter_map(|(node, figures)| Some((node, figures?))).collect()
}

/// Asks a node, with little patience.
pub(crate) async fn ask<T: DeserializeOwned>(control: &dyn NodeControl, question: NodeCall) -> Option<T> {
    serde_json::from_slice(&ask_bytes(control, question).await?).ok()
}

/// The same, for an answer that is kept as it is.
pub(crate) async fn ask_bytes(control: &dyn NodeControl, question: NodeCall) -> Option<Vec<u8>> {
    let (status, body) = tokio::time::timeout(PATIENCE, control.call_node(question)).await.ok()?.ok()?;
    (status == 200).then_some(body)
}

/// What a node asks another as a member of its cluster.
pub(crate) fn question(node: &NodeInfo, path: &str, body: Vec<u8>) -> NodeCall {
    NodeCall {
        to: Callee::Member(node.id),
        method: "POST".into(),
        path: path.into(),
        credentials: None,
        content_type: "application/json".into(),
        body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_slow_to_answer_is_remembered_and_not_added_up() {
        let mut figures = NodeFigures::default();
        figures.buckets.insert("b".into(), BucketStatsView { items: 3, ..Default::default() });
        let figures = Arc::new(figures);
        let told = |age: u64| {
            let known = Known { figures: Arc::clone(&figures), age: Duration::from_millis(age) };
            ClusterFigures(BTreeMap::from([(NodeId(1), known)]))
        };
        for (age, is_known, items) in [(0, true, 3), (1_900, true, 3), (2_000, true, 0), (10_000, false, 0)] {
            let told = told(age);
            assert_eq!((told.node(NodeId(1)).is_some(), told.sum("b").items), (is_known, items), "{age} ms");
            let (last, old) = told.last(NodeId(1)).unwrap();
            let expected = (3, (items == 0).then_some(Duration::from_millis(age)));
            assert_eq!((last.sum().items, old), expected, "what was said last can be shown with its age");
        }
    }

    #[test]
    fn figures_add_up_and_shares_are_weighted() {
        let one = BucketStatsView { items: 30, resident_percent: 100.0, quota_min: 5, ..Default::default() };
        let other = BucketStatsView { items: 10, resident_percent: 20.0, quota_min: 9, sets: 2, ..one };
        let sum = add(one, &other);
        assert_eq!((sum.items, sum.sets, sum.quota_min), (40, 2, 9));
        assert!((sum.resident_percent - 80.0).abs() < 1e-9, "{}", sum.resident_percent);
        let empty = BucketStatsView { resident_percent: 100.0, ..Default::default() };
        assert!((add(BucketStatsView::default(), &empty).resident_percent - 100.0).abs() < 1e-9);
    }
}
