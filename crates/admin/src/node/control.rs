//! What this crate asks of the server around it. `daemon` implements [`NodeControl`]; tests do so over a bare
//! [`cluster::Metadata`].

use std::{
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Bytes;
use base::{BucketUuid, NodeId};
use cluster::{Applied, Authority, ClusterError, Command, NodeInfo, auth::Identity, consensus::Epoch};
use http::{Behind, BoxFuture, Gate};
use serde::{Deserialize, Serialize};
use stats::{ConnectionsReport, HotReport, Reading, Samples, SlowOperation, Statistic, SystemStats, Zoom};
use watch::sdk::Report;

use super::{
    alerts::FiringAlert,
    audit::{TrailPage, TrailQuestion},
    certificates::Certificates,
    cluster_status::{ClusterStatus, Notice},
    counted::Counted,
    documents::{DocumentAnswer, DocumentQuestion},
    forecasts::Foretold,
    latency::{LatencyPast, LatencyZoom},
    mail::{Mail, MailLog},
    probes::Probed,
};

/// The node as REST sees and steers it.
pub trait NodeControl: Gate {
    /// Tells of every change of `Metadata::rev`.
    fn watch(&self) -> tokio::sync::watch::Receiver<i64>;
    /// The uuid of the node that answers.
    fn this_node(&self) -> String;
    /// Decides, makes durable and carries out a command. When it resolves with success, a created bucket is being
    /// served on this node.
    fn submit(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>>;
    /// Whether this node knows what its cluster agreed on before it started, and so acts on nothing old.
    fn knows_cluster(&self) -> bool;
    /// How the cluster is: never waits, and is a second old at most while there is a leader.
    fn cluster_status(&self) -> Arc<ClusterStatus> {
        Arc::default()
    }
    /// Answers another node of the cluster: a request to `/_settee/` and `name`. `from`: the node whose key has signed for it.
    fn internal<'a>(
        &'a self,
        name: &'a str,
        from: Option<NodeId>,
        body: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, ClusterError>> {
        let _ = (from, body);
        Box::pin(std::future::ready(Err(ClusterError::NotSupported(format!("{name} is not known")))))
    }
    /// Puts a question of another node to the service of that name. Resolves once the answer begins, or with why there is none.
    fn ask_service<'a>(
        &'a self,
        service: &'a str,
        question: Bytes,
        from: &'a Identity,
    ) -> BoxFuture<'a, Result<Box<dyn AnswerParts>, String>> {
        let _ = (question, from);
        Box::pin(std::future::ready(Err(format!("no service {service} runs here"))))
    }
    /// How far the indexes of a bucket's views are that are fed on this node.
    fn indexing(&self, bucket: &str) -> Vec<Indexing> {
        let _ = bucket;
        Vec::new()
    }
    /// How far compactions of indexes of a bucket's views are on this node that somebody asked for, in bytes.
    fn compacting(&self, bucket: &str) -> Vec<Indexing> {
        let _ = bucket;
        Vec::new()
    }
    /// What answers clients of the service of that name that come by this port.
    fn behind(&self, service: &str) -> Option<Arc<dyn Behind>> {
        let _ = service;
        None
    }
    /// Does something with documents whose active copies are on this node.
    fn documents(&self, question: DocumentQuestion) -> BoxFuture<'_, Result<DocumentAnswer, ClusterError>> {
        let _ = question;
        Box::pin(std::future::ready(Err(ClusterError::NotSupported("this node shows no documents".into()))))
    }
    /// What a node that was made a member has to know to join.
    fn offer(&self, uuid: &str) -> Result<JoinOffer, ClusterError>;
    /// Makes this node part of another cluster, and forgets the one it had to itself: when it resolves with success, the
    /// metadata is that cluster's.
    fn join(&self, offer: JoinOffer) -> BoxFuture<'_, Result<(), ClusterError>>;
    /// Makes this node new, whatever it belongs to, without telling anybody: when it resolves with success, it serves
    /// nothing, and nobody administers it.
    fn reset(&self) -> BoxFuture<'_, Result<(), ClusterError>>;
    /// Sends a request to the REST interface of another node, and waits for the whole answer: its status and body.
    fn call_node(&self, call: NodeCall) -> BoxFuture<'_, Result<(u16, Vec<u8>), ClusterError>>;
    /// Waits until every active node has carried out what this one knows by now, and executes nothing any more that began before.
    /// Tells whether that was so in time; the others will follow all the same.
    fn all_follow(&self) -> BoxFuture<'_, bool>;
    /// Whether another node still has a bucket of that name which this one does not know any more, of the nodes that can be asked.
    fn is_held_elsewhere<'a>(&'a self, name: &'a str) -> BoxFuture<'a, bool>;
    /// Empties the bucket of that name and uuid.
    fn flush_bucket<'a>(
        &'a self,
        name: &'a str,
        uuid: &'a BucketUuid,
    ) -> BoxFuture<'a, Result<(), ClusterError>>;
    /// Starts compacting a bucket.
    fn compact_bucket<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ClusterError>>;
    /// Whether the bucket is open and its warm-up done: `healthy` for clients that wait until ready.
    fn bucket_is_ready(&self, name: &str) -> bool;
    /// Figures of a bucket on this node; `None` when it is not open.
    fn bucket_stats(&self, name: &str) -> Option<BucketStatsView>;
    /// What the statistics of a bucket say on this node; empty when it is not open.
    fn readings(&self, bucket: &str) -> Vec<Reading>;
    /// What the statistics of the process and the machine say.
    fn node_readings(&self) -> Vec<Reading>;
    /// Every statistic that is declared, by what it is about.
    fn statistics(&self) -> Vec<(&'static str, Vec<&'static Statistic>)>;
    /// What this node has sampled of a bucket; nothing when it is not open.
    fn samples(&self, bucket: &str, zoom: Zoom) -> Option<Samples>;
    /// How long operations of a bucket took on this node; nothing when it is not open.
    fn latency_past(&self, bucket: &str, zoom: LatencyZoom) -> Option<LatencyPast> {
        let _ = (bucket, zoom);
        None
    }
    /// Operations that took long on this node of late, the oldest first.
    fn slow_operations(&self) -> Vec<SlowOperation> {
        Vec::new()
    }
    /// The keys that most operations of a bucket on this node go to, and the clients that they come from. Nothing when the
    /// bucket is not open, or another one of that name is. No `uuid` stands for any.
    fn hot(&self, bucket: &str, uuid: Option<&BucketUuid>) -> Option<HotReport> {
        let _ = (bucket, uuid);
        None
    }
    /// What connections to this node do. Takes a moment, in which they are watched.
    fn connections(&self) -> BoxFuture<'_, ConnectionsReport> {
        Box::pin(std::future::ready(ConnectionsReport::default()))
    }
    /// The newest events of this node's audit trail before a place in it. Nothing where it cannot be read.
    fn trail(&self, question: TrailQuestion) -> BoxFuture<'_, Option<TrailPage>> {
        let _ = question;
        Box::pin(std::future::ready(None))
    }
    /// What fires on this node, the gravest first.
    fn firing_alerts(&self) -> Vec<FiringAlert> {
        Vec::new()
    }
    /// What this node foretells of itself.
    fn forecasts(&self) -> Vec<Foretold> {
        Vec::new()
    }
    /// What this node has counted for every objective.
    fn objectives(&self) -> Vec<Counted> {
        Vec::new()
    }
    /// Sends a mail, or says why it could not be sent.
    fn send_mail(&self, mail: Mail) -> BoxFuture<'_, Result<(), String>> {
        let _ = mail;
        Box::pin(std::future::ready(Err("this node sends no mail".into())))
    }
    /// What has become of this node's mails.
    fn mail_log(&self) -> MailLog {
        MailLog::default()
    }
    /// A client of this node has told how long its operations took.
    fn told_by_sdk(&self, report: &Report) {
        let _ = report;
    }
    /// How many clients this node asks for that.
    fn sdks_connected(&self, count: usize) {
        let _ = count;
    }
    /// What this node's probes have found.
    fn probed(&self) -> Vec<Probed> {
        Vec::new()
    }
    /// Where this node keeps archives of its logs that nobody has chosen another place for. It may be missing.
    fn collected_folder(&self) -> PathBuf;
    /// Figures of the machine and the process.
    fn system(&self) -> SystemStats;
    /// What an administrator must know now, in the words of Couchbase's alerts where it has some.
    fn alerts(&self) -> Vec<Notice> {
        Vec::new()
    }
    /// What keeps this node from serving although it knows its cluster.
    fn obstacles(&self) -> Vec<Obstacle> {
        Vec::new()
    }
    /// This node's certificates.
    fn certificates(&self) -> Arc<dyn Certificates>;
}

