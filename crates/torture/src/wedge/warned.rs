//! Whether operators heard of what comes before clients did: when each alert was seen first, and the first error.
//!
//! Where loaders press at once, two alerts have to come before the first refused write, each once its condition has lasted. Such a run
//! leaves no time for the others. Where pressure comes slowly ([`super::slowly`]), the scenario makes conditions one after the other. There
//! each alert that is due has to be seen, and in an earlier second than the first error.

use crate::checks::{Checks, found_or_none};
use crate::watch::Sample;
use client::Rest;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An alert is due once its condition was seen by so many looks in a row. Nodes look once a second as well, and hear of each other's
/// alerts a moment later. A bucket that is full sooner leaves no time for an alert.
const DUE_LOOKS: u32 = 3;
/// The step of memory pressure at which writers are slowed down. At the next one they are refused, which is another alert.
const PACED_STEP: Range<f64> = 3.0..4.0;
/// Keys and metadata take more than half of the quota, and not just so.
const FLOOR_SHARE: f64 = 0.52;
/// Memory is above where streams that lag behind are read from disk, and not just so. That is at 87 % of the quota.
const CLOSE_SHARE: f64 = 0.88;

/// See the module.
#[derive(Default)]
pub struct Warned {
    looks: u32,
    /// By alert, the look that saw it first.
    alerts: BTreeMap<String, u32>,
    /// By alert, the looks in a row that saw its condition. From the first error on they stay.
    held: BTreeMap<&'static str, u32>,
    /// What a scenario has made the conditions of.
    due: BTreeSet<&'static str>,
    /// The look that saw the first error.
    error: Option<u32>,
}

impl Warned {
    /// A second's look at what fires. `errors`: how many clients have met until now.
    pub fn look(&mut self, rest: &Rest, sample: &Sample, errors: u64) {
        let told = rest.get_json("/settee/alerts").ok();
        // What nobody could be asked about is no alert that is lacking.
        let is_told =
            told.as_ref().is_some_and(|alerts| alerts["missingNodes"].as_array().is_some_and(Vec::is_empty));
        let holds = [
            ("writes_paced", is_told && PACED_STEP.contains(&sample.get("ep_pressure_step"))),
            ("metadata_share", is_told && sample.floor_share() > FLOOR_SHARE),
            ("memory_close_to_quota", is_told && sample.fullness() > CLOSE_SHARE),
        ];
        let told = told.unwrap_or_default();
        self.note(heard(&told), holds, errors);
    }

    fn note<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        holds: impl IntoIterator<Item = (&'static str, bool)>,
        errors: u64,
    ) {
        self.looks += 1;
        for name in names {
            self.alerts.entry(name.to_owned()).or_insert(self.looks);
        }
        if errors > 0 {
            self.error.get_or_insert(self.looks);
            return;
        }
        for (name, is_so) in holds {
            let looks = self.held.entry(name).or_default();
            // What was due once stays due.
            *looks = if is_so {
                *looks + 1
            } else if *looks < DUE_LOOKS {
                0
            } else {
                *looks
            };
        }
    }

    /// This alert has to have fired by the end.
    pub fn is_due(&mut self, name: &'static str) {
        self.due.insert(name);
    }

    /// Whether all that are due were seen.
    #[must_use]
    pub fn all_fired(&self) -> bool {
        self.due.iter().all(|name| self.alerts.contains_key(*name))
    }

    /// Whether a client has met an error.
    #[must_use]
    pub const fn has_error(&self) -> bool {
        self.error.is_some()
    }

    /// Whether this alert came before the first error, or with it in one second.
    fn is_before(&self, name: &str) -> bool {
        self.alerts.get(name).is_some_and(|look| self.error.is_none_or(|error| *look <= error))
    }

    /// What was seen, by looks.
    fn found(&self) -> String {
        let error = self.error.map_or("none".to_owned(), |look| format!("at {look} s"));
        let seen: Vec<_> = self.alerts.iter().map(|(name, look)| format!("{name} at {look} s")).collect();
        format!("first error {error}; {}", found_or_none(&seen))
    }

