//! TLS handshakes, off the data-plane loops: their public-key arithmetic takes as long as a hundred requests.
//!
//! One thread with its own poll drives every handshake in flight. A finished one goes to the least-loaded worker
//! with whatever data the client sent behind it; one that does not finish in time is closed.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use mio::{Events, Interest, Poll, Token, Waker, net::TcpStream};
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection};

use crate::{
    net::{
        listener::ListenerKind,
        places::Place,
        transport::{TlsStream, Transport},
    },
    state::mailbox::Mailbox,
};

const WAKER: Token = Token(usize::MAX);
/// A client that has not finished its handshake by then is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Orders {
    sockets: Vec<(TcpStream, Place)>,
    stop: bool,
}

#[derive(Debug)]
struct Inner {
    orders: Mutex<Orders>,
    waker: Waker,
    pending: AtomicUsize,
}

/// Handle on the handshaking thread.
#[derive(Clone, Debug)]
pub(crate) struct Handshaker {
    inner: Arc<Inner>,
}

impl Handshaker {
    pub(crate) fn start(
        config: Arc<ArcSwap<ServerConfig>>,
        mailboxes: Arc<[Arc<Mailbox>]>,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let inner = Arc::new(Inner { orders: Mutex::default(), waker, pending: AtomicUsize::new(0) });
        let mut shaking = Handshaking {
            poll,
            inner: Arc::clone(&inner),
            config,
            mailboxes,
            running: HashMap::new(),
            next_token: 0,
        };
        let thread = thread::Builder::new().name("settee-tls".into()).spawn(move || shaking.run())?;
        Ok((Self { inner }, thread))
    }

    /// Takes over a fresh socket.
    pub(crate) fn submit(&self, socket: TcpStream, place: Place) {
        self.inner.pending.fetch_add(1, Ordering::Relaxed);
        self.inner.orders.lock().sockets.push((socket, place));
        self.wake();
    }

    /// Handshakes in flight.
    pub(crate) fn pending(&self) -> usize {
        self.inner.pending.load(Ordering::Relaxed)
    }

    /// Closes everything in flight and ends the thread.
    pub(crate) fn stop(&self) {
        self.inner.orders.lock().stop = true;
        self.wake();
    }

    fn wake(&self) {
        if let Err(error) = self.inner.waker.wake() {
            tracing::error!(%error, "cannot wake the TLS handshaker");
        }
    }
}

struct Shake {
    stream: Box<TlsStream>,
    place: Place,
    deadline: Instant,
}

struct Handshaking {
    poll: Poll,
    inner: Arc<Inner>,
    config: Arc<ArcSwap<ServerConfig>>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    running: HashMap<usize, Shake>,
    next_token: usize,
}

enum Progress {
    Waiting,
    Finished,
    Failed,
}

impl Handshaking {
    fn run(&mut self) {
        let mut events = Events::with_capacity(256);
        loop {
            let timeout = if self.running.is_empty() { None } else { Some(Duration::from_secs(1)) };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "the TLS handshaker cannot poll");
                return;
            }
            for event in &events {
                match event.token() {
                    WAKER if self.follow_orders() => return,
                    WAKER => {}
                    Token(token) => self.advance(token),
                }
            }
            self.close_overdue();
        }
    }

    fn follow_orders(&mut self) -> bool {
        let (sockets, stop) = {
            let mut orders = self.inner.orders.lock();
            (std::mem::take(&mut orders.sockets), orders.stop)
        };
        for (socket, place) in sockets {
            match self.begin(socket, place) {
                Ok(token) => self.advance(token),
                Err(error) => {
                    tracing::debug!(%error, "cannot begin a TLS handshake");
                    self.inner.pending.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        stop
    }

    fn begin(&mut self, mut socket: TcpStream, place: Place) -> io::Result<usize> {
        let tls = ServerConnection::new(self.config.load_full()).map_err(io::Error::other)?;
        let token = self.next_token;
        // Wraps after 2^63 handshakes; the waker's token is never reached.
        self.next_token = (token + 1) & (usize::MAX >> 1);
        self.poll.registry().register(&mut socket, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        let stream = Box::new(TlsStream::new(socket, tls.into()));
        self.running.insert(token, Shake { stream, place, deadline: Instant::now() + HANDSHAKE_TIMEOUT });
        Ok(token)
    }

    fn advance(&mut self, token: usize) {
        let Some(shake) = self.running.get_mut(&token) else { return };
        match step(&mut shake.stream) {
            Progress::Waiting => return,
            Progress::Finished => self.hand_over(token),
            Progress::Failed => drop(self.running.remove(&token)),
        }
        self.inner.pending.fetch_sub(1, Ordering::Relaxed);
    }

    fn hand_over(&mut self, token: usize) {
        let Some(mut shake) = self.running.remove(&token) else { return };
        if self.poll.registry().deregister(&mut shake.stream.socket).is_err() {
            return;
        }
        if let Some(mailbox) = self.mailboxes.iter().min_by_key(|mailbox| mailbox.load()) {
            mailbox.deliver(Transport::Tls(shake.stream), shake.place, ListenerKind::KvTls);
        }
    }

    fn close_overdue(&mut self) {
        let now = Instant::now();
        let before = self.running.len();
        self.running.retain(|_, shake| shake.deadline > now && !shake.place.is_lost());
        self.inner.pending.fetch_sub(before - self.running.len(), Ordering::Relaxed);
    }
}

/// Reads and writes until the socket blocks, the handshake is done or it has failed.
fn step(stream: &mut TlsStream) -> Progress {
    loop {
        if let Err(error) = stream.flush() {
            tracing::debug!(%error, "TLS handshake failed");
            return Progress::Failed;
        }
        if !stream.tls.is_handshaking() {
            return Progress::Finished;
        }
        match stream.tls.read_tls(&mut stream.socket) {
            Ok(0) => return Progress::Failed,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Waiting,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Progress::Failed,
        }
        if let Err(error) = stream.tls.process_new_packets() {
            tracing::debug!(%error, "TLS handshake failed");
            // Tell the peer why, as far as its socket takes it.
            let _ = stream.flush();
            return Progress::Failed;
        }
    }
}
