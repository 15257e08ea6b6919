//! What a connection is to the operating system and to its other end: sockets, TLS, output, places, addresses.

pub(crate) mod client_certificate;
pub mod limits;
pub(crate) mod listener;
pub mod node_keys;
pub mod node_tls;
pub(crate) mod output;
pub(crate) mod peer;
pub(crate) mod places;
pub mod tls;
pub(crate) mod transport;
