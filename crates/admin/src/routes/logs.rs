//! `/logs`: what has happened to the cluster, in the shape of ns_server's log of user-visible events.

use serde_json::{Value, json};

use super::nodes;
use crate::{node::time::rfc3339, request::Call};
use http::reply::{Outcome, json_ok};

pub(super) fn show(call: &Call) -> Outcome {
    let node = call.meta.node(&call.api.control.this_node()).map(|node| nodes::otp_node(call, node));
    let entries = call.api.events.all().into_iter().map(|event| {
        json!({
            "node": node, "type": event.severity.name(), "code": 0, "module": event.module,
            "tstamp": event.at_ms, "shortText": "message", "text": event.text,
            "serverTime": rfc3339(event.at_ms),
        })
    });
    Ok(json_ok(&json!({ "list": entries.collect::<Vec<Value>>() })))
}
