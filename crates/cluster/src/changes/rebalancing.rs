//! Starting, stopping and ending changes of the map, and failing nodes over: the commands that touch every vBucket.
//!
//! The aim of a rebalance is computed once, when it starts, and kept in each bucket. When nodes fail on the way, or a
//! bucket is made or changed, it is computed anew from where the copies are by then.

use std::sync::Arc;

use base::{BucketUuid, NodeId, VbId, bucket::BucketKind};
use serde::{Deserialize, Serialize};

use crate::{
    changes::{
        Command,
        moves::{Failing, VbChange, VbStep, answers_needed},
    },
    metadata::{
        BucketInfo, ClusterError, Metadata, NodeInfo,
        error::refused,
        level::{
            FAILOVERS_REMEMBERED, GIVEN_UP_RECOVERED, LEAVERS_KEPT, LEAVERS_SYNCED, LIVING_ASKED,
            RECOVERIES_KEPT,
        },
        maps,
        topology::{
            Exclusion, Membership, Rebalance, RebalanceKind, RebalanceOutcome, RebalanceResult, Recovery,
            UNLEASED_MS, VbPlan,
        },
    },
};

/// A rebalance to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRebalance {
    /// Names it in answers and logs.
    pub id: String,
    /// Nodes that shall hold data; with `eject` every node there is.
    pub keep: Vec<NodeId>,
    /// Nodes that shall leave.
    pub eject: Vec<NodeId>,
    /// Unix milliseconds.
    pub now_ms: u64,
}

/// A graceful failover to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartGracefulFailover {
    /// Names it in answers and logs.
    pub id: String,
    /// Nodes to fail over once they have nothing active.
    pub nodes: Vec<NodeId>,
    /// Unix milliseconds.
    pub now_ms: u64,
}

/// Nodes to fail over at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailOver {
    /// Which.
    pub nodes: Vec<NodeId>,
    /// Whether copies may be promoted that need not have everything that was acknowledged.
    pub allow_unsafe: bool,
    /// Whether nobody asked for it.
    pub auto: bool,
}

/// What may be wrong with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It was begun anew, and has not what it acknowledged before; or nothing is known of it.
    Part,
    /// It was opened after an unclean stop: what it had in memory is gone.
    MayLack,
}

/// Nodes that come back, with what they hold, by the rebalance under way, or came back by one that was stopped. An
/// operator has said that their contents are to be served where no other node has a vBucket by then.
struct Recovered {
    nodes: Vec<NodeId>,
    /// The active nodes that no recovery waits for, in the rebalance or not.
    settled: Vec<NodeId>,
    /// Whether the cluster is at [`FAILOVERS_REMEMBERED`].
    is_remembered: bool,
    /// Whether it is at [`LIVING_ASKED`].
    are_all_asked: bool,
    /// Nodes that hold data after the rebalance under way.
    kept: usize,
}

impl Metadata {
    pub(crate) fn start_rebalance(&mut self, start: &StartRebalance) -> Result<(), ClusterError> {
        self.check_not_rebalancing()?;
        let named = |id: NodeId| start.keep.contains(&id) || start.eject.contains(&id);
        let known = |id: &NodeId| self.node_by_id(*id).is_some();
        let twice = start.keep.iter().any(|id| start.eject.contains(id));
        if twice
            || !start.keep.iter().chain(&start.eject).all(known)
            || !self.nodes.iter().all(|n| named(n.id))
        {
            return Err(ClusterError::field("mismatch", "The nodes named are not those of the cluster."));
        }
        // A node that was failed over and that nobody recovers goes.
        let stays = |id: &&NodeId| {
            self.node_by_id(**id)
                .is_some_and(|node| node.membership != Membership::InactiveFailed || node.recovery.is_some())
        };
        let keep: Vec<NodeId> =
            self.nodes.iter().map(|n| n.id).filter(|id| start.keep.contains(id) && stays(&id)).collect();
        let eject: Vec<NodeId> = self.nodes.iter().map(|n| n.id).filter(|id| !keep.contains(id)).collect();
        if keep.is_empty() {
            return Err(ClusterError::field("empty", "No active nodes would be left."));
        }
        self.check_recoveries(&eject)?;
        for &id in &keep {
            self.node_by_id_mut(id)?.membership = Membership::Active;
        }
        // With more nodes leases may be needed that were not. Where all serve by them already, a new node does as well: it serves
        // nothing before it acts by metadata that ask for them.
        if !self.auto_failover.is_leased {
            self.disarm();
        }
        let kind = RebalanceKind::Rebalance;
        self.rebalance =
            Some(Rebalance { id: start.id.clone(), kind, keep, eject, started_ms: start.now_ms, copies: 0 });
        self.aim();
        let copies = self.buckets.values().map(copies_to_move).sum();
        if let Some(rebalance) = &mut self.rebalance {
            rebalance.copies = copies;
        }
        Ok(())
    }

