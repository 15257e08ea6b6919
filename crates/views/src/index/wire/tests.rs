//! Random questions and answers go and come back, and every way to cut or mix up an answer is noticed.

use std::sync::Arc;

use base::{BucketUuid, VbId};
use fastrand::Rng;

use super::*;
use crate::{
    collation::{encode, row_key},
    design::Signature,
    index::{Group, Item, NoFunctions, Partial, Pull, Reducing, Row, Source, SourceError, VbSet},
    query::{Grouping, OnError, Parameters, Query, Range, Stale},
    reduce::{Native, State},
};

fn bytes(random: &mut Rng) -> Vec<u8> {
    (0..random.usize(..6)).map(|_| random.u8(..)).collect()
}

fn number(random: &mut Rng) -> u64 {
    random.u64(..) >> random.u32(..64)
}

fn random_question(random: &mut Rng) -> Question {
    let range = |random: &mut Rng| {
        let lower = bytes(random);
        let mut upper = if random.bool() { lower.clone() } else { Vec::new() };
        upper.extend(bytes(random));
        Range { lower, upper: random.bool().then_some(upper) }
    };
    let groupings = [None, Some(Grouping::All), Some(Grouping::Exact), Some(Grouping::Level(number(random)))];
    Question {
        bucket: BucketUuid(format!("{:x}", number(random))),
        design: ["dev_é", "", "a/b"][random.usize(..3)].to_owned(),
        signature: Signature(random.u128(..).to_be_bytes()),
        view: "view".to_owned(),
        vbs: (0..random.usize(..200)).map(|_| VbId(random.u16(..1024))).collect(),
        query: Arc::new(Query {
            ranges: (0..random.usize(..4)).map(|_| range(random)).collect(),
            descending: random.bool(),
            skip: number(random),
            limit: number(random),
            grouping: groupings[random.usize(..4)],
            stale: [Stale::Ok, Stale::UpdateAfter, Stale::False][random.usize(..3)],
            on_error: if random.bool() { OnError::Stop } else { OnError::Continue },
            debug: random.bool(),
            full_set: random.bool(),
            connection_timeout: random.bool().then(|| number(random)),
        }),
    }
}

#[test]
fn questions_arrive_as_they_were_and_no_part_of_one_is_a_question() {
    let mut random = Rng::with_seed(7);
    for _ in 0..2000 {
        let question = random_question(&mut random);
        let mut bytes = question.encode();
        assert_eq!(Question::decode(&bytes), Ok(question));
        let cut = random.usize(..bytes.len());
        assert!(Question::decode(&bytes[..cut]).is_err());
        bytes.push(0);
        assert!(Question::decode(&bytes).is_err());
        bytes[0] = VERSION + 1;
        assert_eq!(Question::decode(&bytes), Err(WireError::Version(VERSION + 1)));
    }
}

#[test]
fn a_question_cannot_announce_more_ranges_than_it_has() {
    let question = random_question(&mut Rng::with_seed(1));
    let without =
        Question { query: Arc::new(Query { ranges: Vec::new(), ..(*question.query).clone() }), ..question };
    let mut bytes = without.encode();
    assert_eq!(bytes.pop(), Some(0));
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0x7f]);
    assert!(Question::decode(&bytes).is_err());
}

fn query(text: &str) -> Arc<Query> {
    Arc::new(Parameters::parse(text, None).unwrap().query(true).unwrap())
}

fn question(text: &str) -> Question {
    let vbs: VbSet = [VbId(1), VbId(700)].into_iter().collect();
    Question { query: query(text), vbs, ..random_question(&mut Rng::with_seed(1)) }
}

fn place(key: &str, docid: &str) -> Vec<u8> {
    let (mut encoded, mut place) = (Vec::new(), Vec::new());
    encode(key, &mut encoded).unwrap();
    row_key(&encoded, docid, 0, &mut place);
    place
}

fn row(key: &str, docid: &str) -> Item {
    let (place, docid) = (place(key, docid), docid.to_owned());
    Item::Row(Row { place, vb: VbId(1), docid, key: key.to_owned(), value: "{\"a\":1}".to_owned() })
}

fn counted(key: &str, rows: u64) -> Item {
    let mut state = State::new(Native::Count);
    for _ in 0..rows {
        let _ = state.add("1");
    }
    Item::Group(Group { place: place(key, "d"), key: key.to_owned(), partial: Partial::Native(state) })
}

