//! Which handler answers which path. One module per area; each checks the rights its paths need itself.

mod bucket_view;
mod buckets;
mod certificates;
mod collections;
mod metrics;
mod nodes;
mod password;
mod pools;
mod roles;
mod settings;
mod settings_table;
mod setup;
mod stats;
mod unsupported;
mod users;
mod x509;

use axum::http::{Method, StatusCode};
use cluster::ClusterError;
use serde_json::json;

use crate::{
    call::Call,
    reply::{self, Outcome},
};

/// The compatibility version in the form REST shows it; test suites of SDKs parse it.
pub const PRODUCT_VERSION: &str = "7.6.4-0000-enterprise";
/// Settee's own version, in fields of its own.
pub const SETTEE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Answers a request.
pub(crate) async fn dispatch(call: &Call) -> Outcome {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let get = call.method == Method::GET;
    match path.as_slice() {
        [] if get => Ok(reply::text(StatusCode::OK, format!("Settee {SETTEE_VERSION}\n"))),
        ["versions"] if get => pools::versions(call),
        ["whoami"] if get => roles::whoami(call),
        ["metrics"] if get => metrics::show(call),
        ["diag", "eval"] => unsupported::diag_eval(call),
        ["pools", "default", "buckets", rest @ ..] => buckets::dispatch(call, rest).await,
        ["pools", "default", "b", name] if get => buckets::terse(call, name),
        ["pools", "default", "bs", name] if get => buckets::terse_streaming(call, name),
        ["pools", "default", "bucketsStreaming", name] if get => buckets::full_streaming(call, name),
        ["pools", "default", "checkPermissions"] => roles::check_permissions(call),
        ["pools", "default", "certificate" | "certificates" | "trustedCAs", ..] if get => {
            certificates::dispatch(call, &path[2..])
        }
        ["pools", ..] | ["poolsStreaming", "default"] if get => pools::dispatch(call, &path),
        ["pools", "default"] => setup::pool_settings(call).await,
        ["pools", "default", ..] => unsupported::pool(call, &path),
        ["nodes" | "nodeStatuses", ..] if get => nodes::dispatch(call, &path),
        ["settings", "rbac", rest @ ..] => users::dispatch(call, rest).await,
        ["settings", "web"] => setup::settings_web(call).await,
        ["settings", rest @ ..] => settings::dispatch(call, rest).await,
        ["clusterInit" | "nodeInit"]
        | ["node", "controller", ..]
        | ["nodes", "self", "controller", "settings"] => setup::dispatch(call, &path).await,
        ["controller", "changePassword"] => password::change(call).await,
        ["controller", "setAutoCompaction"] => settings::dispatch(call, &["autoCompaction"]).await,
        ["controller", ..] => unsupported::controller(call, &path),
        ["logs"] if get => logs(call),
        ["_settee", name] if call.method == Method::POST => internal(call, name).await,
        _ => unsupported::path(call, &path),
    }
}

/// What nodes of the cluster ask of one another.
async fn internal(call: &Call, name: &str) -> Outcome {
    if !call.user.is_internal() {
        return Err(reply::unauthorized());
    }
    match call.api.control.internal(name, call.body.to_vec()).await {
        Ok(body) => Ok(reply::with_body(StatusCode::OK, "application/octet-stream", body.into())),
        Err(ClusterError::NotSupported(_)) => Ok(reply::not_found()),
        Err(error) => Ok(reply::text(StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// There is no log of events yet: an empty list is what a quiet cluster shows.
fn logs(call: &Call) -> Outcome {
    call.require(cluster::auth::Privilege::ClusterRead, None)?;
    Ok(reply::json_ok(&json!({ "list": [] })))
}
