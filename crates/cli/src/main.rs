//! The `settee` binary.
//!
//! All of it is in the library. A build translates that beside other crates, and a program only once all of them are done.

use std::process::ExitCode;

fn main() -> ExitCode {
    settee_cli::run()
}
