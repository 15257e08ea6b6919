//! Tests of whole nodes in this process.

mod ends;
mod statistics;
#[path = "../../tests/support/mod.rs"]
pub(crate) mod support;
mod told;

use crate as daemon;
