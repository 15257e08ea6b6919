//! Design documents over HTTP: what is stored is given back as it came, and what is answered is known to every node.

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use base::BucketUuid;
use cluster::{
    Applied, BucketInfo, ClusterError, Command, DesignDocument, DesignDocumentChange, Revision,
    auth::{Identity, Privilege, privileges},
    design_documents,
};
use http::{
    AuditEvent, AuditKind, Connection, Gate, form,
    reply::{self, Reply},
};
use serde_json::{Value, json};
use service::{Changes, Context};
use views::refusal::Refusal;

use crate::{
    answer::{self, JsonType},
    functions::Functions,
    operations,
    path::DESIGN,
};

/// A request for a design document.
pub(crate) struct Request<'a> {
    pub(crate) context: &'a Context,
    pub(crate) user: &'a Identity,
    pub(crate) from: &'a Connection,
    pub(crate) kind: JsonType,
    pub(crate) bucket: &'a str,
    /// Of the bucket that was found under that name.
    pub(crate) uuid: BucketUuid,
    /// Without `_design/`.
    pub(crate) name: &'a str,
}

impl Request<'_> {
    /// Shows it.
    pub(crate) fn get(&self, info: &BucketInfo) -> Result<Reply, Refusal> {
        let document = self.find(info).map_err(answer::not_found)?;
        let id = self.id();
        let meta = json!({ "id": id, "rev": document.revision.to_string(), "type": "json" }).to_string();
        let mut reply = answer::with_text(JsonType::JSON, StatusCode::OK, document.text.as_str().to_owned());
        if let Ok(meta) = HeaderValue::from_str(&escaped(&meta)) {
            reply.headers_mut().insert("X-Couchbase-Meta", meta);
        }
        Ok(reply)
    }

    /// What is below it needs it to be there.
    pub(crate) fn require(&self, info: &BucketInfo) -> Result<(), Refusal> {
        self.find(info).map(drop).map_err(answer::not_found)
    }

    /// Creates or replaces it.
    pub(crate) async fn put(
        &self,
        functions: &Functions,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Reply, Refusal> {
        if !is_json(headers) {
            return Err(Refusal::design("Content is not json."));
        }
        design_documents::check(self.name, body.len()).map_err(answer::not_changed)?;
        let turn = functions.turn(self.user).await?;
        functions.check(self.context, &turn, body.clone()).await?;
        let text =
            String::from_utf8(body.to_vec()).map_err(|error| Refusal::bad_request(error.to_string()))?;
        self.change(Some(text), None, ("stored", Privilege::ViewsWrite)).await?;
        let mut reply = answer::done(self.kind, StatusCode::CREATED, &self.id());
        let location = format!("/{}/{DESIGN}{}", form::escaped(self.bucket), form::escaped(self.name));
        if let Ok(location) = HeaderValue::from_str(&location) {
            reply.headers_mut().insert(header::LOCATION, location);
        }
        Ok(reply)
    }

    /// Deletes it.
    pub(crate) async fn delete(&self, functions: &Functions) -> Result<Reply, Refusal> {
        let _turn = functions.turn(self.user).await?;
        self.change(None, None, ("deleted", Privilege::ViewsWrite)).await?;
        Ok(answer::done(self.kind, StatusCode::OK, &self.id()))
    }

    /// Sets how many changes its index waits for, which is stored and has no effect.
    pub(crate) async fn set_update_min_changes(&self, info: &BucketInfo, body: &[u8]) -> Reply {
        let wrong = |body: Value| reply::with_status(StatusCode::BAD_REQUEST, &body);
        let Ok(document) = self.find(info) else {
            return wrong(json!({ "_": "Design document not found" }));
        };
        let Some(form) = form::Form::parse(body) else { return wrong(json!({ "_": "Malformed form data" })) };
        let (text, options) = match operations::with_changes(&document.text, &form) {
            Ok(changed) => changed,
            Err(errors) => return wrong(errors),
        };
        if let Err(refused) = design_documents::check(self.name, text.len()).map_err(answer::not_changed) {
            return answer::refused(self.kind, &refused);
        }
        // The text is made from what the node knows, and must not bring that back.
        let over = self.context.gate.metadata().knows_replaced_revisions().then_some(document.revision);
        match self.change(Some(text), over, ("options", Privilege::ViewsCompact)).await {
            Ok(()) => reply::json_ok(&options.into()),
            Err(refused) => answer::refused(self.kind, &refused),
        }
    }

    /// `over`: the revision that it may replace, where it may replace no other one.
    async fn change(
        &self,
        text: Option<String>,
        over: Option<Revision>,
        (what, needed): (&str, Privilege),
    ) -> Result<(), Refusal> {
        self.judge_again(needed)?;
        let mut lot = [0; 4];
        getrandom::fill(&mut lot).map_err(|error| answer::failed(format!("no randomness: {error}")))?;
        let change = DesignDocumentChange {
            bucket: self.bucket.to_owned(),
            name: self.name.to_owned(),
            text,
            lot: u32::from_be_bytes(lot),
            over,
        };
        let event = AuditEvent {
            kind: AuditKind::ViewsChanged,
            user: self.user.clone(),
            peer: Some(self.from.peer),
            subject: format!("{}/{}", self.bucket, self.id()),
            details: what.to_owned(),
        };
        let (changes, gate) = (Arc::clone(&self.context.changes), Arc::clone(&self.context.gate));
        let place = Arc::clone(&self.from.place);
        let changed = see_through(changes, gate, Command::ChangeDesignDocument(change), event, place).await;
        changed.map(drop).map_err(answer::not_changed)
    }

    /// A change may have waited for long: the sender has lost the right since, or there is another bucket of that name.
    fn judge_again(&self, needed: Privilege) -> Result<(), Refusal> {
        let meta = self.context.gate.metadata();
        if !privileges(&meta, self.user, Some(self.bucket)).has(needed) {
            return Err(answer::right_was_taken());
        }
        let is_there = meta.buckets.get(self.bucket).is_some_and(|info| info.uuid == self.uuid);
        if is_there { Ok(()) } else { Err(answer::not_found("missing")) }
    }

    /// The design document, or how it is not there.
    fn find<'b>(&self, info: &'b BucketInfo) -> Result<&'b DesignDocument, &'static str> {
        let documents = &info.design_documents;
        let why = if documents.was_deleted(self.name) { "deleted" } else { "missing" };
        documents.get(self.name).ok_or(why)
    }

    fn id(&self) -> String {
        format!("{DESIGN}{}", self.name)
    }
}

