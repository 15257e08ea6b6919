//! Properties that a model of answers does not show: what is read, held, and kept on the disk.

use base::{Seqno, VbId, VbUuid};
use settee_views::{
    index::{
        Batch, DocumentRows, Functions, Group, Item, Memory, Merge, MergedRow, NoFunctions, Options, Partial,
        Pull, RefusedRows, Source, SourceError, Step, VbSet,
    },
    js,
    query::{Parameters, Query},
    reduce::{Native, State},
};

use super::world::{self, Node, Reducer};

const OPTIONS: Options = Options { node_bytes: 512, segment_bytes: 16 << 10 };
const VB: VbId = VbId(0);

fn js_row(key: &str, value: &str) -> js::Row {
    js::Row { key: key.to_owned(), value: value.to_owned() }
}

fn batch(from: usize, documents: Vec<DocumentRows>) -> Batch {
    Batch { vb: VB, branch: VbUuid(1), seqno: Seqno((from + documents.len()) as u64), documents }
}

/// Documents with a row each.
fn documents(range: std::ops::Range<usize>, value: &str) -> Vec<DocumentRows> {
    range
        .map(|at| DocumentRows {
            docid: format!("d{at:05}"),
            rows: vec![vec![js_row(&at.to_string(), value)]],
        })
        .collect()
}

fn node(limit: usize, rows: usize) -> Node {
    let mut node = Node::new(1, limit, OPTIONS);
    node.vbs.insert(VB);
    node.index.apply(batch(0, documents(0..rows, "1")), &mut NoFunctions).unwrap();
    node.index.commit(&mut Reducer::default()).unwrap();
    node
}

fn query(text: &str) -> Query {
    Parameters::parse(text, None).unwrap().query(true).unwrap()
}

fn ask(node: &Node, view: &str, text: &str, functions: &mut dyn Functions) -> Vec<Item> {
    let snapshot = node.index.snapshot();
    let place = snapshot.definition().view(view).unwrap();
    let mut answer = snapshot.query(place, &query(text), &snapshot.vbuckets()).unwrap();
    std::iter::from_fn(|| answer.next(functions).unwrap()).map(|(_, item)| item).collect()
}

