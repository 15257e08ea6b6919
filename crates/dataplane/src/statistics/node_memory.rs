//! What holds the memory of this process: buckets, the node's account ([`crate::account`]), and the rest.

use stats::NodeMemory;

use crate::state::{account::NodePool, shared::Shared};

/// What holds the memory of this process.
pub fn node_memory(shared: &Shared) -> NodeMemory {
    let snapshot = shared.snapshot();
    let buckets = || snapshot.buckets.values().map(|bucket| bucket.engine.held_memory());
    let waiting: u64 = buckets().map(|held| held.waiting).sum();
    let process = shared.account.process();
    let mut memory = NodeMemory {
        buckets: buckets().map(|held| held.used).sum(),
        arena_holes: buckets().map(|held| held.holes).sum(),
        loops: shared.account.of(NodePool::Loops),
        connections: shared.account.of(NodePool::Connections).saturating_sub(waiting),
        forwarding: shared.account.of(NodePool::Forwarding),
        consensus: shared.account.of(NodePool::Consensus),
        services: shared.account.of(NodePool::Services),
        allocator: process.allocator_free,
        code: process.resident.of_files,
        other: 0,
    };
    memory.other = process.resident.all.saturating_sub(memory.sum());
    memory
}
