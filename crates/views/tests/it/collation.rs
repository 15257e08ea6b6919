//! The order of keys: tables, and the agreement of comparison and encoding over random keys.

use std::cmp::Ordering;

use fastrand::Rng;
use settee_views::collation::{bound, compare, encode, group_prefix, group_text, row_key};

use crate::texts;

fn encoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(text, &mut bytes).unwrap_or_else(|error| panic!("{text}: {error}"));
    bytes
}

fn check(left: &str, right: &str, expected: Ordering) {
    assert_eq!(compare(left, right), Ok(expected), "{left} and {right}");
    assert_eq!(compare(right, left), Ok(expected.reverse()), "{right} and {left}");
    assert_eq!(encoded(left).cmp(&encoded(right)), expected, "bytes of {left} and {right}");
}

/// Each is less than all that follow.
const RISING: &[&str] = &[
    "null",
    "false",
    "true",
    "-1e308",
    "-10",
    "-1.5",
    "-1",
    "0",
    "5e-324",
    "1",
    "1.5",
    "2",
    "3.0",
    "4",
    "1e308",
    "\"\"",
    "\"_\"",
    "\"-\"",
    "\"😀\"",
    "\"1\"",
    "\"10\"",
    "\"2\"",
    "\"a\"",
    "\"A\"",
    "\"á\"",
    "\"Á\"",
    "\"a b\"",
    "\"a-b\"",
    "\"aa\"",
    "\"aA\"",
    "\"Aa\"",
    "\"ab\"",
    "\"b\"",
    "\"B\"",
    "\"ba\"",
    "\"bb\"",
    "\"ss\"",
    "\"ß\"",
    "\"z\"",
    "\"Z\"",
    "\"法\"",
    "\"法、\"",
    "[]",
    "[null]",
    "[\"a\"]",
    "[\"b\"]",
    "[\"b\",\"c\"]",
    "[\"b\",\"c\",\"a\"]",
    "[\"b\",\"d\"]",
    "[\"b\",\"d\",\"e\"]",
    "[[]]",
    "[{}]",
    "{}",
    "{\"a\":1}",
    "{\"a\":2}",
    "{\"b\":1}",
    "{\"b\":2}",
    "{\"b\":2,\"a\":1}",
    "{\"b\":2,\"c\":2}",
];

const EQUAL: &[(&str, &str)] = &[
    ("123", "123e0"),
    ("1", "1.0"),
    ("0", "-0"),
    ("9007199254740992", "9007199254740993"),
    ("\"a\"", "\"a\\u0000\""),
    ("\"á\"", "\"a\u{301}\""),
    ("\"á\"", "\"\\u00e1\""),
    ("\"😀\"", "\"\\ud83d\\ude00\""),
    ("[1,\"é\"]", " [ 1.0 , \"e\u{301}\" ] "),
    ("{\"á\":1}", "{\"a\u{301}\":1.0}"),
];

#[test]
fn keys_are_in_the_documented_order() {
    for (at, left) in RISING.iter().enumerate() {
        check(left, left, Ordering::Equal);
        for right in &RISING[at + 1..] {
            check(left, right, Ordering::Less);
        }
    }
    for (left, right) in EQUAL {
        check(left, right, Ordering::Equal);
    }
}

#[test]
fn bytes_compare_as_keys_do() {
    let mut random = Rng::with_seed(1);
    let mut equal = 0;
    for _ in 0..200_000 {
        let left = texts::value(&mut random, 3);
        let right = texts::value(&mut random, 3);
        let order = compare(&left, &right).unwrap();
        assert_eq!(order, encoded(&left).cmp(&encoded(&right)), "{left} and {right}");
        equal += u32::from(order == Ordering::Equal);
    }
    assert!(equal > 1000, "only {equal} pairs were equal");
}

#[test]
fn rows_are_ordered_by_key_then_id_then_ordinal() {
    let ids = ["", "\0", "\0\0", "\0a", "a", "a\0", "a\0\0", "a\0b", "a\u{1}", "aa", "b", "é", "\u{10ffff}"];
    let keys = ["null", "1", "\"a\"", "\"aa\"", "[1]", "[1,2]"];
    let mut rows = Vec::new();
    for key in keys {
        for id in ids {
            for ordinal in [0, 1, 256, u16::MAX] {
                let mut row = Vec::new();
                row_key(&encoded(key), id, ordinal, &mut row);
                rows.push(row);
            }
        }
    }
    assert!(rows.is_sorted_by(|left, right| left < right), "rows rise strictly");
    for (at, key) in keys.iter().enumerate() {
        let key = encoded(key);
        let inside = |lower: &[u8], upper: &[u8]| {
            rows.iter().filter(|row| row.as_slice() >= lower && row.as_slice() < upper).count()
        };
        assert_eq!(inside(&bound(&key, None, false), &bound(&key, None, true)), ids.len() * 4);
        assert_eq!(inside(&[], &bound(&key, None, false)), at * ids.len() * 4);
        for (before, id) in ids.iter().enumerate() {
            assert_eq!(
                inside(&bound(&key, None, false), &bound(&key, Some(id), false)),
                before * 4,
                "before {id:?}"
            );
            assert_eq!(inside(&bound(&key, Some(id), false), &bound(&key, Some(id), true)), 4, "at {id:?}");
        }
    }
}

#[test]
fn groups_are_the_first_elements() {
    let group = |key: &str, level| group_prefix(&encoded(key), level).unwrap().to_vec();
    assert_eq!(group("[1,2]", 2), group("[1.0,2,3]", 2));
    assert_ne!(group("[1]", 2), group("[1,2]", 2));
    assert_ne!(group("[1,2]", 2), group("[1,3]", 2));
    assert_eq!(group("[\"a\",{\"x\":1},2]", 2), group("[\"a\",{\"x\":1}]", 2));
    assert_eq!(group("[1,2]", 9), encoded("[1,2]"));
    assert_eq!(group("\"x\"", 1), encoded("\"x\""));
    assert_eq!(group_text("[1.0, [2, 3],4]", 2), "[1.0,[2, 3]]");
    assert_eq!(group_text("[1.0, 2]", 3), "[1.0, 2]");
    assert_eq!(group_text("{\"a\":1}", 3), "{\"a\":1}");
}

#[test]
fn groups_hold_together_in_the_order_of_rows() {
    let mut random = Rng::with_seed(2);
    let mut keys: Vec<String> = (0..5000).map(|_| texts::value(&mut random, 2)).collect();
    keys.sort_by(|left, right| compare(left, right).unwrap());
    for level in 1..3 {
        let mut seen = std::collections::BTreeSet::new();
        let mut last = Vec::new();
        for key in &keys {
            let group = group_prefix(&encoded(key), level).unwrap().to_vec();
            if group != last {
                assert!(seen.insert(group.clone()), "the group of {key} at level {level} comes twice");
                last = group;
            }
        }
    }
}
