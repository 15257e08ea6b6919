//! Which handler answers which path, one module per area. [`table`] alone decides before whether a user may.

mod alerts;
mod alternate;
mod audit;
mod auto_failover;
mod bucket_view;
mod buckets;
mod certificates;
mod client_cert_auth;
mod collecting;
mod collections;
pub(crate) mod console;
mod design_documents;
mod discovery;
mod documents;
mod failover;
mod groups;
pub(crate) mod health;
mod latency;
mod loads;
mod log_lines;
mod logs;
mod membership;
mod metrics;
mod nodes;
mod objectives;
#[cfg(test)]
mod page;
mod password;
mod pools;
mod probe;
mod questions;
mod rebalance;
mod roles;
mod settings;
mod settings_table;
mod setup;
mod silences;
mod sizing;
mod slo;
mod stats;
mod stats_range;
mod storage_totals;
pub(crate) mod table;
mod told;
mod unsupported;
mod users;
mod verifiers;
pub(crate) mod views;
mod webhook;

use axum::http::{Method, StatusCode};
use cluster::{ClusterError, auth};

use http::reply::{self, Outcome};

use crate::{
    node::versions::SETTEE_VERSION,
    request::{Call, asking},
};

pub use setup::{administrator_objection, quota_objection};
pub use silences::silences;
pub use webhook::Webhook;

/// Answers a request whose sender has the right to it.
pub(crate) async fn dispatch(call: &Call) -> Outcome {
    if call.route.is_none() {
        return unsupported::unknown(call);
    }
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let (get, post) = (call.method == Method::GET, call.method == Method::POST);
    match path.as_slice() {
        [] if get => Ok(reply::text(StatusCode::OK, format!("Settee {SETTEE_VERSION}\n"))),
        ["versions"] if get => pools::versions(),
        ["whoami"] if get => roles::whoami(call),
        ["metrics"] if get => metrics::show(call),
        ["prometheus_sd_config"] if get => discovery::show(call),
        ["diag", "eval"] => unsupported::diag_eval(call),
        ["pools", "default", "buckets", rest @ ..] => buckets::dispatch(call, rest).await,
        ["pools", "default", "b", name] if get => buckets::terse(call, name),
        ["pools", "default", "bs", name] if get => buckets::terse_streaming(call, name),
        ["pools", "default", "bucketsStreaming", name] if get => buckets::full_streaming(call, name),
        ["pools", "default", "checkPermissions"] => roles::check_permissions(call),
        ["pools", "default", "certificate" | "certificates" | "trustedCAs", ..] => {
            certificates::dispatch(call, &path[2..]).await
        }
        ["pools", "default", "serverGroups", rest @ ..] => groups::dispatch(call, rest).await,
        ["pools", "default", "stats", "range", rest @ ..] => stats_range::dispatch(call, rest).await,
        ["pools", ..] | ["poolsStreaming", "default"] if get => pools::dispatch(call, &path),
        ["pools", "default"] => setup::pool_settings(call).await,
        ["pools", "default", ..] => unsupported::pool(call, &path),
        ["nodes" | "nodeStatuses", ..] if get => nodes::dispatch(call, &path),
        ["settings", "rbac", rest @ ..] => users::dispatch(call, rest).await,
        ["settings", "clientCertAuth"] => client_cert_auth::dispatch(call).await,
        ["settings", "web"] => setup::settings_web(call).await,
        ["settings", rest @ ..] => settings::dispatch(call, rest).await,
        ["node", "controller", "doJoinCluster" | "doJoinClusterV2"] if post => {
            membership::join_cluster(call).await
        }
        ["node", "controller", "setupAlternateAddresses", "external"] => alternate::dispatch(call).await,
        ["node", "controller", what @ ("loadTrustedCAs" | "reloadCertificate")] if post => {
            certificates::act(call, what).await
        }
        ["clusterInit" | "nodeInit"]
        | ["node", "controller", ..]
        | ["nodes", "self", "controller", "settings"] => setup::dispatch(call, &path).await,
        ["_settee", name] if post => internal(call, name).await,
        ["_settee", "services", service] if post => questions::answer(call, service).await,
        ["controller", ..] => controller(call, &path).await,
        ["logs"] if get => logs::show(call),
        ["settee", what @ ("alerts" | "forecast")] if get => alerts::of_every_node(call, what).await,
        ["settee", "alerts", "kinds"] if get => alerts::kinds(),
        ["settee", "alerts", "silences", rest @ ..] => silences::dispatch(call, rest).await,
        ["settee", "alerts", "webhook"] => webhook::dispatch(call).await,
        ["settee", "probe", rest @ ..] => probe::dispatch(call, rest).await,
        ["settee", "audit"] if get => audit::show(call).await,
        ["settee", "logs"] if get => log_lines::show(call),
        ["settee", "archive"] if get => collecting::download(call).await,
        ["settee", "slow"] if get => loads::slow(call).await,
        ["settee", "hot", bucket] if get => loads::hot(call, bucket).await,
        ["settee", "connections"] if get => loads::connections(call).await,
        ["settee", "latency", bucket] if get => latency::show(call, bucket).await,
        ["settee", "sdk", bucket] if get => told::show(call, bucket).await,
        ["settee", "slo", rest @ ..] => slo::dispatch(call, rest).await,
        _ => unsupported::path(call, &path),
    }
}

