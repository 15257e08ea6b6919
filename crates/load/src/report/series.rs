//! The historical generator's other way of measuring: averages over time, `measurementtype=timeseries`.
//!
//! A row per unit of time in which something ended: its beginning in milliseconds and the average latency of what ended
//! in it. Averages are those of the histograms. The original labels its figures milliseconds and fills in microseconds,
//! and has all endings in the same rows; [`Quirks::Kept`] does the same.

use super::historic::Quirks;
use crate::op::{Class, Op};
use crate::tally::{Interval, Latencies, Tally};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Intervals of a run are no longer than this, however long a unit is: the lines of a run come between them.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// How many latencies there were, and their sum in nanoseconds.
type Sum = (u64, f64);

/// What is known of a run over time.
#[derive(Clone, Debug)]
pub struct Series {
    unit: Duration,
    units: BTreeMap<(Op, u64), [Sum; 3]>,
}

/// The endings in the order of [`Series::units`], with what is put behind an operation's name where they are apart.
const ENDINGS: [(Class, &str); 3] =
    [(Class::Success, ""), (Class::Miss, " MISSES"), (Class::Failure, " ERRORS")];

impl Series {
    /// With a row for each `unit`.
    #[must_use]
    pub fn new(unit: Duration) -> Series {
        Series { unit, units: BTreeMap::new() }
    }

    /// How long the intervals of the run have to be: a whole number of them makes a unit.
    #[must_use]
    pub fn interval(unit: Duration) -> Duration {
        let parts = unit.as_nanos().div_ceil(INTERVAL_MAX.as_nanos()).max(1);
        unit / u32::try_from(parts).unwrap_or(u32::MAX)
    }

    /// One more interval.
    pub fn see(&mut self, interval: &Interval) {
        let parts = (self.unit.as_nanos() / Series::interval(self.unit).as_nanos().max(1)).max(1);
        let unit = interval.index / parts as u64;
        for (op, one) in interval.tally.ops() {
            let sums = self.units.entry((op, unit)).or_default();
            for (sum, latencies) in sums.iter_mut().zip([&one.ok, &one.miss, &one.failed]) {
                sum.0 += latencies.count();
                sum.1 += latencies.get().map_or(0.0, |histogram| histogram.mean() * histogram.len() as f64);
            }
        }
    }

    /// What it prints at the end.
    #[must_use]
    pub fn report(&self, tally: &Tally, quirks: Quirks) -> String {
        let mut out = super::historic::overall(tally);
        for (op, one) in tally.ops() {
            let name = super::historic::name(op);
            let returns = [(0, one.ok.count()), (-1, one.miss.count()), (-2, one.failed.count())];
            let of = |class: Class| match class {
                Class::Success => &one.ok,
                Class::Miss => &one.miss,
                Class::Failure => &one.failed,
            };
            if quirks == Quirks::Kept {
                let mut all = one.ok.clone();
                all.merge(&one.miss);
                all.merge(&one.failed);
                self.section(&mut out, &name, &all, &returns, quirks);
                self.rows(&mut out, &name, op, &[0, 1, 2], quirks);
                continue;
            }
            for (place, (class, suffix)) in ENDINGS.into_iter().enumerate() {
                let name = format!("{name}{suffix}");
                let returns = if class == Class::Success { &returns[..] } else { &[] };
                if class == Class::Success || of(class).count() > 0 {
                    self.section(&mut out, &name, of(class), returns, quirks);
                    self.rows(&mut out, &name, op, &[place], quirks);
                }
            }
        }
        out
    }

