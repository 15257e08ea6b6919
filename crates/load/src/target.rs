//! Whom the load is for: addresses, credentials, and which node serves which key.

use crate::queries::Queries;
use crate::wire::Protocol;
use base::{CollectionId, VbId};
use client::{Client, ClientError, ClusterMap, KvConnection, Login, Rest, rest::percent};
use protocol::hello::{Feature, FeatureSet};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long a connection may take to be made, and each reply while it is.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a node may take to give a map. One that was stopped takes for ever, and others know as well.
const MAP: Duration = Duration::from_secs(1);
/// After the first map, how long others are waited for: theirs may be newer.
const OTHER_MAPS: Duration = Duration::from_millis(50);

/// Why a server may have no room, where it does not say.
const UNSAID: &str = "the bucket's memory quota may be too small for this data, or its disk too slow or full";

/// Why a phase of load could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
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
    #[error("the server has answered \"temporary failure\" for {seconds} s: {}", reason.as_deref().unwrap_or(UNSAID))]
    NoProgress {
        /// For how long.
        seconds: u64,
        /// What the server said last of why, if it said anything.
        reason: Option<String>,
    },
    /// The server refused requests for good.
    #[error("{count} requests were refused, most of them with: {text}")]
    Refused {
        /// How many.
        count: u64,
        /// What the most frequent refusal said.
        text: String,
    },
    /// What was asked for cannot be.
    #[error("{0}")]
    Plan(String),
    /// A thread of the run ended in a panic.
    #[error("a load thread failed")]
    Thread,
    /// Polling failed.
    #[error("cannot wait for the network: {0}")]
    Poll(#[from] io::Error),
}

/// A server or cluster.
pub struct Target {
    /// What it speaks.
    pub protocol: Protocol,
    address: String,
    login: Login,
    map: Option<ClusterMap>,
    /// Where documents live, if not in the default collection.
    collection: Option<CollectionId>,
    /// Whether responses are to say how long the server took.
    traced: bool,
    /// Whether responses are to come in the order of requests.
    ordered: bool,
}

impl Target {
    /// Finds out who serves what. `address` is `host:port`; `login` matters to the Couchbase protocol only.
    ///
    /// # Errors
    /// No connection, no access, no bucket.
    pub fn discover(protocol: Protocol, address: &str, login: Login) -> Result<Target, LoadError> {
        let map = match protocol {
            Protocol::Couchbase => Some(KvConnection::open(address, &login)?.cluster_map()?),
            Protocol::Binary | Protocol::Text | Protocol::Resp => None,
        };
        Ok(Target {
            protocol,
            address: address.to_owned(),
            login,
            map,
            collection: None,
            traced: false,
            ordered: false,
        })
    }

    /// Has the server say how long it took, in every response. Plain memcached cannot.
    #[must_use]
    pub fn traced(mut self, traced: bool) -> Target {
        self.traced = traced && self.protocol == Protocol::Couchbase;
        self
    }

    /// Has responses come in the order of requests. SDKs do not ask for that, and neither does this by default. A request
    /// that waits for the disk then holds up those behind it on its connection.
    #[must_use]
    pub fn in_order(mut self, ordered: bool) -> Target {
        self.ordered = ordered;
        self
    }

    /// Whether responses may overtake each other.
    #[must_use]
    pub fn is_unordered(&self) -> bool {
        self.protocol == Protocol::Couchbase && !self.ordered
    }

    /// Negotiates collections, without which a consumer sees the default one only.
    #[must_use]
    pub fn with_collections(mut self) -> Target {
        self.login.collections = true;
        self
    }

    /// Sends everything to a named collection.
    ///
    /// # Errors
    /// There is none of this name, or the protocol knows no collections.
    pub fn in_collection(mut self, scope: &str, collection: &str) -> Result<Target, LoadError> {
        if self.protocol != Protocol::Couchbase {
            return Err(LoadError::Plan("only the couchbase protocol knows collections".to_owned()));
        }
        self.login.collections = true;
        self.collection =
            Some(Client::connect(&self.address, &self.login)?.collection_id(scope, collection)?);
        Ok(self)
    }

    /// The collection that requests name.
    #[must_use]
    pub fn collection(&self) -> Option<CollectionId> {
        self.collection
    }

