//! The design documents of a bucket, as backup tools and consoles list them. They are changed on the ports of views.

use axum::http::StatusCode;
use cluster::{DesignDocument, DesignDocuments};
use http::reply::{self, Outcome, Refusal};
use serde::Serialize;
use serde_json::{json, value::RawValue};

use crate::request::Call;

#[derive(Serialize)]
struct Rows {
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    doc: Doc,
}

#[derive(Serialize)]
struct Doc {
    meta: Meta,
    json: Box<RawValue>,
}

#[derive(Serialize)]
struct Meta {
    id: String,
    rev: String,
}

/// All of a bucket's, by id.
pub(super) fn list(call: &Call, name: &str) -> Outcome {
    let info = call.bucket(name)?;
    if !info.may_have_views() {
        let body = json!({ "error": "no_ddocs_service" });
        return Err(reply::with_status(StatusCode::BAD_REQUEST, &body).into());
    }
    let text = rows(&info.design_documents).and_then(|rows| serde_json::to_string(&rows));
    let text = text.map_err(|error| failed(&error))?;
    Ok(reply::with_body(StatusCode::OK, "application/json", text.into()))
}

/// Operations on an index that nothing here obeys: each is refused, so that nobody takes it for done.
pub(super) fn refuse(call: &Call, name: &str, operation: &str) -> Outcome {
    call.bucket(name)?;
    Err(reply::not_supported(match operation {
        "compactView" => "Compacting a view is not supported: indexes are compacted by themselves.",
        "cancelViewCompaction" => {
            "Cancelling a compaction is not supported: indexes are compacted by themselves."
        }
        "setUpdateMinChanges" => {
            "updateMinChanges is not supported: indexes are brought up to date all the time."
        }
        _ => return Ok(reply::not_found()),
    }))
}

fn rows(documents: &DesignDocuments) -> serde_json::Result<Rows> {
    let rows = documents.iter().map(|(name, document)| row(name, document));
    Ok(Rows { rows: rows.collect::<Result<_, _>>()? })
}

fn row(name: &str, document: &DesignDocument) -> serde_json::Result<Row> {
    let meta = Meta { id: format!("_design/{name}"), rev: document.revision.to_string() };
    Ok(Row { doc: Doc { meta, json: RawValue::from_string(document.text.as_str().to_owned())? } })
}

/// A design document is no JSON, which it was when it was stored.
fn failed(error: &serde_json::Error) -> Refusal {
    reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &json!([error.to_string()])).into()
}
