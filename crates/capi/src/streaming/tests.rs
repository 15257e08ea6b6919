//! Answers of nodes that are made up, put together into the bytes that a client gets.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};

use axum::body::to_bytes;
use base::{BucketUuid, VbId};
use service::Parts;
use tokio::runtime::Runtime;
use views::{
    collation::{encode, row_key},
    design::Signature,
    index::{
        Group, Item, NoFunctions, Partial, Reducing, Row, VbSet,
        wire::{AnswerWriter, Expected, Question},
    },
    js,
    query::{Parameters, Query},
    reduce::{Native, State},
};

use super::*;
use crate::queries::{
    fixture::{self, Home},
    here::{Holding, begin},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn pieces() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

fn query(text: &str) -> Arc<Query> {
    Arc::new(Parameters::parse(text, None).unwrap().query(true).unwrap())
}

fn place(key: &str, docid: &str) -> Vec<u8> {
    let (mut encoded, mut place) = (Vec::new(), Vec::new());
    encode(key, &mut encoded).unwrap();
    row_key(&encoded, docid, 0, &mut place);
    place
}

fn row(key: &str, docid: &str) -> Item {
    let (place, docid, key) = (place(key, docid), docid.to_owned(), key.to_owned());
    Item::Row(Row { place, vb: VbId(3), docid, key, value: "null".to_owned() })
}

fn group(key: &str, partial: Partial) -> Item {
    Item::Group(Group { place: place(key, "d"), key: key.to_owned(), partial })
}

fn counted(key: &str, rows: usize) -> Item {
    let mut state = State::new(Native::Count);
    for _ in 0..rows {
        state.add("null").unwrap();
    }
    group(key, Partial::Native(state))
}

/// The bytes of an answer with these items, of a view with so many rows.
fn written(total_rows: u64, items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = AnswerWriter::begin(total_rows, None, &mut out);
    items.iter().for_each(|item| writer.item(0, item, &mut out).unwrap());
    writer.end(&mut out);
    out
}

/// The answer of the node at `address`, as it comes.
fn there(
    address: &str,
    query: &Arc<Query>,
    reducing: Option<Reducing>,
    answer: Answer,
) -> (String, NodeAnswer) {
    let question = Question {
        bucket: BucketUuid("b".into()),
        design: "d".into(),
        signature: Signature([0; 16]),
        view: "v".into(),
        vbs: [VbId(3)].into_iter().collect::<VbSet>(),
        query: Arc::clone(query),
    };
    let remote = Remote::new(format!("http://{address}/_view_merge/"), Expected::of(&question, reducing));
    let address = address.to_owned();
    (address.clone(), NodeAnswer::There(Box::new(There { address, remote, answer })))
}

/// An answer that comes in parts of a few bytes, and ends like this.
fn comes(runtime: &Runtime, bytes: Vec<u8>, ends: Result<(), AskError>) -> Answer {
    Answer::made_by(runtime.handle(), |parts| async move {
        for part in bytes.chunks(11) {
            let gone = |_| AskError::BrokenOff("nobody takes it".into());
            parts.send(Bytes::copy_from_slice(part)).await.map_err(gone)?;
        }
        ends
    })
}

fn text(
    runtime: &Runtime,
    response: Response<NodeAnswer>,
    functions: impl Functions + Send + 'static,
) -> String {
    runtime.block_on(async {
        let bytes =
            to_bytes(body(response, functions, pieces(), (Wanted::default(), ())), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    })
}

const COUNT: Option<Reducing> = Some(Reducing::Native(Native::Count));

/// What this node has: two documents.
fn two_documents() -> Arc<Home> {
    let home = Home::serving(&[1]);
    home.state().add(1, "x", &["2"]);
    home.state().add(1, "y", &["4"]);
    home
}

/// What it answers with.
fn here(home: &Arc<Home>, text: &str) -> (String, NodeAnswer) {
    let (home, question) = (Arc::clone(home) as Arc<dyn Holding>, fixture::question(text, &[1]));
    let local = begin(&home, &question, Instant::now(), &|| true).ok().unwrap();
    ("local".to_owned(), NodeAnswer::Here(Box::new(local)))
}

#[test]
fn rows_of_all_nodes_come_in_order_and_are_counted_before_the_first() {
    let runtime = runtime();
    let text_of_query = "reduce=false&debug=true";
    let asked = query(text_of_query);
    let one = comes(&runtime, written(30, &[row("1", "a"), row("3", "b")]), Ok(()));
    let two = comes(&runtime, written(400, &[row("3", "a"), row("\"x\"", "a")]), Ok(()));
    let home = two_documents();
    let sources = [
        here(&home, text_of_query),
        there("one:8092", &asked, None, one),
        there("two:8092", &asked, None, two),
    ];
    let response = Response::new(&asked, sources, Some("{}".to_owned()));
    let row = |docid: &str, key: &str, vb: u16, node: &str, value: &str| {
        format!(r#"{{"id":"{docid}","key":{key},"partition":{vb},"node":"{node}","value":{value}}}"#)
    };
    let rows = [
        row("a", "1", 3, "one:8092", "null"),
        row("x", "2", 1, "local", "7"),
        row("a", "3", 3, "two:8092", "null"),
        row("b", "3", 3, "one:8092", "null"),
        row("y", "4", 1, "local", "7"),
        row("a", "\"x\"", 3, "two:8092", "null"),
    ];
    let expected =
        format!("{{\"debug_info\":{{}},\"total_rows\":432,\"rows\":[\r\n{}\r\n]\r\n}}\n", rows.join(",\r\n"));
    assert_eq!(text(&runtime, response, NoFunctions), expected);
}

#[test]
fn groups_of_nodes_are_counted_together() {
    let runtime = runtime();
    let text_of_query = "group=true&skip=1&limit=2";
    let asked = query(text_of_query);
    let one = comes(&runtime, written(9, &[counted("1", 2), counted("2.0", 5), counted("3", 1)]), Ok(()));
    let home = two_documents();
    let sources = [here(&home, text_of_query), there("one:8092", &asked, COUNT, one)];
    // The key is that of the first row, which is the other node's.
    let expected = "{\"rows\":[\r\n{\"key\":2.0,\"value\":6},\r\n{\"key\":3,\"value\":1}\r\n]\r\n}\n";
    assert_eq!(text(&runtime, Response::new(&asked, sources, None), NoFunctions), expected);
}

/// Joins what it is given.
struct Joins;

impl Functions for Joins {
    fn reduce(
        &mut self,
        function: usize,
        keys: Option<&[&str]>,
        values: &[&str],
    ) -> Result<String, js::Failure> {
        assert_eq!((function, keys), (4, None));
        Ok(values.join("+"))
    }
}

#[test]
fn a_function_reduces_what_several_nodes_have_of_a_group() {
    let runtime = runtime();
    let (asked, reducing) = (query("group=true"), Some(Reducing::Function(4)));
    let of = |key: &str, text: &str| group(key, Partial::Function(4, text.to_owned()));
    let one = comes(&runtime, written(9, &[of("1", "a"), of("2", "b")]), Ok(()));
    let two = comes(&runtime, written(9, &[of("2.0", "c")]), Ok(()));
    let sources = [there("one:8092", &asked, reducing, one), there("two:8092", &asked, reducing, two)];
    let expected = "{\"rows\":[\r\n{\"key\":1,\"value\":a},\r\n{\"key\":2,\"value\":b+c}\r\n]\r\n}\n";
    assert_eq!(text(&runtime, Response::new(&asked, sources, None), Joins), expected);
}

/// What a client gets where one node has two rows and the other fails, behind so many of its bytes, like this.
fn with_a_failure(text_of_query: &str, kept: usize, ends: Result<(), AskError>) -> String {
    let runtime = runtime();
    let asked = query(text_of_query);
    let mut bytes = written(400, &[row("2", "a"), row("4", "a")]);
    bytes.truncate(kept);
    let one = comes(&runtime, written(30, &[row("1", "a"), row("3", "b")]), Ok(()));
    let two = comes(&runtime, bytes, ends);
    let sources = [there("one:8092", &asked, None, one), there("two:8092", &asked, None, two)];
    text(&runtime, Response::new(&asked, sources, None), NoFunctions)
}

fn told(from: &str, reason: &str) -> String {
    format!("\"errors\":[\r\n{{\"from\":\"{from}\",\"reason\":\"{reason}\"}}\r\n]\r\n}}\n")
}

#[test]
fn a_node_that_fails_is_told_behind_the_rows_of_the_others() {
    let row = |docid: &str, key: &str| format!("{{\"id\":\"{docid}\",\"key\":{key},\"value\":null}}");
    let rows = |total: u64, rows: &[String]| {
        format!("{{\"total_rows\":{total},\"rows\":[\r\n{}\r\n],\r\n", rows.join(",\r\n"))
    };
    let (one, two, three) = (row("a", "1"), row("a", "2"), row("b", "3"));
    let timeout = || Err(AskError::TimedOut);
    let whole = written(400, &[self::row("2", "a")]).len() - 6;
    // Before it said anything: it is told where it is, and its rows are not counted.
    let failed = with_a_failure("reduce=false", 0, timeout());
    assert_eq!(failed, rows(30, &[one.clone(), three.clone()]) + &told("two:8092", "timeout"));
    // In the middle, by silence.
    let failed = with_a_failure("reduce=false", whole, Ok(()));
    let cut_short = told("http://two:8092/_view_merge/", "the other node's answer was cut short");
    assert_eq!(failed, rows(430, &[one.clone(), two.clone(), three]) + &cut_short);
    // The query stops there: behind rows that came, or without any.
    let failed = with_a_failure("reduce=false&on_error=stop", whole, timeout());
    assert_eq!(failed, rows(430, &[one, two]) + &told("two:8092", "timeout"));
    let failed = with_a_failure("reduce=false&on_error=stop", 0, timeout());
    assert_eq!(failed, format!("{{\"total_rows\":0,\"rows\":[]\r\n,\r\n{}", told("two:8092", "timeout")));
}

/// Goes on as long as it is asked to, and counts the bytes that it gave. Dropped, it says so.
async fn endless(parts: Parts, given: Arc<AtomicUsize>, left: Sender<()>) -> Result<(), AskError> {
    struct Leaves(Sender<()>);
    impl Drop for Leaves {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let _leaves = Leaves(left);
    let mut out = Vec::new();
    let mut writer = AnswerWriter::begin(1 << 40, None, &mut out);
    for number in 0_u64.. {
        writer.item(0, &row(&number.to_string(), "d"), &mut out).unwrap();
        if out.len() > 16 << 10 {
            let part = Bytes::from(std::mem::take(&mut out));
            given.fetch_add(part.len(), Ordering::SeqCst);
            parts.send(part).await.map_err(|gone| AskError::BrokenOff(gone.to_string()))?;
        }
    }
    Ok(())
}

#[test]
fn an_endless_answer_takes_little_memory_and_ends_with_its_client() {
    let runtime = runtime();
    let asked = query("reduce=false");
    let (given, (left, has_left)) = (Arc::new(AtomicUsize::new(0)), channel());
    let source = |name| {
        let (given, left) = (Arc::clone(&given), left.clone());
        let answer = Answer::made_by(runtime.handle(), |parts| endless(parts, given, left));
        there(name, &asked, None, answer)
    };
    let response = Response::new(&asked, [source("one"), source("two")], None);
    let mut body = Box::pin(body(response, NoFunctions, pieces(), (Wanted::default(), ())));
    let mut taken = 0;
    while taken < 4 << 20 {
        let piece = std::future::poll_fn(|context| body.as_mut().poll_frame(context));
        let piece = runtime.block_on(piece).unwrap().unwrap().into_data().unwrap();
        assert!(piece.len() < 2 * PIECE_BYTES, "{}", piece.len());
        taken += piece.len();
        // A row is longer for the client than on the way between nodes.
        let given = given.load(Ordering::SeqCst);
        assert!(given < taken + (256 << 10), "{given} given, {taken} taken");
    }
    drop(body);
    for _ in 0..2 {
        has_left.recv_timeout(PATIENCE).unwrap();
    }
}
