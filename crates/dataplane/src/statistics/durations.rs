//! How long things took. STAT has the phases in its group `phases` and the operations in `timings`.

use stats::{Kind, Metric, Unit, Value};

use crate::figures::{
    meter::{BucketMeter, LatencyStep, OpKind, PhaseReport},
    phases::Phase,
};
use stats::{Row, row};

const PHASE_HELP: &str = "Time that requests spent in a phase inside the server.";

macro_rules! phase {
    ($phase:ident, $name:literal, $help:literal) => {
        row(Kind::Histogram, &[], Unit::Microseconds, $help, |meter: &BucketMeter| {
            histogram(meter.phase(Phase::$phase))
        })
        .metrics(&[Metric::one_of("settee_phase_seconds", PHASE_HELP, &[("phase", $name)])])
    };
}

pub(crate) static PHASES: &[Row<BucketMeter>] = &[
    phase!(Queue, "queue", "From the poll's word that a socket is readable to the beginning of the batch."),
    phase!(Execute, "execute", "The request's share of its batch."),
    phase!(Pacing, "pacing", "Held back while the disk catches up with mutations."),
    row(
        Kind::Histogram,
        &[],
        Unit::Microseconds,
        "Until a value has come from disk.",
        |meter: &BucketMeter| histogram(meter.phase(Phase::Fetch)),
    )
    .metrics(&[
        Metric::one_of("settee_phase_seconds", PHASE_HELP, &[("phase", "fetch")]),
        Metric::new("kv_bg_wait_seconds"),
    ]),
    phase!(Durability, "durability", "Until a durable write has reached its level."),
    phase!(Persistence, "persistence", "SEQNO_PERSISTENCE: until the seqno is on disk."),
    phase!(OtherWait, "other_wait", "For slow work elsewhere: password hashes, range scans."),
    phase!(Reply, "reply", "From the end of the batch until the socket has taken the answers."),
];

const COMMAND_HELP: &str = "Time from the read that brought a request to its answer, by kind of command.";

macro_rules! command {
    ($kind:ident, $opcode:literal) => {
        row(
            Kind::Histogram,
            &[],
            Unit::Microseconds,
            concat!("Duration of ", $opcode, "."),
            |meter: &BucketMeter| latencies(meter, OpKind::$kind),
        )
        .metrics(&[Metric::one_of("kv_cmd_duration_seconds", COMMAND_HELP, &[("opcode", $opcode)])])
    };
}

/// In the order of [`OpKind::ALL`].
pub(crate) static TIMINGS: &[Row<BucketMeter>] = &[
    command!(Get, "GET"),
    command!(GetReplica, "GET_REPLICA"),
    command!(GetMeta, "GET_META"),
    command!(Set, "SET"),
    command!(Add, "ADD"),
    command!(Replace, "REPLACE"),
    command!(Delete, "DELETE"),
    command!(Increment, "INCREMENT"),
    command!(Decrement, "DECREMENT"),
    command!(Append, "APPEND"),
    command!(Prepend, "PREPEND"),
    command!(Touch, "TOUCH"),
    command!(GetAndTouch, "GAT"),
    command!(Lock, "GET_LOCKED"),
    command!(Unlock, "UNLOCK_KEY"),
    command!(SetWithMeta, "SET_WITH_META"),
    command!(DeleteWithMeta, "DEL_WITH_META"),
    command!(Observe, "OBSERVE"),
    command!(SubdocLookup, "SUBDOC_MULTI_LOOKUP"),
    command!(SubdocMutation, "SUBDOC_MULTI_MUTATION"),
    command!(Other, "OTHER"),
];

fn histogram(report: PhaseReport) -> Value {
    Value::Histogram { micros: report.micros, steps: steps(&report.steps) }
}

/// Of commands that a bucket has never seen nothing is shown.
fn latencies(meter: &BucketMeter, kind: OpKind) -> Value {
    let latencies = meter.latencies(kind);
    if latencies.is_empty() {
        return Value::Absent;
    }
    Value::Histogram { micros: meter.micros(kind), steps: steps(&latencies) }
}

fn steps(steps: &[LatencyStep]) -> Vec<(u64, u64)> {
    steps.iter().map(|step| (step.to_micros, step.count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_operation_has_a_row_and_shows_once_it_was_seen() {
        let meter = BucketMeter::new(1);
        for (index, (kind, name)) in OpKind::ALL.iter().enumerate() {
            let row = TIMINGS.get(index).unwrap();
            assert_eq!((row.get)(&meter), Value::Absent, "{name}");
            meter.record(0, *kind, 2, 3);
            assert_eq!((row.get)(&meter), Value::Histogram { micros: 6, steps: vec![(4, 2)] }, "{name}");
        }
        assert_eq!(TIMINGS.len(), OpKind::ALL.len());
    }

    #[test]
    fn every_phase_has_a_row() {
        let names = PHASES.iter().flat_map(|row| row.about.metrics).flat_map(|metric| metric.labels);
        let expected = Phase::ALL.map(|(_, name)| ("phase", name));
        assert_eq!(names.copied().collect::<Vec<_>>(), expected);
    }
}
