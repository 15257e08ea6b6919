//! A small HTTP/1.1 client for what nodes say to one another: one connection, plain or under TLS, one request at a time.

use std::{io, time::Duration};

use base::NodeId;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{
    NodeInfo,
    auth::{INTERNAL_USER, LoginPort},
    consensus::Epoch,
};
use dataplane::node_tls::{NodeLogin, NodeTls, to_stranger};
use http::{Watched, node_authorization};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// How long connecting may take, and how long a TLS handshake.
const CONNECT: Duration = Duration::from_secs(2);
/// For how long the other node may take nothing of what is on its way to it. A node that was cut off is noticed by then. One that reads
/// slowly is not meant.
const STALLED: Duration = Duration::from_secs(5);
/// Longest answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a node's REST interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) security: Security,
}

/// What is between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    /// TLS, with that member of the cluster and nobody else.
    Member(NodeId),
    /// TLS with the process that answers: nobody vouches for a node that is no member yet.
    Stranger,
}

impl Address {
    /// Where the other nodes of its cluster find a node.
    pub(crate) fn of(node: &NodeInfo) -> Self {
        let (port, security) = if node.encrypted {
            (node.ports.mgmt_tls, Security::Member(node.id))
        } else {
            (node.ports.mgmt, Security::Plain)
        };
        Self { host: node.host.clone(), port, security }
    }
}

/// A request without its connection.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    /// Absent: what this node is logged in with, where it is.
    pub(crate) authorization: Option<String>,
    pub(crate) content_type: &'a str,
    pub(crate) body: Bytes,
}

/// The header of Basic authentication.
pub(crate) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// An open connection.
pub(crate) struct Connection {
    host: String,
    sender: http1::SendRequest<Full<Bytes>>,
    /// What this node is logged in with, where it is.
    login: Option<String>,
}

impl Connection {
    /// Connects. The connection ends when this is dropped.
    pub(crate) async fn open(address: &Address, node_tls: &NodeTls) -> io::Result<Self> {
        Self::open_for(address, node_tls, STALLED).await
    }

    /// The same, where the other end may take nothing for `stalled`.
    async fn open_for(address: &Address, node_tls: &NodeTls, stalled: Duration) -> io::Result<Self> {
        let host = address.host.trim_matches(['[', ']']);
        let tls = match address.security {
            Security::Plain => None,
            Security::Member(node) => Some(node_tls.to_member(node)?),
            Security::Stranger => Some(to_stranger(host)?),
        };
        let connecting = TcpStream::connect((host, address.port));
        let stream = timeout(CONNECT, connecting).await.map_err(|_| io::ErrorKind::TimedOut)??;
        stream.set_nodelay(true)?;
        let stream = Watched::new(stream);
        let stalled = stream.link().stalled(stalled, || false);
        let sender = match tls {
            None => converse(stream, stalled).await?,
            Some((config, name)) => {
                let shaking = TlsConnector::from(config).connect(name, stream);
                let stream = timeout(CONNECT, shaking).await.map_err(|_| io::ErrorKind::TimedOut)??;
                converse(stream, stalled).await?
            }
        };
        Ok(Self { host: format!("{}:{}", address.host, address.port), sender, login: None })
    }

    /// Connects to the node with the uuid `there`, and logs in as the node that this one is. `by_secret` as in [`NodeTls::login_at`].
    pub(crate) async fn open_as_node(
        address: &Address,
        node_tls: &NodeTls,
        there: &str,
        by_secret: bool,
    ) -> io::Result<Self> {
        let mut connection = Self::open(address, node_tls).await?;
        let login = match node_tls.login_at(there, by_secret)? {
            NodeLogin::Secret(secret) => basic(INTERNAL_USER, &secret),
            NodeLogin::Key(signer) => {
                let challenge = connection.challenge().await?;
                node_authorization(&signer.me, &signer.sign(LoginPort::Rest, &challenge))
            }
        };
        connection.login = Some(login);
        Ok(connection)
    }

    /// What the node at the other end wants signed.
    async fn challenge(&mut self) -> io::Result<Vec<u8>> {
        let answer = self.ask_for_challenge("/_settee/challenge").await?;
        let challenge = answer.get("challenge").and_then(Value::as_str);
        let challenge = challenge.and_then(|challenge| STANDARD.decode(challenge).ok());
        challenge.ok_or_else(|| io::Error::other("a node has answered without a challenge"))
    }

