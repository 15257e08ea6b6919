//! A screen for people.

use super::Report;
use crate::tally::Latencies;
use std::fmt::{self, Write};

/// The report as lines.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(report, &mut out);
    out
}

fn write(report: &Report, f: &mut String) -> fmt::Result {
    let tally = &report.tally;
    let seconds = tally.elapsed.as_secs_f64();
    write!(f, "{} operations in {seconds:.2} s: {:.0} ops/s", tally.done(), tally.ops_per_sec())?;
    if let Some(rate) = report.rate {
        write!(f, " of {rate:.0} asked for")?;
    }
    writeln!(f, ", {:.1} MB/s", tally.bytes as f64 / 1e6 / seconds.max(1e-9))?;
    writeln!(
        f,
        "  successes {}, misses {}, errors {}, temporary failures {} (retried)",
        tally.ok(),
        tally.misses(),
        tally.failed(),
        tally.temporary
    )?;
    for (reason, count) in &tally.reasons {
        writeln!(f, "  temporary failure: {reason}: {count}")?;
    }
    if tally.moved > 0 {
        writeln!(f, "  {} times not my vBucket (tried again with a newer map)", tally.moved)?;
    }
    if tally.unsent > 0 {
        let unsent = tally.unsent;
        writeln!(
            f,
            "  {unsent} operations were due and never sent: the connections could not take this rate"
        )?;
    }
    if tally.reconnects > 0 {
        writeln!(f, "  {} connections broke and were made again", tally.reconnects)?;
    }
    if tally.keys_found + tally.keys_missed > 0 {
        writeln!(f, "  multi-gets found {} keys and missed {}", tally.keys_found, tally.keys_missed)?;
    }
    table(report, f)?;
    steps(report, f)?;
    for (name, count) in &tally.failures {
        writeln!(f, "  error: {name}: {count}")?;
    }
    if let (Some(cpu), Some((_, after))) = (report.server_us_per_op(), report.server) {
        let resident = after.rss_bytes as f64 / 1048576.0;
        writeln!(f, "  server: {cpu:.2} us of CPU per operation, {resident:.1} MiB resident")?;
    }
    writeln!(f, "  client: {:.2} us of CPU per operation", report.client_us_per_op())?;
    for (name, figure) in &report.server_figures {
        writeln!(f, "  {name}: {figure:.2}")?;
    }
    for sentence in &report.findings {
        writeln!(f, "  {sentence}")?;
    }
    for (name, count) in report.violations() {
        writeln!(f, "  VIOLATION: {count} reads saw a {name} document")?;
    }
    for history in report.histories() {
        writeln!(f, "    {history}")?;
    }
    if let Some(check) = &report.verified {
        let right = check.ok() - check.corrupt.min(check.ok());
        writeln!(f, "  read back: {right} as stored, {} absent, {} wrong", check.misses(), check.corrupt)?;
    }
    Ok(())
}

fn table(report: &Report, f: &mut String) -> fmt::Result {
    let columns = ["count", "mean", "p50", "p95", "p99", "p99.9", "max"];
    write!(f, "  {:<16}", "latency, us")?;
    columns.iter().try_for_each(|column| write!(f, " {column:>10}"))?;
    writeln!(f)?;
    for (op, one) in report.tally.ops() {
        row(f, op.name(), &one.ok)?;
        row(f, &format!("{} misses", op.name()), &one.miss)?;
        row(f, &format!("{} errors", op.name()), &one.failed)?;
    }
    let split = &report.tally.split;
    row(f, "  in client queue", &split.queue)?;
    row(f, "  sent to reply", &split.service)?;
    row(f, "  in server", &split.server)?;
    row(f, "  beside it", &split.beside)?;
    row(f, "  in own kernel", &split.receive)
}

fn steps(report: &Report, f: &mut String) -> fmt::Result {
    if report.steps.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "  {:>11} {:>11} {:>9} {:>9} {:>9} {:>9}",
        "rate", "achieved", "p50 us", "p99 us", "p99.9 us", "errors"
    )?;
    for step in &report.steps {
        let verdict = if step.met { "" } else { "  broken" };
        write!(f, "  {:>11.0} {:>11.0} {:>9.0} {:>9.0}", step.rate, step.achieved, step.p50_us, step.p99_us)?;
        writeln!(f, " {:>9.0} {:>9}{verdict}", step.p99_9_us, step.errors)?;
    }
    match report.best_step() {
        Some(best) => writeln!(f, "  highest rate that was met: {:.0} ops/s", best.rate),
        None => writeln!(f, "  no rate was met"),
    }
}

fn row(f: &mut String, name: &str, latencies: &Latencies) -> fmt::Result {
    if latencies.count() == 0 {
        return Ok(());
    }
    write!(f, "  {name:<16} {:>10} {:>10.0}", latencies.count(), latencies.mean_us())?;
    for percent in [50.0, 95.0, 99.0, 99.9] {
        write!(f, " {:>10.0}", latencies.percentile_us(percent))?;
    }
    writeln!(f, " {:>10.0}", latencies.max_us())
}
