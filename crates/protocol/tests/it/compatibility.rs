//! `docs/compatibility.md` lists every opcode and every HELLO feature once, by number and name.

use protocol::{binary::Opcode, hello::Feature};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../../../docs/compatibility.md");
const STATES: [&str; 3] = ["works", "not supported", "retired"];

/// The rows of the tables below a heading: number, name and state.
fn rows(heading: &str) -> BTreeMap<u16, (&'static str, &'static str)> {
    let (_, section) = TEXT.split_once(heading).unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap();
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `0x")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, name, state, ..] = cells[..] else { panic!("too few cells: {line}") };
        assert!(STATES.contains(&state), "unknown state: {line}");
        let number = number.trim_matches('`').trim_start_matches("0x");
        let number = u16::from_str_radix(number, 16).unwrap_or_else(|_| panic!("no number: {line}"));
        assert_eq!(rows.insert(number, (name, state)), None, "listed twice: {line}");
    }
    rows
}

#[test]
fn every_opcode_is_listed_once_with_a_state() {
    let mut listed = rows("## Binary protocol, opcode by opcode");
    for &opcode in Opcode::ALL {
        let row = listed.remove(&u16::from(opcode.code()));
        let (name, state) = row.unwrap_or_else(|| panic!("{opcode:?} is missing"));
        assert_eq!(name, opcode.name());
        assert_eq!(state == "retired", opcode.is_retired(), "{opcode:?}");
    }
    assert!(listed.is_empty(), "listed and unknown: {listed:?}");
}

#[test]
fn every_feature_is_listed_once_with_a_state() {
    let mut listed = rows("## HELLO features");
    for &feature in Feature::ALL {
        let (name, _) = listed.remove(&(feature as u16)).unwrap_or_else(|| panic!("{feature:?} is missing"));
        assert_eq!(name, format!("{feature:?}"));
    }
    assert!(listed.is_empty(), "listed and unknown: {listed:?}");
}
