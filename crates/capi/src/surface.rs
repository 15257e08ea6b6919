//! From a request to its answer: which right it needs, whether its sender holds that, and what is told.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Bytes,
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
};
use cluster::{
    BucketInfo, Metadata,
    auth::{Domain, Identity, Privilege, privileges},
};
use http::{
    Admitted, Asked, AuditEvent, AuditKind, Behind, BoxFuture, Connection, Operation, Rights, Surface,
    permissions,
    reply::{self, Refusal, Reply},
};
use hyper::body::Incoming;
use serde_json::json;
use service::Context;
use views::refusal::Refusal as Refused;

use crate::{
    answer::{self, JsonType},
    design::Request,
    functions::Functions,
    indexes::Indexes,
    newest::by_newest,
    operations,
    path::{DESIGN, Database, Target, redirected},
    queries::{self, OfNode, Queries},
    trial,
};

/// What a request without a login is asked for; clients of views match the body.
const CHALLENGE: &str = "Basic realm=\"capi\"";
/// The methods of design documents and of queries, in Couchbase's order.
const OF_DESIGN: &str = "DELETE,GET,HEAD,PUT";
const OF_VIEW: &str = "GET,POST,HEAD";
/// For this node to have heard of a design document that is to be compacted.
const FOLLOWS: Duration = Duration::from_secs(5);
/// The answer for a bucket of another kind.
const WITHOUT_VIEWS: &str = "views are supported only on couchbase buckets with couchstore storage backend";

/// What answers on both ports.
pub(crate) struct Views {
    context: Context,
    functions: Functions,
    indexes: Indexes,
    queries: Queries,
}

impl Views {
    pub(crate) fn new(context: Context, indexes: Indexes) -> Self {
        let queries = Queries::new(&context, Arc::new(OfNode(indexes.clone())));
        Self { context, functions: Functions::new(), indexes, queries }
    }

    /// What is asked, here and by other nodes.
    pub(crate) fn queries(&self) -> &Queries {
        &self.queries
    }

    async fn handle(&self, parts: Parts, body: Incoming, from: Connection) -> Result<Reply, Refusal> {
        let asked = Asked::of(&parts)?;
        let kind = JsonType::accepted(&parts.headers);
        // The root is no bucket's, and says nothing about any.
        let Some((first, rest)) = asked.path.split_first() else { return Ok(welcome(kind, &asked.method)) };
        let rights = InBucket {
            context: &self.context,
            needed: needed(&parts.method, Target::of(rest)),
            bucket: Database::of(first).bucket,
            asked: &asked,
            from: &from,
        };
        let admitted = self.context.front.admit(&asked, &rights, &parts.headers, body, &from).await?;
        Ok(self.tell(&parts, &asked.path, admitted, &from, PortKind::Own).await)
    }

    /// Answers a request that was admitted.
    async fn tell(
        &self,
        parts: &Parts,
        path: &[String],
        Admitted { meta, user, body }: Admitted,
        from: &Connection,
        port: PortKind,
    ) -> Reply {
        let kind = JsonType::accepted(&parts.headers);
        let Some((first, rest)) = path.split_first() else { return welcome(kind, &parts.method) };
        if matches!(parts.method, Method::GET | Method::HEAD)
            && let Some(location) = redirected(&parts.uri)
        {
            return answer::moved(&location);
        }
        let (database, target) = (Database::of(first), Target::of(rest));
        let judged = (&meta, &user);
        let asked =
            |meta: Arc<Metadata>| self.asked(meta, judged, (database, target), (parts, &body), (from, port));
        // A change was judged by metadata that are new enough, and is made once. Some things no metadata have.
        let is_change = needed(&parts.method, target) != Privilege::ViewsRead;
        let told = if is_change || database.is_vbucket || target == Target::Nothing {
            asked(Arc::clone(&meta)).await
        } else {
            let timeout = queries::timeout(target, parts, &body);
            by_newest(&*self.context.gate, &meta, timeout, asked).await
        };
        told.unwrap_or_else(|refused| answer::refused(kind, &refused))
    }

