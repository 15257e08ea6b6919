//! Failing nodes over and letting them come back.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use base::NodeId;
use cluster::{
    ClusterError, Command, EJECTED, FailOver, Membership, NodeInfo, Recovery, StartGracefulFailover,
};
use serde_json::{Map, Value, json};

use super::{nodes, sizing, unsupported};
use crate::{
    node::time::now_ms,
    request::{Api, Call, UNDECIDED_FAILOVER},
};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, Reply, json_ok},
};

/// What is answered below `/controller/`.
pub(super) const ROUTES: &[&str] =
    &["failOver", "startFailover", "startGracefulFailover", "setRecoveryType", "reAddNode", "reFailOver"];

pub(super) async fn dispatch(call: &Call, what: &str) -> Outcome {
    match what {
        "failOver" | "startFailover" => hard(call).await,
        "startGracefulFailover" => graceful(call).await,
        "setRecoveryType" => recover(call, None).await,
        "reAddNode" => recover(call, Some(Recovery::Full)).await,
        "reFailOver" => cancel_recovery(call).await,
        _ => unsupported::path(call, &["controller", what]),
    }
}

/// 400 with a plain text, as ns_server refuses here.
fn refused(text: impl Into<String>) -> Refusal {
    reply::text(StatusCode::BAD_REQUEST, text).into()
}

/// The nodes a form names; `otpNode` may be repeated.
fn named<'a>(call: &'a Call, form: &Form) -> Result<Vec<&'a NodeInfo>, Refusal> {
    let names = form.fields().iter().filter(|(name, _)| name == "otpNode").map(|(_, value)| value.as_str());
    let names: BTreeSet<&str> = names.collect();
    let unknown: Vec<&str> =
        names.iter().filter(|name| nodes::by_otp(call, name).is_none()).copied().collect();
    if names.is_empty() {
        return Err(refused("No server specified."));
    }
    if !unknown.is_empty() {
        return Err(refused(format!("Unknown server given [{}]", unknown.join(","))));
    }
    Ok(names.into_iter().filter_map(|name| nodes::by_otp(call, name)).collect())
}

/// The nodes that serve when these do not.
fn left(call: &Call, nodes: &[NodeId]) -> Vec<NodeId> {
    call.meta.active_nodes().map(|node| node.id).filter(|node| !nodes.contains(node)).collect()
}

/// At least one node that serves has to be left.
fn check_someone_is_left(call: &Call, nodes: &[NodeId]) -> Result<(), Refusal> {
    if left(call, nodes).is_empty() {
        Err(refused("Last active node cannot be failed over."))
    } else {
        Ok(())
    }
}

async fn hard(call: &Call) -> Outcome {
    let form = call.form()?;
    let chosen = named(call, &form)?;
    let allow_unsafe = form.get("allowUnsafe") == Some("true");
    if !allow_unsafe && chosen.iter().any(|node| node.membership != Membership::Active) {
        return Err(refused("Inactive server given."));
    }
    let nodes: Vec<NodeId> = chosen.iter().map(|node| node.id).collect();
    check_someone_is_left(call, &nodes)?;
    // A node that is gone cannot be asked for: this is done in any case, and by what is known already.
    let shortages = sizing::shortages(&call.meta, &call.figures, &left(call, &nodes));
    let command = Command::FailOver(FailOver { nodes, allow_unsafe, auto: false });
    match change(call, command, &chosen, "failed over").await {
        Ok(()) => {}
        Err(ClusterError::MembersRefused(text)) => return Err(refused(text)),
        // The cluster could not agree: what was asked for may still happen.
        Err(ClusterError::Failed(text)) => {
            tracing::warn!(reason = text, "a failover was not decided");
            return Ok(reply::text(StatusCode::GATEWAY_TIMEOUT, UNDECIDED_FAILOVER));
        }
        Err(other) => return Err(other.into()),
    }
    if !shortages.is_empty() {
        let shortages = shortages.join(" ");
        tracing::warn!(shortages, "the nodes that are left after a failover are too small for all copies");
    }
    Ok(reply::empty_ok())
}

