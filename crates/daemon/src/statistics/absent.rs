//! Names that Couchbase's exporter reads and that Settee does not show: for want of a meaning, or because it does not measure them.

/// Names, and the reason that all of them have.
pub(crate) type Absent = (&'static [&'static str], &'static str);

/// What would have a meaning, and is not there.
pub(crate) const UNMEASURED: &[Absent] = &[
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
        "A mutation in the queue has no time of its own, which would cost each of them memory. `ep_diskqueue_*` has their number, and \
         `settee_phase_seconds` says what waiting costs clients.",
    ),
    (
        &["disk_update_count", "disk_update_total", "avg_disk_update_time"],
        "Documents are written in batches, and only a batch is timed: `disk_commit_*` has that.",
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
        "How far CAS values of other nodes and clusters are from this clock is not measured. The alert `clock_skew` compares the clocks \
         of nodes.",
    ),
    (&["ep_num_ops_set_ret_meta", "ep_num_ops_del_ret_meta"], "The command is not built."),
];

/// What has no meaning here.
pub(crate) const ABSENT: &[Absent] = &[
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
    (
        &["cpu_idle_ms", "cpu_local_ms", "hibernated_requests", "hibernated_waked", "rest_requests"],
        "They are about Couchbase's own management process.",
    ),
];
