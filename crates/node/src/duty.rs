//! What the plan of one vBucket asks of one node. Pure, and the only place that reads plans.

use base::{NodeId, VbRole, bucket::BucketKind};
use cluster::{BucketInfo, Metadata, VbPhase, VbPlan};
use engine::Topology;

/// What a node has to be to a vBucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Serve clients and feed the others.
    Lead(Topology),
    /// Take nothing more, feed the others to the end: another node takes over.
    Seal,
    /// Follow that node's copy.
    Follow(NodeId),
    /// Hold still while it is found out whose copy is the most advanced.
    Stand,
    /// Serve nobody, keep everything.
    Keep,
    /// Have no copy.
    Leave,
}

/// What `plan` asks of `node`. `keeps`: what the node has outside of any chain may be of use yet. `copies`: how many the
/// bucket is configured to have, the active one included. A node that has left in good order keeps what others may lack.
#[must_use]
pub fn duty(plan: &VbPlan, node: NodeId, keeps: bool, copies: u8) -> Duty {
    let is_kept = keeps || plan.chain.is_empty() || plan.kept.contains(&node);
    let outside = || if is_kept { Duty::Keep } else { Duty::Leave };
    match plan.chain.first() {
        _ if matches!(plan.phase, VbPhase::Electing { .. }) => {
            // Nobody may have the vBucket in the end.
            if is_part(plan, node) { Duty::Stand } else { Duty::Keep }
        }
        Some(&first) if first == node => match &plan.phase {
            VbPhase::Handover { .. } => Duty::Seal,
            _ => Duty::Lead(topology(plan, copies)),
        },
        Some(&first) if is_part(plan, node) => Duty::Follow(first),
        _ => outside(),
    }
}

impl Duty {
    /// The same where nodes of the plan are `leaving` gracefully: durable writes are on disk with a majority before they are acknowledged.
    /// Of the nodes that are left one may be killed just when the others leave.
    #[must_use]
    pub(crate) fn beside(self, plan: &VbPlan, leaving: &[NodeId]) -> Self {
        match self {
            Self::Lead(topology) => {
                let to_disk = plan.chain.iter().any(|node| leaving.contains(node));
                Self::Lead(Topology { to_disk, ..topology })
            }
            other => other,
        }
    }
}

/// What copies are when the node of that identity has opened their bucket. A node that is alone serves its copies at
/// once, since it has no other node to ask. A node that was removed may know one node that is left, and does not count as alone. Elsewhere
/// the agent decides, which knows whether the metadata is the newest. Every node has a cache of its own.
#[must_use]
pub fn first_role(metadata: &Metadata, uuid: &str, info: &BucketInfo) -> VbRole {
    let is_alone = metadata.nodes.iter().all(|node| node.uuid == uuid);
    if is_alone || info.kind == BucketKind::Memcached { VbRole::Active } else { VbRole::Dead }
}

/// Whether `node` holds a copy of the vBucket, or is getting one.
#[must_use]
pub(crate) fn is_part(plan: &VbPlan, node: NodeId) -> bool {
    let joint = plan.joint.as_deref().unwrap_or_default();
    let others = match &plan.phase {
        VbPhase::Settled => joint,
        VbPhase::Handover { after, .. } => after,
        // During an election the joint chain is the one that is counted by; it may name nodes that were failed over.
        VbPhase::Electing { among } => among,
    };
    [&plan.chain, &plan.building, others].iter().any(|nodes| nodes.contains(&node))
}

