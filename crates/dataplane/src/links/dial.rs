//! From an address to a connection that is open for streams. The steps: TCP, TLS where the cluster wants it, HELLO, login as the
//! cluster's own user, the bucket, DCP_OPEN and its settings. Every answer has to be "success", except to what an earlier
//! version knows nothing of. Nodes are upgraded one after the other, and follow one another meanwhile.
//!
//! The login is by this node's key. While some node has none it is by the cluster's secret, which can be read along as documents can:
//! encryption between nodes is for that.

use std::{sync::Arc, time::Duration};

use base::{NodeId, Status};
use cluster::auth::{INTERNAL_USER, LoginPort};
use mio::net::TcpStream as MioStream;
use protocol::{
    binary::{Decoded, HEADER_BYTES, Opcode, Request, decode_frame_within},
    hello::{Feature, FeatureSet, decode_features},
    sasl,
};
use replication::consumer::append_opening;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    net::transport::{TlsStream, Transport},
    state::{
        link::{Link, LinkWish, Reason},
        shared::Shared,
    },
};

/// A node that does not answer TCP by then cannot be reached. The kernel asks after a second once more, then more and more rarely: one
/// that has become reachable would be noticed late.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Without these a replica would not be what the active is.
const NEEDED: [Feature; 4] = [Feature::Collections, Feature::Xattr, Feature::Snappy, Feature::Json];

/// Largest answer of a handshake: errors come with a few words.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What the other node may answer to a request of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Success,
    /// Or that it knows nothing of the like.
    SuccessOrRefusal,
    /// Something to sign.
    Challenge,
}

/// A connection that is open for streams. The caller limits how long that may take altogether.
pub(super) async fn dial(link: &Link, wish: &LinkWish, shared: &Shared) -> Result<Transport, Reason> {
    let connecting = TcpStream::connect((wish.peer.host.as_str(), wish.peer.kv_port));
    let mut socket = timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| "it cannot be reached")??;
    socket.set_nodelay(true)?;
    if !wish.peer.tls {
        open(&mut socket, link, wish, shared).await?;
        return Ok(Transport::Plain(MioStream::from_std(socket.into_std()?)));
    }
    let (config, name) = shared.node_tls.to_member(wish.peer.node)?;
    let mut stream = TlsConnector::from(config).connect(name, socket).await?;
    open(&mut stream, link, wish, shared).await?;
    let (socket, tls) = stream.into_inner();
    let stream = TlsStream::new(MioStream::from_std(socket.into_std()?), tls.into());
    Ok(Transport::Tls(Box::new(stream)))
}

/// Has the connection opened for streams. Of what the node says only what was answered is taken: the rest is the loop's.
async fn open<S>(stream: &mut S, link: &Link, wish: &LinkWish, shared: &Shared) -> Result<(), Reason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut asks = Vec::new();
    append_hello(&mut asks).map_err(too_long)?;
    let granted = log_in(stream, shared, wish.peer.node, &mut asks).await?;
    let granted = decode_features(&granted).map_err(|_| "HELLO was not answered with features")?;
    if !NEEDED.into_iter().all(|feature| granted.contains(feature)) {
        return Err("it lacks features that replication needs".into());
    }
    let expected = append_opening_of(link, wish, &mut asks).map_err(too_long)?;
    send(stream, &mut asks).await?;
    for (opcode, answer) in expected {
        expect(stream, opcode, answer).await?;
    }
    Ok(())
}

fn too_long(_: protocol::binary::request::TooLong) -> Reason {
    "the secret or the name is too long".into()
}

/// Sends a greeting, and logs in at a node as the node that this one is; the features that were granted, as they were answered.
pub async fn log_in<S>(
    stream: &mut S,
    shared: &Shared,
    node: NodeId,
    asks: &mut Vec<u8>,
) -> Result<Vec<u8>, Reason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let granted;
    let metadata = Arc::clone(&shared.snapshot().metadata);
    let there = metadata.node_by_id(node).ok_or("it is no member of the cluster")?;
    match shared.node_tls.signer(&there.uuid) {
        Some(signer) => {
            let (key, value) = (sasl::NODE.as_bytes(), signer.me.as_bytes());
            Request { key, value, ..Request::new(Opcode::SaslAuth) }.encode(asks).map_err(too_long)?;
            send(stream, asks).await?;
            granted = expect(stream, Opcode::Hello, Expected::Success).await?;
            let challenge = expect(stream, Opcode::SaslAuth, Expected::Challenge).await?;
            let signature = signer.sign(LoginPort::Kv, &challenge);
            let step = Request { key, value: &signature, ..Request::new(Opcode::SaslStep) };
            step.encode(asks).map_err(too_long)?;
            send(stream, asks).await?;
            expect(stream, Opcode::SaslStep, Expected::Success).await?;
        }
        None if metadata.accepts_secret() => {
            let login = format!("\0{INTERNAL_USER}\0{}", metadata.secret);
            let login = Request { key: b"PLAIN", value: login.as_bytes(), ..Request::new(Opcode::SaslAuth) };
            login.encode(asks).map_err(too_long)?;
            send(stream, asks).await?;
            granted = expect(stream, Opcode::Hello, Expected::Success).await?;
            expect(stream, Opcode::SaslAuth, Expected::Success).await?;
        }
        None => return Err("the cluster knows no key of this node".into()),
    }
    Ok(granted)
}

