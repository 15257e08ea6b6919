//! Rebalancing: starting, stopping, and how far it is, in the three forms tools ask for it (`tasks`,
//! `rebalanceProgress`, `rebalanceStatus`).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use axum::http::StatusCode;
use base::NodeId;
use cluster::{Command, Membership, Metadata, NodeInfo, RebalanceKind, RebalanceResult, StartRebalance};
use serde_json::{Map, Value, json};

use super::{nodes, sizing};
use crate::{
    node::{
        cluster_status::{NodeShare, RebalanceView},
        time::now_ms,
    },
    request::{Api, Call},
};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};

/// How long nodes are given to be heard of before a rebalance is refused for their absence.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often tools should look.
const REFRESH_SECS: f64 = 0.25;

/// `POST /controller/rebalance`.
pub(super) async fn start(call: &Call) -> Outcome {
    let form = call.form()?;
    let (keep, eject) = wanted(call, &form)?;
    if let Some(running) = &call.meta.rebalance {
        return Err(already_running(running.kind));
    }
    let absent = absent(call, &keep).await;
    if !absent.is_empty() {
        let text = format!("Cannot contact the following nodes: [{}]", absent.join(","));
        return Ok(reply::text(StatusCode::SERVICE_UNAVAILABLE, text));
    }
    let keep: Vec<NodeId> = keep.iter().map(|node| node.id).collect();
    if !sizing::is_forced(call, &form) {
        // Of one that had to be waited for they were not to be had before.
        let figures = call.api.figures.fresh(&call.api.control, &call.meta).await;
        let shortages = sizing::shortages(&call.meta, &figures, &keep);
        if !shortages.is_empty() {
            return Err(reply::bad_request(&format!(
                "The nodes there shall be are too small. {} Give them more, keep more nodes, or force it ({}=true).",
                shortages.join(" "),
                sizing::FORCE
            )));
        }
    }
    let id = Api::new_uuid()?;
    call.change(
        Command::StartRebalance(StartRebalance { id: id.clone(), keep, eject, now_ms: now_ms() }),
        AuditKind::ClusterChanged,
        "rebalance",
        format!("started {id}"),
    )
    .await?;
    Ok(json_ok(&json!({ "rebalance_id": id })))
}

/// The nodes nobody hears of. One that was just added, or has just come back, is given a moment to be heard.
async fn absent(call: &Call, wanted: &[&NodeInfo]) -> Vec<String> {
    let began = tokio::time::Instant::now();
    loop {
        let silent = &call.api.control.cluster_status().silent;
        let absent = wanted.iter().filter(|node| silent.contains(&node.id));
        let absent: Vec<String> = absent.map(|node| nodes::otp_node(call, node)).collect();
        if absent.is_empty() || began.elapsed() >= HEARD_WITHIN {
            return absent;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn already_running(kind: RebalanceKind) -> Refusal {
    let text = match kind {
        RebalanceKind::Rebalance => "Rebalance is already running.",
        RebalanceKind::GracefulFailover => "A graceful failover is running.",
    };
    reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": text })).into()
}

/// The nodes that stay and those that go. The caller has to know every node; one that was failed over and shall not come back
/// goes without being asked.
fn wanted<'a>(call: &'a Call, form: &Form) -> Result<(Vec<&'a NodeInfo>, Vec<NodeId>), Refusal> {
    let names =
        |field| form.get(field).unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
    let refused =
        |what: &str| -> Refusal { reply::with_status(StatusCode::BAD_REQUEST, &json!({ what: 1 })).into() };
    let find = |name| nodes::by_otp(call, name).map(|node| node.id).ok_or_else(|| refused("mismatch"));
    let known = names("knownNodes").map(find).collect::<Result<BTreeSet<_>, _>>()?;
    if known.is_empty() {
        return Err(refused("empty_known_nodes"));
    }
    let mut eject = names("ejectedNodes").map(find).collect::<Result<BTreeSet<_>, _>>()?;
    if known.len() != call.meta.nodes.len() || !eject.is_subset(&known) {
        return Err(refused("mismatch"));
    }
    let lost = |node: &&NodeInfo| node.membership == Membership::InactiveFailed && node.recovery.is_none();
    eject.extend(call.meta.nodes.iter().filter(lost).map(|node| node.id));
    let keep: Vec<&NodeInfo> = call.meta.nodes.iter().filter(|node| !eject.contains(&node.id)).collect();
    if keep.iter().all(|node| node.membership != Membership::Active) {
        return Err(reply::text(StatusCode::BAD_REQUEST, "No active nodes left").into());
    }
    Ok((keep, eject.into_iter().collect()))
}

/// `POST /controller/stopRebalance`: stopping what does not run is no error.
pub(super) async fn stop(call: &Call) -> Outcome {
    if let Some(rebalance) = &call.meta.rebalance {
        let command = call.meta.stop_of_rebalance(&rebalance.id, now_ms());
        let stopped = call.change(command, AuditKind::ClusterChanged, "rebalance", "stopped").await;
        // It may have ended meanwhile, and another one may have begun.
        let now = call.api.control.metadata();
        if now.rebalance.as_ref().is_some_and(|now| now.id == rebalance.id) {
            stopped?;
        }
    }
    Ok(reply::empty_ok())
}

/// `GET /pools/default/rebalanceProgress`: of each node a number from 0 to 1.
pub(super) fn progress(call: &Call) -> Outcome {
    let mut fields = Map::new();
    if call.meta.rebalance.is_some() {
        fields.insert("status".into(), "running".into());
        for (name, share) in shares(call) {
            fields.insert(name, json!({ "progress": share.done }));
        }
    } else {
        fields.insert("status".into(), "none".into());
        fields.extend(error_message(&call.meta).map(|text| ("errorMessage".to_owned(), text.into())));
    }
    Ok(json_ok(&Value::Object(fields)))
}

/// `rebalanceStatus` of `/pools/default`.
pub(super) fn status(meta: &Metadata) -> &'static str {
    if meta.rebalance.is_some() { "running" } else { "none" }
}

/// The entry of `/pools/default/tasks` that tools watch.
pub(super) fn task(call: &Call) -> Value {
    let meta = &call.meta;
    let Some(running) = &meta.rebalance else {
        let mut task = json!({
            "type": "rebalance", "status": "notRunning", "statusIsStale": call.status.stale,
            "masterRequestTimedOut": call.status.stale,
        });
        if let Some(last) = &meta.last_rebalance {
            task["statusId"] = last.id.as_str().into();
            task["subtype"] = subtype(last.kind).into();
            task["settee"] = json!({ "result": result(&last.result) });
        }
        if let Some(text) = error_message(meta) {
            task["errorMessage"] = text.into();
        }
        return task;
    };
    // While the leader has yet to say how far it is, nobody knows what moves: that is no 0.
    let moves = call.status.progress.as_ref().map(|view| (view.moves_done, view.moves_total));
    let view = call.status.progress.clone().unwrap_or_default();
    let shares = shares(call);
    let per_node: Map<String, Value> = shares
        .iter()
        .map(|(name, share)| (name.clone(), json!({ "progress": share.done * 100.0 })))
        .collect();
    json!({
        "type": "rebalance", "subtype": subtype(running.kind), "statusId": running.id, "status": "running",
        "recommendedRefreshPeriod": REFRESH_SECS, "progress": view.done * 100.0, "perNode": per_node,
        "detailedProgress": detailed(&view, &shares),
        "settee": {
            "movesDone": moves.map(|(done, _)| done), "movesTotal": moves.map(|(_, total)| total), "etaSecs": view.eta_secs,
            "waitsFor": view.waits_for, "startedMs": running.started_ms,
        },
    })
}

fn result(result: &RebalanceResult) -> &'static str {
    match result {
        RebalanceResult::Completed => "completed",
        RebalanceResult::Stopped => "stopped",
        RebalanceResult::Failed(_) => "failed",
    }
}

