//! The data plane as a whole: its loops, their acceptor and helpers, started and stopped together.

use std::{
    io,
    net::TcpListener,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::ServerConfig;

use crate::{
    loops::{acceptor::Acceptor, handshake::Handshaker, worker::Worker},
    net::{limits, listener::ListenerKind},
    state::{
        helper::Helper,
        mailbox::{Mailbox, Wakes},
        shared::Shared,
    },
};

/// How the data plane is set up.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Loops, each a thread: as a rule one per core that serves data.
    pub workers: usize,
    /// Most open connections; reduced to what the file limit allows.
    pub connections_max: usize,
    /// The TLS configuration for [`ListenerKind::KvTls`] listeners.
    pub tls: Option<Arc<ServerConfig>>,
    /// A client that takes nothing of its answers for this long is closed.
    pub stall_timeout: Duration,
    /// A client whose bucket was dropped or emptied has so long to take what it was answered before. Its answers hold what is gone.
    pub gone_timeout: Duration,
    /// A client that has not logged in by then is closed, where nothing can be done without.
    pub login_timeout: Duration,
    /// Bytes that one loop may hold for slow clients: unread answers and unfinished requests. Beyond it the
    /// holders of most are closed.
    pub held_bytes_max: usize,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            workers: thread::available_parallelism().map_or(1, usize::from),
            connections_max: 30_000,
            tls: None,
            stall_timeout: Duration::from_secs(30),
            gone_timeout: Duration::from_secs(10),
            login_timeout: Duration::from_secs(30),
            held_bytes_max: 256 << 20,
        }
    }
}

/// The running data plane.
#[derive(Debug)]
pub struct Workers {
    mailboxes: Arc<[Arc<Mailbox>]>,
    threads: Vec<JoinHandle<()>>,
    acceptor: Acceptor,
    handshaker: Option<(Handshaker, Arc<ArcSwap<ServerConfig>>)>,
    connections_max: usize,
    shared: Arc<Shared>,
}

impl Workers {
    /// Starts the loops. They serve `shared`'s snapshot to clients of listeners added later.
    ///
    /// # Errors
    /// When threads, polls or wakers cannot be had.
    pub fn start(options: &WorkerOptions, shared: Arc<Shared>) -> io::Result<Self> {
        let connections_max = limits::fit_connections(options.connections_max, limits::raise_file_limit());
        if connections_max < options.connections_max {
            tracing::warn!(
                connections_max,
                wanted = options.connections_max,
                "the file limit allows fewer connections"
            );
        }
        shared.totals.connections_max.store(connections_max as u64, Ordering::Relaxed);
        let polls: Vec<_> =
            (0..options.workers.max(1)).map(|_| Worker::make_poll()).collect::<io::Result<_>>()?;
        let (polls, mailboxes): (Vec<_>, Vec<_>) = polls.into_iter().unzip();
        let mailboxes: Arc<[Arc<Mailbox>]> = mailboxes.into();
        let wakes = Wakes::new(Arc::clone(&mailboxes));
        shared.dcp.reach(wakes.clone());
        shared.forward.reach(wakes.clone(), Arc::clone(&shared.node_tls));
        let (helper, mut threads) = Helper::start(&wakes, options.workers)?;
        for (index, (poll, mailbox)) in polls.into_iter().zip(mailboxes.iter()).enumerate() {
            let (mailbox, shared, helper) = (Arc::clone(mailbox), Arc::clone(&shared), helper.clone());
            let mut worker = Worker::new(index, poll, mailbox, shared, helper, options);
            threads.push(
                thread::Builder::new().name(format!("settee-data-{index}")).spawn(move || worker.run())?,
            );
        }
        let mut handshaker = None;
        if let Some(tls) = &options.tls {
            let config = Arc::new(ArcSwap::new(Arc::clone(tls)));
            let (handle, thread) = Handshaker::start(Arc::clone(&config), Arc::clone(&mailboxes))?;
            threads.push(thread);
            handshaker = Some((handle, config));
        }
        let for_acceptor = handshaker.as_ref().map(|(handle, _)| handle.clone());
        let acceptor = Acceptor::start(Arc::clone(&mailboxes), for_acceptor, connections_max)?;
        Ok(Self { mailboxes, threads, acceptor, handshaker, connections_max, shared })
    }

    /// Serves the clients of `listener`.
    ///
    /// # Errors
    /// When it cannot be watched; a TLS listener without a TLS configuration is [`io::ErrorKind::Unsupported`].
    pub fn add_listener(&self, listener: TcpListener, kind: ListenerKind) -> io::Result<()> {
        if kind == ListenerKind::KvTls && self.handshaker.is_none() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no TLS configuration"));
        }
        self.acceptor.add_listener(listener, kind)
    }

    /// Delivers the engine's wake-ups for parked requests.
    #[must_use]
    pub fn notifier(&self) -> Wakes {
        Wakes::new(Arc::clone(&self.mailboxes))
    }

    /// How connections reach the loops.
    pub(crate) fn mailboxes(&self) -> Arc<[Arc<Mailbox>]> {
        Arc::clone(&self.mailboxes)
    }

    /// What handshakes to come go by; storing another configuration there changes it. None without TLS.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<ArcSwap<ServerConfig>>> {
        self.handshaker.as_ref().map(|(_, current)| Arc::clone(current))
    }

    /// How many loops there are; waiters name them by index.
    #[must_use]
    pub fn count(&self) -> usize {
        self.mailboxes.len()
    }

    /// The connection limit in force.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Connections turned away so far.
    #[must_use]
    pub fn connections_rejected(&self) -> u64 {
        self.acceptor.counters.rejected.load(Ordering::Relaxed)
    }

    /// Stops accepting, answers what has been read (requests that wait for the disk included, for up to
    /// `grace`), closes every connection and ends the threads. The engine's threads must keep running meanwhile.
    pub fn stop(mut self, grace: Duration) {
        self.acceptor.stop();
        if let Some((handshaker, _)) = &self.handshaker {
            handshaker.stop();
        }
        let deadline =
            self.shared.now().mono_millis + u64::try_from(grace.as_millis()).unwrap_or(u64::MAX / 2);
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|mail| mail.stop_by = Some(deadline));
        }
        for thread in self.threads {
            // A panic there aborts the process in release builds; in tests it has been printed already.
            let _ = thread.join();
        }
    }
}
