//! Documents below a bucket, in the forms of Couchbase's console: lists of keys, and one document to read, write or delete.
//!
//! This node asks the node that has the active copy, which may be itself. While the copy is on its way to another node, it asks
//! again for a moment. Each time the request is judged anew by the right over documents of the collection. Meanwhile the right may have been
//! withdrawn, or there may be another bucket of that name.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
};
use base::{NodeId, VbId, hash::vbucket_of};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{BucketInfo, ClusterError};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, Reply, json_ok},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use crate::{
    node::documents::{
        Document, DocumentAct, DocumentAnswer, DocumentQuestion, DocumentRefusal, KeyRange, Octets, Version,
    },
    request::{Call, figures::question},
};

/// Where nodes ask one another.
const PATH: &str = "/_settee/documents";
/// The flags by which clients know JSON.
const JSON_FLAGS: u32 = 0x0200_0006;
/// Keys of a list, those that are skipped included.
const KEYS_MAX: usize = 10_000;
/// Documents of a list, where it has them.
const DOCUMENTS_MAX: usize = 100;
/// Bytes of the documents of a list, as they are stored.
const LIST_BYTES_MAX: usize = 32 << 20;
/// KiB of answers with large documents that clients have not taken yet. Beyond that a node sends no further one: a client could ask
/// for a document on many connections, and read none of the answers.
const HELD_KIB_MAX: usize = 128 << 10;
static HELD: Semaphore = Semaphore::const_new(HELD_KIB_MAX);
/// Documents that take less are always sent.
const SMALL_BYTES: usize = 64 << 10;
/// For how long a copy that is on its way is looked for, and how long until the next look.
const PATIENCE: Duration = Duration::from_millis(2_500);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A request below `docs` of a collection, or of a bucket's default collection.
pub(super) async fn dispatch(call: &Call, bucket: &str, names: (&str, &str), key: Option<&str>) -> Outcome {
    // A collection that is not there is no matter of what the request has besides.
    collection(call.bucket(bucket)?, names)?;
    let place = Place { call, bucket, names };
    match (key, &call.method) {
        (None, _) => list(&place).await,
        (Some(key), &Method::GET) => {
            let document = place.read(key).await?;
            place.audit_read(key);
            let held = hold(document.value.0.len())?;
            Ok(send(&shown(key, &document), held))
        }
        (Some(key), method) => {
            let act = if *method == Method::DELETE { removal(call, key)? } else { write(call, key)? };
            // Before it is done: it may stay unknown whether it was.
            call.audit(
                AuditKind::DocumentChanged,
                &format!("{bucket}/{}/{}/{key}", names.0, names.1),
                method.as_str(),
            );
            let answer = place.ask(key.as_bytes(), act).await?;
            let mut reply = json_ok(&json!([]));
            if let DocumentAnswer::Done(cas) = answer
                && let Ok(tag) = format!("\"{cas}\"").parse()
            {
                reply.headers_mut().insert(axum::http::header::ETAG, tag);
            }
            Ok(reply)
        }
    }
}

/// `POST /_settee/documents`: what another node has done here.
pub(super) async fn answer(call: &Call) -> Outcome {
    let question: DocumentQuestion =
        serde_json::from_slice(&call.body).map_err(|error| reply::bad_request(&error.to_string()))?;
    let answer = call.api.control.documents(question).await?;
    let answer = serde_json::to_value(answer).map_err(|error| reply::bad_request(&error.to_string()))?;
    Ok(json_ok(&answer))
}

/// The number of a collection.
fn collection(info: &BucketInfo, (scope, collection): (&str, &str)) -> Result<u32, Refusal> {
    let found = info.manifest.scope(scope).ok_or_else(|| ClusterError::ScopeNotFound(scope.into()))?;
    let found = found.collections.iter().find(|known| known.name == collection);
    let missing = || ClusterError::CollectionNotFound(scope.into(), collection.into());
    Ok(found.ok_or_else(missing)?.id.get())
}

/// A collection, on behalf of a request.
struct Place<'a> {
    call: &'a Call,
    bucket: &'a str,
    /// Scope and collection.
    names: (&'a str, &'a str),
}

