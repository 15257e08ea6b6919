//! A few seconds of fuzzing per decoder, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../../fuzz/shared/runner.rs"]
mod runner;
#[path = "../../../../fuzz/shared/engine.rs"]
mod targets;

#[test]
fn fuzz_json() {
    runner::run("json", targets::json);
}

#[test]
fn fuzz_path() {
    runner::run("path", targets::path);
}

#[test]
fn fuzz_subdoc_edit() {
    runner::run("subdoc_edit", targets::subdoc_edit);
}

#[test]
fn fuzz_xattrs() {
    runner::run("xattrs", targets::xattrs);
}