async fn graceful(call: &Call) -> Outcome {
    let form = call.form()?;
    let chosen = named(call, &form)?;
    if call.meta.rebalance.is_some() {
        let text = "Cannot failover during rebalance";
        return Ok(reply::text(StatusCode::SERVICE_UNAVAILABLE, text));
    }
    if chosen.iter().any(|node| node.membership != Membership::Active) {
        return Err(refused("Inactive server given."));
    }
    let nodes: Vec<NodeId> = chosen.iter().map(|node| node.id).collect();
    check_someone_is_left(call, &nodes)?;
    if !can_hand_over(call, &nodes) {
        return Err(refused("Failover cannot be done gracefully (would lose vbuckets)."));
    }
    if !sizing::is_forced(call, &form) {
        let figures = call.api.figures.fresh(&call.api.control, &call.meta).await;
        let shortages = sizing::shortages(&call.meta, &figures, &left(call, &nodes));
        if !shortages.is_empty() {
            return Err(refused(format!(
                "The nodes that are left are too small for all copies. {} Give them more, or add a node first. Where the node shall come \
                 back, force it ({}=true): copies are made anew only by a rebalance.",
                shortages.join(" "),
                sizing::FORCE
            )));
        }
    }
    let command = Command::StartGracefulFailover(StartGracefulFailover {
        id: Api::new_uuid()?,
        nodes,
        now_ms: now_ms(),
    });
    match change(call, command, &chosen, "graceful failover of").await {
        Ok(()) => {}
        Err(ClusterError::MembersRefused(text)) => return Err(refused(text)),
        Err(other) => return Err(other.into()),
    }
    Ok(reply::empty_ok())
}

/// Whether everything these nodes are active for has a copy on a node that stays.
fn can_hand_over(call: &Call, nodes: &[NodeId]) -> bool {
    let mut plans = call.meta.buckets.values().flat_map(|bucket| bucket.vbs.iter());
    plans.all(|plan| {
        let goes = plan.active().is_some_and(|active| nodes.contains(&active));
        !goes || plan.chain.iter().any(|node| !nodes.contains(node))
    })
}

/// `POST /controller/setRecoveryType`, and `/controller/reAddNode`, which asks for full recovery.
async fn recover(call: &Call, fixed: Option<Recovery>) -> Outcome {
    let form = call.form()?;
    let kind = fixed.or_else(|| match form.get("recoveryType") {
        Some("delta") => Some(Recovery::Delta),
        Some("full") => Some(Recovery::Full),
        _ => None,
    });
    let node = form.get("otpNode").and_then(|name| nodes::by_otp(call, name));
    let node = node.filter(|node| node.membership == Membership::InactiveFailed);
    match (kind, node) {
        (Some(_), Some(node)) if call.meta.is_ejected(node.id) => Ok(ejected()),
        (Some(kind), Some(node)) => {
            let command = Command::SetRecovery { node: node.id, recovery: Some(kind) };
            match change(call, command, &[node], "recovery of").await {
                Err(ClusterError::MembersRefused(text)) if text == EJECTED => Ok(ejected()),
                ended => ended.map(|()| json_ok(&json!([]))).map_err(Into::into),
            }
        }
        (kind, node) => {
            let mut errors = Map::new();
            if kind.is_none() {
                let text = "recovery type must be either 'delta' or 'full'";
                errors.insert("recoveryType".into(), text.into());
            }
            if node.is_none() {
                let text = "invalid node name or node can't be used for delta recovery";
                errors.insert("otpNode".into(), text.into());
            }
            Ok(reply::with_status(StatusCode::BAD_REQUEST, &Value::Object(errors)))
        }
    }
}

/// What is said of a node that the rebalance under way removes: it would go all the same.
fn ejected() -> Reply {
    reply::text(StatusCode::SERVICE_UNAVAILABLE, EJECTED)
}

/// `POST /controller/reFailOver`: a node that was to come back is only failed over again.
async fn cancel_recovery(call: &Call) -> Outcome {
    let form = call.form()?;
    let node = form.get("otpNode").and_then(|name| nodes::by_otp(call, name));
    let Some(node) = node.filter(|node| node.recovery.is_some()) else {
        return Ok(reply::with_status(StatusCode::BAD_REQUEST, &json!([])));
    };
    let command = Command::SetRecovery { node: node.id, recovery: None };
    change(call, command, &[node], "no recovery of").await?;
    Ok(reply::empty_ok())
}

/// Has a command about these nodes decided and carried out, and auditors told.
async fn change(call: &Call, command: Command, chosen: &[&NodeInfo], what: &str) -> Result<(), ClusterError> {
    let names: Vec<String> = chosen.iter().map(|node| nodes::otp_node(call, node)).collect();
    let ended = call.api.control.submit(command).await;
    call.audit_end(&ended, AuditKind::ClusterChanged, "cluster", format!("{what} {}", names.join(", ")));
    ended.map(drop)
}
