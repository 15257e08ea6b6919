//! What this node's active probe has found. Only `/metrics` shows it here; `/settee/probe` shows that of all nodes.

use stats::{Kind, Metric, Reading, Unit, Value};
use watch::probe::Try;

use super::{Row, counter, gauge, read, row};

/// What is known of an operation on a bucket of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeFacts {
    /// In the order of `watch::probe::Ended::ALL`.
    pub(crate) ended: [u64; 3],
    pub(crate) micros: u64,
    pub(crate) steps: Vec<(u64, u64)>,
}

type F = ProbeFacts;

const PROBES_HELP: &str = "Operations that this node has tried as a client would, by how they ended.";

pub(crate) static PROBES: &[Row<F>] = &[
    counter(&[], Unit::Count, "Operations of probes that were answered as they should.", |f: &F| {
        f.ended[0].into()
    })
    .metrics(&[Metric::one_of("settee_probes_total", PROBES_HELP, &[("result", "answered")])]),
    counter(&[], Unit::Count, "Operations of probes that were answered with an error.", |f: &F| {
        f.ended[1].into()
    })
    .metrics(&[Metric::one_of("settee_probes_total", PROBES_HELP, &[("result", "refused")])]),
    counter(&[], Unit::Count, "Operations of probes that were not answered in time.", |f: &F| {
        f.ended[2].into()
    })
    .metrics(&[Metric::one_of("settee_probes_total", PROBES_HELP, &[("result", "unanswered")])]),
    row(
        Kind::Histogram,
        &[],
        Unit::Microseconds,
        "Latencies that this node's probes have seen; without an answer the timeout of 2.5 s counts.",
        |f: &F| Value::Histogram { micros: f.micros, steps: f.steps.clone() },
    )
    .metrics(&[Metric::new("settee_probe_seconds")]),
];

pub(crate) static PROBE_TARGETS: &[Row<bool>] = &[gauge(
    &[],
    Unit::None,
    "Whether a bucket on a node answered the last probe of this node.",
    |up: &bool| (*up).into(),
)
.metrics(&[Metric::new("settee_probe_up")])];

/// What the rows say of an operation on a node.
pub(crate) fn of_probe(to: &str, what: Try, facts: &ProbeFacts) -> Vec<Reading> {
    let labels = vec![("to", to.to_owned()), ("operation", what.name().to_owned())];
    read(PROBES, facts).map(|reading| Reading { labels: labels.clone(), ..reading }).collect()
}

/// What the rows say of a bucket on a node.
pub(crate) fn of_target(to: &str, is_up: bool) -> Vec<Reading> {
    let labelled = |reading| Reading { labels: vec![("to", to.to_owned())], ..reading };
    read(PROBE_TARGETS, &is_up).map(labelled).collect()
}
