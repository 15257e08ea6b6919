//! Replication links: outgoing connections to the nodes whose vBuckets this node follows, one per bucket and node.
//!
//! What is wished for is said as a whole, as often as one likes; links compare it with what they have. A link is dialled by a
//! task of the control plane ([`dial`]), which makes the whole handshake, and then belongs to a data-plane loop like any
//! connection ([`inbound`]), until it breaks or is not wanted any more. The task waits for that and dials again, after a
//! pause that grows while nothing works, for as long as the link is wished for. Nothing here decides what is followed.
//!
//! How a link fares can be seen from outside at any time ([`Links::views`]), most of all when it does not: a replica that
//! nobody feeds looks like one to which nothing is written.

mod dial;
mod inbound;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use base::{BucketUuid, NodeId, VbId};
use cluster::{Metadata, NodeInfo};
use engine::{Bucket, Waiter};
use parking_lot::Mutex;
use replication::{
    LinkName, Redial,
    consumer::{StreamWish, stats::ConsumerStats},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    time,
};

pub use dial::{Reason, log_in};
pub(crate) use inbound::Inbound;

use crate::{
    loops::workers::Workers,
    net::transport::Transport,
    state::{
        mailbox::{Mailbox, NewConnection, Purpose},
        shared::Shared,
    },
};

/// Wakes a connection to look at what is wished for. No vBucket has this ticket.
const WISHES: u64 = u64::MAX;

/// "Not followed" in the table of terms.
const NO_TERM: u64 = u64::MAX;

/// A dialling that has not ended by then has failed.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Where another node's data service is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// The node.
    pub node: NodeId,
    /// Its host name or address.
    pub host: String,
    /// Its port for the binary protocol.
    pub kv_port: u16,
    /// Whether that is the port for TLS.
    pub tls: bool,
}

impl PeerAddress {
    /// Where documents come from that this node has.
    #[must_use]
    pub fn of(node: &NodeInfo, metadata: &Metadata) -> Self {
        let tls = metadata.encrypts_data_to(node);
        let kv_port = if tls { node.ports.kv_tls } else { node.ports.kv };
        Self { node: node.id, host: node.host.clone(), kv_port, tls }
    }
}

/// What is to be followed of one bucket on one node.
#[derive(Clone)]
pub struct LinkWish {
    /// The bucket.
    pub bucket: BucketUuid,
    /// Its name.
    pub name: String,
    /// The replicas here.
    pub engine: Arc<Bucket>,
    /// The node.
    pub peer: PeerAddress,
    /// The vBuckets; a vBucket is in one wish at most.
    pub streams: Vec<StreamWish>,
}

impl LinkWish {
    /// Whether a connection made for the one serves the other: it goes to the same place, and feeds the same replicas, which a
    /// bucket that was opened anew does not have.
    fn is_of_same_connection(&self, other: &Self) -> bool {
        self.peer == other.peer && self.name == other.name && Arc::ptr_eq(&self.engine, &other.engine)
    }
}

impl fmt::Debug for LinkWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkWish")
            .field("bucket", &self.name)
            .field("peer", &self.peer)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

/// See the module header.
pub struct Links {
    shared: Arc<Shared>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    runtime: Handle,
    on_change: Arc<dyn Fn() + Send + Sync>,
    links: Mutex<BTreeMap<(BucketUuid, NodeId), Arc<Link>>>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("links", &self.links.lock().len()).finish_non_exhaustive()
    }
}

impl Links {
    /// No links yet. `on_change` is called, on any thread, when a vBucket has begun to be followed or is followed no
    /// longer; it must not block.
    #[must_use]
    pub fn start(
        shared: Arc<Shared>,
        workers: &Workers,
        runtime: Handle,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let links = Arc::new(Self {
            shared: Arc::clone(&shared),
            mailboxes: workers.mailboxes(),
            runtime,
            on_change: Arc::new(on_change),
            links: Mutex::default(),
        });
        shared.show_links(&links);
        links
    }

    /// This is wished for, and nothing else. `me` is this node.
    pub fn want(&self, me: NodeId, wishes: Vec<LinkWish>) {
        let mut links = self.links.lock();
        let mut wanted: BTreeMap<_, _> =
            wishes.into_iter().map(|wish| ((wish.bucket.clone(), wish.peer.node), wish)).collect();
        links.retain(|key, link| {
            let stays = wanted.contains_key(key) && link.me == me;
            if !stays {
                link.end();
                let ended = link.view();
                self.shared.dcp.note_end(&key.0.0, |totals| totals.add_ended_link(&ended));
            }
            stays
        });
        if links.is_empty() {
            // A node that follows nobody may have left its cluster.
            let open = self.shared.snapshot();
            self.shared.dcp.keep_ended(|uuid| open.buckets.values().any(|bucket| bucket.uuid.0 == uuid));
        }
        for (key, link) in links.iter() {
            if let Some(wish) = wanted.remove(key) {
                link.follow(wish);
            }
        }
        for (key, wish) in wanted {
            let link = Arc::new(Link::new(me, wish, self));
            self.runtime.spawn(keep(Arc::clone(&link)));
            links.insert(key, link);
        }
    }

