//! Scenarios that press a node until it ought to wedge, and prove that it does not.
//!
//! From the inside out:
//! - [`documents`] says what a document is, and [`ledger`] what was promised about each of them.
//! - [`pipeline`] talks to the nodes that serve them.
//! - [`loaders`], [`probe`], [`deleter`], [`reader`] and [`readers`] are the clients.
//! - [`watch`] samples what the nodes say about themselves, and [`pulse`] whether their machine stands still.
//! - [`checks`] collects what must hold.
//!
//! A scenario puts them together over a [`target::Target`], which may be one node ([`process`]) or a [`cluster`]. The
//! scenario [`wedge`] presses it. The scenario [`chaos`] kills, cuts and rebalances it under load of `settee-load`.
//!
//! It sees a node as its users do, through sockets and `/proc`, and knows nothing of the server's code. It prints as it
//! goes: a run takes minutes, and its timeline is half of its worth.

pub mod chaos;
pub mod checks;
pub mod cluster;
pub mod deleter;
pub mod documents;
pub mod ledger;
pub mod loaders;
pub mod pipeline;
pub mod probe;
pub mod process;
pub mod pulse;
pub mod reader;
pub mod readers;
pub mod target;
pub mod watch;
pub mod wedge;

use std::io;

/// Why a scenario could not be carried out. What it found wrong with the node is in its [`checks::Checks`].
#[derive(Debug, thiserror::Error)]
pub enum TortureError {
    /// A node could not be started, or not in time.
    #[error("{0}")]
    Node(String),
    /// A call that the scenario itself depends on failed.
    #[error(transparent)]
    Client(#[from] client::ClientError),
    /// Files of the scenario.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A thread of the scenario ended in a panic.
    #[error("a thread of the scenario failed")]
    Thread,
}
