//! Port 8092 while Settee has no views. Old clients insist on `couchApiBase` in configurations, so the port is open.
//!
//! Every answer is one that clients take as final. The Java client of 2014 repeats a request without a pause after a
//! 501, and after any 404 but one whose body names `not_found` together with `missing`.

use std::sync::Arc;

use axum::http::{Method, StatusCode, request::Parts};
use hyper::body::Incoming;
use serde_json::json;

use http::{
    BoxFuture, Connection, Surface,
    reply::{self, Reply},
};

/// What answers on 8092.
#[derive(Debug, Default)]
pub struct Views;

impl Surface for Views {
    fn answer(self: Arc<Self>, parts: Parts, _: Incoming, _: Connection) -> BoxFuture<'static, Reply> {
        Box::pin(async move { missing(&parts.method) })
    }
}

/// The view engine's answer for a design document that does not exist. A request that would create or remove one is
/// told why there is none.
fn missing(method: &Method) -> Reply {
    let reason = match *method {
        Method::GET | Method::HEAD | Method::POST => "missing",
        _ => "missing: views are not part of Settee yet",
    };
    reply::with_status(StatusCode::NOT_FOUND, &json!({ "error": "not_found", "reason": reason }))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    fn body(method: &Method) -> String {
        let reply = missing(method);
        assert_eq!(reply.status(), StatusCode::NOT_FOUND);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let bytes = runtime.block_on(to_bytes(reply.into_body(), 1024)).expect("a body");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[test]
    fn a_query_is_told_that_its_design_document_is_missing() {
        for method in [Method::GET, Method::POST] {
            assert_eq!(body(&method), r#"{"error":"not_found","reason":"missing"}"#);
        }
    }

    #[test]
    fn a_change_is_told_why_in_words_that_are_final_too() {
        for method in [Method::PUT, Method::DELETE] {
            let body = body(&method);
            assert!(
                body.contains("not_found") && body.contains("missing") && body.contains("views are not part"),
                "{body}"
            );
        }
    }
}
