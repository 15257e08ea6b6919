//! What a run tells: collected while it goes on, written in several forms at its end.
//!
//! Every form is made from the same [`Report`], whose counts come from histograms and are exact. Misses and failures
//! have rows of their own everywhere.

mod csv;
mod hdr_log;
mod historic;
mod html;
mod json;
mod plot;
mod scaling;
mod series;
mod text;

pub use csv::csv;
pub use hdr_log::HdrLog;
pub use historic::{Quirks, historic, json as historic_json, line as historic_line};
pub use html::html;
pub use json::json;
pub use scaling::scaling;
pub use series::Series;
pub use text::text;

use crate::conduct::Step;
use crate::doctor::Agreement;
use crate::process::Usage;
use crate::tally::{Interval, Tally};
use std::collections::BTreeMap;

/// One interval of the run in figures.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Its number.
    pub index: u64,
    /// Operations that were carried out in it.
    pub done: u64,
    /// Of these, those whose answer was no.
    pub misses: u64,
    /// Operations that were refused or broken off.
    pub failed: u64,
    /// Latencies of the successful ones, in nanoseconds: median, 99 %, 99.9 %, longest.
    pub latency: [u64; 4],
    /// Successful operations by latency: (band of [`heat_band`], how many).
    pub heat: Vec<(u32, u64)>,
}

/// Bands per doubling of the latency, in heat maps.
const HEAT_BANDS: f64 = 4.0;

/// The band of a latency: four for each doubling from a microsecond.
#[must_use]
pub fn heat_band(nanos: u64) -> u32 {
    ((nanos.max(1000) as f64 / 1000.0).log2() * HEAT_BANDS) as u32
}

/// Where a band begins, in nanoseconds.
#[must_use]
pub fn heat_from(band: u32) -> f64 {
    1000.0 * (f64::from(band) / HEAT_BANDS).exp2()
}

impl Moment {
    /// The figures of an interval.
    #[must_use]
    pub fn of(interval: &Interval) -> Moment {
        let tally = &interval.tally;
        let all = tally.latencies(None);
        let mut heat: Vec<(u32, u64)> = Vec::new();
        if let Some(histogram) = all.get() {
            for value in histogram.iter_recorded() {
                let band = heat_band(value.value_iterated_to());
                match heat.last_mut() {
                    Some((last, count)) if *last == band => *count += value.count_at_value(),
                    _ => heat.push((band, value.count_at_value())),
                }
            }
        }
        Moment {
            index: interval.index,
            done: tally.done(),
            misses: tally.misses(),
            failed: tally.failed(),
            latency: [50.0, 99.0, 99.9, 100.0].map(|percent| all.percentile(percent)),
            heat,
        }
    }
}

/// A finished run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was run, in the words of the command line.
    pub title: String,
    /// Length of an interval in seconds.
    pub interval: f64,
    /// The rate that was asked for, where there was one.
    pub rate: Option<f64>,
    /// Everything that was measured.
    pub tally: Tally,
    /// What reading back afterwards found.
    pub verified: Option<Tally>,
    /// The server's process before and after.
    pub server: Option<(Usage, Usage)>,
    /// CPU seconds of this process while measuring.
    pub client_cpu: f64,
    /// The run interval by interval.
    pub moments: Vec<Moment>,
    /// What was found out about where the time went, in plain sentences.
    pub findings: Vec<String>,
    /// Whether the server's histograms have what it told of each operation.
    pub agreement: Option<Agreement>,
    /// What came of each rate, where there were several.
    pub steps: Vec<Step>,
    /// Figures of the server's own, as names and numbers.
    pub server_figures: Vec<(String, f64)>,
}

impl Report {
    /// One more interval of the run.
    pub fn add(&mut self, interval: &Interval) {
        self.moments.push(Moment::of(interval));
        self.tally.merge(&interval.tally);
    }

    /// The highest rate whose step met everything that was asked of it.
    #[must_use]
    pub fn best_step(&self) -> Option<&Step> {
        self.steps.iter().filter(|step| step.met).max_by(|a, b| a.rate.total_cmp(&b.rate))
    }

    /// CPU time of the server per operation carried out, in microseconds.
    #[must_use]
    pub fn server_us_per_op(&self) -> Option<f64> {
        let (before, after) = self.server?;
        (self.tally.done() > 0)
            .then(|| (after.cpu_seconds - before.cpu_seconds) * 1e6 / self.tally.done() as f64)
    }

    /// CPU time of this process per operation that ended, in microseconds.
    #[must_use]
    pub fn client_us_per_op(&self) -> f64 {
        self.client_cpu * 1e6 / (self.tally.done() + self.tally.failed()).max(1) as f64
    }

    /// Documents that came back wrong, while measuring or when read back.
    #[must_use]
    pub fn corrupt(&self) -> u64 {
        self.tally.corrupt + self.verified.as_ref().map_or(0, |tally| tally.corrupt)
    }

    /// What validation found, while measuring or when everything was read back.
    #[must_use]
    pub fn violations(&self) -> BTreeMap<String, u64> {
        let mut all = self.tally.violations.clone();
        for (name, count) in self.verified.iter().flat_map(|tally| &tally.violations) {
            *all.entry(name.clone()).or_default() += count;
        }
        all
    }

    /// What happened to the first records that it concerns.
    #[must_use]
    pub fn histories(&self) -> Vec<&str> {
        let verified = self.verified.iter().flat_map(|tally| &tally.histories);
        self.tally.histories.iter().chain(verified).map(String::as_str).collect()
    }

    /// Operations that were refused, and what most of them were told.
    #[must_use]
    pub fn refused(&self) -> Option<(u64, &str)> {
        let tallies = [Some(&self.tally), self.verified.as_ref()];
        let mut tallies = tallies.into_iter().flatten();
        let failed = tallies.clone().map(Tally::failed).sum();
        (failed > 0).then(|| (failed, tallies.find_map(Tally::main_failure).unwrap_or("")))
    }
}
