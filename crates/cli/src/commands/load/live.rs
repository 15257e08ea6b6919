//! How a run shows on standard error while it goes on. On a terminal it is a small table that renews itself, in a log one
//! line a second.

use load::{Interval, Phase, Stop, Tally};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr};

/// Shows intervals as they come.
pub(super) struct Live {
    terminal: bool,
    /// Lines of the table that stands on the terminal.
    lines_shown: usize,
    stop: Stop,
    interval: f64,
    total: Tally,
}

impl Live {
    pub(super) fn start(phase: &Phase) -> Live {
        let interval = phase.interval.as_secs_f64();
        Live {
            terminal: stderr().is_terminal(),
            lines_shown: 0,
            stop: phase.stop,
            interval,
            total: Tally::default(),
        }
    }

    /// Shows one more interval.
    pub(super) fn show(&mut self, interval: &Interval) {
        self.total.merge(&interval.tally);
        let text = if self.terminal { self.table(interval) } else { self.line(interval) };
        let mut out = String::new();
        if self.lines_shown > 0 {
            // Up to the first line of the table and clear from there.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.lines_shown);
        }
        self.lines_shown = if self.terminal { text.lines().count() } else { 0 };
        out.push_str(&text);
        // A reader that went away is no reason to end a measurement.
        let _ = stderr().write_all(out.as_bytes());
    }

    /// Clears the table: what follows is the report.
    pub(super) fn end(self) {
        if self.lines_shown > 0 {
            let _ = write!(stderr(), "\x1b[{}A\x1b[J", self.lines_shown);
        }
    }

    fn line(&self, interval: &Interval) -> String {
        let (tally, second) = (&interval.tally, (interval.index + 1) as f64 * self.interval);
        let all = tally.latencies(None);
        format!(
            "{second:.0} s: {:.0} ops/s, {} misses, {} errors, latency us p50 {:.0} p99 {:.0} p99.9 {:.0} max {:.0}{}{}\n",
            tally.done() as f64 / self.interval,
            tally.misses(),
            tally.failed(),
            all.percentile_us(50.0),
            all.percentile_us(99.0),
            all.percentile_us(99.9),
            all.max_us(),
            self.left(second),
            tally.main_reason().map_or_else(String::new, |reason| format!("; waiting: {reason}"))
        )
    }

    fn table(&self, interval: &Interval) -> String {
        let mut out = self.line(interval);
        let columns = ["ops/s", "p50 us", "p99 us", "p99.9 us", "max us", "misses", "errors"];
        let _ = write!(out, "  {:<8}", "");
        for column in columns {
            let _ = write!(out, " {column:>10}");
        }
        out.push('\n');
        for (op, one) in interval.tally.ops() {
            let rate = (one.ok.count() + one.miss.count()) as f64 / self.interval;
            let _ = write!(out, "  {:<8} {rate:>10.0}", op.name());
            for percent in [50.0, 99.0, 99.9] {
                let _ = write!(out, " {:>10.0}", one.ok.percentile_us(percent));
            }
            let _ = writeln!(
                out,
                " {:>10.0} {:>10} {:>10}",
                one.ok.max_us(),
                one.miss.count(),
                one.failed.count()
            );
        }
        for (name, count) in &self.total.failures {
            let _ = writeln!(out, "  {name}: {count} so far");
        }
        out
    }

    /// How much is left, where that is known.
    fn left(&self, second: f64) -> String {
        match self.stop {
            // A run that ends by what it finds has a bound that means nothing.
            Stop::Time(time) if time >= super::args::UNBOUNDED => String::new(),
            Stop::Time(time) => format!(", {:.0} s left", (time.as_secs_f64() - second).max(0.0)),
            Stop::Ops(ops) if ops < u64::MAX => {
                let done = self.total.done() + self.total.failed();
                let rate = done as f64 / second.max(1e-9);
                format!(", {done} of {ops}, {:.0} s left", ops.saturating_sub(done) as f64 / rate.max(1e-9))
            }
            Stop::Ops(_) | Stop::All => String::new(),
        }
    }
}
