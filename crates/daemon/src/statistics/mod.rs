//! The statistics of the whole node: those of the data path ([`dataplane::statistics`]), and those that only the daemon
//! knows. The latter are about the machine, alerts, objectives, and several nodes.
//!
//! REST and `/metrics` (`admin`, through `NodeControl`), the page `docs/statistics.md` and the files for Grafana and
//! Prometheus are made from the rows.

#[cfg(test)]
pub(crate) mod absent;
mod alerts;
mod derived;
#[cfg(test)]
mod monitoring;
mod objectives;
#[cfg(test)]
mod page;
mod probes;
mod sdks;
mod system;
mod views;

use dataplane::statistics::{
    NodeFacts, Section, of, of_process, section_of_durations, sections_of_bucket, sections_of_process,
};
use stats::{Reading, Row, SystemStats, counter, gauge, read, row};

use self::{
    alerts::ALERTS,
    derived::DERIVED,
    objectives::{OBJECTIVES, SEEN_FROM_OUTSIDE},
    probes::{PROBE_TARGETS, PROBES},
    sdks::{SDKS, TOLD},
    system::SYSTEM,
    views::INDEXES,
};
pub(crate) use self::{
    alerts::{FiringFacts, of_alert},
    objectives::{ObjectiveFacts, OutsideFacts, of_objective, seen_from_outside},
    probes::{ProbeFacts, of_probe, of_target},
    sdks::{SdkFacts, of_sdks, of_told},
    views::of_index,
};

/// What the process and the machine say.
pub(crate) fn of_node(node: &NodeFacts, system: &SystemStats) -> Vec<Reading> {
    of_process(node).chain(read(SYSTEM, system)).collect()
}

/// Every statistic, by what it is about.
pub(crate) fn sections() -> Vec<Section> {
    let here = [
        ("Alerts", of(ALERTS)),
        ("Objectives", [of(OBJECTIVES), of(SEEN_FROM_OUTSIDE)].concat()),
        ("Active probe", [of(PROBES), of(PROBE_TARGETS)].concat()),
        ("Clients' own figures", [of(SDKS), of(TOLD)].concat()),
        ("Indexes of design documents", of(INDEXES)),
        ("Ratios and means", of(DERIVED)),
    ];
    let of_process = sections_of_process().into_iter().chain([("Machine", of(SYSTEM))]);
    of_process.chain(sections_of_bucket()).chain(here).chain([section_of_durations()]).collect()
}