    fn section(
        &self,
        out: &mut String,
        name: &str,
        latencies: &Latencies,
        returns: &[(i32, u64)],
        quirks: Quirks,
    ) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "[{name}] Operations, {}", latencies.count());
        for (what, micros) in
            [("Average", latencies.mean_us()), ("Min", latencies.min_us()), ("Max", latencies.max_us())]
        {
            let _ = writeln!(out, "[{name}] {what}Latency(ms), {:?}", figure(micros * 1e3, quirks));
        }
        for (code, count) in returns.iter().filter(|(code, count)| *code == 0 || *count > 0) {
            let _ = writeln!(out, "[{name}] Return={code}, {count}");
        }
    }

    fn rows(&self, out: &mut String, name: &str, op: Op, endings: &[usize], quirks: Quirks) {
        for (&(_, unit), sums) in self.units.range((op, 0)..=(op, u64::MAX)) {
            let (count, nanos) = endings
                .iter()
                .map(|&place| sums[place])
                .fold((0, 0.0), |all: Sum, one| (all.0 + one.0, all.1 + one.1));
            if count > 0 {
                let begin = u128::from(unit) * self.unit.as_millis();
                let _ = writeln!(out, "[{name}] {begin}, {:?}", figure(nanos / count as f64, quirks));
            }
        }
    }

    /// One of the lines that it prints while running.
    #[must_use]
    pub fn line(label: &str, second: f64, total: u64, since: &Tally, seconds: f64, quirks: Quirks) -> String {
        let mut out = super::historic::line_head(label, second, total, since, seconds);
        for (op, one) in since.ops() {
            let average = figure(one.ok.mean_us() * 1e3, quirks);
            let average = (average * 100.0).round() / 100.0;
            let _ = write!(out, "[{} AverageLatency(ms)={average}]", super::historic::name(op));
        }
        out
    }
}

/// What is printed as milliseconds.
fn figure(nanos: f64, quirks: Quirks) -> f64 {
    match quirks {
        Quirks::Mended => nanos / 1e6,
        Quirks::Kept => nanos / 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(index: u64, samples: &[(Class, u64)]) -> Interval {
        let mut tally = Tally::default();
        for &(class, micros) in samples {
            tally.record(Op::Get, class, micros * 1000);
        }
        Interval { index, tally }
    }

    fn run(unit: Duration, quirks: Quirks) -> String {
        let mut series = Series::new(unit);
        let mut total = Tally::default();
        for interval in [
            interval(0, &[(Class::Success, 200), (Class::Success, 400)]),
            interval(1, &[(Class::Success, 600), (Class::Miss, 100)]),
            // Nothing ended in the third one.
            interval(3, &[(Class::Success, 800)]),
        ] {
            series.see(&interval);
            total.merge(&interval.tally);
        }
        series.report(&total, quirks)
    }

    fn rows(report: &str, name: &str) -> Vec<(u64, f64)> {
        let rows = report.lines().filter_map(|line| {
            let (begin, average) = line.strip_prefix(name)?.split_once(", ")?;
            Some((begin.parse().ok()?, average.parse().ok()?))
        });
        rows.map(|(begin, average): (u64, f64)| (begin, (average * 1000.0).round() / 1000.0)).collect()
    }

    #[test]
    fn a_unit_has_a_row_if_something_ended_in_it() {
        let report = run(Duration::from_millis(250), Quirks::Mended);
        assert_eq!(rows(&report, "[GET] "), [(0, 0.3), (250, 0.6), (750, 0.8)], "{report}");
        assert_eq!(rows(&report, "[GET MISSES] "), [(250, 0.1)], "{report}");
        assert!(report.contains("[GET] Operations, 4\n[GET] AverageLatency(ms), 0.49"), "{report}");
        assert!(report.contains("[GET] Return=0, 4\n[GET] Return=-1, 1\n"), "{report}");
    }

    #[test]
    fn the_original_s_microseconds_are_called_milliseconds() {
        let report = run(Duration::from_millis(250), Quirks::Kept);
        let expected = [(0, 300.0), (250, 350.0), (750, 800.0)];
        for ((begin, average), (unit, micros)) in rows(&report, "[GET] ").into_iter().zip(expected) {
            assert!(begin == unit && (average - micros).abs() < 1.0, "{report}");
        }
        assert!(report.contains("[GET] Operations, 5\n"), "{report}");
    }

    #[test]
    fn units_longer_than_an_interval_are_made_of_several() {
        assert_eq!(Series::interval(Duration::from_millis(100)), Duration::from_millis(100));
        assert_eq!(Series::interval(Duration::from_millis(1000)), Duration::from_secs(1));
        assert_eq!(Series::interval(Duration::from_millis(2500)), Duration::from_nanos(833_333_333));
        // Units of two intervals: 0 and 1, 2 and 3.
        let report = run(Duration::from_secs(2), Quirks::Mended);
        assert_eq!(rows(&report, "[GET] "), [(0, 0.4), (2000, 0.8)], "{report}");
    }

    #[test]
    fn running_lines_have_the_average() {
        let line =
            Series::line("x", 5.0, 2, &interval(0, &[(Class::Success, 500)]).tally, 5.0, Quirks::Mended);
        assert_eq!(line, "x 5 sec:  2 operations; 0.20 ops/sec[GET AverageLatency(ms)=0.5]");
    }
}
