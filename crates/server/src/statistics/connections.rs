//! DCP connections of a bucket, and what the control plane alone knows of it. STAT has them in its group `dcp`.

use admin::statistics::{Metric, Unit};

use super::{DcpFacts, Row, gauge};

type F = DcpFacts;

pub(crate) static DCP: &[Row<F>] = &[
    gauge(&[], Unit::Count, "Client connections to the node.", |f: &F| f.connections.into())
        .metrics(&[Metric::new("kv_curr_bucket_connections")]),
    gauge(&[], Unit::Count, "Connections that stream changes.", |f: &F| f.dcp.all.producers.into())
        .metrics(&[Metric::new("kv_dcp_producer_count")]),
    gauge(&[], Unit::Count, "Changes sent on the connections that stream them.", |f: &F| {
        f.dcp.all.items_sent.into()
    })
    .metrics(&[Metric::new("kv_dcp_items_sent")]),
    gauge(&[], Unit::Count, "Changes that those connections have yet to send.", |f: &F| {
        f.dcp.all.items_remaining.into()
    })
    .metrics(&[Metric::new("kv_dcp_items_remaining")]),
    gauge(&[], Unit::Bytes, "Bytes sent on those connections.", |f: &F| f.dcp.all.bytes_sent.into())
        .metrics(&[Metric::new("kv_dcp_total_data_size_bytes")]),
    gauge(&["ep_dcp_replica_count"], Unit::Count, "Connections between this node and others.", |f: &F| {
        (f.dcp.replication.producers + f.dcp.replication.consumers).into()
    })
    .not_in_stat()
    .metrics(&[Metric::new("kv_ep_dcp_replica_count")]),
    gauge(
        &["ep_dcp_replica_items_sent"],
        Unit::Count,
        "Changes sent on open connections to nodes that follow this one.",
        |f: &F| f.dcp.replication.items_sent.into(),
    )
    .not_in_stat()
    .metrics(&[Metric::new("kv_ep_dcp_replica_items_sent")]),
    gauge(
        &["ep_dcp_replica_items_remaining"],
        Unit::Count,
        "Changes that nodes that follow this one have yet to get.",
        |f: &F| f.dcp.replication.items_remaining.into(),
    )
    .not_in_stat()
    .metrics(&[Metric::new("kv_ep_dcp_replica_items_remaining")]),
    gauge(
        &["ep_dcp_replica_total_bytes"],
        Unit::Bytes,
        "Bytes sent on open connections to nodes that follow this one.",
        |f: &F| f.dcp.replication.bytes_sent.into(),
    )
    .not_in_stat()
    .metrics(&[Metric::new("kv_ep_dcp_replica_total_bytes")]),
    gauge(
        &["ep_dcp_replica_total_uncompressed_data_size"],
        Unit::Bytes,
        "What those bytes would be without compression.",
        |f: &F| f.dcp.replication.inflated_bytes_sent.into(),
    )
    .not_in_stat()
    .metrics(&[Metric::new("kv_ep_dcp_replica_total_uncompressed_data_size")]),
    gauge(
        &["settee_replicas_cut_off"],
        Unit::Count,
        "Replicas here that should follow another node's copy now and do not.",
        |f: &F| f.cut_off.into(),
    )
    .not_in_stat()
    .metrics(&[Metric::new("settee_replicas_cut_off")]),
    gauge(&["ops"], Unit::PerSecond, "Operations in the last second.", |f: &F| f.ops_per_sec.into())
        .not_in_stat()
        .metrics(&[Metric::new("settee_bucket_ops_per_second")]),
];
