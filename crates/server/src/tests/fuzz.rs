//! A few seconds of fuzzing for the JSON check, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../../fuzz/shared/runner.rs"]
mod runner;

use serde::de::IgnoredAny;

use engine::json::is_json;

/// Whatever the check calls JSON, a parser accepts; deep nesting aside, the reverse holds as well.
fn agrees_with_a_parser(text: &[u8]) {
    let parsed = std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    assert_eq!(is_json(text), parsed);
}

#[test]
fn fuzz_json() {
    runner::run("json", agrees_with_a_parser);
}
