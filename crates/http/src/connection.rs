//! Where a request came in.

use std::{net::SocketAddr, sync::Arc};

use tokio::sync::watch;

use crate::{client_chain::ClientChain, node_login::NodeLogin, places::Place};

/// Where a request came in.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The other end.
    pub peer: SocketAddr,
    /// The address the client reached this node by.
    pub local: SocketAddr,
    /// Whether it is under TLS.
    pub is_tls: bool,
    /// Turns true when the server stops; streams end then.
    pub closing: watch::Receiver<bool>,
    /// The connection's place among those of its listener.
    pub place: Arc<Place>,
    /// What the client has shown of itself under TLS.
    pub shown: ShownByClient,
    /// For a client that is another node.
    pub node: Arc<NodeLogin>,
}

/// What a client shows of itself in a handshake.
#[derive(Clone, Debug, Default)]
pub struct ShownByClient {
    /// Its certificate, which was verified.
    pub chain: Option<ClientChain>,
    /// It may be a client of which a certificate can be asked: under TLS, and no other node.
    pub could: bool,
}
