//! The data plane and, beside it, the composition root: sockets, threads, clocks, authentication, TLS, and the way
//! of a request from bytes to [`engine`] and back.
//!
//! A request: [`worker`] reads, [`connection`] cuts requests out of the bytes and parks what must wait,
//! [`handlers`] execute them against the engine, [`output`] collects the answers, the worker writes once. Slow
//! things live elsewhere: TLS handshakes in [`handshake`], password hashing in [`helper`], accepting in
//! [`acceptor`].

mod acceptor;
mod account;
mod admission;
mod call;
mod client_certificate;
mod connection;
mod context;
mod dcp;
mod fetch;
mod flagged;
mod followers;
mod forward;
mod handlers;
mod handshake;
mod helper;
mod lease;
pub mod limits;
pub mod links;
pub mod machine;
mod mailbox;
pub mod meter;
mod node_keys;
mod node_tls;
mod opcodes;
mod output;
pub mod phases;
mod places;
mod reply;
pub mod runtime;
mod sasl;
mod session;
pub mod shared;
mod slow;
mod statistics;
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
pub use shared::{
    AuditEvent, BucketEntry, BucketMaps, ConfigDocument, ConfigVersion, LoginEvent, Shared, Snapshot,
};
pub use workers::{ListenerKind, WorkerOptions, Workers};
