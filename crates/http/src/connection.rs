//! Where a request came in.

use std::{net::SocketAddr, sync::Arc};

use tokio::sync::watch;

use crate::places::Place;

/// Where a request came in.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The other end.
    pub peer: SocketAddr,
    /// The address the client reached this node by.
    pub local: SocketAddr,
    /// Turns true when the server stops; streams end then.
    pub closing: watch::Receiver<bool>,
    /// The connection's place among those of its listener.
    pub place: Arc<Place>,
}