fn count(node: &Node, text: &str) -> u64 {
    match ask(node, "count", text, &mut NoFunctions).as_slice() {
        [Item::Group(Group { partial: Partial::Native(state), .. })] => state.count(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reductions_read_the_edges_of_a_range_only() {
    let mut node = node(64 << 20, 3000);
    let mut read = |view: &str, text: &str| {
        node.memory = Memory::new(64 << 20);
        node.reopen().unwrap();
        let mut functions = Reducer::default();
        let items = ask(&node, view, text, &mut functions);
        assert!(!items.is_empty());
        (node.memory.used(), functions.calls)
    };
    let (everything, _) = read("count", "reduce=false");
    for (view, text) in [
        ("count", ""),
        ("stats", ""),
        ("function", ""),
        ("sum", "startkey=100&endkey=2900"),
        ("function", "startkey=100&endkey=2900"),
    ] {
        let (used, calls) = read(view, text);
        assert!(used * 10 < everything, "{view} {text}: {used} of {everything} bytes");
        assert!(calls < 12, "{view} {text}: {calls} calls");
    }
    // One vBucket of many that are not asked for, and a key.
    assert!(read("count", "key=1700&reduce=false").0 * 10 < everything);
    assert_eq!(count(&node, "startkey=100&endkey=2900"), 2801);
}

/// An index of documents in many vBuckets, with a row each.
fn node_of_many(rows: usize) -> Node {
    let mut node = Node::new(1, 64 << 20, OPTIONS);
    for vb in 0..16 {
        let documents = documents(0..rows, "1").into_iter().skip(vb).step_by(16).collect();
        let vb = VbId(vb as u16);
        node.vbs.insert(vb);
        let batch = Batch { vb, branch: VbUuid(1), seqno: Seqno(rows as u64), documents };
        node.index.apply(batch, &mut NoFunctions).unwrap();
    }
    node.index.commit(&mut Reducer::default()).unwrap();
    node
}

/// What a query over all vBuckets but one has to read from a disk, and its answer.
fn read(node: &mut Node, text: &str) -> (usize, Vec<Item>) {
    node.memory = Memory::new(64 << 20);
    node.reopen().unwrap();
    let snapshot = node.index.snapshot();
    let mut active = snapshot.vbuckets();
    active.remove(VbId(3));
    let (place, query) = (snapshot.definition().view("count").unwrap(), query(text));
    let mut answer = snapshot.query(place, &query, &active).unwrap();
    let left = answer.skip(query.skip);
    let items = std::iter::from_fn(|| answer.next(&mut NoFunctions).unwrap()).map(|(_, item)| item);
    let items = items.skip(left as usize).collect();
    (node.memory.used(), items)
}

#[test]
fn rows_are_counted_and_skipped_without_being_read() {
    let mut node = node_of_many(6400);
    let (everything, rows) = read(&mut node, "reduce=false");
    assert_eq!(rows.len(), 6000);
    let (used, items) = read(&mut node, "");
    let [Item::Group(Group { partial: Partial::Native(state), .. })] = items.as_slice() else {
        panic!("{items:?}")
    };
    assert_eq!(state.count(), 6000);
    assert!(used * 10 < everything, "{used} of {everything} bytes to count");
    for order in ["", "&descending=true"] {
        let mut rows = rows.clone();
        if !order.is_empty() {
            rows.reverse();
        }
        for skip in [0, 1, 700, 3001, 5999, 6000, 9000] {
            let (used, items) = read(&mut node, &format!("reduce=false&limit=3&skip={skip}{order}"));
            let expected: Vec<_> = rows.iter().skip(skip).take(3).cloned().collect();
            assert_eq!(items, expected, "skip={skip}{order}");
            assert!(used * 10 < everything, "{used} of {everything} bytes to skip {skip}");
        }
    }
    assert_eq!(read(&mut node, "group=true&skip=5990&limit=20").1.len(), 10);
}

#[test]
fn nodes_that_became_small_are_joined() {
    let rows = 3000;
    let mut node = node(64 << 20, rows);
    let mut seqno = rows;
    for part in 0..30 {
        // All rows of a part of the order but every thirtieth go.
        let from = part * 7 % 30 * (rows / 30);
        let range = from..from + rows / 30;
        let gone = documents(0..rows, "1").into_iter().enumerate();
        let gone = gone.filter(|(at, _)| at % 30 != 7 && range.contains(at));
        let gone: Vec<_> = gone.map(|(_, document)| DocumentRows { rows: Vec::new(), ..document }).collect();
        let count = gone.len();
        node.index.apply(batch(seqno, gone), &mut NoFunctions).unwrap();
        seqno += count;
        node.index.commit(&mut Reducer::default()).unwrap();
    }
    let held = |node: &mut Node| {
        node.memory = Memory::new(64 << 20);
        node.reopen().unwrap();
        assert_eq!(ask(node, "count", "reduce=false", &mut NoFunctions).len(), rows / 30);
        node.memory.used()
    };
    let after = held(&mut node);
    let mut fresh = Node::new(1, 64 << 20, OPTIONS);
    fresh.vbs.insert(VB);
    let left = documents(0..rows, "1").into_iter().skip(7).step_by(30).collect();
    fresh.index.apply(batch(0, left), &mut NoFunctions).unwrap();
    fresh.index.commit(&mut Reducer::default()).unwrap();
    let fresh = held(&mut fresh);
    assert!(after * 2 < fresh * 3, "{after} bytes for what a fresh index has in {fresh}");
}

#[test]
fn an_index_of_small_rows_is_about_as_large_as_what_was_emitted() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut node = Node::new(1, 64 << 20, Options::default());
    let (mut emitted, mut documents) = (0, Vec::new());
    for at in 0..4000 {
        let (key, value) = (format!("\"artist-{:08}\"", random.u32(..400)), format!("{}", 1 + at % 7));
        emitted += key.len() + value.len();
        documents
            .push(DocumentRows { docid: format!("song-{at:09}"), rows: vec![vec![js_row(&key, &value)]] });
    }
    node.vbs.insert(VB);
    node.index.apply(batch(0, documents), &mut NoFunctions).unwrap();
    node.index.commit(&mut Reducer::default()).unwrap();
    let disk = node.index.disk_bytes();
    assert_eq!(disk.all, disk.live, "a build leaves nothing that is superseded");
    assert!(disk.all < emitted as u64 * 3 / 2, "{disk:?} for {emitted} bytes");
}

#[test]
fn memory_is_bounded() {
    let limit = 64 << 10;
    let mut node = Node::new(1, limit, OPTIONS);
    node.vbs.insert(VB);
    let mut most = 0;
    for from in (0..4000).step_by(40) {
        node.index
            .apply(batch(from, documents(from..from + 40, "\"some value\"")), &mut NoFunctions)
            .unwrap();
        most = most.max(node.memory.used());
    }
    node.index.publish(&mut NoFunctions).unwrap();
    let snapshot = node.index.snapshot();
    let place = snapshot.definition().view("count").unwrap();
    let mut answer = snapshot.query(place, &query("reduce=false"), &snapshot.vbuckets()).unwrap();
    let mut rows = 0;
    while answer.next(&mut NoFunctions).unwrap().is_some() {
        rows += 1;
        most = most.max(node.memory.used());
    }
    assert_eq!(rows, 4000);
    assert!(most < limit * 2, "{most} bytes held of {limit}");
    drop((answer, snapshot));
    node.memory.set_limit(0);
    node.index.commit(&mut Reducer::default()).unwrap();
    assert!(node.memory.used() < 1024, "{} bytes are held for nothing", node.memory.used());
}

#[test]
fn what_is_superseded_makes_room() {
    let mut node = node(64 << 20, 1500);
    let mut seqno = 1500;
    for round in 0..40 {
        let from = round * 37 % 1400;
        let changed = documents(from..from + 100, "2");
        node.index.apply(batch(seqno, changed), &mut NoFunctions).unwrap();
        seqno += 100;
        node.index.commit(&mut Reducer::default()).unwrap();
        let disk = node.index.disk_bytes();
        assert!(disk.all < disk.live * 2 + 4 * OPTIONS.segment_bytes, "round {round}: {disk:?}");
    }
    assert_eq!(count(&node, ""), 1500);
    node.index.reset(VB);
    while node.index.has_changes() {
        node.index.commit(&mut NoFunctions).unwrap();
    }
    assert_eq!(node.index.disk_bytes().live, 0);
    assert!(node.fs.used_bytes() < 2 * OPTIONS.segment_bytes, "{} bytes are left", node.fs.used_bytes());
}

/// All of it fits into the segment that nodes are appended to.
#[test]
fn a_small_index_keeps_no_more_of_what_is_superseded_than_a_large_one() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut node = Node::new(1, 64 << 20, Options::default());
    node.vbs.insert(VB);
    for round in 0..30 {
        let mut changed = documents(0..1500, "");
        for one in &mut changed {
            one.rows[0][0].value = format!("\"{:032x}{:032x}\"", random.u128(..), random.u128(..));
        }
        node.index.apply(batch(round * 1500, changed), &mut NoFunctions).unwrap();
        node.index.commit(&mut Reducer::default()).unwrap();
        let disk = node.index.disk_bytes();
        assert!(disk.all < disk.live * 2 + (1 << 20), "round {round}: {disk:?}");
    }
    node.reopen().unwrap();
    assert_eq!(count(&node, ""), 1500);
}

#[test]
fn a_snapshot_stays_as_it_was() {
    let mut node = node(16 << 10, 1000);
    let snapshot = node.index.snapshot();
    let place = snapshot.definition().view("count").unwrap();
    let mut answer = snapshot.query(place, &query("reduce=false"), &snapshot.vbuckets()).unwrap();
    let mut values = Vec::new();
    for round in 0..10 {
        for _ in 0..60 {
            let Some((_, Item::Row(row))) = answer.next(&mut NoFunctions).unwrap() else { panic!("a row") };
            values.push(row.value);
        }
        // Its segments are given up one after the other.
        let changed = documents(0..1000, "3");
        node.index.apply(batch(1000 * (round + 1), changed), &mut NoFunctions).unwrap();
        node.index.commit(&mut Reducer::default()).unwrap();
    }
    assert!(values.iter().all(|value| value == "1"), "{values:?}");
    assert_eq!(count(&node, ""), 1000);
    let Item::Row(row) = &ask(&node, "count", "reduce=false&limit=1", &mut NoFunctions)[0] else { panic!() };
    assert_eq!(row.value, "3");
}

#[test]
fn a_vbucket_goes_on_where_its_history_is_the_same() {
    let log = |branches: &[(u64, u64)]| -> Vec<(VbUuid, Seqno)> {
        branches.iter().map(|(uuid, start)| (VbUuid(*uuid), Seqno(*start))).collect()
    };
    let cases: [(&[(u64, u64)], u64); 6] = [
        (&[(1, 0)], 100),
        (&[(2, 100), (1, 0)], 100),
        (&[(2, 150), (1, 0)], 100),
        (&[(2, 99), (1, 0)], 0),
        (&[(2, 0)], 0),
        (&[], 0),
    ];
    for (branches, expected) in cases {
        let mut node = node(1 << 20, 100);
        assert_eq!(node.index.resume(VB, &log(branches)), Seqno(expected), "{branches:?}");
        assert_eq!(node.index.snapshot().state(VB).is_some(), expected > 0, "{branches:?}");
    }
    let mut node = node(1 << 20, 100);
    assert_eq!(node.index.rollback(VB, Seqno(100)), Seqno(100));
    assert_eq!(node.index.resume(VbId(7), &log(&[(1, 0)])), Seqno(0));
    assert_eq!(node.index.rollback(VB, Seqno(99)), Seqno(0));
    assert!(node.index.snapshot().vbuckets().is_empty());
}

#[test]
fn rows_that_sums_leave_out_are_counted_and_the_last_ones_are_named() {
    let mut node = node(1 << 20, 0);
    let place = |view: &str| world::definition().view(view).unwrap();
    let left_out = |node: &Node| {
        ["sum", "stats", "count", "other"].map(|view| node.index.snapshot().left_out(place(view)))
    };
    let mut given = documents(0..30, "null");
    given.extend(documents(30..40, "1"));
    let refused = node.index.apply(batch(0, given), &mut NoFunctions).unwrap();
    let named: Vec<_> = refused.values[&0].iter().map(|one| (one.docid.as_str(), one.key.as_str())).collect();
    assert_eq!((named.len(), named[0], named[19]), (20, ("d00010", "10"), ("d00029", "29")));
    assert!(refused.rows.is_empty() && refused.values.len() == 1, "a map function without sums names none");
    node.index.commit(&mut Reducer::default()).unwrap();
    assert_eq!(left_out(&node), [30, 30, 0, 0]);
    assert_eq!(count(&node, ""), 40, "they are rows all the same");
    node.index.apply(batch(40, documents(0..29, "2")), &mut NoFunctions).unwrap();
    node.index.commit(&mut Reducer::default()).unwrap();
    node.reopen().unwrap();
    assert_eq!(left_out(&node), [1, 1, 0, 0], "an index that was opened again knows it");
}

#[test]
fn keys_that_are_none_cost_their_document_and_view() {
    let mut node = node(1 << 20, 0);
    let rows = vec![vec![js_row("1", "1"), js_row("\"\\ud800\"", "1")], vec![js_row("2", "1")]];
    let document = |docid: &str, rows| DocumentRows { docid: docid.to_owned(), rows };
    let refused = node
        .index
        .apply(
            batch(0, vec![document("a", rows), document("b", vec![vec![js_row("3", "1")]])]),
            &mut NoFunctions,
        )
        .unwrap();
    let reason = "Unexpected character in key".to_owned();
    assert_eq!(refused.rows, [RefusedRows { docid: "a".to_owned(), map: 0, reason }]);
    node.index.publish(&mut NoFunctions).unwrap();
    assert_eq!(count(&node, ""), 1);
    assert_eq!(ask(&node, "other", "reduce=false", &mut NoFunctions).len(), 1);
    for (vb, seqno) in [(VB, 1), (VbId(1024), 9)] {
        let late = Batch { vb, branch: VbUuid(1), seqno: Seqno(seqno), documents: Vec::new() };
        assert!(node.index.apply(late, &mut NoFunctions).is_err(), "{vb} {seqno}");
    }
}

#[test]
fn functions_run_in_the_engine() {
    let mut node = node(1 << 20, 0);
    node.index.apply(batch(0, documents(0..2000, "2")), &mut NoFunctions).unwrap();
    let reduce = "function(keys, values, rereduce) { return sum(values) + (rereduce ? 0 : keys.length) }";
    let sources = js::Sources { maps: Vec::new(), reduces: vec![reduce.to_owned()] };
    let mut functions = js::Functions::new(sources, js::Limits::default(), true).unwrap();
    node.index.commit(&mut functions).unwrap();
    let items = ask(&node, "function", "", &mut functions);
    let [Item::Group(group)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(group.partial, Partial::Function(0, "6000".to_owned()));
    // Where a function fails that is the answer.
    let snapshot = node.index.snapshot();
    let place = snapshot.definition().view("function").unwrap();
    let mut answer = snapshot.query(place, &query("endkey=1000"), &snapshot.vbuckets()).unwrap();
    let error = answer.next(&mut NoFunctions).unwrap_err();
    assert_eq!(error.to_string(), "no functions run here");
    assert!(answer.next(&mut functions).unwrap().is_none());
}

/// Reductions of so many bytes each.
struct Lengthy {
    bytes: usize,
    calls: usize,
}

impl Functions for Lengthy {
    fn reduce(&mut self, _: usize, _: Option<&[&str]>, _: &[&str]) -> Result<String, js::Failure> {
        self.calls += 1;
        Ok("7".repeat(self.bytes))
    }
}

/// The account charges a node when it is made, and knows nothing of what a query adds to it.
#[test]
fn queries_keep_short_reductions_only() {
    for (bytes, is_kept) in [(1 << 10, true), ((1 << 10) + 1, false), (60_000, false)] {
        let mut node = Node::new(1, 64 << 20, OPTIONS);
        node.vbs.insert(VB);
        node.index.apply(batch(0, documents(0..300, "1")), &mut NoFunctions).unwrap();
        node.index.publish(&mut NoFunctions).unwrap();
        let calls = |node: &Node| {
            let mut functions = Lengthy { bytes, calls: 0 };
            let items = ask(node, "function", "", &mut functions);
            let [Item::Group(group)] = items.as_slice() else { panic!("{items:?}") };
            assert_eq!(group.partial, Partial::Function(0, "7".repeat(bytes)));
            functions.calls
        };
        let first = calls(&node);
        assert!(first > 10, "{first} calls for many nodes");
        assert_eq!(calls(&node), if is_kept { 0 } else { first }, "reductions of {bytes} bytes");
        // A commit writes longer ones as well.
        node.index.commit(&mut Lengthy { bytes, calls: 0 }).unwrap();
        node.reopen().unwrap();
        assert!(calls(&node) < first / 2, "reductions of {bytes} bytes");
    }
}

/// Some items, and then perhaps an error.
struct Given(Vec<(usize, Item)>, Option<&'static str>);

impl Source for Given {
    fn pull(&mut self, _: &mut dyn Functions) -> Result<Pull, SourceError> {
        match (self.0.is_empty(), self.1) {
            (false, _) => {
                let (range, item) = self.0.remove(0);
                Ok(Pull::Item(range, item))
            }
            (true, Some(error)) => Err(SourceError::new("left", error)),
            (true, None) => Ok(Pull::End),
        }
    }

    fn total_rows(&mut self) -> Result<Option<u64>, SourceError> {
        Ok(Some(self.0.len() as u64))
    }
}

fn counted(key: &str, rows: u64) -> (usize, Item) {
    let (mut encoded, mut place) = (Vec::new(), Vec::new());
    settee_views::collation::encode(key, &mut encoded).unwrap();
    settee_views::collation::row_key(&encoded, "d", 0, &mut place);
    let mut state = State::new(Native::Count);
    for _ in 0..rows {
        state.add("1").unwrap();
    }
    (0, Item::Group(Group { place, key: key.to_owned(), partial: Partial::Native(state) }))
}

#[test]
fn a_node_that_fails_is_named_and_others_answer() {
    let merged = |text: &str| {
        let left = Given(vec![counted("1", 2), counted("2", 1)], Some("gone"));
        let right = Given(vec![counted("1.0", 3), counted("3", 1), counted("4", 1)], None);
        let sources = [("left".to_owned(), left), ("right".to_owned(), right)];
        let mut merge = Merge::new(&query(text), sources);
        let mut rows = Vec::new();
        loop {
            match merge.step(&mut NoFunctions) {
                Step::Row(MergedRow::Group { key, value }) => rows.push(format!("{key}={value}")),
                Step::Passed => {}
                Step::End => break,
                step => panic!("{step:?}"),
            }
        }
        let errors: Vec<String> =
            merge.errors().iter().map(|error| format!("{} {}", error.from, error.reason)).collect();
        (rows.join(" "), errors.join(" "))
    };
    let expect = |text: &str, rows: &str, errors: &str| {
        assert_eq!(merged(text), (rows.to_owned(), errors.to_owned()), "{text}");
    };
    expect("group=true", "1=5 2=1 3=1 4=1", "left gone");
    expect("group=true&on_error=stop", "1=5 2=1", "left gone");
    expect("group=true&skip=1&limit=2", "2=1 3=1", "left gone");
    expect("group=true&limit=1", "1=5", "");
    expect("group=true&limit=0", "", "");
}

#[test]
fn of_many_groups_that_fail_some_are_told_and_how_many_more_did() {
    let groups = || -> Vec<(usize, Item)> {
        let group = |key: usize| {
            let (range, mut item) = counted(&key.to_string(), 1);
            if let Item::Group(group) = &mut item {
                group.partial = Partial::Function(0, "1".to_owned());
            }
            (range, item)
        };
        (1000..1100).map(group).collect()
    };
    let sources = ["left", "right"].map(|name| (name.to_owned(), Given(groups(), None)));
    let mut merge = Merge::new(&query("group=true"), sources);
    let mut steps = 0;
    while merge.step(&mut NoFunctions) == Step::Passed {
        steps += 1;
    }
    let errors = merge.errors();
    assert_eq!((steps, errors.len()), (100, 17));
    assert_eq!(errors[0], SourceError::new("left", "no functions run here"));
    assert_eq!(errors[16], SourceError::new("local", "the reduction of 84 more groups failed"));
}

#[test]
fn sets_of_vbuckets_are_sets() {
    let some: VbSet = [VbId(0), VbId(63), VbId(64), VbId(1023), VbId(1024)].into_iter().collect();
    assert_eq!(some.iter().map(VbId::get).collect::<Vec<_>>(), [0, 63, 64, 1023]);
    let mut fewer = some;
    fewer.remove(VbId(63));
    assert!(fewer.is_subset(&some) && !some.is_subset(&fewer) && !fewer.contains(VbId(63)));
    let other: VbSet = [VbId(63)].into_iter().collect();
    assert!(other.is_disjoint(&fewer) && !other.is_disjoint(&some) && VbSet::default().is_empty());
    let _ = world::definition();
}

/// Commits keep up to a quarter of the disk's bytes of no use, and compactions nothing of what was there when they began.
#[test]
fn a_compaction_gives_up_everything_that_lies_beside_something_superseded() {
    let mut node = node(64 << 20, 3000);
    for at in (0..3000).step_by(7) {
        node.index.apply(batch(3000 + at, documents(at..at + 1, "2")), &mut NoFunctions).unwrap();
        if at % 70 == 0 {
            node.index.commit(&mut Reducer::default()).unwrap();
        }
    }
    node.index.commit(&mut Reducer::default()).unwrap();
    let rows = |node: &Node| ask(node, "sum", "reduce=false", &mut NoFunctions).len();
    let before = node.index.disk_bytes();
    assert!(before.all - before.live > before.all / 20, "{before:?}");
    let snapshot = node.index.snapshot();
    let mut compaction = node.index.begin_compaction().unwrap();
    let total = compaction.progress().1;
    assert!(total > before.all / 2, "{total} of {before:?}");
    while !compaction.is_done() {
        let begun = compaction.progress().0;
        node.index.compact(&mut compaction, &mut Reducer::default()).unwrap();
        assert!(compaction.progress().0 > begun, "a step does something");
    }
    assert_eq!(compaction.progress(), (total, total));
    let after = node.index.disk_bytes();
    assert!(after.all - after.live <= after.all / 100, "{before:?} {after:?}");
    assert!(after.live <= before.live + before.live / 100, "{before:?} {after:?}");
    let place = snapshot.definition().view("sum").unwrap();
    let mut answer = snapshot.query(place, &query("reduce=false"), &snapshot.vbuckets()).unwrap();
    let seen = std::iter::from_fn(|| answer.next(&mut NoFunctions).unwrap()).count();
    assert_eq!((seen, rows(&node)), (3000, 3000), "what was begun before reads on");
    let mut again = node.index.begin_compaction().unwrap();
    node.index.compact(&mut again, &mut Reducer::default()).unwrap();
    assert!(again.is_done());
    node.reopen().unwrap();
    assert_eq!((rows(&node), count(&node, "")), (3000, 3000));
}

/// A step is a commit: what was done until a crash is done, and nothing is lost.
#[test]
fn a_compaction_that_ends_early_leaves_the_index_whole() {
    let mut node = node(64 << 20, 3000);
    for round in 0..40 {
        let changed = documents(round * 70..round * 70 + 20, "2");
        node.index.apply(batch(3000 + round * 20, changed), &mut NoFunctions).unwrap();
        node.index.commit(&mut Reducer::default()).unwrap();
    }
    let mut compaction = node.index.begin_compaction().unwrap();
    node.index.compact(&mut compaction, &mut Reducer::default()).unwrap();
    assert!(!compaction.is_done(), "{compaction:?}");
    // What comes after it has begun goes elsewhere, and what no step commits is fed again.
    node.index.apply(batch(3800, documents(2999..3000, "3")), &mut NoFunctions).unwrap();
    node.index.compact(&mut compaction, &mut Reducer::default()).unwrap();
    assert!(!compaction.is_done(), "{compaction:?}");
    let rows = ask(&node, "sum", "reduce=false", &mut NoFunctions);
    node.index.apply(batch(3801, documents(0..1, "4")), &mut NoFunctions).unwrap();
    node.fs.crash();
    node.reopen().unwrap();
    assert_eq!(ask(&node, "sum", "reduce=false", &mut NoFunctions), rows);
    let mut compaction = node.index.begin_compaction().unwrap();
    while !compaction.is_done() {
        node.index.compact(&mut compaction, &mut Reducer::default()).unwrap();
    }
    let disk = node.index.disk_bytes();
    assert!(disk.all - disk.live <= disk.all / 20, "{disk:?}");
    node.reopen().unwrap();
    assert_eq!(ask(&node, "sum", "reduce=false", &mut NoFunctions), rows);
    assert_eq!((rows.len(), count(&node, "")), (3000, 3000));
}
