//! A probe's connection to a node's document port: the one that clients use. It logs in as the node that it comes from. The server does
//! not count its operations among those of clients (`Session::meter`).
//!
//! An answer is there once its header is: the header has the status. Users can write the probe's document, so its value says nothing
//! of the node, however long it is. What comes behind a header is thrown away, and a connection with too much of it is given up.

use base::{Datatype, Status, VbId, bucket::DurabilityLevel};
use dataplane::{
    PROBE_AGENT, Shared,
    links::{self, PeerAddress, Reason},
};
use protocol::{
    binary::{Durability, HEADER_BYTES, Header, Opaque, Opcode, Request, RequestInfo},
    hello::{Feature, FeatureSet},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use watch::probe::Try;

/// Answers are short; the longest comes with a cluster map. More than this is not read.
const BODY_BYTES_MAX: u32 = 1 << 20;
/// A document of the probe's is gone so long after its node has stopped writing it, in seconds.
const EXPIRY_SECS: u32 = 3_600;
/// What such a document says of itself.
const VALUE: &[u8] = br#"{"about":"written by Settee's probe; it expires by itself"}"#;
/// A durable write is given up by the server a little before the probe gives up.
const DURABLE_MILLIS: u16 = 2_400;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// See the module.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    pub(crate) address: PeerAddress,
    asked: u32,
    /// Bytes behind the header that was read last.
    unread: u32,
}

impl Connection {
    /// To a bucket on a node. The caller limits how long that takes.
    pub(crate) async fn open(shared: &Shared, address: PeerAddress, bucket: &str) -> Result<Self, Reason> {
        let socket = TcpStream::connect((address.host.as_str(), address.kv_port)).await?;
        socket.set_nodelay(true)?;
        let mut stream: Box<dyn Stream> = if address.tls {
            let (config, name) = shared.node_tls.to_member(address.node)?;
            Box::new(TlsConnector::from(config).connect(name, socket).await?)
        } else {
            Box::new(socket)
        };
        let (mut hello, mut features) = (Vec::new(), Vec::new());
        let wanted = [
            Feature::Xerror,
            Feature::SelectBucket,
            Feature::TcpNoDelay,
            Feature::AltRequest,
            Feature::SyncReplication,
            Feature::DedupeNotMyVbucketMap,
        ];
        wanted.into_iter().collect::<FeatureSet>().encode(&mut features);
        let asked = Request { key: PROBE_AGENT.as_bytes(), value: &features, ..Request::new(Opcode::Hello) };
        asked.encode(&mut hello).map_err(|_| "the greeting is too long")?;
        links::log_in(&mut stream, shared, address.node, &mut hello).await?;
        let mut connection = Self { stream, address, asked: 0, unread: 0 };
        let select = Request { key: bucket.as_bytes(), ..Request::new(Opcode::SelectBucket) };
        match connection.ask(&select).await? {
            Some(Status::Success) if connection.settle().await => Ok(connection),
            status => Err(Reason::from(status.map_or("it answers a status that is not known", Status::text))),
        }
    }

    /// Tries an operation on a document of the probe's own. None: the answer has a status that is not known. [`Self::settle`] is to
    /// follow.
    pub(crate) async fn attempt(
        &mut self,
        what: Try,
        vbucket: VbId,
        key: &[u8],
    ) -> Result<Option<Status>, Reason> {
        let mut extras = [0; 8];
        extras[4..].copy_from_slice(&EXPIRY_SECS.to_be_bytes());
        let set = || Request {
            vbucket,
            key,
            extras: &extras,
            value: VALUE,
            datatype: Datatype::RAW,
            ..Request::new(Opcode::Set)
        };
        let request = match what {
            Try::Get => Request { vbucket, key, ..Request::new(Opcode::Get) },
            Try::Set => set(),
            Try::Durable => {
                let durability =
                    Durability { level: DurabilityLevel::Majority, timeout_ms: Some(DURABLE_MILLIS) };
                let base = set();
                Request { info: RequestInfo { durability: Some(durability), ..base.info }, ..base }
            }
        };
        self.ask(&request).await
    }

