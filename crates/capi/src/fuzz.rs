//! A few seconds of fuzzing for paths and for what is listed, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;

use axum::http::Uri;
use http::form;
use serde_json::value::RawValue;
use views::design::DesignDocument;

use crate::path::{Database, Target, redirected};

fn path(bytes: &[u8]) {
    let Ok(uri) = Uri::try_from(bytes) else { return };
    let decoded = uri.path().split('/').filter(|part| !part.is_empty());
    let Some(path) = decoded.map(|part| form::decode(part.as_bytes(), false)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let Some((first, rest)) = path.split_first() else { return };
    let database = Database::of(first);
    assert!(first.starts_with(database.bucket) && !database.bucket.contains(['+', '/', ';']));
    let target = Target::of(rest);
    if let Target::Design(name) | Target::View(name, _) | Target::Handler(name, _) = target {
        assert!(!name.is_empty());
        // Written as a client is told, it is the same one.
        let again = form::decode(form::escaped(name).as_bytes(), false);
        assert_eq!(again.as_deref(), Some(name));
    }
    if let Some(location) = redirected(&uri) {
        assert!(location.starts_with('/') && !location.starts_with("//"), "it stays on this node");
        let moved: Uri = location.parse().expect("a path");
        assert_eq!(redirected(&moved), None, "nobody is sent on twice");
    }
}

#[test]
fn fuzz_view_path() {
    runner::run("view_path", path);
}

/// One design document that cannot be listed would keep a bucket's others from being listed.
fn listed(bytes: &[u8]) {
    let Ok(document) = DesignDocument::parse_unchecked(bytes) else { return };
    let text = document.text.trim_ascii().to_owned();
    let raw = RawValue::from_string(document.text).expect("what is stored can be listed");
    assert_eq!(raw.get(), text);
}

#[test]
fn fuzz_listed_design() {
    runner::run("view_design", listed);
}
