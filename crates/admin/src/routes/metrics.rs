//! `/metrics`: this node in Prometheus' text format. Names are Couchbase's where it has the same figure.

use std::{collections::BTreeMap, fmt::Write as _};

use axum::http::StatusCode;

use http::reply::{self, Outcome};
use stats::{Kind, Metric, Reading, Statistic, Value};

use crate::request::Call;

/// Upper bounds of what is shown of histograms, in microseconds; bounds of their own steps too.
const BOUNDS: [u64; 13] =
    [1, 4, 16, 64, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];

pub(super) fn show(call: &Call) -> Outcome {
    let control = &call.api.control;
    let mut page = Page::default();
    for name in call.meta.buckets.keys() {
        for reading in control.readings(name) {
            page.add(Some(name), &reading);
        }
    }
    for reading in control.node_readings() {
        page.add(None, &reading);
    }
    Ok(reply::with_body(StatusCode::OK, "text/plain; version=0.0.4", page.text().into()))
}

/// The series of each name stand together, below what they have in common.
#[derive(Default)]
struct Page(BTreeMap<&'static str, Family>);

struct Family {
    help: &'static str,
    kind: Kind,
    lines: String,
}

impl Page {
    fn add(&mut self, bucket: Option<&str>, reading: &Reading) {
        for metric in reading.about.metrics {
            let family = self.0.entry(metric.family).or_insert_with(|| Family::of(reading.about, metric));
            // Writing to a string cannot fail.
            let _ = write_series(&mut family.lines, bucket, metric, reading);
        }
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (name, Family { help, kind, lines }) in
            self.0.into_iter().filter(|(_, one)| !one.lines.is_empty())
        {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n{lines}", kind.word());
        }
        text
    }
}

impl Family {
    fn of(about: &'static Statistic, metric: &'static Metric) -> Self {
        Self { help: metric.help.unwrap_or(about.help), kind: about.kind, lines: String::new() }
    }
}

fn write_series(
    text: &mut String,
    bucket: Option<&str>,
    metric: &Metric,
    reading: &Reading,
) -> std::fmt::Result {
    let (family, value) = (metric.family, &reading.value);
    let own = reading.labels.iter().map(|(name, value)| (*name, value.as_str()));
    let labels = bucket.map(|name| ("bucket", name)).into_iter().chain(own);
    let labels = labels.chain(metric.labels.iter().copied());
    let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    if let Value::Histogram { micros, steps } = value {
        return write_histogram(text, family, &labels.join(","), *micros, steps);
    }
    if let Value::Told { sum, count, steps } = value {
        return write_told(text, family, &labels.join(","), [*sum, *count], steps);
    }
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    match (value, value.number()) {
        // All its digits.
        (Value::Count(count), _) if metric.scale == 1.0 => writeln!(text, "{family}{labels} {count}"),
        (_, Some(number)) => writeln!(text, "{family}{labels} {}", number * metric.scale),
        (_, None) => Ok(()),
    }
}

fn write_histogram(
    text: &mut String,
    family: &str,
    labels: &str,
    micros: u64,
    steps: &[(u64, u64)],
) -> std::fmt::Result {
    let below = |bound: u64| steps.iter().filter(|(to, _)| *to <= bound).map(|(_, count)| count).sum::<u64>();
    for bound in BOUNDS {
        writeln!(text, "{family}_bucket{{{labels},le=\"{}\"}} {}", seconds(bound), below(bound))?;
    }
    let count = below(u64::MAX);
    writeln!(text, "{family}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    writeln!(text, "{family}_sum{{{labels}}} {}", seconds(micros))?;
    writeln!(text, "{family}_count{{{labels}}} {count}")
}

fn write_told(
    text: &mut String,
    family: &str,
    labels: &str,
    [sum, count]: [u64; 2],
    steps: &[(Option<u32>, u64)],
) -> std::fmt::Result {
    for (bound, below) in steps {
        let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
        writeln!(text, "{family}_bucket{{{labels},le=\"{bound}\"}} {below}")?;
    }
    writeln!(text, "{family}_sum{{{labels}}} {sum}\n{family}_count{{{labels}}} {count}")
}

#[allow(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{Across, Unit};

    const fn statistic(metrics: &'static [Metric], kind: Kind) -> Statistic {
        Statistic {
            stat: &[],
            rest: &[],
            metrics,
            help: "Says something.",
            unit: Unit::None,
            kind,
            across: Across::Sum,
        }
    }

    static SHARE: Statistic = statistic(&[Metric::new("share_ratio").scaled(0.01)], Kind::Gauge);
    const POOL_HELP: &str = "Bytes by pool.";
    static ONE: Statistic =
        statistic(&[Metric::one_of("pool_bytes", POOL_HELP, &[("pool", "one")])], Kind::Gauge);
    static OTHER: Statistic =
        statistic(&[Metric::one_of("pool_bytes", POOL_HELP, &[("pool", "other")])], Kind::Gauge);
    static PHASE: Statistic =
        statistic(&[Metric::one_of("phase_seconds", "P.", &[("phase", "fetch")])], Kind::Histogram);

    fn page(readings: &[(Option<&str>, &'static Statistic, Value)]) -> String {
        let mut page = Page::default();
        for (bucket, about, value) in readings {
            page.add(*bucket, &Reading::of(about, value.clone()));
        }
        page.text()
    }

    #[test]
    fn series_of_one_name_stand_together_below_one_help_and_one_type() {
        let text = page(&[
            (Some("a"), &ONE, Value::Count(1)),
            (Some("a"), &SHARE, Value::Count(50)),
            (Some("a"), &OTHER, Value::Count(u64::MAX)),
            (Some("b"), &ONE, Value::Count(3)),
        ]);
        let expected = "# HELP pool_bytes Bytes by pool.\n# TYPE pool_bytes gauge\n\
                        pool_bytes{bucket=\"a\",pool=\"one\"} 1\n\
                        pool_bytes{bucket=\"a\",pool=\"other\"} 18446744073709551615\n\
                        pool_bytes{bucket=\"b\",pool=\"one\"} 3\n\
                        # HELP share_ratio Says something.\n# TYPE share_ratio gauge\n\
                        share_ratio{bucket=\"a\"} 0.5\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_figure_that_is_not_to_be_had_is_not_shown() {
        assert_eq!(page(&[(None, &SHARE, Value::Absent), (None, &ONE, Value::Text("words".into()))]), "");
        let shown = page(&[(None, &SHARE, Value::Real(12.5))]);
        assert!(shown.ends_with("share_ratio 0.125\n"), "{shown}");
    }

    #[test]
    fn a_phase_is_a_cumulative_histogram_in_seconds() {
        let value = Value::Histogram { micros: 1_500_120, steps: vec![(64, 2), (72, 1), (1 << 25, 1)] };
        let text = page(&[(Some("b"), &PHASE, value)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), BOUNDS.len() + 5);
        for line in [
            "# TYPE phase_seconds histogram",
            "phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"0.000016\"} 0",
            "phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"0.000064\"} 2",
            "phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"0.000256\"} 3",
            "phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"16.777216\"} 3",
            "phase_seconds_bucket{bucket=\"b\",phase=\"fetch\",le=\"+Inf\"} 4",
            "phase_seconds_sum{bucket=\"b\",phase=\"fetch\"} 1.50012",
            "phase_seconds_count{bucket=\"b\",phase=\"fetch\"} 4",
        ] {
            assert!(lines.contains(&line), "{line}: {text}");
        }
    }
}
