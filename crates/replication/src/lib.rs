//! DCP as state machines: decoded requests, engine buckets and the time go in, packets come out.
//!
//! [`producer::Producer`] is one consumer's connection: its settings, its streams, flow control and dead-connection detection.
//! A [`consumer::Consumer`] is the other side of such a connection. It follows a producer on another node and feeds the
//! replicas here. Neither owns a socket, thread or clock. Their driver passes on packets. It calls
//! [`producer::Producer::pump`] or [`consumer::Consumer::tend`] when there is room for output, when one of their waiters is
//! woken, and when they are due. A [`Redial`] says when a link between nodes is dialled again.

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable,
    clippy::indexing_slicing,
    clippy::string_slice
)]
#![cfg_attr(test, allow(clippy::unreachable, clippy::string_slice))]

pub mod consumer;
mod link_name;
pub mod producer;
mod redial;

pub use link_name::LinkName;
pub use redial::Redial;
