//! The parts of a kind of run: nodes, buckets, and what clients do with them.

use base::bucket::{
    BucketKind::{self, Couchbase, Ephemeral},
    EvictionPolicy::{self, FullEviction, NoEviction, ValueOnly},
};

use crate::faults::NEVER;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// There are three nodes at first, and up to so many more.
    pub(crate) more_nodes: u16,
    /// Nodes that there are at most.
    pub(crate) nodes_max: usize,
    /// Server groups that they are put into.
    pub(crate) groups: usize,
    /// Nodes are put into other groups, once in so many steps.
    pub(crate) regrouping: u32,
    /// What buckets are; the first one is of the first kind, on which each level of durability can be asked for.
    pub(crate) buckets: &'static [(BucketKind, EvictionPolicy)],
    /// So many there are from the beginning, each of the next kind.
    pub(crate) buckets_first: usize,
    /// Copies beside the active one, at most.
    pub(crate) replicas_max: u8,
    /// What a bucket may take of a node's memory. The metadata tell of nodes of another size.
    pub(crate) quota_bytes: u64,
    /// Collections come and go, once in so many steps.
    pub(crate) collection: u32,
    /// Clients that do one thing after the other.
    pub(crate) clients: usize,
    /// Keys of each collection and level.
    pub(crate) keys: usize,
    /// How many lengths of values there are, and by how many bytes one is longer than the one before.
    pub(crate) lengths: (usize, usize),
    /// Documents are removed, too.
    pub(crate) removals: bool,
    /// And expire.
    pub(crate) expiries: bool,
    /// Tombstones may go after so many seconds.
    pub(crate) purge_secs: u32,
    /// Design documents come, change and go, once in so many steps.
    pub(crate) designs: u32,
    /// Of four buckets so many index copies that follow others.
    pub(crate) replica_indexes: u8,
    /// Between two operations of a client, at most.
    pub(crate) rest_millis: u64,
    /// When clients begin something, and when they do not.
    pub(crate) cycle: Cycle,
    /// Somebody has a shard compacted, once in so many steps.
    pub(crate) compactions: u16,
}

/// Clients are busy at the beginning of each cycle. Then they let everything be, so that nothing hides what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) millis: u64,
    pub(crate) busy_millis: u64,
}

impl Cycle {
    const BUSY: Self = Self { millis: 4_000, busy_millis: 4_000 };

    /// Whether clients begin something.
    pub(crate) fn is_busy(self, at: u64) -> bool {
        at % self.millis < self.busy_millis
    }

    /// Whether somebody asks for indexes of development documents. In between tombstones go that these indexes have not heard of.
    pub(crate) fn asks_developers(self, at: u64) -> bool {
        let (phase, part) = (at % self.millis, self.millis / 8);
        phase < part || phase >= self.millis - part
    }
}

impl Setting {
    /// Few of everything.
    pub(crate) const PLAIN: Self = Self {
        more_nodes: 2,
        nodes_max: 6,
        groups: 1,
        regrouping: NEVER,
        buckets: &[(Couchbase, ValueOnly)],
        buckets_first: 1,
        replicas_max: 2,
        quota_bytes: 100 << 20,
        collection: NEVER,
        clients: 6,
        keys: 3,
        lengths: (60, 1),
        removals: false,
        expiries: false,
        purge_secs: 3 * 24 * 3_600,
        designs: NEVER,
        replica_indexes: 0,
        rest_millis: 30,
        cycle: Cycle::BUSY,
        compactions: 1_000,
    };
    /// Buckets of all kinds, collections, server groups, more nodes than vote.
    pub(crate) const WIDE: Self = Self {
        more_nodes: 4,
        nodes_max: 8,
        groups: 3,
        regrouping: 1_500,
        buckets: &[(Couchbase, ValueOnly), (Couchbase, FullEviction), (Ephemeral, NoEviction)],
        replicas_max: 3,
        collection: 400,
        clients: 12,
        removals: true,
        expiries: true,
        purge_secs: 2,
        ..Self::PLAIN
    };
    /// One bucket on disk, one in memory only.
    pub(crate) const BESIDE: Self =
        Self { buckets: &[(Couchbase, ValueOnly), (Ephemeral, NoEviction)], buckets_first: 2, ..Self::PLAIN };
    /// The same with two copies.
    pub(crate) const FORGETTING: Self = Self { replicas_max: 1, ..Self::BESIDE };
    /// Some documents more than memory holds.
    pub(crate) const FETCHING: Self = Self {
        buckets: &[(Couchbase, FullEviction), (Couchbase, ValueOnly)],
        quota_bytes: 2 << 20,
        clients: 24,
        keys: 80,
        lengths: (6, 5_000),
        removals: true,
        ..Self::PLAIN
    };
    /// With views.
    pub(crate) const VIEWS: Self = Self {
        buckets: &[(Couchbase, ValueOnly), (Couchbase, FullEviction)],
        clients: 12,
        keys: 6,
        removals: true,
        purge_secs: 2,
        designs: 300,
        replica_indexes: 2,
        cycle: Cycle { millis: 4_000, busy_millis: 3_000 },
        ..Self::PLAIN
    };
    /// With views over few documents, which are let be for most of the time: what is wrong with an index stays to be seen.
    pub(crate) const SET_BACK: Self = Self {
        more_nodes: 1,
        nodes_max: 4,
        clients: 6,
        keys: 5,
        // Long enough to fill segments, so that compactions drop tombstones.
        lengths: (6, 3_000),
        removals: true,
        purge_secs: 1,
        designs: 2_000,
        replica_indexes: 3,
        rest_millis: 300,
        cycle: Cycle { millis: 3_000, busy_millis: 800 },
        compactions: 100,
        ..Self::PLAIN
    };
    /// More documents than memory holds.
    pub(crate) const NARROW: Self = Self {
        buckets: &[(Couchbase, ValueOnly), (Couchbase, FullEviction)],
        quota_bytes: 2 << 20,
        clients: 48,
        keys: 120,
        lengths: (6, 4_000),
        removals: true,
        expiries: true,
        purge_secs: 2,
        ..Self::PLAIN
    };
}
