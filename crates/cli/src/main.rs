//! The `settee` binary.
fn main() {}
