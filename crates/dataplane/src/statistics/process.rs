//! The process.

use stats::{Across, Metric, NodeMemory, Unit};

use stats::{Row, counter, gauge, text};

use super::facts::NodeFacts;
use crate::request::reply::version_text;

type F = NodeFacts;

pub(crate) static PROCESS: &[Row<F>] = &[
    gauge(&["pid"], Unit::None, "Number of the process.", |_: &F| u64::from(std::process::id()).into())
        .rest(&[]),
    gauge(&["uptime"], Unit::Seconds, "Time since the process started.", |f: &F| f.uptime_secs.into())
        .metrics(&[Metric::new("kv_uptime_seconds"), Metric::new("settee_uptime_seconds")])
        .across(Across::Max),
    gauge(&["time"], Unit::Seconds, "The node's clock, since 1970.", |f: &F| f.unix_secs.into())
        .metrics(&[Metric::new("kv_time_seconds")])
        .rest(&[]),
    text(&["version"], "The version of Couchbase that clients are told.", |_: &F| version_text().into()),
    text(&["settee_version"], "The version of Settee.", |_: &F| env!("CARGO_PKG_VERSION").into()),
    gauge(&["pointer_size"], Unit::None, "Bits of an address.", |_: &F| u64::from(usize::BITS).into())
        .rest(&[]),
];

pub(crate) static CONNECTIONS: &[Row<F>] = &[
    gauge(&["curr_connections"], Unit::Count, "Client connections to the data ports.", |f: &F| {
        f.connections.into()
    })
    .metrics(&[Metric::new("kv_curr_connections")]),
    counter(&["total_connections"], Unit::Count, "Connections ever accepted.", |f: &F| {
        f.connections_total.into()
    })
    .metrics(&[Metric::new("kv_total_connections")]),
    gauge(&["max_connections"], Unit::Count, "Connections that may be open at once.", |f: &F| {
        f.connections_max.into()
    }),
    counter(&["auth_errors"], Unit::Count, "Failed logins on the data ports.", |f: &F| f.auth_errors.into())
        .metrics(&[Metric::new("kv_auth_errors")]),
    counter(&["bytes_read"], Unit::Bytes, "Bytes that clients have sent.", |f: &F| f.bytes_read.into())
        .metrics(&[Metric::new("kv_read_bytes")]),
    counter(&["bytes_written"], Unit::Bytes, "Bytes that clients were sent.", |f: &F| f.bytes_written.into())
        .metrics(&[Metric::new("kv_written_bytes")]),
];

pub(crate) static PROCESS_DISK: &[Row<F>] = &[
    gauge(&["settee_disk_free"], Unit::Bytes, "Free bytes of the file system with the data.", |f: &F| {
        f.disk_free.into()
    }),
    gauge(&["settee_disk_total"], Unit::Bytes, "Size of the file system with the data.", |f: &F| {
        f.disk_total.into()
    }),
    gauge(
        &["settee_disk_free_min"],
        Unit::Bytes,
        "Free bytes below which the node takes only deletions.",
        |f: &F| f.disk_free_min.into(),
    ),
    gauge(&["settee_disk_low"], Unit::None, "Whether the disk has less than that.", |f: &F| {
        f.disk_low.into()
    })
    .across(Across::Max),
];

pub(crate) static PROCESS_LEASE: &[Row<F>] = &[gauge(
    &["settee_lease_ms"],
    Unit::Milliseconds,
    "Time for which the node may serve its active copies. Present where nodes are failed over automatically.",
    |f: &F| f.lease_millis.map_or(stats::Value::Absent, Into::into),
)
.rest(&[])];

const MEMORY_HELP: &str = "Memory of the process, by its holder.";

macro_rules! pool {
    ($name:ident, $help:literal) => {
        gauge(&[concat!("settee_node_mem_", stringify!($name))], Unit::Bytes, $help, |f: &NodeMemory| {
            f.$name.into()
        })
        .metrics(&[Metric::one_of(
            "settee_node_memory_bytes",
            MEMORY_HELP,
            &[("pool", stringify!($name))],
        )])
    };
}

pub(crate) static NODE_POOLS: &[Row<NodeMemory>] = &[
    pool!(buckets, "Memory of all buckets: their `mem_used`."),
    pool!(arena_holes, "Holes in the buckets' arenas, which documents will fill."),
    pool!(loops, "Buffers that the connections of a worker share."),
    pool!(connections, "Connections: half-read requests, and answers that nobody has taken."),
    pool!(forwarding, "Requests on their way to other nodes, and answers until their turn comes."),
    pool!(consensus, "The log of the metadata, and messages about it."),
    pool!(services, "What services hold: indexes of views."),
    pool!(allocator, "Memory that the allocator was given back and keeps."),
    pool!(code, "Pages of mapped files: the program itself."),
    pool!(other, "The rest of what is resident."),
];
