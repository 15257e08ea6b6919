//! Names that Couchbase's exporter reads, or that published dashboards draw, and that Settee does not show. They have no
//! meaning here, or Settee does not measure them.

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

/// Series that published dashboards draw and that would have a meaning, but are not there.
pub(crate) const UNMEASURED_SERIES: &[Absent] = &[
    (
        &["kv_collection_data_size_bytes", "kv_collection_mem_used_bytes"],
        "Bytes are not counted by collection. `kv_collection_item_count` has its documents, `kv_mem_used_bytes` and \
         `couch_docs_data_size` have the bytes of the bucket.",
    ),
    (
        &["kv_ep_storage_age_seconds"],
        "A mutation in the queue has no time of its own, so its age is not measured. `kv_ep_diskqueue_items` has their number.",
    ),
    (
        &["kv_ops_failed"],
        "Writes that lose against a newer version are not counted. `kv_ops{op=\"set_meta\"}` has all writes that bring their metadata.",
    ),
    (&["kv_num_high_pri_requests"], "Requests that wait until the disk has something are not counted."),
    (&["cm_http_requests_total"], "Requests of REST are not counted."),
];

/// Series that published dashboards draw and that have no meaning here.
pub(crate) const ABSENT_SERIES: &[Absent] = &[
    (
        &["kv_daemon_connections"],
        "Couchbase counts the sockets on which it listens as connections; `kv_curr_connections` here has none of them.",
    ),
    (&["kv_system_connections"], "There are no ports for the database's own services."),
];