    /// The term at which a vBucket is being followed, if it is: a stream is open, and what it says reaches the replica.
    #[must_use]
    pub fn following(&self, bucket: &BucketUuid, vb: VbId) -> Option<u64> {
        let links = self.links.lock();
        let of_bucket = links.iter().filter(|((uuid, _), _)| uuid == bucket);
        of_bucket.filter_map(|(_, link)| link.following(vb)).max()
    }

    /// What can be told of a bucket's links, by the node followed.
    pub(crate) fn views(&self, bucket: &BucketUuid) -> Vec<LinkView> {
        self.of_bucket(bucket).iter().map(|link| link.view()).collect()
    }

    /// By the node that a bucket follows: copies here that shall follow its copies now, and do not.
    pub fn cut_off(&self, bucket: &BucketUuid) -> BTreeMap<NodeId, u32> {
        let counts = self.of_bucket(bucket).into_iter().map(|link| (link.wish().peer.node, link.cut_off()));
        counts.filter(|(_, copies)| *copies > 0).collect()
    }

    fn of_bucket(&self, bucket: &BucketUuid) -> Vec<Arc<Link>> {
        let links = self.links.lock();
        let of_bucket = links.iter().filter(|((uuid, _), _)| uuid == bucket);
        of_bucket.map(|(_, link)| Arc::clone(link)).collect()
    }

    /// Ends every link.
    pub fn stop(&self) {
        for link in std::mem::take(&mut *self.links.lock()).into_values() {
            link.end();
        }
    }
}

/// How a link fares.
#[derive(Clone, Debug)]
pub(crate) struct LinkView {
    /// What the connection is called at both ends.
    pub(crate) name: String,
    /// Unix seconds at which it was first wished for.
    pub(crate) created: u32,
    /// Whether there is a connection.
    pub(crate) is_up: bool,
    /// How often there was a new one.
    pub(crate) connects: u64,
    /// Why the last try to have one failed, until one succeeds.
    pub(crate) failure: Option<String>,
    /// What shall be followed, and whether it is.
    pub(crate) streams: Vec<(VbId, bool)>,
    /// What has come over it.
    pub(crate) stats: Arc<ConsumerStats>,
}

/// What has become of the tries to have a connection.
#[derive(Clone, Debug, Default)]
struct Dials {
    connects: u64,
    failure: Option<Reason>,
}

impl Dials {
    fn succeed(&mut self) {
        self.connects += 1;
        self.failure = None;
    }
}

/// One bucket here follows one node.
pub(crate) struct Link {
    me: NodeId,
    created: u32,
    shared: Arc<Shared>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    on_change: Arc<dyn Fn() + Send + Sync>,
    wish: Mutex<Arc<LinkWish>>,
    /// The connection, while a loop has it.
    seat: Mutex<Option<Waiter>>,
    /// The address is another, or it is over: the task need not rest.
    news: Notify,
    over: AtomicBool,
    /// The terms at which vBuckets are being followed.
    terms: Box<[AtomicU64]>,
    dials: Mutex<Dials>,
    pub(crate) stats: Arc<ConsumerStats>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wish = self.wish();
        f.debug_struct("Link").field("bucket", &wish.name).field("peer", &wish.peer).finish_non_exhaustive()
    }
}

impl Link {
    fn new(me: NodeId, wish: LinkWish, links: &Links) -> Self {
        let vbuckets = wish.engine.vbuckets();
        Self {
            me,
            created: links.shared.now().unix_secs(),
            shared: Arc::clone(&links.shared),
            mailboxes: Arc::clone(&links.mailboxes),
            on_change: Arc::clone(&links.on_change),
            wish: Mutex::new(Arc::new(wish)),
            seat: Mutex::default(),
            news: Notify::new(),
            over: AtomicBool::new(false),
            terms: (0..vbuckets).map(|_| AtomicU64::new(NO_TERM)).collect(),
            dials: Mutex::default(),
            stats: Arc::default(),
        }
    }

