//! A few seconds of fuzzing per decoder, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../../fuzz/shared/runner.rs"]
mod runner;
#[path = "../../../../fuzz/shared/protocol.rs"]
mod targets;

#[test]
fn fuzz_binary_frame() {
    runner::run("binary_frame", targets::binary_frame);
}

#[test]
fn fuzz_frame_infos() {
    runner::run("frame_infos", targets::frame_infos);
}

#[test]
fn fuzz_text() {
    runner::run("text", targets::text);
}

#[test]
fn fuzz_hello() {
    runner::run("hello", targets::hello);
}

#[test]
fn fuzz_sasl() {
    runner::run("sasl", targets::sasl);
}

#[test]
fn fuzz_subdoc() {
    runner::run("subdoc", targets::subdoc);
}

#[test]
fn fuzz_range_scan() {
    runner::run("range_scan", targets::range_scan);
}

#[test]
fn fuzz_dcp() {
    runner::run("dcp", targets::dcp);
}
