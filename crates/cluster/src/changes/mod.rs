//! What may be done to the metadata: commands, and how each changes the state.

mod apply;
pub mod bucket;
mod collections;
pub(crate) mod command;
pub mod design_documents;
pub(crate) mod level;
pub(crate) mod members;
pub mod moves;
pub mod objectives;
pub mod rebalancing;
pub(crate) mod reforming;
mod settings;
pub mod users;

pub use command::{Applied, Command};
