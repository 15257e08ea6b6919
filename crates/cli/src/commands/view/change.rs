//! `settee view create`, `publish` and `drop`. The ports of views know no revisions: of two changes of one design document at the
//! same time the later one wins.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Map, Value, json};
use views::design::is_development;

use super::place::{Place, document_name, view_name};
use crate::commands::Failure;

/// What the name of a design document under development begins with.
const DEVELOPMENT: &str = "dev_";

/// Make or change one view of a design document under development
#[derive(Args)]
#[command(after_help = "\
The view is stored in the design document whose name begins with dev_; that is put before the name where it is missing.
Applications do not notice until it is published. Other views of the document stay. The node compiles the functions first
and refuses those that are none.

A function in a file is what JavaScript calls an expression: function (doc, meta) { ... } or (doc, meta) => ... . Blanks
around it and a semicolon behind it are left out.

EXAMPLES
  settee view create tags/electronic --map map.js -b songs -u admin
  settee view create tags/electronic --map map.js --reduce _count -b songs -u admin
  settee view create tags/longest --map map.js --reduce reduce.js -b songs -u admin
  settee view create tags/electronic --map map.js --published -b songs -u admin    where applications ask, at once")]
pub(crate) struct CreateArgs {
    /// The view
    #[arg(value_name = "DESIGN-DOCUMENT/VIEW")]
    view: String,

    /// File with the map function; - reads standard input
    #[arg(long, value_name = "FILE")]
    map: PathBuf,

    /// _count, _sum, _stats, or a file with a reduce function
    #[arg(long, value_name = "BUILT-IN|FILE")]
    reduce: Option<String>,

    /// Change the published design document itself
    #[arg(long)]
    published: bool,

    #[command(flatten)]
    place: Place,
}

/// Copy a design document under development to its published name
#[derive(Args)]
#[command(after_help = "\
dev_NAME is copied to NAME, and replaces what is there. dev_NAME stays. Where both have the same views, they share one index,
so nothing is built anew.

EXAMPLES
  settee view publish tags -b songs -u admin       copies dev_tags to tags")]
pub(crate) struct PublishArgs {
    /// The design document, with or without dev_
    #[arg(value_name = "DESIGN-DOCUMENT")]
    name: String,

    #[command(flatten)]
    place: Place,
}

/// Drop a design document, or one view of it
#[derive(Args)]
#[command(after_help = "\
EXAMPLES
  settee view drop dev_tags -b songs -u admin             all of it
  settee view drop dev_tags/electronic -b songs -u admin  one view; the others stay")]
pub(crate) struct DropArgs {
    /// The design document, or the view
    #[arg(value_name = "DESIGN-DOCUMENT[/VIEW]")]
    name: String,

    #[command(flatten)]
    place: Place,
}

pub(super) fn create(args: &CreateArgs) -> Result<(), Failure> {
    let (document, view) = view_name(&args.view)?;
    let document = match args.published || is_development(document) {
        true => document.to_owned(),
        false => format!("{DEVELOPMENT}{document}"),
    };
    let (map, reduce) = (source(&args.map)?, args.reduce.as_deref().map(reduction).transpose()?);
    let bucket = args.place.open()?;
    let stored = bucket.document(&document)?;
    let changed = with_view(stored.as_deref().unwrap_or("{}"), view, &map, reduce.as_deref());
    let changed =
        changed.map_err(|why| Failure::doing(format_args!("_design/{document} is not changed"), why))?;
    bucket.store(
        &document,
        &changed.to_string(),
        &format!("view {view} of _design/{document} is not stored"),
    )?;
    let done = if stored.is_some() { "stored in" } else { "stored in the new" };
    println!("view {view} is {done} design document _design/{document}");
    if let Some(published) = document.strip_prefix(DEVELOPMENT) {
        let bucket = bucket.name();
        println!("ask it:     settee view query {document}/{view} -b {bucket}");
        println!("publish it: settee view publish {published} -b {bucket}");
    }
    Ok(())
}

/// The document with this view in place of one with the same name. The error says why there can be none.
fn with_view(text: &str, view: &str, map: &str, reduce: Option<&str>) -> Result<Value, String> {
    let mut document: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| format!("what is stored is no JSON object: {error}"))?;
    let views = document.entry("views").or_insert_with(|| json!({}));
    let views = views.as_object_mut().ok_or("its member views is no object")?;
    let entry = views.entry(view).or_insert_with(|| json!({}));
    let entry = entry.as_object_mut().ok_or("the view is no object")?;
    entry.insert("map".to_owned(), map.into());
    entry.remove("reduce");
    entry.extend(reduce.map(|reduce| ("reduce".to_owned(), reduce.into())));
    Ok(document.into())
}