fn subtype(kind: RebalanceKind) -> &'static str {
    match kind {
        RebalanceKind::Rebalance => "rebalance",
        RebalanceKind::GracefulFailover => "gracefulFailover",
    }
}

fn detailed(view: &RebalanceView, shares: &BTreeMap<String, NodeShare>) -> Value {
    let documents = |(total, done): (u64, u64)| json!({ "docsTotal": total, "docsTransferred": done });
    let per_node: Map<String, Value> = shares
        .iter()
        .map(|(name, share)| {
            let directions =
                json!({ "ingoing": documents(share.incoming), "outgoing": documents(share.outgoing) });
            (name.clone(), directions)
        })
        .collect();
    let mut detailed = json!({ "perNode": per_node });
    if let Some(at) = &view.bucket {
        detailed["bucket"] = at.name.as_str().into();
        detailed["bucketNumber"] = at.number.into();
        detailed["bucketsCount"] = at.count.into();
    }
    detailed
}

/// Of every node that takes part, by name: as the leader says, or nothing yet. A node that has nothing to send or to take
/// is done.
fn shares(call: &Call) -> BTreeMap<String, NodeShare> {
    let Some(running) = &call.meta.rebalance else { return BTreeMap::new() };
    let part = running.keep.iter().chain(&running.eject).filter_map(|&id| call.meta.node_by_id(id));
    let known = call.status.progress.as_ref().map(|view| &view.nodes);
    part.map(|node| {
        let idle = NodeShare { done: 1.0, ..NodeShare::default() };
        let share = known.map(|known| known.get(&node.id).copied().unwrap_or(idle)).unwrap_or_default();
        (nodes::otp_node(call, node), share)
    })
    .collect()
}

/// Why the last rebalance ended without success. One that somebody stopped did what it was told.
fn error_message(meta: &Metadata) -> Option<String> {
    let last = meta.last_rebalance.as_ref()?;
    let what = match last.kind {
        RebalanceKind::Rebalance => "Rebalance",
        RebalanceKind::GracefulFailover => "Graceful failover",
    };
    match &last.result {
        RebalanceResult::Completed | RebalanceResult::Stopped => None,
        RebalanceResult::Failed(reason) => Some(format!("{what} failed: {reason}")),
    }
}

/// Whether a rebalance would find nothing to do, as far as can be said at a glance. Every node is a full member, and every
/// vBucket has the copies asked for, as evenly as can be.
pub(super) fn balanced(meta: &Metadata) -> bool {
    let active: Vec<NodeId> =
        meta.nodes.iter().filter(|node| node.membership == Membership::Active).map(|node| node.id).collect();
    active.len() == meta.nodes.len()
        && meta.rebalance.is_none()
        && meta.buckets.values().filter(|bucket| !bucket.vbs.is_empty()).all(|bucket| {
            let copies = (usize::from(bucket.replicas) + 1).min(active.len());
            let complete = bucket.vbs.iter().all(|plan| plan.chain.len() == copies);
            let serves = |node: &NodeId| bucket.vbs.iter().any(|plan| plan.chain.first() == Some(node));
            complete && (bucket.vbs.len() < active.len() || active.iter().all(serves))
        })
}
