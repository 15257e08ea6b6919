//! The memcached text protocol, as `doc/protocol.txt` of memcached describes it and 1.6 answers it.
//!
//! [`parse`] cuts one command with its data block out of the read buffer; [`reply`] appends what goes back.
//! Meta commands (`mg`, `ms`, …) and commands that administer memcached's own memory are answered `ERROR`, as
//! unknown ones are.

mod command;
mod line;
mod parse;
pub mod reply;

pub use command::{Command, Keys, StoreVerb, expiry_to_wire};
pub use parse::{LINE_BYTES_MAX, MULTIGET_LINE_BYTES_MAX, Parsed, parse};
