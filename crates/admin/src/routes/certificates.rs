//! The certificates that TLS ports show to clients, and the authorities that the cluster trusts, as `couchbase-cli
//! ssl-manage` shows and changes them. Each node has a certificate of its own. What the others have is known from their
//! figures, so those that have not answered for long are missing.

use axum::http::{Method, StatusCode};
use cluster::{NodeInfo, TRUSTED_CA_SETTINGS, TrustedCa, auth::Domain, auth::Privilege, x509};
use serde_json::{Map, Value, json};

use super::{nodes, unsupported};
use crate::{
    node::{
        certificates::{InboxFile, Regenerate},
        time::now_ms,
    },
    request::Call,
};
use http::{
    AuditKind,
    reply::{self, Outcome, Refusal, json_ok},
};

/// Authorities that a cluster trusts at most.
const TRUSTED_MAX: usize = 1000;

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match (path, &call.method) {
        // Public, as in Couchbase: a client that wants to connect by TLS needs it first.
        (["certificate"], &Method::GET) => shown_by_this_node(call),
        (["trustedCAs"], &Method::GET) => Ok(json_ok(&trusted(call).into())),
        (["trustedCAs", id], &Method::DELETE) => forget(call, id).await,
        (["certificates"], &Method::GET) => {
            let known =
                call.meta.nodes.iter().filter_map(|node| Some(view(call, node, &pem_of(call, node)?)));
            Ok(json_ok(&known.collect::<Vec<_>>().into()))
        }
        (["certificate", "node", which], &Method::GET) => match nodes::find(call, which) {
            None => {
                let text = "Node is not found, make sure the ip address/hostname matches the ip address/hostname used by Couchbase";
                Ok(reply::text(StatusCode::NOT_FOUND, text))
            }
            Some(node) => match pem_of(call, node) {
                Some(pem) => Ok(json_ok(&view(call, node, &pem))),
                None => Ok(reply::text(StatusCode::NOT_FOUND, "Certificate is not set up on this node")),
            },
        },
        _ => Ok(reply::not_found()),
    }
}

/// What an operator has this node do with its certificates: `/node/controller/…` and `/controller/…`.
pub(super) async fn act(call: &Call, what: &str) -> Outcome {
    match what {
        "loadTrustedCAs" => load(call).await,
        "reloadCertificate" => reload(call).await,
        "regenerateCertificate" => regenerate(call).await,
        _ => unsupported::controller(call, &["controller", what]),
    }
}

fn shown_by_this_node(call: &Call) -> Outcome {
    if !call.meta.trusted_cas().is_empty() {
        let text =
            "this API is disabled, please use GET /pools/default/trustedCAs, see documentation for details";
        return Ok(reply::text(StatusCode::BAD_REQUEST, text));
    }
    Ok(reply::text(StatusCode::OK, own_pem(call)?))
}

fn own_pem(call: &Call) -> Result<String, Refusal> {
    let none = || -> Refusal {
        reply::with_status(StatusCode::NOT_FOUND, &json!("The node serves no TLS port.")).into()
    };
    call.api.control.certificates().chain_pem().ok_or_else(none)
}

/// What clients have to trust to be able to speak TLS to every node, and what clients may be known by: each certificate once. Only
/// those who may see how the cluster is secured see more than the certificates themselves.
fn trusted(call: &Call) -> Vec<Value> {
    let sees_all = call.holds(Privilege::SecurityRead, None);
    let is_known = call.user.domain != Domain::Anonymous;
    let mut views: Vec<(Value, Vec<String>)> = Vec::new();
    for node in &call.meta.nodes {
        let Some(pem) = pem_of(call, node).filter(|pem| is_made(pem)) else { continue };
        let host = nodes::hostname(call, node);
        match views.iter_mut().find(|(view, _)| view["pem"] == pem.as_str()) {
            Some((_, hosts)) => hosts.push(host),
            None => {
                let mut view = json!({ "id": node.id.get(), "type": "generated", "warnings": [] });
                describe(&mut view, &pem);
                views.push((view, vec![host]));
            }
        }
    }
    views.extend(call.meta.trusted_cas().iter().map(|ca| (ca_view(ca), vouched_for(call, ca))));
    let shown = |(view, hosts): (Value, Vec<String>)| {
        let Value::Object(mut members) = view else { return json!({}) };
        members.insert("nodes".into(), hosts.into());
        members.retain(|name, _| match name.as_str() {
            "id" | "pem" | "subject" | "notBefore" | "notAfter" => true,
            "type" => is_known,
            _ => sees_all,
        });
        Value::Object(members)
    };
    views.into_iter().map(shown).collect()
}