    /// An operator may have had a node recovered after somebody else had the rebalance begin without that node.
    fn check_recoveries(&self, eject: &[NodeId]) -> Result<(), ClusterError> {
        let is_recovered =
            |node: &&NodeInfo| node.membership == Membership::InactiveFailed && node.recovery.is_some();
        let mut leaving = self.nodes.iter().filter(|node| eject.contains(&node.id));
        match leaving.find(is_recovered).filter(|_| self.level >= RECOVERIES_KEPT) {
            Some(node) => Err(refused(format!(
                "{} is to be recovered. Keep it, or cancel its recovery first.",
                node.called()
            ))),
            None => Ok(()),
        }
    }

    /// Whether the rebalance under way removes that node for good.
    #[must_use]
    pub fn is_ejected(&self, node: NodeId) -> bool {
        self.rebalance.as_ref().is_some_and(|rebalance| {
            rebalance.kind == RebalanceKind::Rebalance && rebalance.eject.contains(&node)
        })
    }

    pub(crate) fn start_graceful_failover(
        &mut self,
        start: &StartGracefulFailover,
    ) -> Result<(), ClusterError> {
        self.check_not_rebalancing()?;
        self.check_failing(&start.nodes)?;
        let failing = |node: NodeId| start.nodes.contains(&node);
        let stuck = self.buckets.iter().find(|(_, bucket)| {
            bucket
                .vbs
                .iter()
                .any(|plan| !plan.chain.is_empty() && plan.chain.iter().all(|&node| failing(node)))
        });
        if let Some((name, _)) = stuck {
            return Err(refused(format!(
                "Failover cannot be done gracefully (some vbuckets of bucket \"{name}\" have no other copy). Use hard failover."
            )));
        }
        let keep = self.active_nodes().map(|node| node.id).filter(|&id| !failing(id)).collect();
        self.rebalance = Some(Rebalance {
            id: start.id.clone(),
            kind: RebalanceKind::GracefulFailover,
            keep,
            eject: start.nodes.clone(),
            started_ms: start.now_ms,
            copies: 0,
        });
        self.aim();
        Ok(())
    }

    /// Nodes that a graceful failover under way is about: others take over what they serve, and then do without them.
    #[must_use]
    pub fn leaving_gracefully(&self) -> &[NodeId] {
        let graceful = |rebalance: &&Rebalance| rebalance.kind == RebalanceKind::GracefulFailover;
        self.rebalance.as_ref().filter(graceful).map_or(&[], |rebalance| &rebalance.eject)
    }

    /// Those of them beside which a bucket's durable writes go to disk.
    #[must_use]
    pub fn synced_beside(&self, kind: BucketKind) -> &[NodeId] {
        let is_synced = kind == BucketKind::Couchbase && self.level >= LEAVERS_SYNCED;
        if is_synced { self.leaving_gracefully() } else { &[] }
    }

