//! `docs/compatibility.md` lists every opcode once, by its number and name.

use protocol::binary::Opcode;
use std::collections::BTreeMap;

const STATES: [&str; 3] = ["works", "not supported", "retired"];

#[test]
fn every_opcode_is_listed_once_with_a_state() {
    let text = include_str!("../../../../docs/compatibility.md");
    let mut listed = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `0x")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, name, state, ..] = cells[..] else { panic!("too few cells: {line}") };
        assert!(STATES.contains(&state), "unknown state: {line}");
        let number = number.trim_matches('`').trim_start_matches("0x");
        let number = u8::from_str_radix(number, 16).unwrap_or_else(|_| panic!("no opcode: {line}"));
        assert_eq!(listed.insert(number, (name, state)), None, "listed twice: {line}");
    }
    for &opcode in Opcode::ALL {
        let (name, state) = listed.remove(&opcode.code()).unwrap_or_else(|| panic!("{opcode:?} is missing"));
        assert_eq!(name, opcode.name());
        assert_eq!(state == "retired", opcode.is_retired(), "{opcode:?}");
    }
    assert!(listed.is_empty(), "listed and unknown: {listed:?}");
}
