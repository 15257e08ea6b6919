//! How long operations of a bucket took, over time: what every node has counted, put together.
//!
//! Nodes count in steps of the same bounds and over intervals that begin at the same moments, so sums are exact. A percentile is as sharp
//! as a step, an eighth of its value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Over which time, and in intervals of which length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LatencyZoom {
    /// Ten minutes.
    Minutes,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl LatencyZoom {
    /// By its name in a request.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Minutes, Self::Hour, Self::Day].into_iter().find(|zoom| zoom.name() == name)
    }

    /// Its name in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Seconds of an interval.
    #[must_use]
    pub const fn step_secs(self) -> u64 {
        match self {
            Self::Minutes => 5,
            Self::Hour => 60,
            Self::Day => 360,
        }
    }

    /// Intervals that are told.
    #[must_use]
    pub const fn steps(self) -> usize {
        match self {
            Self::Minutes => 120,
            Self::Hour => 60,
            Self::Day => 240,
        }
    }
}

/// What was counted in one step of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyCount {
    /// From this many microseconds on.
    pub from_us: u64,
    /// Below this many.
    pub to_us: u64,
    /// So often.
    pub count: u64,
}

/// What was counted within one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyInterval {
    /// Its beginning, in seconds since 1970.
    pub at_secs: u64,
    /// Ascending; empty steps are left out.
    pub steps: Vec<LatencyCount>,
}

/// What a node has counted of a bucket, by what it is of: an operation, or a phase of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyPast {
    /// Kinds of operation.
    pub operations: BTreeMap<String, Vec<LatencyInterval>>,
    /// What requests spend their time on.
    pub phases: BTreeMap<String, Vec<LatencyInterval>>,
    /// When the intervals begin that have been counted, whether anything happened in them or not.
    pub at_secs: Vec<u64>,
}

/// A histogram: what was counted, by where the step begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram(BTreeMap<u64, LatencyCount>);

impl Histogram {
    pub(crate) fn add(&mut self, steps: &[LatencyCount]) {
        for step in steps {
            let sum = self.0.entry(step.from_us).or_insert(LatencyCount { count: 0, ..*step });
            sum.count = sum.count.saturating_add(step.count);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.values().map(|step| step.count).sum()
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = &LatencyCount> {
        self.0.values()
    }

    /// Microseconds within which that share of all was done. Within a step all places are taken to be as likely.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let all = self.count();
        let mut left = share * all as f64;
        for step in self.0.values() {
            let count = step.count as f64;
            if left <= count {
                let within = (left / count).clamp(0.0, 1.0);
                return Some(step.from_us as f64 + within * (step.to_us.saturating_sub(step.from_us)) as f64);
            }
            left -= count;
        }
        self.0.values().next_back().map(|step| step.to_us as f64)
    }
}

/// The histograms of one thing, by when their intervals begin.
pub(crate) type Times = BTreeMap<u64, Histogram>;

/// What all nodes have counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Together {
    pub(crate) operations: BTreeMap<String, Times>,
    pub(crate) phases: BTreeMap<String, Times>,
    /// When intervals begin, the last ones alone.
    pub(crate) at_secs: Vec<u64>,
}

impl Together {
    /// Of the last `steps` intervals.
    pub(crate) fn of(pasts: Vec<LatencyPast>, steps: usize) -> Self {
        let mut all = Self::default();
        for past in pasts {
            all.at_secs.extend(past.at_secs);
            add(&mut all.operations, past.operations);
            add(&mut all.phases, past.phases);
        }
        all.at_secs.sort_unstable();
        all.at_secs.dedup();
        let old = all.at_secs.len().saturating_sub(steps);
        all.at_secs.drain(..old);
        all
    }
}

fn add(all: &mut BTreeMap<String, Times>, told: BTreeMap<String, Vec<LatencyInterval>>) {
    for (name, intervals) in told {
        let times = all.entry(name).or_default();
        intervals.iter().for_each(|interval| times.entry(interval.at_secs).or_default().add(&interval.steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from_us: u64, to_us: u64, count: u64) -> LatencyCount {
        LatencyCount { from_us, to_us, count }
    }

    #[test]
    fn a_percentile_lies_within_the_step_that_has_it() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.add(&[step(10, 12, 90), step(100, 112, 9), step(1000, 1024, 1)]);
        histogram.add(&[step(10, 12, 900), step(100, 112, 90), step(1000, 1024, 10)]);
        assert_eq!(histogram.count(), 1100);
        for (share, from, to) in
            [(0.5, 10.0, 12.0), (0.95, 100.0, 112.0), (0.999, 1000.0, 1024.0), (1.0, 1000.0, 1024.0)]
        {
            let found = histogram.quantile(share).unwrap();
            assert!((from..=to).contains(&found), "{share}: {found}");
        }
    }

    #[test]
    fn what_nodes_have_counted_at_the_same_time_is_added_up() {
        let past = |at_secs: u64, count| {
            let interval = LatencyInterval { at_secs, steps: vec![step(1, 2, count)] };
            LatencyPast {
                operations: [("get".to_owned(), vec![interval])].into(),
                phases: BTreeMap::new(),
                at_secs: (0..=at_secs).step_by(5).collect(),
            }
        };
        let all =
            Together::of(vec![past(1000, 3), past(1000, 4), past(1005, 5)], LatencyZoom::Minutes.steps());
        let counts: Vec<_> =
            all.operations["get"].iter().map(|(at, histogram)| (*at, histogram.count())).collect();
        assert_eq!(counts, [(1000, 7), (1005, 5)]);
        assert_eq!((all.at_secs.len(), all.at_secs.last()), (120, Some(&1005)));
    }
}