fn function(key: &str) -> Item {
    let partial = Partial::Function(3, "\"x\"".to_owned());
    Item::Group(Group { place: place(key, "d"), key: key.to_owned(), partial })
}

const COUNT: Option<Reducing> = Some(Reducing::Native(Native::Count));

fn written(items: &[(usize, Item)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = AnswerWriter::begin(77, None, &mut out);
    items.iter().for_each(|(range, item)| writer.item(*range, item, &mut out).unwrap());
    writer.end(&mut out);
    out
}

/// What a reader makes of bytes that come in parts of these lengths.
fn read(expected: Expected, bytes: &[u8], part: usize) -> Result<Vec<(usize, Item)>, WireError> {
    let mut reader = AnswerReader::new(expected);
    let mut items = Vec::new();
    for part in bytes.chunks(part) {
        reader.push(part);
        while let Some(event) = reader.next_event()? {
            match event {
                Event::Item(range, item) => items.push((range, item)),
                Event::Head(rows, lacks) => assert_eq!((rows, lacks), (77, None)),
                Event::End | Event::Failed(_) => {}
            }
        }
    }
    reader.close()?;
    Ok(items)
}

/// A question, how its view is reduced, and the items of an answer.
type Answered = (Question, Option<Reducing>, Vec<(usize, Item)>);

/// Answers to questions, each right for its own.
fn answers() -> Vec<Answered> {
    let rows = ["null", "1", "\"a\"", "[1,2]"].map(|key| (0, row(key, "d")));
    let mut backwards = rows.to_vec();
    backwards.reverse();
    let keys = vec![(0, row("5", "a")), (0, row("5", "b")), (1, row("1", "a")), (2, row("5", "a"))];
    let groups = ["1", "[1]", "[2]", "{}"].map(|key| (0, counted(key, 3)));
    let functions = ["[2]", "[1,3]", "1"].map(|key| (0, function(key)));
    let mut all = counted("1", 9);
    if let Item::Group(group) = &mut all {
        (group.place, group.key) = (Vec::new(), "null".to_owned());
    }
    vec![
        (question("reduce=false"), None, rows.to_vec()),
        (question("reduce=false&descending=true"), None, backwards),
        (question("reduce=false&keys=[5,1,5]"), None, keys),
        (question("reduce=false&startkey=7"), None, Vec::new()),
        (question("group=true"), COUNT, groups.to_vec()),
        (question("group_level=1&descending=true"), Some(Reducing::Function(3)), functions.to_vec()),
        (question(""), COUNT, vec![(0, all)]),
    ]
}

#[test]
fn answers_arrive_as_they_were_in_parts_of_any_length() {
    for (question, reducing, items) in answers() {
        let bytes = written(&items);
        for part in [1, 3, 7, 64, bytes.len()] {
            assert_eq!(read(Expected::of(&question, reducing), &bytes, part), Ok(items.clone()));
        }
    }
}

#[test]
fn an_answer_that_is_cut_short_is_an_error_wherever_it_is_cut() {
    for (question, reducing, items) in answers() {
        let bytes = written(&items);
        for cut in 0..bytes.len() {
            let read = read(Expected::of(&question, reducing), &bytes[..cut], 5);
            assert_eq!(read, Err(WireError::CutShort), "at {cut}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(read(Expected::of(&question, reducing), &longer, 5).is_err());
    }
}

#[test]
fn an_item_that_is_lost_on_the_way_is_missed() {
    for (question, reducing, items) in answers() {
        for gone in 0..items.len() {
            let mut fewer = items.clone();
            fewer.remove(gone);
            let (mut bytes, whole) = (written(&fewer), written(&items));
            // The end is that of the whole answer.
            bytes.truncate(bytes.len() - 6);
            bytes.extend(&whole[whole.len() - 6..]);
            let read = read(Expected::of(&question, reducing), &bytes, 64);
            assert_eq!(read, Err(WireError::Unfit("items are missing")));
        }
    }
}

#[test]
fn items_that_come_twice_or_change_places_are_an_error() {
    for (question, reducing, items) in answers() {
        let refused = |items: &[(usize, Item)]| {
            let read = read(Expected::of(&question, reducing), &written(items), 64);
            assert!(matches!(read, Err(WireError::Unfit(_))), "{read:?}");
        };
        for at in 0..items.len() {
            let mut twice = items.clone();
            twice.insert(at, items[at].clone());
            refused(&twice);
            if at + 1 < items.len() {
                let mut swapped = items.clone();
                swapped.swap(at, at + 1);
                refused(&swapped);
            }
        }
    }
}

#[test]
fn an_item_that_was_not_asked_for_is_an_error() {
    let refused = |text: &str, reducing, items: &[(usize, Item)]| {
        let read = read(Expected::of(&question(text), reducing), &written(items), 64);
        assert!(read.is_err(), "{text} {read:?}");
    };
    refused("reduce=false&startkey=2", None, &[(0, row("1", "d"))]);
    refused("reduce=false", None, &[(1, row("1", "d"))]);
    refused("reduce=false&limit=1", None, &[(0, row("1", "d")), (0, row("2", "d"))]);
    refused("reduce=false", None, &[(0, counted("1", 1))]);
    refused("group=true", COUNT, &[(0, row("1", "d"))]);
    refused("group=true", COUNT, &[(0, function("1"))]);
    refused("group=true", Some(Reducing::Function(0)), &[(0, counted("1", 1))]);
    refused("", COUNT, &[(0, counted("1", 1))]);
    // Of one group there is one item.
    refused("group_level=1", COUNT, &[(0, counted("[1,2]", 1)), (0, counted("[1,3]", 1))]);
    let mut elsewhere = row("1", "d");
    if let Item::Row(row) = &mut elsewhere {
        row.vb = VbId(2);
    }
    refused("reduce=false", None, &[(0, elsewhere)]);
    let mut nowhere = counted("1", 1);
    if let Item::Group(group) = &mut nowhere {
        group.place = vec![0xfe];
    }
    refused("group=true", COUNT, &[(0, nowhere)]);
}

#[test]
fn what_has_no_room_in_a_frame_is_not_sent() {
    let mut large = row("1", "d");
    if let Item::Row(row) = &mut large {
        row.value = "x".repeat(FRAME_BYTES_MAX);
    }
    let mut out = Vec::new();
    let mut writer = AnswerWriter::begin(1, None, &mut out);
    let before = out.clone();
    assert_eq!(writer.item(0, &large, &mut out), Err(WireError::TooLarge));
    assert_eq!(out, before);
    let mut reader = AnswerReader::new(Expected::of(&question("reduce=false"), None));
    reader.push(&u32::MAX.to_be_bytes());
    assert!(reader.next_event().is_err(), "a length is refused before anything of its frame has come");
    assert_eq!(reader.next_event(), Err(WireError::CutShort));
}

#[test]
fn a_remote_source_waits_and_names_where_its_errors_are_from() {
    let source = || Remote::new("http://h:8092/_view_merge/", Expected::of(&question("reduce=false"), None));
    let bytes = written(&[(0, row("1", "d"))]);
    let mut remote = source();
    assert_eq!(remote.total_rows(), Ok(None));
    assert_eq!(remote.pull(&mut NoFunctions), Ok(Pull::Waiting));
    remote.push(&bytes);
    assert_eq!(remote.total_rows(), Ok(Some(77)));
    assert_eq!(remote.pull(&mut NoFunctions), Ok(Pull::Item(0, row("1", "d"))));
    assert_eq!(remote.pull(&mut NoFunctions), Ok(Pull::Waiting), "the stream has yet to end");
    remote.close(Ok(()));
    assert_eq!(remote.pull(&mut NoFunctions), Ok(Pull::End));

    let ends = |bytes: &[u8], how| {
        let mut remote = source();
        remote.push(bytes);
        remote.close(how);
        loop {
            match remote.pull(&mut NoFunctions) {
                Ok(Pull::Item(..)) => {}
                other => return other,
            }
        }
    };
    let within = |reason: &str| Err(SourceError::new("http://h:8092/_view_merge/", reason));
    assert_eq!(ends(&bytes[..bytes.len() - 1], Ok(())), within("the other node's answer was cut short"));
    let unreachable = SourceError::new("h:8092", "timeout");
    assert_eq!(ends(&[], Err(unreachable.clone())), Err(unreachable));
    let mut out = Vec::new();
    let writer = AnswerWriter::begin(77, Some("three vBuckets"), &mut out);
    writer.failed("no index", &mut out);
    assert_eq!(ends(&out, Ok(())), within("no index"));
    let mut remote = source();
    remote.push(&out);
    assert_eq!(remote.total_rows(), Ok(Some(77)));
    assert_eq!(
        remote.lacks(),
        within("three vBuckets").err(),
        "an asker that reads no further knows it all the same"
    );
    assert_eq!(remote.lacks(), None, "it is told once");
}
