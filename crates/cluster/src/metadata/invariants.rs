//! What must be true of every state and of every change of it, for tests and simulations to check after each step.

use std::collections::BTreeSet;

use base::NodeId;

use crate::metadata::{
    BucketInfo, Metadata,
    topology::{VbPhase, VbPlan},
};

/// What is wrong with a state.
///
/// # Errors
/// The first thing found, in words.
pub fn check(state: &Metadata) -> Result<(), String> {
    let ids: BTreeSet<NodeId> = state.nodes.iter().map(|node| node.id).collect();
    ensure(ids.len() == state.nodes.len(), || "two nodes have the same number".into())?;
    ensure(ids.iter().all(|id| id.get() < state.next_node), || "a number is about to be given twice".into())?;
    ensure(!ids.iter().any(|id| state.knows_nothing_of(*id)), || {
        "a number was given that is left out".into()
    })?;
    for node in &state.nodes {
        ensure(state.server_group(&node.group).is_some(), || {
            format!("node {} is in no server group", node.id)
        })?;
    }
    for gone in &state.departed {
        ensure(!ids.contains(&gone.node), || format!("node {} has left and is there", gone.node))?;
    }
    let holding: BTreeSet<NodeId> = state.active_nodes().map(|node| node.id).collect();
    for (name, bucket) in &state.buckets {
        ensure(bucket.target.is_none() || state.rebalance.is_some(), || {
            format!("{name}: aims without a rebalance")
        })?;
        for (vb, plan) in bucket.vbs.iter().enumerate() {
            check_plan(plan, &holding).map_err(|text| format!("{name}/{vb}: {text}: {plan:?}"))?;
        }
    }
    Ok(())
}

fn check_plan(plan: &VbPlan, holding: &BTreeSet<NodeId>) -> Result<(), String> {
    ensure(distinct(&plan.chain) && distinct(&plan.building), || "a node is named twice".into())?;
    ensure(plan.chain.iter().all(|node| !plan.building.contains(node)), || "counted and building".into())?;
    ensure(plan.gone.is_empty() || plan.joint.is_some(), || "somebody is remembered for nothing".into())?;
    ensure(plan.kept.is_empty() || plan.joint.is_some(), || "somebody is kept for nothing".into())?;
    ensure(plan.chain.iter().all(|node| !plan.gone.contains(node)), || "gone and counted".into())?;
    let named = plan.nodes().into_iter().filter(|&node| !plan.has_failed(node));
    let stranger = named.into_iter().find(|node| !holding.contains(node));
    ensure(stranger.is_none(), || format!("{stranger:?} holds no data"))?;
    match &plan.phase {
        VbPhase::Settled => {
            ensure(!plan.chain.is_empty() || plan.is_quiet(), || "nobody to build from".into())
        }
        VbPhase::Handover { to, after } => {
            let known = |node: &NodeId| plan.chain.contains(node) || plan.building.contains(node);
            ensure(after.first() == Some(to) && plan.chain.first() != Some(to), || {
                "hands over to itself".into()
            })?;
            ensure(distinct(after) && after.iter().all(known), || "hands over to strangers".into())
        }
        VbPhase::Electing { among } => {
            ensure(!among.is_empty() && distinct(among), || "nobody to elect".into())?;
            ensure(plan.joint.is_some(), || "forgot whom to ask".into())
        }
    }
}

/// What is wrong with going from one state to the next.
///
/// # Errors
/// The first thing found, in words.
pub fn check_change(before: &Metadata, after: &Metadata) -> Result<(), String> {
    ensure(after.version == before.version + 1, || "the version does not count changes".into())?;
    ensure(after.level >= before.level, || "the level sank".into())?;
    ensure(after.rev >= before.rev, || "the revision went back".into())?;
    ensure(after.next_node >= before.next_node, || "node numbers went back".into())?;
    for (name, bucket) in &after.buckets {
        let Some(then) = before.buckets.get(name).filter(|then| then.uuid == bucket.uuid) else { continue };
        check_terms(then, bucket).map_err(|text| format!("{name}/{text}"))?;
        let rerouted = then.vbs.iter().zip(bucket.vbs.iter()).any(|(then, now)| then.chain != now.chain);
        ensure(!rerouted || after.rev > before.rev, || {
            format!("{name}: clients are not told of another map")
        })?;
    }
    Ok(())
}

fn check_terms(before: &BucketInfo, after: &BucketInfo) -> Result<(), String> {
    ensure(before.vbs.len() == after.vbs.len(), || "the number of vBuckets changed".into())?;
    for (vb, (then, now)) in before.vbs.iter().zip(after.vbs.iter()).enumerate() {
        ensure(now.term >= then.term, || format!("{vb}: the term went back"))?;
        let same = then.chain == now.chain && then.active() == now.active();
        ensure(same || now.term > then.term, || {
            format!("{vb}: another chain in the same term: {then:?} {now:?}")
        })?;
    }
    Ok(())
}

fn distinct(nodes: &[NodeId]) -> bool {
    nodes.iter().collect::<BTreeSet<_>>().len() == nodes.len()
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}