    async fn ask(&mut self, request: &Request<'_>) -> Result<Option<Status>, Reason> {
        self.asked = self.asked.wrapping_add(1);
        let opaque = Opaque::from(self.asked);
        let mut bytes = Vec::new();
        Request { opaque, ..*request }.encode(&mut bytes).map_err(|_| "the key is too long")?;
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        loop {
            let mut head = [0; HEADER_BYTES];
            self.stream.read_exact(&mut head).await?;
            let header = Header::decode(&head).ok_or("it does not speak the protocol")?;
            self.unread = header.body_len;
            if header.magic.is_client_response() && header.opaque == opaque {
                return Ok(header.status());
            }
            // What the server says unasked is not the answer.
            if !self.settle().await {
                return Err("it says more than is read".into());
            }
        }
    }

    /// Throws away what the last answer has behind its header. Whether the connection can be used again. The caller limits how long
    /// that takes, and gives a connection up that has not ended it.
    pub(crate) async fn settle(&mut self) -> bool {
        let unread = std::mem::take(&mut self.unread);
        if unread > BODY_BYTES_MAX {
            return false;
        }
        let mut rest = (&mut self.stream).take(u64::from(unread));
        let read = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
        read.is_ok_and(|read| read == u64::from(unread))
    }
}

#[cfg(test)]
mod tests {
    use base::NodeId;
    use tokio::io::DuplexStream;

    use super::*;

    fn connected() -> (Connection, DuplexStream) {
        let (near, far) = tokio::io::duplex(64 << 10);
        let address = PeerAddress { node: NodeId(1), host: "n".into(), kv_port: 1, tls: false };
        (Connection { stream: Box::new(near), address, asked: 0, unread: 0 }, far)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// Reads a request, and answers it: with the header alone, which says that a body of this length follows.
    async fn answer(far: &mut DuplexStream, status: u16, body_len: u32) {
        let mut head = [0; HEADER_BYTES];
        far.read_exact(&mut head).await.unwrap();
        let asked = Header::decode(&head).unwrap();
        far.read_exact(&mut vec![0; asked.body_len as usize]).await.unwrap();
        let magic = protocol::binary::Magic::ClientResponse;
        let answer =
            Header { magic, vbucket_or_status: status, key_len: 0, extras_len: 0, body_len, ..asked };
        far.write_all(&answer.encode()).await.unwrap();
    }

    #[test]
    fn an_answer_is_there_with_its_header_however_long_its_value_is() {
        block_on(async {
            let (mut near, mut far) = connected();
            let (status, ()) =
                tokio::join!(near.attempt(Try::Get, VbId(0), b"k"), answer(&mut far, 0, 20 << 20));
            assert_eq!(status.unwrap(), Some(Status::Success));
            assert!(!near.settle().await, "so much is not read");
        });
    }

    #[test]
    fn a_status_that_is_not_known_is_an_answer_and_what_follows_it_is_thrown_away() {
        block_on(async {
            let (mut near, mut far) = connected();
            let body = [0xff; 1_000];
            let (status, ()) =
                tokio::join!(near.attempt(Try::Set, VbId(0), b"k"), answer(&mut far, 0x7777, 1_000));
            assert_eq!(status.unwrap(), None);
            far.write_all(&body).await.unwrap();
            assert!(near.settle().await);
            let (status, ()) = tokio::join!(near.attempt(Try::Get, VbId(0), b"k"), answer(&mut far, 1, 0));
            assert_eq!(status.unwrap(), Some(Status::KeyNotFound));
            assert!(near.settle().await);
        });
    }

    #[test]
    fn a_value_that_ends_early_leaves_a_connection_of_no_use() {
        block_on(async {
            let (mut near, mut far) = connected();
            let (status, ()) =
                tokio::join!(near.attempt(Try::Get, VbId(0), b"k"), answer(&mut far, 0, 1_000));
            assert_eq!(status.unwrap(), Some(Status::Success));
            drop(far);
            assert!(!near.settle().await);
        });
    }
}
