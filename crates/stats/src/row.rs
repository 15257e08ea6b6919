//! A statistic beside the way to its figure, and how such rows are written and read.

use crate::{Across, Kind, Metric, Reading, Statistic, Unit, Value};

/// A statistic, and where its figure is in facts of the kind `F`.
#[derive(Debug)]
pub struct Row<F: 'static> {
    /// Its declaration.
    pub about: Statistic,
    /// Where its figure is.
    pub get: fn(&F) -> Value,
}

/// Names, a unit, a sentence and a getter: what every row has.
#[must_use]
pub const fn row<F>(
    kind: Kind,
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    get: fn(&F) -> Value,
) -> Row<F> {
    Row {
        about: Statistic { stat: names, rest: names, metrics: &[], help, unit, kind, across: Across::Sum },
        get,
    }
}

/// A figure that only grows.
#[must_use]
pub const fn counter<F>(
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    get: fn(&F) -> Value,
) -> Row<F> {
    row(Kind::Counter, names, unit, help, get)
}

/// A figure that goes up and down.
#[must_use]
pub const fn gauge<F>(
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    get: fn(&F) -> Value,
) -> Row<F> {
    row(Kind::Gauge, names, unit, help, get)
}

/// Words, which only STAT shows.
#[must_use]
pub const fn text<F>(names: &'static [&'static str], help: &'static str, get: fn(&F) -> Value) -> Row<F> {
    row(Kind::Text, names, Unit::None, help, get)
}

impl<F> Row<F> {
    /// With series in `/metrics`.
    #[must_use]
    pub const fn metrics(mut self, metrics: &'static [Metric]) -> Self {
        self.about.metrics = metrics;
        self
    }

    /// With other names in REST than in STAT.
    #[must_use]
    pub const fn rest(mut self, names: &'static [&'static str]) -> Self {
        self.about.rest = names;
        self
    }

    /// Together with other nodes' not their sum.
    #[must_use]
    pub const fn across(mut self, across: Across) -> Self {
        self.about.across = across;
        self
    }

    /// Not in STAT's main group.
    #[must_use]
    pub const fn not_in_stat(mut self) -> Self {
        self.about.stat = &[];
        self
    }
}

/// What rows say of these facts.
pub fn read<F>(rows: &'static [Row<F>], facts: &F) -> impl Iterator<Item = Reading> {
    rows.iter().map(move |row| Reading::of(&row.about, (row.get)(facts)))
}

/// What rows say of these facts, as STAT shows it.
#[must_use]
pub fn pairs<F>(rows: &'static [Row<F>], facts: &F) -> Vec<(String, String)> {
    read(rows, facts).flat_map(shown).collect()
}

fn shown(reading: Reading) -> Vec<(String, String)> {
    let Some(text) = reading.value.text() else { return Vec::new() };
    reading.about.stat.iter().map(|name| ((*name).to_owned(), text.clone())).collect()
}
