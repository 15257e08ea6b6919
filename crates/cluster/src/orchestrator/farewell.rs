//! When nodes may go that are failed over gracefully: once those that are left have on disk what was acknowledged until then.
//!
//! A copy that is left may be killed between the proposal that ends the failover and the agreement on it. What it has on disk is then all
//! there is, because a node that has left serves nobody. So durable writes go to disk from when the failover begins
//! ([`Metadata::synced_beside`]). What an active copy had when it first said that they do is the floor: everything that was acknowledged in
//! memory lies below it. The failover ends once that is on the disk of every copy that is left. From then on nothing is acknowledged that
//! the nodes that leave have and no other disk has.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId};

use super::{Orchestrator, vb};
use crate::metadata::{Metadata, topology::VbPlan};

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Floors {
    /// The failover, and the version of the metadata in which this leader saw it first. What nodes say that act by earlier versions may
    /// be of another failover, which was stopped.
    of: Option<(String, u64)>,
    /// Of buckets, by vBucket: a term, and how far its active copy had got when its durable writes began to go to disk.
    known: BTreeMap<BucketUuid, BTreeMap<VbId, (u64, Seqno)>>,
}

impl Floors {
    /// How far the active copy of a vBucket had got, in the term of this plan.
    pub(super) fn of(&self, bucket: &BucketUuid, vb: VbId, plan: &VbPlan) -> Option<Seqno> {
        self.known.get(bucket)?.get(&vb).filter(|known| known.0 == plan.term).map(|known| known.1)
    }
}

impl Orchestrator {
    /// Notes floors of vBuckets that nodes leave, and forgets those of others.
    pub(super) fn note_floors(&mut self, meta: &Metadata) {
        let id = meta.rebalance.as_ref().filter(|_| !meta.leaving_gracefully().is_empty()).map(|now| &now.id);
        if self.floors.of.as_ref().map(|of| &of.0) != id {
            self.floors = Floors { of: id.map(|id| (id.clone(), meta.version)), known: BTreeMap::new() };
        }
        let Some(version) = self.floors.of.as_ref().map(|of| of.1) else { return };
        let mut floors = BTreeMap::new();
        for bucket in meta.buckets.values().filter(|bucket| !meta.synced_beside(bucket.kind).is_empty()) {
            let before = self.floors.known.remove(&bucket.uuid).unwrap_or_default();
            let floor = |(at, plan): (usize, &VbPlan)| {
                let vb = VbId(at as u16);
                let known = before.get(&vb).filter(|known| known.0 == plan.term).copied();
                let said = || {
                    let active = plan.active()?;
                    let is_new = self.heard.report(active)?.applied >= version;
                    let copy = self.heard.copy(active, &bucket.uuid, vb)?;
                    (is_new && copy.to_disk && vb::leads(copy, plan)).then_some((plan.term, copy.high_seqno))
                };
                Some((vb, known.or_else(said)?))
            };
            floors.insert(bucket.uuid.clone(), bucket.vbs.iter().enumerate().filter_map(floor).collect());
        }
        self.floors.known = floors;
    }

    /// Looks for a node that may lack something on disk although it remains in some chain after a graceful failover which is to end.
    /// Returns it with the bucket.
    pub(super) fn first_unsynced(&self, meta: &Metadata, now_ms: u64) -> Option<(NodeId, BucketUuid)> {
        if meta.leaving_gracefully().is_empty() || !meta.is_at_target() {
            return None;
        }
        meta.buckets.values().find_map(|bucket| {
            let leaving = meta.synced_beside(bucket.kind);
            let unsynced = |(at, plan): (usize, &VbPlan)| {
                self.scene(meta, (bucket, VbId(at as u16), plan, None), now_ms).unsynced(leaving)
            };
            Some((bucket.vbs.iter().enumerate().find_map(unsynced)?, bucket.uuid.clone()))
        })
    }
}
