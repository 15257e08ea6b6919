#![no_main]

#[path = "../shared/engine.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::json(bytes));
