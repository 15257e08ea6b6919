//! The REST API of ports 8091 and 18091, as Couchbase clients and `couchbase-cli` expect it on one node.
//!
//! The way of a request:
//! 1. [`http::serve()`]: connection and limits.
//! 2. [`Api`], which has [`http::Front`] find out the user.
//! 3. `routes::table`: whether the user may.
//! 4. `routes`: one module per area, each a `match` over method and path segments.
//! 5. The metadata of [`cluster`], or [`NodeControl`], which the server implements.
//!
//! Everything shown is read from there; every change is a [`cluster::Command`] handed to it.
//!
//! Rules: what is not built answers 4xx or 501 and says why, never an empty success, because clients read fields
//! from every 200; the literal texts clients match are those of `cluster`'s errors and of [`http::reply`]. Documents pass
//! through here one at a time, for the people who look at them in the console.

mod api;
mod call;
mod certificates;
mod cluster_status;
mod control;
pub mod documents;
mod events;
mod figures;
mod forecasts;
pub mod latency;
#[cfg(test)]
mod matrix;
mod merged;
mod objectives;
mod rights;
mod routes;
mod stream;

pub use api::Api;
pub use certificates::{Certificates, InboxFile, Regenerate};
pub use cluster_status::{Awaited, BucketAt, ClusterStatus, CutOff, NodeShare, RebalanceView};
pub use control::{
    AnswerParts, BucketStatsView, Callee, Indexing, JoinOffer, NodeCall, NodeControl, Obstacle,
};
pub use events::differing;
pub use forecasts::{Foretold, Limit, Outlook, PastForecasts};
pub use objectives::{Counted, Source};
pub use routes::{
    FiringAlert, PRODUCT_VERSION, ProbeSettings, Probed, ProbedBuckets, ProbedOperation, SETTEE_VERSION,
    Webhook, administrator_objection, quota_objection, rfc3339, silences,
};
