//! `settee view errors`: which documents views leave out, and why. Each node tells of the documents that it serves.

use clap::Args as ClapArgs;
use client::{Rest, rest::percent};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::{
    documents::names,
    place::{Bucket, Place, Told, document_name},
    text::cell,
};
use crate::{
    commands::{Failure, cluster::failed},
    table::table,
};

/// Most characters of a reason.
const REASON_CHARACTERS: usize = 100;
/// Most characters of another cell.
const CELL_CHARACTERS: usize = 40;

/// Show which documents views leave out, and why
#[derive(ClapArgs)]
#[command(after_help = "\
A document for which a map function fails has no rows in that view; other documents and views are as if it were not there. Each
node counts such documents since it opened the index, and keeps the last 20 of each view with the reason. LEFT OUT is that count.

A row whose value is no number is left out of _sum and _stats; queries without the reduction have it. LEFT OUT is then how many such
rows the node's index has now, with \"rows\" behind the number. The last 20 that the node has met since it opened the index are kept.

EXAMPLES
  settee view errors -b songs -u admin                  of all design documents
  settee view errors tags -b songs -u admin --last 20
  settee view errors tags -b songs -u admin --json      the nodes' own answers, one a line")]
pub(crate) struct Args {
    /// The design document [default: all of the bucket]
    #[arg(value_name = "DESIGN-DOCUMENT")]
    name: Option<String>,

    /// How many documents to show of each view and node
    #[arg(long, default_value_t = 5, value_name = "N")]
    last: usize,

    /// Print the answers as JSON, one a line: {\"node\":…,\"name\":…,\"views\":{…}}
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// What a node tells of a design document.
#[derive(Deserialize)]
struct Errors {
    views: BTreeMap<String, OfView>,
}

#[derive(Deserialize)]
struct OfView {
    total: u64,
    last: Vec<Mistake>,
    /// Rows that the reduction leaves out, and the last of them. Nodes of earlier builds do not tell.
    #[serde(default)]
    rows_left_out: u64,
    #[serde(default)]
    last_rows: Vec<Mistake>,
}

impl Mistake {
    /// In place of rows that a node has met before it opened the index.
    fn unnamed() -> Self {
        Self {
            id: "-".to_owned(),
            reason: "values are no numbers; met before the index was opened".to_owned(),
        }
    }
}

/// How much views leave out, over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    documents: u64,
    rows: u64,
}

impl LeftOut {
    /// The same in words; nothing where nothing is left out.
    pub(super) fn told(self) -> Option<String> {
        let documents = (self.documents > 0).then(|| format!("{} documents", self.documents));
        let rows = (self.rows > 0).then(|| format!("{} rows", self.rows));
        let told: Vec<String> = documents.into_iter().chain(rows).collect();
        (!told.is_empty()).then(|| told.join(", "))
    }
}

/// How much each view of a design document leaves out, or `None` where a node does not tell.
pub(super) fn left_out(bucket: &Bucket, name: &str) -> Option<BTreeMap<String, LeftOut>> {
    let mut all: BTreeMap<String, LeftOut> = BTreeMap::new();
    for (rest, base) in bucket.ports().ok()? {
        let errors: Errors = serde_json::from_str(&ask(&rest, base, name).ok()?).ok()?;
        for (view, of) in errors.views {
            let known = all.entry(view).or_default();
            known.documents += of.total;
            known.rows += of.rows_left_out;
        }
    }
    Some(all)
}

#[derive(Deserialize)]
struct Mistake {
    id: String,
    reason: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let bucket = args.place.open()?;
    let names = match &args.name {
        Some(name) => vec![document_name(name).to_owned()],
        None => names(&bucket)?,
    };
    if let Some(name) = &args.name {
        bucket.known_document(document_name(name))?;
    }
    let (mut rows, mut silent) = (Vec::new(), Vec::new());
    for (rest, base) in bucket.ports()? {
        for name in &names {
            let text = match ask(&rest, base, name) {
                Ok(text) => text,
                Err(failure) => {
                    silent.push(failure.to_string());
                    break;
                }
            };
            if args.json {
                let node = serde_json::Value::from(rest.address.as_str());
                println!("{{\"node\":{node},{}", text.trim().trim_start_matches('{'));
                continue;
            }
            let errors: Errors = serde_json::from_str(&text).map_err(|error| {
                Failure::doing(format_args!("the answer of {} cannot be read", rest.address), error)
            })?;
            rows.extend(rows_of(name, &rest.address, &errors, args.last));
        }
    }
    if !args.json {
        print!("{}", shown(&bucket, rows));
    }
    match silent.is_empty() {
        true => Ok(()),
        false => Err(Failure(format!("not all nodes have told: {}", silent.join("; ")))),
    }
}

