//! Functions on trial: they run on documents of the request before anybody depends on them. Nothing is stored.
//!
//! The sender has read the documents by its own rights, so the node reads none on its behalf. Functions run in a process that is
//! confined, with the engine and the `meta` of an index. Documents, rows, texts and time are bounded.

use std::{collections::BTreeMap, time::Duration};

use axum::body::Bytes;
use base::{hash::vbucket_of, limits::KEY_BYTES_MAX};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{BucketInfo, auth::Identity};
use serde_json::{Value, json};
use service::Context;
use views::{
    collation,
    design::Reduction,
    js::{Failure, FailureKind, Row, Sources},
    meta::Meta,
    reduce::{Native, State},
    refusal::Refusal,
    worker::{Job, OwnedBody, OwnedDocument, Report},
};

use crate::functions::{Elsewhere, Functions};

/// How long a trial may take.
const TIME: Duration = Duration::from_secs(15);
/// Documents of a trial.
const DOCUMENTS_MAX: usize = 100;
/// Rows that are told, and that are reduced by a function.
const ROWS_TOLD: usize = 1000;
/// Bytes of all rows. A trial that has more ends early, and says so.
const ROWS_BYTES_MAX: usize = 4 << 20;
/// What a row takes beside its texts, about.
const ROW_BYTES: usize = 100;
/// Different texts of errors and of what functions log, and the bytes of each.
const TEXTS_MAX: usize = 20;
const TEXT_BYTES_MAX: usize = 1000;
/// The functions' number for the process; there are no others.
const CONTEXT: u32 = 0;

/// Runs what a request asks for, and tells what became of it.
///
/// # Errors
/// The request is malformed, or a function is none.
pub(crate) async fn run(
    functions: &Functions,
    context: &Context,
    (user, info): (&Identity, &BucketInfo),
    body: Bytes,
) -> Result<Value, Refusal> {
    let vbuckets = info.vbs.len();
    let turn = functions.turn(user).await?;
    // The body is parsed there as well: it may be megabytes, and threads that serve everybody have no time for that.
    let work = move |elsewhere: &mut Elsewhere| {
        let asked = Asked::read(&body, vbuckets)?;
        drop(body);
        asked.run(elsewhere)
    };
    functions.with_process(context, &turn, TIME, work).await
}

/// A request for a trial.
struct Asked {
    /// A design document with the functions, for what checks those.
    design: Vec<u8>,
    documents: Vec<(String, OwnedDocument)>,
}

impl Asked {
    fn read(body: &[u8], vbuckets: usize) -> Result<Self, Refusal> {
        let malformed = |text: &str| Refusal::bad_request(text.to_owned());
        let asked: Value = serde_json::from_slice(body).map_err(|error| malformed(&error.to_string()))?;
        let documents = match asked.get("documents") {
            None => &[][..],
            Some(documents) => documents.as_array().ok_or_else(|| malformed("`documents' is no list."))?,
        };
        if documents.len() > DOCUMENTS_MAX {
            return Err(malformed(&format!("A trial has {DOCUMENTS_MAX} documents at most.")));
        }
        let mut view = serde_json::Map::new();
        for name in ["map", "reduce"] {
            if let Some(source) = asked.get(name).filter(|source| !source.is_null()) {
                view.insert(name.to_owned(), source.clone());
            }
        }
        let design = json!({ "views": { "trial": view } }).to_string().into_bytes();
        let documents = documents.iter().map(|shown| document(shown, vbuckets));
        let documents = documents.collect::<Option<_>>();
        let documents = documents.ok_or_else(|| {
            malformed("A document has `meta' with an `id' of 250 bytes at most, and its value in `json' or `base64', as in a list of documents.")
        })?;
        Ok(Self { design, documents })
    }

    /// Blocks until it is done.
    fn run(self, elsewhere: &mut Elsewhere) -> Result<Value, Refusal> {
        let design = elsewhere.parse(&self.design)?;
        let view =
            design.views.first().ok_or_else(|| Refusal::bad_request("There is no function to run."))?;
        let reduces = match &view.reduce {
            Some(Reduction::Function(source)) => vec![source.clone()],
            _ => Vec::new(),
        };
        elsewhere.define(CONTEXT, Sources { maps: vec![view.map.clone()], reduces });
        let mut outcome = Outcome::default();
        for (id, document) in self.documents {
            if outcome.bytes > ROWS_BYTES_MAX {
                outcome.stopped = true;
                break;
            }
            let job = Job::Map { context: CONTEXT, documents: vec![document] };
            let Some(report) = elsewhere.do_job(job)? else {
                outcome.stopped = true;
                break;
            };
            outcome.take(&id, report);
        }
        outcome.sort();
        let reduced = match &view.reduce {
            None => None,
            Some(reduction) => Some(outcome.reduced(reduction, elsewhere)?),
        };
        Ok(outcome.told(reduced))
    }
}

