//! One socket to one node: packets out, packets in, and the handshake every client makes.
//!
//! Requests may be queued and sent together; replies come back in order unless the caller negotiates unordered
//! execution, and then matches them by opaque. What the server asks of its own accord (new cluster maps) is skipped.

use crate::scram::Scram;
use crate::{ClientError, ClusterMap, Result};
use base::{Cas, Datatype, Status};
use protocol::binary::{Decoded, Frame, HEADER_BYTES, Header, Magic, Opaque, Opcode, Request, decode_frame};
use protocol::hello::{Feature, FeatureSet, decode_features};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// What this client can make use of.
const WANTED: [Feature; 9] = [
    Feature::TcpNoDelay,
    Feature::MutationSeqno,
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Xattr,
    Feature::Json,
    Feature::AltRequest,
    Feature::SyncReplication,
    Feature::PreserveTtl,
];
/// Durable writes and seqno persistence may wait for a slow disk, nothing waits longer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Smallest read; replies of a pipelined batch arrive together.
const READ_BYTES: usize = 64 * 1024;

/// As whom, and to which bucket.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// User name and password; `None` for buckets that need none.
    pub user: Option<(String, String)>,
    /// The bucket to select; `None` stays without.
    pub bucket: Option<String>,
    /// Negotiate collections: every document key then carries a collection id.
    pub collections: bool,
}

/// A blocking connection.
pub struct KvConnection {
    stream: TcpStream,
    address: String,
    features: FeatureSet,
    opaque: u32,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Where the next packet in `input` begins.
    start: usize,
}

/// A reply that owns what it carries.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status, if it is a known one.
    pub status: Option<Status>,
    /// Status on the wire.
    pub code: u16,
    /// CAS of the document.
    pub cas: Cas,
    /// Datatype of the value.
    pub datatype: Datatype,
    /// Fixed-size results.
    pub extras: Vec<u8>,
    /// The key, where the operation returns one.
    pub key: Vec<u8>,
    /// The value, or the text of an error.
    pub value: Vec<u8>,
}

impl Response {
    fn of(frame: &Frame<'_>) -> Response {
        Response {
            status: frame.header.status(),
            code: frame.header.vbucket_or_status,
            cas: frame.header.cas,
            datatype: frame.header.datatype,
            extras: frame.extras.to_vec(),
            key: frame.key.to_vec(),
            value: frame.value.to_vec(),
        }
    }

    /// Makes an error of every status but success.
    ///
    /// # Errors
    /// [`ClientError::Status`] with the body as text.
    pub fn success(self, what: &'static str) -> Result<Response> {
        if self.status == Some(Status::Success) {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.value).into_owned();
        Err(ClientError::Status { what, status: self.status, code: self.code, body })
    }
}

/// A node without a cluster has no users, and answers a login in the same way.
const WRONG_LOGIN: &str = "wrong user name or password (a node that was not initialised has no users: `settee init` makes the first)";

/// A refusal of the bucket in words that name it.
fn refused_bucket(error: ClientError, bucket: &str, login: &Login) -> ClientError {
    match error.status() {
        Some(status @ (Status::NoAccess | Status::KeyNotFound)) => ClientError::Bucket {
            bucket: bucket.to_owned(),
            user: login.user.as_ref().map_or_else(String::new, |(user, _)| user.clone()),
            status,
        },
        _ => error,
    }
}