/// The function in a file.
pub(super) fn source(path: &Path) -> Result<String, Failure> {
    let cannot =
        |error| Failure::doing(format_args!("cannot read the function in {}", path.display()), error);
    let mut text = String::new();
    match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        false => std::fs::read_to_string(path).map(|read| text = read),
    }
    .map_err(cannot)?;
    let function = text.trim().trim_end_matches(';').trim_end();
    if function.is_empty() {
        return Err(Failure(format!("{} is empty: write a function into it", path.display())));
    }
    Ok(function.to_owned())
}

/// A built-in reduction, or the function in a file. Whether there is a built-in one of that name is the node's to say.
pub(super) fn reduction(given: &str) -> Result<String, Failure> {
    if given.starts_with('_') { Ok(given.to_owned()) } else { source(Path::new(given)) }
}

pub(super) fn publish(args: &PublishArgs) -> Result<(), Failure> {
    let name = document_name(&args.name);
    let name = name.strip_prefix(DEVELOPMENT).unwrap_or(name);
    let from = format!("{DEVELOPMENT}{name}");
    let bucket = args.place.open()?;
    let text = bucket.known_document(&from)?;
    let before = bucket.document(name)?;
    if before.as_deref() == Some(text.as_str()) {
        println!("_design/{name} is the same as _design/{from} already");
        return Ok(());
    }
    bucket.store(name, &text, &format!("_design/{from} is not published"))?;
    let replaced = if before.is_some() { ", in place of what it was" } else { "" };
    println!("_design/{from} is published as _design/{name}{replaced}");
    Ok(())
}

pub(super) fn drop(args: &DropArgs) -> Result<(), Failure> {
    let bucket = args.place.open()?;
    let name = document_name(&args.name);
    let doing = format!("{name} is not dropped");
    // A design document may have a slash in its name; one that is there is meant.
    let told = bucket.request("DELETE", name, None, &doing)?;
    match (told.code, view_name(name)) {
        (200, _) => println!("_design/{name} is dropped"),
        (404, Ok((document, view))) => {
            let text = bucket.known_document(document)?;
            let without = without_view(&text, view).ok_or_else(|| {
                Failure(format!(
                    "_design/{document} has no view {view}: `settee view show {document}` shows those it has"
                ))
            })?;
            bucket.store(document, &without.to_string(), &doing)?;
            println!("view {view} of _design/{document} is dropped");
        }
        (404, Err(_)) => return Err(bucket.unknown(name)),
        _ => return Err(told.refused(&doing)),
    }
    Ok(())
}

/// The document without this view, or `None` where it has none of that name.
fn without_view(text: &str, view: &str) -> Option<Value> {
    let mut document: Value = serde_json::from_str(text).ok()?;
    document.get_mut("views")?.as_object_mut()?.remove(view)?;
    Some(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_view_changes_and_all_else_stays() {
        let text = r#"{"views":{"a":{"map":"old","reduce":"_sum","options":{"x":1}},"b":{"map":"kept"}},"language":"x"}"#;
        let changed = with_view(text, "a", "new", None).unwrap();
        assert_eq!(
            changed,
            json!({"views": {"a": {"map": "new", "options": {"x": 1}}, "b": {"map": "kept"}}, "language": "x"})
        );
        let added = with_view("{}", "c", "m", Some("_count")).unwrap();
        assert_eq!(added, json!({"views": {"c": {"map": "m", "reduce": "_count"}}}));
        assert!(with_view("[]", "c", "m", None).is_err());
        assert!(with_view(r#"{"views":1}"#, "c", "m", None).is_err());
        assert_eq!(without_view(text, "b").unwrap()["views"].as_object().unwrap().len(), 1);
        assert_eq!(without_view(text, "c"), None);
    }

    #[test]
    fn a_function_is_read_without_what_stands_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map.js");
        std::fs::write(&path, "\n  function (doc) { emit(1); };\n").unwrap();
        assert_eq!(source(&path).unwrap(), "function (doc) { emit(1); }");
        assert_eq!(reduction("_count").unwrap(), "_count");
        std::fs::write(&path, " \n").unwrap();
        assert!(source(&path).unwrap_err().to_string().contains("is empty"));
    }
}