    /// What stops that rebalance. A proposal may come late, when another one is under way. Where some members would not understand that, it
    /// is whatever rebalance is under way by then.
    #[must_use]
    pub fn stop_of_rebalance(&self, id: &str, now_ms: u64) -> Command {
        Command::StopRebalance { id: self.names_what_is_meant().then(|| id.to_owned()), now_ms }
    }

    pub(crate) fn stop_rebalance(&mut self, id: Option<&String>, now_ms: u64) -> Result<(), ClusterError> {
        if self.rebalance.as_ref().is_some_and(|rebalance| id.is_some_and(|id| *id != rebalance.id)) {
            return Err(refused("That rebalance is not running."));
        }
        self.end_rebalance(RebalanceResult::Stopped, now_ms)
    }

    /// The map is there: nodes that were to leave leave; or those that were to be failed over are, having nothing active.
    pub(crate) fn finish_rebalance(&mut self, id: &str, now_ms: u64) -> Result<(), ClusterError> {
        let Some(rebalance) = self.rebalance.clone().filter(|rebalance| rebalance.id == id) else {
            return Err(refused("That rebalance is not running."));
        };
        if !self.is_at_target() {
            return Err(refused("Some vBuckets are not where they shall be."));
        }
        match rebalance.kind {
            RebalanceKind::Rebalance => {
                self.end_rebalance(RebalanceResult::Completed, now_ms)?;
                self.forget_nodes(&rebalance.eject);
            }
            RebalanceKind::GracefulFailover => {
                let failing: Vec<NodeId> =
                    rebalance.eject.iter().copied().filter(|&id| self.is_active(id)).collect();
                let leads = |plan: &VbPlan| plan.active().is_some_and(|active| failing.contains(&active));
                if self.buckets.values().any(|bucket| bucket.vbs.iter().any(leads)) {
                    let text = "Some vBuckets have no other copy any more.";
                    return self.end_rebalance(RebalanceResult::Failed(text.into()), now_ms);
                }
                self.end_rebalance(RebalanceResult::Completed, now_ms)?;
                if !failing.is_empty() {
                    self.exclude(&failing, self.level >= LEAVERS_KEPT);
                }
            }
        }
        Ok(())
    }

    fn end_rebalance(&mut self, result: RebalanceResult, now_ms: u64) -> Result<(), ClusterError> {
        let rebalance = self.rebalance.take().ok_or_else(|| refused("Rebalance is not running."))?;
        for bucket in self.buckets.values_mut() {
            bucket.target = None;
            if bucket.vbs.iter().any(|plan| *plan != plan.stopped()) {
                bucket.vbs = Arc::new(bucket.vbs.iter().map(VbPlan::stopped).collect());
            }
        }
        let is_remembered = self.level >= FAILOVERS_REMEMBERED;
        for node in self.nodes.iter_mut().filter(|node| node.membership == Membership::Active) {
            let has_any = node.recovery.take() != Some(Recovery::Full) && is_remembered;
            self.buckets.values_mut().for_each(|bucket| bucket.forget_former(node.id, has_any));
        }
        self.last_rebalance = Some(RebalanceOutcome {
            id: rebalance.id,
            kind: rebalance.kind,
            started_ms: rebalance.started_ms,
            ended_ms: now_ms,
            result,
        });
        Ok(())
    }

    pub(crate) fn fail_over(&mut self, command: &FailOver) -> Result<(), ClusterError> {
        let has_failed = |id: &NodeId| {
            self.node_by_id(*id).is_some_and(|node| node.membership == Membership::InactiveFailed)
        };
        // A node that was only added has nothing to be failed over. It is named where it is lost as well, so that nobody waits for it.
        let is_left_out = |id: &NodeId| {
            let is_added =
                self.node_by_id(*id).is_some_and(|node| node.membership == Membership::InactiveAdded);
            command.allow_unsafe && self.names_added_nodes() && is_added
        };
        let nodes: Vec<NodeId> = command.nodes.iter().filter(|id| !is_left_out(id)).copied().collect();
        if nodes.is_empty() && !command.nodes.is_empty() {
            return Err(refused("Only active nodes can be failed over."));
        }
        // Asked for again, perhaps of a group that has been formed anew since.
        if command.allow_unsafe && !nodes.is_empty() && nodes.iter().all(has_failed) {
            return Ok(());
        }
        self.check_failing(&nodes)?;
        if command.auto {
            self.check_automatic(&nodes)?;
        } else if !command.allow_unsafe
            && let Some(name) = self.first_lost(&nodes)
        {
            return Err(refused(format!(
                "Failing over would lose vBuckets of bucket \"{name}\", of which there is no other copy. Allow it to be \
                 unsafe to go on."
            )));
        }
        self.exclude(&nodes, false);
        if command.auto {
            self.auto_failover.count += self.events(&nodes);
        }
        Ok(())
    }

