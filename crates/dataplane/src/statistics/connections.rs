//! DCP connections of a bucket, by what they are for, and what the control plane alone knows of the bucket. STAT has connections in
//! its groups `dcp` and `dcpagg`.

use stats::{Metric, Unit};

use stats::{Row, counter, gauge};

use super::facts::DcpFacts;
use crate::state::dcp_totals::Kind;

type F = DcpFacts;

const CONNECTIONS_HELP: &str = "DCP connections, by what they are for.";
const PRODUCERS_HELP: &str = "DCP connections on which changes are sent, by what they are for.";
const SENT_HELP: &str = "Changes sent on open DCP connections, by what they are for.";
const REMAINING_HELP: &str = "Changes that open DCP connections have yet to send, by what they are for.";
const BYTES_HELP: &str = "Bytes sent on DCP connections, by what they are for.";
const BACKOFF_HELP: &str = "How often replicas here had no room for what DCP connections brought.";

/// The rows of one kind. The arguments: the name of the table, the kind, the beginning of names in REST, the label in `/metrics`,
/// and words for the kind.
macro_rules! connections {
    ($table:ident, $kind:ident, $prefix:literal, $label:literal, $words:literal) => {
        static $table: &[Row<F>] = &[
            gauge(
                &[concat!($prefix, "_count")],
                Unit::Count,
                concat!("Connections ", $words, "."),
                |f: &F| {
                    let sums = f.dcp.of(Kind::$kind);
                    (sums.producers + sums.consumers).into()
                },
            )
            .not_in_stat()
            .metrics(&[series(
                "kv_dcp_connection_count",
                CONNECTIONS_HELP,
                &[("connection_type", $label)],
            )]),
            gauge(
                &[concat!($prefix, "_producer_count")],
                Unit::Count,
                concat!("Connections ", $words, " on which changes are sent."),
                |f: &F| f.dcp.of(Kind::$kind).producers.into(),
            )
            .not_in_stat()
            .metrics(&[series("kv_dcp_producer_count", PRODUCERS_HELP, &[("connection_type", $label)])]),
            counter(
                &[concat!($prefix, "_items_sent")],
                Unit::Count,
                concat!("Changes sent on connections ", $words, "."),
                |f: &F| f.dcp.of(Kind::$kind).items_sent.into(),
            )
            .not_in_stat()
            .metrics(&[series("kv_dcp_items_sent", SENT_HELP, &[("connection_type", $label)])]),
            gauge(
                &[concat!($prefix, "_items_remaining")],
                Unit::Count,
                concat!("Changes that open connections ", $words, " have yet to send."),
                |f: &F| f.dcp.of(Kind::$kind).items_remaining.into(),
            )
            .not_in_stat()
            .metrics(&[series("kv_dcp_items_remaining", REMAINING_HELP, &[("connection_type", $label)])]),
            counter(
                &[concat!($prefix, "_total_bytes")],
                Unit::Bytes,
                concat!("Bytes sent on connections ", $words, "."),
                |f: &F| f.dcp.of(Kind::$kind).bytes_sent.into(),
            )
            .not_in_stat()
            .metrics(&[series(
                "kv_dcp_total_data_size_bytes",
                BYTES_HELP,
                &[("connection_type", $label)],
            )]),
            counter(
                &[concat!($prefix, "_backoff")],
                Unit::Count,
                concat!("How often this node had no room for what connections ", $words, " brought."),
                |f: &F| f.dcp.of(Kind::$kind).backoffs.into(),
            )
            .not_in_stat()
            .metrics(&[series("kv_dcp_backoff", BACKOFF_HELP, &[("connection_type", $label)])]),
        ];
    };
}

const fn series(
    family: &'static str,
    help: &'static str,
    labels: &'static [(&'static str, &'static str)],
) -> Metric {
    Metric::one_of(family, help, labels)
}

connections!(REPLICATION, Replication, "ep_dcp_replica", "replication", "between nodes");
connections!(XDCR, Xdcr, "ep_dcp_xdcr", "xdcr", "of replication between clusters");
connections!(INDEXES, Indexes, "ep_dcp_2i", "secidx", "of indexes");
connections!(SEARCH, Search, "ep_dcp_fts", "fts", "of search");
connections!(ANALYTICS, Analytics, "ep_dcp_cbas", "cbas", "of analytics");
connections!(EVENTING, Eventing, "ep_dcp_eventing", "eventing", "of eventing");
connections!(VIEWS, Views, "ep_dcp_views", "mapreduce_view", "of views");
connections!(OTHER, Other, "ep_dcp_other", "other", "of other clients");

pub(crate) static DCP_KINDS: [&[Row<F>]; 8] =
    [REPLICATION, XDCR, INDEXES, SEARCH, ANALYTICS, EVENTING, VIEWS, OTHER];

pub(crate) static DCP: &[Row<F>] = &[
    gauge(&[], Unit::Count, "Client connections to the node.", |f: &F| f.connections.into())
        .metrics(&[Metric::new("kv_curr_bucket_connections")]),
    counter(
        &["ep_dcp_total_bytes"],
        Unit::Bytes,
        "Bytes sent on all DCP connections, those that have ended among them.",
        |f: &F| f.dcp.all.bytes_sent.into(),
    )
    .not_in_stat(),
    gauge(&[], Unit::Count, "Connections between this node and others.", |f: &F| {
        (f.dcp.replication.producers + f.dcp.replication.consumers).into()
    })
    .metrics(&[Metric::new("kv_ep_dcp_replica_count")]),
    gauge(&[], Unit::Count, "Changes sent to nodes that follow this one.", |f: &F| {
        f.dcp.replication.items_sent.into()
    })
    .metrics(&[Metric::new("kv_ep_dcp_replica_items_sent")]),
    gauge(&[], Unit::Count, "Changes that nodes that follow this one have yet to get.", |f: &F| {
        f.dcp.replication.items_remaining.into()
    })
    .metrics(&[Metric::new("kv_ep_dcp_replica_items_remaining")]),
    gauge(&[], Unit::Bytes, "Bytes sent to nodes that follow this one.", |f: &F| {
        f.dcp.replication.bytes_sent.into()
    })
    .metrics(&[Metric::new("kv_ep_dcp_replica_total_bytes")]),
    counter(
        &["ep_dcp_replica_total_uncompressed_data_size"],
        Unit::Bytes,
        "What the bytes sent to nodes that follow this one would be without compression.",
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
    gauge(&[], Unit::PerSecond, "Operations in the last second.", |f: &F| f.ops_per_sec.into())
        .metrics(&[Metric::new("settee_bucket_ops_per_second")]),
];
