//! The steps that a vBucket's plan goes in: what the leader proposes, and what each makes of the plan.
//!
//! A step names the term that it was thought of in. A step that comes too late, or that no longer fits what the plan
//! has become, changes nothing. Proposals may be lost, repeated, or left behind by an earlier leader.

use base::{BucketUuid, NodeId, VbId};
use serde::{Deserialize, Serialize};

use crate::metadata::topology::{VbPhase, VbPlan};

/// How nodes fail that a plan is to do without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    /// What is left of the chain before counts on: as metadata from level 9 on have it.
    pub(crate) keeps_chain_before: bool,
    /// They leave in good order, and hold what was acknowledged: it is remembered that they do, from level 10 on.
    pub(crate) keeps_leavers: bool,
}

/// One step of one vBucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VbChange {
    /// Of which bucket.
    pub bucket: BucketUuid,
    /// Which vBucket.
    pub vb: VbId,
    /// The term it was thought of in.
    pub term: u64,
    /// What shall happen.
    pub step: VbStep,
}

/// What may happen to a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VbStep {
    /// Exactly these nodes get copies that do not count yet.
    Build(Vec<NodeId>),
    /// These copies count; the active one stays. What counted before counts beside them for now.
    SetChain(Vec<NodeId>),
    /// What counted before the last change is not needed any more.
    DropJoint,
    /// The active one seals its copy and hands over to the first of these.
    StartHandover(Vec<NodeId>),
    /// It has handed over.
    FinishHandover,
    /// It stays active.
    CancelHandover,
    /// The most advanced copy shall be active.
    StartElection,
    /// The first of these is active now; the others follow. None: what there was is lost.
    Elect(Vec<NodeId>),
    /// A vBucket that nobody has is served by this node, from what it happens to hold.
    Revive(NodeId),
}

impl VbPlan {
    /// Whether an election does without a node that the plan names for the record only. Such a node was failed over,
    /// and is remembered so that enough of the nodes that are left are asked.
    pub(crate) fn has_failed(&self, node: NodeId) -> bool {
        match &self.phase {
            VbPhase::Electing { among } => !among.contains(&node) && !self.building.contains(&node),
            VbPhase::Settled | VbPhase::Handover { .. } => false,
        }
    }

    /// The chain whose members have to be asked what they have, when that is not known. Until the new chain has caught
    /// up, this is the one that writers had to reach before the last change.
    #[must_use]
    pub fn counted(&self) -> &[NodeId] {
        self.joint.as_deref().unwrap_or(&self.chain)
    }

    /// Whom else to ask where one copy counts alone, once it may have lost what it had in memory or has failed itself. Everybody
    /// is asked who may have acknowledged what it had, before it took over and since. Those that were failed over are named for the
    /// record.
    ///
    /// Where a failover has left several copies of the chain before, these are all nodes of that chain.
    pub(crate) fn witnesses(&self) -> Option<Vec<NodeId>> {
        match self.counted() {
            [alone] => {
                let mut asked: Vec<NodeId> = self.chain.iter().chain(&self.gone).copied().collect();
                if !asked.contains(alone) {
                    asked.push(*alone);
                }
                Some(asked)
            }
            // An election counts by that chain as it was.
            _ if matches!(self.phase, VbPhase::Electing { .. }) || self.gone.is_empty() => None,
            _ => Some(self.chain_before()),
        }
    }

    /// The chain that counts as it was before nodes of it were failed over.
    fn chain_before(&self) -> Vec<NodeId> {
        self.counted().iter().chain(&self.gone).copied().collect()
    }