/// A document as a list of documents shows it.
fn document(shown: &Value, vbuckets: usize) -> Option<(String, OwnedDocument)> {
    let meta = shown.get("meta")?;
    // Each row of a document has a copy of its id.
    let id = meta.get("id")?.as_str().filter(|id| id.len() <= KEY_BYTES_MAX)?;
    let number = |name: &str| match meta.get(name) {
        None => Some(0),
        Some(value) => value.as_u64().and_then(|value| u32::try_from(value).ok()),
    };
    let (expiry, flags) = (number("expiration")?, number("flags")?);
    // The revision's number, and behind it the CAS.
    let rev = meta.get("rev").and_then(Value::as_str).unwrap_or_default();
    let (rev, rest) = rev.split_once('-').unwrap_or(("0", ""));
    let cas = rest.get(..16).and_then(|cas| u64::from_str_radix(cas, 16).ok()).unwrap_or(0);
    let body = match (shown.get("json"), shown.get("base64")) {
        (Some(json), _) => OwnedBody::Json(json.as_str()?.to_owned()),
        (None, Some(bytes)) => OwnedBody::Binary(STANDARD.decode(bytes.as_str()?).ok()?),
        (None, None) => return None,
    };
    let meta = Meta {
        id,
        rev: rev.parse().ok()?,
        cas,
        expiry,
        flags,
        seqno: 0,
        vb: vbucket_of(id.as_bytes(), u16::try_from(vbuckets).unwrap_or(u16::MAX).max(1)).get(),
        is_json: matches!(body, OwnedBody::Json(_)),
        deleted: false,
    };
    Some((id.to_owned(), OwnedDocument { meta: meta.text(std::iter::empty()), body }))
}

/// How often a text came, and with which document first.
type Texts = BTreeMap<String, (usize, String)>;

/// What became of all documents.
#[derive(Default)]
struct Outcome {
    rows: Vec<(String, Row)>,
    /// Of all rows.
    bytes: usize,
    documents: usize,
    failed: usize,
    errors: Texts,
    logs: Texts,
    /// It ended before all documents were tried.
    stopped: bool,
}

impl Outcome {
    fn take(&mut self, id: &str, report: Report) {
        self.documents += 1;
        let mapped = match report {
            Report::Mapped { mut documents, .. } if !documents.is_empty() => documents.swap_remove(0),
            Report::Failed(failure) => return self.fail(id, failure),
            _ => {
                return self
                    .fail(id, Failure::new(FailureKind::Ended, "the process answered another question"));
            }
        };
        for text in mapped.logs {
            count(&mut self.logs, &text, id);
        }
        // One function was asked.
        match mapped.rows.and_then(|views| views.into_iter().next().unwrap_or(Ok(Vec::new()))) {
            Ok(rows) => {
                let bytes = |row: &Row| ROW_BYTES + id.len() + row.key.len() + row.value.len();
                self.bytes += rows.iter().map(bytes).sum::<usize>();
                self.rows.extend(rows.into_iter().map(|row| (id.to_owned(), row)));
            }
            Err(failure) => self.fail(id, failure),
        }
    }

    fn fail(&mut self, id: &str, failure: Failure) {
        self.failed += 1;
        count(&mut self.errors, &failure.text, id);
    }

    /// Puts the rows into the order of a query.
    fn sort(&mut self) {
        self.rows.sort_by_cached_key(|(id, row)| {
            let mut key = Vec::new();
            // What is no key was emitted by nobody: it would come first.
            let _ = collation::encode(&row.key, &mut key);
            (key, id.clone())
        });
    }

    /// What the rows are reduced to, or why to nothing.
    fn reduced(&self, reduction: &Reduction, elsewhere: &mut Elsewhere) -> Result<Value, Refusal> {
        let native = match reduction {
            Reduction::Count => Native::Count,
            Reduction::Sum => Native::Sum,
            Reduction::Stats => Native::Stats,
            Reduction::Function(_) => return self.reduced_by_function(elsewhere),
        };
        let mut state = State::new(native);
        let wrong = self.rows.iter().find(|(_, row)| state.add(&row.value).is_err());
        Ok(match wrong {
            Some((id, _)) => {
                json!({ "error": format!("The value of a row of document {id} is not a number.") })
            }
            None => json!({ "rows": self.rows.len(), "value": state.text() }),
        })
    }

    fn reduced_by_function(&self, elsewhere: &mut Elsewhere) -> Result<Value, Refusal> {
        let rows = self.rows.get(..ROWS_TOLD).unwrap_or(&self.rows);
        let job = Job::Reduce {
            context: CONTEXT,
            function: 0,
            keys: Some(rows.iter().map(|(_, row)| row.key.clone()).collect()),
            values: rows.iter().map(|(_, row)| row.value.clone()).collect(),
        };
        Ok(match elsewhere.do_job(job)? {
            Some(Report::Reduced(Ok(text))) => json!({ "rows": rows.len(), "value": text }),
            Some(Report::Reduced(Err(failure)) | Report::Failed(failure)) => {
                json!({ "error": cut(&failure.text) })
            }
            Some(_) => json!({ "error": "the process answered another question" }),
            None => json!({ "error": "it takes too long" }),
        })
    }

