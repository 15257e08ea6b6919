//! The design documents of a bucket, as backup tools and consoles list them. They are changed on the ports of views.

use std::sync::Arc;

use axum::http::StatusCode;
use cluster::{DesignDocument, DesignDocuments};
use http::{
    Admitted, Operation, form,
    reply::{self, Outcome, Refusal, Reply},
};
use serde::Serialize;
use serde_json::{json, value::RawValue};

use crate::request::Call;

/// The name of the service of views.
pub(super) const SERVICE: &str = "views";

#[derive(Serialize)]
struct Rows {
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    doc: Doc,
    controllers: Controllers,
}

/// Where operations on the index are asked for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Controllers {
    compact: String,
    set_update_min_changes: String,
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
    let text = rows(name, &info.design_documents).and_then(|rows| serde_json::to_string(&rows));
    let text = text.map_err(|error| failed(&error))?;
    Ok(reply::with_body(StatusCode::OK, "application/json", text.into()))
}

/// The path of an operation on a design document's index.
pub(super) fn controller(bucket: &str, id: &str, operation: &str) -> String {
    let (bucket, id) = (form::escaped(bucket), form::escaped(id));
    format!("/pools/default/buckets/{bucket}/ddocs/{id}/controller/{operation}")
}

/// An operation on a design document's index, which the service of views carries out on all nodes.
pub(super) async fn operate(call: &Call, name: &str, document: &str, operation: &str) -> Outcome {
    call.bucket(name)?;
    let Some(service) = call.api.control.behind(SERVICE) else { return Ok(is_absent()) };
    let operation =
        Operation { name: operation.to_owned(), bucket: name.to_owned(), object: document.to_owned() };
    let (meta, user, body) = (Arc::clone(&call.meta), call.user.clone(), call.body.clone());
    Ok(service.operate(operation, Admitted { meta, user, body }, call.from.clone()).await)
}

/// The service starts or stops, or does not run here.
pub(super) fn is_absent() -> Reply {
    let text = "The service of views does not run on this node.\r\n";
    reply::text(StatusCode::SERVICE_UNAVAILABLE, text)
}

fn rows(bucket: &str, documents: &DesignDocuments) -> serde_json::Result<Rows> {
    let rows = documents.iter().map(|(name, document)| row(bucket, name, document));
    Ok(Rows { rows: rows.collect::<Result<_, _>>()? })
}

fn row(bucket: &str, name: &str, document: &DesignDocument) -> serde_json::Result<Row> {
    let meta = Meta { id: format!("_design/{name}"), rev: document.revision.to_string() };
    let of = |operation| controller(bucket, &meta.id, operation);
    let controllers =
        Controllers { compact: of("compactView"), set_update_min_changes: of("setUpdateMinChanges") };
    let json = RawValue::from_string(document.text.as_str().to_owned())?;
    Ok(Row { doc: Doc { meta, json }, controllers })
}

/// A design document is no JSON, which it was when it was stored.
fn failed(error: &serde_json::Error) -> Refusal {
    reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &json!([error.to_string()])).into()
}