impl Place<'_> {
    async fn read(&self, key: &str) -> Result<Document, Refusal> {
        let act = DocumentAct::Read(Octets(key.as_bytes().to_vec()));
        match self.ask(key.as_bytes(), act).await? {
            DocumentAnswer::Document(document) => Ok(document),
            _ => Err(refused(DocumentRefusal::NotHere)),
        }
    }

    /// Takes note that a document was read.
    fn audit_read(&self, key: &str) {
        let (bucket, (scope, collection)) = (self.bucket, self.names);
        self.call.audit(AuditKind::DocumentRead, &format!("{bucket}/{scope}/{collection}/{key}"), "");
    }

    /// Has the node that has a key's active copy do something.
    async fn ask(&self, key: &[u8], act: DocumentAct) -> Result<DocumentAnswer, Refusal> {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = self.call.anew()?;
            let info = now.bucket(self.bucket)?;
            let vb = vbucket_of(key, u16::try_from(info.vbs.len()).unwrap_or(u16::MAX).max(1));
            let owner = info.vbs.get(usize::from(vb.get())).and_then(|plan| plan.chain.first());
            let answer = match owner {
                Some(&owner) => put(&now, owner, &self.question(info, act.clone())?).await?,
                None => DocumentAnswer::Refused(DocumentRefusal::NotHere),
            };
            match answer {
                DocumentAnswer::Refused(DocumentRefusal::NotHere) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                DocumentAnswer::Refused(refusal) => return Err(refused(refusal)),
                answer => return Ok(answer),
            }
        }
    }

    /// The first keys of the whole collection, in order.
    async fn keys(&self, range: &KeyRange) -> Result<Vec<Octets>, Refusal> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.keys_at_once(range).await? {
                Ok(keys) => return Ok(keys),
                Err(DocumentRefusal::NotHere) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_AGAIN).await
                }
                Err(refusal) => return Err(refused(refusal)),
            }
        }
    }

    async fn keys_at_once(&self, range: &KeyRange) -> Result<Result<Vec<Octets>, DocumentRefusal>, Refusal> {
        let now = self.call.anew()?;
        let info = now.bucket(self.bucket)?;
        let mut by_node: BTreeMap<NodeId, Vec<u16>> = BTreeMap::new();
        for (vb, plan) in (0_u16..).map(VbId).zip(info.vbs.iter()) {
            match plan.chain.first() {
                Some(&owner) => by_node.entry(owner).or_default().push(vb.get()),
                None => return Ok(Err(DocumentRefusal::NotHere)),
            }
        }
        let mut all = Vec::new();
        for (node, vbs) in by_node {
            let act = DocumentAct::List(KeyRange { vbs, ..range.clone() });
            match put(&now, node, &self.question(info, act)?).await? {
                DocumentAnswer::Keys(keys) => all.extend(keys),
                DocumentAnswer::Refused(refusal) => return Ok(Err(refusal)),
                DocumentAnswer::Document(_) | DocumentAnswer::Done(_) => {
                    return Ok(Err(DocumentRefusal::NotHere));
                }
            }
        }
        all.sort_unstable();
        all.truncate(range.limit);
        Ok(Ok(all))
    }

    /// What is asked about a bucket. Another bucket of that name has other numbers for its collections.
    fn question(&self, info: &BucketInfo, act: DocumentAct) -> Result<DocumentQuestion, Refusal> {
        Ok(DocumentQuestion {
            bucket: self.bucket.to_owned(),
            uuid: info.uuid.clone(),
            collection: collection(info, self.names)?,
            act,
        })
    }
}

/// Puts a question to a node, or answers it where that is this one.
async fn put(call: &Call, node: NodeId, asked: &DocumentQuestion) -> Result<DocumentAnswer, Refusal> {
    let control = &call.api.control;
    let Some(info) = call.meta.node_by_id(node) else {
        return Ok(DocumentAnswer::Refused(DocumentRefusal::NotHere));
    };
    if info.uuid == control.this_node() {
        return Ok(control.documents(asked.clone()).await?);
    }
    let body = serde_json::to_vec(asked).map_err(|error| reply::bad_request(&error.to_string()))?;
    let (status, body) = control.call_node(question(info, PATH, body)).await?;
    if status != 200 {
        let text =
            format!("The node {} has answered {status}. Try again when it runs this version.", info.host);
        return Err(ClusterError::Failed(text).into());
    }
    let unread = |error: serde_json::Error| ClusterError::Failed(format!("{}: {error}", info.host));
    Ok(serde_json::from_slice(&body).map_err(unread)?)
}