    fn told(&self, reduced: Option<Value>) -> Value {
        let rows = self.rows.iter().take(ROWS_TOLD);
        let rows: Vec<_> =
            rows.map(|(id, row)| json!({ "id": id, "key": row.key, "value": row.value })).collect();
        let texts = |texts: &Texts| -> Value {
            let each =
                texts.iter().map(|(text, (count, id))| json!({ "text": text, "count": count, "id": id }));
            each.collect()
        };
        json!({
            "documents": self.documents,
            "failed": self.failed,
            "total_rows": self.rows.len(),
            "rows": rows,
            "errors": texts(&self.errors),
            "logs": texts(&self.logs),
            "reduced": reduced,
            "stopped": self.stopped,
        })
    }
}

fn count(texts: &mut Texts, text: &str, id: &str) {
    let text = cut(text);
    if texts.len() < TEXTS_MAX || texts.contains_key(text) {
        texts.entry(text.to_owned()).or_insert_with(|| (0, id.to_owned())).0 += 1;
    }
}

/// The beginning of a text.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use views::js::Mapped;

    use super::*;

    fn shown(id: &str) -> Value {
        let rev = "3-00000000000000ff0000000000000000";
        json!({ "meta": { "id": id, "rev": rev, "expiration": 0, "flags": 6 }, "json": "{\"a\":1}" })
    }

    #[test]
    fn a_document_is_given_to_functions_as_an_index_gives_it() {
        let (id, found) = document(&shown("a"), 1024).unwrap();
        assert_eq!((id.as_str(), &found.body), ("a", &OwnedBody::Json("{\"a\":1}".to_owned())));
        let meta: Value = serde_json::from_str(&found.meta).unwrap();
        assert_eq!(meta["rev"], "3-00000000000000ff0000000000000006");
        assert_eq!((&meta["type"], &meta["flags"]), (&json!("json"), &json!(6)));
        let binary = json!({ "meta": { "id": "b" }, "base64": "AAE=" });
        assert_eq!(document(&binary, 1024).unwrap().1.body, OwnedBody::Binary(vec![0, 1]));
        for wrong in [
            json!({}),
            json!({ "meta": { "id": "a" } }),
            json!({ "meta": { "id": 1 }, "json": "1" }),
            json!({ "meta": { "id": "x".repeat(KEY_BYTES_MAX + 1) }, "json": "1" }),
            json!({ "meta": { "id": "a", "flags": -1 }, "json": "1" }),
            json!({ "meta": { "id": "a" }, "base64": "?" }),
        ] {
            assert_eq!(document(&wrong, 1024), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_is_bounded() {
        let read = |value: &Value| {
            Asked::read(value.to_string().as_bytes(), 1024).map(|asked| asked.documents.len())
        };
        let many: Vec<_> = (0..=DOCUMENTS_MAX).map(|_| shown("a")).collect();
        assert_eq!(read(&json!({ "map": "x", "documents": many.get(1..) })), Ok(DOCUMENTS_MAX));
        assert_eq!(
            read(&json!({ "map": "x", "documents": many })).map_err(|refused| refused.status),
            Err(400)
        );
        assert_eq!(read(&json!({ "documents": 1 })).map_err(|refused| refused.status), Err(400));
    }

    #[test]
    fn rows_come_in_the_order_of_a_query_and_errors_are_counted() {
        let mut outcome = Outcome::default();
        let row = |key: &str| Row { key: key.to_owned(), value: "1".to_owned() };
        let mapped = |rows| Report::Mapped {
            first: 0,
            documents: vec![Mapped { rows: Ok(vec![rows]), logs: vec!["said".to_owned()] }],
            last: true,
        };
        outcome.take("b", mapped(Ok(vec![row("\"x\""), row("2")])));
        outcome.take("a", mapped(Ok(vec![row("2")])));
        outcome.take("c", mapped(Err(Failure::new(FailureKind::Thrown, "wrong"))));
        outcome.sort();
        let told = outcome.told(None);
        let ids: Vec<_> = outcome.rows.iter().map(|(id, row)| (id.as_str(), row.key.as_str())).collect();
        assert_eq!(ids, [("a", "2"), ("b", "2"), ("b", "\"x\"")]);
        assert_eq!(
            (&told["documents"], &told["failed"], &told["total_rows"]),
            (&json!(3), &json!(1), &json!(3))
        );
        assert_eq!(told["errors"], json!([{ "text": "wrong", "count": 1, "id": "c" }]));
        assert_eq!(told["logs"][0]["count"], 3);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "é".repeat(TEXT_BYTES_MAX);
        assert_eq!(cut(&text).len(), TEXT_BYTES_MAX);
        assert_eq!(cut("short"), "short");
    }
}
