//! The historical generator's report, line by line as it printed them.
//!
//! Its histogram has a row per doubling from 256 us. Rows are exact, because none of our buckets straddles a bound.
//! Each bound is 256 us times a power of two, which is a multiple of the bucket's width there. Without [`Quirks`]
//! successes, misses and failures have rows of their own, and percentiles are exact. With them all samples share
//! rows, and percentiles are printed one row too high. The last line then counts again everything above half a second
//! (at 20 buckets).

use crate::op::Op;
use crate::tally::{Latencies, Tally};
use std::fmt::Write;

/// Whether to print what it printed, or what it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirks {
    /// The two known ones, and endings mixed.
    Kept,
    /// None.
    Mended,
}

/// Upper bound of the first row, in microseconds.
const FIRST_US: u64 = 256;

/// What it prints at the end.
#[must_use]
pub fn historic(tally: &Tally, buckets: usize, quirks: Quirks) -> String {
    let mut out = overall(tally);
    for (op, one) in tally.ops() {
        let name = name(op);
        let returns = [(0, one.ok.count()), (-1, one.miss.count()), (-2, one.failed.count())];
        if quirks == Quirks::Kept {
            let mut all = one.ok.clone();
            all.merge(&one.miss);
            all.merge(&one.failed);
            section(&mut out, &name, &all, &returns, buckets, quirks);
            continue;
        }
        section(&mut out, &name, &one.ok, &returns, buckets, quirks);
        for (suffix, latencies) in [("MISSES", &one.miss), ("ERRORS", &one.failed)] {
            if latencies.count() > 0 {
                section(&mut out, &format!("{name} {suffix}"), latencies, &[], buckets, quirks);
            }
        }
    }
    out
}

/// Its first lines.
pub(super) fn overall(tally: &Tally) -> String {
    let seconds = tally.elapsed.as_secs_f64();
    let operations = tally.ok() + tally.misses() + tally.failed();
    format!(
        "[OVERALL] RunTime(ms), {:?}\n[OVERALL] Throughput(ops/sec), {:?}\n",
        (seconds * 1e3).round(),
        operations as f64 / seconds.max(1e-9)
    )
}

/// The same as its JSON exporter writes it: an object per line of the text.
#[must_use]
pub fn json(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let split = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        let Some((metric, (name, value))) =
            split.and_then(|(metric, rest)| Some((metric, rest.rsplit_once(", ")?)))
        else {
            continue;
        };
        let value = value.trim();
        let value: serde_json::Value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        let object = serde_json::json!({"metric": metric, "measurement": name.trim(), "value": value});
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{object}");
    }
    out
}

/// One of the lines that it prints while running: what has happened so far, and since the last line.
#[must_use]
pub fn line(label: &str, second: f64, total: u64, since: &Tally, seconds: f64) -> String {
    let mut out = line_head(label, second, total, since, seconds);
    for (op, one) in since.ops() {
        let all = &one.ok;
        let (average, p99) = (time(all.mean_us()), time(all.percentile_us(99.0)));
        let _ = write!(out, "[{} total={} avg={average} 99th={p99}]", name(op), one.count());
    }
    out
}

/// What such a line begins with.
pub(super) fn line_head(label: &str, second: f64, total: u64, since: &Tally, seconds: f64) -> String {
    let rate = (since.ok() + since.misses() + since.failed()) as f64 / seconds.max(1e-9);
    format!("{label} {second:.0} sec:  {total} operations; {rate:.2} ops/sec")
}

pub(super) fn name(op: Op) -> String {
    op.name().to_uppercase()
}

fn section(
    out: &mut String,
    name: &str,
    latencies: &Latencies,
    returns: &[(i32, u64)],
    buckets: usize,
    quirks: Quirks,
) {
    let rows = rows(latencies, buckets);
    let _ = writeln!(out, "[{name}] Operations, {}", latencies.count());
    let _ = writeln!(out, "[{name}] AverageLatency, {}", time(latencies.mean_us()));
    let _ = writeln!(out, "[{name}] MinLatency, {}", time(latencies.min_us()));
    let _ = writeln!(out, "[{name}] MaxLatency, {}", time(latencies.max_us()));
    for (text, percent) in [("95th", 95.0), ("99th", 99.0), ("99.9th", 99.9)] {
        let value = match quirks {
            Quirks::Mended => time(latencies.percentile_us(percent)),
            Quirks::Kept => bound(row_of(&rows, percent / 100.0) + 1),
        };
        let _ = writeln!(out, "[{name}] {text}PercentileLatency, {value:<6}");
    }
    for (code, count) in returns.iter().filter(|(code, count)| *code == 0 || *count > 0) {
        let _ = writeln!(out, "[{name}] Return={code}, {count}");
    }
    let mut lower = "0us".to_owned();
    for (row, count) in rows[..buckets].iter().enumerate() {
        let upper = bound(row);
        let _ = writeln!(out, "[{name}] {lower:<6} - {upper:<6}, {count}");
        lower = upper;
    }
    let _ = writeln!(out, "[{name}] >{:<6}, {}", bound(buckets - 1), last(&rows, latencies, buckets, quirks));
}

/// What its last line counts: what lies above all rows, or, as it did, everything above 2^(buckets - 1) us.
fn last(rows: &[u64], latencies: &Latencies, buckets: usize, quirks: Quirks) -> u64 {
    match quirks {
        Quirks::Mended => rows[buckets],
        Quirks::Kept => count_above(latencies, 1 << (buckets - 1)),
    }
}

