//! What a node says of its machine, of its process, and of the process's memory. Nodes tell it to one another.

use serde::{Deserialize, Serialize};

/// Figures of the machine and this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemStats {
    /// Seconds since the process started.
    pub uptime_secs: u64,
    /// Bytes of memory the machine (or its control group) has.
    pub memory_total: u64,
    /// Bytes of it that could be had.
    pub memory_free: u64,
    /// Bytes of swap.
    pub swap_total: u64,
    /// Bytes of swap in use.
    pub swap_used: u64,
    /// Processors.
    pub cpu_cores: u64,
    /// Percent of all processors in use; 0 when not known.
    pub cpu_utilization_percent: f64,
    /// Percent of all processors that a hypervisor gave to others; 0 when not known.
    #[serde(default)]
    pub cpu_stolen_percent: f64,
    /// Percent of one processor that this process used; 0 when not known.
    #[serde(default)]
    pub process_cpu_percent: f64,
    /// Bytes of the file system with the data directory.
    pub disk_total: u64,
    /// Bytes of it in use.
    pub disk_used: u64,
    /// Resident bytes of this process.
    pub process_resident: u64,
    /// Client connections to the data ports.
    pub connections: u64,
    /// What holds the process's memory.
    #[serde(default)]
    pub memory: NodeMemory,
}

/// What holds a node's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// The buckets: `mem_used` of all of them.
    pub buckets: u64,
    /// What their arenas have beyond that: holes that documents will fill.
    pub arena_holes: u64,
    /// Buffers that connections share.
    pub loops: u64,
    /// Connections, of clients and of other nodes: half-read requests, answers that nobody has taken.
    pub connections: u64,
    /// Requests on their way to other nodes, and answers until their turn comes.
    pub forwarding: u64,
    /// The log of the metadata, and messages about it.
    pub consensus: u64,
    /// What services hold: indexes of views.
    #[serde(default)]
    pub services: u64,
    /// What the allocator has been given back and keeps.
    #[serde(default)]
    pub allocator: u64,
    /// Pages of files that are mapped: the program itself.
    #[serde(default)]
    pub code: u64,
    /// The rest of what is resident: stacks, and what nobody counts.
    pub other: u64,
}

impl NodeMemory {
    /// All of them, with the words for statistics.
    #[must_use]
    pub fn pools(&self) -> [(&'static str, u64); 10] {
        [
            ("buckets", self.buckets),
            ("arena_holes", self.arena_holes),
            ("loops", self.loops),
            ("connections", self.connections),
            ("forwarding", self.forwarding),
            ("consensus", self.consensus),
            ("services", self.services),
            ("allocator", self.allocator),
            ("code", self.code),
            ("other", self.other),
        ]
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.pools().iter().map(|pool| pool.1).sum()
    }
}
