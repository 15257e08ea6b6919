//! Changes the rate while a run goes on: ramps, steps until an objective breaks, and the search for the highest rate
//! that meets it.
//!
//! [`Conductor`] is a state machine fed with intervals; it touches nothing but the [`Control`]. The first interval of
//! each step is left out of its figures: it still carries what the step before left behind.

use crate::pace::Control;
use crate::tally::{Interval, Latencies, Tally};
use serde::Serialize;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A step that delivers less than this share of its rate has failed, whatever its latencies.
const DELIVERED: f64 = 0.95;
/// A search ends when the two rates between which the answer lies are this close.
const PRECISION: f64 = 0.03;
/// How often a ramp moves.
const RAMP_TICK: Duration = Duration::from_millis(20);

/// A bound on a percentile: `p99<=2ms`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// Which one.
    pub percent: f64,
    /// What it must not exceed.
    pub nanos: u64,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Objective, String> {
        let wrong = || format!("{text:?} is no objective such as p99<=2ms");
        let (percent, bound) =
            text.trim().strip_prefix('p').and_then(|rest| rest.split_once("<=")).ok_or_else(wrong)?;
        let percent =
            percent.trim().parse().ok().filter(|p: &f64| *p > 0.0 && *p <= 100.0).ok_or_else(wrong)?;
        let bound = bound.trim();
        let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
        let (number, unit) = units
            .iter()
            .find_map(|(unit, nanos)| Some((bound.strip_suffix(unit)?, *nanos)))
            .ok_or_else(wrong)?;
        let number = number.trim().parse().ok().filter(|n: &f64| *n > 0.0 && *n < 1e9).ok_or_else(wrong)?;
        Ok(Objective { percent, nanos: (number * unit) as u64 })
    }
}

impl Objective {
    fn is_met(&self, latencies: &Latencies) -> bool {
        latencies.percentile(self.percent) <= self.nanos
    }
}

/// How the rate changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Plan {
    /// `by` more in every step, until the objective breaks or `to` is reached.
    Steps {
        /// Operations per second more.
        by: f64,
        /// The last rate.
        to: f64,
        /// What must hold; without one the steps go on to the end.
        objective: Option<Objective>,
    },
    /// Twice as much until the objective breaks, then halfway between. A rate is too high when it broke twice running.
    Search {
        /// What must hold.
        objective: Objective,
    },
}

/// One rate and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Operations per second asked for.
    pub rate: f64,
    /// Operations per second carried out.
    pub achieved: f64,
    /// Latencies in microseconds.
    pub p50_us: f64,
    /// As `p50_us`.
    pub p99_us: f64,
    /// As `p50_us`.
    pub p99_9_us: f64,
    /// As `p50_us`.
    pub max_us: f64,
    /// Operations refused or broken off.
    pub errors: u64,
    /// Whether the objective was met and the rate delivered.
    pub met: bool,
}

/// Leads a run through its steps.
pub struct Conductor {
    plan: Plan,
    /// Intervals of a step, and their length in seconds.
    intervals: u64,
    seconds: f64,
    rate: f64,
    seen: u64,
    tally: Tally,
    steps: Vec<Step>,
    /// Highest rate that was met and lowest that was not.
    good: f64,
    bad: Option<f64>,
    /// A search has broken at this rate once; it is asked a second time, because a pause of the machine breaks any.
    broke_once: bool,
}

impl Conductor {
    /// Begins at `rate`; a step takes `intervals` intervals of `seconds`, of which the first does not count.
    #[must_use]
    pub fn new(plan: Plan, rate: f64, intervals: u64, seconds: f64) -> Conductor {
        let tally = Tally::default();
        let intervals = intervals.max(2);
        Conductor {
            plan,
            intervals,
            seconds,
            rate,
            seen: 0,
            tally,
            steps: Vec::new(),
            good: 0.0,
            bad: None,
            broke_once: false,
        }
    }

    /// Takes an interval in; at the end of a step the control gets another rate, or the end.
    pub fn see(&mut self, interval: &Interval, control: &Control) {
        self.seen += 1;
        if self.seen == 1 {
            return;
        }
        self.tally.merge(&interval.tally);
        if self.seen < self.intervals {
            return;
        }
        let step = self.judge();
        self.steps.push(step);
        (self.seen, self.tally) = (0, Tally::default());
        match self.next_rate(&step) {
            Some(rate) => {
                self.rate = rate;
                control.set_rate(rate);
                if !step.met {
                    control.skip_backlog();
                }
            }
            None => control.stop(),
        }
    }

    fn judge(&self) -> Step {
        let latencies = self.tally.latencies(None);
        let seconds = self.seconds * (self.intervals - 1) as f64;
        let achieved = self.tally.done() as f64 / seconds;
        let objective = match self.plan {
            Plan::Steps { objective, .. } => objective,
            Plan::Search { objective } => Some(objective),
        };
        let kept = objective.is_none_or(|objective| objective.is_met(&latencies));
        Step {
            rate: self.rate,
            achieved,
            p50_us: latencies.percentile_us(50.0),
            p99_us: latencies.percentile_us(99.0),
            p99_9_us: latencies.percentile_us(99.9),
            max_us: latencies.max_us(),
            errors: self.tally.failed(),
            met: kept && achieved >= DELIVERED * self.rate && self.tally.failed() == 0,
        }
    }

