//! A small cluster-aware client for Settee's own tools and tests: key-value operations over the memcached binary
//! protocol with Couchbase's extensions, and the management REST interface.
//!
//! Blocking and single-threaded on purpose. One [`KvConnection`] is one socket whose replies come in the order of
//! the requests. [`Client`] keeps one per node and routes by the cluster map. Tools that want more throughput open
//! more connections, or take the socket after the handshake ([`KvConnection::into_stream`]) into a loop of their
//! own. It is no SDK: no background threads, no reconnecting, no TLS; its user sees every error.

mod address;
mod body;
mod cluster;
mod connection;
mod error;
mod map;
pub mod rest;
mod sample;
mod scram;
mod session;

pub use address::with_port;
pub use body::Body;
pub use cluster::{Client, Document, Mutation, WriteOptions};
pub use connection::{KvConnection, Login, Response};
pub use error::{ClientError, Result, reasons};
pub use map::ClusterMap;
pub use rest::Rest;
pub use sample::{Facts, Sampled};
pub use session::Session;
