//! Rows for spreadsheets: the whole run by operation and ending, then the run over time.

use super::Report;
use crate::tally::Latencies;
use std::fmt::Write;

const HEADER: &str = "scope,second,operation,ending,count,per_second,mean_us,min_us,p50_us,p90_us,p95_us,p99_us,p99.9_us,\
                      p99.99_us,max_us\n";

/// The report as CSV with a header.
#[must_use]
pub fn csv(report: &Report) -> String {
    let mut out = HEADER.to_owned();
    let seconds = report.tally.elapsed.as_secs_f64().max(1e-9);
    for (op, one) in report.tally.ops() {
        for (ending, latencies) in [("ok", &one.ok), ("miss", &one.miss), ("error", &one.failed)] {
            if latencies.count() > 0 {
                row(&mut out, op.name(), ending, seconds, latencies);
            }
        }
    }
    for moment in &report.moments {
        let second = moment.index as f64 * report.interval;
        let ok = moment.done - moment.misses;
        let [p50, p99, p999, max] = moment.latency.map(|nanos| nanos as f64 / 1e3);
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "interval,{second},all,ok,{ok},{},,,{p50},,,{p99},{p999},,{max}",
            ok as f64 / report.interval
        );
        for (ending, count) in [("miss", moment.misses), ("error", moment.failed)] {
            let _ = writeln!(
                out,
                "interval,{second},all,{ending},{count},{},,,,,,,,,",
                count as f64 / report.interval
            );
        }
    }
    out
}

fn row(out: &mut String, op: &str, ending: &str, seconds: f64, latencies: &Latencies) {
    let _ = write!(
        out,
        "total,,{op},{ending},{},{},{},{}",
        latencies.count(),
        latencies.count() as f64 / seconds,
        latencies.mean_us(),
        latencies.min_us()
    );
    for percent in [50.0, 90.0, 95.0, 99.0, 99.9, 99.99] {
        let _ = write!(out, ",{}", latencies.percentile_us(percent));
    }
    let _ = writeln!(out, ",{}", latencies.max_us());
}