    /// What the other node, which has refused a login, says of the node with that number, which is this one, and its signature.
    /// Only a node of that cluster says anything.
    pub(crate) async fn verdict_on(
        &mut self,
        me: NodeId,
        cluster: &str,
        epoch: Epoch,
    ) -> io::Result<Option<(String, Vec<u8>)>> {
        let Epoch { number, lot } = epoch;
        let path = format!("/_settee/challenge?node={}&cluster={cluster}&epoch={number}&lot={lot}", me.get());
        let answer = self.ask_for_challenge(&path).await?;
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        let signature = text("signature").and_then(|signature| STANDARD.decode(signature).ok());
        Ok(text("verdict").map(|verdict| (verdict.to_owned(), signature.unwrap_or_default())))
    }

    async fn ask_for_challenge(&mut self, path: &str) -> io::Result<Value> {
        let (method, content_type) = (Method::GET, "application/json");
        let ask = Ask { method, path, authorization: None, content_type, body: Bytes::new() };
        let (status, body) = self.exchange(ask, CONNECT).await?;
        let malformed = |_| io::Error::other(format!("a node answered {status} instead of a challenge"));
        serde_json::from_slice(&body).map_err(malformed)
    }

    /// Whether another request could be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request and waits for the whole answer: its status and body.
    pub(crate) async fn exchange(&mut self, ask: Ask<'_>, patience: Duration) -> io::Result<(u16, Vec<u8>)> {
        let answer = async {
            let answer = self.begin(ask).await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map_err(io::Error::other)?.to_bytes().to_vec()))
        };
        timeout(patience, answer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends a request and waits for the beginning of the answer. The connection is good for another request once the answer's body
    /// was read to its end.
    pub(crate) async fn begin(&mut self, ask: Ask<'_>) -> io::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, ask.content_type);
        if let Some(authorization) = ask.authorization.or_else(|| self.login.clone()) {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(ask.body)).map_err(io::Error::other)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        self.sender.send_request(request).await.map_err(io::Error::other)
    }
}

/// Speaks HTTP over a stream until it ends, the sender does, or the other end has stalled.
async fn converse<S>(
    stream: S,
    stalled: impl Future<Output = ()> + Send + 'static,
) -> io::Result<http1::SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "a connection to another node ended");
            },
            () = stalled => tracing::debug!("another node takes nothing of what it is sent"),
        }
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncReadExt as _,
        net::{TcpListener, TcpSocket},
        time::{Instant, interval},
    };

    use super::*;

    const BRIEF: Duration = Duration::from_secs(1);
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Asks a node, which reads or does not, with more than fits on the way. Returns how that ends, and whether it took four times
    /// `BRIEF` or longer.
    async fn ask(reads: bool, patience: Duration) -> (io::Error, bool) {
        let socket = TcpSocket::new_v4().unwrap();
        // A small window is full all the time, and opens as often as the node reads.
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener: TcpListener = socket.listen(1).unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".into(), port, security: Security::Plain };
        let reading = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut ticks, mut buffer) = (interval(BRIEF / 20), vec![0; 2 << 10]);
            while reads && stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
                ticks.tick().await;
            }
            std::future::pending::<()>().await;
        };
        let asking = async {
            let mut connection = Connection::open_for(&address, &NodeTls::default(), BRIEF).await.unwrap();
            let body = Bytes::from(vec![7; 16 << 20]);
            let (method, content_type) = (Method::POST, "application/octet-stream");
            let ask = Ask { method, path: "/", authorization: None, content_type, body };
            let began = Instant::now();
            let error = connection.exchange(ask, patience).await.unwrap_err();
            (error, began.elapsed() >= 4 * BRIEF)
        };
        tokio::select! {
            () = reading => unreachable!(),
            ended = asking => ended,
        }
    }

    #[tokio::test]
    async fn a_node_that_reads_slowly_is_asked_to_the_end_and_one_that_takes_nothing_is_given_up() {
        let ((slow, lasted), (still, _)) = tokio::join!(ask(true, 4 * BRIEF), ask(false, PATIENCE));
        assert!(
            slow.kind() == io::ErrorKind::TimedOut && lasted,
            "its asker has lost patience, not the kernel: {slow}"
        );
        assert_ne!(
            still.kind(),
            io::ErrorKind::TimedOut,
            "the connection ends before patience does: {still}"
        );
    }
}
