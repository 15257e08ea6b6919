//! What came of each kind of event: the table that documents take as it is, and what was not tried at all.

use super::event::Event;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The worst of all events of a kind, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Worst {
    times: u64,
    at_rest_after: f64,
    durable: f64,
    plain: f64,
}

impl Worst {
    fn merge(&mut self, other: Worst) {
        self.times += other.times;
        self.at_rest_after = self.at_rest_after.max(other.at_rest_after);
        self.durable = self.durable.max(other.durable);
        self.plain = self.plain.max(other.plain);
    }

    fn write(&self, table: &mut String, name: &str) {
        let Worst { times, at_rest_after, durable, plain } = self;
        // A string takes whatever is written to it.
        let _ = writeln!(table, "| {name} | {times} | {at_rest_after:.1} | {durable:.1} | {plain:.1} |");
    }
}

/// All events of a run, by kind.
#[derive(Debug, Default)]
pub(super) struct Summary {
    kinds: BTreeMap<Event, Worst>,
    /// Kinds that this machine does not allow, and why not.
    left_out: Option<(Vec<Event>, String)>,
}

impl Summary {
    /// Of a run that leaves these kinds out, for this reason.
    #[must_use]
    pub(super) fn new(left_out: Option<(Vec<Event>, String)>) -> Summary {
        Summary { kinds: BTreeMap::new(), left_out }
    }

    /// One more event: how many seconds it took until the cluster was at rest, and the slowest operations of both loads.
    pub(super) fn add(&mut self, event: Event, at_rest_after: f64, durable: f64, plain: f64) {
        self.kinds.entry(event).or_default().merge(Worst { times: 1, at_rest_after, durable, plain });
    }

    /// In Markdown, a row per kind that happened and one for all of them.
    #[must_use]
    pub(super) fn table(&self) -> String {
        let mut table =
            "| event | times | at rest after | slowest durable operation | slowest plain operation |\n\
                         |---|---|---|---|---|\n"
                .to_owned();
        let mut all = Worst::default();
        for (event, worst) in &self.kinds {
            worst.write(&mut table, event.name());
            all.merge(*worst);
        }
        all.write(&mut table, "all");
        table
    }

    /// What was wanted and did not happen, and why not: a line each.
    #[must_use]
    pub(super) fn not_tried(&self, wanted: &[Event]) -> Vec<String> {
        let mut lines = Vec::new();
        let left_out = self.left_out.as_ref().map_or(&[][..], |(kinds, _)| kinds);
        if let Some((kinds, reason)) = &self.left_out {
            lines.push(format!(
                "NOT TRIED, because there are no network namespaces ({reason}): {}",
                names(kinds)
            ));
        }
        let is_missing = |event: &&Event| !self.kinds.contains_key(event) && !left_out.contains(event);
        let missing: Vec<Event> = wanted.iter().filter(is_missing).copied().collect();
        if !missing.is_empty() {
            let why = "the run ended before, or there never were as many nodes as it takes";
            lines.push(format!("NOT TRIED ({why}): {}", names(&missing)));
        }
        lines
    }

    /// For the report.
    #[must_use]
    pub(super) fn to_json(&self) -> Value {
        let kind = |(event, worst): (&Event, &Worst)| {
            json!({
                "event": event.name(), "times": worst.times, "at_rest_after_seconds": worst.at_rest_after,
                "slowest_durable_seconds": worst.durable, "slowest_plain_seconds": worst.plain,
            })
        };
        self.kinds.iter().map(kind).collect()
    }
}

fn names(kinds: &[Event]) -> String {
    kinds.iter().map(|event| event.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_worst_of_each_kind_and_leaves_none_out() {
        let mut summary = Summary::default();
        for event in Event::ALL {
            summary.add(event, 1.0, 0.2, 0.1);
        }
        summary.add(Event::Pause, 0.5, 2.0, 0.0);
        let table = summary.table();
        for event in Event::ALL {
            assert!(table.contains(&format!("\n| {event} | ")), "{event}");
        }
        assert!(table.contains("\n| pause | 2 | 1.0 | 2.0 | 0.1 |\n"), "{table}");
        assert!(
            table.ends_with(&format!("\n| all | {} | 1.0 | 2.0 | 0.1 |\n", Event::ALL.len() + 1)),
            "{table}"
        );
    }

    #[test]
    fn what_was_not_tried_is_told_with_its_reason() {
        let mut summary = Summary::new(Some((vec![Event::Mute], "may not".to_owned())));
        let wanted = [Event::Kill, Event::Mute, Event::Swap];
        summary.add(Event::Kill, 1.0, 0.2, 0.1);
        let lines = summary.not_tried(&wanted);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("(may not): mute"), "{lines:?}");
        assert!(lines[1].ends_with(": swap"), "{lines:?}");
        summary.add(Event::Swap, 1.0, 0.2, 0.1);
        assert_eq!(summary.not_tried(&wanted).len(), 1);
    }
}