fn ask(rest: &Rest, base: &str, name: &str) -> Result<String, Failure> {
    let doing = format!("{} does not tell of _design/{name}", rest.address);
    let path = format!("{base}/_design/{}/_errors", percent(name));
    let answer = rest.ask_json("GET", &path, None).map_err(|error| failed(&doing, error))?;
    let told = Told { code: answer.code, body: String::from_utf8_lossy(&answer.body).into_owned() };
    if told.code == 200 { Ok(told.body) } else { Err(told.refused(&doing)) }
}

/// A line for each of the last documents; none for views that leave nothing out.
fn rows_of(name: &str, node: &str, errors: &Errors, last: usize) -> Vec<Vec<String>> {
    let of_view = |(view, of): (&String, &OfView)| {
        let place = format!("{name}/{view}");
        let documents = of.last.iter().rev().take(last).map(|mistake| (mistake, of.total.to_string()));
        // Where no row is left out any more, those that were are of no interest.
        let last_rows = if of.rows_left_out > 0 { of.last_rows.as_slice() } else { &[] };
        let unnamed = (of.rows_left_out > 0 && last_rows.is_empty()).then(Mistake::unnamed);
        let rows = last_rows.iter().rev().take(last).chain(&unnamed);
        let rows = rows.map(|mistake| (mistake, format!("{} rows", of.rows_left_out)));
        let lines = documents.chain(rows).map(move |(mistake, total)| {
            let [place, node, id] = [&place, node, &mistake.id].map(|text| cell(text, CELL_CHARACTERS));
            vec![place, node, total, id, cell(&mistake.reason, REASON_CHARACTERS)]
        });
        lines.collect::<Vec<_>>()
    };
    errors.views.iter().flat_map(of_view).collect()
}

fn shown(bucket: &Bucket, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return format!("the views of bucket {} leave nothing out\n", bucket.name());
    }
    table(&["VIEW", "NODE", "LEFT OUT", "DOCUMENT", "REASON"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_a_reduction_leaves_out_come_behind_documents() {
        let text = r#"{"views":{"a":{"total":1,"last":[{"id":"x","reason":"thrown"}],
            "rows_left_out":7,"last_rows":[{"id":"y","key":"1","reason":"old"},{"id":"z","key":"2","reason":"new"}]}}}"#;
        let errors: Errors = serde_json::from_str(text).unwrap();
        let expected = [["d/a", "h:1", "1", "x", "thrown"], ["d/a", "h:1", "7 rows", "z", "new"]];
        assert_eq!(rows_of("d", "h:1", &errors, 1), expected);
        let count = |rows: u64, last_rows: &str| {
            let text = format!(
                "{{\"views\":{{\"a\":{{\"total\":0,\"last\":[],\"rows_left_out\":{rows},\"last_rows\":{last_rows}}}}}}}"
            );
            rows_of("d", "h:1", &serde_json::from_str(&text).unwrap(), 5)
        };
        assert_eq!(
            count(0, "[{\"id\":\"y\",\"reason\":\"old\"}]").len(),
            0,
            "the document has changed since"
        );
        assert_eq!(count(3, "[]")[0][2..4], ["3 rows", "-"], "an index that was opened again names none");
        let told = |documents, rows| LeftOut { documents, rows }.told();
        assert_eq!(told(0, 0), None);
        assert_eq!(told(2, 0).as_deref(), Some("2 documents"));
        assert_eq!(told(2, 7).as_deref(), Some("2 documents, 7 rows"));
    }

    #[test]
    fn the_newest_documents_come_first() {
        let text = r#"{"views":{"a":{"total":3,"last":[{"id":"x","reason":"old"},{"id":"y","reason":"new"}]},
            "b":{"total":0,"last":[]}}}"#;
        let errors: Errors = serde_json::from_str(text).unwrap();
        assert_eq!(rows_of("d", "h:1", &errors, 1), [["d/a", "h:1", "3", "y", "new"]]);
        assert_eq!(rows_of("d", "h:1", &errors, 9).len(), 2);
    }
}
