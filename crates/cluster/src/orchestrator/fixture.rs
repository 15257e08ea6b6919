//! For tests of what the leader makes of reports: one vBucket on its way from one node to another.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole};

use super::heard::Heard;
use crate::{
    changes::{Command, bucket::BucketParams},
    metadata::{Metadata, NodeInfo, Ports, topology::VbPlan},
    orchestrator::report::{BucketReport, NodeReport, VbReport, Weight},
};

pub(super) const BUCKET: &str = "0123456789abcdef0123456789abcdef";
pub(super) const VB: VbId = VbId(0);
pub(super) const OLD: NodeId = NodeId(0);
pub(super) const NEW: NodeId = NodeId(1);

/// One vBucket that is to go from one node to another, where a copy of it is being made.
pub(super) fn one_moves() -> Metadata {
    let first = NodeInfo::first("0".into(), "127.0.0.1".into(), Ports::default());
    let params = BucketParams { ram_quota_mb: Some(100), replicas: Some(0), ..BucketParams::default() };
    let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid(BUCKET.into()), params };
    let mut meta = Metadata::new("c".repeat(32), 1024).apply(&Command::SetNode(first)).unwrap().0;
    (meta, _) = meta.apply(&create).unwrap();
    let bucket = meta.buckets.get_mut("b").unwrap();
    bucket.vbs = vec![VbPlan { building: vec![NEW], ..VbPlan::settled(vec![OLD], 1) }].into();
    bucket.target = Some(vec![vec![NEW]].into());
    meta
}

/// What a node says of its copy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) seqno: u64,
    pub(super) persisted: u64,
    pub(super) complete: bool,
    pub(super) weight: Option<Weight>,
}

/// A node says what has come so far.
pub(super) fn say(heard: &mut Heard, node: NodeId, said: Said, now_ms: u64) {
    let role = if node == OLD { VbRole::Active } else { VbRole::Replica };
    let copy = VbReport {
        vb: VB,
        term: 1,
        role,
        unconfirmed: false,
        vb_uuid: base::VbUuid(1),
        high_seqno: Seqno(said.seqno),
        held: Seqno(0),
        persisted: Seqno(said.persisted),
        synced: None,
        complete: said.complete,
        may_lack: false,
        to_disk: false,
        following: role == VbRole::Replica,
        indexing: false,
    };
    let bucket = BucketReport {
        uuid: BucketUuid(BUCKET.into()),
        ready: true,
        vbs: vec![copy],
        items: 0,
        bytes: 0,
        weights: said.weight.into_iter().map(|weight| (VB, weight)).collect(),
        cut_off: BTreeMap::new(),
        pressure: crate::orchestrator::report::Pressure::None,
        latency: None,
    };
    let report = NodeReport { buckets: vec![bucket], ..NodeReport::bare(node, node.get().to_string(), 0) };
    heard.take(report, false, now_ms);
}