fn count_above(latencies: &Latencies, micros: u64) -> u64 {
    let values = latencies.get().into_iter().flat_map(hdrhistogram::Histogram::iter_recorded);
    let above = values.filter(|value| value.value_iterated_to() > micros * 1000);
    above.map(|value| value.count_at_value()).sum()
}

/// Samples per row; one more than there are buckets, for what is above.
fn rows(latencies: &Latencies, buckets: usize) -> Vec<u64> {
    let mut rows = vec![0; buckets + 1];
    let values = latencies.get().into_iter().flat_map(hdrhistogram::Histogram::iter_recorded);
    for value in values {
        let row = (0..buckets).find(|&row| value.value_iterated_to() < bound_nanos(row)).unwrap_or(buckets);
        rows[row] += value.count_at_value();
    }
    rows
}

/// The row that holds this share of the samples.
fn row_of(rows: &[u64], share: f64) -> usize {
    let total: u64 = rows.iter().sum();
    let mut sum = 0;
    let reached = rows.iter().position(|count| {
        sum += count;
        sum as f64 >= share * total as f64
    });
    reached.unwrap_or(rows.len() - 1)
}

/// Upper bound of a row.
fn bound_nanos(row: usize) -> u64 {
    (FIRST_US << row) * 1000
}

fn bound(row: usize) -> String {
    let mut whole = FIRST_US << row;
    let units = ["us", "ms", "s"];
    let mut unit = 0;
    while whole > 1024 && unit + 1 < units.len() {
        whole /= 1024;
        unit += 1;
    }
    format!("{whole}{}", units[unit])
}

/// Microseconds as it writes them: 1024 of one unit make the next, two decimals without trailing zeros.
fn time(micros: f64) -> String {
    let (mut value, mut unit) = (micros, 0);
    let units = ["us", "ms", "s"];
    while value > 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{:?}{}", (value * 100.0).round() / 100.0, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Class;
    use std::time::Duration;

    fn tally() -> Tally {
        let mut tally = Tally::default();
        tally.elapsed = Duration::from_secs(30);
        let mut add = |class, micros: u64, count: u64| {
            (0..count).for_each(|_| tally.record(Op::Get, class, micros * 1000));
        };
        add(Class::Success, 200, 700);
        add(Class::Success, 400, 200);
        add(Class::Success, 3_000, 80);
        add(Class::Success, 1_500_000, 10);
        add(Class::Miss, 300, 10);
        tally
    }

    fn figure(report: &str, name: &str) -> String {
        let line =
            report.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name} in\n{report}"));
        line.rsplit(", ").next().unwrap_or_default().trim().to_owned()
    }

    #[test]
    fn rows_add_up_and_endings_are_apart() {
        let report = historic(&tally(), 20, Quirks::Mended);
        assert_eq!(figure(&report, "[GET] Operations"), "990");
        assert_eq!(figure(&report, "[GET] 0us    - 256us"), "700");
        assert_eq!(figure(&report, "[GET] 256us  - 512us"), "200");
        assert_eq!(figure(&report, "[GET] 2ms    - 4ms"), "80");
        assert_eq!(figure(&report, "[GET] 1024ms - 2s"), "10");
        assert_eq!(figure(&report, "[GET] >128s"), "0");
        assert_eq!(figure(&report, "[GET] Return=-1"), "10");
        assert_eq!(figure(&report, "[GET MISSES] 256us  - 512us"), "10");
        assert_eq!(figure(&report, "[GET] 95thPercentileLatency"), "2.93ms", "exact");
        assert!(report.starts_with(
            "[OVERALL] RunTime(ms), 30000.0\n[OVERALL] Throughput(ops/sec), 33.333333333333336\n"
        ));
    }

    #[test]
    fn the_quirks_are_its_own() {
        let report = historic(&tally(), 20, Quirks::Kept);
        assert_eq!(figure(&report, "[GET] Operations"), "1000", "misses share the rows");
        assert_eq!(figure(&report, "[GET] 256us  - 512us"), "210");
        assert_eq!(figure(&report, "[GET] 95thPercentileLatency"), "8ms", "one row too high");
        assert_eq!(figure(&report, "[GET] >128s"), "10", "counted a second time");
        let rows = report.lines().filter(|line| line.contains(" - "));
        let sum: u64 = rows.map(|line| figure(line, "").parse::<u64>().expect("a count")).sum();
        assert_eq!(sum, 1000);
    }

    #[test]
    fn the_json_export_has_an_object_per_line() {
        let text = historic(&tally(), 20, Quirks::Mended);
        let exported = json(&text);
        assert_eq!(exported.lines().count(), text.lines().count());
        assert_eq!(
            exported.lines().next(),
            Some(r#"{"measurement":"RunTime(ms)","metric":"OVERALL","value":30000.0}"#)
        );
        assert!(
            exported.contains(r#"{"measurement":"0us    - 256us","metric":"GET","value":700}"#),
            "{exported}"
        );
        assert!(
            exported.contains(r#"{"measurement":"MaxLatency","metric":"GET","value":"1.43s"}"#),
            "{exported}"
        );
    }

    #[test]
    fn running_lines_look_as_they_did() {
        let text = line("run", 5.0, 1000, &tally(), 5.0);
        assert!(
            text.starts_with("run 5 sec:  1000 operations; 200.00 ops/sec[GET total=1000 avg="),
            "{text}"
        );
    }
}
