//! From a request to its answer: which right it needs, whether its sender holds that, and what is told.

use std::sync::Arc;

use axum::http::{HeaderValue, Method, StatusCode, header, request::Parts};
use cluster::{
    Metadata,
    auth::{Domain, Identity, Privilege, privileges},
};
use http::{
    Admitted, Asked, AuditEvent, AuditKind, BoxFuture, Connection, Surface, permissions,
    reply::{self, Refusal, Reply},
};
use hyper::body::Incoming;
use serde_json::json;
use service::Context;

/// What a request without a login is asked for; clients of views match the body.
const CHALLENGE: &str = "Basic realm=\"capi\"";

/// What answers on both ports.
pub(crate) struct Views {
    context: Context,
}

impl Views {
    pub(crate) fn new(context: Context) -> Self {
        Self { context }
    }

    async fn handle(&self, parts: Parts, body: Incoming, from: Connection) -> Result<Reply, Refusal> {
        let asked = Asked::of(&parts)?;
        // The root is no bucket's, and says nothing about any.
        let Some(first) = asked.path.first() else { return Ok(missing(&parts.method)) };
        let Admitted { meta, user, .. } =
            self.context.front.admit(&asked, &parts.headers, body, &from).await?;
        let (bucket, needed) = (bucket(first), needed(&parts.method));
        if !holds(&meta, &user, bucket, needed) {
            return Err(self.refuse(user, needed, bucket, &asked, &from));
        }
        Ok(missing(&parts.method))
    }

    /// Refuses a sender without the right: nobody is asked for a password, somebody is told what is missing.
    fn refuse(
        &self,
        user: Identity,
        needed: Privilege,
        bucket: &str,
        asked: &Asked,
        from: &Connection,
    ) -> Refusal {
        let name = permissions::name(needed, Some(bucket));
        let refusal = match user.domain {
            Domain::Anonymous => reply::unauthorized(),
            _ => reply::forbidden(std::slice::from_ref(&name)),
        };
        self.context.gate.audit(AuditEvent {
            kind: AuditKind::AccessDenied,
            user,
            peer: Some(from.peer),
            subject: asked.path.join("/"),
            details: name,
        });
        refusal
    }
}

impl Surface for Views {
    fn answer(self: Arc<Self>, parts: Parts, body: Incoming, from: Connection) -> BoxFuture<'static, Reply> {
        Box::pin(async move {
            let mut reply = match self.handle(parts, body, from).await {
                Ok(reply) => reply,
                Err(Refusal(reply)) if reply.status() == StatusCode::UNAUTHORIZED => challenged(&reply),
                Err(Refusal(reply)) => *reply,
            };
            http::secure(&mut reply);
            reply
        })
    }
}

/// Whether a sender holds a right in a bucket. One that does not exist is nobody's, but for users with the right in every bucket:
/// only they hear that it does not exist.
fn holds(meta: &Metadata, user: &Identity, bucket: &str, needed: Privilege) -> bool {
    privileges(meta, user, Some(bucket)).has(needed)
}

/// The right that a request needs. A query by POST changes nothing.
fn needed(method: &Method) -> Privilege {
    match *method {
        Method::GET | Method::HEAD | Method::POST => Privilege::ViewsRead,
        _ => Privilege::ViewsWrite,
    }
}

/// The bucket that the first segment of a path names: alone, with its uuid as in `couchApiBase`, or as one of its vBuckets.
fn bucket(segment: &str) -> &str {
    segment.split(['+', '/']).next().unwrap_or_default()
}

/// The challenge of this port in place of REST's. A connection that has to end still does.
fn challenged(refused: &Reply) -> Reply {
    let body = json!({ "error": "unauthorized", "reason": "password required" });
    let mut reply = reply::with_status(StatusCode::UNAUTHORIZED, &body);
    let headers = reply.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
    if let Some(connection) = refused.headers().get(header::CONNECTION) {
        headers.insert(header::CONNECTION, connection.clone());
    }
    reply
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

    #[test]
    fn a_bucket_is_named_alone_with_its_uuid_or_as_a_vbucket() {
        for segment in ["b", "b+0123", "b/17", "b/master;0123"] {
            assert_eq!(bucket(segment), "b");
        }
    }

    #[test]
    fn a_query_by_post_needs_no_more_than_one_by_get() {
        assert_eq!(needed(&Method::POST), Privilege::ViewsRead);
        for method in [Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(needed(&method), Privilege::ViewsWrite);
        }
    }
}