    /// Whether nobody but the active one has anything that counts: there is nobody to be asked what it may have lost. One that has taken
    /// over alone is not, until it is known to have on disk what the one before had.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let active = self.chain.first();
        self.chain.len() < 2 && self.kept.is_empty() && self.counted().iter().all(|node| Some(node) == active)
    }

    /// The plan after a step; `None` when the step does not fit. `may_hold` says
    /// whether a node may get data at all.
    pub(crate) fn after(&self, step: &VbStep, may_hold: &dyn Fn(NodeId) -> bool) -> Option<VbPlan> {
        let fits = |chain: &[NodeId]| {
            !chain.is_empty() && distinct(chain) && chain.iter().all(|node| self.has_or_builds(*node))
        };
        match step {
            VbStep::Build(nodes) => {
                let fits = self.phase.is_settled()
                    && !self.chain.is_empty()
                    && distinct(nodes)
                    && nodes.iter().all(|&node| may_hold(node) && !self.counts(node));
                (fits && *nodes != self.building).then(|| VbPlan { building: nodes.clone(), ..self.clone() })
            }
            VbStep::SetChain(chain) => {
                let fits = self.phase.is_settled()
                    && self.joint.is_none()
                    && fits(chain)
                    && chain.first() == self.chain.first()
                    && *chain != self.chain;
                fits.then(|| self.with_chain(chain))
            }
            VbStep::DropJoint => {
                let fits = self.phase.is_settled() && self.joint.is_some();
                fits.then(|| VbPlan { joint: None, gone: Vec::new(), kept: Vec::new(), ..self.clone() })
            }
            VbStep::StartHandover(after) => {
                let fits = self.phase.is_settled()
                    && self.joint.is_none()
                    && fits(after)
                    && after.first() != self.chain.first();
                let to = *after.first()?;
                fits.then(|| VbPlan { phase: VbPhase::Handover { to, after: after.clone() }, ..self.clone() })
            }
            VbStep::FinishHandover => match &self.phase {
                VbPhase::Handover { after, .. } => Some(self.with_chain(after)),
                VbPhase::Settled | VbPhase::Electing { .. } => None,
            },
            VbStep::CancelHandover => {
                let hands_over = matches!(self.phase, VbPhase::Handover { .. });
                hands_over.then(|| self.cancelled())
            }
            VbStep::StartElection => {
                let electing = matches!(self.phase, VbPhase::Electing { .. });
                (!electing && !self.chain.is_empty()).then(|| self.electing(&|_| false))
            }
            VbStep::Elect(chain) => match &self.phase {
                VbPhase::Electing { among } => {
                    let fits = distinct(chain) && chain.iter().all(|node| among.contains(node));
                    fits.then(|| self.elected(chain))
                }
                VbPhase::Settled | VbPhase::Handover { .. } => None,
            },
            VbStep::Revive(node) => {
                let fits = self.chain.is_empty() && self.phase.is_settled() && may_hold(*node);
                fits.then(|| VbPlan::settled(vec![*node], self.term + 1))
            }
        }
    }

    /// With nothing in it: nobody has anything that others lack. `ends_elections`: as metadata below level 9 have it. An
    /// election goes on, because a node that was failed over may have a lease, and serve until that has run out.
    pub(crate) fn emptied(&self, ends_elections: bool) -> VbPlan {
        let term = self.term + 1;
        match &self.phase {
            VbPhase::Electing { .. } if !ends_elections => {
                let (joint, gone, building) = (Some(self.chain.clone()), Vec::new(), Vec::new());
                VbPlan { joint, gone, kept: Vec::new(), building, term, ..self.clone() }
            }
            _ => VbPlan::settled(self.chain.clone(), term),
        }
    }

    /// Whether a node's copy counts, in the chain or in the one before.
    pub(crate) fn counts(&self, node: NodeId) -> bool {
        self.chain.contains(&node) || self.joint.iter().flatten().any(|&other| other == node)
    }

    fn has_or_builds(&self, node: NodeId) -> bool {
        self.chain.contains(&node) || self.building.contains(&node)
    }

    /// With another chain, known to somebody who has all that the chain before it had.
    fn with_chain(&self, chain: &[NodeId]) -> VbPlan {
        let building = self.building.iter().copied().filter(|node| !chain.contains(node)).collect();
        let same = chain.len() == self.chain.len() && chain.iter().all(|node| self.chain.contains(node));
        VbPlan {
            chain: chain.to_vec(),
            // The same nodes in another order have what they have.
            joint: (!same).then(|| self.chain.clone()),
            gone: Vec::new(),
            kept: Vec::new(),
            building,
            phase: VbPhase::Settled,
            term: self.term + 1,
        }
    }

    fn cancelled(&self) -> VbPlan {
        VbPlan { phase: VbPhase::Settled, term: self.term + 1, ..self.clone() }
    }

    /// Without whatever was being tried for a rebalance; what has happened stays.
    pub(crate) fn stopped(&self) -> VbPlan {
        let plan = match self.phase {
            VbPhase::Handover { .. } => self.cancelled(),
            VbPhase::Settled | VbPhase::Electing { .. } => self.clone(),
        };
        VbPlan { building: Vec::new(), ..plan }
    }

    /// The most advanced of those that have something is sought, without the failed ones.
    fn electing(&self, failed: &dyn Fn(NodeId) -> bool) -> VbPlan {
        let among: Vec<NodeId> =
            self.nodes().into_iter().filter(|&node| !failed(node) && !self.has_failed(node)).collect();
        let term = self.term + 1;
        if among.is_empty() {
            return VbPlan { term, ..VbPlan::default() };
        }
        let left = |nodes: &[NodeId]| nodes.iter().copied().filter(|&node| !failed(node)).collect();
        // One copy that counts alone has its witnesses.
        let is_begun = matches!(self.phase, VbPhase::Electing { .. }) || self.counted().len() < 2;
        VbPlan {
            chain: left(&self.chain),
            joint: Some(if is_begun { self.counted().to_vec() } else { self.chain_before() }),
            gone: self.remembered(failed),
            kept: self.kept.clone(),
            building: left(&self.building),
            phase: VbPhase::Electing { among },
            term,
        }
    }

    /// Those that are gone once these nodes have failed as well.
    fn remembered(&self, failed: &dyn Fn(NodeId) -> bool) -> Vec<NodeId> {
        let leaving = self.nodes().into_iter().filter(|&node| failed(node) && self.counts(node));
        self.gone.iter().copied().chain(leaving).collect()
    }

    /// What the others hold of the winner's is not known, so the winner counts alone until it is.
    fn elected(&self, chain: &[NodeId]) -> VbPlan {
        let term = self.term + 1;
        let Some(&winner) = chain.first() else { return VbPlan { term, ..VbPlan::default() } };
        let building = self.building.iter().copied().filter(|node| !chain.contains(node)).collect();
        VbPlan {
            chain: chain.to_vec(),
            joint: (chain.len() > 1).then(|| vec![winner]),
            // Of those who were asked nobody has more on disk than the winner has.
            gone: Vec::new(),
            kept: Vec::new(),
            building,
            phase: VbPhase::Settled,
            term,
        }
    }

    /// The plan once those nodes do not count any more.
    pub(crate) fn without(&self, failed: &dyn Fn(NodeId) -> bool, how: Failing) -> VbPlan {
        let Failing { keeps_chain_before, keeps_leavers } = how;
        if !self.nodes().iter().any(|&node| failed(node)) {
            return self.clone();
        }
        let left = |nodes: &[NodeId]| -> Vec<NodeId> {
            nodes.iter().copied().filter(|&node| !failed(node)).collect()
        };
        let electing = matches!(self.phase, VbPhase::Electing { .. });
        if electing || self.chain.first().is_some_and(|&active| failed(active)) {
            return self.electing(failed).named_once(keeps_chain_before);
        }
        if self.phase.is_settled() && !self.nodes().iter().any(|&node| failed(node) && self.counts(node)) {
            return VbPlan { building: left(&self.building), ..self.clone() };
        }
        let chain = left(&self.chain);
        let (building, term) = (left(&self.building), self.term + 1);
        let leaves = |node: &NodeId| keeps_leavers && failed(*node) && self.counts(*node);
        let kept: Vec<NodeId> =
            self.nodes().into_iter().filter(leaves).chain(self.kept.iter().copied()).collect();
        let plan =
            VbPlan { chain, joint: None, gone: Vec::new(), kept, building, phase: VbPhase::Settled, term };
        // What the chain before has acknowledged may be with those that are left of it, and with none of the new chain.
        let before = self.joint.as_deref().filter(|_| keeps_chain_before).map(left).unwrap_or_default();
        if before.len() > 1 || before.first().is_some_and(|node| !plan.chain.contains(node)) {
            let counted = self.counted();
            let gone = self
                .remembered(failed)
                .into_iter()
                .filter(|node| before.len() == 1 || counted.contains(node));
            let gone = self.gone.iter().copied().chain(gone).collect();
            return VbPlan { joint: Some(before), gone, ..plan }.named_once(true);
        }
        // The active one stays, and has all that the chain had, unless it crashes: it counts alone until the others are known to. Where
        // there are no others it may have crashed before this was agreed on, while the nodes that leave have it all.
        let is_open = plan.chain.len() > 1 || !plan.kept.is_empty();
        let joint = plan.chain.first().filter(|_| is_open).map(|&active| vec![active]);
        let gone = if joint.is_some() { self.remembered(failed) } else { Vec::new() };
        VbPlan { joint, gone, ..plan }.named_once(keeps_chain_before)
    }

    /// The same plan. It names a node that was failed over twice once only, if `is_so`.
    fn named_once(mut self, is_so: bool) -> VbPlan {
        if is_so {
            let mut named = Vec::new();
            self.gone.retain(|node| {
                !named.contains(node) && {
                    named.push(*node);
                    true
                }
            });
        }
        self
    }
}

/// How many members of a chain that counts have to say what they have. With so many answers, whatever a majority of the chain has
/// acknowledged is among what they say. How many copies are configured does not matter, now or at the time of the acknowledgement. It
/// never took less than a majority of the chain's own members.
#[must_use]
pub fn answers_needed(counted: usize) -> usize {
    (counted - counted / 2).max(1)
}

fn distinct(nodes: &[NodeId]) -> bool {
    nodes.iter().enumerate().all(|(at, node)| !nodes[..at].contains(node))
}