fn topology(plan: &VbPlan, copies: u8) -> Topology {
    // After an election the active is known to hold what the chain before held: it is all that is left of that.
    let joint =
        plan.joint.iter().filter(|&joint| joint.as_slice() != plan.chain.get(..1).unwrap_or_default());
    Topology { chains: std::iter::once(&plan.chain).chain(joint).cloned().collect(), copies, to_disk: false }
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;
    use cluster::{BucketParams, Command, NodeInfo, Ports};

    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    fn settled(chain: &[NodeId]) -> VbPlan {
        VbPlan::settled(chain.to_vec(), 3)
    }

    #[test]
    fn the_first_of_a_settled_chain_leads_and_the_others_follow_it() {
        let plan = settled(&[A, B]);
        let topology = Topology { chains: vec![vec![A, B]], copies: 2, to_disk: false };
        assert_eq!(duty(&plan, A, false, 2), Duty::Lead(topology));
        assert_eq!(duty(&plan, B, false, 2), Duty::Follow(A));
        assert_eq!(duty(&plan, C, false, 2), Duty::Leave);
        assert_eq!(duty(&plan, C, true, 2), Duty::Keep);
    }

    #[test]
    fn durable_writes_go_to_disk_while_a_node_of_the_chain_leaves() {
        let plan = settled(&[A, B]);
        let to_disk = |leaving: &[NodeId]| match duty(&plan, A, false, 2).beside(&plan, leaving) {
            Duty::Lead(topology) => topology.to_disk,
            _ => false,
        };
        assert!(to_disk(&[A]) && to_disk(&[C, B]));
        assert!(!to_disk(&[]) && !to_disk(&[C]));
    }

    /// Whether or not it is a member again by then.
    #[test]
    fn a_node_that_has_left_keeps_what_the_others_may_lack() {
        let plan = VbPlan { joint: Some(vec![A]), kept: vec![B], ..settled(&[A]) };
        assert_eq!(duty(&plan, B, false, 2), Duty::Keep);
        assert_eq!(duty(&plan, C, false, 2), Duty::Leave);
    }

    #[test]
    fn a_node_that_builds_or_still_counts_follows_too() {
        let plan = VbPlan { joint: Some(vec![A, B]), building: vec![NodeId(3)], ..settled(&[A, C]) };
        let topology = Topology { chains: vec![vec![A, C], vec![A, B]], copies: 2, to_disk: false };
        assert_eq!(duty(&plan, A, false, 2), Duty::Lead(topology));
        for node in [B, C, NodeId(3)] {
            assert_eq!(duty(&plan, node, false, 2), Duty::Follow(A));
        }
    }

    #[test]
    fn a_node_that_hands_over_seals_and_feeds_all_that_come_after() {
        let phase = VbPhase::Handover { to: C, after: vec![C, B] };
        let plan = VbPlan { phase, ..settled(&[A, B]) };
        assert_eq!(duty(&plan, A, false, 2), Duty::Seal);
        assert_eq!(duty(&plan, B, false, 2), Duty::Follow(A));
        assert_eq!(duty(&plan, C, false, 2), Duty::Follow(A));
    }

    #[test]
    fn an_election_has_everybody_hold_still() {
        let plan = VbPlan { phase: VbPhase::Electing { among: vec![B, C] }, ..settled(&[B, C]) };
        assert_eq!(duty(&plan, B, false, 2), Duty::Stand);
        assert_eq!(duty(&plan, C, false, 2), Duty::Stand);
        assert_eq!(duty(&plan, A, false, 2), Duty::Keep, "another node may have something");
    }

    #[test]
    fn a_node_that_was_failed_over_does_not_stand_for_election() {
        let plan =
            VbPlan { phase: VbPhase::Electing { among: vec![B] }, joint: Some(vec![A, B]), ..settled(&[B]) };
        assert_eq!(duty(&plan, A, true, 2), Duty::Keep);
        assert_eq!(duty(&plan, B, false, 2), Duty::Stand);
        let elected = VbPlan { joint: Some(vec![B]), ..settled(&[B]) };
        let topology = Topology { chains: vec![vec![B]], copies: 2, to_disk: false };
        assert_eq!(duty(&elected, B, false, 2), Duty::Lead(topology));
    }

    #[test]
    fn a_node_opens_a_bucket_to_serve_it_only_where_it_is_the_only_node() {
        let node = |uuid: &str| NodeInfo::first(uuid.into(), "h".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), vbuckets: Some(16), ..BucketParams::default() };
        let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let mut metadata = Metadata::new("c".into(), 1_000);
        metadata.nodes.push(node("a"));
        let mut metadata = metadata.apply(&create).unwrap().0;
        let role = |metadata: &Metadata, uuid: &str| first_role(metadata, uuid, &metadata.buckets["b"]);
        assert_eq!(role(&metadata, "a"), VbRole::Active);
        assert_eq!(role(&metadata, "b"), VbRole::Dead, "it was removed before it was started");
        metadata.nodes.push(node("b"));
        assert_eq!(role(&metadata, "a"), VbRole::Dead);
    }

    #[test]
    fn nothing_is_dropped_while_nobody_has_the_vbucket() {
        assert_eq!(duty(&settled(&[]), A, false, 2), Duty::Keep);
    }
}
