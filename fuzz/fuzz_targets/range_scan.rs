#![no_main]

#[path = "../shared/protocol.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::range_scan(bytes));
