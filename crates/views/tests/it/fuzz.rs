//! A few seconds of fuzzing per decoder, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../../fuzz/shared/runner.rs"]
mod runner;
#[path = "../../../../fuzz/shared/views.rs"]
mod targets;

#[test]
fn fuzz_view_key() {
    runner::run("view_key", targets::view_key);
}

#[test]
fn fuzz_view_query() {
    runner::run("view_query", targets::view_query);
}

#[test]
fn fuzz_view_design() {
    runner::run("view_design", targets::view_design);
}

#[test]
fn fuzz_view_frame() {
    runner::run("view_frame", targets::view_frame);
}

#[test]
fn fuzz_view_question() {
    runner::run("view_question", targets::view_question);
}

#[test]
fn fuzz_view_answer() {
    runner::run("view_answer", targets::view_answer);
}

#[test]
fn fuzz_view_source() {
    runner::run("view_source", targets::view_source);
}

#[test]
fn fuzz_view_program() {
    runner::run("view_program", targets::view_program);
}