/// Has the cluster agree on a change, and tells auditors how that ended. Both go on when the client goes: the change may be made all the
/// same. Until then the connection keeps its place, so that clients who come and go have no more changes under way than connections.
async fn see_through(
    changes: Arc<dyn Changes>,
    gate: Arc<dyn Gate>,
    command: Command,
    event: AuditEvent,
    place: impl Send + 'static,
) -> Result<Applied, ClusterError> {
    let seen = tokio::spawn(async move {
        let _place = place;
        let ended = changes.change(command).await;
        if let Some(event) = event.of_end(&ended) {
            gate.audit(event);
        }
        ended
    });
    seen.await.unwrap_or_else(|panicked| Err(ClusterError::Failed(panicked.to_string())))
}

/// Whether a body says that it is JSON, with parameters or without.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// JSON that fits into a header: what is not ASCII is escaped.
fn escaped(json: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() && !character.is_ascii_control() {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use cluster::Metadata;
    use http::BoxFuture;
    use tokio::sync::oneshot;

    use super::*;

    /// A cluster that agrees when it is told to.
    struct Slow(Mutex<Option<oneshot::Receiver<Result<Applied, ClusterError>>>>);

    impl Changes for Slow {
        fn change(&self, _: Command) -> BoxFuture<'_, Result<Applied, ClusterError>> {
            let agreed = self.0.lock().unwrap().take().unwrap();
            Box::pin(async { agreed.await.unwrap() })
        }
    }

    struct Auditors(Mutex<mpsc::Sender<AuditEvent>>);

    impl Gate for Auditors {
        fn metadata(&self) -> Arc<Metadata> {
            unreachable!("nothing is judged")
        }

        fn audit(&self, event: AuditEvent) {
            self.0.lock().unwrap().send(event).unwrap();
        }
    }

    /// What auditors hear of a change whose client has gone before it ended like this, and whether the client's place was kept so long.
    async fn told(ended: Result<Applied, ClusterError>) -> Option<String> {
        let (agree, agreed) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let event = AuditEvent {
            kind: AuditKind::ViewsChanged,
            user: Identity::anonymous(),
            peer: None,
            subject: "app/_design/d".into(),
            details: "stored".into(),
        };
        let place = Arc::new(());
        let command = Command::SetClusterName("any".into());
        let (changes, gate) =
            (Arc::new(Slow(Mutex::new(Some(agreed)))), Arc::new(Auditors(Mutex::new(tell))));
        let asked = Arc::clone(&changes);
        let request = tokio::spawn(see_through(changes, gate, command, event, Arc::clone(&place)));
        while asked.0.lock().unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&place), 2, "the connection is still counted");
        agree.send(ended).unwrap();
        while Arc::strong_count(&place) > 1 {
            tokio::task::yield_now().await;
        }
        told.recv().ok().map(|event| event.details)
    }

    #[tokio::test]
    async fn a_change_whose_client_has_gone_is_audited_when_it_ends() {
        assert_eq!(told(Ok(Applied::Done)).await.as_deref(), Some("stored"));
        let doubtful = told(Err(ClusterError::Failed("nobody has said so in time".into()))).await;
        assert_eq!(doubtful.as_deref(), Some("stored (asked for, outcome not known)"));
        assert_eq!(told(Err(ClusterError::NotSupported("refused".into()))).await, None);
    }

    #[test]
    fn names_of_all_kinds_fit_into_a_header() {
        let meta = json!({ "id": "_design/é\u{1f600}\u{7f}\n\"" }).to_string();
        let told = escaped(&meta);
        assert_eq!(told, r#"{"id":"_design/\u00e9\ud83d\ude00\u007f\n\""}"#);
        assert!(HeaderValue::from_str(&told).is_ok());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&told).ok(), serde_json::from_str(&meta).ok());
    }

    #[test]
    fn a_body_is_json_by_its_type() {
        let of = |kind: &'static str| {
            is_json(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        assert!(of("application/json") && of("Application/JSON; charset=utf-8"));
        assert!(!of("application/jsonx") && !of("text/plain") && !is_json(&HeaderMap::new()));
    }
}
