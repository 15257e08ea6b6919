//! Integration tests of the `protocol` crate, one binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

// By the name the other crates use, so that the fuzz targets compile here and in `fuzz/` alike.
extern crate settee_protocol as protocol;

mod compatibility;
mod fuzz;
mod golden;
