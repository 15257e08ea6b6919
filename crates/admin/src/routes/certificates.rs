//! The certificate the TLS ports show, in the three places tools look for it.

use axum::http::StatusCode;
use cluster::{NodeInfo, auth::Privilege};
use serde_json::{Value, json};

use super::{nodes, x509};
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
            let mut view = json!({ "id": 0, "type": "generated", "nodes": hosts, "warnings": [] });
            describe(&mut view, pem);
            Ok(json_ok(&json!([view])))
        }
        ["certificates"] => {
            call.require(Privilege::SecurityRead, None)?;
            let pem = pem(call)?;
            let all: Vec<Value> = call.meta.nodes.iter().map(|node| view(call, node, &pem)).collect();
            Ok(json_ok(&all.into()))
        }
        ["certificate", "node", which] => {
            call.require(Privilege::SecurityRead, None)?;
            match nodes::find(call, which) {
                Some(node) => Ok(json_ok(&view(call, node, &pem(call)?))),
                None => Ok(reply::not_found()),
            }
        }
        _ => Ok(reply::not_found()),
    }
}

fn view(call: &Call, node: &NodeInfo, pem: &str) -> Value {
    let mut view = json!({ "node": nodes::hostname(call, node), "type": "generated", "warnings": [] });
    describe(&mut view, pem.to_owned());
    view
}

/// `couchbase-cli` needs subject and end of validity; a certificate that cannot be read shows what it is by its text.
fn describe(view: &mut Value, pem: String) {
    let details = x509::details(&pem);
    view["subject"] = details.as_ref().map_or("unknown", |found| &found.subject).into();
    view["expires"] = details.as_ref().map_or("unknown", |found| &found.expires).into();
    view["pem"] = pem.into();
}

fn pem(call: &Call) -> Result<String, Refusal> {
    let none = || -> Refusal {
        reply::with_status(StatusCode::NOT_FOUND, &json!("The node serves no TLS port.")).into()
    };
    call.api.control.certificate_pem().ok_or_else(none)
}
