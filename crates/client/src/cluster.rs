//! The cluster-aware client: one connection per node, each key sent to the node that serves its vBucket. It rides
//! out the two conditions that every client has to: a map that has changed, and a server that says "not now".

use crate::{ClientError, ClusterMap, KvConnection, Login, Response, Result};
use base::bucket::DurabilityLevel;
use base::{Cas, CollectionId, Datatype, Seqno, Status, VbId, VbUuid};
use protocol::binary::extras::{
    CounterExtras, FlagsExtras, IdExtras, MutationToken, SeqnoExtras, StoreExtras,
};
use protocol::binary::observe::ObservedSeqno;
use protocol::binary::{Durability, Opcode, Request};
use std::time::{Duration, Instant};

/// Pause before a request is repeated; doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A bucket of a cluster.
pub struct Client {
    seed: String,
    login: Login,
    map: ClusterMap,
    /// In the order of `map.nodes`; opened when first needed.
    connections: Vec<Option<KvConnection>>,
    /// How long "temporary failure" and moving vBuckets are ridden out.
    pub patience: Duration,
    /// Where documents live, if the login negotiated collections; the default collection otherwise.
    pub collection: CollectionId,
}

/// A document as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The bytes.
    pub value: Vec<u8>,
    /// As stored.
    pub flags: u32,
    /// Version of the document.
    pub cas: Cas,
    /// What the server says the value is.
    pub datatype: Datatype,
}

/// What a mutation returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// New version of the document.
    pub cas: Cas,
    /// Where it was written.
    pub vb: VbId,
    /// Branch and place in the vBucket's history, if the server told.
    pub token: Option<(VbUuid, Seqno)>,
}

/// How a mutation differs from the plainest one.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Stored with the document.
    pub flags: u32,
    /// 0, relative or absolute seconds.
    pub expiry: u32,
    /// Only if the document still has this CAS; 0 does not ask.
    pub cas: Cas,
    /// Keep the expiry that the document has.
    pub preserve_ttl: bool,
    /// When the server may answer.
    pub durability: Option<DurabilityLevel>,
}

impl Client {
    /// Connects to the bucket named in `login` through the data port of any of its nodes.
    ///
    /// # Errors
    /// No connection, no access, no bucket.
    pub fn connect(address: &str, login: &Login) -> Result<Client> {
        let mut connection = KvConnection::open(address, login)?;
        let map = connection.cluster_map()?;
        let mut client = Client {
            seed: address.to_owned(),
            login: login.clone(),
            connections: map.nodes.iter().map(|_| None).collect(),
            map,
            patience: Duration::from_secs(30),
            collection: CollectionId::DEFAULT,
        };
        if let Some(own) = client.map.nodes.iter().position(|node| node == address) {
            client.connections[own] = Some(connection);
        }
        Ok(client)
    }

    /// Which node serves which vBucket.
    #[must_use]
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// The connection to the node that serves `vb`.
    ///
    /// # Errors
    /// Nobody serves it, or the node cannot be reached.
    pub fn connection(&mut self, vb: VbId) -> Result<&mut KvConnection> {
        let node = self.map.active_node(vb);
        let node =
            node.ok_or_else(|| ClientError::Protocol(format!("no node serves vBucket {}", vb.get())))?;
        self.node(node)
    }

    /// The connection to the node of this number in the map.
    ///
    /// # Errors
    /// The map has no such node, or the node cannot be reached.
    pub(crate) fn node(&mut self, node: usize) -> Result<&mut KvConnection> {
        let (Some(slot), Some(address)) = (self.connections.get_mut(node), self.map.nodes.get(node)) else {
            return Err(ClientError::Protocol(format!("the map has no node {node}")));
        };
        let open = match slot.take() {
            Some(open) => open,
            None => KvConnection::open(address, &self.login)?,
        };
        Ok(slot.insert(open))
    }

    /// Reads the map again, from the node this client was pointed at.
    fn refresh(&mut self) -> Result<()> {
        let map = KvConnection::open(&self.seed, &self.login)?.cluster_map()?;
        if map.nodes != self.map.nodes {
            self.connections = map.nodes.iter().map(|_| None).collect();
        }
        self.map = map;
        Ok(())
    }

