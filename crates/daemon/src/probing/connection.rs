//! A probe's connection to a node's document port: the one that clients use. It logs in as the node that it comes from. The server does
//! not count its operations among those of clients (`Session::meter`).

use base::{Datatype, Status, VbId, bucket::DurabilityLevel};
use dataplane::{
    PROBE_AGENT, Shared,
    links::{self, PeerAddress, Reason},
};
use protocol::{
    binary::{
        Decoded, Durability, Frame, HEADER_BYTES, Opaque, Opcode, Request, RequestInfo, decode_frame_within,
    },
    hello::{Feature, FeatureSet},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use watch::probe::Try;

/// Answers are short; the longest comes with a cluster map.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// A document of the probe's is gone so long after its node has stopped writing it, in seconds.
const EXPIRY_SECS: u32 = 3_600;
/// What such a document says of itself.
const VALUE: &[u8] = br#"{"about":"written by Settee's probe; it expires by itself"}"#;
/// A durable write is given up by the server a little before the probe gives up.
const DURABLE_MILLIS: u16 = 2_400;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// See the module.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    pub(super) address: PeerAddress,
    asked: u32,
}

impl Connection {
    /// To a bucket on a node. The caller limits how long that takes.
    pub(super) async fn open(shared: &Shared, address: PeerAddress, bucket: &str) -> Result<Self, Reason> {
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
        let mut connection = Self { stream, address, asked: 0 };
        let select = Request { key: bucket.as_bytes(), ..Request::new(Opcode::SelectBucket) };
        match connection.ask(&select).await? {
            Status::Success => Ok(connection),
            status => Err(Reason::from(status.text())),
        }
    }

    /// Tries an operation on a document of the probe's own.
    pub(super) async fn attempt(&mut self, what: Try, vbucket: VbId, key: &[u8]) -> Result<Status, Reason> {
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

    async fn ask(&mut self, request: &Request<'_>) -> Result<Status, Reason> {
        self.asked = self.asked.wrapping_add(1);
        let opaque = Opaque::from(self.asked);
        let mut bytes = Vec::new();
        Request { opaque, ..*request }.encode(&mut bytes).map_err(|_| "the key is too long")?;
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await?;
        loop {
            let packet = self.read().await?;
            let Decoded::Frame(Frame { header, .. }) = decode_frame_within(&packet, ANSWER_BYTES_MAX) else {
                return Err("it does not speak the protocol".into());
            };
            // What the server says unasked is not the answer.
            if header.magic.is_client_response() && header.opaque == opaque {
                return header.status().ok_or_else(|| "it answers a status that is not known".into());
            }
        }
    }

    async fn read(&mut self) -> Result<Vec<u8>, Reason> {
        let mut packet = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut packet).await?;
        if let Decoded::Incomplete { need } = decode_frame_within(&packet, ANSWER_BYTES_MAX) {
            packet.resize(need, 0);
            self.stream.read_exact(packet.get_mut(HEADER_BYTES..).unwrap_or_default()).await?;
        }
        Ok(packet)
    }
}
