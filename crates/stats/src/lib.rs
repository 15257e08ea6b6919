//! The words in which statistics are declared, read and told. A [`Statistic`] has a [`Row`] that says where its figure
//! comes from. [`Reading`] is its figure at a moment, and [`Samples`] are its figures over time. A node's figures of
//! its machine are here too.
//!
//! The data plane and the daemon declare their statistics in these words, and REST shows them. So neither needs to know
//! the other.
//!
//! Deliberately absent: the figures themselves, and their gathering.

mod load;
mod machine;
mod row;
mod slow;
mod statistic;

pub use load::{ConnectionLoad, ConnectionsReport, HotClient, HotKey, HotReport};
pub use machine::{NodeMemory, SystemStats};
pub use row::{Row, counter, gauge, pairs, read, row, text};
pub use slow::SlowOperation;
pub use statistic::{Across, Kind, Lookup, Metric, Reading, Samples, Statistic, Unit, Value, Zoom};
