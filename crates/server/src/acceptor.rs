//! Accepts connections on every data-plane listener and places each on the least-loaded worker.
//!
//! One thread with its own poll. Beyond the connection limit a stranger's connection has to go for the new one
//! ([`crate::places`]); while the loops have not closed enough of these, the new one is closed at once, so that the client learns
//! of it instead of hanging in the backlog. When the process is out of file descriptors a
//! reserved one is given up for a moment to do the same; accepting then pauses, it never spins.

use std::{
    io,
    net::{IpAddr, TcpListener as StdListener},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use mio::{
    Events, Interest, Poll, Token, Waker,
    net::{TcpListener, TcpStream},
};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};

use crate::{
    handshake::Handshaker,
    mailbox::{Mailbox, NewConnection, Purpose},
    places::{DataPlaces, Place},
    transport::Transport,
    workers::ListenerKind,
};

const WAKER: Token = Token(usize::MAX);
/// Connections accepted from one listener before the others get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// How long accepting pauses after the process ran out of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections that have to go, and that their loops have not closed yet, beyond which new ones are closed at once.
const ENDING_MAX: usize = 128;
/// A silent peer is probed after this long, then every interval; nine lost probes (Linux default) close it.
const KEEPALIVE_TIME: Duration = Duration::from_secs(360);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Orders for the acceptor's thread.
#[derive(Debug, Default)]
struct Orders {
    listeners: Vec<(StdListener, ListenerKind)>,
    stop: bool,
}

/// What became of connections.
#[derive(Debug, Default)]
pub(crate) struct AcceptCounters {
    /// Accepted and handed to a worker.
    pub(crate) accepted: AtomicU64,
    /// Closed for want of a place or of file descriptors: the new connection, or a stranger's for it.
    pub(crate) rejected: AtomicU64,
}

/// Handle on the acceptor's thread.
#[derive(Debug)]
pub(crate) struct Acceptor {
    orders: Arc<Mutex<Orders>>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    pub(crate) counters: Arc<AcceptCounters>,
}

impl Acceptor {
    pub(crate) fn start(
        mailboxes: Arc<[Arc<Mailbox>]>,
        handshaker: Option<Handshaker>,
        connections_max: usize,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let orders = Arc::new(Mutex::new(Orders::default()));
        let counters = Arc::new(AcceptCounters::default());
        let mut accepting = Accepting {
            poll,
            orders: Arc::clone(&orders),
            listeners: Vec::new(),
            ready: Vec::new(),
            mailboxes,
            handshaker,
            connections_max,
            places: DataPlaces::new(connections_max),
            spare: spare_descriptor(),
            counters: Arc::clone(&counters),
        };
        let thread = thread::Builder::new().name("settee-acceptor".into()).spawn(move || accepting.run())?;
        Ok(Self { orders, waker, thread: Some(thread), counters })
    }

    /// Accepts from this listener as well.
    pub(crate) fn add_listener(&self, listener: StdListener, kind: ListenerKind) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.orders.lock().listeners.push((listener, kind));
        self.waker.wake()
    }

    /// Closes every listener.
    pub(crate) fn stop(&mut self) {
        self.orders.lock().stop = true;
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic there aborts the process in release builds; in tests it has been printed already.
            let _ = thread.join();
        }
    }
}

struct Accepting {
    poll: Poll,
    orders: Arc<Mutex<Orders>>,
    listeners: Vec<(TcpListener, ListenerKind)>,
    /// Listeners with connections waiting (edge-triggered: remembered until they say "would block").
    ready: Vec<usize>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    handshaker: Option<Handshaker>,
    connections_max: usize,
    places: DataPlaces,
    spare: Option<OwnedFd>,
    counters: Arc<AcceptCounters>,
}

enum Accepted {
    Drained,
    More,
    Exhausted,
}

