#![no_main]

#[path = "../shared/views.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::view_program(bytes));
