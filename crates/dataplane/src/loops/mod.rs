//! The threads of the data plane: one loop per core, the acceptor, the TLS handshaker; and how they start and stop.

mod acceptor;
mod handshake;
pub(crate) mod worker;
pub(crate) mod workers;
