//! A node that does what plans say, as slowly and unreliably as nodes do. Of documents it has only their order: a copy is
//! a list of the numbers of its writes.

use std::collections::BTreeMap;

use base::{BucketUuid, NodeId, Seqno, VbId, VbRole, VbUuid};
use settee_cluster::{
    BucketInfo, BucketReport, Membership, Metadata, NodeReport, Pressure, Recovery, VbPhase, VbPlan,
    VbReport, Weight,
};

pub(crate) type CopyId = (BucketUuid, VbId);

/// Where a branch's name has its generation.
const GENERATION_SHIFT: u32 = 30;

/// One copy of a vBucket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copy {
    pub(crate) role: VbRole,
    pub(crate) term: u64,
    pub(crate) log: Vec<u64>,
    /// Where each of its history's branches begins, and the branch's generation.
    branches: Vec<(usize, u64)>,
    /// How much of it a crash leaves.
    pub(crate) synced: usize,
    /// How much there must be of an initial copy for it to count as complete; 0 for one that was there from the start.
    pub(crate) initial: usize,
    pub(crate) complete: bool,
    pub(crate) unconfirmed: bool,
    pub(crate) following: bool,
}

impl Copy {
    /// Takes something of what the active copy has. With more than that, or other things, it begins again from nothing.
    pub(crate) fn follow(&mut self, active: &Copy, most: usize) {
        if !active.log.starts_with(&self.log) {
            self.log.clear();
            (self.synced, self.complete, self.following) = (0, false, false);
        }
        let common = self.log.len();
        if !self.following {
            self.following = true;
            if !self.complete {
                self.initial = active.log.len();
            }
        }
        let end = active.log.len().min(common + most);
        self.log.extend_from_slice(&active.log[common..end]);
        self.branches.clone_from(&active.branches);
        self.complete |= self.log.len() >= self.initial;
    }

    /// Begins a branch of its own.
    fn activate(&mut self) {
        let generation = self.generation() + 1;
        self.branches.retain(|branch| branch.0 <= self.log.len());
        self.branches.push((self.log.len(), generation.max(self.term)));
        (self.role, self.complete, self.unconfirmed) = (VbRole::Active, true, false);
    }

    /// The branch that the last write lies on.
    fn generation(&self) -> u64 {
        let begun = self.branches.iter().rev().find(|branch| branch.0 <= self.log.len());
        begun.map_or(0, |branch| branch.1)
    }

    fn crash(&mut self) {
        self.log.truncate(self.synced);
        self.complete &= self.log.len() >= self.initial;
        (self.role, self.following, self.unconfirmed) = (VbRole::Dead, false, true);
    }
}

pub(crate) struct FakeNode {
    pub(crate) id: NodeId,
    pub(crate) uuid: String,
    pub(crate) up: bool,
    /// Up, but doing nothing until then.
    pub(crate) paused_until_ms: u64,
    /// Index of the metadata it has.
    pub(crate) applied: usize,
    /// It acts once it has these.
    pub(crate) acts_from: usize,
    pub(crate) lease_until_ms: u64,
    pub(crate) copies: BTreeMap<CopyId, Copy>,
    /// How those who write to it fare.
    pub(crate) pressure: Pressure,
    /// Indexes of copies that it is to serve are being made.
    pub(crate) indexing: bool,
    boot: u64,
}

impl FakeNode {
    pub(crate) fn new(id: NodeId, uuid: String) -> Self {
        let copies = BTreeMap::new();
        Self {
            id,
            uuid,
            up: true,
            paused_until_ms: 0,
            applied: 0,
            acts_from: 0,
            lease_until_ms: 0,
            copies,
            pressure: Pressure::None,
            indexing: false,
            boot: 0,
        }
    }

    pub(crate) fn is_running(&self, now_ms: u64) -> bool {
        self.up && self.paused_until_ms <= now_ms
    }

    pub(crate) fn stop(&mut self, clean: bool) {
        self.up = false;
        self.boot += 1;
        self.lease_until_ms = 0;
        for copy in self.copies.values_mut() {
            if clean {
                (copy.role, copy.following, copy.synced) = (VbRole::Dead, false, copy.log.len());
            } else {
                copy.crash();
            }
        }
    }

