//! Listening, TLS, HTTP/1.1 and the limits that keep slow, silent or too many clients from hurting the others.
//!
//! Each connection has one task and one of the listener's [`ListenerPlaces`]. A connection that takes too long over its handshake, its
//! first request or its headers is closed. So is one whose client takes nothing for a minute of what is on its way to it ([`stall`]).
//!
//! [`stall`]: crate::stall

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::{Request, request::Parts};
use cluster::is_name_of_node;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, ServerConnection},
};

use crate::{
    client_chain::ClientChain,
    connection::{Connection, ShownByClient},
    front::Admitted,
    gate::BoxFuture,
    places::{ListenerPlaces, Place},
    reply::Reply,
    stall::Watched,
};

/// How long a stopping server waits for answers under way.
const DRAIN: Duration = Duration::from_secs(5);
/// How long the listener rests after it could not accept (no file left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time, those of the cluster's members aside.
    pub connections: usize,
    /// Time for the header of the first request.
    pub first: Duration,
    /// Time for a request's header, and for the next request on a connection kept alive.
    pub header: Duration,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for which a client may take nothing of what is on its way to it.
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1000,
            first: Duration::from_secs(10),
            header: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
            stalled: Duration::from_secs(60),
        }
    }
}

/// What answers the requests of a listener.
pub trait Surface: Send + Sync + 'static {
    /// Answers one request.
    fn answer(self: Arc<Self>, parts: Parts, body: Incoming, from: Connection) -> BoxFuture<'static, Reply>;
}

/// What answers requests that another surface has admitted: their sender is known and has the right.
pub trait Behind: Send + Sync + 'static {
    /// Answers one request. `path`: its decoded segments, as this surface would be asked on a port of its own. The query is in `parts`.
    fn answer_admitted(
        self: Arc<Self>,
        parts: Parts,
        path: Vec<String>,
        admitted: Admitted,
        from: Connection,
    ) -> BoxFuture<'static, Reply>;

    /// Carries out an operation on one of the things that it keeps, which has a path of its own on the other surface only.
    fn operate(
        self: Arc<Self>,
        operation: Operation,
        admitted: Admitted,
        from: Connection,
    ) -> BoxFuture<'static, Reply>;
}

/// An operation on something that a service keeps for a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it is called in paths.
    pub name: String,
    /// The bucket.
    pub bucket: String,
    /// On what.
    pub object: String,
}

/// The TLS configuration for a handshake that begins now.
pub type TlsNow = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// Serves `surface` on `listener` until `shutdown` turns true, then lets answers under way finish for a moment.
///
/// # Errors
/// When the listener's own address cannot be read.
pub async fn serve<S: Surface + ?Sized>(
    listener: TcpListener,
    tls: Option<TlsNow>,
    surface: Arc<S>,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    listener.local_addr()?;
    let places = ListenerPlaces::new(limits.connections);
    let closing = shutdown.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut shutdown) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = places.admit(peer.ip());
        let tls = tls.as_ref().map(|now| TlsAcceptor::from(now()));
        let (surface, closing) = (Arc::clone(&surface), closing.clone());
        tokio::spawn(async move { accept(stream, peer, tls, surface, limits, closing, place).await });
    }
    drop(listener);
    // The end of the process cuts off connections that are still busy after the wait.
    let _ = timeout(DRAIN, places.emptied()).await;
    Ok(())
}

async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone: nobody could ask us to stop any more, which is a stop.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

async fn accept<S: Surface + ?Sized>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    surface: Arc<S>,
    limits: Limits,
    closing: watch::Receiver<bool>,
    place: Place,
) {
    let Ok(local) = stream.local_addr() else { return };
    configure(&stream, limits);
    let stream = Watched::new(stream);
    let link = stream.link();
    let place = Arc::new(place);
    let (shown_first, node, afterwards) = Default::default();
    let is_tls = tls.is_some();
    let mut from = Connection {
        peer,
        local,
        is_tls,
        closing,
        place: Arc::clone(&place),
        shown: shown_first,
        node,
        afterwards,
    };
    let conversation = async {
        match tls {
            None => converse(stream, surface, limits, from).await,
            Some(acceptor) => match timeout(limits.handshake, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    from.shown = shown(stream.get_ref().1);
                    converse(stream, surface, limits, from).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
            },
        }
    };
    tokio::select! {
        () = conversation => {}
        () = link.stalled(limits.stalled, || place.is_of_member()) => tracing::debug!(%peer, "closed: the client takes nothing"),
        () = place.ended() => tracing::debug!(%peer, "closed: another connection needed the place"),
    }
}

/// What the client of a finished handshake has shown.
fn shown(tls: &ServerConnection) -> ShownByClient {
    ShownByClient { chain: ClientChain::of(tls), is_for_node: tls.server_name().is_some_and(is_name_of_node) }
}

pub(crate) fn configure(stream: &TcpStream, limits: Limits) {
    let socket = socket2::SockRef::from(stream);
    // Each of these only shortens how long a dead client is kept; a kernel without them is no reason to refuse.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_keepalive(true);
    let _ = socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(limits.stalled));
}

async fn converse<S: Surface + ?Sized>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    surface: Arc<S>,
    limits: Limits,
    from: Connection,
) {
    let (mut closing, afterwards) = (from.closing.clone(), Arc::clone(&from.afterwards));
    let has_asked = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&has_asked);
    let service = service_fn(|request: Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        let (parts, body) = request.into_parts();
        let answer = Arc::clone(&surface).answer(parts, body, from.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopped(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = silence(limits.first, &has_asked) => return tracing::debug!("no request in time"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "REST connection ended");
    }
    if let Some(conversation) = afterwards.take() {
        conversation.await;
    }
}

/// Resolves when no request has come within `patience`.
async fn silence(patience: Duration, has_asked: &AtomicBool) {
    sleep(patience).await;
    if has_asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}
