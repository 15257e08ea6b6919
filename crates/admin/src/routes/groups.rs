//! Server groups: `/pools/default/serverGroups` and below. The nodes of all groups are read and written whole, under a
//! revision, so that two administrators do not undo each other's moves.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use axum::http::StatusCode;
use base::NodeId;
use cluster::{Command, Metadata};
use serde_json::{Value, json};

use super::{membership, nodes, unsupported};
use crate::request::{Api, Call};
use http::{
    AuditKind,
    reply::{self, Outcome, Refusal, json_ok},
};

/// Longest name of a group (ns_server).
const NAME_BYTES_MAX: usize = 64;

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    let method = call.method.as_str();
    match (method, path) {
        ("GET", []) => list(call),
        ("POST", []) => create(call).await,
        ("PUT", []) => assign(call).await,
        ("PUT", [uuid]) => rename(call, uuid).await,
        ("DELETE", [uuid]) => delete(call, uuid).await,
        ("POST", [uuid, "addNode" | "addNodeV2"]) => membership::add_node(call, Some(uuid)).await,
        _ => unsupported::path(call, path),
    }
}

fn list(call: &Call) -> Outcome {
    let groups = call.meta.server_groups.iter().map(|group| {
        let members = call.meta.nodes.iter().filter(|node| node.group == group.uuid);
        json!({
            "name": group.name,
            "uri": uri(&group.uuid),
            "addNodeURI": format!("{}/addNode", uri(&group.uuid)),
            "nodes": members.map(|node| nodes::view(call, node, None)).collect::<Vec<_>>(),
        })
    });
    let revision = revision(&call.meta);
    Ok(json_ok(&json!({
        "uri": format!("/pools/default/serverGroups?rev={revision}"),
        "groups": groups.collect::<Vec<_>>(),
    })))
}

fn uri(uuid: &str) -> String {
    format!("/pools/default/serverGroups/{uuid}")
}

/// Differs when groups or their members do. All nodes run the same hash over the same state. It only has to be the same on every node for as
/// long as an administrator looks at a list.
pub(super) fn revision(meta: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    for group in &meta.server_groups {
        (&group.uuid, &group.name).hash(&mut hasher);
    }
    for node in &meta.nodes {
        (&node.uuid, &node.group).hash(&mut hasher);
    }
    // Some languages' integers end there.
    hasher.finish() >> 12
}

async fn create(call: &Call) -> Outcome {
    let name = wanted_name(call)?;
    let uuid = Api::new_uuid()?;
    call.change(
        Command::CreateServerGroup { uuid, name: name.clone() },
        AuditKind::ClusterChanged,
        "serverGroups",
        format!("created {name}"),
    )
    .await?;
    Ok(json_ok(&json!([])))
}

async fn rename(call: &Call, uuid: &str) -> Outcome {
    if call.meta.server_group(uuid).is_none() {
        return Ok(reply::with_status(StatusCode::NOT_FOUND, &json!([])));
    }
    let name = wanted_name(call)?;
    call.change(
        Command::RenameServerGroup { uuid: uuid.to_owned(), name: name.clone() },
        AuditKind::ClusterChanged,
        "serverGroups",
        format!("renamed to {name}"),
    )
    .await?;
    Ok(json_ok(&json!([])))
}

async fn delete(call: &Call, uuid: &str) -> Outcome {
    if call.meta.server_group(uuid).is_none() {
        return Ok(reply::with_status(StatusCode::NOT_FOUND, &json!([])));
    }
    if call.meta.nodes.iter().any(|node| node.group == uuid) {
        let body = json!({ "_": "group is not empty" });
        return Ok(reply::with_status(StatusCode::BAD_REQUEST, &body));
    }
    call.change(
        Command::DeleteServerGroup { uuid: uuid.to_owned() },
        AuditKind::ClusterChanged,
        "serverGroups",
        "deleted one",
    )
    .await?;
    Ok(json_ok(&json!([])))
}

/// The name a form asks for, as ns_server takes it: trimmed, of some length, not taken.
fn wanted_name(call: &Call) -> Result<String, Refusal> {
    let form = call.form()?;
    let mut errors = BTreeMap::new();
    let extra: Vec<&str> =
        form.fields().iter().map(|(name, _)| name.as_str()).filter(|name| *name != "name").collect();
    if !extra.is_empty() {
        errors.insert("_", format!("unknown parameters: {}", extra.join(", ")));
    }
    let name = form.get("name").map(str::trim);
    match name {
        None => errors.insert("name", "is missing".into()),
        Some("") => errors.insert("name", "cannot be empty".into()),
        Some(name) if name.len() > NAME_BYTES_MAX => {
            errors.insert("name", format!("cannot be longer than {NAME_BYTES_MAX} bytes"))
        }
        Some(name) if call.meta.server_groups.iter().any(|group| group.name == name) => {
            errors.insert("name", "already exists".into())
        }
        Some(_) => None,
    };
    match name {
        Some(name) if errors.is_empty() => Ok(name.to_owned()),
        _ => Err(reply::with_status(StatusCode::BAD_REQUEST, &json!(errors)).into()),
    }
}

/// `PUT /pools/default/serverGroups?rev=...`: who is in which group from now on.
async fn assign(call: &Call) -> Outcome {
    let bad_input = || reply::with_status(StatusCode::BAD_REQUEST, &json!("Bad input"));
    let sent: Value = serde_json::from_slice(&call.body).map_err(|_| bad_input())?;
    let assignments = assignments(call, &sent).ok_or_else(bad_input)?;
    if call.query.get("rev") != Some(&revision(&call.meta).to_string()) {
        return Ok(reply::with_status(StatusCode::CONFLICT, &json!([])));
    }
    if call.meta.rebalance.is_some() {
        let text = "Cannot update server group while rebalance is running";
        return Ok(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!(text)));
    }
    call.change(
        Command::AssignServerGroups { assignments },
        AuditKind::ClusterChanged,
        "serverGroups",
        "members",
    )
    .await?;
    Ok(json_ok(&json!([])))
}

/// The group of each node, provided that every group and every node is named exactly once and nothing else is said.
fn assignments(call: &Call, sent: &Value) -> Option<Vec<(NodeId, String)>> {
    let mut groups_seen = BTreeSet::new();
    let mut assigned = BTreeMap::new();
    for group in sent["groups"].as_array()? {
        let uuid = group["uri"].as_str()?.strip_prefix("/pools/default/serverGroups/")?;
        let known = call.meta.server_group(uuid)?;
        let renamed = group.get("name").is_some_and(|name| name != known.name.as_str());
        if renamed || !groups_seen.insert(uuid) {
            return None;
        }
        for node in group["nodes"].as_array()? {
            let node = nodes::by_otp(call, node["otpNode"].as_str()?)?;
            if assigned.insert(node.id, uuid.to_owned()).is_some() {
                return None;
            }
        }
    }
    let complete =
        groups_seen.len() == call.meta.server_groups.len() && assigned.len() == call.meta.nodes.len();
    complete.then(|| assigned.into_iter().collect())
}
