//! The crate's public parts together, held to tables and to models.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod analysed;
mod collation;
mod fuzz;
mod index;
mod js;
mod model;
mod native;
mod native_bounds;
mod texts;
