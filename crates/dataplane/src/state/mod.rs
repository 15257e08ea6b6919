//! What threads share: the state of the node as loops see it, and the ways in which a loop is reached.
//!
//! State lies here, and the procedures on it in the rooms above. So nothing here knows a request or a connection.

pub mod account;
pub(crate) mod asking;
pub(crate) mod completion;
pub(crate) mod dcp_totals;
pub(crate) mod errand;
pub(crate) mod flagged;
pub(crate) mod forwarder;
pub(crate) mod gathering;
pub(crate) mod helper;
pub mod lease;
pub(crate) mod link;
pub(crate) mod mailbox;
pub(crate) mod producers;
pub mod shared;
