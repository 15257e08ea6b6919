//! Objectives of buckets, as far as this node has counted. Only `/metrics` shows them here; `/settee/slo` adds up all nodes.

use admin::Source;
use cluster::Objective;
use stats::{Metric, Reading, Unit, Value};
use watch::{Counts, Judgement, Span, burn::MILLION};

use super::{Row, counter, gauge, read};

/// What is known of an objective on this node.
#[derive(Clone, Debug)]
pub(crate) struct ObjectiveFacts {
    pub(crate) objective: Objective,
    /// Since the process started.
    pub(crate) counted: Counts,
    pub(crate) judged: Judgement,
}

type F = ObjectiveFacts;

fn or_absent(figure: Option<f64>) -> Value {
    figure.map_or(Value::Absent, Value::Real)
}

const BURN_HELP: &str = "How fast this node uses the error budget; 1 uses all of it in one period.";

macro_rules! burn {
    ($span:ident, $name:literal) => {
        gauge(&[], Unit::Ratio, concat!("The same over ", $name, "."), |f: &F| {
            or_absent(f.judged.burn[Span::$span as usize])
        })
        .metrics(&[Metric::one_of("settee_slo_burn_rate", BURN_HELP, &[("window", $name)])])
    };
}

pub(crate) static OBJECTIVES: &[Row<F>] = &[
    counter(&[], Unit::Count, "Operations that an objective is about.", |f: &F| f.counted.total.into())
        .metrics(&[Metric::new("settee_slo_events_total")]),
    counter(&[], Unit::Count, "Operations that were answered as fast as the objective asks.", |f: &F| {
        f.counted.good.into()
    })
    .metrics(&[Metric::new("settee_slo_good_events_total")]),
    gauge(&[], Unit::Ratio, "Share of operations that the objective asks for.", |f: &F| {
        (f64::from(f.objective.target_ppm) / f64::from(MILLION)).into()
    })
    .metrics(&[Metric::new("settee_slo_target_ratio")]),
    gauge(&[], Unit::Microseconds, "Latency that the objective asks for.", |f: &F| {
        u64::from(f.objective.latency_us).into()
    })
    .metrics(&[Metric::new("settee_slo_latency_seconds").scaled(1e-6)]),
    gauge(
        &[],
        Unit::Ratio,
        "What is left of the error budget by what this node has counted; below 0 where more was used.",
        |f: &F| or_absent(f.judged.budget_left),
    )
    .metrics(&[Metric::new("settee_slo_budget_left_ratio")]),
    burn!(Minutes5, "5m"),
    burn!(Minutes30, "30m"),
    burn!(Hour1, "1h"),
    burn!(Hours2, "2h"),
    burn!(Hours6, "6h"),
    burn!(Day1, "1d"),
    burn!(Days3, "3d"),
];

/// What was seen of an objective outside of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideFacts {
    /// Since the process started.
    pub(crate) counted: Counts,
    pub(crate) judged: Judgement,
}

type O = OutsideFacts;

pub(crate) static SEEN_FROM_OUTSIDE: &[Row<O>] = &[
    counter(
        &[],
        Unit::Count,
        "Operations that an objective is about, as they were seen from outside.",
        |o: &O| o.counted.total.into(),
    )
    .metrics(&[Metric::new("settee_slo_outside_events_total")]),
    counter(
        &[],
        Unit::Count,
        "Operations that were seen from outside to be as fast as an objective asks.",
        |o: &O| o.counted.good.into(),
    )
    .metrics(&[Metric::new("settee_slo_outside_good_events_total")]),
    gauge(
        &[],
        Unit::Ratio,
        "What is left of the error budget by what was seen from outside; below 0 where more was used.",
        |o: &O| or_absent(o.judged.budget_left),
    )
    .metrics(&[Metric::new("settee_slo_outside_budget_left_ratio")]),
];

/// What the rows say of an objective by what was seen from there.
pub(crate) fn seen_from_outside(name: &str, source: Source, facts: &OutsideFacts) -> Vec<Reading> {
    let labels = vec![("objective", name.to_owned()), ("source", source.name().to_owned())];
    read(SEEN_FROM_OUTSIDE, facts).map(|reading| Reading { labels: labels.clone(), ..reading }).collect()
}

/// What the rows say of an objective.
pub(crate) fn of_objective(name: &str, facts: &ObjectiveFacts) -> Vec<Reading> {
    let labelled = |reading| Reading {
        labels: vec![("objective", name.to_owned()), ("operation", facts.objective.operation.name().into())],
        ..reading
    };
    read(OBJECTIVES, facts).map(labelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_has_a_row_with_its_name() {
        let windows = OBJECTIVES.iter().flat_map(|row| row.about.metrics).flat_map(|metric| metric.labels);
        let expected = Span::ALL.map(|span| ("window", span.name()));
        assert_eq!(windows.copied().collect::<Vec<_>>(), expected);
    }
}
