#![no_main]

#[path = "../shared/admin.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::document(bytes));