/// The nodes whose certificates were signed by this authority, by its name.
fn vouched_for(call: &Call, ca: &TrustedCa) -> Vec<String> {
    let Some(authority) = x509::Certificate::of_pem(&ca.pem) else { return Vec::new() };
    let has_signed = |node: &&NodeInfo| {
        let pem = pem_of(call, node).unwrap_or_default();
        let last = x509::pem_blocks(&pem).last().and_then(x509::Certificate::of_pem);
        last.is_some_and(|last| last.issuer == authority.subject)
    };
    call.meta.nodes.iter().filter(has_signed).map(|node| nodes::hostname(call, node)).collect()
}

fn ca_view(ca: &TrustedCa) -> Value {
    let mut view = json!({
        "id": ca.id, "type": "uploaded", "warnings": [], "loadTimestamp": utc(ca.loaded_at),
        "loadHost": ca.load_host, "loadFile": ca.load_file,
    });
    describe(&mut view, &ca.pem);
    view
}

fn view(call: &Call, node: &NodeInfo, pem: &str) -> Value {
    let made = if is_made(pem) { "generated" } else { "uploaded" };
    let mut view = json!({ "node": nodes::hostname(call, node), "type": made, "warnings": [] });
    describe(&mut view, pem);
    view
}

/// Whether a node has made it for itself: nobody else vouches for it.
fn is_made(pem: &str) -> bool {
    x509::Certificate::of_pem(pem).is_none_or(|found| found.is_self_signed())
}

/// `couchbase-cli` needs subject and end of validity; a certificate that cannot be read shows what it is by its text.
fn describe(view: &mut Value, pem: &str) {
    let found = x509::Certificate::of_pem(pem);
    let text = |part: fn(&x509::Certificate) -> &str| found.as_ref().map_or("unknown", part).to_owned();
    view["subject"] = text(|found| &found.subject).into();
    view["expires"] = text(|found| &found.not_after).into();
    view["notBefore"] = text(|found| &found.not_before).into();
    view["notAfter"] = text(|found| &found.not_after).into();
    view["pem"] = pem.into();
}

/// The certificate that a node shows to clients, as far as that is known.
fn pem_of(call: &Call, node: &NodeInfo) -> Option<String> {
    if node.uuid == call.api.control.this_node() {
        return call.api.control.certificates().chain_pem();
    }
    call.figures.node(node.id)?.certificate.clone()
}

fn refused(text: impl Into<String>) -> Refusal {
    reply::with_status(StatusCode::BAD_REQUEST, &json!(text.into())).into()
}

/// Runs what may wait for the disk beside the requests of others.
async fn aside<T: Send + 'static>(
    call: &Call,
    work: impl FnOnce(&dyn crate::node::certificates::Certificates) -> Result<T, String> + Send + 'static,
) -> Result<T, Refusal> {
    let certificates = call.api.control.certificates();
    match tokio::task::spawn_blocking(move || work(certificates.as_ref())).await {
        Ok(done) => done.map_err(refused),
        Err(error) => Err(refused(error.to_string())),
    }
}

/// `POST /node/controller/loadTrustedCAs`: what is in this node's inbox is trusted by the whole cluster.
async fn load(call: &Call) -> Outcome {
    let found = aside(call, |certificates| certificates.inbox_authorities()).await?;
    let this = call.api.control.this_node();
    let host = call.meta.node(&this).map_or_else(String::new, |node| nodes::hostname(call, node));
    let pems = call
        .change_setting(TRUSTED_CA_SETTINGS, |now| {
            let known = now.meta.trusted_cas();
            let is_new = |file: &&InboxFile| {
                let contents = x509::pem_contents(&file.pem).next();
                known.iter().all(|ca| x509::pem_contents(&ca.pem).next() != contents)
            };
            let new: Vec<TrustedCa> = found.iter().filter(is_new).map(|file| of_file(file, &host)).collect();
            if known.len() + new.len() > TRUSTED_MAX {
                return Err(refused(format!("A cluster trusts {TRUSTED_MAX} certificates at most.")));
            }
            let pems: Vec<String> = new.iter().map(|ca| ca.pem.clone()).collect();
            Ok(((!new.is_empty()).then(|| now.meta.with_trusted_cas(known, new)), pems))
        })
        .await?;
    let now = call.api.control.metadata().trusted_cas();
    call.audit(AuditKind::SettingsChanged, TRUSTED_CA_SETTINGS, format!("{} loaded", pems.len()));
    let loaded: Vec<Value> = now.iter().filter(|ca| pems.contains(&ca.pem)).map(ca_view).collect();
    Ok(json_ok(&loaded.into()))
}

