//! Alerts that fire on this node, for `/metrics`.

use stats::{Metric, Reading, Unit};
use watch::alerts::{Firing, Level};

use super::{Row, gauge, read};

/// What is known of an alert that fires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FiringFacts {
    pub(crate) level: Level,
}

pub(crate) static ALERTS: &[Row<FiringFacts>] =
    &[gauge(&[], Unit::None, "1 for every alert that fires on this node.", |_: &FiringFacts| 1_u64.into())
        .metrics(&[Metric::new("settee_alert_firing")])];

/// What the rows say of an alert.
pub(crate) fn of_alert(facts: &FiringFacts, firing: &Firing) -> Vec<Reading> {
    let labels = vec![
        ("alert", firing.about.name.to_owned()),
        ("level", facts.level.word().to_owned()),
        ("subject", firing.subject.clone()),
    ];
    read(ALERTS, facts).map(|reading| Reading { labels: labels.clone(), ..reading }).collect()
}
