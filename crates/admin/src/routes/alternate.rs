//! `/node/controller/setupAlternateAddresses/external`: how clients reach this node that see it through a router, a container's
//! mapped ports or the like. Configurations tell all clients; each finds out by the address it used which one is its own.

use std::{collections::BTreeMap, net::IpAddr};

use axum::http::{Method, StatusCode};
use cluster::{AlternateAddress, Command};

use super::{membership::own, unsupported};
use crate::request::Call;
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal},
};

const HOSTNAME_MAX: usize = 1000;
/// What a port can be given for on a node of the data service.
const OWN_PORTS: [&str; 7] = ["mgmt", "mgmtSSL", "kv", "kvSSL", "capi", "capiSSL", "projector"];
/// Ports of services that Couchbase has beside it. A node that nobody has set up yet takes them, and offers none of them.
const OTHER_PORTS: [&str; 22] = [
    "n1ql",
    "n1qlSSL",
    "fts",
    "ftsSSL",
    "ftsGRPC",
    "ftsGRPCSSL",
    "cbas",
    "cbasSSL",
    "eventingAdminPort",
    "eventingDebug",
    "eventingSSL",
    "indexAdmin",
    "indexScan",
    "indexHttp",
    "indexHttps",
    "indexStreamInit",
    "indexStreamCatchup",
    "indexStreamMaint",
    "backupAPI",
    "backupAPIHTTPS",
    "backupGRPC",
    "moxi",
];

pub(super) async fn dispatch(call: &Call) -> Outcome {
    let address = match call.method {
        Method::PUT => Some(parse(&call.form()?, call.meta.initialized)?),
        Method::DELETE => None,
        _ => return unsupported::path(call, &["node", "controller", "setupAlternateAddresses", "external"]),
    };
    let said = address.as_ref().map_or("none".to_owned(), |address| address.hostname.clone());
    call.change(
        Command::SetAlternateAddress { node: own(call)?.id, address },
        AuditKind::NodeChanged,
        "self",
        format!("alternate address {said}"),
    )
    .await?;
    Ok(reply::empty_ok())
}

/// What a form says; `is_set_up`: it is known which services the node has.
fn parse(form: &Form, is_set_up: bool) -> Result<AlternateAddress, Refusal> {
    let refused = |text: String| Refusal::from(reply::text(StatusCode::BAD_REQUEST, text));
    let hostname = form.get("hostname").ok_or_else(|| refused("hostname should be specified".into()))?.trim();
    if hostname.len() > HOSTNAME_MAX || !is_hostname(hostname) {
        return Err(refused(format!(
            "Invalid hostname specified. Hostname should be {HOSTNAME_MAX} characters or less and either a valid IPv4, IPv6, or FQDN"
        )));
    }
    let mut ports = BTreeMap::new();
    let mut unavailable = Vec::new();
    for (name, value) in form.fields().iter().filter(|(name, _)| name != "hostname") {
        let invalid = |text: &str| refused(format!("Invalid Port {name:?} : {text}"));
        let is_other = OTHER_PORTS.contains(&name.as_str());
        if !is_other && !OWN_PORTS.contains(&name.as_str()) {
            return Err(invalid("No such port."));
        }
        let number: i64 = value.trim().parse().map_err(|_| invalid("Port must be a number."))?;
        let port = u16::try_from(number)
            .ok()
            .filter(|port| *port > 1023)
            .ok_or_else(|| invalid("The port number must be greater than 1023 and less than 65536."))?;
        if is_other {
            unavailable.push(name.as_str());
        } else {
            ports.insert(name.clone(), port);
        }
    }
    if is_set_up && !unavailable.is_empty() {
        let names = unavailable.join(",");
        return Err(refused(format!(
            "Cannot set external ports [{names}] as services are unavailable on the node."
        )));
    }
    Ok(AlternateAddress { hostname: hostname.to_owned(), ports })
}

/// Whether a text is an address, or a name as DNS has them.
fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        !label.is_empty() && label.len() <= 63 && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    text.parse::<IpAddr>().is_ok() || text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}