/// An answer that comes part by part. Dropping it ends what makes it.
pub trait AnswerParts: Send {
    /// The next part. An answer that ends by an error is not whole.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, String>>>;
}

/// What keeps a node from serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Others may serve by now what is active on it.
    NoLease,
    /// The disk does not take the cluster's metadata.
    MetadataLog,
    /// The disk does not take documents.
    Disk,
}

/// What a cluster tells a node that it has made a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinOffer {
    /// The cluster.
    pub cluster_uuid: String,
    /// The level of its metadata.
    #[serde(default)]
    pub level: u32,
    /// The node's number in it.
    pub node: NodeId,
    /// The life of the group that agrees on its metadata.
    #[serde(default)]
    pub epoch: Epoch,
    /// Password of the internal user by which nodes know each other; empty where they know each other by their keys.
    pub secret: String,
    /// What vouches for nodes under TLS.
    #[serde(default)]
    pub authority: Option<Authority>,
    /// Every member, the new one included.
    pub members: Vec<NodeInfo>,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A member of this cluster, which is spoken to as the cluster says.
    Member(NodeId),
    /// One of which nothing is known but where it is.
    Stranger {
        /// Its name or address.
        host: String,
        /// Its REST port.
        port: u16,
        /// Whether that is the one for TLS.
        tls: bool,
    },
}

