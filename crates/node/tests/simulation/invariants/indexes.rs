//! An index is what a map over documents gives: row by row, in their order, and in its reductions. What that is of a document is
//! written down here once more, apart from map functions.

use std::collections::BTreeMap;

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

/// Numbers of documents, by their ids.
pub(crate) type Numbers = BTreeMap<String, u64>;

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
pub(crate) fn rows(snapshot: &Snapshot, view: &str, vbs: &VbSet) -> Result<Vec<(VbId, Row)>, IndexError> {
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
        let place = snapshot.definition().view(name).expect("a view of the index");
        assert_eq!(snapshot.total_rows(place.map, vbs), expected_rows.len() as u64, "{name} {on}");
        let Some(reduction) = &view.reduce else { continue };
        let of_rows: Vec<u64> = expected.iter().map(|(n, _)| *n).collect();
        let middle = of_rows.get(of_rows.len() / 2).copied().filter(|_| name != "i");
        for from in [None, middle] {
            let from_there: Vec<u64> =
                of_rows.iter().copied().filter(|n| from.is_none_or(|from| *n >= from)).collect();
            assert_eq!(
                reduced(snapshot, name, vbs, from),
                Some(expected_reduction(reduction.source(), &from_there)),
                "{name} {on} from {from:?}"
            );
        }
    }
}

/// Ids are in the order of a collation. Here it is enough that the same ones are there.
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}

/// Checks that what an index has of a document is what the document was, for as long as a query has waited.
pub(crate) fn check_document(
    on: &str,
    design: &DesignDocument,
    all: &[Vec<(VbId, Row)>],
    id: &str,
    n: Option<u64>,
) {
    for (view, rows) in design.views.iter().zip(all) {
        let found: Vec<&Row> = rows.iter().map(|(_, row)| row).filter(|(_, docid, _)| docid == id).collect();
        let expected = n.and_then(|n| row(&view.name, id, n));
        let expected: Vec<&Row> = expected.iter().collect();
        assert_eq!(found, expected, "{} of {id} {on}", view.name);
    }
}
