//! A few seconds of fuzzing for each decoder, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;

use crate::{collation, json};

fn key(bytes: &[u8]) {
    let _ = collation::split_row_key(bytes);
    let _ = collation::group_prefix(bytes, 2);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut encoded = Vec::new();
    let is_key = collation::encode(text, &mut encoded).is_ok();
    assert!(!is_key || json::check(text).is_ok());
    let middle = (0..=text.len() / 2).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (left, right) = text.split_at(middle);
    let _ = collation::compare(left, right);
    if !is_key {
        return;
    }
    assert_eq!(collation::group_prefix(&encoded, u64::MAX), Some(encoded.as_slice()));
    let mut row = Vec::new();
    collation::row_key(&encoded, "a\0b", 3, &mut row);
    let split = collation::split_row_key(&row).expect("a row that was just written");
    assert_eq!((split.key, split.docid.as_str(), split.ordinal), (encoded.as_slice(), "a\0b", 3));
    for level in 0..3 {
        let group = collation::group_text(text, level);
        assert_eq!(json::check(&group), Ok(()), "the key of a group is a key");
    }
}

#[test]
fn fuzz_view_key() {
    runner::run("view_key", key);
}
