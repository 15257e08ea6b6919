//! How other threads reach a worker: a mailbox with a waker.
//!
//! The acceptor, the TLS handshaker and replication links post connections. The engine's flusher and fetcher threads
//! post wake-ups for parked requests. The helper thread posts the results of slow work. The daemon posts configuration
//! changes and the order to stop. A post costs one short mutex and, only when the worker is not already due to look,
//! one `eventfd` write. Queues are bounded by what they name: one wake-up per parked request, one message per socket.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use base::Status;
use engine::Waiter;
use mio::Waker;
use stats::ConnectionsReport;

use crate::{
    net::{listener::ListenerKind, places::Place, transport::Transport},
    state::{completion::Completion, flagged::Flagged, link::LinkOrder},
};

/// A socket on its way to a worker.
#[derive(Debug)]
pub(crate) struct NewConnection {
    /// The socket, handshake done where there is one.
    pub(crate) transport: Transport,
    /// Its place, where a listener has accepted it.
    pub(crate) place: Option<Place>,
    /// What it is for.
    pub(crate) purpose: Purpose,
}

/// What a connection is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A client's, accepted by a listener of this kind.
    Client(ListenerKind),
    /// Ours, to a node that is followed.
    Link(Box<LinkOrder>),
}

/// Is told what the connections of a worker have done since the look before.
pub(crate) struct Look(Box<dyn FnOnce(ConnectionsReport) + Send>);

impl Look {
    pub(crate) fn answer(self, report: ConnectionsReport) {
        (self.0)(report);
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

/// What a worker finds when it looks.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Sockets to take over.
    pub(crate) connections: Vec<NewConnection>,
    /// Places of strangers that have to go for others.
    pub(crate) ended: Vec<u64>,
    /// Parked requests to execute again.
    pub(crate) wakes: Vec<Waiter>,
    /// Slow work that has finished.
    pub(crate) completions: Vec<(Waiter, Completion)>,
    /// A new snapshot was published: push cluster maps.
    pub(crate) config_changed: bool,
    /// Readers that want to know what connections do.
    pub(crate) looks: Vec<Look>,
    /// Finish what is in flight, but end by then (monotonic milliseconds).
    pub(crate) stop_by: Option<u64>,
}

/// One worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    mail: Flagged<Mail>,
    waker: Waker,
    /// Connections this worker owns or was sent; what the acceptor balances by.
    load: AtomicUsize,
    /// The snapshot that this worker goes by: whatever it executes from now on, it executes in that one or in a later one.
    follows: AtomicU64,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { mail: Flagged::default(), waker, load: AtomicUsize::new(0), follows: AtomicU64::new(0) }
    }

    /// Changes the mail and makes sure that the worker looks at it.
    pub(crate) fn post(&self, put: impl FnOnce(&mut Mail)) {
        if let Err(error) = self.mail.post(put, || self.waker.wake()) {
            tracing::error!(%error, "cannot wake a worker");
        }
    }

    /// Sends a client's connection here.
    pub(crate) fn deliver(&self, transport: Transport, place: Place, kind: ListenerKind) {
        self.add_load();
        let new = NewConnection { transport, place: Some(place), purpose: Purpose::Client(kind) };
        self.post(|mail| mail.connections.push(new));
    }

    /// Takes everything, leaving `into`'s emptied vectors behind for reuse.
    pub(crate) fn collect(&self, into: &mut Mail) {
        self.mail.collect(into);
    }

    /// The worker goes by the snapshot of that generation.
    pub(crate) fn follow(&self, generation: u64) {
        // Release: what was executed in earlier snapshots has happened for a thread that sees this.
        self.follows.store(generation, Ordering::Release);
    }

    /// Counts a connection sent here.
    pub(crate) fn add_load(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection closed.
    pub(crate) fn remove_load(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections owned or on their way.
    pub(crate) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }
}

/// Delivers the engine's wake-ups to the worker that parked the request. The daemon puts it behind
/// [`engine::Notifier`], next to its own flush and fetch threads.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    mailboxes: Arc<[Arc<Mailbox>]>,
}

impl Wakes {
    pub(crate) fn new(mailboxes: Arc<[Arc<Mailbox>]>) -> Self {
        Self { mailboxes }
    }

    /// Has the parked request executed again. A waiter whose connection is gone is ignored by its worker.
    pub fn wake(&self, waiter: Waiter) {
        if let Some(mailbox) = self.mailboxes.get(waiter.worker as usize) {
            mailbox.post(|mail| mail.wakes.push(waiter));
        }
    }

    /// Pushes the cluster maps of the published snapshot to the connections that asked for it, and closes those
    /// whose bucket is gone.
    pub fn config_changed(&self) {
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|mail| mail.config_changed = true);
        }
    }

    /// Whether no worker executes anything any more in a snapshot before that generation. [`Wakes::config_changed`] has them look.
    pub fn all_follow(&self, generation: u64) -> bool {
        self.mailboxes.iter().all(|mailbox| mailbox.follows.load(Ordering::Acquire) >= generation)
    }

    /// Has every worker tell what its connections have done since it was asked last. A worker that ends tells nothing: `told` is
    /// dropped there.
    pub fn look_at_connections(&self, told: impl FnOnce(ConnectionsReport) + Clone + Send + 'static) {
        for mailbox in self.mailboxes.iter() {
            let look = Look(Box::new(told.clone()));
            mailbox.post(|mail| mail.looks.push(look));
        }
    }

    /// Delivers how a slow command ended.
    pub fn done(&self, waiter: Waiter, outcome: Result<(), Status>) {
        self.complete(waiter, Completion::Done(outcome));
    }

    /// Delivers the result of slow work.
    pub(crate) fn complete(&self, waiter: Waiter, completion: Completion) {
        if let Some(mailbox) = self.mailboxes.get(waiter.worker as usize) {
            mailbox.post(|mail| mail.completions.push((waiter, completion)));
        }
    }
}
