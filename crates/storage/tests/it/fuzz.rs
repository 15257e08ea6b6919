//! A few seconds of fuzzing, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../../fuzz/shared/runner.rs"]
mod runner;
#[path = "../../../../fuzz/shared/storage.rs"]
mod targets;

#[test]
fn fuzz_store() {
    runner::run("store", targets::store);
}
