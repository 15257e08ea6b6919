//! DCP as state machines: decoded requests, engine buckets and the time go in, packets come out.
//!
//! [`producer::Producer`] is one consumer's connection: its settings, its streams, flow control and dead-connection
//! detection. It owns no socket, thread or clock. Whoever drives it passes on requests, calls
//! [`producer::Producer::pump`] when there is room for output, when a waiter of one of its streams is woken, and when
//! [`producer::Producer::due_at`] has come.
//!
//! Only the producing side exists.

pub mod producer;
