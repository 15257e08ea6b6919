//! Every statistic, declared once: its names, what it says, and where the figure comes from.
//!
//! A row is a [`Statistic`] and a getter. STAT (`handlers::stats`), REST and `/metrics` (`admin`, through
//! `NodeControl`) and the page `docs/statistics.md` are made from the rows, so a new statistic is one new row.
//!
//! Getters are pure: they pick a figure from facts that were gathered once. The facts are a bucket's ([`BucketFacts`]),
//! the process's ([`NodeFacts`]), the machine's ([`SystemStats`]), or those of DCP connections ([`DcpFacts`]).

#[cfg(test)]
pub(crate) mod absent;
mod alerts;
mod connections;
mod derived;
mod disk;
mod documents;
mod durations;
mod facts;
mod memory;
#[cfg(test)]
mod monitoring;
mod objectives;
mod operations;
#[cfg(test)]
mod page;
mod probes;
mod process;
mod views;

use stats::{Reading, Statistic, SystemStats, counter, gauge, row, text};
pub(crate) use stats::{Row, pairs, read};

use crate::BucketMeter;

pub(crate) use self::{
    alerts::{ALERTS, FiringFacts, of_alert},
    connections::{DCP, DCP_KINDS},
    derived::DERIVED,
    disk::{DISK, HELD},
    documents::{DOCUMENTS, PENDING, REPLICAS, WARM_UP},
    durations::{PHASES, TIMINGS},
    facts::{BucketFacts, DcpFacts, NodeFacts},
    memory::{MEMORY, PACING, POOLS},
    objectives::{
        OBJECTIVES, ObjectiveFacts, OutsideFacts, SEEN_FROM_OUTSIDE, of_objective, seen_from_outside,
    },
    operations::OPERATIONS,
    probes::{PROBE_TARGETS, PROBES, ProbeFacts, of_probe, of_target},
    process::{CONNECTIONS, NODE_POOLS, PROCESS, PROCESS_DISK, PROCESS_LEASE, SYSTEM},
    views::VIEWS,
};

/// The sections of a bucket's statistics, in the order in which STAT shows them.
pub(crate) const OF_BUCKET: [&[Row<BucketFacts>]; 11] =
    [OPERATIONS, DOCUMENTS, REPLICAS, PENDING, WARM_UP, MEMORY, POOLS, PACING, DISK, HELD, VIEWS];

/// What a bucket says, but for how long things took.
pub(crate) fn of_bucket(facts: &BucketFacts, dcp: &DcpFacts) -> Vec<Reading> {
    let of_connections = std::iter::once(DCP).chain(DCP_KINDS).flat_map(|rows| read(rows, dcp));
    OF_BUCKET.into_iter().flat_map(|rows| read(rows, facts)).chain(of_connections).collect()
}

/// How long things took.
pub(crate) fn durations(meter: &BucketMeter) -> impl Iterator<Item = Reading> {
    [PHASES, TIMINGS].into_iter().flat_map(move |rows| read(rows, meter))
}

/// What the process and the machine say.
pub(crate) fn of_node(node: &NodeFacts, system: &SystemStats) -> Vec<Reading> {
    let of_process =
        [PROCESS, CONNECTIONS, PROCESS_DISK, PROCESS_LEASE].into_iter().flat_map(|rows| read(rows, node));
    of_process.chain(read(NODE_POOLS, &node.memory)).chain(read(SYSTEM, system)).collect()
}

/// Every statistic, by what it is about.
pub(crate) fn sections() -> Vec<(&'static str, Vec<&'static Statistic>)> {
    fn of<F>(rows: &'static [Row<F>]) -> Vec<&'static Statistic> {
        rows.iter().map(|row| &row.about).collect()
    }
    vec![
        ("Process", [of(PROCESS), of(PROCESS_DISK), of(PROCESS_LEASE)].concat()),
        ("Client connections", of(CONNECTIONS)),
        ("Memory of the process", of(NODE_POOLS)),
        ("Machine", of(SYSTEM)),
        ("Operations", of(OPERATIONS)),
        ("Documents", [of(DOCUMENTS), of(REPLICAS), of(PENDING)].concat()),
        ("Warm-up", of(WARM_UP)),
        ("Memory of a bucket", [of(MEMORY), of(POOLS)].concat()),
        ("Memory pressure", of(PACING)),
        ("Disk", [of(DISK), of(HELD)].concat()),
        ("Views", of(VIEWS)),
        ("Change streams and replication", std::iter::once(DCP).chain(DCP_KINDS).flat_map(of).collect()),
        ("Alerts", of(ALERTS)),
        ("Objectives", [of(OBJECTIVES), of(SEEN_FROM_OUTSIDE)].concat()),
        ("Active probe", [of(PROBES), of(PROBE_TARGETS)].concat()),
        ("Ratios and means", of(DERIVED)),
        ("Durations", [of(PHASES), of(TIMINGS)].concat()),
    ]
}
