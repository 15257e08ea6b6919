//! How long things took. STAT has the phases in its group `phases`.

use admin::statistics::{Kind, Metric, Unit, Value};

use super::{Row, row};
use crate::{BucketMeter, meter::PhaseReport, phases::Phase};

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
    phase!(Fetch, "fetch", "Until a value has come from disk."),
    phase!(Durability, "durability", "Until a durable write has reached its level."),
    phase!(Persistence, "persistence", "SEQNO_PERSISTENCE: until the seqno is on disk."),
    phase!(OtherWait, "other_wait", "For slow work elsewhere: password hashes, range scans."),
    phase!(Reply, "reply", "From the end of the batch until the socket has taken the answers."),
];

fn histogram(report: PhaseReport) -> Value {
    let steps = report.steps.iter().map(|step| (step.to_micros, step.count)).collect();
    Value::Histogram { micros: report.micros, steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_a_row() {
        let names = PHASES.iter().flat_map(|row| row.about.metrics).flat_map(|metric| metric.labels);
        let expected = Phase::ALL.map(|(_, name)| ("phase", name));
        assert_eq!(names.copied().collect::<Vec<_>>(), expected);
    }
}
