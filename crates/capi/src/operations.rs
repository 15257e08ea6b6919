//! Operations on the index of a design document, which REST's port takes: compacting it, and how often it is brought up to date.
//!
//! A compaction is asked of all nodes, each of which compacts what it has. Their names and answers are Couchbase's: neither says whether
//! a design document of that name is there.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use base::BucketUuid;
use cluster::{BucketInfo, Metadata, NodeInfo};
use http::{
    BoxFuture,
    form::Form,
    reply::{self, Reply},
};
use serde_json::{Map, Value, json};
use service::{Answers, Nodes, Parts};
use tokio::task::JoinSet;
use views::json;

use crate::{indexes::Indexes, path::DESIGN};

/// How such a question to a node begins. Questions about rows begin with the version of their format, which is far from it.
const ORDER: u8 = 0xc0;
/// What a node answers that has done what it was asked.
const DONE: &[u8] = b"done";
/// For another node to say that it has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a design document may say about how often its index is brought up to date.
const CHANGES: [&str; 2] = ["updateMinChanges", "replicaUpdateMinChanges"];

/// An order to compact an index, or to go no further with that.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    compacts: bool,
    bucket: BucketUuid,
    /// Without `_design/`.
    name: String,
}

impl Order {
    fn encode(&self) -> Bytes {
        let Self { compacts, bucket, name } = self;
        let text = format!("{}\0{name}", bucket.0);
        [&[ORDER, u8::from(*compacts)], text.as_bytes()].concat().into()
    }

    /// The order that these bytes are, if they are one.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[ORDER, compacts], text) = bytes.split_first_chunk()? else { return None };
        let (bucket, name) = std::str::from_utf8(text).ok()?.split_once('\0')?;
        Some(Self { compacts: compacts != 0, bucket: BucketUuid(bucket.to_owned()), name: name.to_owned() })
    }
}

/// What answers other nodes: their orders, and everything else as before.
pub(crate) struct Answering {
    pub(crate) rows: Arc<dyn Answers>,
    pub(crate) indexes: Indexes,
}

impl Answers for Answering {
    fn answer(&self, question: Bytes, parts: Parts) -> BoxFuture<'static, Result<(), String>> {
        if question.first() != Some(&ORDER) {
            return self.rows.answer(question, parts);
        }
        let indexes = self.indexes.clone();
        Box::pin(async move {
            let order = Order::decode(&question).ok_or("the order cannot be read")?;
            // A bucket that is not open here has nothing to be compacted.
            if let Some(indexes) = indexes.of(&order.bucket) {
                indexes.indexer().compact(&order.name, order.compacts);
            }
            parts.send(Bytes::from_static(DONE)).await.map_err(|gone| gone.to_string())
        })
    }
}

/// Has all nodes compact the index of a design document, or go no further with that.
pub(crate) async fn compact(
    nodes: &dyn Nodes,
    meta: &Metadata,
    info: &BucketInfo,
    id: &str,
    compacts: bool,
) -> Reply {
    let name = id.strip_prefix(DESIGN).unwrap_or(id).to_owned();
    let order = Order { compacts, bucket: info.uuid.clone(), name }.encode();
    let mut asked = JoinSet::new();
    for node in meta.active_nodes() {
        let (mut answer, called) = (nodes.ask(node.id, order.clone(), PATIENCE), NodeInfo::called(node));
        asked.spawn(async move {
            let is_done = matches!(answer.next().await, Ok(Some(part)) if part == DONE);
            (!is_done).then_some(called)
        });
    }
    let absent: Vec<String> = asked.join_all().await.into_iter().flatten().collect();
    if absent.is_empty() {
        return reply::with_body(StatusCode::OK, "application/json", Body::empty());
    }
    let text = format!("These nodes have not done that: {}", absent.join(", "));
    reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &json!([text]))
}

/// A design document with these figures in its options, and the options. A figure that the form does not have goes.
///
/// # Errors
/// The answer for a form with a figure that is none, and for a text that is no object.
pub(crate) fn with_changes(text: &str, form: &Form) -> Result<(String, Map<String, Value>), Value> {
    let members =
        json::members(text).ok_or_else(|| json!({ "_": "The design document is no JSON object" }))?;
    let options = members.iter().rev().find(|(name, _)| name == "options").map(|(_, value)| *value);
    let mut options: Map<String, Value> =
        options.and_then(|options| serde_json::from_str(options).ok()).unwrap_or_default();
    let mut errors = Map::new();
    for name in CHANGES {
        options.remove(name);
        match form.get(name).map(number) {
            None => {}
            Some(Ok(number)) => drop(options.insert(name.to_owned(), number.into())),
            // As in Couchbase, the last one counts.
            Some(Err(why)) => {
                errors = Map::from_iter([(name.to_owned(), format!("Invalid {name}: {why}").into())])
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors.into());
    }
    let mut out = b"{\"options\":".to_vec();
    out.extend_from_slice(Value::from(options.clone()).to_string().as_bytes());
    for (name, value) in members.iter().filter(|(name, _)| name != "options") {
        out.push(b',');
        json::write_string(name, &mut out);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    let text = String::from_utf8(out).map_err(|error| json!({ "_": error.to_string() }))?;
    Ok((text, options))
}

/// A number that is not negative, or Couchbase's word for what is wrong with it.
fn number(text: &str) -> Result<u64, &'static str> {
    match text.trim().parse::<i64>() {
        Ok(number) => u64::try_from(number).map_err(|_| "too_small"),
        Err(_) => Err("invalid"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Form {
        Form::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn orders_are_read_as_they_were_written_and_are_no_other_questions() {
        for compacts in [true, false] {
            let order = Order { compacts, bucket: BucketUuid("0123".into()), name: "é/x".into() };
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        for bytes in [&b""[..], b"\xc0", b"\xc0\x01abc", b"\x01\x01a\0b", b"\xc0\x01\xff\0b"] {
            assert_eq!(Order::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn figures_go_into_the_options_and_the_rest_stays_as_it_was_stored() {
        let text = r#"{ "views" : {"v":{"map":"function(d){}"}}, "options":{"updateMinChanges":7,"y":1.0}, "é":[1.0]}"#;
        let (changed, options) = with_changes(text, &form("replicaUpdateMinChanges=0")).unwrap();
        assert_eq!(Value::from(options), json!({ "y": 1.0, "replicaUpdateMinChanges": 0 }));
        assert_eq!(
            changed,
            r#"{"options":{"replicaUpdateMinChanges":0,"y":1.0},"views":{"v":{"map":"function(d){}"}},"é":[1.0]}"#
        );
        let (_, options) = with_changes("{}", &form("updateMinChanges=12&other=x")).unwrap();
        assert_eq!(Value::from(options), json!({ "updateMinChanges": 12 }));
    }

    #[test]
    fn nothing_is_made_of_a_text_that_is_no_object() {
        for text in ["[1]", "{\"views\":"] {
            assert!(with_changes(text, &form("updateMinChanges=1")).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_figure_is_told() {
        for (text, wrong) in [
            ("updateMinChanges=x", json!({ "updateMinChanges": "Invalid updateMinChanges: invalid" })),
            ("updateMinChanges=-1", json!({ "updateMinChanges": "Invalid updateMinChanges: too_small" })),
            (
                "updateMinChanges=x&replicaUpdateMinChanges=1.5",
                json!({ "replicaUpdateMinChanges": "Invalid replicaUpdateMinChanges: invalid" }),
            ),
        ] {
            assert_eq!(with_changes("{}", &form(text)), Err(wrong), "{text}");
        }
    }
}
