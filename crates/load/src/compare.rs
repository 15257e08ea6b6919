//! Several targets measured in turns: medians, how far the rounds were apart, and ratios to the first target.
//!
//! Turns (A B A B …) because a noisy neighbour then hits all of them alike. Between two turns a target may come to rest,
//! and what its process does until then counts as part of the work that caused it.

use crate::process::Usage;
use crate::report::Report;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One round of one target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Operations carried out per second.
    pub ops_per_sec: f64,
    /// CPU of the server's process per operation, until it rested; if the process is known.
    pub cpu_us_per_op: Option<f64>,
    /// CPU of this process per operation.
    pub client_us_per_op: f64,
    /// Latencies of successful operations, in microseconds.
    pub p50_us: f64,
    /// As `p50_us`.
    pub p99_us: f64,
    /// As `p50_us`.
    #[serde(rename = "p99.9_us")]
    pub p99_9_us: f64,
    /// Operations whose answer was no.
    pub misses: u64,
}

impl Round {
    /// The figures of a run; `rest` is the CPU time that the server took after the last reply.
    #[must_use]
    pub fn of(report: &Report, rest: f64) -> Round {
        let latencies = report.tally.latencies(None);
        let done = report.tally.done().max(1) as f64;
        Round {
            ops_per_sec: report.tally.ops_per_sec(),
            cpu_us_per_op: report.server_us_per_op().map(|each| each + rest * 1e6 / done),
            client_us_per_op: report.client_us_per_op(),
            p50_us: latencies.percentile_us(50.0),
            p99_us: latencies.percentile_us(99.0),
            p99_9_us: latencies.percentile_us(99.9),
            misses: report.tally.misses(),
        }
    }
}

/// The middle of several figures, and half their range in percent of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The middle; of an even number, the mean of the two in the middle.
    pub value: f64,
    /// Half the range, in percent of the middle.
    pub spread: f64,
}

impl Median {
    /// Of figures; nothing of none.
    #[must_use]
    pub fn of(figures: impl Iterator<Item = f64>) -> Option<Median> {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let value = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let spread = if value > 0.0 { (most - least) / 2.0 / value * 100.0 } else { 0.0 };
        Some(Median { value, spread })
    }
}

/// A process that rests still wakes up for its timers. A node with 1,024 vBuckets takes a tenth of a slow core, and more if many watch it.
/// More than this share is work.
const RESTING: f64 = 0.2;
const LOOK: Duration = Duration::from_millis(200);
/// Looks in a row that must find it resting.
const QUIET: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until a process rests; returns the CPU seconds that it used until then.
#[must_use]
pub fn settle(pid: u32) -> f64 {
    let used = || Usage::of(pid).map(|usage| usage.cpu_seconds);
    let (Some(begin), begun) = (used(), Instant::now()) else { return 0.0 };
    let (mut last, mut quiet) = (begin, 0);
    while quiet < QUIET && begun.elapsed() < PATIENCE {
        std::thread::sleep(LOOK);
        let Some(now) = used() else { break };
        quiet = if now - last <= RESTING * LOOK.as_secs_f64() { quiet + 1 } else { 0 };
        last = now;
    }
    last - begin
}

/// Has the kernel write dirty pages back, and waits for it.
pub fn write_back() {
    // SAFETY: takes nothing and returns nothing.
    unsafe { libc::sync() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let of = |figures: &[f64]| Median::of(figures.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some(Median { value: 3.0, spread: 0.0 }));
        assert_eq!(of(&[30.0, 10.0, 20.0]), Some(Median { value: 20.0, spread: 50.0 }));
        assert_eq!(of(&[1.0, 2.0, 3.0, 10.0]).map(|median| median.value), Some(2.5));
    }

    #[test]
    fn a_process_that_is_gone_rests() {
        assert_eq!(settle(u32::MAX), 0.0);
    }
}
