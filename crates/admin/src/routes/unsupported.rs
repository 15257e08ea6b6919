//! What is known and not built, said plainly, and what is not known at all.

use axum::http::Method;

use super::table;
use crate::request::Call;
use http::reply::{self, Outcome};

/// Operations below `/controller/` that need what Settee does not have yet. `couchbase-cli` shows these texts.
const CONTROLLERS: &[(&str, &str)] = &[
    ("createReplication", "Replication between clusters is not supported yet."),
    ("cancelXDCR", "Replication between clusters is not supported yet."),
    ("uploadClusterCA", "Put the certificate into the node's folder inbox/CA, and load it from there."),
    ("resetAdminPassword", "Resetting the administrator's password over REST is not supported."),
    ("lockAdmin", "Locking the administrator is not supported."),
    ("unlockAdmin", "Locking the administrator is not supported."),
];

pub(super) fn controller(call: &Call, path: &[&str]) -> Outcome {
    let name = path.get(1).copied().unwrap_or_default();
    let known = CONTROLLERS.iter().find(|(known, _)| *known == name);
    match known {
        Some((_, reason)) if call.method != Method::GET => Err(reply::not_supported(reason)),
        _ => self::path(call, path),
    }
}

/// Changes below `/pools/default` that need several clusters.
pub(super) fn pool(call: &Call, path: &[&str]) -> Outcome {
    let reason = match path.get(2).copied() {
        Some("remoteClusters" | "replications") => "Replication between clusters is not supported yet.",
        _ => return self::path(call, path),
    };
    Err(reply::not_supported(reason))
}

/// `/diag/eval` runs Erlang in Couchbase. There is none, and nothing is ever evaluated.
pub(super) fn diag_eval(call: &Call) -> Outcome {
    let text = "there is no Erlang in Settee, and it evaluates nothing it is sent";
    // The classic reasons to come here, by what they set.
    let sent = String::from_utf8_lossy(&call.body);
    let instead = [
        (
            "access_scanner_enabled",
            "the bucket parameter warmupHotKeys=true|false says whether it is noted what to load first",
        ),
        (
            "max_num_nonio",
            "the bucket parameter warmupHotKeys=true|false is the only one that warm-up has; threads are chosen by the node",
        ),
    ];
    Ok(match instead.iter().find(|(name, _)| sent.contains(name)) {
        Some((_, setting)) => reply::not_implemented(&format!("not supported: {text}; {setting}")),
        None => reply::not_implemented(text),
    })
}

/// Paths that say which of the two it is: not there, or not by that method.
const STRICT: [&[&str]; 4] = [
    &["settings"],
    &["pools", "default"],
    &["controller", "changePassword"],
    &["pools", "default", "checkPermissions"],
];

/// A request that no route is for.
pub(super) fn unknown(call: &Call) -> Outcome {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let is_strict = STRICT.iter().any(|known| match known {
        ["settings"] => path.first() == Some(&"settings") && path.get(1) != Some(&"rbac"),
        known => path == *known,
    });
    if is_strict && table::knows(&call.path) {
        return Ok(reply::method_not_allowed());
    }
    self::path(call, &path)
}

/// A path or method that is not known.
pub(super) fn path(call: &Call, path: &[&str]) -> Outcome {
    let usual = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    tracing::debug!(method = %call.method, path = path.join("/"), "not a known request");
    Ok(if usual.contains(&call.method) { reply::not_found() } else { reply::method_not_allowed() })
}
