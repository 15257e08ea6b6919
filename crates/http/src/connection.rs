//! Where a request came in.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::{client_chain::ClientChain, gate::BoxFuture, node_login::NodeLogin, places::Place};

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
    /// What is spoken on it after HTTP.
    pub afterwards: Arc<Afterwards>,
}

/// What is spoken on a connection once HTTP has ended on it: an answer of status 101 brings it. It has the connection's place, and ends when
/// its client takes nothing, or when the place is needed.
#[derive(Default)]
pub struct Afterwards(Mutex<Option<BoxFuture<'static, ()>>>);

impl Afterwards {
    /// Has `conversation` follow the answer that is being made.
    pub fn follow(&self, conversation: BoxFuture<'static, ()>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(conversation);
    }

    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Afterwards {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Afterwards")
    }
}

/// What a client shows of itself in a handshake.
#[derive(Clone, Debug, Default)]
pub struct ShownByClient {
    /// Its certificate, which was verified.
    pub chain: Option<ClientChain>,
    /// It has asked for a name that nodes dial, so it was asked for no certificate. Anybody may do so.
    pub is_for_node: bool,
}