    /// Answers by these metadata. `judged`: those by which the request was admitted, and its sender.
    async fn asked(
        &self,
        meta: Arc<Metadata>,
        judged: (&Arc<Metadata>, &Identity),
        (database, target): (Database<'_>, Target<'_>),
        (parts, body): (&Parts, &Bytes),
        (from, port): (&Connection, PortKind),
    ) -> Result<Reply, Refused> {
        let (judged_by, user) = judged;
        let is_judged = Arc::ptr_eq(&meta, judged_by)
            || privileges(&meta, user, Some(database.bucket)).has(needed(&parts.method, target));
        if !is_judged {
            return Err(answer::right_was_taken());
        }
        let info = find(&meta, &database)?;
        let kind = JsonType::accepted(&parts.headers);
        let (context, uuid, bucket) = (&self.context, info.uuid.clone(), database.bucket);
        let request = Request { context, user, from, kind, bucket, uuid, name: "" };
        self.answer(request, info, target, parts, body.clone(), port).await
    }

    async fn answer(
        &self,
        request: Request<'_>,
        info: &BucketInfo,
        target: Target<'_>,
        parts: &Parts,
        body: Bytes,
        port: PortKind,
    ) -> Result<Reply, Refused> {
        let kind = request.kind;
        match (target, parts.method.as_str()) {
            (Target::Design(name), "GET" | "HEAD") => Request { name, ..request }.get(info),
            (Target::Design(name), "PUT") => {
                Request { name, ..request }.put(&self.functions, &parts.headers, body).await
            }
            (Target::Design(name), "DELETE") => Request { name, ..request }.delete(&self.functions).await,
            (Target::Design(_), _) => Ok(answer::method_not_allowed(kind, OF_DESIGN)),
            (Target::View(design, view), "GET" | "HEAD" | "POST") => {
                let Request { user, from, bucket, .. } = request;
                let (local, may_redirect) = (from.local, port == PortKind::Own);
                let asked =
                    queries::Request { user, local, kind, bucket, design, view, parts, body, may_redirect };
                self.queries.answer(info, asked).await
            }
            (Target::View(..), _) => Ok(answer::method_not_allowed(kind, OF_VIEW)),
            (Target::Handler(name, handler @ ("_info" | "_errors")), "GET" | "HEAD") => {
                Request { name, ..request }.require(info)?;
                let meta = self.context.gate.metadata();
                let told = match handler {
                    "_info" => self.indexes.info(&meta, &info.uuid, name).await,
                    _ => self.indexes.errors(&meta, &info.uuid, name).await,
                };
                Ok(answer::with_json(kind, StatusCode::OK, &told))
            }
            (Target::Handler(name, handler), _) => {
                Request { name, ..request }.require(info)?;
                Err(answer::not_found(format!("missing handler: {handler}")))
            }
            (Target::Trial, "POST") => {
                let (context, user) = (request.context, request.user);
                let told = trial::run(&self.functions, context, (user, info), body).await?;
                Ok(answer::with_json(kind, StatusCode::OK, &told))
            }
            (Target::Trial, _) => Ok(answer::method_not_allowed(kind, "POST")),
            (Target::Attachment, _) => Err(Refused::bad_request("attachments not supported in Couchbase")),
            (Target::AllDocuments, _) => Err(Refused::bad_request("_all_docs is no longer supported")),
            (Target::Nothing, _) => Err(answer::not_found("missing")),
        }
    }
}

impl Views {
    /// Carries out an operation on the index of a design document, whose sender has the right to it.
    async fn carry_out(&self, operation: Operation, admitted: Admitted, from: &Connection) -> Reply {
        let Operation { name, bucket, object: id } = operation;
        let Admitted { meta, user, body } = admitted;
        let Some(info) = meta.buckets.get(&bucket).filter(|info| info.may_have_views()) else {
            return reply::with_status(StatusCode::BAD_REQUEST, &json!({ "error": "no_ddocs_service" }));
        };
        match name.as_str() {
            "compactView" | "cancelViewCompaction" => {
                // An index of a design document that was stored a moment ago is known here soon, and mostly is by now.
                let _ = tokio::time::timeout(FOLLOWS, self.indexes.caught_up(&meta)).await;
                operations::compact(&*self.context.nodes, &meta, info, &id, name == "compactView").await
            }
            "setUpdateMinChanges" => {
                let kind = JsonType::JSON;
                let name = id.strip_prefix(DESIGN).unwrap_or(&id);
                let (context, uuid) = (&self.context, info.uuid.clone());
                let request = Request { context, user: &user, from, kind, bucket: &bucket, uuid, name };
                request.set_update_min_changes(info, &body).await
            }
            _ => reply::not_found(),
        }
    }
}