impl Accepting {
    fn run(&mut self) {
        let mut events = Events::with_capacity(64);
        let mut pause = None;
        loop {
            let timeout = if self.ready.is_empty() { None } else { Some(pause.unwrap_or_default()) };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "the acceptor cannot poll");
                return;
            }
            for event in &events {
                match event.token() {
                    WAKER if self.follow_orders() => return,
                    WAKER => {}
                    Token(index) if !self.ready.contains(&index) => self.ready.push(index),
                    _ => {}
                }
            }
            pause = None;
            for index in std::mem::take(&mut self.ready) {
                match self.accept_some(index) {
                    Accepted::Drained => continue,
                    Accepted::More => {}
                    Accepted::Exhausted => pause = Some(PAUSE),
                }
                self.ready.push(index);
            }
        }
    }

    /// True when it is time to stop.
    fn follow_orders(&mut self) -> bool {
        let (listeners, stop) = {
            let mut orders = self.orders.lock();
            (std::mem::take(&mut orders.listeners), orders.stop)
        };
        for (listener, kind) in listeners {
            let mut listener = TcpListener::from_std(listener);
            let index = self.listeners.len();
            match self.poll.registry().register(&mut listener, Token(index), Interest::READABLE) {
                Ok(()) => {
                    self.listeners.push((listener, kind));
                    // Connections may have arrived before the registration.
                    self.ready.push(index);
                }
                Err(error) => tracing::error!(%error, "cannot listen"),
            }
        }
        stop
    }

    fn accept_some(&mut self, index: usize) -> Accepted {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((listener, kind)) = self.listeners.get(index) else { return Accepted::Drained };
            let kind = *kind;
            match listener.accept() {
                Ok((socket, peer)) => self.place(socket, peer.ip(), kind),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Accepted::Drained,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.shed(index, &error);
                        return Accepted::Exhausted;
                    }
                    // The peer went away before it was accepted, or a signal came: the next one may be fine.
                    _ => {}
                },
            }
        }
        Accepted::More
    }

    /// Gives up the spare descriptor to accept and close one connection.
    fn shed(&mut self, index: usize, error: &io::Error) {
        tracing::warn!(%error, "cannot accept connections");
        self.spare = None;
        if let Some((listener, _)) = self.listeners.get(index)
            && listener.accept().is_ok()
        {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
        }
        self.spare = spare_descriptor();
    }

    fn place(&mut self, socket: TcpStream, address: IpAddr, kind: ListenerKind) {
        let open: usize = self.mailboxes.iter().map(|mailbox| mailbox.load()).sum();
        let pending = self.handshaker.as_ref().map_or(0, Handshaker::pending);
        let ending = (open + pending).saturating_sub(self.places.len());
        if ending > ENDING_MAX && open + pending >= self.connections_max {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(mailbox) = self.mailboxes.iter().min_by_key(|mailbox| mailbox.load()) else { return };
        let (place, ended) = self.places.enter(address);
        if let Some(ended) = ended {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
            for mailbox in self.mailboxes.iter() {
                mailbox.post(|mail| mail.ended.push(ended));
            }
        }
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        prepare_socket(&socket);
        match (kind, &self.handshaker) {
            (ListenerKind::KvTls, Some(handshaker)) => handshaker.submit(socket, place),
            (ListenerKind::KvTls, None) => {}
            _ => deliver(mailbox, Transport::Plain(socket), place, kind),
        }
    }
}

/// Sends a connection to a worker.
pub(crate) fn deliver(mailbox: &Mailbox, transport: Transport, place: Place, kind: ListenerKind) {
    mailbox.add_load();
    let new = NewConnection { transport, place: Some(place), purpose: Purpose::Client(kind) };
    mailbox.post(|mail| mail.connections.push(new));
}

fn prepare_socket(socket: &TcpStream) {
    let options = SockRef::from(socket);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    if let Err(error) = socket.set_nodelay(true).and_then(|()| options.set_tcp_keepalive(&keepalive)) {
        // The peer may have gone already; reading will tell.
        tracing::debug!(%error, "cannot set socket options");
    }
}

fn spare_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}
