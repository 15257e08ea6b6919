//! Responses, and what becomes of refusals.
//!
//! Clients match the literal bodies here. gocb takes `Requested resource not found.` for a missing bucket. `couchbase-cli` shows
//! `errors` objects and bare lists, and loses the body of a 501.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use cluster::{ClusterError, FieldErrors, auth::TooManyAttempts};
use serde_json::{Value, json};

/// A response.
pub type Reply = Response<Body>;
/// A response, or one that ends the handling early.
pub type Outcome = Result<Reply, Refusal>;

/// A response that ends the handling early.
#[derive(Debug)]
pub struct Refusal(pub Box<Reply>);

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self(Box::new(reply))
    }
}

impl From<ClusterError> for Refusal {
    fn from(error: ClusterError) -> Self {
        use ClusterError as E;
        let text = error.to_string();
        let underscore = |status| with_status(status, &json!({ "errors": { "_": text } }));
        let reply = match error {
            E::Invalid(errors) => with_status(StatusCode::BAD_REQUEST, &json!({ "errors": errors })),
            E::BucketNotFound => not_found(),
            E::ScopeNotFound(_) | E::CollectionNotFound(..) | E::DesignDocumentNotFound { .. } => {
                underscore(StatusCode::NOT_FOUND)
            }
            E::ScopeExists(_)
            | E::CollectionExists(..)
            | E::CollectionsRefused(_)
            | E::DesignDocumentRefused(_)
            | E::PasswordNotChangeable
            | E::AlreadyInitialized
            | E::MembersRefused(_) => underscore(StatusCode::BAD_REQUEST),
            E::UserNotFound | E::GroupNotFound | E::NodeNotFound => {
                with_status(StatusCode::NOT_FOUND, &json!(text))
            }
            E::NotSupported(_) => return not_supported(&text),
            E::Failed(_) => underscore(StatusCode::INTERNAL_SERVER_ERROR),
        };
        reply.into()
    }
}

/// 200 with JSON.
pub fn json_ok(value: &Value) -> Reply {
    with_status(StatusCode::OK, value)
}

/// JSON with a status.
pub fn with_status(status: StatusCode, value: &Value) -> Reply {
    with_body(status, "application/json", value.to_string().into())
}

/// 200 without a body.
pub fn empty_ok() -> Reply {
    with_body(StatusCode::OK, "text/html", Body::empty())
}

/// Plain text with a status.
pub fn text(status: StatusCode, body: impl Into<String>) -> Reply {
    with_body(status, "text/plain", Body::from(body.into()))
}

/// Any body with a status.
pub fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache,no-store,must-revalidate"));
    headers.insert(header::SERVER, HeaderValue::from_static("Settee"));
    reply
}

/// 404 as for every path that is not known.
pub fn not_found() -> Reply {
    text(StatusCode::NOT_FOUND, "Requested resource not found.\r\n")
}

/// 405.
pub fn method_not_allowed() -> Reply {
    text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
}

/// 429 for a login that is not checked, with the seconds after which it is.
pub fn too_many_attempts(refused: TooManyAttempts) -> Refusal {
    let seconds = refused.wait_millis.div_ceil(1000);
    let text = format!("Too many logins from this address have failed. Try again in {seconds} s.");
    let mut reply = with_status(StatusCode::TOO_MANY_REQUESTS, &json!({ "message": text }));
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    reply.into()
}

/// 429 for a user who holds all the connections that one user may have; this one ends with it.
pub fn too_many_connections() -> Refusal {
    let text = "This user has too many connections. Close some of them, or share one.";
    let mut reply = with_status(StatusCode::TOO_MANY_REQUESTS, &json!({ "message": text }));
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply.into()
}

/// 503 for a change at a node that cannot say what the cluster has agreed on.
pub fn unsure() -> Refusal {
    let text =
        "This node cannot say at the moment what the cluster has agreed on. Nothing was changed. Try again.";
    with_status(StatusCode::SERVICE_UNAVAILABLE, &json!({ "errors": { "_": text } })).into()
}

/// 400 with refusals by parameter.
pub fn invalid(errors: &FieldErrors) -> Refusal {
    with_status(StatusCode::BAD_REQUEST, &json!({ "errors": errors })).into()
}

/// 400 with one refusal of a parameter.
pub fn invalid_field(name: &str, text: impl Into<String>) -> Refusal {
    ClusterError::field(name, text).into()
}

/// 400 with a text that `couchbase-cli` shows.
pub fn bad_request(text: &str) -> Refusal {
    with_status(StatusCode::BAD_REQUEST, &json!([text])).into()
}

/// What a request is told that asks for something which is not built. 400 and a list, because `couchbase-cli` shows
/// that text and drops the body of a 501.
pub fn not_supported(reason: &str) -> Refusal {
    bad_request(reason)
}

/// 501 with a machine-readable reason, where no tool of Couchbase's would lose it.
pub fn not_implemented(reason: &str) -> Reply {
    with_status(StatusCode::NOT_IMPLEMENTED, &json!({ "error": "not_implemented", "reason": reason }))
}

/// 401, with the challenge that makes browsers and tools ask for a password.
pub fn unauthorized() -> Refusal {
    let mut reply = text(StatusCode::UNAUTHORIZED, "");
    let challenge = HeaderValue::from_static("Basic realm=\"Couchbase Server Admin / REST\"");
    reply.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    reply.into()
}

/// 401 for the console, which asks for the password itself: without the challenge that makes a browser ask.
pub fn session_over() -> Refusal {
    text(StatusCode::UNAUTHORIZED, "").into()
}

/// 403, naming the permissions that would have helped.
pub fn forbidden(permissions: &[String]) -> Refusal {
    let body = json!({
        "message": "Forbidden. User needs the following permissions", "permissions": permissions,
    });
    with_status(StatusCode::FORBIDDEN, &body).into()
}