    fn next_rate(&mut self, step: &Step) -> Option<f64> {
        match self.plan {
            Plan::Steps { by, to, objective } => {
                let next = self.rate + by;
                ((step.met || objective.is_none()) && next <= to).then_some(next)
            }
            Plan::Search { .. } => {
                self.broke_once = !step.met && !self.broke_once;
                if self.broke_once {
                    return Some(self.rate);
                }
                if step.met {
                    self.good = self.good.max(self.rate);
                } else {
                    self.bad = Some(self.bad.map_or(self.rate, |bad| bad.min(self.rate)));
                }
                match self.bad {
                    None => Some(self.rate * 2.0),
                    Some(bad) if bad - self.good <= PRECISION * bad || bad < 1.0 => None,
                    Some(bad) => Some((self.good + bad) / 2.0),
                }
            }
        }
    }

    /// The steps so far.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// Moves the rate evenly from one to another, until that is reached or `done` says so.
pub fn ramp(control: &Control, from: f64, to: f64, over: Duration, done: &AtomicBool) {
    let begun = Instant::now();
    while !done.load(Ordering::Relaxed) && !control.stopped() {
        let share = (begun.elapsed().as_secs_f64() / over.as_secs_f64().max(1e-9)).min(1.0);
        control.set_rate(from + (to - from) * share);
        if share >= 1.0 {
            return;
        }
        std::thread::sleep(RAMP_TICK);
    }
}

/// Carries out one line of live control: a rate, `+N` or `-N` for a change of it, `pause`, or `stop`.
///
/// # Errors
/// The line is none of these.
pub fn obey(control: &Control, line: &str) -> Result<(), String> {
    let line = line.trim();
    let number = |text: &str| text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 0.0);
    let rate = match line.as_bytes() {
        [] => return Ok(()),
        b"stop" => {
            control.stop();
            return Ok(());
        }
        b"pause" => Some(0.0),
        [b'+', ..] => number(&line[1..]).map(|more| control.rate() + more),
        [b'-', ..] => number(&line[1..]).map(|less| control.rate() - less),
        _ => number(line),
    };
    control.set_rate(rate.ok_or_else(|| format!("{line:?} is no rate, +N, -N, pause or stop"))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Class, Op};

    /// A server that answers in 1 ms up to its capacity and in 100 ms above.
    fn interval(control: &Control, capacity: f64) -> Interval {
        let rate = control.rate();
        let mut tally = Tally::default();
        for _ in 0..rate.min(capacity) as u64 {
            tally.record(Op::Get, Class::Success, if rate <= capacity { 1_000_000 } else { 100_000_000 });
        }
        Interval { index: 0, tally }
    }

    fn conduct(plan: Plan, from: f64, capacity: f64) -> Vec<Step> {
        let control = Control::new(from);
        let mut conductor = Conductor::new(plan, from, 3, 1.0);
        for _ in 0..1_000 {
            if control.stopped() {
                return conductor.steps().to_vec();
            }
            conductor.see(&interval(&control, capacity), &control);
        }
        panic!("no end: {:?}", conductor.steps());
    }

    #[test]
    fn steps_end_where_the_objective_breaks() {
        let objective = "p99<=2ms".parse().ok();
        let steps = conduct(Plan::Steps { by: 500.0, to: 1e9, objective }, 500.0, 2_200.0);
        let rates: Vec<f64> = steps.iter().map(|step| step.rate).collect();
        assert_eq!(rates, [500.0, 1000.0, 1500.0, 2000.0, 2500.0]);
        assert!(steps[..4].iter().all(|step| step.met) && !steps[4].met);
        let all = conduct(Plan::Steps { by: 1000.0, to: 4000.0, objective: None }, 1000.0, 2_200.0);
        assert_eq!(all.len(), 4, "without an objective to the end");
    }

    #[test]
    fn the_search_finds_the_capacity() {
        for capacity in [300.0, 1_000.0, 7_700.0] {
            let steps = conduct(
                Plan::Search { objective: Objective { percent: 99.0, nanos: 2_000_000 } },
                1_000.0,
                capacity,
            );
            let best = steps.iter().filter(|step| step.met).map(|step| step.rate).fold(0.0, f64::max);
            assert!(best <= capacity && best > 0.96 * capacity, "{best} of {capacity}");
        }
    }

    #[test]
    fn one_pause_of_the_machine_does_not_end_a_search() {
        let control = Control::new(1_000.0);
        let plan = Plan::Search { objective: Objective { percent: 99.0, nanos: 2_000_000 } };
        let mut conductor = Conductor::new(plan, 1_000.0, 2, 1.0);
        // Of the first step nothing is answered in time; from then on the server takes 7,700 a second.
        let mut capacity = 0.0;
        while !control.stopped() {
            (0..2).for_each(|_| conductor.see(&interval(&control, capacity), &control));
            capacity = 7_700.0;
        }
        let steps = conductor.steps();
        assert!(!steps[0].met && steps[1].met && steps[1].rate == steps[0].rate, "{steps:?}");
        let best = steps.iter().filter(|step| step.met).map(|step| step.rate).fold(0.0, f64::max);
        assert!(best <= 7_700.0 && best > 0.96 * 7_700.0, "{best}");
    }

    #[test]
    fn objectives_and_orders_are_read() {
        assert_eq!("p99.9 <= 500us".parse(), Ok(Objective { percent: 99.9, nanos: 500_000 }));
        for text in ["", "p99", "p99<2ms", "p101<=2ms", "p99<=2", "p99<=-1ms", "99<=1ms"] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
        let control = Control::new(100.0);
        for (line, rate) in
            [("250\n", 250.0), ("+50", 300.0), ("-1000", 0.0), ("", 0.0), ("7.5", 7.5), ("pause", 0.0)]
        {
            assert_eq!(obey(&control, line), Ok(()));
            assert_eq!(control.rate(), rate, "{line}");
        }
        assert!(obey(&control, "faster").is_err() && !control.stopped());
        assert_eq!(obey(&control, "stop"), Ok(()));
        assert!(control.stopped());
    }
}
