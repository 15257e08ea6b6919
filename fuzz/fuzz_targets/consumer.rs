#![no_main]

#[path = "../shared/replication.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::consumer(bytes));
