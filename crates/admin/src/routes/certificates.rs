//! The certificates that TLS ports show to clients, in the places where tools look for them. Each node has its own; what the
//! others have is known from their figures, so those that have not answered for long are missing.

use axum::http::StatusCode;
use cluster::NodeInfo;
use serde_json::{Value, json};

use super::{nodes, x509};
use http::reply::{self, Outcome, Refusal, json_ok};

use crate::call::Call;

pub(super) fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match path {
        // Public, as in Couchbase: whoever wants to connect by TLS needs it first.
        ["certificate"] => Ok(reply::text(StatusCode::OK, pem(call)?)),
        ["trustedCAs"] => Ok(json_ok(&trusted(call).into())),
        ["certificates"] => {
            let known = call.meta.nodes.iter().filter_map(|node| Some(view(call, node, pem_of(call, node)?)));
            Ok(json_ok(&known.collect::<Vec<_>>().into()))
        }
        ["certificate", "node", which] => {
            let node = nodes::find(call, which);
            match node.and_then(|node| Some((node, pem_of(call, node)?))) {
                Some((node, pem)) => Ok(json_ok(&view(call, node, pem))),
                None => Ok(reply::not_found()),
            }
        }
        _ => Ok(reply::not_found()),
    }
}

/// What clients have to trust to be able to speak TLS to every node: each certificate once, with the nodes that show it.
fn trusted(call: &Call) -> Vec<Value> {
    let mut shown: Vec<(&str, Vec<String>)> = Vec::new();
    for node in &call.meta.nodes {
        let Some(pem) = pem_of(call, node) else { continue };
        let host = nodes::hostname(call, node);
        match shown.iter_mut().find(|(known, _)| *known == pem) {
            Some((_, hosts)) => hosts.push(host),
            None => shown.push((pem, vec![host])),
        }
    }
    let views = shown.into_iter().enumerate().map(|(id, (pem, hosts))| {
        let mut view = json!({ "id": id, "type": "generated", "nodes": hosts, "warnings": [] });
        describe(&mut view, pem);
        view
    });
    views.collect()
}

fn view(call: &Call, node: &NodeInfo, pem: &str) -> Value {
    let mut view = json!({ "node": nodes::hostname(call, node), "type": "generated", "warnings": [] });
    describe(&mut view, pem);
    view
}

/// `couchbase-cli` needs subject and end of validity; a certificate that cannot be read shows what it is by its text.
fn describe(view: &mut Value, pem: &str) {
    let details = x509::details(pem);
    view["subject"] = details.as_ref().map_or("unknown", |found| &found.subject).into();
    view["expires"] = details.as_ref().map_or("unknown", |found| &found.expires).into();
    view["pem"] = pem.into();
}

/// The certificate that a node shows to clients, as far as that is known.
fn pem_of<'a>(call: &'a Call, node: &NodeInfo) -> Option<&'a str> {
    call.figures.node(node.id)?.certificate.as_deref()
}

/// That of this node.
fn pem(call: &Call) -> Result<String, Refusal> {
    let none = || -> Refusal {
        reply::with_status(StatusCode::NOT_FOUND, &json!("The node serves no TLS port.")).into()
    };
    call.api.control.certificate_pem().ok_or_else(none)
}