    /// Sends a request to the node of its vBucket, and again while the server asks for patience.
    ///
    /// # Errors
    /// The connection broke, or patience ran out; other statuses are in the response.
    pub fn call(&mut self, request: &Request<'_>) -> Result<Response> {
        let started = Instant::now();
        let mut pause = PAUSE_FIRST;
        loop {
            let response = self.connection(request.vbucket)?.call(request)?;
            let retry = matches!(
                response.status,
                Some(
                    Status::TemporaryFailure
                        | Status::NotMyVbucket
                        | Status::Busy
                        | Status::SyncWriteInProgress
                )
            );
            if !retry {
                return Ok(response);
            }
            if started.elapsed() >= self.patience {
                let seconds = started.elapsed().as_secs_f64();
                return match response.success(request.opcode.name()) {
                    Ok(response) => Ok(response),
                    Err(last) => Err(ClientError::GaveUp { seconds, last: Box::new(last) }),
                };
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            if response.status == Some(Status::NotMyVbucket) {
                self.refresh()?;
            }
        }
    }

    /// A request for a document, with collection prefix if collections were negotiated.
    fn request<'a>(&self, opcode: Opcode, key: &'a [u8]) -> Request<'a> {
        let collection = self.login.collections.then_some(self.collection);
        Request { vbucket: self.map.vbucket_of(key), collection, key, ..Request::new(opcode) }
    }

    /// Reads a document; `None` if there is none.
    ///
    /// # Errors
    /// Any status but success and "not found".
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Document>> {
        let response = self.call(&self.request(Opcode::Get, key))?;
        if response.status == Some(Status::KeyNotFound) {
            return Ok(None);
        }
        let response = response.success("GET")?;
        let extras = FlagsExtras::decode(&response.extras);
        let flags = extras.ok_or_else(|| ClientError::Protocol("GET without flags".to_owned()))?.flags;
        Ok(Some(Document { value: response.value, flags, cas: response.cas, datatype: response.datatype }))
    }

    /// Stores a document: SET, ADD or REPLACE.
    ///
    /// # Errors
    /// Any status but success.
    pub fn store(
        &mut self,
        opcode: Opcode,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> Result<Mutation> {
        let extras = StoreExtras { flags: options.flags, expiry: options.expiry }.encode();
        let request = Request { extras: &extras, value, ..self.request(opcode, key) };
        self.mutate(request, options)
    }

    /// Stores a document whether it exists or not.
    ///
    /// # Errors
    /// Any status but success.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<Mutation> {
        self.store(Opcode::Set, key, value, &WriteOptions::default())
    }

    /// Stores a document that does not exist yet.
    ///
    /// # Errors
    /// Any status but success; "exists" if there is one.
    pub fn add(&mut self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<Mutation> {
        self.store(Opcode::Add, key, value, options)
    }

    /// Stores a document, whether it exists or not unless `options` name its version.
    ///
    /// # Errors
    /// Any status but success.
    pub fn put(&mut self, key: &[u8], value: &[u8], options: &WriteOptions) -> Result<Mutation> {
        self.store(Opcode::Set, key, value, options)
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// Any status but success; "not found" if there is none.
    pub fn delete(&mut self, key: &[u8], options: &WriteOptions) -> Result<Mutation> {
        self.mutate(self.request(Opcode::Delete, key), options)
    }

    /// Adds to (or with `decrement` subtracts from) a counter, made with `initial` if there is none.
    ///
    /// # Errors
    /// Any status but success.
    pub fn counter(&mut self, key: &[u8], decrement: bool, delta: u64, initial: Option<u64>) -> Result<u64> {
        let expiry = if initial.is_some() { 0 } else { CounterExtras::DO_NOT_CREATE };
        let extras = CounterExtras { delta, initial: initial.unwrap_or(0), expiry }.encode();
        let opcode = if decrement { Opcode::Decrement } else { Opcode::Increment };
        let response =
            self.call(&Request { extras: &extras, ..self.request(opcode, key) })?.success("counter")?;
        let value = <[u8; 8]>::try_from(&response.value[..]);
        value
            .map(u64::from_be_bytes)
            .map_err(|_| ClientError::Protocol("a counter that is no number".to_owned()))
    }

    fn mutate(&mut self, mut request: Request<'_>, options: &WriteOptions) -> Result<Mutation> {
        request.cas = options.cas;
        request.info.preserve_ttl = options.preserve_ttl;
        request.info.durability = options.durability.map(|level| Durability { level, timeout_ms: None });
        let response = self.call(&request)?.success(request.opcode.name())?;
        let token = MutationToken::decode(&response.extras).map(|token| (token.vb_uuid, token.seqno));
        Ok(Mutation { cas: response.cas, vb: request.vbucket, token })
    }

    /// The id of a collection, for [`Client::collection`].
    ///
    /// # Errors
    /// Any status but success; "unknown scope" or "unknown collection" if there is none of these names.
    pub fn collection_id(&mut self, scope: &str, collection: &str) -> Result<CollectionId> {
        let path = format!("{scope}.{collection}");
        let request = Request { value: path.as_bytes(), ..Request::new(Opcode::CollectionsGetId) };
        let response = self.call(&request)?.success("COLLECTIONS_GET_ID")?;
        let id = IdExtras::decode(&response.extras);
        id.map(|id| CollectionId(id.id))
            .ok_or_else(|| ClientError::Protocol("a collection without id".to_owned()))
    }

    /// How far a vBucket's branch is in memory and on disk.
    ///
    /// # Errors
    /// Any status but success; "not found" for a branch the vBucket never had.
    pub fn observe_seqno(&mut self, vb: VbId, uuid: VbUuid) -> Result<ObservedSeqno> {
        let value = uuid.get().to_be_bytes();
        let request = Request { vbucket: vb, value: &value, ..Request::new(Opcode::ObserveSeqno) };
        let response = self.call(&request)?.success("OBSERVE_SEQNO")?;
        ObservedSeqno::decode(&response.value)
            .ok_or_else(|| ClientError::Protocol("OBSERVE_SEQNO returned something else".to_owned()))
    }

    /// Waits until a vBucket's mutations up to `seqno` are on disk.
    ///
    /// # Errors
    /// Any status but success.
    pub fn wait_persisted(&mut self, vb: VbId, seqno: Seqno) -> Result<()> {
        let extras = SeqnoExtras { seqno }.encode();
        let request = Request { vbucket: vb, extras: &extras, ..Request::new(Opcode::SeqnoPersistence) };
        self.call(&request)?.success("SEQNO_PERSISTENCE").map(|_| ())
    }
}