    /// How many failovers it counts as: a server group that fails as a whole is one.
    pub(crate) fn events(&self, nodes: &[NodeId]) -> u32 {
        if self.is_whole_group(nodes) { 1 } else { nodes.len() as u32 }
    }

    /// Whether these nodes are all that hold data in their server group, and more than one.
    #[must_use]
    pub fn is_whole_group(&self, nodes: &[NodeId]) -> bool {
        let group = |id: NodeId| self.node_by_id(id).map(|node| node.group.as_str());
        let Some(first) = nodes.first().map(|&id| group(id)) else { return false };
        let others = self.active_nodes().filter(|node| !nodes.contains(&node.id));
        nodes.len() > 1
            && nodes.iter().all(|&id| group(id) == first)
            && !others.map(|node| Some(node.group.as_str())).any(|group| group == first)
    }

    /// What must hold for every proposer, at any time: an automatic failover loses nothing that was acknowledged.
    fn check_automatic(&self, nodes: &[NodeId]) -> Result<(), ClusterError> {
        let settings = &self.auto_failover;
        if !settings.enabled || !settings.armed || !self.needs_leases() {
            return Err(refused("Automatic failover is off."));
        }
        if settings.count.saturating_add(self.events(nodes)) > settings.max_count {
            return Err(refused("Automatic failover has happened as often as it may."));
        }
        match self.unsafe_without(nodes) {
            Some(name) => Err(refused(format!("Not enough copies of bucket \"{name}\" would be left."))),
            None => Ok(()),
        }
    }

    /// A bucket of which something that was acknowledged might be lost without these nodes, if nothing is wrong with any other
    /// copy.
    #[must_use]
    pub fn unsafe_without(&self, nodes: &[NodeId]) -> Option<&str> {
        self.unsafe_with(nodes, &|_, _, _| None)
    }

    /// The same where something is known to be wrong with some copies.
    pub(crate) fn unsafe_with(
        &self,
        nodes: &[NodeId],
        flaw: &dyn Fn(NodeId, &BucketUuid, VbId) -> Option<Flaw>,
    ) -> Option<&str> {
        let is_unsafe = |bucket: &BucketInfo| {
            bucket.vbs.iter().enumerate().any(|(at, plan)| {
                let flaw = |node| flaw(node, &bucket.uuid, VbId(at as u16));
                plan.is_unsafe_without(nodes, &flaw)
            })
        };
        self.buckets.iter().find(|(_, bucket)| is_unsafe(bucket)).map(|(name, _)| name.as_str())
    }

    /// A bucket with a vBucket of which these nodes have the only copies. One that is being built is none.
    fn first_lost(&self, nodes: &[NodeId]) -> Option<&str> {
        let is_copy = |plan: &VbPlan, node| plan.counts(node) || self.level < FAILOVERS_REMEMBERED;
        let is_lost = |plan: &VbPlan| {
            let there = plan.nodes().into_iter().filter(|&node| !plan.has_failed(node));
            let mut holders = there.filter(|&node| is_copy(plan, node)).peekable();
            holders.peek().is_some() && holders.all(|node| nodes.contains(&node))
        };
        let found = self.buckets.iter().find(|(_, bucket)| bucket.vbs.iter().any(is_lost));
        found.map(|(name, _)| name.as_str())
    }

