//! Whether what the server told of each operation is what its own histograms have of the same time.
//!
//! Both leave the network out: the server times an operation from the read that brought it. It tells a client that time with each answer,
//! and counts it in a histogram. A step of the histogram is an eighth of its beginning, and what is told is rounded by up to 2 % from 1 ms on.

use super::histograms::{Histograms, Steps, count, quantile};
use crate::tally::Latencies;

/// The percentiles that are compared.
const PERCENTS: [f64; 3] = [50.0, 90.0, 99.0];

/// How many operations one side has, and their percentiles in microseconds: p50, p90 and p99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Operations.
    pub count: u64,
    /// The percentiles.
    pub percentiles_us: [f64; 3],
}

/// What both sides say of the operations of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// By the times that came with the answers to this run.
    pub told: Side,
    /// By the server's histograms, whichever clients the operations came from.
    pub counted: Side,
}

impl Agreement {
    /// Of a run. Nothing where the server told no times, or has no histograms.
    #[must_use]
    pub fn of(told: &Latencies, timings: &Histograms) -> Option<Agreement> {
        let mut all = Steps::new();
        // Questions for statistics and the beginnings of connections are no operations of a run.
        for (_, steps) in timings.iter().filter(|(name, _)| *name != "other") {
            steps.iter().for_each(|(step, count)| *all.entry(*step).or_default() += count);
        }
        if told.count() == 0 || all.is_empty() {
            return None;
        }
        let told =
            Side { count: told.count(), percentiles_us: PERCENTS.map(|percent| told.percentile_us(percent)) };
        let counted = PERCENTS.map(|percent| quantile(&all, percent / 100.0));
        Some(Agreement { told, counted: Side { count: count(&all), percentiles_us: counted } })
    }

    /// By how much each percentile of the histograms is above what was told, in percent.
    #[must_use]
    pub fn apart_percent(&self) -> [f64; 3] {
        let mut apart = self.counted.percentiles_us;
        for (counted, told) in apart.iter_mut().zip(self.told.percentiles_us) {
            *counted = (*counted / told.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
        }
        apart
    }

    /// In words.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Agreement { told, counted } = self;
        if told.count != counted.count {
            return format!(
                "The server's histograms have {} operations of that time, and {} of this run succeeded: they are not compared.",
                counted.count, told.count
            );
        }
        let apart = self.apart_percent();
        let of = |at: usize, name: &str| {
            let (told, counted) = (told.percentiles_us[at], counted.percentiles_us[at]);
            format!("{name} {told:.0} and {counted:.0} us ({:+.1} %)", apart[at])
        };
        format!(
            "Of the same {} operations the server told, and has in its histograms: {}, {}, {}.",
            told.count,
            of(0, "p50"),
            of(1, "p90"),
            of(2, "p99")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(micros: impl Iterator<Item = u64>) -> Latencies {
        let mut told = Latencies::default();
        micros.for_each(|micros| told.record(micros * 1000));
        told
    }

    fn timings(pairs: &[(&str, u64)]) -> Histograms {
        let pairs: Vec<_> =
            pairs.iter().map(|(name, count)| ((*name).to_owned(), count.to_string())).collect();
        Histograms::read(&pairs)
    }

    #[test]
    fn the_same_operations_agree_within_a_step() {
        let told = told((1024..1152).chain(1152..1280));
        let timings = timings(&[("get_1024,1152", 128), ("set_1152,1280", 128), ("other_0,1", 9)]);
        let found = Agreement::of(&told, &timings).unwrap();
        assert_eq!(found.counted.count, 256);
        assert!(found.apart_percent().iter().all(|apart| apart.abs() < 0.5), "{found:?}");
        assert!(found.sentence().starts_with("Of the same 256 operations"), "{}", found.sentence());
    }

    #[test]
    fn operations_of_others_are_not_compared() {
        let timings = timings(&[("get_1024,1152", 20)]);
        let found = Agreement::of(&told(1024..1034), &timings).unwrap();
        assert!(found.sentence().ends_with("they are not compared."), "{}", found.sentence());
        assert_eq!(Agreement::of(&Latencies::default(), &timings), None);
        assert_eq!(Agreement::of(&told(1..2), &Histograms::default()), None);
    }
}
