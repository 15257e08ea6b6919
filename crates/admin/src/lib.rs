//! The REST API of ports 8091 and 18091, as Couchbase clients and `couchbase-cli` expect it on one node.
//!
//! The way of a request:
//! 1. [`http::serve()`]: connection and limits.
//! 2. [`Api`], which has [`http::Front`] find out the user.
//! 3. `routes::table`: whether the user may.
//! 4. `routes`: one module per area, each a `match` over method and path segments.
//! 5. The metadata of [`cluster`], or [`NodeControl`], which the server implements.
//!
//! The crate's rooms, from the top down. An import runs downward or stays in its room, which a test in `crates/tidy` holds.
//!
//! | room | what is in it |
//! |---|---|
//! | `routes` | what answers, one module per area; the table of rights |
//! | `request` | a request, what it shares with others, the judgement of rights, figures of all nodes |
//! | `node` | what the node is asked for and tells: `NodeControl`, and the data of answers |
//!
//! Above them `dispatch` takes a request from its sender to its handler.
//!
//! Everything shown is read from there; every change is a [`cluster::Command`] handed to it.
//!
//! Rules: what is not built answers 4xx or 501 and says why, never an empty success, because clients read fields
//! from every 200. The literal texts clients match are those of `cluster`'s errors and of [`http::reply`]. Documents pass
//! through here one at a time, for the people who look at them in the console.

mod dispatch;
#[cfg(test)]
mod matrix;
mod node;
mod request;
mod routes;

pub use node::{
    alerts::{FiringAlert, name_in_alerts},
    audit::{TrailEvent, TrailPage, TrailPlace, TrailQuestion},
    certificates::{Certificates, InboxFile, Regenerate},
    cluster_status::{Awaited, BucketAt, ClusterStatus, CutOff, NodeShare, Notice, RebalanceView},
    control::{AnswerParts, BucketStatsView, Callee, Indexing, JoinOffer, NodeCall, NodeControl, Obstacle},
    counted::{Counted, Source, is_told_of, told_latency},
    documents,
    events::differing,
    forecasts::{Foretold, Limit, Outlook, PastForecasts},
    latency,
    mail::{Mail, MailLog, MailServer, MailSettings},
    probes::{ProbeSettings, Probed, ProbedBuckets, ProbedOperation},
    time::rfc3339,
    versions::{PRODUCT_VERSION, SETTEE_VERSION},
};
pub use request::Api;
pub use routes::{Webhook, administrator_objection, quota_objection, silences};
