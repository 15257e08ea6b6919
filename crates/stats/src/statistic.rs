//! What a statistic is. Each is declared once, by the server: STAT, REST, `/metrics` and the page of the documentation
//! are made from that declaration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a figure behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process or the bucket starts anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations, by how long they were.
    Histogram,
    /// Words or an identifier. Only STAT shows it.
    Text,
}

impl Kind {
    /// The word for it, which is Prometheus' where that has one.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Text => "text",
        }
    }
}

/// What a figure is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Unit {
    None,
    Count,
    Bytes,
    Seconds,
    Milliseconds,
    Microseconds,
    Percent,
    Ratio,
    PerSecond,
    BytesPerSecond,
}

impl Unit {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Percent => "%",
            Self::Ratio => "ratio",
            Self::PerSecond => "1/s",
            Self::BytesPerSecond => "bytes/s",
        }
    }
}

/// A series in `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub family: &'static str,
    /// What several statistics of one name have in common. The statistic's own help where no other has the name.
    pub help: Option<&'static str>,
    /// Its labels, beside the bucket's.
    pub labels: &'static [(&'static str, &'static str)],
    /// What the statistic is multiplied by.
    pub scale: f64,
}

impl Metric {
    /// The only series of its name.
    #[must_use]
    pub const fn new(family: &'static str) -> Self {
        Self { family, help: None, labels: &[], scale: 1.0 }
    }

    /// One of several series of a name.
    #[must_use]
    pub const fn one_of(
        family: &'static str,
        help: &'static str,
        labels: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { family, help: Some(help), labels, scale: 1.0 }
    }

    /// The same in another unit.
    #[must_use]
    pub const fn scaled(self, scale: f64) -> Self {
        Self { scale, ..self }
    }
}

/// Looks up what another statistic says at the same moment, by its name in REST; 0 where nobody has said it.
pub type Lookup<'a> = dyn Fn(&str) -> f64 + 'a;

/// What several nodes' figures are together.
#[derive(Clone, Copy, Debug)]
pub enum Across {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The greatest of them.
    Max,
    /// What follows from other figures, once those of all nodes are known.
    Of(fn(&Lookup<'_>) -> f64),
}

/// One statistic.
#[derive(Clone, Copy, Debug)]
pub struct Statistic {
    /// Its names in STAT. Some figures have several established names.
    pub stat: &'static [&'static str],
    /// Its names in REST.
    pub rest: &'static [&'static str],
    /// Its series in `/metrics`.
    pub metrics: &'static [Metric],
    /// What it says, in one sentence.
    pub help: &'static str,
    /// What it is measured in, in STAT and REST.
    pub unit: Unit,
    /// How it behaves.
    pub kind: Kind,
    /// What REST shows of several nodes.
    pub across: Across,
}

/// What a statistic says now.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any other number.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// Words.
    Text(String),
    /// Durations.
    Histogram {
        /// Microseconds, all together.
        micros: u64,
        /// Ascending: microseconds, and how many took less than that and no less than those before.
        steps: Vec<(u64, u64)>,
    },
    /// The same in steps of others' making, all in the unit of its series.
    Told {
        /// All of them together.
        sum: u64,
        /// How many there are.
        count: u64,
        /// Ascending bounds, and how many are no more than each; without a bound at last.
        steps: Vec<(Option<u32>, u64)>,
    },
    /// Not to be had here. It is shown nowhere.
    Absent,
}

impl Value {
    /// As a number, if it is one.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "JSON and Prometheus have no other numbers")]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Real(real) => Some(*real),
            Self::Flag(flag) => Some(f64::from(u8::from(*flag))),
            Self::Text(_) | Self::Histogram { .. } | Self::Told { .. } | Self::Absent => None,
        }
    }

    /// As STAT shows it, if it does.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Count(count) => Some(count.to_string()),
            Self::Real(real) => Some(real.to_string()),
            Self::Flag(flag) => Some(flag.to_string()),
            Self::Text(text) => Some(text.clone()),
            Self::Histogram { .. } | Self::Told { .. } | Self::Absent => None,
        }
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// A statistic, and what it says now.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Which.
    pub about: &'static Statistic,
    /// What it says.
    pub value: Value,
    /// Labels in `/metrics` that depend on what it is about, beside those of the declaration. Values need no escape.
    pub labels: Vec<(&'static str, String)>,
}

impl Reading {
    /// One without labels of its own.
    #[must_use]
    pub const fn of(about: &'static Statistic, value: Value) -> Self {
        Self { about, value, labels: Vec::new() }
    }
}

/// How far back samples reach, and how close together they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Zoom {
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Zoom {
    /// All of them, the shortest first.
    pub const ALL: [Self; 6] = [Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// By its name in a request.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|zoom| zoom.name() == name)
    }

    /// Its name in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// From one sample to the next; as in Couchbase.
    #[must_use]
    pub const fn step_secs(self) -> u64 {
        match self {
            Self::Minute => 1,
            Self::Hour => 4,
            Self::Day => 60,
            Self::Week => 600,
            Self::Month => 1_800,
            Self::Year => 21_600,
        }
    }

    /// How many samples there are at most; as in Couchbase.
    #[must_use]
    pub const fn rows(self) -> usize {
        match self {
            Self::Minute => 60,
            Self::Hour => 900,
            Self::Day => 1_440,
            Self::Week => 1_152,
            Self::Month => 1_488,
            Self::Year => 1_464,
        }
    }
}

/// What a node has sampled of a bucket. Nodes tell it to one another: one of another version may know other figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Milliseconds since 1970, ascending.
    pub timestamps: Vec<u64>,
    /// As many figures of each statistic, by its first name in REST; counters as rates by the second.
    pub values: BTreeMap<String, Vec<f64>>,
}
