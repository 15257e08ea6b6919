//! The targets of the `views` crate. They take keys, parameters of queries, design documents, sources of functions and what
//! these make of documents. They also take frames of workers, and what nodes ask and answer one another.

#![allow(dead_code, reason = "every entry point compiles all targets and uses one")]

use std::sync::Arc;

use base::{BucketUuid, VbId};
use settee_views::{
    analysis, canonical, collation,
    design::{Compiler, DesignDocument, Invalid, Signature},
    index::{
        Item, Reducing, VbSet,
        wire::{AnswerReader, AnswerWriter, Event, Expected, Question},
    },
    js::{self, Functions, Limits, Sources},
    json,
    native::{Given, Programs},
    query::{Body, Parameters},
    reduce::Native,
    worker::wire::{FRAME_BYTES_MAX, Frames, Reply, Request},
};

/// Takes every function.
struct All;

impl Compiler for All {
    fn check(&mut self, _source: &str) -> Result<(), Invalid> {
        Ok(())
    }
}

/// A key of a view, as text and as bytes.
pub(super) fn view_key(bytes: &[u8]) {
    let _ = collation::split_row_key(bytes);
    let _ = collation::group_prefix(bytes, 2);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut encoded = Vec::new();
    let result = collation::encode(text, &mut encoded);
    assert_eq!(collation::check_bounded(text, 1 << 20), result);
    let is_key = result.is_ok();
    assert!(!is_key || json::check(text).is_ok());
    let middle = (0..=text.len() / 2).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (left, right) = text.split_at(middle);
    let _ = collation::compare(left, right);
    if !is_key {
        return;
    }
    assert_eq!(collation::group_prefix(&encoded, u64::MAX), Some(encoded.as_slice()));
    let mut row = Vec::new();
    collation::row_key(&encoded, "a\0b", 3, &mut row);
    let split = collation::split_row_key(&row).expect("a row that was just written");
    assert_eq!((split.key, split.docid.as_str(), split.ordinal), (encoded.as_slice(), "a\0b", 3));
    for level in 0..3 {
        let group = collation::group_text(text, level);
        assert_eq!(json::check(&group), Ok(()), "the key of a group is a key");
    }
}

/// A query string, and behind a zero byte the body of a POST request.
pub(super) fn view_query(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let Ok(text) = std::str::from_utf8(parts.next().unwrap_or_default()) else { return };
    let body = parts.next().map(|bytes| Body { content_type: Some("application/json"), bytes });
    let parameters = match Parameters::parse(text, body) {
        Ok(parameters) => parameters,
        Err(refusal) => return check_refusal(&refusal.body()),
    };
    for has_reduction in [false, true] {
        match parameters.query(has_reduction) {
            Err(refusal) => check_refusal(&refusal.body()),
            Ok(query) => assert!(has_reduction || query.grouping.is_none()),
        }
    }
}

fn check_refusal(body: &[u8]) {
    let text = std::str::from_utf8(body).expect("a body is text");
    assert_eq!(json::members(text).map(|members| members.len()), Some(2), "{text}");
}

/// A design document.
pub(super) fn view_design(bytes: &[u8]) {
    match DesignDocument::parse(bytes, &mut All) {
        Err(refusal) => check_refusal(&refusal.body()),
        Ok(document) => {
            assert_eq!(document.text.as_bytes(), bytes, "what was stored is given back");
            let mapped: usize = document.maps().iter().map(|map| map.views.len()).sum();
            assert_eq!(mapped, document.views.len());
            let _ = document.signature();
        }
    }
}

/// What a worker or the other side says.
pub(super) fn view_frame(bytes: &[u8]) {
    let mut frames = Frames::up_to(FRAME_BYTES_MAX);
    for part in bytes.chunks(7) {
        frames.push(part);
        while let Ok(Some(frame)) = frames.next_frame() {
            let (mut again, length) = (Vec::new(), frame.len() + 4);
            if let Ok(request) = Request::decode(frame) {
                request.encode(&mut again).expect("a frame that was read");
                assert_eq!(Request::decode(&again[4..]), Ok(request), "a request is what it was");
                assert_eq!(again.len(), length);
            }
            again.clear();
            if let Ok(reply) = Reply::decode(frame) {
                reply.encode(&mut again).expect("a frame that was read");
                assert_eq!(Reply::decode(&again[4..]), Ok(reply), "a reply is what it was");
            }
        }
    }
}

