//! `settee view list` and `show`: what a bucket has of design documents, and what is in them.

use clap::Args as ClapArgs;
use client::rest::percent;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use views::{
    design::{DesignDocument, Reduction, View, is_development},
    json,
};

use super::{
    errors::{LeftOut, left_out},
    place::{Bucket, Place, document_name},
    text::{cell, indented, printable},
};
use crate::{
    commands::{Failure, cluster::failed},
    table::table,
};

/// Most characters of a name in the table.
const NAME_CHARACTERS: usize = 60;

/// List a bucket's design documents and views
#[derive(ClapArgs)]
#[command(after_help = "\
STATE is development (the name begins with dev_) or published. REDUCE is _count, _sum, _stats, or function for one in
JavaScript. LEFT OUT is how much the view leaves out on all nodes; `settee view errors` says what and why.

EXAMPLES
  settee view list -b songs -u admin
  settee view list -b songs -u admin --json | jq '.rows[].doc.meta.id'")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: Place,

    /// Print REST's own answer, with all functions: {\"rows\":[{\"doc\":{\"meta\":…,\"json\":…},…},…]}
    #[arg(long)]
    json: bool,
}

/// Show a design document with its functions
#[derive(ClapArgs)]
#[command(after_help = "\
EXAMPLES
  settee view show dev_tags -b songs -u admin
  settee view show tags -b songs -u admin --json > tags.json      as it is stored")]
pub(crate) struct ShowArgs {
    /// The design document
    #[arg(value_name = "DESIGN-DOCUMENT")]
    name: String,

    #[command(flatten)]
    place: Place,

    /// Print the document as it is stored
    #[arg(long)]
    json: bool,
}

/// The design documents of a bucket as REST lists them.
#[derive(Deserialize)]
struct Listed {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    doc: Doc,
}

#[derive(Deserialize)]
struct Doc {
    meta: Meta,
    json: Box<RawValue>,
}

#[derive(Deserialize)]
struct Meta {
    id: String,
}

fn listed(bucket: &Bucket) -> Result<String, Failure> {
    let path = format!("/pools/default/buckets/{}/ddocs", percent(bucket.name()));
    let doing = format!("cannot list the views of bucket {}", bucket.name());
    // Where the bucket cannot have views, that is said in more words than REST's.
    bucket.ports()?;
    let body = bucket.rest.get(&path).map_err(|error| failed(&doing, error))?;
    String::from_utf8(body).map_err(|error| Failure::doing(&doing, error))
}

fn parsed(text: &str) -> Result<Listed, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::doing("the list of design documents cannot be read", error))
}

/// The names of a bucket's design documents.
pub(super) fn names(bucket: &Bucket) -> Result<Vec<String>, Failure> {
    let listed = parsed(&listed(bucket)?)?;
    Ok(listed.rows.iter().map(|row| document_name(&row.doc.meta.id).to_owned()).collect())
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let bucket = args.place.open()?;
    let text = listed(&bucket)?;
    if args.json {
        println!("{}", text.trim_end());
        return Ok(());
    }
    let listed = parsed(&text)?;
    if listed.rows.is_empty() {
        println!(
            "bucket {} has no design documents; `settee view create --help` says how to make one",
            bucket.name()
        );
        return Ok(());
    }
    let lines = |row: &Row| rows_of(row, left_out(&bucket, document_name(&row.doc.meta.id)).as_ref());
    let rows = listed.rows.iter().flat_map(lines).collect();
    print!("{}", table(&["DESIGN DOCUMENT", "STATE", "VIEW", "REDUCE", "LEFT OUT"], rows));
    Ok(())
}

/// How much each view of a design document leaves out.
type AllLeftOut = BTreeMap<String, LeftOut>;

/// The same of one view in words.
fn told(all: Option<&AllLeftOut>, view: &str) -> String {
    let Some(all) = all else { return "unknown".to_owned() };
    all.get(view).and_then(|left_out| left_out.told()).unwrap_or_else(|| "-".to_owned())
}

