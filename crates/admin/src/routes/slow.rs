//! `/settee/slow`: operations that took half a second or longer, on every node. Of Settee alone. A sender sees those of buckets whose
//! statistics it may see. Users and their addresses are for senders that may see logs, which name them as well.

use cluster::auth::Privilege;
use http::reply::{self, Outcome, json_ok};
use serde_json::{Value, json};

use super::{nodes, users::rfc3339};
use crate::{call::Call, figures};

/// Where a node tells the others.
const PATH: &str = "/_settee/slow";

/// `GET /settee/slow`: the last ones of each node, the newest first.
pub(super) async fn list(call: &Call) -> Outcome {
    let (told, missing) = figures::every(call, PATH, call.api.control.slow_operations()).await;
    let mut all: Vec<_> = told
        .into_iter()
        .flat_map(|(node, operations)| operations.into_iter().map(move |operation| (node, operation)))
        .filter(|(_, operation)| call.holds(Privilege::Stats, Some(operation.bucket.as_str())))
        .collect();
    all.sort_by_key(|(_, operation)| std::cmp::Reverse(operation.at_ms));
    let name = |node| call.meta.node_by_id(node).map(|node| nodes::hostname(call, node));
    let sees_users = call.holds(Privilege::SecurityRead, None);
    let of_user = |text: String| if sees_users { Value::from(text) } else { Value::Null };
    let shown = all.into_iter().map(|(node, one)| {
        let phases: Vec<Value> =
            one.phases.iter().map(|(phase, micros)| json!({ "phase": phase, "us": micros })).collect();
        json!({
            "at": rfc3339(one.at_ms), "node": name(node), "bucket": one.bucket, "operation": one.operation,
            "count": one.count, "tookUs": one.took_us, "phases": phases, "user": of_user(one.user),
            "client": of_user(one.client), "agent": of_user(one.agent),
        })
    });
    let missing: Vec<_> = missing.into_iter().filter_map(name).collect();
    Ok(json_ok(&json!({ "operations": shown.collect::<Vec<_>>(), "missingNodes": missing })))
}

/// `POST /_settee/slow`: those of this node.
pub(super) fn show(call: &Call) -> Outcome {
    match serde_json::to_value(call.api.control.slow_operations()) {
        Ok(operations) => Ok(json_ok(&operations)),
        Err(error) => Err(reply::bad_request(&error.to_string())),
    }
}
