//! Collecting logs as `couchbase-cli collect-logs-start`, `-status` and `-stop` have it done: every node asks itself what `settee collect`
//! asks it, and has an archive of its own. Nothing is uploaded.

mod download;
mod gather;
mod task;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::http::StatusCode;
use base::NodeId;
use cluster::auth::Identity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{nodes, settings};
use crate::{
    node::time::{now_ms, rfc3339},
    request::{
        Api, Call,
        collecting::{Part, PartState, Run},
        figures::{ask, question},
    },
};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};

pub(super) use task::task;

/// Where nodes tell one another to begin and to end.
const PATH: &str = "/_settee/collecting";
/// What Settee has not: where archives go, and what they are encrypted or chosen with.
const NOT_BUILT: [(&str, &str); 6] = [
    ("uploadHost", "Uploading is not supported. Each node keeps its archive: copy it from there."),
    ("uploadProxy", "Uploading is not supported. Each node keeps its archive: copy it from there."),
    ("customer", "Uploading is not supported. Leave the customer out."),
    ("ticket", "Uploading is not supported. Leave the ticket out."),
    ("encryptionPassword", "Encrypted archives are not supported. Encrypt the archives yourself."),
    ("taskRegexp", "Collecting a part is not supported. Leave the expression out."),
];

/// What a node tells another.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Order {
    Begin(Begin),
    /// Ends the parts of these collections.
    Cancel(Vec<String>),
}

/// What a node is to collect, for whom, and where to.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Begin {
    run: String,
    began_ms: u64,
    /// The administrator that has asked.
    user: Identity,
    /// What hashes of names are made with; names stay where it is missing.
    salt: Option<String>,
    /// A folder on every node; each node's own where it is missing.
    log_dir: Option<PathBuf>,
}

/// Why the other node does not do it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    refused: Option<String>,
}

/// `POST /controller/startLogsCollection`.
pub(super) async fn start(call: &Call) -> Outcome {
    let (members, begin) = wanted(call, &call.form()?)?;
    if task::is_running(call) {
        return Err(refused(&json!({ "_": "Logs collection task is already started" })));
    }
    let collecting = &call.api.figures.collecting;
    let nodes = members.iter().map(|&id| (id, None)).collect();
    collecting.begin(Run { id: begin.run.clone(), began_ms: begin.began_ms, is_cancelled: false, nodes });
    call.audit(AuditKind::ClusterChanged, "logs", format!("collection {} started", begin.run));
    let run = begin.run.clone();
    for (node, answer) in tell(call, &members, Order::Begin(begin)).await {
        let why = match answer {
            Some(Answer { refused: None }) => continue,
            Some(Answer { refused: Some(why) }) => why,
            None => "The node does not answer.".to_owned(),
        };
        collecting.refused(&run, node, why);
    }
    Ok(json_ok(&json!([])))
}

/// `POST /controller/cancelLogsCollection`: cancelling what does not run is no error.
pub(super) async fn cancel(call: &Call) -> Outcome {
    let runs = task::running(call);
    if !runs.is_empty() {
        call.audit(AuditKind::ClusterChanged, "logs", format!("collection {} cancelled", runs.join(", ")));
        let members: Vec<NodeId> = call.meta.nodes.iter().map(|node| node.id).collect();
        tell(call, &members, Order::Cancel(runs)).await;
    }
    Ok(json_ok(&json!([])))
}

/// `GET /settee/archive`: what this node has collected last.
pub(super) async fn download(call: &Call) -> Outcome {
    download::answer(call).await
}

