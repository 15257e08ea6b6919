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
const OUTSIDE_BURN_HELP: &str =
    "How fast the error budget is used by what was seen from outside; 1 uses all of it in one period.";
const STATE_HELP: &str = "1 for the state of an objective by what this node has counted, 0 for the others.";
const OUTSIDE_STATE_HELP: &str =
    "1 for the state of an objective by what was seen from outside, 0 for the others.";

macro_rules! burn {
    ($facts:ident, $family:literal, $help:ident, $span:ident, $name:literal) => {
        gauge(
            &[],
            Unit::Ratio,
            concat!("How fast the error budget is used over ", $name, "."),
            |f: &$facts| or_absent(f.judged.burn[Span::$span as usize]),
        )
        .metrics(&[Metric::one_of($family, $help, &[("window", $name)])])
    };
}

macro_rules! state {
    ($facts:ident, $family:literal, $help:ident, $state:literal) => {
        gauge(&[], Unit::None, concat!("Whether the state is \"", $state, "\"."), |f: &$facts| {
            u64::from(f.judged.word() == $state).into()
        })
        .metrics(&[Metric::one_of($family, $help, &[("state", $state)])])
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
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Minutes5, "5m"),
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Minutes30, "30m"),
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Hour1, "1h"),
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Hours2, "2h"),
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Hours6, "6h"),
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Day1, "1d"),
    burn!(F, "settee_slo_burn_rate", BURN_HELP, Days3, "3d"),
    state!(F, "settee_slo_state", STATE_HELP, "met"),
    state!(F, "settee_slo_state", STATE_HELP, "burning"),
    state!(F, "settee_slo_state", STATE_HELP, "exhausted"),
    state!(F, "settee_slo_state", STATE_HELP, "no data"),
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
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Minutes5, "5m"),
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Minutes30, "30m"),
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Hour1, "1h"),
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Hours2, "2h"),
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Hours6, "6h"),
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Day1, "1d"),
    burn!(O, "settee_slo_outside_burn_rate", OUTSIDE_BURN_HELP, Days3, "3d"),
    state!(O, "settee_slo_outside_state", OUTSIDE_STATE_HELP, "met"),
    state!(O, "settee_slo_outside_state", OUTSIDE_STATE_HELP, "burning"),
    state!(O, "settee_slo_outside_state", OUTSIDE_STATE_HELP, "exhausted"),
    state!(O, "settee_slo_outside_state", OUTSIDE_STATE_HELP, "no data"),
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
    use watch::{Spans, judge};

    use super::*;

    #[test]
    fn every_span_and_state_has_a_row_with_its_name_from_inside_and_outside() {
        let labels = |family: &str, metrics: &[&'static [Metric]]| {
            let of_family = metrics.iter().copied().flatten().filter(|metric| metric.family == family);
            of_family.flat_map(|metric| metric.labels).copied().collect::<Vec<_>>()
        };
        let inside: Vec<_> = OBJECTIVES.iter().map(|row| row.about.metrics).collect();
        let outside: Vec<_> = SEEN_FROM_OUTSIDE.iter().map(|row| row.about.metrics).collect();
        let windows = Span::ALL.map(|span| ("window", span.name()));
        assert_eq!(labels("settee_slo_burn_rate", &inside), windows);
        assert_eq!(labels("settee_slo_outside_burn_rate", &outside), windows);
        let states = Judgement::WORDS.map(|word| ("state", word));
        assert_eq!(labels("settee_slo_state", &inside), states);
        assert_eq!(labels("settee_slo_outside_state", &outside), states);
    }

    #[test]
    fn an_objective_is_in_one_state_of_all() {
        let counted = |good, total| {
            let counts = Counts { good, total };
            judge(990_000, &Spans { spans: [counts; 7], period: counts })
        };
        for (judged, state) in
            [(counted(0, 0), "no data"), (counted(999, 1_000), "met"), (counted(1, 1_000), "exhausted")]
        {
            let facts = OutsideFacts { counted: Counts::default(), judged };
            let readings = seen_from_outside("reads", Source::Sdk, &facts);
            let states =
                readings.iter().filter(|one| one.about.metrics[0].family == "settee_slo_outside_state");
            let is_one = states.filter(|one| one.value.number() == Some(1.0));
            let names: Vec<_> = is_one.map(|one| one.about.metrics[0].labels[0].1).collect();
            assert_eq!(names, [state]);
            let is_burn = |one: &&Reading| one.about.metrics[0].family == "settee_slo_outside_burn_rate";
            let burns: Vec<_> = readings.iter().filter(is_burn).map(|one| one.value.number()).collect();
            assert_eq!(burns, judged.burn);
            assert!(readings.iter().all(|one| one.labels[1] == ("source", "sdk".to_owned())));
        }
    }
}
