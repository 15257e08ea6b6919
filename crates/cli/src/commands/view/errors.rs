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
        let lines = of.last.iter().rev().take(last).map(move |mistake| {
            let total = of.total.to_string();
            let [place, node, id] = [&place, node, &mistake.id].map(|text| cell(text, CELL_CHARACTERS));
            vec![place, node, total, id, cell(&mistake.reason, REASON_CHARACTERS)]
        });
        lines.collect::<Vec<_>>()
    };
    errors.views.iter().flat_map(of_view).collect()
}

fn shown(bucket: &Bucket, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return format!("the views of bucket {} leave no document out\n", bucket.name());
    }
    table(&["VIEW", "NODE", "LEFT OUT", "DOCUMENT", "REASON"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_documents_come_first() {
        let text = r#"{"views":{"a":{"total":3,"last":[{"id":"x","reason":"old"},{"id":"y","reason":"new"}]},
            "b":{"total":0,"last":[]}}}"#;
        let errors: Errors = serde_json::from_str(text).unwrap();
        assert_eq!(rows_of("d", "h:1", &errors, 1), [["d/a", "h:1", "3", "y", "new"]]);
        assert_eq!(rows_of("d", "h:1", &errors, 9).len(), 2);
    }
}
