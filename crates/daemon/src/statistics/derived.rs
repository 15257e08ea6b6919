//! What follows from other figures, once those of all nodes are known. Only REST shows it.

use stats::{Across, Kind, Lookup, Unit, Value};

use super::{Row, row};

type F = ();

/// A share of `of` in percent; `nothing` where there is nothing to have a share of.
fn percent(part: f64, of: f64, nothing: f64) -> f64 {
    if of > 0.0 { (part * 100.0 / of).clamp(0.0, 100.0) } else { nothing }
}

/// So much for each; nothing where there is none.
fn each(sum: f64, count: f64) -> f64 {
    if count > 0.0 { sum / count } else { 0.0 }
}

const fn derived(
    names: &'static [&'static str],
    unit: Unit,
    help: &'static str,
    formula: fn(&Lookup<'_>) -> f64,
) -> Row<F> {
    row(Kind::Gauge, names, unit, help, |(): &F| Value::Absent).not_in_stat().across(Across::Of(formula))
}

/// Nodes say none of these themselves, so there are no facts to read them from.
pub(crate) static DERIVED: &[Row<F>] = &[
    derived(&["hit_ratio"], Unit::Percent, "Reads that found a document.", |of| {
        percent(of("get_hits"), of("cmd_get"), 0.0)
    }),
    derived(&["ep_cache_miss_rate"], Unit::Percent, "Reads whose value had to come from disk.", |of| {
        percent(of("ep_bg_fetched"), of("cmd_get"), 0.0)
    }),
    derived(
        &["ep_resident_items_rate"],
        Unit::Percent,
        "Documents of active vBuckets and replicas whose values are in memory.",
        |of| percent(of("curr_items_tot") - of("ep_num_non_resident"), of("curr_items_tot"), 100.0),
    ),
    derived(&["couch_docs_fragmentation"], Unit::Percent, "Bytes of files that are not current.", |of| {
        let size = of("couch_docs_actual_disk_size");
        percent(size - of("couch_docs_data_size"), size, 0.0)
    }),
    derived(
        &["couch_views_fragmentation"],
        Unit::Percent,
        "Bytes of files of views that are not current.",
        |of| {
            let size = of("couch_views_actual_disk_size");
            percent(size - of("couch_views_data_size"), size, 0.0)
        },
    ),
    derived(&["avg_bg_wait_time"], Unit::Microseconds, "Mean wait for a value from disk.", |of| {
        each(of("bg_wait_total"), of("bg_wait_count"))
    }),
    derived(&["avg_disk_commit_time"], Unit::Seconds, "Mean time of a flush to disk.", |of| {
        each(of("disk_commit_total"), of("disk_commit_count")) / 1e6
    }),
    derived(&["xdc_ops"], Unit::PerSecond, "Operations of replication between clusters.", |of| {
        of("ep_num_ops_get_meta") + of("ep_num_ops_set_meta") + of("ep_num_ops_del_meta")
    }),
    derived(
        &["ep_dcp_views+indexes_count"],
        Unit::Count,
        "Connections that views and indexes follow.",
        |of| of("ep_dcp_views_count") + of("ep_dcp_2i_count"),
    ),
    derived(
        &["ep_dcp_views+indexes_producer_count"],
        Unit::Count,
        "Connections on which views and indexes are sent changes.",
        |of| of("ep_dcp_views_producer_count") + of("ep_dcp_2i_producer_count"),
    ),
    derived(&["ep_dcp_views+indexes_items_sent"], Unit::Count, "Changes sent to views and indexes.", |of| {
        of("ep_dcp_views_items_sent") + of("ep_dcp_2i_items_sent")
    }),
    derived(
        &["ep_dcp_views+indexes_items_remaining"],
        Unit::Count,
        "Changes that views and indexes have yet to get.",
        |of| of("ep_dcp_views_items_remaining") + of("ep_dcp_2i_items_remaining"),
    ),
    derived(&["ep_dcp_views+indexes_total_bytes"], Unit::Bytes, "Bytes sent to views and indexes.", |of| {
        of("ep_dcp_views_total_bytes") + of("ep_dcp_2i_total_bytes")
    }),
    derived(
        &["ep_dcp_views+indexes_backoff"],
        Unit::Count,
        "Pauses of what follows for views and indexes.",
        |of| of("ep_dcp_views_backoff") + of("ep_dcp_2i_backoff"),
    ),
];