/// `POST`: a form with `value`, and `flags`, `expiry` and `cas` where they are wanted.
fn write(call: &Call, key: &str) -> Result<DocumentAct, Refusal> {
    let form = call.form()?;
    let flags = number(&form, "flags")?.unwrap_or(JSON_FLAGS);
    let over = match number::<u64>(&form, "cas")? {
        Some(0) => Some(Version::None),
        other => other.map(Version::Cas),
    };
    Ok(DocumentAct::Write {
        key: Octets(key.as_bytes().to_vec()),
        value: Octets(form.get("value").unwrap_or_default().as_bytes().to_vec()),
        flags,
        expiry: number(&form, "expiry")?,
        over,
    })
}

fn removal(call: &Call, key: &str) -> Result<DocumentAct, Refusal> {
    let cas = number(&call.query, "cas")?.unwrap_or(0);
    Ok(DocumentAct::Remove { key: Octets(key.as_bytes().to_vec()), cas })
}

fn number<T: std::str::FromStr>(form: &Form, name: &str) -> Result<Option<T>, Refusal> {
    let read = |text: &str| {
        text.parse().map_err(|_| bad_request(&format!("'{name}' must be a valid positive integer")))
    };
    form.get(name).map(read).transpose()
}

/// `GET …/docs`: `startkey` and `endkey` are JSON strings.
async fn list(place: &Place<'_>) -> Outcome {
    let query = &place.call.query;
    let key = |name: &str| match query.get(name).map(serde_json::from_str::<String>) {
        None => Ok(None),
        Some(Ok(key)) => Ok(Some(Octets(key.into_bytes()))),
        Some(Err(_)) => Err(bad_request("bad request")),
    };
    let count = |name: &str, standard: usize| match query.get(name).map(str::parse) {
        None => Ok(standard),
        Some(Ok(count)) => Ok(count),
        Some(Err(_)) => Err(bad_request("bad request")),
    };
    let is_on = |name: &str, standard: bool| match query.get(name) {
        None => Ok(standard),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(bad_request("bad request")),
    };
    let includes = is_on("include_docs", false)?;
    let (skip, limit) = (count("skip", 0)?, count("limit", if includes { DOCUMENTS_MAX } else { 1000 })?);
    let end_included = is_on("inclusive_end", true)?;
    if skip.saturating_add(limit) > KEYS_MAX || (includes && limit > DOCUMENTS_MAX) {
        let text = format!("A list has {KEYS_MAX} keys at most, and {DOCUMENTS_MAX} documents.");
        return Err(bad_request(&text));
    }
    let range = KeyRange {
        vbs: Vec::new(),
        from: key("startkey")?.unwrap_or_default(),
        to: key("endkey")?.map(|end| (end, end_included)),
        limit: skip + limit,
    };
    let keys = place.keys(&range).await?;
    let (mut rows, mut bytes, mut held) = (Vec::new(), 0, None);
    for Octets(key) in keys.into_iter().skip(skip) {
        let key = String::from_utf8_lossy(&key).into_owned();
        if !includes {
            rows.push(json!({ "id": key }));
        } else if let Ok(document) = place.read(&key).await {
            place.audit_read(&key);
            bytes += document.value.0.len();
            if bytes > LIST_BYTES_MAX {
                let most = LIST_BYTES_MAX >> 20;
                let text = format!("The documents take more than {most} MiB. Ask for fewer: set 'limit'.");
                return Err(bad_request(&text));
            }
            held = hold_more(held, bytes)?;
            rows.push(json!({ "id": key, "doc": shown(&key, &document) }));
        }
    }
    Ok(send(&json!({ "rows": rows }), held))
}

/// Has an answer with so many bytes of documents counted, before it is made.
fn hold(bytes: usize) -> Result<Option<SemaphorePermit<'static>>, Refusal> {
    hold_more(None, bytes)
}

/// The same for an answer that grows: it has so many bytes by now, and what is held for it already counts.
fn hold_more(
    held: Option<SemaphorePermit<'static>>,
    bytes: usize,
) -> Result<Option<SemaphorePermit<'static>>, Refusal> {
    if bytes < SMALL_BYTES {
        return Ok(held);
    }
    // As base64 has them.
    let kib = u32::try_from((bytes / 3 * 4).div_ceil(1 << 10)).unwrap_or(u32::MAX);
    let more = kib.saturating_sub(held.as_ref().map_or(0, |held| held.num_permits() as u32));
    let more = HELD.try_acquire_many(more).map_err(|_| {
        let reason = "Too many large documents are on their way to clients. Try again later.";
        Refusal::from(failed(StatusCode::SERVICE_UNAVAILABLE, "temporary_failure", reason))
    });
    let mut all = more?;
    if let Some(held) = held {
        all.merge(held);
    }
    Ok(Some(all))
}

