//! A small HTTP/1.1 client for what nodes say to one another: one connection, one request at a time.

use std::{io, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(2);
/// For how long what was sent may stay unacknowledged: a node that was cut off is noticed by then.
const STALLED: Duration = Duration::from_secs(5);
/// Longest answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a node's REST interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A request without its connection.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) authorization: Option<String>,
    pub(crate) content_type: &'a str,
    pub(crate) body: Vec<u8>,
}

/// The header of Basic authentication.
pub(crate) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// An open connection.
pub(crate) struct Connection {
    host: String,
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Connects. The connection ends when this is dropped.
    pub(crate) async fn open(address: &Address) -> io::Result<Self> {
        let target = (address.host.trim_matches(['[', ']']), address.port);
        let stream =
            timeout(CONNECT, TcpStream::connect(target)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        stream.set_nodelay(true)?;
        // Only shortens how long a dead peer is waited for; a kernel without it is no reason to fail.
        let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(STALLED));
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to another node ended");
            }
        });
        Ok(Self { host: format!("{}:{}", address.host, address.port), sender })
    }

    /// Whether another request could be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request and waits for the whole answer: its status and body.
    pub(crate) async fn exchange(&mut self, ask: Ask<'_>, patience: Duration) -> io::Result<(u16, Vec<u8>)> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, ask.content_type);
        if let Some(authorization) = ask.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(Bytes::from(ask.body))).map_err(io::Error::other)?;
        let answer = async {
            self.sender.ready().await.map_err(io::Error::other)?;
            let answer = self.sender.send_request(request).await.map_err(io::Error::other)?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map_err(io::Error::other)?.to_bytes().to_vec()))
        };
        timeout(patience, answer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
