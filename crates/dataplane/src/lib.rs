//! The data plane: sockets, threads of connections, authentication, TLS, and the way of a request from bytes to
//! [`engine`] and back.
//!
//! A request: [`worker`] reads, [`connection`] cuts requests out of the bytes and parks what must wait,
//! [`handlers`] execute them against the engine, [`output`] collects the answers, the worker writes once. Slow
//! things live elsewhere: TLS handshakes in [`handshake`], password hashing in [`helper`], accepting in
//! [`acceptor`].
//!
//! Deliberately absent: REST, the node's part in its cluster, services, and what starts all of them. The daemon
//! publishes what the data plane has to know ([`Shared`]).

mod acceptor;
pub mod account;
mod admission;
mod call;
mod client_certificate;
mod connection;
mod context;
mod dcp;
pub mod dcp_stats;
mod fetch;
mod flagged;
pub mod followers;
mod forward;
mod handlers;
mod handshake;
mod helper;
pub mod lease;
pub mod limits;
pub mod links;
pub mod machine;
mod mailbox;
pub mod meter;
pub mod node_keys;
pub mod node_tls;
mod opcodes;
mod output;
pub mod phases;
mod places;
mod reply;
mod sasl;
mod session;
pub mod shared;
pub mod slow;
pub mod statistics;
mod sync;
#[cfg(test)]
mod tests;
mod text;
pub mod tls;
mod transport;
pub mod value;
mod worker;
mod workers;

pub use mailbox::Wakes;
pub use meter::BucketMeter;
pub use session::PROBE_AGENT;
pub use shared::{
    AuditEvent, BucketEntry, BucketMaps, ConfigDocument, ConfigVersion, LoginEvent, Shared, Snapshot,
};
pub use workers::{ListenerKind, WorkerOptions, Workers};
