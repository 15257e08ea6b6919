//! Accepts connections on every data-plane listener and places each on the least-loaded worker.
//!
//! One thread with its own poll. Beyond the connection limit a stranger's connection has to go for the new one
//! ([`crate::net::places`]). While the loops have not closed enough of these, the new one is closed at once. So its
//! client learns of it instead of hanging in the backlog. When the process is out of file descriptors a reserved one is
//! given up for a moment to do the same. A listener that goes on failing for whatever reason is left alone for a
//! moment: accepting never spins.

use std::{
    io,
    net::{IpAddr, TcpListener as StdListener},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use mio::{
    Events, Interest, Poll, Token, Waker,
    net::{TcpListener, TcpStream},
};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};

use crate::{
    loops::handshake::Handshaker,
    net::{listener::ListenerKind, places::DataPlaces, transport::Transport},
    state::mailbox::Mailbox,
};

const WAKER: Token = Token(usize::MAX);
/// Connections accepted from one listener before the others get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// How long accepting pauses after the process ran out of file descriptors or memory, or a listener did nothing but fail.
const PAUSE: Duration = Duration::from_millis(50);
/// The log hears of failures no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(5);
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
            told: None,
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
    /// When the log heard of a failure last.
    told: Option<Instant>,
}

/// What a turn of a listener came to.
#[derive(Debug, PartialEq, Eq)]
enum Accepted {
    /// Nobody waits there any more.
    Drained,
    /// Others wait there.
    More,
    /// Others may wait there, and trying again at once is in vain.
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
            pause = self.accept_all();
        }
    }

    /// Gives each listener that is ready its turn; how long to wait before those left get another one.
    fn accept_all(&mut self) -> Option<Duration> {
        let (mut exhausted, mut more) = (false, false);
        for index in std::mem::take(&mut self.ready) {
            match self.accept_some(index) {
                Accepted::Drained => continue,
                Accepted::More => more = true,
                Accepted::Exhausted => exhausted = true,
            }
            self.ready.push(index);
        }
        // A listener that fails holds up none that has connections for us.
        (exhausted && !more).then_some(PAUSE)
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
        let mut failed = None;
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((listener, kind)) = self.listeners.get(index) else { return Accepted::Drained };
            let kind = *kind;
            match listener.accept() {
                Ok((socket, peer)) => {
                    failed = None;
                    self.place(socket, peer.ip(), kind);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Accepted::Drained,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.shed(index, &error);
                        return Accepted::Exhausted;
                    }
                    // The peer went away before it was accepted, or a signal came: the next one may be fine.
                    Some(libc::ECONNABORTED | libc::EINTR) => {}
                    _ => failed = Some(error),
                },
            }
        }
        // It may be one connection that cannot be had; it is none where the whole turn brought nothing else.
        let Some(error) = failed else { return Accepted::More };
        self.tell(&error);
        Accepted::Exhausted
    }

    fn tell(&mut self, error: &io::Error) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            tracing::warn!(%error, "cannot accept connections");
        }
    }

    /// Gives up the spare descriptor to accept and close one connection.
    fn shed(&mut self, index: usize, error: &io::Error) {
        self.tell(error);
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
        let (place, ended) = self.places.admit(address);
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
            _ => mailbox.deliver(Transport::Plain(socket), place, kind),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    fn accepting(listeners: Vec<StdListener>) -> Accepting {
        let register = |listener: StdListener| {
            listener.set_nonblocking(true).unwrap();
            (TcpListener::from_std(listener), ListenerKind::Kv)
        };
        Accepting {
            poll: Poll::new().unwrap(),
            orders: Arc::default(),
            ready: (0..listeners.len()).collect(),
            listeners: listeners.into_iter().map(register).collect(),
            mailboxes: Arc::new([]),
            handshaker: None,
            connections_max: 10,
            places: DataPlaces::new(10),
            spare: None,
            counters: Arc::default(),
            told: None,
        }
    }

    fn listener() -> StdListener {
        StdListener::bind("127.0.0.1:0").unwrap()
    }

    /// Accepting fails from now on, with an error that says nothing of a connection.
    fn break_for_good(listener: &StdListener) {
        SockRef::from(listener).shutdown(Shutdown::Both).unwrap();
    }

    #[test]
    fn a_listener_that_goes_on_failing_is_left_alone_for_a_moment() {
        let broken = listener();
        break_for_good(&broken);
        let mut accepting = accepting(vec![broken]);
        for _ in 0..3 {
            assert_eq!(accepting.accept_all(), Some(PAUSE));
            assert_eq!(accepting.ready, [0], "it may work again");
        }
    }

    #[test]
    fn it_holds_up_no_other_listener() {
        let (broken, busy) = (listener(), listener());
        let address = busy.local_addr().unwrap();
        let clients = || std::net::TcpStream::connect(address).unwrap();
        let clients: Vec<_> = (0..=ACCEPTS_PER_TURN).map(|_| clients()).collect();
        break_for_good(&broken);
        let mut accepting = accepting(vec![broken, busy]);
        assert_eq!(accepting.accept_all(), None, "the other one has more");
        assert_eq!(accepting.accept_all(), Some(PAUSE), "it has no more");
        drop(clients);
    }
}
