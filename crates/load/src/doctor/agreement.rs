//! Whether what the server told of each operation is what its own histograms have of the same time.
//!
//! Both leave the network out: the server times an operation from the read that brought it. It tells a client that time with each answer,
//! and counts it in a histogram. Both are of one reading of the clock, and both are rounded. A step of the histogram is an eighth of its
//! beginning, and what is told is rounded by up to 2 % from 1 ms on. So both sides of a percentile have to have a time in common.

use super::histograms::{Histograms, Steps, count, place, quantile};
use crate::tally::Latencies;
use crate::wire::told_within;

/// The percentiles that are compared.
const PERCENTS: [f64; 3] = [50.0, 90.0, 99.0];

/// How many operations one side has, and their percentiles in microseconds: p50, p90 and p99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Operations.
    pub count: u64,
    /// The percentiles.
    pub percentiles_us: [f64; 3],
    /// Each is no less and no more than this, as far as this side can tell.
    pub within_us: [[u64; 2]; 3],
}

/// What the histogram of a run has lost of each time, which is a thousandth.
fn told_at(told: &Latencies, percent: f64) -> [u64; 2] {
    let nanos = told.percentile(percent);
    let (least, most) = ((nanos - nanos / 1_000) / 1_000, nanos / 1_000);
    [told_within(least).0, told_within(most).1]
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
        let counted_at = |percent: f64| {
            place(&all, percent / 100.0).map_or([0, 0], |(from, to, _)| [from, to.saturating_sub(1)])
        };
        Some(Agreement {
            told: Side {
                count: told.count(),
                percentiles_us: PERCENTS.map(|percent| told.percentile_us(percent)),
                within_us: PERCENTS.map(|percent| told_at(told, percent)),
            },
            counted: Side {
                count: count(&all),
                percentiles_us: PERCENTS.map(|percent| quantile(&all, percent / 100.0)),
                within_us: PERCENTS.map(counted_at),
            },
        })
    }

    /// Whether each percentile has a time that both sides may have taken for it.
    #[must_use]
    pub fn have_times_in_common(&self) -> [bool; 3] {
        let mut common = [false; 3];
        let sides = self.told.within_us.iter().zip(&self.counted.within_us);
        for (common, ([least, most], [from, to])) in common.iter_mut().zip(sides) {
            *common = least <= to && from <= most;
        }
        common
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
        let why = if self.have_times_in_common() == [true; 3] {
            "Both sides are rounded, and the differences come from that."
        } else {
            "That is more than the rounding of both sides."
        };
        format!(
            "Of the same {} operations the server told, and has in its histograms: {}, {}, {}. {why}",
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
    use protocol::binary::ServerDuration;

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
        assert_eq!(found.have_times_in_common(), [true; 3]);
        assert_eq!(found.counted.within_us, [[1024, 1151], [1152, 1279], [1152, 1279]]);
    }

    #[test]
    fn a_side_is_within_what_the_other_cannot_tell_or_is_another_time() {
        // All but the rarest times that are told as 15 us are told as others in a step of the histogram.
        let (least, most) = told_within(15);
        assert_eq!((least, most), (13, 16));
        assert_eq!([0, 1, 2].map(told_within), [(0, 0), (1, 1), (2, 2)]);
        for micros in [3, 77, 1_000, 60_000, 2_000_000, 100_000_000] {
            let (least, most) = told_within(micros);
            assert!(least <= micros && micros <= most, "{micros}: {least} to {most}");
            let [told, before, behind] = [micros, least - 1, most + 1].map(ServerDuration::from_micros);
            assert!(before < told && told < behind);
        }
        let steps = timings(&[("get_16,18", 20)]);
        let common = |micros: u64| {
            let rounded = ServerDuration::from_micros(micros).to_duration().as_micros() as u64;
            Agreement::of(&told(std::iter::repeat_n(rounded, 20)), &steps).unwrap().have_times_in_common()
        };
        for micros in 16..18 {
            assert_eq!(common(micros), [true; 3], "{micros}");
        }
        for micros in [11, 22] {
            assert_eq!(common(micros), [false; 3], "{micros}");
        }
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
