#![no_main]

#[path = "../shared/storage.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::store(bytes));
