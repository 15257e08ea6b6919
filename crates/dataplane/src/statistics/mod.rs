//! The statistics of the data path, each declared once: its names, what it says, and where the figure comes from.
//!
//! A row is a [`Statistic`] and a getter. STAT (`handlers::stats`), REST, `/metrics` and the page `docs/statistics.md`
//! are made from the rows, so a new statistic is one new row. The daemon adds rows of its own for the other three.
//!
//! Getters are pure: they pick a figure from facts that were gathered once. The facts are a bucket's ([`BucketFacts`]),
//! the process's ([`NodeFacts`]), or those of DCP connections ([`DcpFacts`]).

mod collections;
mod connections;
pub mod dcp;
mod disk;
mod documents;
mod durations;
mod facts;
pub mod followers;
mod memory;
pub mod node_memory;
mod operations;
mod process;
mod views;

use stats::{Reading, Statistic};
pub(crate) use stats::{Row, pairs, read};

use crate::figures::meter::BucketMeter;

pub(crate) use self::facts::Pairs;
pub(crate) use self::{
    collections::COLLECTIONS,
    connections::{DCP, DCP_KINDS},
    disk::{DISK, HELD},
    documents::{DOCUMENTS, PENDING, REPLICAS, WARM_UP},
    durations::{PHASES, TIMINGS},
    memory::{MEMORY, PACING, POOLS},
    operations::OPERATIONS,
    process::{CONNECTIONS, NODE_POOLS, PROCESS, PROCESS_DISK, PROCESS_LEASE},
    views::VIEWS,
};
pub use self::{
    collections::of_collections,
    facts::{BucketFacts, DcpFacts, NodeFacts},
};

/// The sections of a bucket's statistics, in the order in which STAT shows them.
pub(crate) const OF_BUCKET: [&[Row<BucketFacts>]; 11] =
    [OPERATIONS, DOCUMENTS, REPLICAS, PENDING, WARM_UP, MEMORY, POOLS, PACING, DISK, HELD, VIEWS];

/// What a bucket says, but for how long things took.
pub fn of_bucket(facts: &BucketFacts, dcp: &DcpFacts) -> Vec<Reading> {
    let of_connections = std::iter::once(DCP).chain(DCP_KINDS).flat_map(|rows| read(rows, dcp));
    OF_BUCKET.into_iter().flat_map(|rows| read(rows, facts)).chain(of_connections).collect()
}

/// How long things took.
pub fn durations(meter: &BucketMeter) -> impl Iterator<Item = Reading> {
    [PHASES, TIMINGS].into_iter().flat_map(move |rows| read(rows, meter))
}

/// What the process says.
pub fn of_process(node: &NodeFacts) -> impl Iterator<Item = Reading> {
    let of_process = [PROCESS, CONNECTIONS, PROCESS_DISK, PROCESS_LEASE].into_iter();
    of_process.flat_map(|rows| read(rows, node)).chain(read(NODE_POOLS, &node.memory))
}

/// Statistics of one subject, under its name.
pub type Section = (&'static str, Vec<&'static Statistic>);

/// The declarations of rows.
pub fn of<F>(rows: &'static [Row<F>]) -> Vec<&'static Statistic> {
    rows.iter().map(|row| &row.about).collect()
}

/// Statistics of the process.
#[must_use]
pub fn sections_of_process() -> [Section; 3] {
    [
        ("Process", [of(PROCESS), of(PROCESS_DISK), of(PROCESS_LEASE)].concat()),
        ("Client connections", of(CONNECTIONS)),
        ("Memory of the process", of(NODE_POOLS)),
    ]
}

/// Statistics of a bucket, but for durations.
#[must_use]
pub fn sections_of_bucket() -> [Section; 8] {
    [
        ("Operations", of(OPERATIONS)),
        ("Documents", [of(DOCUMENTS), of(COLLECTIONS), of(REPLICAS), of(PENDING)].concat()),
        ("Warm-up", of(WARM_UP)),
        ("Memory of a bucket", [of(MEMORY), of(POOLS)].concat()),
        ("Memory pressure", of(PACING)),
        ("Disk", [of(DISK), of(HELD)].concat()),
        ("Views", of(VIEWS)),
        ("Change streams and replication", std::iter::once(DCP).chain(DCP_KINDS).flat_map(of).collect()),
    ]
}

/// How long things took.
#[must_use]
pub fn section_of_durations() -> Section {
    ("Durations", [of(PHASES), of(TIMINGS)].concat())
}
