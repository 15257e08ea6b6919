//! Whom the load is for: addresses, credentials, and which node serves which key.

use super::Protocol;
use base::VbId;
use client::{ClientError, ClusterMap, KvConnection, Login};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};

/// Why a phase of load could not be finished.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A connection could not be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A connection broke, and with it the phase: a figure that lacks a client is no figure.
    #[error("connection {connection} broke after {answered} replies: {reason}")]
    Broken {
        /// Which one.
        connection: usize,
        /// Replies it had received.
        answered: u64,
        /// Why.
        reason: String,
    },
    /// No reply for a long time.
    #[error("the server answered nothing for {0} s; {1} requests are outstanding")]
    Stalled(u64, usize),
    /// Nothing but "temporary failure" for a long time.
    #[error(
        "the server has answered \"temporary failure\" for {0} s: the bucket's memory quota may be too small for \
         this data, or its disk too slow or full"
    )]
    NoProgress(u64),
    /// The server refused requests for good.
    #[error("{count} requests were refused, the first with: {text}")]
    Refused {
        /// How many.
        count: u64,
        /// What the first refusal said.
        text: String,
    },
    /// Polling failed.
    #[error("cannot wait for the network: {0}")]
    Poll(#[from] io::Error),
}

/// A server or cluster.
pub(crate) struct Target {
    /// What it speaks.
    pub(crate) protocol: Protocol,
    address: String,
    login: Login,
    map: Option<ClusterMap>,
}

impl Target {
    /// Finds out who serves what. `address` is `host:port`; `login` matters to the Couchbase protocol only.
    pub(crate) fn discover(protocol: Protocol, address: &str, login: Login) -> Result<Target, LoadError> {
        let map = match protocol {
            Protocol::Couchbase => Some(KvConnection::open(address, &login)?.cluster_map()?),
            Protocol::Binary | Protocol::Text => None,
        };
        Ok(Target { protocol, address: address.to_owned(), login, map })
    }

    /// How many nodes there are to connect to.
    pub(super) fn nodes(&self) -> usize {
        self.map.as_ref().map_or(1, |map| map.nodes.len())
    }

    /// vBucket and node of a key. Plain memcached has one node and no vBuckets.
    pub(super) fn route(&self, key: &[u8]) -> (VbId, usize) {
        match &self.map {
            // A vBucket nobody serves is asked for at the first node, whose refusal is then counted.
            Some(map) => {
                let vb = map.vbucket_of(key);
                (vb, map.active_node(vb).unwrap_or(0))
            }
            None => (VbId(0), 0),
        }
    }

    /// A connection to a node, ready for requests.
    pub(super) fn connect(&self, node: usize) -> Result<TcpStream, LoadError> {
        let stream = match &self.map {
            Some(map) => KvConnection::open(&map.nodes[node], &self.login)?.into_stream(),
            None => {
                let failed = |source| ClientError::Connect { address: self.address.clone(), source };
                let resolved = self.address.to_socket_addrs().map_err(failed)?.next();
                let resolved = resolved.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
                TcpStream::connect(resolved).map_err(failed)?
            }
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}