/// Sends all requests.
async fn send(stream: &mut (impl AsyncWrite + Unpin), asks: &mut Vec<u8>) -> std::io::Result<()> {
    stream.write_all(asks).await?;
    asks.clear();
    stream.flush().await
}

fn append_hello(out: &mut Vec<u8>) -> Result<(), protocol::binary::request::TooLong> {
    let mut features = Vec::new();
    let wanted: FeatureSet = NEEDED.into_iter().chain([Feature::TcpNoDelay, Feature::Xerror]).collect();
    wanted.encode(&mut features);
    let agent = concat!("{\"a\":\"settee/", env!("CARGO_PKG_VERSION"), "\"}");
    Request { key: agent.as_bytes(), value: &features, ..Request::new(Opcode::Hello) }.encode(out)
}

/// Appends the requests that open the connection for streams; returns what the answers are going to be to.
fn append_opening_of(
    link: &Link,
    wish: &LinkWish,
    out: &mut Vec<u8>,
) -> Result<Vec<(Opcode, Expected)>, protocol::binary::request::TooLong> {
    Request { key: wish.name.as_bytes(), ..Request::new(Opcode::SelectBucket) }.encode(out)?;
    // Besides OPEN, and the last control.
    let controls = append_opening(wish.peer.node, link.me, &wish.name, &wish.bucket.0, out) - 2;
    let opening = [Opcode::SelectBucket, Opcode::DcpOpen];
    let needed = opening.into_iter().chain(std::iter::repeat_n(Opcode::DcpControl, controls));
    let mut expected: Vec<_> = needed.map(|opcode| (opcode, Expected::Success)).collect();
    expected.push((Opcode::DcpControl, Expected::SuccessOrRefusal));
    Ok(expected)
}

/// Reads one answer; what it says.
async fn expect(
    stream: &mut (impl AsyncRead + Unpin),
    opcode: Opcode,
    expected: Expected,
) -> Result<Vec<u8>, Reason> {
    let mut packet = vec![0; HEADER_BYTES];
    stream.read_exact(&mut packet).await?;
    if let Decoded::Incomplete { need } = decode_frame_within(&packet, ANSWER_BYTES_MAX) {
        packet.resize(need, 0);
        let body = packet.get_mut(HEADER_BYTES..).unwrap_or_default();
        stream.read_exact(body).await?;
    }
    let Decoded::Frame(frame) = decode_frame_within(&packet, ANSWER_BYTES_MAX) else {
        return Err("it does not speak the protocol".into());
    };
    let header = &frame.header;
    if !header.magic.is_client_response() || header.opcode != opcode.code() {
        return Err("it answers something else".into());
    }
    let is_unknown = matches!(header.status(), Some(Status::Invalid | Status::NotSupported));
    if is_unknown && expected == Expected::SuccessOrRefusal {
        return Ok(Vec::new());
    }
    if header.status() == Some(Status::AuthContinue) && expected == Expected::Challenge {
        return Ok(frame.value.to_vec());
    }
    if header.status() != Some(Status::Success) {
        let status = header.status().map_or("an unknown status", Status::text);
        return Err(Reason(format!(
            "{opcode:?} was refused: {status} {}",
            String::from_utf8_lossy(frame.value)
        )));
    }
    Ok(frame.value.to_vec())
}

#[cfg(test)]
mod tests {
    use base::Cas;
    use protocol::binary::{Header, Magic};

    use super::*;

    /// What becomes of a connection when a control is answered with this.
    fn answered(status: Status, expected: Expected) -> Result<Vec<u8>, Reason> {
        let header = Header {
            magic: Magic::ClientResponse,
            opcode: Opcode::DcpControl.code(),
            framing_len: 0,
            extras_len: 0,
            key_len: 0,
            datatype: base::Datatype::RAW,
            vbucket_or_status: status.code(),
            body_len: 0,
            opaque: 0_u32.into(),
            cas: Cas::NONE,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(expect(&mut header.encode().as_slice(), Opcode::DcpControl, expected))
    }

    #[test]
    fn what_a_node_knows_nothing_of_is_done_without_where_that_may_be() {
        for (status, can_be_done_without) in
            [(Status::Invalid, true), (Status::NotSupported, true), (Status::NoAccess, false)]
        {
            assert!(answered(status, Expected::Success).is_err());
            let outcome = answered(status, Expected::SuccessOrRefusal);
            assert_eq!(outcome.is_ok(), can_be_done_without, "{status:?}: {outcome:?}");
        }
        assert_eq!(answered(Status::Success, Expected::SuccessOrRefusal), Ok(Vec::new()));
    }
}
