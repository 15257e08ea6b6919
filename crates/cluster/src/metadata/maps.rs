//! Between plans, which name nodes by their numbers, and [`placement`], which knows them as positions of a list.

use base::NodeId;

use crate::metadata::{
    Metadata,
    placement::{self, VbMap},
    topology::{Membership, VbPlan},
};

/// The plans of a new bucket: over the nodes that hold data and will go on to.
pub(crate) fn first_plans(state: &Metadata, vbuckets: u16, replicas: u8) -> Vec<VbPlan> {
    let nodes = data_nodes(state);
    let none = vec![Vec::new(); usize::from(vbuckets)];
    place(state, &nodes, &none, replicas).into_iter().map(|chain| VbPlan::settled(chain, 1)).collect()
}

/// Nodes that hold data and will go on to: those that the rebalance under way keeps, or all active ones.
pub(crate) fn data_nodes(state: &Metadata) -> Vec<NodeId> {
    match &state.rebalance {
        Some(rebalance) => rebalance.keep.clone(),
        None => {
            let active = state.nodes.iter().filter(|node| node.membership == Membership::Active);
            active.map(|node| node.id).collect()
        }
    }
}

/// The chains to aim at over `nodes`, from those there are.
pub(crate) fn place(
    state: &Metadata,
    nodes: &[NodeId],
    current: &[Vec<NodeId>],
    replicas: u8,
) -> Vec<Vec<NodeId>> {
    // Nodes that go have positions beyond those that stay; that is how placement tells them apart.
    let mut positions = nodes.to_vec();
    let mut position = |node: NodeId| match positions.iter().position(|&known| known == node) {
        Some(at) => at as u16,
        None => {
            positions.push(node);
            positions.len() as u16 - 1
        }
    };
    let current =
        VbMap(current.iter().map(|chain| chain.iter().map(|&node| position(node)).collect()).collect());
    let group = |node: &NodeId| {
        let group = state.node_by_id(*node).map_or("", |node| node.group.as_str());
        state.server_groups.iter().position(|known| known.uuid == group).unwrap_or(usize::MAX) as u16
    };
    let groups: Vec<u16> = nodes.iter().map(group).collect();
    let aim = placement::place(&current, &groups, replicas);
    aim.0.iter().map(|chain| chain.iter().map(|&at| nodes[usize::from(at)]).collect()).collect()
}