/// A line for each view of a design document; one for a document without views.
fn rows_of(row: &Row, left_out: Option<&AllLeftOut>) -> Vec<Vec<String>> {
    let name = document_name(&row.doc.meta.id);
    let line = |view: &str, reduce: &str| {
        vec![
            cell(name, NAME_CHARACTERS),
            state(name).to_owned(),
            cell(view, NAME_CHARACTERS),
            reduce.to_owned(),
            told(left_out, view),
        ]
    };
    match DesignDocument::parse_unchecked(row.doc.json.get().as_bytes()) {
        Ok(document) if !document.views.is_empty() => {
            document.views.iter().map(|view| line(&view.name, reduction(view))).collect()
        }
        _ => vec![line("-", "-")],
    }
}

fn state(name: &str) -> &'static str {
    if is_development(name) { "development" } else { "published" }
}

fn reduction(view: &View) -> &str {
    match &view.reduce {
        None => "-",
        Some(Reduction::Function(_)) => "function",
        Some(built_in) => built_in.source(),
    }
}

pub(super) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let bucket = args.place.open()?;
    let name = document_name(&args.name);
    let text = bucket.known_document(name)?;
    if args.json {
        println!("{}", text.trim_end());
        return Ok(());
    }
    let document = DesignDocument::parse_unchecked(text.as_bytes()).map_err(|refusal| {
        Failure::doing(format_args!("_design/{name} is no design document"), refusal.reason)
    })?;
    print!("{}", shown(name, &document, left_out(&bucket, name).as_ref()));
    Ok(())
}

/// A design document for people: its functions with the lines that their authors gave them.
fn shown(name: &str, document: &DesignDocument, left_out: Option<&AllLeftOut>) -> String {
    let mut out = format!("_design/{} ({})\n", printable(name), state(name));
    if document.views.is_empty() {
        out += "\nno views\n";
    }
    for view in &document.views {
        out += &format!("\nview {}\n  map\n{}", printable(&view.name), indented(&view.map, "    "));
        match &view.reduce {
            None => {}
            Some(Reduction::Function(source)) => out += &format!("  reduce\n{}", indented(source, "    ")),
            Some(built_in) => out += &format!("  reduce {}\n", built_in.source()),
        }
        if let Some(options) = &view.options {
            out += &format!("  options {}\n", printable(options));
        }
        let told = told(left_out, &view.name);
        if told != "-" {
            out += &format!("  left out: {told}\n");
        }
    }
    let members = json::members(&document.text).unwrap_or_default();
    for (member, value) in members.iter().filter(|(member, _)| member != "views") {
        out += &format!("\n{} {}\n", printable(member), printable(value));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_shown_with_the_lines_of_its_functions() {
        let text = "{\"views\":{\"v\":{\"map\":\"function (doc, meta) {\\n  emit(meta.id)\\n}\\n\",\"reduce\":\"_sum\"},\
                    \"w\":{\"map\":\"(doc) => 1\",\"reduce\":\"(k, v) => \\u001b 1\",\"options\":{}}},\"language\":\"x\"}";
        let document = DesignDocument::parse_unchecked(text.as_bytes()).unwrap();
        let expected = "_design/dev_a (development)\n\nview v\n  map\n    function (doc, meta) {\n      emit(meta.id)\n    }\n  \
                        reduce _sum\n\nview w\n  map\n    (doc) => 1\n  reduce\n    (k, v) => \\u{1b} 1\n  options {}\n\n\
                        language \"x\"\n";
        let nothing = AllLeftOut::new();
        assert_eq!(shown("dev_a", &document, Some(&nothing)), expected);
        assert!(shown("dev_a", &document, None).contains("reduce _sum\n  left out: unknown\n"));
        assert_eq!(
            shown("a", &DesignDocument::parse_unchecked(b"{}").unwrap(), None),
            "_design/a (published)\n\nno views\n"
        );
    }
}
