//! Answers on the ports of views, in the words and with the headers that clients match.
//!
//! Every answer to a sender with the right is one that clients take as final. The Java client of 2014 repeats a request without a
//! pause after a 501, and after most 404s. It takes a 404 as final only where the body has `not_found` together with `missing` or
//! `deleted`. So a 404 with another reason has one more member, which is named `missing`. Later Java clients repeat a query where the
//! reason itself is `missing`. All clients take 400 as final.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use cluster::ClusterError;
use http::reply::{self, Reply};
use serde_json::{Value, json};
use views::refusal::Refusal;

/// The type of a JSON answer, as the request's `Accept` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonType(&'static str);

impl JsonType {
    pub(crate) const JSON: Self = Self("application/json");

    /// JSON is called JSON only where exactly that is listed. Browsers show everything else as text.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let lists_json = |value: &str| value.split([',', ' ']).any(|token| token == Self::JSON.0);
        if accepted.any(lists_json) { Self::JSON } else { Self("text/plain;charset=utf-8") }
    }
}

/// An answer that keeps caches from giving it out unasked.
pub(crate) fn with_text(kind: JsonType, status: StatusCode, text: impl Into<Body>) -> Reply {
    let mut reply = reply::with_body(status, kind.0, text.into());
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    reply
}

pub(crate) fn with_json(kind: JsonType, status: StatusCode, value: &Value) -> Reply {
    with_text(kind, status, format!("{value}\n"))
}

/// What was done to a design document.
pub(crate) fn done(kind: JsonType, status: StatusCode, id: &str) -> Reply {
    with_text(kind, status, format!("{{\"ok\":true,\"id\":{}}}\n", json!(id)))
}

/// The answer to a refused request.
pub(crate) fn refused(kind: JsonType, refusal: &Refusal) -> Reply {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let says_so = ["missing", "deleted"].iter().any(|word| refusal.reason.contains(word));
    if status == StatusCode::NOT_FOUND && !says_so {
        let (error, reason) = (refusal.error, &refusal.reason);
        return with_json(kind, status, &json!({ "error": error, "reason": reason, "missing": true }));
    }
    with_text(kind, status, refusal.body())
}

/// 405; `allowed` are the methods that there are.
pub(crate) fn method_not_allowed(kind: JsonType, allowed: &'static str) -> Reply {
    let body = json!({ "error": "method_not_allowed", "reason": format!("Only {allowed} allowed") });
    let mut reply = with_json(kind, StatusCode::METHOD_NOT_ALLOWED, &body);
    reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// 301.
pub(crate) fn moved(location: &str) -> Reply {
    let mut reply = with_text(JsonType("text/plain"), StatusCode::MOVED_PERMANENTLY, Body::empty());
    if let Ok(location) = HeaderValue::from_str(location) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}

/// 302 to another node: this one serves no vBucket of the bucket.
pub(crate) fn no_vbuckets(kind: JsonType, location: &str) -> Reply {
    let reason = "Cannot execute view query since the node has no active vbuckets";
    let mut reply =
        with_json(kind, StatusCode::FOUND, &json!({ "error": "no_active_vbuckets", "reason": reason }));
    if let Ok(location) = HeaderValue::from_str(location) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}

pub(crate) fn not_found(reason: impl Into<String>) -> Refusal {
    Refusal { status: 404, error: "not_found", reason: reason.into() }
}

/// Why the cluster has not agreed on a change.
pub(crate) fn not_changed(error: ClusterError) -> Refusal {
    match error {
        ClusterError::BucketNotFound => not_found("missing"),
        ClusterError::DesignDocumentNotFound { .. } => not_found(error.to_string()),
        ClusterError::DesignDocumentRefused(reason) => Refusal::design(reason),
        ClusterError::MembersRefused(reason) | ClusterError::NotSupported(reason) => {
            Refusal::bad_request(reason)
        }
        error => failed(error.to_string()),
    }
}

/// The sender has lost the right since the request was admitted.
pub(crate) fn right_was_taken() -> Refusal {
    let reason = "The right to this was taken meanwhile.";
    Refusal { status: 403, error: "forbidden", reason: reason.into() }
}

/// What the sender has no part in.
pub(crate) fn failed(reason: String) -> Refusal {
    Refusal { status: 500, error: "error", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_called_so_only_for_those_that_list_it() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            JsonType::accepted(&headers).0
        };
        for json in
            [&["application/json"][..], &["text/html, application/json"], &["*/*", "application/json"]]
        {
            assert_eq!(of(json), "application/json", "{json:?}");
        }
        for other in [&[][..], &["*/*"], &["application/json;q=0.9"], &["application/jsonx"]] {
            assert_eq!(of(other), "text/plain;charset=utf-8", "{other:?}");
        }
    }

    fn body(refusal: &Refusal) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let body = refused(JsonType::JSON, refusal).into_body();
        let bytes = runtime.block_on(axum::body::to_bytes(body, 1024)).expect("a body");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn whatever_is_not_found_is_so_for_good_to_the_oldest_clients() {
        for reason in ["missing", "deleted", "Design document _design/x not found", "uuids_dont_match"] {
            let body = body(&not_found(reason));
            assert!(body.contains("not_found"), "{body}");
            assert!(body.contains("missing") || body.contains("deleted"), "{body}");
            assert!(body.contains(&format!("\"reason\":\"{reason}\"")), "{body}");
        }
        assert_eq!(body(&not_found("missing")), "{\"error\":\"not_found\",\"reason\":\"missing\"}\n");
    }

    #[test]
    fn refusals_by_the_cluster_are_final() {
        let status = |error| not_changed(error).status;
        assert_eq!(status(ClusterError::BucketNotFound), 404);
        assert_eq!(not_changed(ClusterError::DesignDocumentNotFound { deleted: true }), not_found("deleted"));
        assert_eq!(status(ClusterError::DesignDocumentRefused("too long".into())), 400);
        assert_eq!(status(ClusterError::MembersRefused("an older node".into())), 400);
    }
}
