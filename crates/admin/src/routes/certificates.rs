//! The certificate the TLS ports show, in the three places tools look for it.

use axum::http::StatusCode;
use cluster::auth::Privilege;
use serde_json::json;

use super::nodes;
use crate::{
    call::Call,
    reply::{self, Outcome, Refusal, json_ok},
};

pub(super) fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match path {
        // Public, as in Couchbase: whoever wants to connect by TLS needs it first.
        ["certificate"] => Ok(reply::text(StatusCode::OK, pem(call)?)),
        ["trustedCAs"] => {
            let pem = pem(call)?;
            let hosts: Vec<String> = call.meta.nodes.iter().map(|node| nodes::hostname(call, node)).collect();
            Ok(json_ok(&json!([{ "id": 0, "type": "generated", "pem": pem, "nodes": hosts }])))
        }
        ["certificates"] => {
            call.require(Privilege::SecurityRead, None)?;
            let pem = pem(call)?;
            let hosts = call.meta.nodes.iter().map(|node| nodes::hostname(call, node));
            let all: Vec<_> = hosts
                .map(|host| json!({ "node": host, "type": "generated", "pem": pem, "warnings": [] }))
                .collect();
            Ok(json_ok(&all.into()))
        }
        ["certificate", "node", which] => {
            call.require(Privilege::SecurityRead, None)?;
            match nodes::find(call, which) {
                Some(_) => Ok(json_ok(&json!({ "type": "generated", "pem": pem(call)?, "warnings": [] }))),
                None => Ok(reply::not_found()),
            }
        }
        _ => Ok(reply::not_found()),
    }
}

fn pem(call: &Call) -> Result<String, Refusal> {
    let none = || -> Refusal {
        reply::with_status(StatusCode::NOT_FOUND, &json!("The node serves no TLS port.")).into()
    };
    call.api.control.certificate_pem().ok_or_else(none)
}