    fn view(&self) -> LinkView {
        let (wish, dials) = (self.wish(), self.dials.lock().clone());
        let name = LinkName { from: wish.peer.node, to: self.me, bucket: &wish.name }.to_string();
        LinkView {
            name,
            created: self.created,
            is_up: self.seat.lock().is_some(),
            connects: dials.connects,
            failure: dials.failure.map(|reason| reason.to_string()),
            streams: wish.streams.iter().map(|stream| (stream.vb, self.is_open(stream))).collect(),
            stats: Arc::clone(&self.stats),
        }
    }

    /// How many of the streams that are wished for are not open.
    fn cut_off(&self) -> u32 {
        let wish = self.wish();
        let closed = wish.streams.iter().filter(|stream| !self.is_open(stream));
        u32::try_from(closed.count()).unwrap_or(u32::MAX)
    }

    fn is_open(&self, stream: &StreamWish) -> bool {
        self.following(stream.vb) == Some(stream.term)
    }

    /// What is wished for now.
    fn wish(&self) -> Arc<LinkWish> {
        Arc::clone(&self.wish.lock())
    }

    fn follow(&self, wish: LinkWish) {
        let mut current = self.wish.lock();
        let stays = current.is_of_same_connection(&wish);
        if stays && current.streams == wish.streams {
            return;
        }
        *current = Arc::new(wish);
        drop(current);
        if !stays {
            self.news.notify_one();
        }
        self.wake();
    }

    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.news.notify_one();
        self.wake();
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Has the connection look at what is wished for.
    fn wake(&self) {
        let seat = *self.seat.lock();
        if let Some(seat) = seat
            && let Some(mailbox) = self.mailboxes.get(seat.worker as usize)
        {
            mailbox.post(|mail| mail.wakes.push(Waiter { ticket: WISHES, ..seat }));
        }
    }

    fn following(&self, vb: VbId) -> Option<u64> {
        let term = self.terms.get(usize::from(vb.get()))?.load(Ordering::Acquire);
        (term != NO_TERM).then_some(term)
    }

    fn set_following(&self, vb: VbId, term: Option<u64>) {
        if let Some(place) = self.terms.get(usize::from(vb.get())) {
            place.store(term.unwrap_or(NO_TERM), Ordering::Release);
        }
    }

    /// Gives a connection that was opened for `wish` to the loop that has fewest. What is returned fails when it is closed.
    fn hand_over(self: &Arc<Self>, transport: Transport, wish: Arc<LinkWish>) -> oneshot::Receiver<()> {
        let (lives, closed) = oneshot::channel();
        if let Some(mailbox) = self.mailboxes.iter().min_by_key(|mailbox| mailbox.load()) {
            mailbox.add_load();
            let order = Box::new(LinkOrder { link: Arc::clone(self), wish, _lives: lives });
            let new = NewConnection { transport, place: None, purpose: Purpose::Link(order) };
            mailbox.post(|mail| mail.connections.push(new));
        }
        closed
    }
}

/// A link's connection on its way to a loop, and for as long as that has it.
#[derive(Debug)]
pub(crate) struct LinkOrder {
    link: Arc<Link>,
    /// What the connection was dialled for. The link may be told of another address while it dials.
    wish: Arc<LinkWish>,
    /// Dropped with the connection.
    _lives: oneshot::Sender<()>,
}

/// Keeps a link up until it is over.
async fn keep(link: Arc<Link>) {
    let (began, mut redial) = (time::Instant::now(), Redial::default());
    let millis = |at: time::Instant| (at - began).as_millis() as u64;
    while !link.is_over() {
        let wish = link.wish();
        let mut since = time::Instant::now();
        let dialled = time::timeout(DIAL_TIMEOUT, dial::dial(&link, &wish)).await;
        match dialled.unwrap_or_else(|_| Err("it did not answer in time".into())) {
            Ok(transport) => {
                tracing::info!(bucket = wish.name, node = wish.peer.node.get(), "following a node");
                link.dials.lock().succeed();
                redial.connected(millis(time::Instant::now()));
                // Ends when the holder of the connection has dropped it.
                let _ = link.hand_over(transport, wish).await;
                since = time::Instant::now();
            }
            Err(reason) => {
                // Once per reason: it is tried again every second for as long as it takes.
                let before = link.dials.lock().failure.replace(reason.clone());
                if before.as_ref() != Some(&reason) {
                    let (bucket, node) = (&wish.name, wish.peer.node.get());
                    tracing::warn!(bucket, node, host = wish.peer.host, port = wish.peer.kv_port, %reason, "cannot follow a node");
                }
            }
        }
        if !link.is_over() {
            let pause = Duration::from_millis(redial.lost(millis(since)));
            // An address that changes is tried at once.
            let _ = time::timeout_at(since + pause, link.news.notified()).await;
        }
    }
}