    fn check_failing(&self, nodes: &[NodeId]) -> Result<(), ClusterError> {
        if nodes.is_empty() || nodes.iter().any(|&id| self.node_by_id(id).is_none()) {
            return Err(ClusterError::NodeNotFound);
        }
        if nodes.iter().any(|&id| !self.is_active(id)) {
            return Err(refused("Only active nodes can be failed over."));
        }
        if self.active_nodes().all(|node| nodes.contains(&node.id)) {
            return Err(refused("Cannot fail over the last active node."));
        }
        Ok(())
    }

    fn is_active(&self, id: NodeId) -> bool {
        self.node_by_id(id).is_some_and(|node| node.membership == Membership::Active)
    }

    /// Takes nodes out of every plan. `keeps_leavers`: it is remembered that they hold what was acknowledged.
    fn exclude(&mut self, nodes: &[NodeId], keeps_leavers: bool) {
        let failed = |node: NodeId| nodes.contains(&node);
        let excluded = Exclusion {
            version: self.version + 1,
            lease_ms: self.longest_lease_ms(),
            is_leased: self.auto_failover.is_leased,
        };
        let is_remembered = self.level >= FAILOVERS_REMEMBERED;
        let how = Failing { keeps_chain_before: self.level >= LIVING_ASKED, keeps_leavers };
        for node in self.nodes.iter_mut().filter(|node| failed(node.id)) {
            node.membership = Membership::InactiveFailed;
            // It may not have heard of its failover before this one either, and have a lease from before that.
            let before = node.excluded.filter(|_| is_remembered).and_then(|before| before.lease_ms);
            // Without any lease it is waited for as well: no shorter than that.
            let before = before.map(|ms| if excluded.lease_ms.is_none() { ms.max(UNLEASED_MS) } else { ms });
            let lease_ms = excluded.lease_ms.max(before);
            (node.recovery, node.excluded) = (None, Some(Exclusion { lease_ms, ..excluded }));
        }
        for bucket in self.buckets.values_mut() {
            nodes.iter().for_each(|&node| bucket.note_former(node, is_remembered));
            bucket.vbs = Arc::new(bucket.vbs.iter().map(|plan| plan.without(&failed, how)).collect());
        }
        self.note_leases();
        let Some(rebalance) = &mut self.rebalance else { return };
        rebalance.keep.retain(|&node| !failed(node));
        if rebalance.keep.is_empty() {
            // Those that are left were to leave: they stay instead.
            let kept = std::mem::take(&mut rebalance.eject);
            let active: Vec<NodeId> = self.active_nodes().map(|node| node.id).collect();
            let (keep, eject) = kept.into_iter().partition(|node| active.contains(node));
            if let Some(rebalance) = &mut self.rebalance {
                (rebalance.keep, rebalance.eject) = (keep, eject);
            }
        }
        self.aim();
    }

    pub(crate) fn change_vbs(&mut self, changes: &[VbChange]) {
        let active: Vec<NodeId> = self.active_nodes().map(|node| node.id).collect();
        let may_hold = |node: NodeId| active.contains(&node);
        let recovered = self.recovered();
        for bucket in self.buckets.values_mut() {
            let uuid = bucket.uuid.clone();
            for change in changes.iter().filter(|change| change.bucket == uuid) {
                bucket.change_vb(change, &may_hold, &recovered);
            }
        }
    }

    fn recovered(&self) -> Recovered {
        let is_remembered = self.level >= FAILOVERS_REMEMBERED;
        let kept = self.rebalance.as_ref().map_or(&[][..], |rebalance| &rebalance.keep);
        let returns = |node: &&NodeInfo| match node.recovery {
            Some(Recovery::Delta) => self.level >= GIVEN_UP_RECOVERED,
            Some(Recovery::Full) => false,
            None => is_remembered,
        };
        let node_of = |&id: &NodeId| self.node_by_id(id).filter(|_| self.is_active(id));
        let nodes = kept.iter().filter_map(node_of).filter(returns);
        let settled = self.active_nodes().filter(|node| node.recovery.is_none());
        Recovered {
            nodes: nodes.map(|node| node.id).collect(),
            settled: settled.map(|node| node.id).collect(),
            is_remembered,
            are_all_asked: self.level >= LIVING_ASKED,
            kept: kept.len(),
        }
    }

