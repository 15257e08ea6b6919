//! Links to the nodes that this one follows: what is wished for, what has become of it, and the list of them.
//!
//! A link is state that three threads see. The control plane wishes and dials ([`crate::links`]), a loop has the connection,
//! and statistics show how it fares.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use base::{BucketUuid, NodeId, VbId};
use engine::{Bucket, Waiter};
use parking_lot::Mutex;
use replication::{
    LinkName,
    consumer::{StreamWish, stats::ConsumerStats},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    net::{peer::PeerAddress, transport::Transport},
    state::mailbox::{Mailbox, NewConnection, Purpose},
};

/// Wakes a connection to look at what is wished for. No vBucket has this ticket.
pub(crate) const WISHES: u64 = u64::MAX;

/// "Not followed" in the table of terms.
const NO_TERM: u64 = u64::MAX;

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
    /// Whether a connection made for the one serves the other: it goes to the same place, and feeds the same replicas. A
    /// bucket that was opened anew has others.
    pub(crate) fn is_of_same_connection(&self, other: &Self) -> bool {
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

/// Why a node cannot be followed, in words for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub(crate) String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Reason {
    fn from(words: &str) -> Self {
        Self(words.to_owned())
    }
}

impl From<std::io::Error> for Reason {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
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
pub(crate) struct Dials {
    pub(crate) connects: u64,
    pub(crate) failure: Option<Reason>,
}

impl Dials {
    pub(crate) fn succeed(&mut self) {
        self.connects += 1;
        self.failure = None;
    }
}

/// One bucket here follows one node.
pub(crate) struct Link {
    pub(crate) me: NodeId,
    created: u32,
    mailboxes: Arc<[Arc<Mailbox>]>,
    pub(crate) on_change: Arc<dyn Fn() + Send + Sync>,
    wish: Mutex<Arc<LinkWish>>,
    /// The connection, while a loop has it.
    pub(crate) seat: Mutex<Option<Waiter>>,
    /// The address is another, or it is over: the task need not rest.
    pub(crate) news: Notify,
    over: AtomicBool,
    /// The terms at which vBuckets are being followed.
    terms: Box<[AtomicU64]>,
    pub(crate) dials: Mutex<Dials>,
    pub(crate) stats: Arc<ConsumerStats>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wish = self.wish();
        f.debug_struct("Link").field("bucket", &wish.name).field("peer", &wish.peer).finish_non_exhaustive()
    }
}

impl Link {
    /// Of a wish that is new at `created` (unix seconds).
    pub(crate) fn new(
        me: NodeId,
        wish: LinkWish,
        created: u32,
        mailboxes: Arc<[Arc<Mailbox>]>,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) -> Self {
        let vbuckets = wish.engine.vbuckets();
        Self {
            me,
            created,
            mailboxes,
            on_change,
            wish: Mutex::new(Arc::new(wish)),
            seat: Mutex::default(),
            news: Notify::new(),
            over: AtomicBool::new(false),
            terms: (0..vbuckets).map(|_| AtomicU64::new(NO_TERM)).collect(),
            dials: Mutex::default(),
            stats: Arc::default(),
        }
    }

    pub(crate) fn view(&self) -> LinkView {
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
    pub(crate) fn wish(&self) -> Arc<LinkWish> {
        Arc::clone(&self.wish.lock())
    }

    pub(crate) fn follow(&self, wish: LinkWish) {
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

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.news.notify_one();
        self.wake();
    }

    pub(crate) fn is_over(&self) -> bool {
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

    pub(crate) fn set_following(&self, vb: VbId, term: Option<u64>) {
        if let Some(place) = self.terms.get(usize::from(vb.get())) {
            place.store(term.unwrap_or(NO_TERM), Ordering::Release);
        }
    }

    /// Gives a connection that was opened for `wish` to the loop that has fewest. What is returned fails when it is closed.
    pub(crate) fn hand_over(
        self: &Arc<Self>,
        transport: Transport,
        wish: Arc<LinkWish>,
    ) -> oneshot::Receiver<()> {
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
    pub(crate) link: Arc<Link>,
    /// What the connection was dialled for. The link may be told of another address while it dials.
    pub(crate) wish: Arc<LinkWish>,
    /// Dropped with the connection.
    _lives: oneshot::Sender<()>,
}

/// Whom this node follows, and how that fares.
#[derive(Debug, Default)]
pub struct LinkList {
    pub(crate) links: Mutex<BTreeMap<(BucketUuid, NodeId), Arc<Link>>>,
}

impl LinkList {
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
}