/// What a node asks another one.
pub(super) fn view_question(bytes: &[u8]) {
    if let Ok(question) = Question::decode(bytes) {
        assert_eq!(Question::decode(&question.encode()), Ok(question), "a question is what it was");
    }
}

/// What a node answers. The first byte says what it was asked.
pub(super) fn view_answer(bytes: &[u8]) {
    const ASKED: [(&str, Option<Reducing>); 6] = [
        ("reduce=false", None),
        ("reduce=false&descending=true", None),
        ("reduce=false&keys=[1,2]&limit=3", None),
        ("group=true", Some(Reducing::Native(Native::Count))),
        ("group_level=1", Some(Reducing::Function(2))),
        ("", Some(Reducing::Native(Native::Stats))),
    ];
    let Some((first, bytes)) = bytes.split_first() else { return };
    let (text, reducing) = ASKED[usize::from(*first) % ASKED.len()];
    let query = Parameters::parse(text, None).and_then(|parameters| parameters.query(true));
    let question = Question {
        bucket: BucketUuid("b".into()),
        design: "d".into(),
        signature: Signature([0; 16]),
        view: "v".into(),
        vbs: (0..1024).map(VbId).collect::<VbSet>(),
        query: Arc::new(query.expect("a query")),
    };
    let expected = || Expected::of(&question, reducing);
    let (head, items, ended) = read_answer(expected(), bytes);
    if !ended {
        return;
    }
    let mut again = Vec::new();
    let mut writer = AnswerWriter::begin(head.0, head.1.as_deref(), &mut again);
    items.iter().for_each(|(range, item)| writer.item(*range, item, &mut again).expect("it came in a frame"));
    writer.end(&mut again);
    let (same_head, same, ended) = read_answer(expected(), &again);
    // States may have doubles that equal nothing.
    let is_same = same_head == head && format!("{same:?}") == format!("{items:?}");
    assert!(ended && is_same, "an answer is what it was");
}

/// How many rows a view has, and what an index lacks.
type Head = (u64, Option<String>);

/// The head, the items, and whether that was a whole answer.
fn read_answer(expected: Expected, bytes: &[u8]) -> (Head, Vec<(usize, Item)>, bool) {
    let (mut head, mut items, mut ended) = ((0, None), Vec::new(), false);
    let mut reader = AnswerReader::new(expected);
    for part in bytes.chunks(7) {
        reader.push(part);
        while let Ok(Some(event)) = reader.next_event() {
            match event {
                Event::Head(rows, lacks) => head = (rows, lacks),
                Event::Item(range, item) => items.push((range, item)),
                Event::End => ended = true,
                Event::Failed(_) => {}
            }
        }
    }
    (head, items, ended && reader.close().is_ok())
}

/// A source of a function.
pub(super) fn view_source(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = analysis::need(text);
    let names = ["a", "b"].map(str::to_owned).into();
    if let Some(part) = canonical::projected(text, &names)
        && json::check(text).is_ok()
    {
        assert!(
            json::members(&part).is_some_and(|members| members.iter().all(|(name, _)| names.contains(name)))
        );
    }
    let stringified = canonical::stringified(text);
    assert!(stringified.is_none() || json::check(text).is_ok());
    if let Some(canonical) = stringified {
        assert_eq!(canonical::stringified(&canonical), Some(canonical), "it stays canonical");
    }
}

/// A document whose `meta` has its id and its type.
struct Fuzzed<'a>(&'a str);

const FUZZED_META: &str = "{\"id\":\"a\",\"type\":\"json\"}";

impl Given for Fuzzed<'_> {
    fn id(&self) -> &str {
        "a"
    }

    fn json(&self) -> Option<&str> {
        Some(self.0)
    }

    fn meta(&self) -> &str {
        FUZZED_META
    }
}

/// A source of a function, and behind a zero byte a document. Where a program says what the rows are, the engine says the same.
pub(super) fn view_program(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == 0).map(std::str::from_utf8);
    let (Some(Ok(source)), Some(Ok(text))) = (parts.next(), parts.next()) else { return };
    let sources = Sources { maps: vec![source.to_owned()], reduces: Vec::new() };
    let Some(programs) = Programs::of(&sources).filter(|_| json::check(text).is_ok()) else { return };
    let Some(rows) = programs.rows(&Fuzzed(text)) else { return };
    let mut functions = Functions::new(sources, Limits::default(), false).expect("a program is a function");
    let mapped = functions.map(&js::Document { meta: FUZZED_META, body: js::Body::Json(text) });
    assert_eq!(Ok(rows.into_iter().map(Ok).collect()), mapped.rows, "{source} over {text}");
}
