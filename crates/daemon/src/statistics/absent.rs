//! Names that Couchbase's exporter reads and that have no meaning here, or that nobody measures yet.

pub(crate) const ABSENT: &[(&[&str], &str)] = &[
    (
        &[
            "vb_active_queue_age",
            "vb_replica_queue_age",
            "vb_pending_queue_age",
            "vb_total_queue_age",
            "vb_avg_active_queue_age",
            "vb_avg_replica_queue_age",
            "vb_avg_pending_queue_age",
            "vb_avg_total_queue_age",
        ],
        "The age of queued mutations is not measured; `settee_phase_seconds` says what waiting costs clients.",
    ),
    (
        &["disk_update_count", "disk_update_total", "avg_disk_update_time"],
        "Documents are written in batches: one alone has no time of its own. `disk_commit_*` has that of batches.",
    ),
    (
        &[
            "ep_active_ahead_exceptions",
            "ep_active_hlc_drift",
            "ep_active_hlc_drift_count",
            "ep_replica_ahead_exceptions",
            "ep_replica_hlc_drift",
            "ep_replica_hlc_drift_count",
            "ep_clock_cas_drift_threshold_exceeded",
            "avg_active_timestamp_drift",
            "avg_replica_timestamp_drift",
        ],
        "The drift of CAS values from the clock is not measured.",
    ),
    (
        &["couch_spatial_data_size", "couch_spatial_disk_size", "couch_spatial_ops"],
        "There are no spatial views.",
    ),
    (
        &[
            "ep_dcp_replica_total_backlog_size",
            "ep_dcp_xdcr_total_backlog_size",
            "ep_dcp_2i_total_backlog_size",
            "ep_dcp_fts_total_backlog_size",
            "ep_dcp_cbas_total_backlog_size",
            "ep_dcp_views_total_backlog_size",
            "ep_dcp_views+indexes_total_backlog_size",
            "ep_dcp_other_total_backlog_size",
        ],
        "Couchbase 7 has them no longer. `ep_dcp_*_items_remaining` says how far connections are behind.",
    ),
    (&["cas_hits", "cas_misses"], "Not counted; `cas_badval` is."),
    (&["ep_num_ops_set_ret_meta", "ep_num_ops_del_ret_meta"], "The command is not built."),
    (
        &["cpu_idle_ms", "cpu_local_ms", "hibernated_requests", "hibernated_waked", "rest_requests"],
        "They are about Couchbase's own management process.",
    ),
];