/// An answer that counts until the client has taken it.
fn send(value: &Value, held: Option<SemaphorePermit<'static>>) -> Reply {
    struct Permitted(
        String,
        #[expect(dead_code, reason = "it ends with the answer")] SemaphorePermit<'static>,
    );
    impl AsRef<[u8]> for Permitted {
        fn as_ref(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }
    let text = value.to_string();
    let body = match held {
        Some(held) => Bytes::from_owner(Permitted(text, held)),
        None => text.into(),
    };
    reply::with_body(StatusCode::OK, "application/json", body.into())
}

/// A document as Couchbase's console reads it. `settee` has the CAS, which a write can name.
fn shown(key: &str, document: &Document) -> Value {
    let Document { cas, rev, flags, expiry, .. } = document;
    let mut shown = json!({
        "meta": {
            "id": key, "rev": format!("{rev}-{cas:016x}{expiry:08x}{flags:08x}"), "expiration": expiry, "flags": flags,
        },
        "settee": { "cas": cas.to_string() },
    });
    match std::str::from_utf8(&document.value.0) {
        Ok(text) if document.is_json => shown["json"] = text.into(),
        _ => shown["base64"] = STANDARD.encode(&document.value.0).into(),
    }
    shown
}

fn failed(status: StatusCode, error: &str, reason: &str) -> Reply {
    reply::with_status(status, &json!({ "error": error, "reason": reason }))
}

fn bad_request(reason: &str) -> Refusal {
    failed(StatusCode::BAD_REQUEST, "bad_request", reason).into()
}

fn refused(refusal: DocumentRefusal) -> Refusal {
    use DocumentRefusal as R;
    match refusal {
        R::Missing => reply::not_found(),
        R::OtherVersion => {
            let reason = "The document has changed since it was read. Read it again.";
            failed(StatusCode::CONFLICT, "conflict", reason)
        }
        R::NotHere => {
            failed(StatusCode::SERVICE_UNAVAILABLE, "max_retry", "could not get consistent vbucket map")
        }
        R::NotSupported => failed(StatusCode::NOT_IMPLEMENTED, "memcached_error", "not_supported"),
        R::Busy(reason) => failed(StatusCode::SERVICE_UNAVAILABLE, "temporary_failure", &reason),
        // No fault of the request's. A proxy must not repeat it: it may be done already.
        R::Ambiguous(reason) => failed(StatusCode::INTERNAL_SERVER_ERROR, "memcached_error", &reason),
        R::Refused(reason) => failed(StatusCode::BAD_REQUEST, "bad_request", &reason),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_sender_has_done_wrong_is_the_senders_fault() {
        use DocumentRefusal as R;
        let status = |refusal| refused(refusal).0.status().as_u16();
        let text = || "why".to_owned();
        assert_eq!(status(R::Ambiguous(text())), 500);
        assert_eq!(status(R::Busy(text())), 503);
        assert_eq!(status(R::NotHere), 503);
        assert_eq!(status(R::NotSupported), 501);
        assert_eq!(status(R::OtherVersion), 409);
        assert_eq!(status(R::Missing), 404);
        assert_eq!(status(R::Refused(text())), 400);
    }

    #[test]
    fn what_grows_is_counted_as_it_grows_and_no_more_than_there_are_places_for() {
        let permits = |held: &Option<SemaphorePermit<'_>>| held.as_ref().map_or(0, |held| held.num_permits());
        let mut held = hold_more(None, SMALL_BYTES - 1).ok().unwrap();
        assert_eq!(permits(&held), 0, "small");
        for mib in [3, 6, 6, 9] {
            held = hold_more(held, mib << 20).ok().unwrap();
            assert_eq!(permits(&held), mib * 1024 / 3 * 4);
        }
        assert!(hold_more(held, HELD_KIB_MAX << 10).is_err());
        assert_eq!(HELD.available_permits(), HELD_KIB_MAX, "what was held is free again");
    }
}
