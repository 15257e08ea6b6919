//! The REST API of ports 8091 and 18091, as Couchbase clients and `couchbase-cli` expect it on one node.
//!
//! Everything shown is read from the metadata of [`cluster`] and from [`NodeControl`], which the server implements;
//! every change is a [`cluster::Command`] handed to it. Documents never pass through here.

mod control;

pub use control::{AuditEvent, AuditKind, BoxFuture, BucketStatsView, NodeControl, SystemStats};
