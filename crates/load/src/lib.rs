//! The load generator: what is done to a server, when, and what it took.
//!
//! From the inside out:
//! - An [`op::Op`] is an operation as a user counts it.
//! - A [`records::Records`] says what a record's key and value are.
//! - A [`choose::Chooser`] says which record is next, and [`pace`] says when.
//! - [`wire`] puts an operation into bytes.
//! - A [`driver::Driver`] is one thread with its connections.
//! - A [`crew::Crew`] is several threads as one run.
//! - A [`tally::Tally`] is what the run came to.
//!
//! Nothing here knows flags or files of the command line; whatever prints is in `report`. Clocks, sockets and threads
//! are everywhere else allowed to be: this measures a server from outside and is no part of one.

pub mod choose;
pub mod compare;
pub mod conduct;
pub mod crew;
pub mod doctor;
pub mod drain;
pub mod driver;
pub mod fleet;
pub mod keys;
pub mod op;
pub mod pace;
pub mod price;
pub mod process;
pub mod profile;
pub mod queries;
pub mod records;
pub mod report;
pub mod tally;
pub mod target;
pub mod validate;
pub mod values;
pub mod wire;

pub use choose::{Choice, Part};
pub use crew::Crew;
pub use driver::{Advance, Driver, OnBreak, Phase, Stop};
pub use op::{Class, Mix, Op};
pub use pace::{Control, Pace};
pub use process::Usage;
pub use queries::Queries;
pub use records::Records;
pub use tally::{Interval, Latencies, OpTally, Tally};
pub use target::{LoadError, Target};
pub use wire::{Protocol, Settings};