    /// Computes anew what the rebalance under way strives for.
    pub(crate) fn aim(&mut self) {
        let names: Vec<String> = self.buckets.keys().cloned().collect();
        names.iter().for_each(|name| self.aim_bucket(name));
    }

    /// The same of one bucket.
    pub(crate) fn aim_bucket(&mut self, name: &str) {
        let (Some(rebalance), Some(bucket)) = (&self.rebalance, self.buckets.get(name)) else { return };
        if bucket.kind == BucketKind::Memcached {
            return;
        }
        let target = match rebalance.kind {
            RebalanceKind::GracefulFailover => {
                bucket.vbs.iter().map(|plan| behind(&plan.chain, &rebalance.eject)).collect()
            }
            RebalanceKind::Rebalance => self.aim_over(bucket, &rebalance.keep),
        };
        if let Some(bucket) = self.buckets.get_mut(name) {
            bucket.target = Some(Arc::new(target));
        }
    }

    fn aim_over(&self, bucket: &BucketInfo, keep: &[NodeId]) -> Vec<Vec<NodeId>> {
        let goes_on = bucket.target.is_some();
        let recovered = self.recovered();
        let mut current: Vec<Vec<NodeId>> = bucket.vbs.iter().map(VbPlan::holders).collect();
        let recovers = |id: NodeId| {
            let node = self.node_by_id(id).filter(|_| keep.contains(&id));
            node.is_some_and(|node| node.recovery == Some(Recovery::Delta))
        };
        for (&node, vbs) in bucket.former.iter() {
            let has_kept = recovered.is_remembered && recovered.nodes.contains(&node);
            let returns_to = |chain: &[NodeId]| recovers(node) || (has_kept && chain.is_empty());
            for &vb in vbs {
                if let Some(chain) = current.get_mut(usize::from(vb))
                    && returns_to(chain)
                    && !chain.contains(&node)
                {
                    chain.push(node);
                }
            }
        }
        let mut target = maps::place(self, keep, &current, bucket.replicas);
        let lost = |plan: &VbPlan| plan.chain.is_empty() && plan.phase.is_settled();
        for (at, (chain, plan)) in target.iter_mut().zip(bucket.vbs.iter()).enumerate() {
            // A vBucket lost on the way stays lost: whether to make an empty one is for the next rebalance to be told.
            if lost(plan) && goes_on {
                bucket.aim_lost(chain, &recovered, at);
            } else if lost(plan) && recovered.is_remembered {
                put_in(chain, &bucket.holders_of(at, &recovered), recovered.are_all_asked);
            }
        }
        target
    }

    /// Whether every vBucket is where the rebalance under way wants it, with nothing on its way.
    pub(crate) fn is_at_target(&self) -> bool {
        self.buckets.values().all(|bucket| {
            let target = bucket.target.as_deref().map_or(&[][..], Vec::as_slice);
            bucket.vbs.iter().zip(target).all(|(plan, target)| plan.is_quiet() && plan.chain == *target)
        })
    }

    fn check_not_rebalancing(&self) -> Result<(), ClusterError> {
        match self.rebalance {
            Some(_) => Err(refused("Rebalance running.")),
            None => Ok(()),
        }
    }
}

impl BucketInfo {
    /// Copies of each vBucket that there shall be, the active one included.
    #[must_use]
    pub fn copies(&self) -> usize {
        usize::from(self.replicas) + 1
    }

