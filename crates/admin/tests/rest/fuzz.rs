//! A few seconds of fuzzing for what nodes say of documents, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../../fuzz/shared/runner.rs"]
mod runner;
#[path = "../../../../fuzz/shared/admin.rs"]
mod targets;

#[test]
fn fuzz_document() {
    runner::run("document", targets::document);
}