/// `POST /_settee/collecting`: another node says so.
pub(super) fn answer(call: &Call) -> Outcome {
    let order = serde_json::from_slice(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    let answer = obey(call, order);
    serde_json::to_value(answer)
        .map(|answer| json_ok(&answer))
        .map_err(|error| reply::bad_request(&error.to_string()))
}

/// Tells these nodes, this one among them, all at once.
async fn tell(call: &Call, members: &[NodeId], order: Order) -> Vec<(NodeId, Option<Answer>)> {
    let this = call.meta.node(&call.api.control.this_node()).map(|node| node.id);
    let body = serde_json::to_vec(&order).unwrap_or_default();
    let mut told = tokio::task::JoinSet::new();
    for node in call.meta.nodes.iter().filter(|node| members.contains(&node.id) && Some(node.id) != this) {
        let (control, id) = (Arc::clone(&call.api.control), node.id);
        let question = question(node, PATH, body.clone());
        told.spawn(async move { (id, ask(control.as_ref(), question).await) });
    }
    let own = this.filter(|this| members.contains(this)).map(|this| (this, Some(obey(call, order))));
    told.join_all().await.into_iter().chain(own).collect()
}

/// Does what was ordered on this node.
fn obey(call: &Call, order: Order) -> Answer {
    let collecting = &call.api.figures.collecting;
    let begin = match order {
        Order::Cancel(runs) => {
            collecting.cancel(&runs);
            return Answer::default();
        }
        Order::Begin(begin) => begin,
    };
    let Some(node) = call.meta.node(&call.api.control.this_node()) else {
        return Answer { refused: Some("The node is no member of its cluster.".into()) };
    };
    let own_folder = call.api.control.collected_folder();
    let is_own = begin.log_dir.is_none();
    let folder = begin.log_dir.clone().unwrap_or(own_folder);
    let path = folder.join(name_of(&begin, &nodes::otp_node(call, node)));
    let run = begin.run.clone();
    let part = Part { run: run.clone(), path: path.display().to_string(), state: PartState::Started };
    let work = gather::gather(call, begin, path, is_own);
    let api = Arc::clone(&call.api);
    let begun = collecting.begin_part(part, || {
        let task = tokio::spawn(async move {
            let ended = match work.await {
                Ok(()) => PartState::Collected,
                Err(why) => PartState::Failed(why),
            };
            api.figures.collecting.end_part(&run, ended);
        });
        task.abort_handle()
    });
    Answer { refused: begun.err() }
}

/// The name of a node's archive, as Couchbase's are called.
fn name_of(begin: &Begin, node: &str) -> String {
    let time = rfc3339(begin.began_ms);
    let time: String = time.chars().take_while(|one| *one != '.').filter(|one| *one != ':').collect();
    let redacted = if begin.salt.is_some() { "-redacted" } else { "" };
    format!("collectinfo-{time}-{}{redacted}.tar", node.replace([':', '/'], "-"))
}

fn refused(errors: &Value) -> Refusal {
    reply::with_status(StatusCode::BAD_REQUEST, errors).into()
}

/// The nodes that shall collect, and what.
fn wanted(call: &Call, form: &Form) -> Result<(Vec<NodeId>, Begin), Refusal> {
    let mut errors = Map::new();
    let members = members(call, form.get("nodes")).map_err(|why| errors.insert("nodes".into(), why.into()));
    let folder = |name: &str, errors: &mut Map<String, Value>| {
        let folder = form.get(name).map(Path::new)?;
        if !folder.is_absolute() {
            errors.insert(name.into(), "Must be an absolute path".into());
        }
        Some(folder.to_path_buf())
    };
    let log_dir = folder("logDir", &mut errors);
    folder("tmpDir", &mut errors);
    let salt = form.get("logRedactionSalt");
    let usual = settings::current(&call.meta, "logRedaction");
    let is_redacted = match form.get("logRedactionLevel") {
        None => usual["logRedactionLevel"] == "partial",
        Some("none") => false,
        Some("partial") => true,
        Some(_) => {
            errors.insert("logRedactionLevel".into(), "log redaction should be none or partial".into());
            false
        }
    };
    if salt.is_some() && !is_redacted {
        let why = "log redaction level must be partial if salt is given";
        errors.insert("logRedactionSalt".into(), why.into());
    }
    for (name, why) in NOT_BUILT {
        if form.get(name).is_some_and(|value| !value.trim().is_empty()) {
            errors.insert(name.into(), why.into());
        }
    }
    let Ok(members) = members else { return Err(refused(&Value::Object(errors))) };
    if !errors.is_empty() {
        return Err(refused(&Value::Object(errors)));
    }
    let salt = match (is_redacted, salt) {
        (false, _) => None,
        (true, Some(salt)) => Some(salt.to_owned()),
        // All nodes get the same, so that one name has one hash in all archives.
        (true, None) => Some(Api::new_uuid()?),
    };
    let user = call.user.clone();
    Ok((members, Begin { run: Api::new_uuid()?, began_ms: now_ms(), user, salt, log_dir }))
}

/// The nodes of that list of names.
fn members(call: &Call, names: Option<&str>) -> Result<Vec<NodeId>, String> {
    if names == Some("*") {
        return Ok(call.meta.nodes.iter().map(|node| node.id).collect());
    }
    let (mut members, mut unknown) = (Vec::new(), Vec::new());
    for name in names.unwrap_or_default().split(',').filter(|name| !name.is_empty()) {
        match nodes::by_otp(call, name) {
            Some(node) if members.contains(&node.id) => {}
            Some(node) => members.push(node.id),
            None => unknown.push(format!("{name:?}")),
        }
    }
    match (unknown.is_empty(), members.is_empty()) {
        (false, _) => Err(format!("Unknown nodes: [{}]", unknown.join(","))),
        (true, true) => Err("Please select at least one node.".into()),
        (true, false) => Ok(members),
    }
}