    /// The chain to aim at for a vBucket that nobody has. It contains recovered nodes that had the vBucket when they were failed
    /// over, though placement may have chosen none of them. Without any such node it is empty.
    fn aim_lost(&self, chain: &mut Vec<NodeId>, recovered: &Recovered, vb: usize) {
        let holders = self.holders_of(vb, recovered);
        if holders.is_empty() || chain.is_empty() {
            return chain.clear();
        }
        if recovered.is_remembered {
            put_in(chain, &holders, recovered.are_all_asked);
        } else if !chain.iter().any(|node| holders.contains(node)) {
            chain.pop();
            chain.extend(holders.first());
        }
    }

    /// The recovered nodes that held a vBucket when they were failed over.
    fn holders_of(&self, vb: usize, recovered: &Recovered) -> Vec<NodeId> {
        let held = |node: &NodeId| self.former.get(node).is_some_and(|vbs| vbs.contains(&(vb as u16)));
        recovered.nodes.iter().copied().filter(held).collect()
    }

    /// Notes which vBuckets a node holds that is failed over. What it held at a failover before, and has not been asked for yet, it
    /// holds still.
    fn note_former(&mut self, node: NodeId, is_remembered: bool) {
        let before = self.former.remove(&node).filter(|_| is_remembered).unwrap_or_default();
        let holds = |plan: &VbPlan| plan.chain.contains(&node) || (is_remembered && plan.counts(node));
        let held = |(vb, plan): (usize, &VbPlan)| {
            let vb = vb as u16;
            (holds(plan) || before.contains(&vb)).then_some(vb)
        };
        self.former.insert(node, self.vbs.iter().enumerate().filter_map(held).collect());
    }

    /// A node counts again, whether or not its recovery has ended. What it held is remembered if the node has it still, and if it is
    /// open which node serves it. So it is where the copy that serves may lack what this node has.
    fn forget_former(&mut self, node: NodeId, has_any: bool) {
        let is_open = |plan: &VbPlan| plan.active().is_none() || plan.kept.contains(&node);
        let is_open = |vb: &u16| self.vbs.get(usize::from(*vb)).is_some_and(is_open);
        let Some(vbs) = self.former.get_mut(&node) else { return };
        vbs.retain(|vb| has_any && is_open(vb));
        if vbs.is_empty() {
            self.former.remove(&node);
        }
    }

    fn change_vb(&mut self, change: &VbChange, may_hold: &dyn Fn(NodeId) -> bool, recovered: &Recovered) {
        let at = usize::from(change.vb.get());
        let Some(plan) = self.vbs.get(at).filter(|plan| plan.term == change.term) else { return };
        // What was proposed for a rebalance that has been stopped, or that aims elsewhere by now, comes too late as well.
        let wanted = self.target.as_ref().and_then(|target| target.get(at));
        let is_wanted = match &change.step {
            VbStep::Build(nodes) => nodes.iter().all(|node| wanted.is_some_and(|chain| chain.contains(node))),
            VbStep::SetChain(chain) | VbStep::StartHandover(chain) => wanted == Some(chain),
            VbStep::Revive(node) => wanted.is_some_and(|chain| chain.contains(node)),
            _ => true,
        };
        let Some(next) = plan.after(&change.step, may_hold).filter(|_| is_wanted) else { return };
        let is_served_again = plan.active().is_none() && next.active().is_some();
        // Members that had left and were kept until others hold what they hold. While they are rebalanced, that ends with the rebalance.
        let let_go = |node: &NodeId| self.target.is_none() && !next.kept.contains(node) && may_hold(*node);
        let held: Vec<NodeId> = plan.kept.iter().copied().filter(let_go).collect();
        if next.chain.is_empty()
            && let Some(mut chain) = wanted.cloned()
            && let Some(mut target) = self.target.clone()
        {
            // Lost: it stays so until somebody decides that an empty one will do.
            self.aim_lost(&mut chain, recovered, at);
            if let Some(place) = Arc::make_mut(&mut target).get_mut(at).filter(|place| **place != chain) {
                *place = chain;
                self.target = Some(target);
            }
        }
        if let VbStep::Revive(node) = &change.step
            && recovered.are_all_asked
        {
            self.shorten_target(at, *node, recovered.kept);
        }
        Arc::make_mut(&mut self.vbs)[at] = next;
        held.into_iter().for_each(|node| self.forget_held(node, at));
        if is_served_again && recovered.is_remembered {
            let asked = matches!(change.step, VbStep::Revive(_)).then_some(&recovered.nodes);
            recovered
                .settled
                .iter()
                .chain(asked.into_iter().flatten())
                .for_each(|&node| self.forget_held(node, at));
        }
    }

