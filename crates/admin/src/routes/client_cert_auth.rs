//! `/settings/clientCertAuth`: whether clients log in by certificates, and which name in them is the user's. The texts are Couchbase's.

use axum::http::{Method, StatusCode};
use cluster::{CLIENT_CERT_SETTINGS, CertificateUse, Command, NamePath};
use serde_json::{Map, Value, json};

use http::{
    AuditKind,
    reply::{self, Outcome, json_ok},
};

use crate::request::Call;

const PREFIXES_MAX: usize = 10;
const TEXT_MAX: usize = 1000;

pub(super) async fn dispatch(call: &Call) -> Outcome {
    match call.method {
        Method::GET => Ok(json_ok(&current(call))),
        Method::POST => change(call).await,
        _ => Ok(reply::method_not_allowed()),
    }
}

fn current(call: &Call) -> Value {
    let stored = call.meta.settings.get(CLIENT_CERT_SETTINGS).cloned();
    stored.unwrap_or_else(|| json!({ "state": "disable", "prefixes": [] }))
}

async fn change(call: &Call) -> Outcome {
    let refused = |body: Value| reply::with_status(StatusCode::BAD_REQUEST, &body);
    let sent: Map<String, Value> = match serde_json::from_slice(&call.body) {
        Ok(sent) => sent,
        Err(_) => return Ok(refused(json!("Invalid JSON"))),
    };
    let value = match checked(&sent) {
        Ok(value) => value,
        Err(body) => return Ok(refused(body)),
    };
    if value["state"] == "mandatory" && call.meta.trusted_cas().is_empty() {
        let text =
            "Load a certificate authority first: no client could show a certificate that the cluster trusts.";
        return Ok(refused(json!([text])));
    }
    if value == current(call) {
        return Ok(reply::with_body(StatusCode::OK, "application/json", axum::body::Body::empty()));
    }
    call.change(
        Command::PutSetting { path: CLIENT_CERT_SETTINGS.into(), value },
        AuditKind::SettingsChanged,
        CLIENT_CERT_SETTINGS,
        "",
    )
    .await?;
    Ok(reply::with_body(StatusCode::ACCEPTED, "application/json", axum::body::Body::empty()))
}

/// What is stored of a request; or the body that refuses it.
fn checked(sent: &Map<String, Value>) -> Result<Value, Value> {
    let (Some(state), Some(prefixes)) = (sent.get("state"), sent.get("prefixes")) else {
        return Err(json!("Unsupported format: Must contain 'state' and 'prefixes' fields"));
    };
    if sent.len() > 2 {
        return Err(json!("Unsupported fields: Must contain 'state' and 'prefixes' fields only"));
    }
    let (Some(state), Some(prefixes)) = (state.as_str(), prefixes.as_array()) else {
        return Err(json!("Invalid JSON"));
    };
    if prefixes.len() > PREFIXES_MAX {
        return Err(json!(format!("Maximum number of prefixes supported is {PREFIXES_MAX}")));
    }
    let mut errors = Vec::new();
    match CertificateUse::from_name(state) {
        None => errors.push(format!("Invalid value '{state}' for key 'state'")),
        Some(CertificateUse::Disabled) => {}
        Some(_) if prefixes.is_empty() => {
            errors.push(format!("'prefixes' cannot be empty when the 'state' is '{state}'"));
        }
        Some(_) => {}
    }
    let mut seen = Vec::new();
    for entry in prefixes {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| text.len() <= TEXT_MAX);
        let (Some(path), Some(prefix), Some(_)) = (text("path"), text("prefix"), text("delimiter")) else {
            return Err(json!([
                "Invalid prefixes entry. Must contain 'path', 'prefix' & 'delimiter' fields."
            ]));
        };
        if entry.as_object().is_none_or(|members| members.len() != 3) {
            errors.push("Invalid prefixes entry. Must contain 'path', 'prefix' & 'delimiter' fields.".into());
        }
        if NamePath::from_name(path).is_none() {
            errors.push(format!("Invalid value '{path}' for key 'path'"));
        }
        if seen.contains(&(path, prefix)) {
            errors
                .push(format!("Multiple entries with same path & prefix ({path}, {prefix}) are not allowed"));
        }
        seen.push((path, prefix));
    }
    if errors.is_empty() { Ok(json!({ "state": state, "prefixes": prefixes })) } else { Err(json!(errors)) }
}
