//! Every statistic, declared once: its names, what it says, and where the figure comes from.
//!
//! A row is a [`Statistic`] and a getter. STAT (`handlers::stats`), REST and `/metrics` (`admin`, through
//! `NodeControl`) and the page `docs/statistics.md` are made from the rows, so a new statistic is one new row.
//!
//! Getters are pure: they pick a figure from facts that were gathered once. The facts are a bucket's ([`BucketFacts`]),
//! the process's ([`NodeFacts`]), the machine's (`admin::SystemStats`), or those of DCP connections ([`DcpFacts`]).

mod connections;
mod disk;
mod documents;
mod durations;
mod facts;
mod memory;
mod operations;
#[cfg(test)]
mod page;
mod process;

use admin::statistics::{Kind, Metric, Reading, Statistic, Unit, Value};

pub(crate) use self::{
    connections::DCP,
    disk::{DISK, HELD},
    documents::{DOCUMENTS, WARM_UP},
    durations::{PHASES, TIMINGS},
    facts::{BucketFacts, DcpFacts, NodeFacts},
    memory::{MEMORY, PACING, POOLS},
    operations::OPERATIONS,
    process::{CONNECTIONS, NODE_POOLS, PROCESS, PROCESS_DISK, PROCESS_LEASE, SYSTEM},
};

/// A statistic, and where its figure is in facts of the kind `F`.
#[derive(Debug)]
pub(crate) struct Row<F: 'static> {
    pub(crate) about: Statistic,
    pub(crate) get: fn(&F) -> Value,
}

/// Names, a unit, a sentence and a getter: what every row has.
const fn row<F>(
    kind: Kind,
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    get: fn(&F) -> Value,
) -> Row<F> {
    Row { about: Statistic { stat: names, rest: names, metrics: &[], help, unit, kind }, get }
}

const fn counter<F>(
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    get: fn(&F) -> Value,
) -> Row<F> {
    row(Kind::Counter, names, unit, help, get)
}

const fn gauge<F>(
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    get: fn(&F) -> Value,
) -> Row<F> {
    row(Kind::Gauge, names, unit, help, get)
}

const fn text<F>(names: &'static [&'static str], help: &'static str, get: fn(&F) -> Value) -> Row<F> {
    row(Kind::Text, names, Unit::None, help, get)
}

impl<F> Row<F> {
    /// With series in `/metrics`.
    const fn metrics(mut self, metrics: &'static [Metric]) -> Self {
        self.about.metrics = metrics;
        self
    }

    /// With other names in REST than in STAT.
    const fn rest(mut self, names: &'static [&'static str]) -> Self {
        self.about.rest = names;
        self
    }

    /// Not in STAT's main group.
    const fn not_in_stat(mut self) -> Self {
        self.about.stat = &[];
        self
    }
}

/// What rows say of these facts.
pub(crate) fn read<F>(rows: &'static [Row<F>], facts: &F) -> impl Iterator<Item = Reading> {
    rows.iter().map(move |row| Reading { about: &row.about, value: (row.get)(facts) })
}

/// What rows say of these facts, as STAT shows it.
pub(crate) fn pairs<F>(rows: &'static [Row<F>], facts: &F) -> Vec<(String, String)> {
    read(rows, facts).flat_map(shown).collect()
}

fn shown(reading: Reading) -> Vec<(String, String)> {
    let Some(text) = reading.value.text() else { return Vec::new() };
    reading.about.stat.iter().map(|name| ((*name).to_owned(), text.clone())).collect()
}