fn of_file(file: &InboxFile, host: &str) -> TrustedCa {
    TrustedCa {
        id: 0,
        pem: file.pem.clone(),
        load_host: host.to_owned(),
        load_file: file.path.clone(),
        loaded_at: now_ms() / 1000,
    }
}

/// `DELETE /pools/default/trustedCAs/ID`.
async fn forget(call: &Call, id: &str) -> Outcome {
    call.change_setting(TRUSTED_CA_SETTINGS, |now| {
        let cas = now.meta.trusted_cas();
        let Some(ca) = id.parse().ok().and_then(|id: u64| cas.iter().find(|ca| ca.id == id)) else {
            return Err(reply::text(StatusCode::NOT_FOUND, "Not found").into());
        };
        let users = vouched_for(now, ca);
        if !users.is_empty() {
            let text = format!("The CA certificate is in use by the following nodes: {}", users.join(", "));
            let body = json!({ "errors": { "_": text } });
            return Err(reply::with_status(StatusCode::BAD_REQUEST, &body).into());
        }
        let kept = cas.iter().filter(|other| other.id != ca.id).cloned().collect();
        Ok((Some(now.meta.with_trusted_cas(kept, Vec::new())), ()))
    })
    .await?;
    call.audit(AuditKind::SettingsChanged, TRUSTED_CA_SETTINGS, format!("{id} deleted"));
    Ok(reply::with_body(StatusCode::NO_CONTENT, "application/json", axum::body::Body::empty()))
}

/// `POST /node/controller/reloadCertificate`: this node shows what is in its inbox.
async fn reload(call: &Call) -> Outcome {
    if !call.body.is_empty() {
        let sent: Map<String, Value> = serde_json::from_slice(&call.body).map_err(|_| {
            reply::with_status(StatusCode::BAD_REQUEST, &json!({ "errors": { "_": "Invalid Json" } }))
        })?;
        if let Some(name) =
            sent.keys().find(|name| !matches!(name.as_str(), "privateKeyPassphrase" | "forceReload"))
        {
            return Err(reply::invalid_field(name, "Unsupported key"));
        }
        let settings = sent.get("privateKeyPassphrase").and_then(Value::as_object);
        if settings.is_some_and(|settings| !settings.is_empty()) {
            return Err(reply::invalid_field(
                "privateKeyPassphrase",
                "Encrypted private keys are not supported.",
            ));
        }
    }
    let meta = call.api.control.metadata();
    aside(call, move |certificates| certificates.take_from_inbox(&meta)).await?;
    call.audit(AuditKind::NodeChanged, "self", "certificate reloaded");
    Ok(json_ok(&json!({ "warnings": [] })))
}

/// `POST /controller/regenerateCertificate`: nodes make their certificates anew, and give up those that operators brought.
async fn regenerate(call: &Call) -> Outcome {
    let mut asked = [true, true, false];
    for (name, value) in call.query.fields() {
        let names = ["forceResetCACertificate", "dropUploadedCertificates", "allowUnreachableNodes"];
        let place = names.iter().position(|known| known == name).and_then(|at| asked.get_mut(at));
        let place = place.ok_or_else(|| reply::invalid_field(name, "Unsupported key"))?;
        *place = match value.as_str() {
            "true" => true,
            "false" => false,
            _ => {
                return Err(reply::invalid_field(
                    name,
                    "The value must be one of the following: [true,false]",
                ));
            }
        };
    }
    let [made, brought, goes_on] = asked;
    let absent =
        call.api.control.certificates().regenerate(Regenerate { made, brought }).await.map_err(refused)?;
    call.audit(AuditKind::NodeChanged, "all", "certificates regenerated");
    if !absent.is_empty() && !goes_on {
        let text = format!(
            "The certificates were made anew, but not on: {}. Repeat the request once they can be reached.",
            absent.join(", ")
        );
        let body = json!({ "errors": { "_": text } });
        return Err(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &body).into());
    }
    Ok(reply::text(StatusCode::OK, own_pem(call)?))
}

/// RFC 3339 of Unix seconds.
fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's way from days to a date of the Gregorian calendar, whose eras have 400 years.
    let shifted = days + 719_468;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + shifted / 146_097 * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_764_168_644, "2025-11-26T14:50:44.000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }
}
