//! What nodes tell the leader about themselves. A report replaces the one before it; nothing relies on any single one
//! arriving. One that comes after a later one of the same node is dropped.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole, VbUuid};
use serde::{Deserialize, Serialize};

use crate::{
    consensus::StateMarks,
    metadata::{Metadata, NodeInfo, topology::Membership},
};

/// What is true of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node that reports.
    pub node: NodeId,
    /// Its identity: a report of an earlier owner of the number does not count.
    pub uuid: String,
    /// Random per start of the process.
    pub boot: u64,
    /// When the process was started by its clock, Unix nanoseconds: of two lives of a node the later one counts.
    #[serde(default)]
    pub started: u64,
    /// Grows with each report of a life: an older one that comes late changes nothing. 0 says nothing.
    #[serde(default)]
    pub number: u64,
    /// `Metadata::version` that it acts by.
    pub applied: u64,
    /// The highest level of metadata that it understands; versions that say nothing of levels understand 0.
    #[serde(default)]
    pub level: u32,
    /// The disk with its metadata has been at one write for so long that the node cannot act by what is agreed on. It counts as down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stands_still: bool,
    /// Its metadata differ from those of most nodes since that change: see [`crate::orchestrator::divergence`]. It counts as down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<u64>,
    /// Hashes of what it has made of what was agreed on; absent where some would not understand them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateMarks>,
    /// Bytes buckets may use there in total.
    pub data_quota: u64,
    /// Bytes buckets use there in total.
    pub data_used: u64,
    /// Bytes of the file system with the data.
    pub disk_total: u64,
    /// Bytes free on it.
    pub disk_free: u64,
    /// Every bucket that it has opened, or tries to.
    pub buckets: Vec<BucketReport>,
}

impl NodeReport {
    /// A report of a node that understands the newest level, and has nothing to say of its machine or of buckets.
    #[must_use]
    pub fn bare(node: NodeId, uuid: String, applied: u64) -> Self {
        Self {
            node,
            uuid,
            boot: 0,
            started: 0,
            number: 0,
            applied,
            level: crate::metadata::level::LEVEL,
            stands_still: false,
            diverged: None,
            state: None,
            data_quota: 0,
            data_used: 0,
            disk_total: 0,
            disk_free: 0,
            buckets: Vec::new(),
        }
    }
}

/// What is true of a bucket on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketReport {
    /// Which.
    pub uuid: BucketUuid,
    /// Whether it is open: only then are its vBuckets what the report says.
    pub ready: bool,
    /// vBuckets that are not plainly settled: those that are watched ([`crate::metadata::topology::VbPlan::is_watched`]), unconfirmed ones, and those
    /// that were reported differently last time.
    pub vbs: Vec<VbReport>,
    /// Documents of active vBuckets.
    pub items: u64,
    /// Bytes that copying every vBucket that is here would send.
    pub bytes: u64,
    /// What copying a vBucket would send, for active ones; may be left out when nothing moves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(VbId, Weight)>,
    /// By the node that they follow: replicas that shall be fed, settled ones too, and have not been for long.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut_off: BTreeMap<NodeId, u32>,
    /// How those who write to it fare.
    #[serde(default, skip_serializing_if = "Pressure::is_none")]
    pub pressure: Pressure,
    /// How operations fare against the bucket's objective, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyReport>,
}

/// What copying a vBucket would send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// So many bytes, about.
    pub bytes: u64,
    /// So many documents.
    pub items: u64,
}

/// What a bucket's want of memory, or of a disk that keeps up, means to those who write to it on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pressure {
    /// Nothing.
    #[default]
    None,
    /// What grows memory waits for the disk.
    Pacing,
    /// What grows memory is refused for now.
    Refusing,
}

impl Pressure {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// How operations of a bucket fare on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// What the 99th percentile shall stay below.
    pub objective_us: u32,
    /// The 99th percentile of late.
    pub p99_us: u32,
}

/// What is true of one copy of a vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VbReport {
    /// Which.
    pub vb: VbId,
    /// The term it acts by.
    pub term: u64,
    /// What it is.
    pub role: VbRole,
    /// Opened after an unclean stop and not confirmed yet: it serves nothing.
    pub unconfirmed: bool,
    /// The branch of history that its last mutation lies on.
    pub vb_uuid: VbUuid,
    /// The last mutation it has.
    pub high_seqno: Seqno,
    /// Up to here it holds everything, every durable write among it, in memory at least, and can read it. (Versions before
    /// told less under this name.)
    #[serde(rename = "high_prepared")]
    pub held: Seqno,
    /// Up to here everything is on disk, and whole after a kill.
    pub persisted: Seqno,
    /// The last mutation that is on disk, where that is further on: what is left to do goes by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced: Option<Seqno>,
    /// Whether it holds everything up to `high_seqno`: not so before an initial copy has been received to its end.
    pub complete: bool,
    /// It has lost what it had in memory, or all, at its last stop, and has not caught up with an active copy since. It may be
    /// chosen, but does not count when an active copy is.
    #[serde(default)]
    pub may_lack: bool,
    /// It is active, and durable writes have begun to go to disk with a majority, because a node of its chain leaves gracefully.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_disk: bool,
    /// Whether a stream of this term from the active copy is open.
    pub following: bool,
    /// It is to take over, and an index of it that queries wait for is not close behind it yet. An older version says nothing of that, so
    /// nobody waits for its indexes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indexing: bool,
}

impl Metadata {
    /// How long the sender of that report may serve unheard. A node that was failed over gets no lease before it says that it knows, even
    /// if it counts again by then. It still acts by older metadata, and would serve what is another node's.
    #[must_use]
    pub fn lease_for(&self, report: &NodeReport) -> Option<u64> {
        let node = self.reporter(report)?;
        let knows = node.excluded.is_none_or(|excluded| report.applied >= excluded.version);
        self.lease_ms().filter(|_| knows && node.membership == Membership::Active)
    }

    /// The node that a report is of. One that joins reports for a moment as what it was in a cluster of its own, under a
    /// number that is another's here. That is nobody's report.
    #[must_use]
    pub fn reporter(&self, report: &NodeReport) -> Option<&NodeInfo> {
        self.node_by_id(report.node).filter(|node| node.uuid == report.uuid)
    }
}