/// What is done to the cluster at once.
async fn controller(call: &Call, path: &[&str]) -> Outcome {
    let post = call.method == Method::POST;
    match path {
        ["controller", what @ "regenerateCertificate"] if post => certificates::act(call, what).await,
        ["controller", "addNode" | "addNodeV2"] if post => membership::add_node(call, None).await,
        ["controller", "ejectNode"] if post => membership::eject(call).await,
        ["controller", "hardResetNode"] if post => membership::reset(call).await,
        ["controller", "rebalance"] if post => rebalance::start(call).await,
        ["controller", "stopRebalance"] if post => rebalance::stop(call).await,
        ["controller", "startLogsCollection"] if post => collecting::start(call).await,
        ["controller", "cancelLogsCollection"] if post => collecting::cancel(call).await,
        ["controller", what] if failover::ROUTES.contains(what) && post => {
            failover::dispatch(call, what).await
        }
        ["controller", "changePassword"] => password::change(call).await,
        ["controller", "setAutoCompaction"] => settings::dispatch(call, &["autoCompaction"]).await,
        _ => unsupported::controller(call, path),
    }
}

/// The settings objects there are.
#[cfg(test)]
pub(crate) fn settings_paths() -> impl Iterator<Item = &'static str> {
    settings_table::SETTINGS.iter().map(|settings| settings.path)
}

/// What nodes ask of one another.
async fn internal(call: &Call, name: &str) -> Outcome {
    match name {
        "introduce" => return membership::introduction(call),
        "join" => return membership::join(call).await,
        "figures" => return asking::show(call),
        "samples" => return stats::show(call),
        "forecast" => return alerts::show_forecasts(call),
        "slow" => return loads::show_slow(call),
        "hot" => return loads::show_hot(call),
        "connections" => return loads::show_connections(call).await,
        "latency" => return latency::answer(call),
        "sdk" => return told::answer(call),
        "objectives" => return objectives::show(call),
        "alerts" => return alerts::show(call),
        "audit" => return audit::answer(call).await,
        "probes" => return probe::show(call),
        "documents" => return documents::answer(call).await,
        "collecting" => return collecting::answer(call),
        _ => {}
    }
    let from = auth::number_of(&call.meta, &call.user);
    match call.api.control.internal(name, from, call.body.to_vec()).await {
        Ok(body) => Ok(reply::with_body(StatusCode::OK, "application/octet-stream", body.into())),
        Err(ClusterError::NotSupported(_)) => Ok(reply::not_found()),
        Err(error) => Ok(reply::text(StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}
