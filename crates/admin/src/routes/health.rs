//! What orchestrators and load balancers ask: whether the process answers, and whether clients should be sent to this node.
//!
//! A probe has no login, and comes under any name. So its answer says nothing that a stranger may not know, looks at nothing but
//! this node, and waits for nothing.

use axum::http::{Method, StatusCode};
use cluster::{Membership, Metadata};
use serde_json::json;

use http::reply::{self, Reply};

use crate::node::control::{NodeControl, Obstacle};

/// The answer to a probe; `None` for any other request.
pub(crate) fn answer(
    control: &dyn NodeControl,
    meta: &Metadata,
    method: &Method,
    path: &[String],
) -> Option<Reply> {
    let [area, probe] = path else { return None };
    if area != "health" || *method != Method::GET {
        return None;
    }
    match probe.as_str() {
        "live" => Some(reply::json_ok(&json!({ "live": true }))),
        "ready" => Some(ready(control, meta)),
        _ => None,
    }
}

/// Ready: the node knows what its cluster agreed on, serves every bucket, and can write. A node that nobody has set up yet is ready to be.
fn ready(control: &dyn NodeControl, meta: &Metadata) -> Reply {
    let reasons = reasons(control, meta);
    let body = json!({ "ready": reasons.is_empty(), "initialized": meta.initialized, "reasons": reasons });
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply::with_status(status, &body)
}

/// Why clients should not come yet.
fn reasons(control: &dyn NodeControl, meta: &Metadata) -> Vec<String> {
    if !control.knows_cluster() {
        return vec!["The node has not caught up with its cluster.".into()];
    }
    let mut reasons = Vec::new();
    let this = meta.node(&control.this_node());
    if meta.initialized && this.is_none_or(|node| node.membership != Membership::Active) {
        reasons.push("The node is no active member of its cluster.".into());
    }
    let closed = meta.buckets.keys().filter(|name| !control.bucket_is_ready(name)).count();
    if closed > 0 {
        reasons.push(format!("{closed} of {} buckets are not open.", meta.buckets.len()));
    }
    reasons.extend(control.obstacles().into_iter().map(|obstacle| words(obstacle).to_owned()));
    reasons
}

fn words(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::NoLease => {
            "The node has lost touch with its cluster, and serves nothing until a majority hears it again."
        }
        Obstacle::MetadataLog => "The node cannot write the cluster's metadata.",
        Obstacle::Disk => "The node cannot write documents to its disk.",
    }
}
