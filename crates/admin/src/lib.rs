//! The REST API of ports 8091 and 18091, as Couchbase clients and `couchbase-cli` expect it on one node, and the
//! placeholder on 8092.
//!
//! A request passes `serve` (connection, limits) → [`Api`] (`browser`, credentials, body) → `routes::table` (who may) →
//! `routes` (one module per area, each a `match` over method and path segments) → the metadata of [`cluster`] or [`NodeControl`], which the server
//! implements. Everything shown is read from there; every change is a [`cluster::Command`] handed to it.
//!
//! Rules: what is not built answers 4xx or 501 and says why, never an empty success, because clients read fields
//! from every 200; the literal texts clients match are those of `cluster`'s errors and of `reply`. Documents never
//! pass through here.

mod api;
mod authenticate;
mod browser;
mod call;
mod cluster_status;
mod control;
mod events;
mod figures;
mod form;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod matrix;
mod passes;
mod permissions;
mod places;
mod reply;
mod rights;
mod routes;
mod serve;
mod stream;
mod views;

pub use api::Api;
pub use cluster_status::{Awaited, BucketAt, ClusterStatus, CutOff, NodeShare, RebalanceView};
pub use control::{
    AuditEvent, AuditKind, BoxFuture, BucketStatsView, Callee, JoinOffer, NodeCall, NodeControl, NodeMemory,
    PhaseView, SystemStats,
};
pub use routes::{PRODUCT_VERSION, SETTEE_VERSION, administrator_objection, quota_objection};
pub use serve::{Limits, TlsNow, serve};
pub use views::Views;