    /// Does what the metadata it has ask for.
    pub(crate) fn act(&mut self, meta: &Metadata) {
        if self.applied < self.acts_from {
            return;
        }
        let Some(this) = meta.node(&self.uuid) else {
            self.copies.clear();
            return;
        };
        let keeps = (this.membership == Membership::InactiveFailed && this.recovery != Some(Recovery::Full))
            || this.recovery == Some(Recovery::Delta);
        self.copies.retain(|(uuid, _), _| meta.bucket_by_uuid(uuid).is_some());
        for bucket in meta.buckets.values() {
            for (at, plan) in bucket.vbs.iter().enumerate() {
                self.carry_out((bucket.uuid.clone(), VbId(at as u16)), plan, keeps);
            }
        }
    }

    fn carry_out(&mut self, id: CopyId, plan: &VbPlan, keeps: bool) {
        let leads = plan.chain.first() == Some(&self.id);
        let electing = match &plan.phase {
            VbPhase::Electing { among } => Some(among.contains(&self.id)),
            _ => None,
        };
        let takes_part = electing.unwrap_or_else(|| plan.nodes().contains(&self.id));
        if !takes_part {
            if keeps {
                if let Some(copy) = self.copies.get_mut(&id) {
                    (copy.role, copy.following) = (VbRole::Dead, false);
                }
            } else {
                self.copies.remove(&id);
            }
            return;
        }
        let copy = self.copies.entry(id).or_default();
        if leads && electing.is_none() {
            if copy.unconfirmed && !plan.is_alone() {
                return;
            }
            if !plan.phase.is_settled() {
                if !matches!(copy.role, VbRole::Active | VbRole::Sealed) {
                    // There is nothing to seal.
                    return;
                }
                copy.role = VbRole::Sealed;
            } else if copy.role != VbRole::Active {
                if !copy.complete && !copy.log.is_empty() && !plan.is_alone() {
                    // A part is no copy, unless nothing else is left.
                    return;
                }
                copy.term = plan.term;
                copy.activate();
            }
        } else if copy.term != plan.term || copy.role != VbRole::Replica {
            (copy.role, copy.following, copy.unconfirmed) = (VbRole::Replica, false, false);
        }
        copy.term = plan.term;
    }

    pub(crate) fn report(&self, meta: &Metadata) -> NodeReport {
        let acts = self.applied >= self.acts_from;
        NodeReport {
            boot: self.boot,
            started: self.boot,
            data_quota: u64::MAX,
            buckets: meta
                .buckets
                .values()
                .filter(|_| acts)
                .map(|bucket| self.bucket_report(meta, bucket))
                .collect(),
            ..NodeReport::bare(self.id, self.uuid.clone(), if acts { meta.version } else { 0 })
        }
    }

    fn bucket_report(&self, meta: &Metadata, bucket: &BucketInfo) -> BucketReport {
        let mut vbs = Vec::new();
        let mut weights = Vec::new();
        let is_synced_beside = |node: &NodeId| meta.synced_beside(bucket.kind).contains(node);
        for (at, plan) in bucket.vbs.iter().enumerate() {
            let vb = VbId(at as u16);
            let target = bucket.target.as_ref().map(|target| &target[at][..]);
            let nothing = Copy::default();
            let is_wanted = target.is_some_and(|target| plan.is_lost_to(target));
            let held = self.copies.get(&(bucket.uuid.clone(), vb));
            let Some(copy) = held.or(is_wanted.then_some(&nothing)) else { continue };
            if copy.role == VbRole::Active && meta.rebalance.is_some() {
                let items = copy.log.len() as u64;
                weights.push((vb, Weight { bytes: items * 1_000_000, items }));
            }
            let is_watched = plan.is_watched(target, meta.leaving_gracefully());
            if is_watched || copy.unconfirmed || !copy.complete {
                vbs.push(VbReport {
                    vb,
                    term: copy.term,
                    role: copy.role,
                    unconfirmed: copy.unconfirmed,
                    vb_uuid: VbUuid(copy.generation() << GENERATION_SHIFT),
                    high_seqno: Seqno(copy.log.len() as u64),
                    may_lack: false,
                    // Durable writes go there always.
                    to_disk: copy.role == VbRole::Active && plan.chain.iter().any(is_synced_beside),
                    held: Seqno(copy.synced as u64),
                    persisted: Seqno(copy.synced as u64),
                    synced: None,
                    complete: copy.complete,
                    following: copy.role == VbRole::Replica && copy.following,
                    indexing: copy.role == VbRole::Replica && self.indexing,
                });
            }
        }
        let (uuid, ready) = (bucket.uuid.clone(), true);
        BucketReport {
            uuid,
            ready,
            vbs,
            items: 0,
            bytes: 0,
            weights,
            cut_off: BTreeMap::new(),
            pressure: self.pressure,
            latency: None,
        }
    }
}