/// A request to another node's REST interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCall {
    /// To whom.
    pub to: Callee,
    /// `GET`, `POST`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// User and password for a stranger. At a member the node logs in as what it is.
    pub credentials: Option<(String, String)>,
    /// Of the body.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

/// How far the index of a design document is on a node. Nodes tell it to one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Indexing {
    /// The design document, with `_design/`.
    pub design_document: String,
    /// Changes that the index has, or bytes that are compacted.
    pub done: u64,
    /// Changes that it shall have, or bytes that are to be compacted.
    pub total: u64,
}

/// Figures of one bucket on this node. Nodes tell them to one another: one of another version may know fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketStatsView {
    /// Documents of active vBuckets.
    pub items: u64,
    /// Documents of replicas.
    pub replica_items: u64,
    /// Bytes taken from the quota.
    pub mem_used: u64,
    /// Bytes that cannot leave memory. Nodes of earlier versions do not tell it.
    pub mem_floor: u64,
    /// The smallest quota that leaves room beside them.
    pub quota_min: u64,
    /// Bytes of files.
    pub disk_used: u64,
    /// Bytes of files that hold current documents.
    pub data_used: u64,
    /// Operations in the last second.
    pub ops_per_sec: f64,
    /// Reads in the last second.
    pub gets_per_sec: f64,
    /// Those that found something.
    pub get_hits_per_sec: f64,
    /// Reads from disk in the last second.
    pub disk_fetches_per_sec: f64,
    /// Documents of active vBuckets whose values are on disk only.
    pub non_resident: u64,
    /// Share of documents whose value is in memory, in percent.
    pub resident_percent: f64,
    /// Mutations not yet written.
    pub disk_queue: u64,
    /// Open connections to the bucket.
    pub connections: u64,
    /// Operations since start: reads, reads that found something, writes, deletes.
    pub gets: u64,
    /// See `gets`.
    pub get_hits: u64,
    /// See `gets`.
    pub sets: u64,
    /// See `gets`.
    pub deletes: u64,
    /// Connections that stream changes.
    pub dcp_producers: u64,
    /// Changes sent on connections, those that have ended among them.
    pub dcp_items_sent: u64,
    /// Changes that they have not come to, at most.
    pub dcp_items_remaining: u64,
    /// Bytes sent on them.
    pub dcp_bytes_sent: u64,
    /// Connections between this node and others that follow its copies, or whose copies it follows.
    pub links: u64,
    /// What was said of `dcp_…`, of those connections alone.
    pub links_items_sent: u64,
    /// See `links_items_sent`.
    pub links_items_remaining: u64,
    /// See `links_items_sent`.
    pub links_bytes_sent: u64,
    /// What those bytes would be without compression.
    pub links_inflated_bytes_sent: u64,
    /// Replicas that shall follow another node's copy now, and do not.
    pub replicas_cut_off: u64,
    /// Bytes of files of the indexes of views.
    pub views_disk_used: u64,
    /// Bytes of those files that are current.
    pub views_data_used: u64,
}
