//! An index is what a map over documents gives: row by row, in their order, and in its reductions. What that is of a document is
//! written down here once more, apart from map functions.

use std::collections::{BTreeMap, BTreeSet};

use base::VbId;
use views::{
    design::DesignDocument,
    index::{IndexError, Item, NoFunctions, Partial, Snapshot, VbSet},
    query::Parameters,
};

/// Names of design documents, and texts that they may have. Two of them have the same text, and share an index.
pub(crate) const DESIGNS: [(&str, &str); 5] =
    [("n", BY_NUMBER), ("i", BY_ID), ("also", BY_NUMBER), ("both", BOTH), ("dev_odd", ODD)];
const BY_NUMBER: &str =
    r#"{"views":{"n":{"map":"function (doc, meta) { emit(doc.n, doc.n); }","reduce":"_stats"}}}"#;
/// It looks at no document.
const BY_ID: &str =
    r#"{"views":{"i":{"map":"function (doc, meta) { emit(meta.id, null); }","reduce":"_count"}}}"#;
const BOTH: &str = r#"{"views":{
    "n":{"map":"function (doc, meta) { emit(doc.n, doc.n); }","reduce":"_sum"},
    "i":{"map":"function (doc, meta) { emit(meta.id, null); }"}}}"#;
const ODD: &str = r#"{"views":{"odd":{"map":"function (doc, meta) { if (doc.n % 2) emit(doc.n, doc.n); }","reduce":"_sum"}}}"#;

/// A row: key, document, value.
pub(crate) type Row = (String, String, String);

/// The rows of a view, with their vBuckets.
pub(crate) type Found = Vec<(VbId, Row)>;

/// Numbers of documents, by their ids.
pub(crate) type Numbers = BTreeMap<String, u64>;

/// What was held against documents.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checked {
    /// Answers at `stale=false`, and documents in them.
    pub(crate) answers: u64,
    pub(crate) documents: u64,
    /// Those that nothing had changed under: all of them was checked.
    pub(crate) whole: u64,
    /// Those of the whole ones that were of copies which follow others.
    pub(crate) of_followers: u64,
    /// Answers at `stale=ok` that had rows.
    pub(crate) as_it_is: u64,
    /// Copies that were said to have another history while they were indexed.
    pub(crate) set_back: u64,
    /// Indexes that were built anew, since somebody had found them damaged.
    pub(crate) rebuilt: u64,
}

impl Checked {
    pub(crate) fn add(&mut self, more: Self) {
        self.answers += more.answers;
        self.documents += more.documents;
        self.whole += more.whole;
        self.of_followers += more.of_followers;
        self.as_it_is += more.as_it_is;
        self.set_back += more.set_back;
        self.rebuilt += more.rebuilt;
    }

    /// Checks that runs with views have looked at something of everything.
    pub(crate) fn check(&self) {
        let Self { answers, documents, whole, of_followers, as_it_is, set_back, rebuilt } = *self;
        let all = [answers, documents, whole, of_followers, as_it_is, set_back, rebuilt];
        assert!(all.iter().all(|count| *count > 0), "runs have checked too little of views: {self:?}");
    }
}

/// The row of a document, if it has one.
fn row(view: &str, id: &str, n: u64) -> Option<Row> {
    let number = n.to_string();
    match view {
        "n" => Some((number.clone(), id.to_owned(), number)),
        "odd" => (n % 2 == 1).then(|| (number.clone(), id.to_owned(), number)),
        "i" => Some((format!("\"{id}\""), id.to_owned(), "null".to_owned())),
        _ => panic!("no such view: {view}"),
    }
}

/// The rows of a view in these vBuckets, in the order in which they come.
///
/// # Errors
/// What the index has on the disk is damaged.
pub(crate) fn rows(snapshot: &Snapshot, view: &str, vbs: &VbSet) -> Result<Found, IndexError> {
    let place = snapshot.definition().view(view).expect("a view of the index");
    let query = Parameters::parse("reduce=false", None).unwrap().query(place.reduction.is_some()).unwrap();
    let mut answer = snapshot.query(place, &query, vbs)?;
    let mut rows = Vec::new();
    while let Some((_, item)) = answer.next(&mut NoFunctions)? {
        let Item::Row(row) = item else { panic!("a group of {view}") };
        rows.push((row.vb, (row.key, row.docid, row.value)));
    }
    Ok(rows)
}

/// The reduction of a view's rows from a number on; nothing where it has none.
fn reduced(snapshot: &Snapshot, view: &str, vbs: &VbSet, from: Option<u64>) -> Option<Option<String>> {
    let place = snapshot.definition().view(view)?;
    place.reduction?;
    let range = from.map(|from| format!("&startkey={from}")).unwrap_or_default();
    let query = Parameters::parse(&format!("reduce=true{range}"), None).unwrap().query(true).unwrap();
    let mut answer = snapshot.query(place, &query, vbs).unwrap();
    let item = answer.next(&mut NoFunctions).unwrap_or_else(|error| panic!("{view}: {error}"));
    let Some((_, Item::Group(group))) = item else { return Some(None) };
    let Partial::Native(state) = group.partial else { panic!("{view} is reduced by no function") };
    Some(state.text())
}