    /// `host:port` as given.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How many nodes there are to connect to.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.map.as_ref().map_or(1, |map| map.nodes.len())
    }

    /// How many vBuckets there are; none for plain memcached.
    #[must_use]
    pub fn vbuckets(&self) -> u16 {
        self.map.as_ref().map_or(0, ClusterMap::vbuckets)
    }

    /// vBucket and node of a key. Plain memcached has one node and no vBuckets.
    #[must_use]
    pub fn route(&self, key: &[u8]) -> (VbId, usize) {
        match &self.map {
            // A vBucket nobody serves is asked for at the first node, whose refusal is then counted.
            Some(map) => {
                let vb = map.vbucket_of(key);
                (vb, map.active_node(vb).unwrap_or(0))
            }
            None => (VbId(0), 0),
        }
    }

    /// The node that serves a vBucket.
    #[must_use]
    pub fn node_of(&self, vb: VbId) -> usize {
        self.map.as_ref().and_then(|map| map.active_node(vb)).unwrap_or(0)
    }

    /// The data addresses of the nodes as they were discovered; the one that was given for plain memcached.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.map.as_ref().map_or_else(|| vec![self.address.clone()], |map| map.nodes.clone())
    }

    /// The interfaces that answer queries of views, and the path of these rows: `DESIGN/VIEW` with parameters or without.
    ///
    /// # Errors
    /// No node answers queries, or the rows are named in another way.
    pub fn queries(&self, rows: &str) -> Result<Queries, LoadError> {
        let plan = |text: &str| LoadError::Plan(text.to_owned());
        let (view, parameters) = rows.split_once('?').unwrap_or((rows, ""));
        let (design, view) = view.split_once('/').ok_or_else(|| plan("queries ask for DESIGN/VIEW"))?;
        let bucket = self.login.bucket.as_deref().ok_or_else(|| plan("queries need a bucket"))?;
        let [bucket, design, view] = [bucket, design, view].map(percent);
        let login = self.login.user.as_ref().map(|(user, password)| (user.as_str(), password.as_str()));
        let addresses = self.map.iter().flat_map(|map| &map.views);
        let nodes: Vec<Rest> = addresses.map(|address| Rest::new(address.clone(), login)).collect();
        if nodes.is_empty() {
            return Err(plan("no node answers queries of views"));
        }
        let path = format!("/{bucket}/_design/{design}/_view/{view}?{parameters}");
        Ok(Queries { nodes, path })
    }

    /// The newest map that any of these nodes has. All are asked at once, since some may be dead, stopped or cut off with
    /// an old one. `None` where there are no vBuckets, or no node answers.
    #[must_use]
    pub fn newest_map(&self, known: &[String]) -> Option<ClusterMap> {
        self.map.as_ref()?;
        let (outbox, maps) = channel();
        let begun = Instant::now();
        for address in known {
            let (outbox, address, login) = (outbox.clone(), address.clone(), self.login.clone());
            std::thread::spawn(move || {
                let map =
                    KvConnection::open_within(&address, &login, MAP).and_then(|mut node| node.cluster_map());
                // The asking thread may have gone on with another's.
                let _ = map.map(|map| outbox.send(map));
            });
        }
        drop(outbox);
        let (mut newest, mut until): (Option<ClusterMap>, _) = (None, begun + MAP);
        while let Ok(map) = maps.recv_timeout(until.saturating_duration_since(Instant::now())) {
            until = until.min(Instant::now() + OTHER_MAPS);
            if newest.as_ref().is_none_or(|newest| newest.version < map.version) {
                newest = Some(map);
            }
        }
        newest
    }

    /// A connection to a node with the handshake behind it (Couchbase protocol).
    ///
    /// # Errors
    /// The node cannot be reached, refuses, or this is no Couchbase.
    pub fn open(&self, node: usize) -> Result<KvConnection, LoadError> {
        let Some(map) = &self.map else {
            return Err(LoadError::Plan("this needs the couchbase protocol".to_owned()));
        };
        self.open_at(&map.nodes[node], false)
    }

    /// One `for_load` takes replies in any order; any other use of a connection asks one thing at a time, or for DCP.
    fn open_at(&self, address: &str, for_load: bool) -> Result<KvConnection, LoadError> {
        let mut connection = KvConnection::open_within(address, &self.login, CONNECT)?;
        let granted: FeatureSet = connection.features();
        let mut wanted = if self.traced { granted.with(Feature::Tracing) } else { granted };
        if for_load && self.is_unordered() {
            wanted = wanted.with(Feature::UnorderedExecution);
        }
        if wanted != granted {
            connection.hello(wanted)?;
        }
        Ok(connection)
    }

    /// A socket to the node at this address, ready for requests and not blocking.
    ///
    /// # Errors
    /// The node cannot be reached, or refuses.
    pub fn connect(&self, address: &str) -> Result<TcpStream, LoadError> {
        let stream = match &self.map {
            Some(_) => self.open_at(address, true)?.into_stream(),
            None => {
                let failed = |source| ClientError::Connect { address: address.to_owned(), source };
                let resolved = address.to_socket_addrs().map_err(failed)?.next();
                let resolved = resolved.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
                TcpStream::connect_timeout(&resolved, CONNECT).map_err(failed)?
            }
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}