/// By which ports a request has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortKind {
    /// Those of views.
    Own,
    /// Those of REST. A browser there can follow nobody to another port.
    Rest,
}

impl Behind for Views {
    fn answer_admitted(
        self: Arc<Self>,
        parts: Parts,
        path: Vec<String>,
        admitted: Admitted,
        from: Connection,
    ) -> BoxFuture<'static, Reply> {
        Box::pin(async move { self.tell(&parts, &path, admitted, &from, PortKind::Rest).await })
    }

    fn operate(
        self: Arc<Self>,
        operation: Operation,
        admitted: Admitted,
        from: Connection,
    ) -> BoxFuture<'static, Reply> {
        Box::pin(async move { self.carry_out(operation, admitted, &from).await })
    }
}

/// The right that a request needs, in its bucket.
struct InBucket<'a> {
    context: &'a Context,
    needed: Privilege,
    bucket: &'a str,
    asked: &'a Asked,
    from: &'a Connection,
}

impl Rights for InBucket<'_> {
    /// The sender does not hold the right. A bucket that does not exist is nobody's, but for users with the right in every bucket: only
    /// they hear that it does not exist.
    type Lack = ();

    fn lacks(&self, meta: &Metadata, user: &Identity) -> Option<()> {
        (!privileges(meta, user, Some(self.bucket)).has(self.needed)).then_some(())
    }

    /// A query may be a `POST`, and changes nothing.
    fn check_alone(&self, _body: &[u8]) -> Result<(), Refusal> {
        if self.needed == Privilege::ViewsRead { Ok(()) } else { Err(reply::unsure()) }
    }

    /// A sender without a login is asked for a password, a user is told what is missing.
    fn refuse(&self, user: &Identity, (): ()) -> Refusal {
        let name = permissions::name(self.needed, Some(self.bucket));
        let refusal = match user.domain {
            Domain::Anonymous => reply::unauthorized(),
            _ => reply::forbidden(std::slice::from_ref(&name)),
        };
        self.context.gate.audit(AuditEvent {
            kind: AuditKind::AccessDenied,
            user: user.clone(),
            peer: Some(self.from.peer),
            subject: self.asked.path.join("/"),
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

/// The bucket that a path names, if it may have views. Its vBuckets are no databases here.
fn find<'m>(meta: &'m Metadata, database: &Database<'_>) -> Result<&'m BucketInfo, Refused> {
    let info = meta.buckets.get(database.bucket).ok_or_else(|| answer::not_found("missing"))?;
    if database.uuid.is_some_and(|uuid| uuid != info.uuid.0) {
        return Err(answer::not_found("uuids_dont_match"));
    }
    if !info.may_have_views() {
        return Err(answer::not_found(WITHOUT_VIEWS));
    }
    if database.is_vbucket { Err(answer::not_found("missing")) } else { Ok(info) }
}

/// The right that a request needs. A query by POST changes nothing. Functions are run for senders that might store them.
fn needed(method: &Method, target: Target<'_>) -> Privilege {
    match (method, target) {
        (_, Target::Trial) => Privilege::ViewsWrite,
        (&Method::GET | &Method::HEAD | &Method::POST, _) => Privilege::ViewsRead,
        _ => Privilege::ViewsWrite,
    }
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

/// What the port is, for anybody.
fn welcome(kind: JsonType, method: &Method) -> Reply {
    match *method {
        Method::GET => answer::with_json(kind, StatusCode::OK, &json!({ "couchdb": "Welcome" })),
        _ => answer::method_not_allowed(kind, "GET,HEAD"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_by_post_needs_no_more_than_one_by_get() {
        let view = Target::View("x", "y");
        assert_eq!(needed(&Method::POST, view), Privilege::ViewsRead);
        assert_eq!(needed(&Method::POST, Target::Trial), Privilege::ViewsWrite);
        for method in [Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(needed(&method, view), Privilege::ViewsWrite);
        }
    }
}