    fn held_long(&self) -> impl Iterator<Item = &'static str> {
        self.held.iter().filter(|(_, looks)| **looks >= DUE_LOOKS).map(|(name, _)| *name)
    }

    /// Any alert has to come before clients see an error.
    pub fn judge_any(&self, checks: &mut Checks) {
        let is_any = self.alerts.keys().any(|name| self.is_before(name));
        checks.add("an alert fires before a write is refused", is_any, self.found());
    }

    /// So has each whose condition held long enough, of these two; how many these are.
    pub fn judge_each(&self, checks: &mut Checks) -> usize {
        let due: Vec<_> = self.held_long().filter(|name| *name != "memory_close_to_quota").collect();
        for name in &due {
            checks.add(format!("{name} fires before a write is refused"), self.is_before(name), self.found());
        }
        due.len()
    }

    /// Judges each alert that is due, because of the scenario or because its condition was seen to last. The error has to come in the end:
    /// without one, nothing came before it.
    pub fn judge_order(&self, checks: &mut Checks) {
        let due: BTreeSet<_> = self.due.iter().copied().chain(self.held_long()).collect();
        let is_judged = !due.is_empty() && self.has_error();
        checks.add("alerts are due, and a client meets an error in the end", is_judged, self.found());
        let at = |look: Option<u32>| look.map_or("never".to_owned(), |look| format!("at {look} s"));
        for name in due {
            let look = self.alerts.get(name).copied();
            let is_before = look.is_some_and(|look| self.error.is_none_or(|error| look < error));
            let found = format!("it fired {}; the first error came {}", at(look), at(self.error));
            checks.add(format!("{name} fires before a client meets an error"), is_before, found);
        }
    }
}

/// Names of alerts that fire and are sent: a silenced one reaches nobody.
fn heard(told: &Value) -> impl Iterator<Item = &str> {
    let firing = told["firing"].as_array().into_iter().flatten();
    firing.filter(|alert| alert["silencedUntil"].is_null()).filter_map(|alert| alert["name"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(paced: bool, metadata: bool) -> [(&'static str, bool); 2] {
        [("writes_paced", paced), ("metadata_share", metadata)]
    }

    #[test]
    fn an_alert_that_comes_after_the_first_refused_write_is_too_late() {
        let mut warned = Warned::default();
        warned.note(["writes_paced"].into_iter(), holds(true, true), 0);
        warned.note([].into_iter(), holds(true, true), 0);
        warned.note([].into_iter(), holds(true, true), 0);
        warned.note(["same"].into_iter(), holds(false, true), 3);
        warned.note(["metadata_share"].into_iter(), holds(false, true), 9);
        let judged = ["writes_paced", "same", "metadata_share", "never"].map(|name| warned.is_before(name));
        assert_eq!(judged, [true, true, false, false]);
        let mut checks = Checks::default();
        assert_eq!(warned.judge_each(&mut checks), 2);
        assert_eq!((checks.made(), checks.failed()), (2, 1));
    }

    #[test]
    fn an_alert_is_due_once_its_condition_has_lasted() {
        let mut warned = Warned::default();
        for is_paced in [true, true, false, true, true] {
            warned.note(["writes_paced"].into_iter(), holds(is_paced, false), 0);
        }
        let mut checks = Checks::default();
        assert_eq!(warned.judge_each(&mut checks), 0, "it came and went between two looks");
        warned.note([].into_iter(), holds(true, false), 0);
        warned.note([].into_iter(), holds(false, true), 0);
        // What holds only from the first refusal on left no time.
        warned.note([].into_iter(), holds(false, true), 1);
        assert_eq!(warned.judge_each(&mut checks), 1);
        assert_eq!((checks.made(), checks.failed()), (1, 0));
    }

    fn order(looks: &[(&[&str], u64)], due: &[&'static str]) -> Vec<String> {
        let (mut warned, mut checks) = (Warned::default(), Checks::default());
        due.iter().for_each(|name| warned.is_due(name));
        for (names, errors) in looks {
            warned.note(names.iter().copied(), holds(false, true), *errors);
        }
        warned.judge_order(&mut checks);
        checks.failures().map(|check| check.what.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn an_alert_that_is_due_has_to_fire_in_an_earlier_second_than_the_first_error() {
        let looks: [(&[&str], u64); 3] = [(&["early"], 0), (&["early", "same"], 2), (&["late"], 5)];
        assert_eq!(order(&looks, &["early"]), [""; 0]);
        assert_eq!(order(&looks, &["early", "late", "never", "same"]), ["late", "never", "same"]);
        assert_eq!(order(&looks, &[]), ["alerts"], "a run in which nothing is due has shown nothing");
        assert_eq!(order(&looks[..1], &["early"]), ["alerts"], "nor has one without an error");
        let lasts: [(&[&str], u64); 4] = [(&["early"], 0), (&[], 0), (&[], 0), (&[], 1)];
        assert_eq!(order(&lasts, &["early"]), ["metadata_share"], "its condition was seen");
    }

    #[test]
    fn a_silenced_alert_is_heard_by_nobody() {
        let told =
            json!({"firing": [{"name": "a"}, {"name": "b", "silencedUntil": "2026-01-01T00:00:00.000Z"}]});
        assert_eq!(heard(&told).collect::<Vec<_>>(), ["a"]);
        assert_eq!(heard(&Value::Null).count(), 0);
    }
}