impl KvConnection {
    /// Opens the socket; nothing is sent yet.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(address: &str) -> Result<KvConnection> {
        let failed = |source| ClientError::Connect { address: address.to_owned(), source };
        let resolved = address.to_socket_addrs().map_err(failed)?.next();
        let resolved = resolved.ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
        let stream = TcpStream::connect_timeout(&resolved, Duration::from_secs(5)).map_err(failed)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(KvConnection {
            stream,
            address: address.to_owned(),
            features: FeatureSet::EMPTY,
            opaque: 0,
            output: Vec::new(),
            input: Vec::new(),
            start: 0,
        })
    }

    /// Opens the socket and makes the whole handshake: HELLO, SCRAM-SHA512, SELECT_BUCKET.
    ///
    /// # Errors
    /// Any of these failing.
    pub fn open(address: &str, login: &Login) -> Result<KvConnection> {
        KvConnection::open_within(address, login, TIMEOUT)
    }

    /// As [`KvConnection::open`], with no reply awaited for longer than `patience`: a node that was stopped accepts
    /// connections and never answers.
    ///
    /// # Errors
    /// As [`KvConnection::open`].
    pub fn open_within(address: &str, login: &Login, patience: Duration) -> Result<KvConnection> {
        let mut connection = KvConnection::connect(address)?;
        connection.stream.set_read_timeout(Some(patience))?;
        connection.shake_hands(login)?;
        connection.stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(connection)
    }

    fn shake_hands(&mut self, login: &Login) -> Result<()> {
        let mut wanted: FeatureSet = WANTED.into_iter().collect();
        if login.collections {
            wanted = wanted.with(Feature::Collections);
        }
        self.hello(wanted)?;
        if let Some((user, password)) = &login.user {
            self.authenticate(user, password)?;
        }
        if let Some(bucket) = &login.bucket {
            self.select_bucket(bucket).map_err(|error| refused_bucket(error, bucket, login))?;
        }
        Ok(())
    }

    /// `host:port` as asked for.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// From now on no reply is awaited for longer than this. One that is late may still be received by a later call.
    ///
    /// # Errors
    /// The socket takes no time limit.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        Ok(self.stream.set_read_timeout(Some(patience))?)
    }

    /// What the server granted.
    #[must_use]
    pub fn features(&self) -> FeatureSet {
        self.features
    }

    /// Gives the socket away, for an event loop. No reply may be outstanding.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Queues a request and returns the opaque that its reply will carry.
    ///
    /// # Errors
    /// The request is too long for the protocol.
    pub fn queue(&mut self, request: &Request<'_>) -> Result<Opaque> {
        self.opaque = self.opaque.wrapping_add(1);
        let opaque = Opaque::from(self.opaque);
        let numbered = Request { opaque, ..*request };
        numbered.encode(&mut self.output).map_err(|error| ClientError::Protocol(error.to_string()))?;
        Ok(opaque)
    }

    /// Queues "success" as the answer to what the server asked, such as DCP's "are you there?".
    pub fn queue_success(&mut self, asked: &Header) {
        let answer = Header {
            magic: Magic::ClientResponse,
            framing_len: 0,
            extras_len: 0,
            key_len: 0,
            datatype: Datatype::RAW,
            vbucket_or_status: Status::Success.code(),
            body_len: 0,
            cas: Cas::NONE,
            ..*asked
        };
        self.output.extend_from_slice(&answer.encode());
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.output);
        self.output.clear();
        Ok(sent?)
    }

    /// Whether [`KvConnection::receive`] would return without waiting.
    #[must_use]
    pub fn has_reply(&self) -> bool {
        matches!(decode_frame(&self.input[self.start..]), Decoded::Frame(frame)
            if frame.header.magic != Magic::ServerRequest)
    }

    /// Waits until [`KvConnection::receive`] would return without waiting.
    ///
    /// # Errors
    /// The connection broke, or nothing came for as long as [`KvConnection::set_patience`] says. What has come so far is kept.
    pub fn await_reply(&mut self) -> Result<()> {
        while !self.has_reply() {
            match decode_frame(&self.input[self.start..]) {
                Decoded::Frame(frame) if frame.header.magic == Magic::ServerRequest => {
                    self.start += frame.packet_len();
                }
                Decoded::Incomplete { need } => self.read_until(need)?,
                // That is for the caller who receives it.
                _ => break,
            }
        }
        Ok(())
    }

    /// The next reply. It borrows the read buffer; the next call moves on.
    ///
    /// # Errors
    /// The connection broke or the server sent no packet.
    pub fn receive(&mut self) -> Result<Frame<'_>> {
        let length = loop {
            match decode_frame(&self.input[self.start..]) {
                Decoded::Frame(frame) if frame.header.magic == Magic::ServerRequest => {
                    self.start += frame.packet_len();
                }
                Decoded::Frame(frame) => break frame.packet_len(),
                Decoded::Incomplete { need } => self.read_until(need)?,
                Decoded::Invalid(_) => {
                    return Err(ClientError::Protocol("lengths that contradict".to_owned()));
                }
                Decoded::Fatal(fatal) => return Err(ClientError::Protocol(fatal.to_string())),
            }
        };
        let packet = self.start..self.start + length;
        self.start = packet.end;
        match decode_frame(&self.input[packet]) {
            Decoded::Frame(frame) => Ok(frame),
            _ => Err(ClientError::Protocol("a packet that cannot be read twice".to_owned())),
        }
    }

    /// Reads until `need` bytes of the current packet are there.
    fn read_until(&mut self, need: usize) -> Result<()> {
        self.input.drain(..self.start);
        self.start = 0;
        while self.input.len() < need {
            let filled = self.input.len();
            self.input.resize((need - filled).max(READ_BYTES) + filled, 0);
            let read = self.stream.read(&mut self.input[filled..]);
            self.input.truncate(filled + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ClientError::Io(ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends one request and waits for its reply, whatever its status.
    ///
    /// # Errors
    /// The connection broke.
    pub fn call(&mut self, request: &Request<'_>) -> Result<Response> {
        let opaque = self.queue(request)?;
        self.send()?;
        let frame = self.receive()?;
        if frame.header.opaque != opaque || frame.header.opcode != request.opcode.code() {
            return Err(ClientError::Protocol(format!(
                "a reply to another request than {:?}",
                request.opcode
            )));
        }
        Ok(Response::of(&frame))
    }

    /// Asks for features; what was granted is returned and kept.
    ///
    /// # Errors
    /// Refused, or the connection broke.
    pub fn hello(&mut self, wanted: FeatureSet) -> Result<FeatureSet> {
        let mut value = Vec::new();
        wanted.encode(&mut value);
        let agent = concat!("{\"a\":\"settee-client/", env!("CARGO_PKG_VERSION"), "\"}");
        let request = Request { key: agent.as_bytes(), value: &value, ..Request::new(Opcode::Hello) };
        let granted = self.call(&request)?.success("HELLO")?;
        self.features = decode_features(&granted.value)
            .map_err(|_| ClientError::Protocol("HELLO returned no list of features".to_owned()))?;
        Ok(self.features)
    }

    /// Proves who we are by SCRAM-SHA512, and lets the server prove that it knows us.
    ///
    /// # Errors
    /// Wrong name or password, or the connection broke.
    pub fn authenticate(&mut self, user: &str, password: &str) -> Result<()> {
        const MECHANISM: &[u8] = b"SCRAM-SHA512";
        let refused = |reason: String| ClientError::Authentication { user: user.to_owned(), reason };
        let text =
            |value: Vec<u8>| String::from_utf8(value).map_err(|_| refused("the reply is no text".to_owned()));
        let (mut scram, first) = Scram::start(user, password, &nonce());
        let mut step = |opcode, message: &str, expected: Status| {
            let request = Request { key: MECHANISM, value: message.as_bytes(), ..Request::new(opcode) };
            let response = self.call(&request)?;
            match response.status {
                Some(status) if status == expected => text(response.value),
                Some(Status::AuthError) => Err(refused(WRONG_LOGIN.to_owned())),
                _ => response.success("SASL").map(|_| String::new()),
            }
        };
        let server_first = step(Opcode::SaslAuth, &first, Status::AuthContinue)?;
        let proof = scram.prove(&server_first).map_err(refused)?;
        let server_final = step(Opcode::SaslStep, &proof, Status::Success)?;
        scram.verify(&server_final).map_err(refused)
    }

    /// Chooses the bucket that later requests mean.
    ///
    /// # Errors
    /// No such bucket or no access.
    pub fn select_bucket(&mut self, bucket: &str) -> Result<()> {
        let request = Request { key: bucket.as_bytes(), ..Request::new(Opcode::SelectBucket) };
        self.call(&request)?.success("SELECT_BUCKET").map(|_| ())
    }

    /// The selected bucket's cluster map.
    ///
    /// # Errors
    /// No bucket is selected, or it has no vBuckets.
    pub fn cluster_map(&mut self) -> Result<ClusterMap> {
        let config = self.call(&Request::new(Opcode::GetClusterConfig))?.success("GET_CLUSTER_CONFIG")?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        ClusterMap::parse(&config.value, host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// One group of statistics as the server lists it.
    ///
    /// # Errors
    /// The group is unknown or may not be seen.
    pub fn stats(&mut self, group: &str) -> Result<Vec<(String, String)>> {
        self.queue(&Request { key: group.as_bytes(), ..Request::new(Opcode::Stat) })?;
        self.send()?;
        let mut stats = Vec::new();
        loop {
            let response = Response::of(&self.receive()?).success("STAT")?;
            if response.key.is_empty() {
                return Ok(stats);
            }
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            stats.push((text(&response.key), text(&response.value)));
        }
    }
}

/// 24 random bytes as text. Uniqueness protects the server against replayed proofs; the operating system's
/// randomness reaches us through the standard library's hash keys.
fn nonce() -> String {
    use std::hash::{BuildHasher, RandomState};
    (0..3).map(|i| format!("{:016x}", RandomState::new().hash_one(i))).collect()
}

const _: () = assert!(READ_BYTES > HEADER_BYTES);