    /// A node serves a vBucket of which more nodes were asked than there are to be copies, of `kept` nodes: it keeps its place.
    fn shorten_target(&mut self, vb: usize, node: NodeId, kept: usize) {
        let copies = self.copies().min(kept);
        let Some(place) = self.target.as_mut().and_then(|target| Arc::make_mut(target).get_mut(vb)) else {
            return;
        };
        while place.len() > copies
            && let Some(last) = place.iter().rposition(|&other| other != node)
        {
            place.remove(last);
        }
    }

    /// It is decided who serves a vBucket that this node held: from now on only what the plan says counts. The node may drop its copy.
    fn forget_held(&mut self, node: NodeId, vb: usize) {
        let Some(vbs) = self.former.get_mut(&node) else { return };
        vbs.retain(|&held| usize::from(held) != vb);
        if vbs.is_empty() {
            self.former.remove(&node);
        }
    }
}

impl VbPlan {
    /// Nodes with copies worth keeping: those of the chain, then those being built.
    fn holders(&self) -> Vec<NodeId> {
        self.chain.iter().chain(&self.building).copied().collect()
    }

    /// Whether something that was acknowledged might be lost without these nodes.
    fn is_unsafe_without(&self, nodes: &[NodeId], flaw: &dyn Fn(NodeId) -> Option<Flaw>) -> bool {
        let has_all = |active: NodeId| !nodes.contains(&active) && flaw(active).is_none();
        let active_stays = self.active().is_some_and(has_all);
        let counted = self.counted();
        if active_stays || counted.is_empty() || !self.nodes().iter().any(|node| nodes.contains(node)) {
            return false;
        }
        let is_there = |node: NodeId| !self.has_failed(node) && !self.gone.contains(&node);
        let stays = |node: NodeId| !nodes.contains(&node) && is_there(node) && flaw(node).is_none();
        let are_too_few = |asked: &[NodeId]| {
            let left = asked.iter().filter(|&&node| stays(node)).count();
            left < answers_needed(asked.len())
        };
        are_too_few(counted) || self.witnesses().is_some_and(|asked| are_too_few(&asked))
    }
}

/// Puts nodes into a chain. Each takes the place of a chain's node that is not among them, as long as the chain has one. After that the
/// chain grows if it `may_grow`, so that each of them is asked what it has.
fn put_in(chain: &mut Vec<NodeId>, nodes: &[NodeId], may_grow: bool) {
    for &node in nodes {
        if chain.contains(&node) {
            continue;
        }
        match chain.iter_mut().rev().find(|other| !nodes.contains(other)) {
            Some(place) => *place = node,
            None if may_grow => chain.push(node),
            None => {}
        }
    }
}

/// A chain with some of its members moved to its end.
fn behind(chain: &[NodeId], last: &[NodeId]) -> Vec<NodeId> {
    let (mut first, mut then): (Vec<NodeId>, Vec<NodeId>) =
        chain.iter().partition(|node| !last.contains(node));
    first.append(&mut then);
    first
}

/// Copies that nodes have to get.
fn copies_to_move(bucket: &BucketInfo) -> u64 {
    let target = bucket.target.as_deref().map_or(&[][..], Vec::as_slice);
    let missing = |(plan, target): (&VbPlan, &Vec<NodeId>)| {
        target.iter().filter(|node| !plan.chain.contains(node)).count()
    };
    bucket.vbs.iter().zip(target).map(missing).sum::<usize>() as u64
}
