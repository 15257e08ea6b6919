//! The data plane: sockets, threads of connections, authentication, TLS, and the way of a request from bytes to
//! [`engine`] and back.
//!
//! The way of a request: a loop reads. Its connection cuts requests out of the bytes and parks those that must wait.
//! Handlers execute them against the engine. The output collects the answers, and the loop writes once. Slow work has
//! threads of its own: TLS handshakes, password hashing, accepting.
//!
//! The crate's rooms, from the top down. An import runs downward or stays in its room, which a test in `crates/tidy` holds.
//!
//! | room | what is in it |
//! |---|---|
//! | `links` | connections to the nodes that this one follows: which are wished for, how they are made |
//! | `loops` | the threads: loops, acceptor, TLS handshaker |
//! | `connection` | a connection as a state machine over bytes, in either direction |
//! | `handlers` | what each command does, the text protocol's among them |
//! | `statistics` | the statistics of the data path, and how far followers are |
//! | `forward` | requests of plain memcached clients for other nodes |
//! | `request` | a request, its session, its surroundings, where it stops, its answer |
//! | `state` | what threads share: snapshots, mailboxes, connections to other nodes, the account of memory |
//! | `figures` | counters and clocks |
//! | `net` | sockets, TLS, output, addresses |
//!
//! Deliberately absent: REST, the node's part in its cluster, services, and what starts all of them. The daemon
//! publishes what the data plane has to know ([`Shared`]).

mod connection;
mod figures;
mod forward;
mod handlers;
pub mod links;
mod loops;
mod net;
mod request;
mod state;
pub mod statistics;
mod sync;
#[cfg(test)]
mod tests;

pub use figures::{machine, meter, phases, slow, ticks};
pub use net::{limits, node_keys, node_tls, tls};
pub use request::value;
pub use state::{account, lease, shared};
pub use statistics::{dcp as dcp_stats, followers};

pub use figures::meter::BucketMeter;
pub use loops::workers::{WorkerOptions, Workers};
pub use net::listener::ListenerKind;
pub use request::session::PROBE_AGENT;
pub use state::{
    mailbox::Wakes,
    shared::{
        AuditEvent, BucketEntry, BucketMaps, ConfigDocument, ConfigVersion, LoginEvent, Shared, Snapshot,
    },
};
