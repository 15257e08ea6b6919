//! What clients of this node tell of their operations, under the names that Couchbase 8 gives these series.

use stats::{Kind, Metric, Reading, Row, Unit, Value, counter, gauge, read, row};
use watch::sdk::{Latency, Told};

/// What is known of the telling itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SdkFacts {
    pub(crate) connected: usize,
    pub(crate) invalid: u64,
}

pub(crate) static SDKS: &[Row<SdkFacts>] = &[
    gauge(
        &[],
        Unit::Count,
        "Clients that this node asks how long their operations take.",
        |facts: &SdkFacts| (facts.connected as u64).into(),
    )
    .metrics(&[Metric::new("cm_app_telemetry_curr_connections")]),
    counter(&[], Unit::Count, "Lines of clients' reports that could not be counted.", |facts: &SdkFacts| {
        facts.invalid.into()
    })
    .metrics(&[Metric::new("sdk_invalid_metric_total")]),
];

/// Nothing where no client has told anything: most clients use few services.
fn latencies(told: &Told, of: Latency) -> Value {
    let known = told.latency(of);
    match known.count {
        0 => Value::Absent,
        count => Value::Told { sum: known.sum_ms, count, steps: known.steps(of).collect() },
    }
}

fn ended(told: &Told, service: usize, end: usize) -> Value {
    let counts = told.ended(service);
    let is_used = counts.iter().any(|count| *count > 0);
    counts.get(end).filter(|_| is_used).map_or(Value::Absent, |count| (*count).into())
}

macro_rules! latency {
    ($of:ident, $family:literal, $help:literal) => {
        row(Kind::Histogram, &[], Unit::Milliseconds, $help, |told: &Told| latencies(told, Latency::$of))
            .metrics(&[Metric::new($family)])
    };
}

macro_rules! requests {
    ($service:literal, $end:literal, $family:literal, $help:literal) => {
        counter(&[], Unit::Count, $help, |told: &Told| ended(told, $service, $end))
            .metrics(&[Metric::new($family)])
    };
}

pub(crate) static TOLD: &[Row<Told>] = &[
    latency!(Retrieval, "sdk_kv_retrieval_duration_milliseconds", "Reads of documents, as clients saw them."),
    latency!(
        Mutation,
        "sdk_kv_mutation_nondurable_duration_milliseconds",
        "Writes without a durability level, as clients saw them."
    ),
    latency!(
        DurableMutation,
        "sdk_kv_mutation_durable_duration_milliseconds",
        "Writes with a durability level, as clients saw them."
    ),
    latency!(Query, "sdk_query_duration_milliseconds", "Queries, as clients saw them."),
    latency!(Search, "sdk_search_duration_milliseconds", "Searches, as clients saw them."),
    latency!(Analytics, "sdk_analytics_duration_milliseconds", "Queries of analytics, as clients saw them."),
    latency!(
        Management,
        "sdk_management_duration_milliseconds",
        "Requests of management, as clients saw them."
    ),
    latency!(Eventing, "sdk_eventing_duration_milliseconds", "Requests of eventing, as clients saw them."),
    requests!(0, 0, "sdk_kv_r_timedout", "Operations on documents that clients gave up after a time."),
    requests!(0, 1, "sdk_kv_r_canceled", "Operations on documents that clients were told to give up."),
    requests!(0, 2, "sdk_kv_r_total", "Operations on documents that clients have sent."),
    requests!(1, 0, "sdk_query_r_timedout", "Queries that clients gave up after a time."),
    requests!(1, 1, "sdk_query_r_canceled", "Queries that clients were told to give up."),
    requests!(1, 2, "sdk_query_r_total", "Queries that clients have sent."),
    requests!(2, 0, "sdk_search_r_timedout", "Searches that clients gave up after a time."),
    requests!(2, 1, "sdk_search_r_canceled", "Searches that clients were told to give up."),
    requests!(2, 2, "sdk_search_r_total", "Searches that clients have sent."),
    requests!(3, 0, "sdk_analytics_r_timedout", "Queries of analytics that clients gave up after a time."),
    requests!(3, 1, "sdk_analytics_r_canceled", "Queries of analytics that clients were told to give up."),
    requests!(3, 2, "sdk_analytics_r_total", "Queries of analytics that clients have sent."),
    requests!(4, 0, "sdk_management_r_timedout", "Requests of management that clients gave up after a time."),
    requests!(4, 1, "sdk_management_r_canceled", "Requests of management that clients were told to give up."),
    requests!(4, 2, "sdk_management_r_total", "Requests of management that clients have sent."),
    requests!(5, 0, "sdk_eventing_r_timedout", "Requests of eventing that clients gave up after a time."),
    requests!(5, 1, "sdk_eventing_r_canceled", "Requests of eventing that clients were told to give up."),
    requests!(5, 2, "sdk_eventing_r_total", "Requests of eventing that clients have sent."),
];

/// What the rows say of operations at a node.
pub(crate) fn of_told(node: &str, told: &Told) -> Vec<Reading> {
    let labelled = |reading| Reading { labels: vec![("node", node.to_owned())], ..reading };
    read(TOLD, told).map(labelled).collect()
}

/// What the rows say of the telling itself.
pub(crate) fn of_sdks(facts: &SdkFacts) -> impl Iterator<Item = Reading> {
    read(SDKS, facts)
}

#[cfg(test)]
mod tests {
    use watch::sdk::{ENDS, SERVICES};

    use super::*;

    #[test]
    fn every_series_that_clients_tell_has_its_row() {
        let latencies = Latency::ALL.iter().map(|of| format!("sdk_{}_duration_milliseconds", of.name()));
        let requests = SERVICES.iter().flat_map(|service| ENDS.map(|end| format!("sdk_{service}_r_{end}")));
        let expected: Vec<_> = latencies.chain(requests).collect();
        let declared: Vec<_> =
            TOLD.iter().flat_map(|row| row.about.metrics).map(|metric| metric.family).collect();
        assert_eq!(declared, expected);
    }
}