fn expected_reduction(source: &str, numbers: &[u64]) -> Option<String> {
    let (count, sum) = (numbers.len(), numbers.iter().sum::<u64>());
    let (least, greatest) = (numbers.iter().min()?, numbers.iter().max()?);
    let squares: u64 = numbers.iter().map(|n| n * n).sum();
    Some(match source {
        "_count" => count.to_string(),
        "_sum" => sum.to_string(),
        _ => format!(
            "{{\"sum\":{sum},\"count\":{count},\"min\":{least},\"max\":{greatest},\"sumsqr\":{squares}}}"
        ),
    })
}

/// Checks the number of a view's rows, and their reductions. `numbers` are those of the rows, in their order.
fn check_totals(
    on: &str,
    (design, view): (&DesignDocument, &str),
    (snapshot, vbs): (&Snapshot, &VbSet),
    numbers: &[u64],
) {
    let place = snapshot.definition().view(view).expect("a view of the index");
    assert_eq!(snapshot.total_rows(place.map, vbs), numbers.len() as u64, "{view} {on}");
    let reduction = design.views.iter().find(|one| one.name == view).and_then(|one| one.reduce.as_ref());
    let Some(reduction) = reduction else { return };
    let middle = numbers.get(numbers.len() / 2).copied().filter(|_| view != "i");
    for from in [None, middle] {
        let is_asked = |n: &u64| from.is_none_or(|from| *n >= from);
        let from_there: Vec<u64> = numbers.iter().copied().filter(is_asked).collect();
        assert_eq!(
            reduced(snapshot, view, vbs, from),
            Some(expected_reduction(reduction.source(), &from_there)),
            "{view} {on} from {from:?}"
        );
    }
}

/// Checks that an index is, over these vBuckets, a map over these documents.
pub(crate) fn check(on: &str, design: &DesignDocument, snapshot: &Snapshot, vbs: &VbSet, numbers: &Numbers) {
    for view in &design.views {
        let name = view.name.as_str();
        let found: Vec<Row> = rows(snapshot, name, vbs).unwrap().into_iter().map(|(_, row)| row).collect();
        let mut expected: Vec<(u64, Row)> =
            numbers.iter().filter_map(|(id, n)| Some((*n, row(name, id, *n)?))).collect();
        if name != "i" {
            expected.sort();
        }
        let found_sorted = if name == "i" { sorted(found) } else { found };
        let expected_rows: Vec<Row> = expected.iter().map(|(_, row)| row.clone()).collect();
        let expected_rows = if name == "i" { sorted(expected_rows) } else { expected_rows };
        let wrong: Vec<&Row> = found_sorted.iter().filter(|row| !expected_rows.contains(row)).collect();
        let lacking: Vec<&Row> = expected_rows.iter().filter(|row| !found_sorted.contains(row)).collect();
        assert!(
            found_sorted == expected_rows,
            "{name} {on} has {wrong:?} beside, lacks {lacking:?}, of {}",
            expected_rows.len()
        );
        let of_rows: Vec<u64> = expected.iter().map(|(n, _)| *n).collect();
        check_totals(on, (design, name), (snapshot, vbs), &of_rows);
    }
}

/// Ids are in the order of a collation. Here it is enough that the same ones are there.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}

/// Checks that what an index has of a document is what the document was, for as long as a query has waited.
pub(crate) fn check_document(on: &str, design: &DesignDocument, all: &[Found], id: &str, n: Option<u64>) {
    for (view, rows) in design.views.iter().zip(all) {
        let found: Vec<&Row> = rows.iter().map(|(_, row)| row).filter(|(_, docid, _)| docid == id).collect();
        let expected = n.and_then(|n| row(&view.name, id, n));
        let expected: Vec<&Row> = expected.iter().collect();
        assert_eq!(found, expected, "{} of {id} {on}", view.name);
    }
}

/// Checks what holds of an index however old it is. A document is there once at most, with a row as it may have. It is in its vBucket.
/// Views of an index are of the same documents, and totals and reductions are those of the rows.
pub(crate) fn check_as_it_is(
    on: &str,
    design: &DesignDocument,
    snapshot: &Snapshot,
    vbs: &VbSet,
    all: &[Found],
    vb_of: impl Fn(&str) -> VbId,
) {
    let mut known: Option<BTreeSet<&str>> = None;
    for (view, rows) in design.views.iter().zip(all) {
        let (name, mut ids, mut numbers) = (view.name.as_str(), BTreeSet::new(), Vec::new());
        for (vb, found) in rows {
            let (_, id, value) = found;
            assert!(vbs.contains(*vb) && *vb == vb_of(id), "{name} has {found:?} in {vb} {on}");
            assert!(ids.insert(id.as_str()), "{name} has {id} twice {on}: {rows:?}");
            let n = if name == "i" { 0 } else { value.parse().expect("a number") };
            assert_eq!(Some(found), row(name, id, n).as_ref(), "{name} {on}");
            numbers.push(n);
        }
        assert!(numbers.is_sorted(), "{name} {on}: {rows:?}");
        check_totals(on, (design, name), (snapshot, vbs), &numbers);
        let before = known.get_or_insert_with(|| ids.clone());
        assert_eq!(*before, ids, "{name} and the view before it are of other documents {on}");
    }
}
